"""A traced function does what the function does, in fewer operations."""

import torch
from torch import Tensor
from torch.testing import assert_close

from lastlayer.training.tracing import trace

aten = torch.ops.aten


def operations(traced) -> list:
    return [node.target for node in traced.graph.nodes if node.op == "call_function"]


def test_equal_operations_run_once_and_give_the_same(generator):
    def function(x: Tensor) -> Tensor:
        return (x * 3).sin() + (x * 3).sin() * x.mT.mT

    x, y = torch.randn(2, 4, 4, generator=generator)
    traced = trace(function, (x,))
    assert_close(traced(y), function(y), rtol=0, atol=0)
    counts = [operations(traced).count(op) for op in (aten.sin.default, aten.transpose.int)]
    assert counts == [1, 0]


def test_what_does_not_depend_on_the_arguments_is_computed_once(generator):
    def function(x: Tensor) -> Tensor:
        return x * (torch.ones_like(x) * 2).exp() + torch.zeros_like(x).sum()

    x, y = torch.randn(2, 5, generator=generator)
    traced = trace(function, (x,))
    assert_close(traced(y), function(y))
    assert set(operations(traced)) == {aten.mul.Tensor, aten.add.Tensor}


def test_results_that_are_constant_or_an_argument_are_returned(generator):
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ones_like(x) * 4, x.view(5), x * 1

    x, y = torch.randn(2, 5, generator=generator)
    found = trace(function, (x,))(y)
    for one, two in zip(found, function(y), strict=True):
        assert_close(one, two)


def test_random_numbers_stay_random_and_apart():
    def function(x: Tensor) -> Tensor:
        return torch.rand_like(x) - torch.rand_like(x)

    x = torch.zeros(100)
    traced = trace(function, (x,))
    torch.manual_seed(0)
    first, second = traced(x), traced(x)
    torch.manual_seed(0)
    assert_close(first, function(x), rtol=0, atol=0)
    assert (first != 0).any()
    assert not torch.equal(first, second)


def test_a_buffer_that_changes_in_between_is_read_again(generator):
    def function(total: Tensor, x: Tensor) -> Tensor:
        before = total * 2
        total.add_(x)
        return before + total * 2

    x = torch.randn(3, generator=generator)
    traced = trace(function, (torch.zeros(3), x))
    total, expected = torch.ones(3), torch.ones(3)
    assert_close(traced(total, x), function(expected, x))
    assert_close(total, expected)
    assert_close(total, 1 + x)


def test_a_factor_of_one_that_changes_the_type_stays():
    def function(x: Tensor) -> Tensor:
        return x * 1.0

    x = torch.arange(3)
    assert trace(function, (x,))(x).dtype == function(x).dtype == torch.get_default_dtype()
