"""The posterior of a last layer is that of brute force, on every shape, and so are its draws."""

import itertools
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import ChainedOutcomeTransform, Log, Normalize, Standardize
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from torch import Tensor
from torch.testing import assert_close

from lastlayer.botorch import LastLayerModel

from .oracle import NUM_FEATURES, Oracle, covariances, observations

every_size = pytest.mark.parametrize("num_outputs", [1, 3])
every_shape = pytest.mark.parametrize(
    "shape", [(1,), (3,), (NUM_FEATURES + 5,), (2, 1), (4, 3), (2, 3, 2)]
)


def points(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 4 * torch.rand(*shape, 2, generator=generator) - 3


@every_size
@every_shape
@pytest.mark.parametrize("noise", ["none", "own", "given"])
def test_the_posterior_is_that_of_brute_force(
    num_outputs: int, shape: tuple[int, ...], noise: str, generator: torch.Generator
) -> None:
    oracle = Oracle(*observations(num_outputs, generator))
    where = points(shape, generator)
    given = torch.rand(*shape, num_outputs, generator=generator) + 0.1
    argument: Any = {"none": False, "own": True, "given": given}[noise]
    added = {"none": None, "own": oracle.noise.expand(*shape, -1), "given": given}[noise]
    posterior = oracle.model.posterior(where, observation_noise=argument)
    assert posterior.mean.shape == (*shape, num_outputs)
    found = covariances(posterior)
    for index in itertools.product(*map(range, shape[:-1])):
        extra = None if added is None else added[index]
        mean, covariance = oracle.values(where[index], added=extra)
        assert_close(posterior.mean[index], mean)
        assert_close(found[index], covariance)
        assert_close(posterior.variance[index], covariance.diagonal(dim1=-2, dim2=-1).mT)


@every_size
@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("num_points", [3, NUM_FEATURES + 2])
def test_draws_from_base_samples_have_the_joint_covariance(
    num_outputs: int, noise: bool, num_points: int, generator: torch.Generator
) -> None:
    """Unit vectors for base samples are the columns of a root of the covariance."""
    oracle = Oracle(*observations(num_outputs, generator))
    where = points((num_points,), generator)
    posterior = oracle.model.posterior(where, observation_noise=noise)
    size = posterior.base_sample_shape.numel()
    base = torch.eye(size).reshape(size, *posterior.base_sample_shape)
    draws = posterior.rsample_from_base_samples(torch.Size([size]), base) - posterior.mean
    root = draws.flatten(1)
    added = oracle.noise.expand(num_points, -1) if noise else None
    _, covariance = oracle.values(where, added=added)
    full = (root.mT @ root).unflatten(0, (num_points, -1)).unflatten(-1, (num_points, -1))
    assert_close(full.diagonal(dim1=1, dim2=3).movedim(-1, 0), covariance)
    for i, j in itertools.permutations(range(num_outputs), 2):
        assert full[:, i, :, j].abs().max() < 1e-10


def test_repeated_points_have_repeated_values(generator: torch.Generator) -> None:
    oracle = Oracle(*observations(1, generator))
    where = points((2,), generator)[[0, 1, 0, 0]]
    draws = oracle.model.posterior(where).rsample(torch.Size([5]))
    assert_close(draws[:, 2], draws[:, 0], rtol=0, atol=1e-6)
    assert (draws[:, 1] - draws[:, 0]).abs().max() > 1e-3


def test_samples_of_a_sampler_are_the_same_wherever_a_point_is_in_a_batch(
    generator: torch.Generator,
) -> None:
    model = Oracle(*observations(1, generator)).model
    where = points((5, 2), generator)
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=3)
    every = sampler(model.posterior(where))
    one = SobolQMCNormalSampler(torch.Size([8]), seed=3)(model.posterior(where[3:4]))
    assert_close(every[:, 3:4], one)


@every_shape
def test_outputs_can_be_selected(shape: tuple[int, ...], generator: torch.Generator) -> None:
    model = Oracle(*observations(3, generator)).model
    where = points(shape, generator)
    every = model.posterior(where, observation_noise=True)
    for chosen in ([1], [2, 0], [-1]):
        some = model.subset_output(chosen)
        assert some.num_outputs == len(chosen)
        indexed = model.posterior(where, output_indices=chosen, observation_noise=True)
        for posterior in (indexed, some.posterior(where, observation_noise=True)):
            assert_close(posterior.mean, every.mean[..., chosen])
            assert_close(covariances(posterior), covariances(every)[..., chosen, :, :])


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3)])
def test_a_weighted_sum_of_outputs_has_the_sum_of_their_covariances(
    shape: tuple[int, ...], generator: torch.Generator
) -> None:
    model = Oracle(*observations(3, generator)).model
    where, weights = points(shape, generator), torch.tensor([0.5, -1.0, 2.0])
    every = model.posterior(where)
    summed = model.posterior(where, posterior_transform=ScalarizedPosteriorTransform(weights))
    assert_close(summed.mean, every.mean @ weights.unsqueeze(-1))
    expected = (weights.square()[:, None, None] * covariances(every)).sum(-3)
    assert_close(covariances(summed).squeeze(-3), expected)


@every_size
@every_shape
def test_functions_are_drawn_from_the_posterior(
    num_outputs: int, shape: tuple[int, ...], generator: torch.Generator
) -> None:
    """Mean and covariance of many drawn functions at some points, in standard errors."""
    oracle = Oracle(*observations(num_outputs, generator))
    where, count = points(shape, generator), 4000
    torch.manual_seed(5)
    paths = get_matheron_path_model(oracle.model, sample_shape=torch.Size([count]))
    draws = paths(where.expand(count, *where.shape).movedim(0, -3))  # samples beside the points
    draws = draws.movedim(-3, 0)
    assert draws.shape == (count, *shape, num_outputs)
    posterior = oracle.model.posterior(where)
    errors = (draws.mean(0) - posterior.mean) / posterior.variance.sqrt() * count**0.5
    assert errors.abs().max() < 5
    centered = (draws - posterior.mean).movedim(-1, -2)  # (count, *batch, m, q)
    found = torch.einsum("n...i,n...j->...ij", centered, centered) / count
    expected = covariances(posterior)
    diagonal = expected.diagonal(dim1=-2, dim2=-1)
    spread = (expected.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)).sqrt()
    assert ((found - expected) / spread * count**0.5).abs().max() < 5.5


def test_a_drawn_function_is_one_function(generator: torch.Generator) -> None:
    model = Oracle(*observations(2, generator)).model
    path = get_matheron_path_model(model)
    where = points((4, 3), generator)
    assert_close(path(where)[2], path(where[2]))


def test_transforms_that_are_not_linear_apply(generator: torch.Generator) -> None:
    inputs, outcomes = observations(1, generator)
    transform = ChainedOutcomeTransform(log=Log(), standardize=Standardize(1))
    model = LastLayerModel(inputs, outcomes, outcome_transform=transform)
    torch.manual_seed(0)
    log_model = LastLayerModel(inputs, outcomes.log())
    model.network.load_state_dict(log_model.network.state_dict())
    where = points((3,), generator)
    torch.manual_seed(2)
    draws = model.posterior(where).rsample(torch.Size([4]))
    torch.manual_seed(2)
    assert_close(draws, log_model.posterior(where).rsample(torch.Size([4])).exp())


def test_models_without_transforms_take_data_as_it_is(generator: torch.Generator) -> None:
    inputs, outcomes = observations(2, generator)
    low, high = inputs.amin(0), inputs.amax(0)
    unit, standard = (inputs - low) / (high - low), Standardize(2)(outcomes)[0]
    torch.manual_seed(0)
    plain = LastLayerModel(unit, standard, outcome_transform=None, input_transform=None)
    torch.manual_seed(0)
    bounds = torch.stack([low, high])
    scaled = LastLayerModel(inputs, standard, input_transform=Normalize(2, bounds=bounds))
    where = points((2, 3), generator)
    expected = plain.posterior((where - low) / (high - low))
    assert_close(scaled.posterior(where).mean, expected.mean)
    assert_close(covariances(scaled.posterior(where)), covariances(expected))
