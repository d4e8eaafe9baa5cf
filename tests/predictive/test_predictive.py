"""Predictives against torch.distributions, sampling and each other."""

import pickle

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MultivariateNormal, Normal
from torch.utils import _pytree as pytree

import lastlayer as ll
from tests.helpers.reference import assert_within_standard_errors, sampled

B, K = 4, 3


def positive(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator) + 0.2


@pytest.fixture
def gaussian(generator: torch.Generator) -> ll.GaussianPredictive:
    return ll.GaussianPredictive(
        torch.randn(B, K, generator=generator),
        positive(B, K, generator=generator),
        positive(K, generator=generator).expand(B, K),
    )


@pytest.fixture
def multivariate(generator: torch.Generator) -> ll.MultivariateGaussianPredictive:
    roots = torch.randn(2, B, K, K + 2, generator=generator)
    epistemic, noise = roots @ roots.mT
    return ll.MultivariateGaussianPredictive(
        torch.randn(B, K, generator=generator), epistemic, noise
    )


@pytest.fixture
def discriminative(generator: torch.Generator) -> ll.DiscriminativePredictive:
    return ll.DiscriminativePredictive(
        2 * torch.randn(B, K, generator=generator),
        2 * positive(B, K, generator=generator),
        0.5 * positive(K, generator=generator).expand(B, K),
    )


@pytest.fixture
def generative(generator: torch.Generator) -> ll.GenerativePredictive:
    joint = 3 * torch.randn(B, K, generator=generator)
    return ll.GenerativePredictive(joint, joint - positive(B, K, generator=generator))


@pytest.fixture(params=["gaussian", "multivariate", "discriminative", "generative"])
def predictive(request: pytest.FixtureRequest) -> ll.Predictive:
    made: ll.Predictive = request.getfixturevalue(request.param)
    return made


# -------------------------------------------------------------------------------- regression


def test_gaussian_quantities_are_those_of_torch(
    gaussian: ll.GaussianPredictive, generator: torch.Generator
) -> None:
    target = torch.randn(B, K, generator=generator)
    reference = Independent(Normal(gaussian.mean, gaussian.variance.sqrt()), 1)
    torch.testing.assert_close(gaussian.log_prob(target), reference.log_prob(target))
    torch.testing.assert_close(gaussian.entropy(), reference.entropy())
    torch.testing.assert_close(gaussian.distribution().log_prob(target), reference.log_prob(target))
    torch.testing.assert_close(gaussian.covariance, gaussian.variance.diag_embed())
    lower, upper = gaussian.interval(0.8)
    mass = Normal(gaussian.mean, gaussian.stddev).cdf(upper)
    torch.testing.assert_close(mass, torch.full((B, K), 0.9))
    torch.testing.assert_close(upper - gaussian.mean, gaussian.mean - lower)
    nearly_all = gaussian.to(torch.float32).interval(1 - 1e-9)
    assert nearly_all[1].isfinite().all()
    assert nearly_all[1].dtype == torch.float32


def test_multivariate_quantities_are_those_of_torch(
    multivariate: ll.MultivariateGaussianPredictive, generator: torch.Generator
) -> None:
    target = torch.randn(B, K, generator=generator)
    total = multivariate.epistemic_covariance + multivariate.noise_covariance
    reference = MultivariateNormal(multivariate.mean, total)
    torch.testing.assert_close(multivariate.log_prob(target), reference.log_prob(target))
    torch.testing.assert_close(multivariate.entropy(), reference.entropy())
    torch.testing.assert_close(multivariate.variance, reference.variance)
    torch.testing.assert_close(multivariate.stddev, reference.stddev)
    again = multivariate.distribution().log_prob(target)
    torch.testing.assert_close(again, reference.log_prob(target))


def test_mutual_information_is_entropy_less_that_of_the_noise(
    gaussian: ll.GaussianPredictive, multivariate: ll.MultivariateGaussianPredictive
) -> None:
    noise = Independent(Normal(gaussian.mean, gaussian.noise_variance.sqrt()), 1)
    torch.testing.assert_close(gaussian.mutual_information(), gaussian.entropy() - noise.entropy())
    joint = MultivariateNormal(multivariate.mean, multivariate.noise_covariance)
    expected = multivariate.entropy() - joint.entropy()
    torch.testing.assert_close(multivariate.mutual_information(), expected)


@pytest.mark.parametrize("name", ["gaussian", "multivariate"])
def test_gaussian_samples_have_mean_and_covariance(
    name: str, request: pytest.FixtureRequest, generator: torch.Generator
) -> None:
    predictive = request.getfixturevalue(name)
    draws = predictive.sample((100_000,), generator)
    mean, error = draws.mean(0), draws.std(0) / 100_000**0.5
    assert_within_standard_errors(predictive.mean, mean, error)
    centred = draws - predictive.mean
    outer = centred.unsqueeze(-1) * centred.unsqueeze(-2)
    error = outer.std(0) / 100_000**0.5
    assert_within_standard_errors(predictive.covariance, outer.mean(0), error)
    assert predictive.sample().shape == (B, K)
    assert predictive.sample((2, 3)).shape == (2, 3, B, K)


# ---------------------------------------------------------------------------- classification


def test_class_quantities_are_those_of_torch(
    discriminative: ll.DiscriminativePredictive, generative: ll.GenerativePredictive
) -> None:
    target = torch.tensor([0, 2, 1, 1])
    for predictive in (discriminative, generative):
        probs = predictive.probs()
        torch.testing.assert_close(probs.sum(-1), torch.ones(B))
        reference = Categorical(probs=probs)
        torch.testing.assert_close(predictive.log_prob(target), reference.log_prob(target))
        torch.testing.assert_close(predictive.entropy(), reference.entropy())
        again = predictive.distribution().log_prob(target)
        torch.testing.assert_close(again, reference.log_prob(target))
        assert (predictive.mode == probs.argmax(-1)).all()


@pytest.mark.parametrize("name", ["discriminative", "generative"])
def test_sampled_labels_have_the_probabilities(
    name: str, request: pytest.FixtureRequest, generator: torch.Generator
) -> None:
    predictive = request.getfixturevalue(name)
    draws = torch.nn.functional.one_hot(predictive.sample((50_000,), generator), K).double()
    error = draws.std(0) / 50_000**0.5
    assert_within_standard_errors(predictive.probs(), draws.mean(0), error)
    assert predictive.sample().shape == (B,)
    assert predictive.sample((2, 3)).shape == (2, 3, B)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_discriminative_mutual_information_agrees_with_nested_sampling(
    discriminative: ll.DiscriminativePredictive, noise: float, generator: torch.Generator
) -> None:
    predictive = ll.DiscriminativePredictive(
        discriminative.logit_mean,
        discriminative.epistemic_variance,
        torch.full((B, K), noise),
    )
    weights = predictive.logit_mean + predictive.epistemic_variance.sqrt() * torch.randn(
        20_000, B, K, generator=generator
    )
    label_noise = noise**0.5 * torch.randn(200, 1, B, K, generator=generator)
    probs = torch.stack([(weights + draw).softmax(-1) for draw in label_noise]).mean(0)
    entropies = Categorical(probs=probs).entropy()
    expected = Categorical(probs=probs.mean(0)).entropy() - entropies.mean(0)
    accuracy = 2e-3 if noise == 0 else 2e-2  # as documented
    torch.testing.assert_close(predictive.mutual_information(), expected, rtol=0, atol=accuracy)
    drawn = predictive.mutual_information(num_samples=4_000, generator=generator)
    torch.testing.assert_close(drawn, expected, rtol=0.05, atol=5e-3)
    certain = ll.DiscriminativePredictive(
        predictive.logit_mean, torch.zeros(B, K), predictive.noise_variance
    )
    assert certain.mutual_information().abs().max() < accuracy


def test_expected_softmax_is_right_where_probabilities_are_tiny(
    generator: torch.Generator,
) -> None:
    mean = torch.tensor([[0.0, 40.0, -60.0]])
    certain = ll.DiscriminativePredictive(mean, torch.zeros(1, 3), torch.zeros(1, 3))
    torch.testing.assert_close(certain.log_probs(), mean.log_softmax(-1))
    single = certain.to(torch.float32)
    torch.testing.assert_close(single.log_probs().double(), mean.log_softmax(-1))


@pytest.mark.parametrize("variances", [(0.0, 1e4), (1e-3, 1e3), (50.0, 0.0)])
def test_expected_softmax_finds_the_right_class_when_variances_differ_wildly(
    variances: tuple[float, float], generator: torch.Generator
) -> None:
    mean, variance = torch.tensor([[-138.0, 319.0]]), torch.tensor([variances])
    predictive = ll.DiscriminativePredictive(mean, variance, torch.zeros(1, 2))
    sampled_probs = predictive.probs(num_samples=200_000, generator=generator)
    torch.testing.assert_close(predictive.probs(), sampled_probs, rtol=0, atol=2e-3)


# ------------------------------------------------------------------------------ as a container


def test_predictives_are_pytrees_of_tensors_that_index_move_and_pickle(
    predictive: ll.Predictive,
) -> None:
    leaves, spec = pytree.tree_flatten(predictive)
    assert all(isinstance(leaf, Tensor) for leaf in leaves)
    rebuilt = pytree.tree_unflatten(leaves, spec)
    assert type(rebuilt) is type(predictive)
    unpickled = pickle.loads(pickle.dumps(predictive))
    single = predictive.to(torch.float32)
    for original, copy, cast in zip(
        leaves, pytree.tree_leaves(unpickled), pytree.tree_leaves(single), strict=True
    ):
        torch.testing.assert_close(original, copy)
        assert cast.dtype == torch.float32
    assert len(predictive) == B
    assert predictive.batch_shape == (B,)
    for index in (1, slice(1, 3), torch.tensor([0, 2]), torch.tensor([True, False, True, False])):
        for whole, part in zip(leaves, pytree.tree_leaves(predictive[index]), strict=True):
            torch.testing.assert_close(part, whole[index])
    assert predictive[1].batch_shape == ()
    with pytest.raises(IndexError, match="2 indices"):
        predictive[0, 1]
    assert predictive[None].batch_shape == (1, B)
    with pytest.raises(IndexError, match="1 indices"):
        predictive[torch.ones(leaves[0].shape[:2], dtype=torch.bool)]
    assert predictive.sample(2).shape == predictive.sample((2,)).shape
    assert predictive[:0].sample((2,)).shape[:2] == (2, 0)
    assert not any(leaf.requires_grad for leaf in pytree.tree_leaves(predictive.detach()))


def test_sampled_mean_probabilities_converge_to_the_quadrature(
    discriminative: ll.DiscriminativePredictive, generator: torch.Generator
) -> None:
    def probs(count: int) -> Tensor:
        return discriminative.sample_logits((count,), generator).softmax(-1)

    mean, error = sampled(probs)
    assert_within_standard_errors(discriminative.probs(), mean, error + 1e-4)


def test_printing_a_predictive_shows_shapes_in_one_line(gaussian: ll.GaussianPredictive) -> None:
    expected = "mean: (4, 3), epistemic_variance: (4, 3), noise_variance: (4, 3)"
    assert repr(gaussian) == f"GaussianPredictive({expected})"
