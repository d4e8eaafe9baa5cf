"""The marginal likelihood is that of torch.distributions, and its gradient that of differences."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from lastlayer.functional import log_marginal_likelihood

every_shape = pytest.mark.parametrize(("num_rows", "rank"), [(1, 1), (3, 8), (5, 5), (9, 4)])


def example(num_rows: int, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    target = torch.randn(2, 3, num_rows, generator=generator)
    factor = torch.randn(2, 3, num_rows, rank, generator=generator)
    return target, factor, torch.rand(2, 3, generator=generator) + 0.1


@every_shape
def test_value_is_the_log_density_of_a_multivariate_normal(
    num_rows: int, rank: int, generator: torch.Generator
) -> None:
    target, factor, scale = example(num_rows, rank, generator)
    noise = scale.square()[..., None, None] * torch.eye(num_rows)
    normal = MultivariateNormal(torch.zeros(num_rows), factor @ factor.mT + noise)
    torch.testing.assert_close(
        log_marginal_likelihood(target, factor, scale), normal.log_prob(target)
    )


@every_shape
def test_gradient_is_that_of_finite_differences(
    num_rows: int, rank: int, generator: torch.Generator
) -> None:
    inputs = [tensor.requires_grad_() for tensor in example(num_rows, rank, generator)]
    assert torch.autograd.gradcheck(log_marginal_likelihood, inputs)


def test_single_precision_is_computed_in_double(generator: torch.Generator) -> None:
    """1 + 1e-8 is 1 in single precision, and AAᵀ + σ²I of repeated rows then singular."""
    target, factor, _ = example(20, 4, generator)
    factor = factor[..., :1, :].expand_as(factor).float().requires_grad_()
    scale = torch.full((2, 3), 1e-4).requires_grad_()
    narrow = log_marginal_likelihood(target.float(), factor, scale)
    exact = log_marginal_likelihood(target.float().double(), factor.double(), scale.double())
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), exact, rtol=1e-6, atol=0)
    narrow.sum().backward()
    assert factor.grad is not None
    assert factor.grad.isfinite().all()


def test_singular_covariances_are_nan_and_leave_others_alone() -> None:
    factor = torch.ones(2, 3, 1)
    scale = torch.tensor([0.0, 1.0])
    value = log_marginal_likelihood(torch.zeros(2, 3), factor, scale)
    assert value.isnan().tolist() == [True, False]
