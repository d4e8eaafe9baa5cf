"""All heads and predictives, and comparisons of what they compute."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import lastlayer as ll
from tests.helpers.cases import (
    CASES,
    PREDICTIVES,
    gradients,
)

every_case = pytest.mark.parametrize("name", CASES)
every_predictive = pytest.mark.parametrize("name", PREDICTIVES)


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
