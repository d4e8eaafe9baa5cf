"""The parts of the objective come out of the call, and cost nothing when they are not asked for."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.heads import recorded
from tests.helpers.cases import CASES, NUM_FEATURES, NUM_OUTPUTS, make_examples, make_head

HEADS = ["regression-shared-diagonal-identity", "regression-shared-dense-noise"]
HEADS += ["discriminative-dense-tilted-diagonal", "generative-low_rank-dense"]


def combined(head: ll.Head, parts: Any) -> Tensor:
    regularizer = head.prior.kl_weight * parts["kl"] - parts["log_prior"]
    return -parts["bound"] + regularizer / head.num_data


@pytest.mark.parametrize("name", CASES)
def test_the_objective_is_one_bound_per_example_and_the_parts_make_the_loss(name: str) -> None:
    head = make_head(name)
    features, target = make_examples(head, 5, 2)
    weight = torch.rand(5, 2)
    bounds, kl, log_prior = head.objective(head._inputs(features), target, weight)
    assert bounds.shape == (5, 2)
    one_by_one = [
        head.elbo(features[i, j], target[i, j]).bound * weight[i, j]
        for i in range(5)
        for j in range(2)
    ]
    assert_close(bounds.flatten(), torch.stack(one_by_one))
    with recorded(head) as parts:
        loss = head(features, target, weight)
    assert set(parts) == {"bound", "kl", "log_prior"}
    assert_close(parts["bound"], bounds.mean())
    assert_close((parts["kl"], parts["log_prior"]), (kl, log_prior))
    assert_close(combined(head, parts), loss)
    gradients = torch.autograd.grad(combined(head, parts), list(head.parameters()))
    assert_close(
        gradients, torch.autograd.grad(head(features, target, weight), [*head.parameters()])
    )


def test_weights_per_output_count_before_outputs_are_summed() -> None:
    head = make_head("regression-dense-diagonal-identity")
    features, target = make_examples(head, 7)
    weight = torch.rand(7, NUM_OUTPUTS)
    each = [
        head.objective(features, target, only)[0]
        for only in torch.eye(NUM_OUTPUTS).unsqueeze(1).expand(-1, 7, -1)
    ]
    bounds = head.objective(features, target, weight)[0]
    assert_close(bounds, sum(weight[:, k] * each[k] for k in range(NUM_OUTPUTS)))


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.usefixtures("_fresh_compiler")
def test_parts_come_out_of_compiled_and_vectorised_calls(name: str) -> None:
    heads = [make_head(name, seed) for seed in (0, 1)]
    features, target = make_examples(heads[0], 4)
    expected = [head.elbo(features, target) for head in heads]
    compiled: Any = torch.compile(heads[0], backend="eager", fullgraph=True)
    for _ in range(2):
        with recorded(compiled) as parts:
            loss = compiled(features, target)
        assert_close(loss, heads[0](features, target))
        assert_close(parts["bound"], expected[0].bound)
        assert_close(parts["kl"], expected[0].kl)
    assert_close(compiled(features, target), loss)
    state = stack_module_state(heads)
    skeleton = copy.deepcopy(heads[0])

    def objective(parameters: Any, buffers: Any) -> Any:
        with recorded(skeleton) as parts:
            loss = functional_call(skeleton, (parameters, buffers), (features, target))
        return loss, dict(parts)

    losses, parts = vmap(objective)(*state)
    assert_close(losses, torch.stack([head(features, target) for head in heads]))
    assert_close(parts["bound"], torch.stack([elbo.bound for elbo in expected]))
    assert_close(parts["log_prior"], torch.stack([elbo.log_prior for elbo in expected]))
    torch.export.export(heads[0], (features, target))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = make_head(HEADS[0], 0), make_head(HEADS[0], 1)

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        return self.first(features, target) + self.second(features, target)


def test_parts_of_several_heads_are_summed() -> None:
    model = TwoHeads()
    data = make_examples(model.first, 6)
    with recorded(model) as parts:
        model(*data)
    assert_close(parts["kl"], model.first.elbo(*data).kl + model.second.elbo(*data).kl)


def test_recording_ends_with_its_block_and_is_not_copied() -> None:
    head = make_head(HEADS[0])
    features, target = make_examples(head, 6)
    with recorded(head) as outer:
        alone = head.elbo(features, target)  # records by itself
        assert not outer
        head(features, target)
        copies = [copy.deepcopy(head), pickle.loads(pickle.dumps(head))]
        for other in copies:
            other(features + 1, target)
        assert_close(outer["bound"], alone.bound)
    with pytest.raises(RuntimeError, match="stop"), recorded(head):
        raise RuntimeError("stop")
    before = dict(outer)
    head(features + 1, target)
    assert outer == before
    assert head(features).mean.shape == (6, NUM_OUTPUTS)


def test_hooks_and_overridden_calls_are_part_of_the_loss_and_its_parts() -> None:
    class Scaled(ll.Regression):
        def forward(  # type: ignore[override]
            self, features: Tensor, target: Any = None, weight: Any = None
        ) -> Any:
            return super().forward(features / 10, target, weight)

    head, plain = (make(NUM_FEATURES, NUM_OUTPUTS, num_data=40) for make in (Scaled, ll.Regression))
    head.load_state_dict(plain.state_dict())
    features, target = make_examples(plain, 6)
    assert_close(head.elbo(features, target), plain.elbo(features / 10, target))
    plain.register_forward_pre_hook(lambda module, args: (args[0] / 10, *args[1:]))
    assert_close(head.elbo(features, target), plain.elbo(features, target))
    assert_close(head(features, target), plain(features, target))
