"""Regression with Student's t against the closed normal–inverse-gamma forms, SciPy and sampling."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn
from torch.distributions import Gamma, MultivariateNormal, kl_divergence
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from lastlayer.functional.student_t import expected_student_t_log_density
from lastlayer.predictive import HeavyTailedPredictive
from tests.helpers.reference import (
    assert_within_standard_errors,
    dense_covariance,
    randomize,
    sampled,
)

N, K, T = 4, 2, 50
NOISE = ll.Prior(variance=0.6, noise_dof=3.0, noise_scale=0.4)


def head(num_outputs: int = K, **options: Any) -> ll.StudentTRegression:
    return ll.StudentTRegression(N, num_outputs, **{"num_data": T, "prior": NOISE, **options})


def exact(num_outputs: int = K, **options: Any) -> ll.StudentTRegression:
    return head(num_outputs, degrees_of_freedom=math.inf, **options)


def data(generator: torch.Generator, count: int = T, num_outputs: int = K) -> tuple[Tensor, Tensor]:
    features = torch.randn(count, N, generator=generator)
    noise = 0.3 * torch.randn(count, num_outputs, generator=generator)
    return features, features @ torch.randn(N, num_outputs, generator=generator) + noise


def explicit(features: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Mean, S, a and b of one output, by the textbook."""
    precision = torch.eye(N) / NOISE.fixed_variance + features.mT @ (weight[:, None] * features)
    mean = torch.linalg.solve(precision, features.mT @ (weight * target))
    concentration = (NOISE.noise_dof + weight.sum()) / 2
    explained = (weight * target**2).sum() - mean @ precision @ mean
    return mean, torch.linalg.inv(precision), concentration, (NOISE.noise_scale + explained) / 2


# ------------------------------------------------------------------------------ without tails


def test_exact_posterior_and_predictive_are_normal_inverse_gamma(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    weight = torch.rand(T, K, generator=generator)
    model = exact(covariance="dense")
    model.fit_exact(features, target, weight)
    inputs = torch.randn(3, N, generator=generator)
    predicted = model(inputs)
    for k in range(K):
        mean, covariance, a, b = explicit(features, target[:, k], weight[:, k])
        assert_close(model.mean[k], mean)
        assert_close(dense_covariance(model.covariance)[k], covariance)
        assert_close(model.noise.concentration()[k], a)
        assert_close((model.noise.concentration() * model.noise.variance())[k], b)
        for i in range(3):
            scale = math.sqrt(b / a * (1 + inputs[i] @ covariance @ inputs[i]))
            known = stats.t(2 * a.item(), (mean @ inputs[i]).item(), scale)
            for mass in (0.01, 0.4, 0.975):
                value = known.ppf(mass)
                assert predicted.quantile(mass)[i, k].item() == pytest.approx(value, abs=1e-6)
                at = predicted[i].mean.detach().clone()
                at[k] = value
                assert predicted[i].cdf(at)[k].item() == pytest.approx(mass, abs=1e-7)
                log_density = predicted[i].log_prob_per_output(at)[k].item()
                assert log_density == pytest.approx(known.logpdf(value), abs=1e-9)
            assert predicted.variance[i, k].item() == pytest.approx(known.var(), rel=1e-9)
    entropies = [
        stats.t(float(one.dof[k]), 0, float((one.epistemic_scale + one.noise_scale)[k]) ** 0.5)
        .entropy()
        .item()
        for one in (predicted[0].detach(),)
        for k in range(K)
    ]
    assert predicted[0].entropy().item() == pytest.approx(sum(entropies), abs=1e-6)


def test_elbo_equals_the_log_marginal_likelihood_at_the_exact_posterior(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    model = exact()
    model.fit_exact(features, target)
    covariance = torch.eye(T) + NOISE.fixed_variance * features @ features.mT
    scale = NOISE.noise_scale / NOISE.noise_dof
    known = stats.multivariate_t(np.zeros(T), (scale * covariance).numpy(), NOISE.noise_dof)
    expected = sum(known.logpdf(target[:, k].numpy()) for k in range(K))
    elbo = model.elbo(features, target)
    assert (T * elbo.bound - elbo.kl).item() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("covariance", ["shared", "dense"])
def test_updating_in_any_split_equals_fitting_once(
    covariance: str, generator: torch.Generator
) -> None:
    features, target = data(generator)
    target = 5 + target
    once, split = exact(covariance=covariance, bias=True), exact(covariance=covariance, bias=True)
    once.fit_exact(features, target)
    for rows in (slice(0, 1), slice(1, 20), slice(20, 20), slice(20, T)):
        split.update(features[rows], target[rows])
    assert_close(split.mean, once.mean)
    assert_close(split.covariance.dense(), once.covariance.dense())
    assert_close(split.noise.concentration(), once.noise.concentration())
    assert_close(split.noise.variance(), once.noise.variance())
    for _ in range(100):
        split.update(features[:0], target[:0], forgetting=0.5)
    assert_close(split.mean, torch.zeros_like(split.mean))
    prior = NOISE.noise_dof / 2, NOISE.noise_scale / NOISE.noise_dof
    assert_close(split.noise.concentration(), torch.full((K,), prior[0]))
    assert_close(split.noise.variance(), torch.full((K,), prior[1]))


def test_large_targets_do_not_drown_the_noise(generator: torch.Generator) -> None:
    features, target = data(generator)
    model, plain = (exact(bias=True, prior=ll.Prior(variance=1e20)) for _ in range(2))
    model.fit_exact(features, target + 1e8)
    plain.fit_exact(features, target)
    assert_close(model.noise.variance(), plain.noise.variance(), rtol=1e-4, atol=0)


def test_learned_prior_variance_is_stationary(generator: torch.Generator) -> None:
    features, target = data(generator)
    model = exact(prior=ll.Prior(variance="evidence"))
    model.fit_exact(features, target)
    for gradient in torch.autograd.grad(model(features, target), list(model.parameters())):
        assert gradient.abs().max() < 1e-6


# --------------------------------------------------------------------------------- the bound


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_bound_is_the_expected_log_likelihood_and_with_tails_below_it(
    covariance: str, generator: torch.Generator
) -> None:
    for model in (exact(covariance=covariance), head(covariance=covariance)):
        randomize(model, generator, 0.2)
        features, target = data(generator, 3)
        tails = model.noise_dof()

        def draws(
            count: int,
            model: Any = model,
            tails: Any = tails,
            features: Tensor = features,
            target: Tensor = target,
        ) -> Tensor:
            concentration = model.noise.concentration()
            rate = concentration * model.noise.variance()
            precision = Gamma(concentration, rate).sample((count,))
            weights = model.covariance.sample(count, generator) / precision.sqrt().unsqueeze(-1)
            error = (target - torch.einsum("skn,bn->sbk", model.mean + weights, features)).mul(
                precision.sqrt().unsqueeze(1)
            )
            known: Any = torch.distributions.Normal(0.0, 1.0)
            if tails is not None:
                known = torch.distributions.StudentT(tails)
            return known.log_prob(error) + 0.5 * precision.log().unsqueeze(1)

        bounds = torch.stack(
            [model.objective(features, target, row.expand(3, K))[0] for row in torch.eye(K)], -1
        ).detach()
        with torch.no_grad():
            mean, error = sampled(draws, 60_000, 20_000)
        if tails is None:
            assert_within_standard_errors(bounds, mean, error)
        else:
            assert (bounds < mean + 4 * error).all()


def test_bound_with_certain_weights_is_the_density_of_student_t() -> None:
    error, dof = torch.tensor([0.0, 0.7, -4.0, 300.0]), torch.tensor([2.5])
    terms = expected_student_t_log_density(
        (error / 0.3).square()[:, None], -torch.tensor(0.3).log(), dof
    )
    np.testing.assert_allclose(terms[:, 0], stats.t(2.5, 0, 0.3).logpdf(error), rtol=1e-12)
    wide = expected_student_t_log_density(error[:3, None], torch.zeros(1), torch.tensor([1e8]))
    assert_close(wide, expected_student_t_log_density(error[:3, None], torch.zeros(1), None))


def test_kl_is_that_of_the_precision_and_of_the_weights_given_it(
    generator: torch.Generator,
) -> None:
    model = head(covariance="dense")
    randomize(model, generator)
    a = model.noise.concentration().detach()
    posterior = Gamma(a, a * model.noise.variance().detach())
    prior = Gamma(NOISE.noise_dof / 2 * torch.ones(K), NOISE.noise_scale / 2 * torch.ones(K))
    matrices = dense_covariance(model.covariance).detach()

    def draws(count: int) -> Tensor:
        variance = posterior.sample((count,)).reciprocal()[..., None, None]
        given = MultivariateNormal(model.mean.detach(), variance * matrices)
        eye = NOISE.fixed_variance * torch.eye(N)
        return kl_divergence(given, MultivariateNormal(torch.zeros(N), variance * eye)).sum(-1)

    kl = model.elbo(*data(generator)).kl.detach() - kl_divergence(posterior, prior).sum()
    assert_within_standard_errors(kl, *sampled(draws, 20_000, 10_000))


# ---------------------------------------------------------------------------------- with tails


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("freedom", ["learned", 4.0])
def test_the_solver_finds_the_optimum(
    covariance: str, freedom: Any, generator: torch.Generator
) -> None:
    features, target = data(generator)
    target[::10] += 4
    weight = torch.rand(T, K, generator=generator)
    prior = ll.Prior(variance=0.5, noise_dof=2.0, kl_weight=0.7)
    model = head(covariance=covariance, degrees_of_freedom=freedom, bias=True, prior=prior)
    model.prior_mean = torch.randn(model.mean.shape, generator=generator)
    losses: list[float] = []
    model.fit_features(
        features, target, weight, tolerance=1e-13, max_passes=400, report=losses.append
    )
    assert losses == sorted(losses, reverse=True)
    loss = model(features, target, weight)
    assert losses[-1] == pytest.approx(loss.item(), abs=1e-10)
    for gradient in torch.autograd.grad(loss, list(model.parameters())):
        assert gradient.abs().max() < 1e-5


@pytest.mark.parametrize("spoiled", ["shifted", "wild"])
def test_with_outliers_the_fit_is_that_without_them(
    spoiled: str, generator: torch.Generator
) -> None:
    features, target = data(generator, 1000, 1)
    wrong = torch.randperm(1000, generator=generator)[:50]
    contaminated = target.clone()
    contaminated[wrong] += 30.0 if spoiled == "shifted" else 1e6
    options: Any = {"num_data": 1000, "bias": True}
    clean, gaussian = (ll.Regression(N, **options) for _ in range(2))
    clean.fit_exact(features, target, estimate_noise=True)
    gaussian.fit_exact(features, contaminated, estimate_noise=True)
    model = ll.StudentTRegression(N, **options)
    model.fit_features(features, contaminated, max_passes=200)
    stddev = clean.covariance.diagonal().sqrt()
    assert ((model.mean - clean.mean) / stddev).abs().max() < 1.5
    assert ((gaussian.mean - clean.mean) / stddev).abs().max() > 20
    lower, upper = model(features).interval(0.9)
    covered = ((lower <= contaminated) & (contaminated <= upper)).double().mean()
    assert abs(covered - 0.9) < 0.04


def test_degrees_of_freedom_are_found(generator: torch.Generator) -> None:
    torch.manual_seed(1)
    features = torch.randn(3000, N, generator=generator)
    for freedom, low, high in ((4.0, 3.2, 5.0), (1000.0, 20.0, 1200.0)):
        noise = torch.distributions.StudentT(torch.tensor(freedom)).sample((3000, 1))
        model = head(1, num_data=3000)
        model.fit_features(features, features[:, :1] + 0.5 * noise, tolerance=1e-6, max_passes=200)
        found = model.noise_dof()
        assert found is not None
        assert low < found.item() < high
        assert model.noise.variance().sqrt().item() == pytest.approx(0.5, rel=0.08)


def test_heavy_tailed_predictive_is_that_of_numerical_integration() -> None:
    tensors = torch.tensor([1.0, 0.2, 0.5, 60.0, 3.0]).unsqueeze(-1)
    predicted = HeavyTailedPredictive(*tensors)

    def expectation(function: Any) -> float:
        """Over u, of a Student's t of the scale that u leaves."""

        def integrand(log: float) -> float:
            u = math.exp(log)
            known = stats.t(60.0, 1.0, math.sqrt(0.2 + 0.5 / u))
            return stats.gamma(1.5, scale=1 / 1.5).pdf(u) * u * function(known)

        return integrate.quad(integrand, -16, 3.5, epsabs=1e-11, limit=200)[0]

    for value in (1.0, 0.2, 9.0):
        at = torch.tensor([value])
        density = expectation(lambda known, v=value: known.pdf(v))
        assert predicted.log_prob(at).item() == pytest.approx(math.log(density), abs=1e-5)
        mass = expectation(lambda known, v=value: known.cdf(v))
        assert predicted.cdf(at).item() == pytest.approx(mass, abs=1e-5)
    assert predicted.variance.item() == pytest.approx(60 / 58 * (0.2 + 0.5 * 3), rel=1e-9)


# ------------------------------------------------------------------------------------- use


def test_drawn_weights_have_the_variance_of_the_predictive(generator: torch.Generator) -> None:
    model = exact()
    model.fit_exact(*data(generator))
    inputs = torch.randn(3, N, generator=generator)
    predicted = model(inputs).detach()

    def draws(count: int) -> Tensor:
        values = torch.einsum("skn,bn->sbk", model.sample_weights(count, generator), inputs)
        return (values - predicted.mean).square()

    with torch.no_grad():
        assert_within_standard_errors(predicted.epistemic_variance, *sampled(draws))


def test_it_replaces_the_last_layer_of_a_trained_network(generator: torch.Generator) -> None:
    features, target = data(generator, 500)
    network = nn.Sequential(nn.Linear(N, 8), nn.Linear(8, K))
    target[::20] += 100
    model = ll.posttrain(network, (features, target), "student_t", progress=False)
    assert isinstance(model.head, ll.StudentTRegression)
    assert model.posttraining.converged
    plain = ll.posttrain(network, (features, target), "regression", progress=False)
    clean = torch.ones(500, dtype=torch.bool)
    clean[::20] = False
    errors = [(one(features).mean - target)[clean].square().mean() for one in (model, plain)]
    assert errors[0] < 0.1 * errors[1]


def test_what_it_cannot_do_is_refused_with_what_to_do(generator: torch.Generator) -> None:
    features, target = data(generator)
    with pytest.raises(TypeError, match="exact for Gaussian noise only: call fit_features"):
        head().fit_exact(features, target)
    with pytest.raises(TypeError, match="exact for Gaussian noise only"):
        head().update(features, target)
    with pytest.raises(ValueError, match="a number above 2"):
        head(degrees_of_freedom=2.0)
    with pytest.raises(ValueError, match="'learned'"):
        head(degrees_of_freedom="fixed")
    with pytest.raises(ValueError, match=r"noise_dof.*above zero"):
        head(prior=ll.Prior(noise_dof=0.0))
    with pytest.raises(TypeError, match="sample_function"):
        head().joint(features)
