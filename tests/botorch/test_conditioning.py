"""Conditioning is refitting on all data: by brute force, for every batch, with gradients."""

import itertools

import pytest
import torch
from botorch.sampling.normal import IIDNormalSampler
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from torch import Tensor
from torch.testing import assert_close

from lastlayer.botorch import LastLayerModel

from .oracle import Oracle, covariances, observations

every_size = pytest.mark.parametrize("num_outputs", [1, 3])


def points(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 4 * torch.rand(*shape, 2, generator=generator) - 3


def outcomes(shape: tuple[int, ...], oracle: Oracle, generator: torch.Generator) -> Tensor:
    size = len(oracle.location)
    return oracle.location + oracle.scale * torch.randn(*shape, size, generator=generator)


@every_size
@pytest.mark.parametrize("noise", ["own", "given"])
@pytest.mark.parametrize(
    ("inputs", "more"), [((1,), ()), ((4,), ()), ((4,), (3,)), ((2, 3), ()), ((2, 3), (5,))]
)
def test_a_conditioned_posterior_is_that_of_brute_force(
    num_outputs: int,
    noise: str,
    inputs: tuple[int, ...],
    more: tuple[int, ...],
    generator: torch.Generator,
) -> None:
    """Inputs of one batch, outcomes of a larger one, and points in all of it."""
    oracle = Oracle(*observations(num_outputs, generator))
    x = points(inputs, generator)
    y = outcomes((*more, *inputs), oracle, generator)
    given = torch.rand(*inputs, num_outputs, generator=generator) + 0.1
    model = oracle.model.condition_on_observations(x, y, noise=given if noise == "given" else None)
    batch = (*more, *inputs[:-1])
    assert model.batch_shape == batch
    assert model.train_inputs[0].shape[-2] == 9 + inputs[-1]
    where = points((*batch, 3), generator)
    posterior = model.posterior(where)
    assert posterior.mean.shape == (*batch, 3, num_outputs)
    found = covariances(posterior)
    for index in itertools.product(*map(range, batch)):
        own = index[len(more) :]
        variances = given[own] if noise == "given" else None
        mean, covariance = oracle.values(where[index], x[own], y[index], variances)
        assert_close(posterior.mean[index], mean)
        assert_close(found[index], covariance)


@every_size
def test_conditioning_twice_is_conditioning_once(
    num_outputs: int, generator: torch.Generator
) -> None:
    oracle = Oracle(*observations(num_outputs, generator))
    x, where = points((6,), generator), points((2, 3), generator)
    y = outcomes((6,), oracle, generator)
    once = oracle.model.condition_on_observations(x, y).posterior(where)
    model = oracle.model
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        model = model.condition_on_observations(x[rows], y[rows])
    assert_close(model.posterior(where).mean, once.mean)
    assert_close(covariances(model.posterior(where)), covariances(once))
    assert_close(model.subset_output([-1]).posterior(where).mean, once.mean[..., -1:])
    assert_close(model.train_inputs[0], torch.cat([oracle.inputs, x]))


def test_conditioning_leaves_the_model_as_it_was(generator: torch.Generator) -> None:
    oracle = Oracle(*observations(1, generator))
    where = points((3,), generator)
    before = oracle.model.posterior(where).mean
    oracle.model.condition_on_observations(where, outcomes((3,), oracle, generator))
    assert torch.equal(oracle.model.posterior(where).mean, before)
    assert oracle.model.batch_shape == ()


def test_gradients_with_respect_to_observations_are_those_of_finite_differences(
    generator: torch.Generator,
) -> None:
    oracle = Oracle(*observations(2, generator))
    x, where = points((2, 2), generator), points((2, 1), generator)
    y = outcomes((2, 2), oracle, generator)

    def value(x: Tensor, y: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        posterior = oracle.model.condition_on_observations(x, y).posterior(where)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(value, [t.requires_grad_() for t in (x, y, where)])


@every_size
def test_fantasies_are_observations_drawn_from_the_posterior(
    num_outputs: int, generator: torch.Generator
) -> None:
    oracle = Oracle(*observations(num_outputs, generator))
    x, where = points((2, 3), generator), points((5, 2, 4), generator)
    fantasies = oracle.model.fantasize(x, IIDNormalSampler(torch.Size([5]), seed=1))
    noisy = oracle.model.posterior(x, observation_noise=True)
    drawn = IIDNormalSampler(torch.Size([5]), seed=1)(noisy)
    expected = oracle.model.condition_on_observations(x, drawn)
    assert fantasies.batch_shape == (5, 2)
    assert_close(fantasies.posterior(where).mean, expected.posterior(where).mean)
    assert_close(covariances(fantasies.posterior(where)), covariances(expected.posterior(where)))
    _, covariance = oracle.values(where[3, 1], x[1], drawn[3, 1])
    assert_close(covariances(fantasies.posterior(where))[3, 1], covariance)


def test_functions_of_a_conditioned_model_have_its_moments(generator: torch.Generator) -> None:
    oracle = Oracle(*observations(2, generator))
    model = oracle.model
    for size in (2, 3):
        x = points((size,), generator)
        model = model.condition_on_observations(x, outcomes((4, size), oracle, generator))
    where, count = points((3,), generator), 4000
    torch.manual_seed(3)
    paths = get_matheron_path_model(model, sample_shape=torch.Size([count]))
    draws = paths(where.expand(4, 3, 2))
    posterior = model.posterior(where)
    errors = (draws.mean(0) - posterior.mean) / posterior.variance.sqrt() * count**0.5
    assert errors.abs().max() < 5
    ratios = draws.var(0) / posterior.variance
    assert (ratios - 1).abs().max() < 5 * (2 / count) ** 0.5


@every_size
def test_observing_equals_a_model_of_all_the_data(
    num_outputs: int, generator: torch.Generator
) -> None:
    oracle = Oracle(*observations(num_outputs, generator))
    x, where = points((5,), generator), points((2, 3), generator)
    y = outcomes((5,), oracle, generator)
    expected = oracle.model.condition_on_observations(x, y).posterior(where)
    for row in range(5):
        one = x[row : row + 1], y[row : row + 1]
        assert not oracle.model.observe(*one, tolerance=1e9)
    posterior = oracle.model.posterior(where)
    assert_close(posterior.mean, expected.mean)
    assert_close(covariances(posterior), covariances(expected))
    assert_close(oracle.model.train_inputs[0][-5:], x)
    assert oracle.model.train_targets.shape[-1] == 14


def test_noise_of_known_variance_is_that_of_brute_force(generator: torch.Generator) -> None:
    inputs, values = observations(2, generator)
    variances = values.var(0) * (torch.rand(9, 2, generator=generator) + 0.05)
    model = LastLayerModel(inputs, values, variances)
    location, scale = values.mean(0), values.std(0)
    low, high = inputs.amin(0), inputs.amax(0)
    x = points((3,), generator)
    features, new = (model.network.backbone((i - low) / (high - low)) for i in (inputs, x))
    posterior = model.posterior(x)
    for k in range(2):
        gram = features @ features.mT + 1 + (variances[:, k] / scale[k] ** 2).diag()
        gain = (new @ features.mT + 1) @ torch.linalg.inv(gram)
        mean = gain @ (values[:, k] - location[k]) + location[k]
        covariance = scale[k] ** 2 * (new @ new.mT + 1 - gain @ (features @ new.mT + 1))
        assert_close(posterior.mean[:, k], mean)
        assert_close(covariances(posterior)[k], covariance)
    noisy = model.posterior(x, observation_noise=True)
    assert_close(noisy.variance - posterior.variance, variances.mean(0).expand(3, 2))


def test_known_noise_of_new_observations_counts(generator: torch.Generator) -> None:
    inputs, values = observations(2, generator, 12)
    variances = values.var(0) * (torch.rand(12, 2, generator=generator) + 0.05)
    model = LastLayerModel(inputs[:8], values[:8], variances[:8])
    standard = variances[8:] / values[:8].var(0)
    expected = model.condition_on_observations(inputs[8:], values[8:], noise=standard)
    mean, variance = expected.posterior(inputs).mean, expected.posterior(inputs).variance
    model.observe(inputs[8:], values[8:], variances[8:], tolerance=1e9)
    assert_close(model.posterior(inputs).mean, mean)
    assert_close(model.posterior(inputs).variance, variance)
