"""Compiled and exported, a head computes what it computes eagerly."""

import io

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from tests.deployment.comparison import (
    assert_same_predictive,
    every_predictive,
    loss_and_gradients,
)
from tests.helpers.cases import (
    COVERING,
    derived,
    make_examples,
    make_head,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", COVERING)
@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_loss_and_its_gradients_equal_eager(name: str) -> None:
    head = make_head(name)
    data = make_examples(head, 8)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    assert_close(loss_and_gradients(head, *data, compiled), loss_and_gradients(head, *data))


@pytest.mark.slow
@pytest.mark.parametrize("name", COVERING)
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
@pytest.mark.parametrize("name", COVERING)
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
