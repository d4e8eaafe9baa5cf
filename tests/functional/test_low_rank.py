"""Low-rank Gaussians are those of torch.distributions, and stay finite where those fail."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from lastlayer.functional import (
    low_rank_condition,
    low_rank_entropy,
    low_rank_information,
    low_rank_log_density,
    low_rank_root,
)

every_shape = pytest.mark.parametrize(("num_rows", "rank"), [(1, 1), (3, 8), (5, 5), (9, 4)])


def example(num_rows: int, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    error = torch.randn(2, 3, num_rows, generator=generator)
    factor = torch.randn(2, 3, num_rows, rank, generator=generator)
    return error, factor, torch.rand(2, 3, generator=generator) + 0.1


@every_shape
def test_density_entropy_and_information_are_those_of_torch(
    num_rows: int, rank: int, generator: torch.Generator
) -> None:
    error, factor, scale = example(num_rows, rank, generator)
    noise = scale.square()[..., None, None] * torch.eye(num_rows)
    normal = MultivariateNormal(torch.zeros(num_rows), factor @ factor.mT + noise)
    torch.testing.assert_close(low_rank_log_density(error, factor, scale), normal.log_prob(error))
    torch.testing.assert_close(low_rank_entropy(factor, scale), normal.entropy())
    given = MultivariateNormal(torch.zeros(num_rows), noise).entropy()
    torch.testing.assert_close(low_rank_information(factor, scale), normal.entropy() - given)


@every_shape
def test_gradients_are_those_of_finite_differences(
    num_rows: int, rank: int, generator: torch.Generator
) -> None:
    inputs = [tensor.requires_grad_() for tensor in example(num_rows, rank, generator)]
    assert torch.autograd.gradcheck(low_rank_log_density, inputs)
    assert torch.autograd.gradcheck(low_rank_entropy, inputs[1:])
    assert torch.autograd.gradcheck(low_rank_information, inputs[1:])


@pytest.mark.parametrize("rank", [4, 40])
def test_single_precision_keeps_noise_whose_variance_it_could_not_add(
    rank: int, generator: torch.Generator
) -> None:
    """1 + 1e-8 is 1 in single precision, and AAᵀ + σ²I of repeated rows then singular."""
    error, factor, _ = example(20, rank, generator)
    scale = torch.full((2, 3), 1e-4)
    exact = low_rank_entropy(factor, scale)
    narrow = low_rank_entropy(factor.float(), scale.float()).double()
    torch.testing.assert_close(narrow, exact, rtol=1e-5, atol=1e-4)
    repeated = factor[..., :1, :].expand_as(factor)
    eigenvalue = 20 * factor[..., 0, :].square().sum(-1)  # of twenty times the same row
    expected = 0.5 * (eigenvalue / scale.square()).log1p()
    information = low_rank_information(repeated.float(), scale.float())
    torch.testing.assert_close(information.double(), expected, rtol=1e-3, atol=0)
    assert low_rank_log_density(error.float(), repeated.float(), scale.float()).isfinite().all()


def test_without_noise_a_flat_gaussian_has_no_density(generator: torch.Generator) -> None:
    error, factor, _ = example(6, 2, generator)
    scale = torch.zeros(2, 3)
    assert (low_rank_log_density(error, factor, scale) == -math.inf).all()
    assert (low_rank_entropy(factor, scale) == -math.inf).all()
    assert (low_rank_information(factor, scale) == math.inf).all()


@every_shape
def test_roots_are_triangular_and_their_squares_the_covariance(
    num_rows: int, rank: int, generator: torch.Generator
) -> None:
    _, factor, scale = example(num_rows, rank, generator)
    root = low_rank_root(factor, scale)
    noise = scale.square()[..., None, None] * torch.eye(num_rows)
    torch.testing.assert_close(root.mT @ root, factor @ factor.mT + noise)
    torch.testing.assert_close(root, root.triu())


@every_shape
def test_conditioning_is_that_of_dense_gaussians(
    num_rows: int, rank: int, generator: torch.Generator
) -> None:
    """For errors of more leading dimensions than the factor has, too."""
    error, factor, _ = example(num_rows, rank, generator)
    shift, white, half = low_rank_condition(error, factor[0])
    gain = factor[0].mT @ torch.linalg.inv(factor[0] @ factor[0].mT + torch.eye(num_rows))
    torch.testing.assert_close(shift, (gain @ error.unsqueeze(-1)).squeeze(-1))
    root = torch.eye(rank) - white.mT @ half
    torch.testing.assert_close(root @ root.mT, torch.eye(rank) - gain @ factor[0])
