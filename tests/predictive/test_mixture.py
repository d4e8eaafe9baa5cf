"""Mixtures over draws of the features, against torch.distributions, sampling and integrals."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.distributions import MultivariateNormal as Joint
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import lastlayer as ll
from lastlayer.predictive import (
    ClassMixturePredictive,
    DiscriminativePredictive,
    GaussianMixturePredictive,
    GaussianPredictive,
    GenerativePredictive,
    MultivariateGaussianPredictive,
    gaussian_mixture,
    mix,
)
from tests.helpers.reference import assert_within_standard_errors

B, S, K = 4, 5, 3
LOOSE = 0.5 * math.log(3) - 1 / 3  # how far the bound on the entropy of one output may be off
Make = Callable[[torch.Generator], Any]


def positive(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator) + 0.2


def gaussian(generator: torch.Generator) -> GaussianPredictive:
    return GaussianPredictive(
        2 * torch.randn(B, S, K, generator=generator),
        positive(B, S, K, generator=generator),
        positive(K, generator=generator).expand(B, S, K),
    )


def multivariate(generator: torch.Generator) -> MultivariateGaussianPredictive:
    roots = torch.randn(2, B, S, K, K + 2, generator=generator)
    epistemic, noise = 0.3 * roots @ roots.mT
    mean = 2 * torch.randn(B, S, K, generator=generator)
    return MultivariateGaussianPredictive(mean, epistemic, noise)


def discriminative(generator: torch.Generator) -> DiscriminativePredictive:
    return DiscriminativePredictive(
        2 * torch.randn(B, S, K, generator=generator),
        2 * positive(B, S, K, generator=generator),
        torch.zeros(B, S, K),
    )


def generative(generator: torch.Generator) -> GenerativePredictive:
    joint = 3 * torch.randn(B, S, K, generator=generator)
    return GenerativePredictive(joint, joint - 0.2 * positive(B, S, K, generator=generator))


GAUSSIANS = pytest.mark.parametrize("make", [gaussian, multivariate])
CLASSES = pytest.mark.parametrize("make", [discriminative, generative])
ALL = pytest.mark.parametrize("make", [gaussian, multivariate, discriminative, generative])


def reference(components: Any) -> MixtureSameFamily:
    """The mixture as torch has it, from the tensors."""
    if isinstance(components, GaussianPredictive):
        variance = components.epistemic_variance + components.noise_variance
        family: Any = Independent(Normal(components.mean, variance.sqrt()), 1)
    else:
        covariance = components.epistemic_covariance + components.noise_covariance
        family = Joint(components.mean, covariance)
    return MixtureSameFamily(Categorical(probs=torch.full((B, S), 1 / S)), family)


# -------------------------------------------------------------------------------- regression


@GAUSSIANS
def test_gaussian_mixtures_are_those_of_torch(make: Make, generator: torch.Generator) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    expected = reference(components)
    assert type(predictive) is GaussianMixturePredictive
    target = 2 * torch.randn(B, K, generator=generator)
    assert_close(predictive.log_prob(target), expected.log_prob(target))
    assert_close(predictive.mean, expected.mean)
    assert_close(predictive.variance, expected.variance)
    assert_close(predictive.stddev, expected.stddev)
    own = predictive.distribution()
    assert isinstance(own, MixtureSameFamily)
    assert_close(own.log_prob(target), expected.log_prob(target))


@GAUSSIANS
def test_parts_of_the_variance_follow_the_law_of_total_variance(
    make: Make, generator: torch.Generator
) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    count = 40_000
    # the mean of the target given all weights has the epistemic covariance, the rest is noise
    chosen = torch.randint(S, (count,), generator=generator)
    mean = components.mean[:, chosen].movedim(1, 0)  # (count, B, K)
    covariance = components.epistemic_covariance[:, chosen].movedim(1, 0)
    noise = torch.randn(count, B, K, 1, generator=generator)
    given = mean + (torch.linalg.cholesky(covariance) @ noise).squeeze(-1)
    outer = (given - predictive.mean).unsqueeze(-1) * (given - predictive.mean).unsqueeze(-2)
    error = outer.std(0) / count**0.5
    assert_within_standard_errors(predictive.epistemic_covariance, outer.mean(0), error)
    assert_close(
        predictive.epistemic_variance, predictive.epistemic_covariance.diagonal(dim1=-2, dim2=-1)
    )
    assert_close(predictive.noise_covariance, components.noise_covariance.mean(1))
    assert_close(predictive.noise_variance, components.noise_variance.mean(1))
    assert_close(predictive.variance, predictive.covariance.diagonal(dim1=-2, dim2=-1))
    assert_close(predictive.variance, predictive.epistemic_variance + predictive.noise_variance)


@GAUSSIANS
def test_samples_have_mean_and_joint_covariance(make: Make, generator: torch.Generator) -> None:
    predictive: Any = mix(make(generator))
    count = 50_000
    draws = predictive.sample((count,), generator)
    assert_within_standard_errors(predictive.mean, draws.mean(0), draws.std(0) / count**0.5)
    centred = draws - predictive.mean
    outer = centred.unsqueeze(-1) * centred.unsqueeze(-2)
    # off the diagonal only because all outputs of a draw have the same component
    error = outer.std(0) / count**0.5
    assert_within_standard_errors(predictive.covariance, outer.mean(0), error)
    assert predictive.sample().shape == (B, K)
    assert predictive.sample((2, 3)).shape == (2, 3, B, K)
    assert predictive[:0].sample(2).shape == (2, 0, K)


@GAUSSIANS
@pytest.mark.parametrize("level", [0.1, 0.9, 1 - 1e-6])
def test_an_interval_leaves_as_much_on_either_side(
    make: Make, level: float, generator: torch.Generator
) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    marginal = Normal(components.mean.movedim(1, -1), components.stddev.movedim(1, -1))
    weights = Categorical(probs=torch.full((B, K, S), 1 / S))
    cdf = MixtureSameFamily(weights, marginal).cdf
    lower, upper = predictive.interval(level)
    tail = torch.full((B, K), (1 - level) / 2)
    assert_close(cdf(lower), tail)
    assert_close(1 - cdf(upper), tail, rtol=1e-7, atol=1e-12)
    assert_close(predictive.cdf(upper), cdf(upper))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [2, gaussian_mixture.NEWTON_STEPS])
def test_fast_and_sure_quantiles_are_the_same(
    dtype: torch.dtype,
    steps: int,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaussian_mixture, "NEWTON_STEPS", steps)
    mean = 3 * torch.randn(4000, S, K, generator=generator).to(dtype)
    stddev = torch.randn(4000, S, K, generator=generator).exp().to(dtype)
    mean[0], stddev[0] = torch.arange(S, dtype=dtype)[:, None].expand(S, K), 1e-3  # plateaus
    for mass in torch.tensor([1e-9, 0.05, 0.45], dtype=torch.float64):
        fast, found = gaussian_mixture._by_newton(mean, stddev, mass)
        assert found.double().mean() > 0.9 if steps > 2 else not found.all()
        sure = gaussian_mixture._by_bisection(mean, stddev, mass)
        tolerance = 20 * torch.finfo(dtype).eps * (mean.abs() + stddev).amax(-2)
        assert ((fast - sure).abs() <= tolerance)[found].all()
        assert ((gaussian_mixture._quantile(mean, stddev, mass) - sure).abs() <= tolerance).all()


def test_an_interval_is_finite_and_as_precise_in_single_precision(
    generator: torch.Generator,
) -> None:
    predictive: Any = mix(gaussian(generator))
    for level in (0.9, 1 - 1e-9):
        for exact, end in zip(
            predictive.interval(level), predictive.to(torch.float32).interval(level), strict=True
        ):
            assert end.dtype == torch.float32
            assert_close(end.double(), exact, rtol=1e-5, atol=1e-5)


def test_a_mixture_of_one_is_its_component(generator: torch.Generator) -> None:
    target = torch.randn(B, K, generator=generator)
    for make in (gaussian, multivariate):
        whole = make(generator)
        alone: Any = whole[:, 0]
        predictive: Any = mix(whole[:, :1])
        for name in ("mean", "epistemic_covariance", "noise_covariance", "variance"):
            assert_close(getattr(predictive, name), getattr(alone, name))
        assert_close(predictive.log_prob(target), alone.log_prob(target))
        assert_close(predictive.interval(0.8), alone.interval(0.8))
        assert_close(predictive.entropy(), alone.entropy())
        assert_close(predictive.mutual_information(), alone.mutual_information())


@GAUSSIANS
def test_entropy_is_a_lower_bound_that_samples_meet_in_its_limits(
    make: Make, generator: torch.Generator
) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    draws = reference(components).sample((20_000,))
    surprise = -reference(components).log_prob(draws)
    truth, error = surprise.mean(0), surprise.std(0) / 20_000**0.5
    assert (predictive.entropy() < truth + 4 * error).all()
    assert (predictive.entropy() > truth - LOOSE * K).all()  # and not a trivial one
    estimate = predictive.entropy(num_samples=20_000, generator=generator)
    assert_within_standard_errors(estimate, truth, error * 2**0.5)
    tensors = components._tensors()
    apart = tensors[0] + 1e3 * torch.arange(S)[:, None]
    far = mix(type(components)(apart, *tensors[1:]))
    assert_close(far.entropy(), components.entropy().mean(-1) + math.log(S))
    same = mix(type(components)(*(t[:, :1].expand_as(t) for t in tensors)))
    assert_close(same.entropy(), components[:, 0].entropy())


def test_entropy_of_many_normally_spread_components_is_as_low_as_documented(
    generator: torch.Generator,
) -> None:
    for spread in (1.0, 8**0.5, 5.0):  # the second has the largest gap
        score = torch.special.ndtri((torch.arange(2000) + 0.5) / 2000)  # quantiles of a normal
        mean, ones = (spread * score).reshape(1, -1, 1), torch.ones(1, 2000, 1)
        bound = mix(GaussianPredictive(mean, 0.5 * ones, 0.5 * ones)).entropy()
        variance = torch.tensor(1 + spread**2)
        truth = Normal(torch.zeros(()), variance.sqrt()).entropy()
        # −E log E exp(−(μ − μ')²/8) over two normal means, in place of log(1 + spread²)/2
        information = 0.5 * math.log(1 + spread**2 / 4) + spread**2 / (8 + 2 * spread**2)
        gap = 0.5 * variance.log() - information
        assert 0 < gap < LOOSE + 1e-9
        assert_close(truth - bound.squeeze(), gap, rtol=0, atol=2e-3)


def test_entropy_of_one_output_agrees_with_the_integral(generator: torch.Generator) -> None:
    whole = gaussian(generator)
    components = GaussianPredictive(*(t[..., :1] for t in whole._tensors()))
    predictive: Any = mix(components)
    grid = torch.linspace(-30, 30, 20_001).unsqueeze(-1)
    truth = torch.empty(B)
    for example in range(B):
        density = mix(components[example].to(torch.float64)).distribution().log_prob(grid)
        truth[example] = torch.trapezoid(-density.exp() * density, grid.squeeze(-1))
    bound = predictive.entropy()
    assert (bound <= truth + 1e-9).all()
    assert_close(bound, truth, rtol=0, atol=LOOSE)


@GAUSSIANS
def test_mutual_information_is_entropy_less_that_of_the_noise(
    make: Make, generator: torch.Generator
) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    noise = Joint(components.mean, components.noise_covariance).entropy().mean(-1)
    assert_close(predictive.mutual_information(), predictive.entropy() - noise)
    information = predictive.mutual_information()
    assert (information >= components.mutual_information().mean(-1)).all()


# ---------------------------------------------------------------------------- classification


@CLASSES
def test_class_probabilities_are_the_mean_of_the_components(
    make: Make, generator: torch.Generator
) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    assert type(predictive) is ClassMixturePredictive
    expected = torch.stack([components[:, s].probs() for s in range(S)]).mean(0)
    assert_close(predictive.probs(), expected)
    assert_close(predictive.log_probs(), expected.log())
    target = torch.tensor([0, 2, 1, 1])
    assert_close(predictive.log_prob(target), Categorical(probs=expected).log_prob(target))
    assert_close(predictive.entropy(), Categorical(probs=expected).entropy())
    assert_close(predictive.distribution().log_prob(target), predictive.log_prob(target))
    assert (predictive.mode == expected.argmax(-1)).all()
    assert predictive.sample((2, 3)).shape == (2, 3, B)


def test_discriminative_mutual_information_agrees_with_sampling_all_weights(
    generator: torch.Generator,
) -> None:
    components = discriminative(generator)
    draws = components.sample_logits((20_000,), generator).softmax(-1)  # (draws, B, S, K)
    conditional = Categorical(probs=draws).entropy().mean((0, -1))
    expected = Categorical(probs=draws.mean((0, 2))).entropy() - conditional
    predictive: Any = mix(components)
    assert_close(predictive.mutual_information(), expected, rtol=0, atol=5e-3)
    assert (predictive.mutual_information() > components.mutual_information().mean(-1)).all()


def test_mutual_information_of_certain_components_is_their_divergence(
    generator: torch.Generator,
) -> None:
    joint = 3 * torch.randn(B, S, K, generator=generator)
    probs = joint.softmax(-1)
    expected = Categorical(probs=probs.mean(1)).entropy() - Categorical(probs=probs).entropy().mean(
        1
    )
    zeros = torch.zeros_like(joint)
    for components in (
        GenerativePredictive(joint, joint),
        DiscriminativePredictive(joint, zeros, zeros),
    ):
        assert_close(mix(components).mutual_information(), expected, rtol=0, atol=1e-6)


def test_densities_are_averaged_before_the_softmax(generator: torch.Generator) -> None:
    components = generative(generator)
    predictive: Any = mix(components)
    joint = components.log_joint.exp().mean(1)  # (1/S) Σ_s p(φ_s, y)
    before = predictive.before_softmax()
    assert isinstance(before, GenerativePredictive)
    assert_close(before.probs(), joint / joint.sum(-1, keepdim=True))
    assert_close(before.log_density(), joint.sum(-1).log())
    assert_close(predictive.log_density(), joint.sum(-1).log())
    assert_close(before.expected_log_joint, components.expected_log_joint.mean(1))
    assert (before.probs() - predictive.probs()).abs().max() > 0.01  # not the same average


def test_logits_before_the_softmax_have_the_moments_of_the_mixture(
    generator: torch.Generator,
) -> None:
    components = discriminative(generator)
    centred = components.logit_mean - components.logit_mean.mean(-1, keepdim=True)
    components = DiscriminativePredictive(
        centred, components.epistemic_variance, torch.full((B, S, K), 0.3)
    )
    predictive: Any = mix(components)
    before = predictive.before_softmax()
    scale = components.epistemic_variance.sqrt()
    family = Independent(Normal(components.logit_mean, scale), 1)
    logits = MixtureSameFamily(Categorical(probs=torch.full((B, S), 1 / S)), family)
    assert isinstance(before, DiscriminativePredictive)
    assert_close(before.logit_mean, logits.mean)
    assert_close(before.epistemic_variance, logits.variance)
    assert_close(before.noise_variance, torch.full((B, K), 0.3))


def test_a_constant_added_to_all_logits_of_a_component_changes_no_probability(
    generator: torch.Generator,
) -> None:
    components = discriminative(generator)
    shift = 10 * torch.randn(B, S, 1, generator=generator)
    mean, *variances = components._tensors()
    for average in (lambda p: p.probs(), lambda p: p.before_softmax().probs()):
        shifted = average(mix(DiscriminativePredictive(mean + shift, *variances)))
        assert_close(shifted, average(mix(components)))


def test_a_discriminative_mixture_has_no_density(generator: torch.Generator) -> None:
    predictive: Any = mix(discriminative(generator))
    with pytest.raises(TypeError, match="that of GenerativeClassification has"):
        predictive.log_density()


# ------------------------------------------------------------------------------ as a container


@ALL
def test_mixtures_are_pytrees_that_index_move_and_pickle(
    make: Make, generator: torch.Generator
) -> None:
    components = make(generator)
    predictive: Any = mix(components)
    leaves, spec = pytree.tree_flatten(predictive)
    assert all(isinstance(leaf, Tensor) for leaf in leaves)
    assert type(pytree.tree_unflatten(leaves, spec)) is type(predictive)
    assert_close(pytree.tree_leaves(pickle.loads(pickle.dumps(predictive))), leaves)
    assert predictive.batch_shape == (B,)
    assert len(predictive) == B
    for index in (1, slice(1, 3), torch.tensor([0, 2]), torch.tensor([True, False, True, False])):
        part = pytree.tree_leaves(predictive[index])
        assert_close(part, [leaf[index] for leaf in leaves])
    assert predictive[1].batch_shape == ()
    assert predictive[None, ..., 0].batch_shape == (1,)
    with pytest.raises(IndexError, match="2 indices"):
        predictive[0, 1]  # components are not examples
    single = predictive.to(torch.float32)
    assert {leaf.dtype for leaf in pytree.tree_leaves(single)} == {torch.float32}
    assert not any(leaf.requires_grad for leaf in pytree.tree_leaves(predictive.detach()))


def quantities(predictive: Any) -> list[Tensor]:
    if isinstance(predictive, ClassMixturePredictive):
        before: Any = predictive.before_softmax()
        return [predictive.log_probs(), before.probs()]
    return [predictive.covariance, predictive.mutual_information(), predictive.sample((0,))]


@pytest.mark.slow
@ALL
@pytest.mark.usefixtures("_fresh_compiler")
def test_what_a_mixture_computes_is_the_same_compiled_and_mapped(
    make: Make, generator: torch.Generator
) -> None:
    predictive: Any = mix(make(generator))
    expected = quantities(predictive)
    compiled = torch.compile(quantities, fullgraph=True, backend="aot_eager")
    assert_close(compiled(predictive), expected)
    mapped = torch.func.vmap(quantities, randomness="different")(predictive)
    assert_close(mapped[:2], expected[:2])


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_compiler")
def test_an_interval_is_the_same_compiled_and_mapped(generator: torch.Generator) -> None:
    predictive: Any = mix(gaussian(generator)).to(torch.float32)
    expected = predictive.interval(0.9)
    compiled = torch.compile(lambda p: p.interval(0.9), fullgraph=True, backend="aot_eager")
    assert_close(compiled(predictive), expected)
    assert_close(torch.func.vmap(lambda p: p.interval(0.9))(predictive), expected)


def test_what_cannot_be_mixed_is_said(generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match=r"at least one component, got \(4, 0\)"):
        mix(gaussian(generator)[:, :0])
    with pytest.raises(ValueError, match="at least one component"):
        mix(gaussian(generator)[0, 0])
    predictive: Any = mix(gaussian(generator))
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        predictive.interval(1.0)
    with pytest.raises(ValueError, match="nothing is broadcast"):
        predictive.log_prob(torch.zeros(B))
    with pytest.raises(ValueError, match="num_samples must be an integer"):
        predictive.entropy(num_samples=0)


def test_epistemic_variance_of_classes_is_that_of_the_logits_before_the_softmax() -> None:
    network = ll.Network(
        ll.make_variational(nn.Linear(2, 4)), ll.DiscriminativeClassification(4, 3, num_data=5)
    )
    mixture = network(torch.randn(6, 2))
    assert_close(mixture.epistemic_variance, mixture.before_softmax().epistemic_variance)
    assert (mixture.epistemic_variance > mixture.components.epistemic_variance.amin(-2)).all()
