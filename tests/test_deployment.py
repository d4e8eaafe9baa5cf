"""Compiled, exported, stacked, cast, saved or sharded, a head computes what it computes plainly."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import lastlayer as ll
from lastlayer.covariances._triangular import Triangular
from tests.helpers.cases import (
    BLOCK,
    CASES,
    PREDICTIVES,
    derived,
    gradients,
    make_examples,
    make_head,
)

every_case = pytest.mark.parametrize("name", CASES)
# What a head predicts does not depend on the bound it was trained with.
every_prediction = pytest.mark.parametrize("name", [name for name in CASES if "tilted" not in name])
every_predictive = pytest.mark.parametrize("name", PREDICTIVES)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Triangular, "BLOCK", BLOCK)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def leaves(predictive: object) -> list[Tensor]:
    return pytree.tree_leaves(predictive)


def assert_same_predictive(actual: object, expected: object, **tolerance: Any) -> None:
    assert type(actual) is type(expected)
    assert_close(leaves(actual), leaves(expected), **tolerance)


def assert_identical(actual: object, expected: object) -> None:
    assert_same_predictive(actual, expected, rtol=0, atol=0)


def loss_and_gradients(
    head: ll.Head, features: Tensor, target: Tensor, call: Callable[..., Tensor] | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    head.zero_grad()
    loss = (head if call is None else call)(features, target)
    loss.backward()
    return loss.detach(), gradients(head)


# ------------------------------------------------------------------------ compile and export


# Tilted without label noise is left out: seconds to trace, and no operation of its own.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("tilted-none")])
@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_loss_and_its_gradients_equal_eager(name: str) -> None:
    head = make_head(name)
    data = make_examples(head, 8)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    assert_close(loss_and_gradients(head, *data, compiled), loss_and_gradients(head, *data))


@every_prediction
@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_predictive_equals_eager(name: str) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 8)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_same_predictive(compiled(features), head(features))


# Inductor generates C++ and compiles it, some ten seconds per case, so two: what cases share
# is already compared under aot_eager. Without label noise the variance of the logits
# is a bare matrix product, which inductor fuses into the sum that follows, and it then forgets
# the sum's `alpha` (torch 2.13); the generative case has the most operations.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["discriminative-diagonal-jensen-none", "generative-low_rank-dense"],
)
@pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning")
@pytest.mark.usefixtures("_fresh_compiler")
def test_inductor_equals_eager_in_both_calls(name: str) -> None:
    head = make_head(name)
    features, target = make_examples(head, 8)
    compiled = torch.compile(head, fullgraph=True, backend="inductor")
    actual = loss_and_gradients(head, features, target, compiled)
    assert_close(actual, loss_and_gradients(head, features, target))
    with torch.no_grad():
        assert_same_predictive(compiled(features), head(features))


@pytest.mark.slow
@every_predictive
@pytest.mark.usefixtures("_fresh_compiler")
def test_what_a_predictive_computes_is_the_same_inside_a_compiled_graph(name: str) -> None:
    head = make_head(name)
    features, target = make_examples(head, 8)

    def call(features: Tensor, target: Tensor) -> dict[str, Tensor]:
        return derived(head(features), target)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(compiled(features, target), call(features, target))


@pytest.mark.slow
@every_prediction
def test_exported_prediction_equals_eager_at_other_batch_sizes(name: str) -> None:
    head = make_head(name)
    exported = _export(head, make_examples(head, 8)[0])
    for size in (1, 5, 20):
        features, _ = make_examples(head, size, seed=2)
        assert_same_predictive(exported.module()(features), head(features))


@pytest.mark.slow
@every_predictive
def test_a_saved_export_predicts_the_same_when_loaded(name: str) -> None:
    head = make_head(name)
    file = io.BytesIO()
    torch.export.save(_export(head, make_examples(head, 8)[0]), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    features, _ = make_examples(head, 5, seed=2)
    assert_same_predictive(loaded(features), head(features))


class _Deployed(nn.Module):
    """What a service would export: numbers rather than a predictive."""

    def __init__(self, head: ll.Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor, target: Tensor) -> dict[str, Tensor]:
        return derived(self.head(features), target)


@pytest.mark.slow
@every_predictive
def test_what_a_predictive_computes_can_be_exported(name: str) -> None:
    module = _Deployed(make_head(name))
    exported = _export(module, *make_examples(module.head, 8))
    data = make_examples(module.head, 5, seed=2)
    assert_close(exported.module()(*data), module(*data))


def _export(module: nn.Module, *inputs: Tensor) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch")
    return torch.export.export(module, inputs, dynamic_shapes=tuple({0: batch} for _ in inputs))


# -------------------------------------------------------------------------------------- vmap


@every_case
def test_stacked_heads_equal_a_loop_over_them(name: str) -> None:
    heads = [make_head(name, seed) for seed in range(3)]
    features, target = make_examples(heads[0], 8)
    state = stack_module_state(heads)
    template = copy.deepcopy(heads[0]).to("meta")

    def call(params: dict[str, Tensor], buffers: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        return functional_call(template, (params, buffers), inputs)

    over_heads = vmap(call, in_dims=(0, 0, None))
    predictives = over_heads(*state, features)
    losses = vmap(call, in_dims=(0, 0, None, None))(*state, features, target)
    slopes = vmap(grad(call), in_dims=(0, 0, None, None))(*state, features, target)
    for index, head in enumerate(heads):
        assert_same_predictive(predictives[index], head(features))
        alone = loss_and_gradients(head, features, target)
        assert_close((losses[index], {key: slopes[key][index] for key in slopes}), alone)


# -------------------------------------------------------------------------------- precision


def assert_near(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    """Errors are small relative to the largest value of all, or to one if all are smaller.

    Sums of terms of both signs lose digits relative to the terms, not to themselves.
    """
    size = max(1.0, *(float(value.detach().abs().max()) for value in expected))
    for value, exact in zip(actual, expected, strict=True):
        assert_close(value.double(), exact.double(), rtol=0, atol=tolerance * size)


# An entry of W̄φ or R_kφ is a sum of at most seven products. Rounding both factors and the result
# to bfloat16 (u = 2⁻⁸) changes it by at most 3u times the sum of the absolute products, which
# is seldom more than twice the largest entry; squaring doubles that. Losses are
# averages of such entries, gradients through as many roundings again.
ROUNDINGS = 12


@every_case
def test_autocast_agrees_with_single_precision_to_the_accuracy_of_bfloat16(name: str) -> None:
    head = make_head(name, dtype=torch.float32)
    features, target = make_examples(head, 8, dtype=torch.float32)
    tolerance = ROUNDINGS * torch.finfo(torch.bfloat16).eps / 2

    def cast(*inputs: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return head(*inputs)

    loss, slopes = loss_and_gradients(head, features, target, cast)
    expected, expected_slopes = loss_and_gradients(head, features, target)
    assert_near([loss], [expected], tolerance)
    assert_near(list(slopes.values()), list(expected_slopes.values()), 2 * tolerance)
    predictive, exact = cast(features), head(features)
    assert type(predictive) is type(exact)
    assert_near(leaves(predictive), leaves(exact), tolerance)
    assert {tensor.dtype for tensor in (loss, *leaves(predictive))} == {torch.float32}


@every_case
def test_autocast_takes_the_half_precision_features_of_a_backbone(name: str) -> None:
    head = make_head(name, dtype=torch.float32)
    features, target = make_examples(head, 8, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, predictive = head(features, target), head(features)
        same_loss, same = head(features.float(), target), head(features.float())
    assert_close(loss, same_loss)
    assert_same_predictive(predictive, same)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@every_case
def test_narrow_heads_agree_with_double_precision_to_their_own_accuracy(
    name: str, dtype: torch.dtype
) -> None:
    # the same (rounded) parameters and data in both, so that only arithmetic differs
    narrow, wide = make_head(name, dtype=dtype), CASES[name](dtype=torch.float64)
    wide.load_state_dict(narrow.state_dict())
    features, target = make_examples(narrow, 8, dtype=dtype)
    exact_target = target.double() if target.is_floating_point() else target
    tolerance = ROUNDINGS * torch.finfo(dtype).eps / 2
    loss, slopes = loss_and_gradients(narrow, features, target)
    exact, exact_slopes = loss_and_gradients(wide, features.double(), exact_target)
    assert_near([loss], [exact], tolerance)
    assert_near(list(slopes.values()), list(exact_slopes.values()), 2 * tolerance)
    predictive, expected = narrow(features), wide(features.double())
    assert type(predictive) is type(expected)
    assert_near(leaves(predictive), leaves(expected), tolerance)
    assert {tensor.dtype for tensor in slopes.values()} == {dtype}
    assert {tensor.dtype for tensor in (loss, *leaves(predictive))} == {torch.float32}


# --------------------------------------------------------------------------- copies and files


@every_case
def test_a_deep_copy_predicts_the_same_and_learns_apart(name: str) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 8)
    before = head(features)
    twin = copy.deepcopy(head)
    assert_identical(twin(features), before)
    with torch.no_grad():
        for tensor in (*twin.parameters(), *twin.buffers()):
            tensor.add_(1.0)
    assert_identical(head(features), before)


@every_case
def test_state_travels_exactly_through_state_dicts_and_safetensors(
    name: str, tmp_path: Path
) -> None:
    head = make_head(name)
    features, target = make_examples(head, 8)
    save_file(head.state_dict(), tmp_path / "head.safetensors")
    for state in (head.state_dict(), load_file(tmp_path / "head.safetensors")):
        other = CASES[name]()
        other.load_state_dict(state)
        assert_identical(other(features), head(features))
        assert_close(other(features, target), head(features, target), rtol=0, atol=0)


@every_case
def test_a_predictive_survives_pickle_and_torch_save_unchanged(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 8)[0])
    assert_identical(pickle.loads(pickle.dumps(predictive)), predictive)
    file = io.BytesIO()
    torch.save(predictive, file)
    file.seek(0)
    with torch.serialization.safe_globals([type(predictive)]):
        assert_identical(torch.load(file, weights_only=True), predictive)


@every_case
def test_a_pickled_head_predicts_the_same(name: str) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 8)
    assert_identical(pickle.loads(pickle.dumps(head))(features), head(features))


# --------------------------------------------------------------------------- predictives as data


@every_predictive
def test_a_predictive_is_a_pytree_of_its_tensors(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 8)[0])
    tensors, structure = pytree.tree_flatten(predictive)
    assert [id(tensor) for tensor in tensors] == [
        id(tensor) for tensor in vars(predictive).values()
    ]
    assert_identical(pytree.tree_unflatten(tensors, structure), predictive)
    doubled = pytree.tree_map(lambda tensor: 2 * tensor, predictive)
    assert type(doubled) is type(predictive)
    assert_close(leaves(doubled), [2 * tensor for tensor in tensors])


@pytest.mark.parametrize(
    "index",
    [2, -1, slice(1, 3), (slice(None), 0), (..., 1), (None, 0), torch.tensor([3, 0, 3])],
    ids=str,
)
@every_predictive
def test_indexing_a_predictive_is_predicting_for_the_indexed_features(
    name: str, index: object
) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 4, 2)
    batch = torch.arange(8).reshape(4, 2)[index]  # type: ignore[index]
    assert_same_predictive(head(features)[index], head(features.reshape(8, -1)[batch]))


@every_predictive
def test_a_predictive_cannot_be_indexed_beyond_its_batch(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 4)[0])
    with pytest.raises(IndexError, match="2 indices for a batch of shape"):
        predictive[0, 0]


@every_predictive
def test_moving_and_detaching_a_predictive_does_so_to_every_tensor(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 8)[0])
    assert any(tensor.requires_grad for tensor in leaves(predictive))
    single = predictive.to(torch.float32)
    assert type(single) is type(predictive)
    assert_close(leaves(single), [tensor.float() for tensor in leaves(predictive)], rtol=0, atol=0)
    detached = predictive.detach()
    assert not any(tensor.requires_grad for tensor in leaves(detached))
    assert_identical(detached, predictive)
    assert all(tensor.is_meta for tensor in leaves(predictive.to("meta")))
    assert_identical(predictive.cpu(), predictive)


# -------------------------------------------------------------------------------- meta device


@every_case
def test_a_meta_head_has_the_shapes_of_a_real_one_and_starts_the_same(name: str) -> None:
    with torch.device("meta"):
        in_context = CASES[name]()
    for head in (CASES[name](device="meta"), in_context):
        tensors = {**dict(head.named_parameters()), **dict(head.named_buffers())}
        assert all(tensor.is_meta for tensor in tensors.values())
        torch.manual_seed(3)
        real = CASES[name]()
        features, target = make_examples(real, 8)
        assert head(features.to("meta"), target.to("meta")).shape == ()
        head.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.fill_(float("nan"))  # whatever was in memory
        torch.manual_seed(3)
        head.reset_parameters()
        assert_identical(head(features), real(features))
        assert_close(head(features, target), real(features, target), rtol=0, atol=0)


def test_resetting_every_module_that_can_be_starts_a_head_anew() -> None:
    for name, make in CASES.items():
        torch.manual_seed(3)
        expected = make().state_dict()
        head = make_head(name)
        torch.manual_seed(3)
        for module in head.modules():  # as FSDP and others do after leaving the meta device
            reset: Any = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
        assert_close(head.state_dict(), expected)
