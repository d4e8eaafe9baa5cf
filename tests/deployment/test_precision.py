"""Stacked, under autocast or in narrow dtypes, a head computes the same up to rounding."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.testing import assert_close

from tests.deployment.comparison import (
    assert_same_predictive,
    every_case,
    leaves,
    loss_and_gradients,
)
from tests.helpers.cases import (
    CASES,
    make_examples,
    make_head,
)


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
