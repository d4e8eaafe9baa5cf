"""Regression with noise that depends on the input, against sampling, Regression and gradients."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from torch.testing import assert_close

import lastlayer as ll
from lastlayer import metrics
from lastlayer.covariances import COVARIANCES
from tests.helpers.reference import (
    assert_within_standard_errors,
    dense_covariance,
    randomize,
    sampled,
)

N, K, T = 4, 2, 60
PAIRS = list(zip(COVARIANCES, [*COVARIANCES][1:] + [*COVARIANCES][:1], strict=True))
every_pair = pytest.mark.parametrize(("covariance", "noise_covariance"), PAIRS)


def head(num_outputs: int = K, **options: Any) -> ll.HeteroscedasticRegression:
    return ll.HeteroscedasticRegression(N, num_outputs, **{"num_data": T, **options})


def data(generator: torch.Generator, count: int = T, num_outputs: int = K) -> tuple[Tensor, Tensor]:
    """Noise whose standard deviation grows with the first feature."""
    features = torch.randn(count, N, generator=generator)
    noise = (features[:, :1] - 1).exp() * torch.randn(count, num_outputs, generator=generator)
    return features, features @ torch.randn(N, num_outputs, generator=generator) + noise


# ------------------------------------------------------------------------------ the objective


@every_pair
def test_bound_is_the_expected_log_likelihood(
    covariance: str, noise_covariance: str, generator: torch.Generator
) -> None:
    model = head(
        covariance=covariance, noise_covariance=noise_covariance, bias=True, num_noise_features=3
    )
    randomize(model, generator, 0.2)
    features, target = data(generator, 3)
    inputs = nn.functional.pad(features, (0, 1), value=1.0)

    def draws(count: int) -> Tensor:
        weights = model.sample_weights(count, generator)
        noise = model.log_noise.mean + model.log_noise.covariance.sample(count, generator)
        mean = torch.einsum("skn,bn->sbk", weights, inputs)
        log_variance = torch.einsum("skn,bn->sbk", noise, inputs[:, 1:])
        return Normal(mean, (0.5 * log_variance).exp()).log_prob(target)

    bounds = [
        model.objective(inputs, target, torch.eye(K)[k].expand(3, K))[0].detach() for k in range(K)
    ]
    with torch.no_grad():
        assert_within_standard_errors(torch.stack(bounds, -1), *sampled(draws, 60_000, 20_000))


@every_pair
def test_kl_is_that_of_both_layers(
    covariance: str, noise_covariance: str, generator: torch.Generator
) -> None:
    noise_prior = ll.Prior(variance=0.3, bias_variance=20.0)
    model = head(covariance=covariance, noise_covariance=noise_covariance, noise_prior=noise_prior)
    randomize(model, generator)
    layers = (model, torch.ones(N)), (model.log_noise, torch.tensor([0.3] * N + [20.0]))
    expected = sum(
        kl_divergence(
            MultivariateNormal(layer.mean, dense_covariance(layer.covariance)),
            MultivariateNormal(torch.zeros(len(variance)), variance.diag()),
        ).sum()
        for layer, variance in layers
    )
    assert_close(model.elbo(*data(generator)).kl, expected)


def test_with_certain_constant_noise_it_is_regression(generator: torch.Generator) -> None:
    features, target = data(generator)
    prior = ll.Prior(variance=0.7, noise_dof=3.0, noise_scale=0.2)
    plain = ll.Regression(N, K, num_data=T, prior=prior)
    randomize(plain, generator)
    model = head(prior=prior)
    model.mean.data.copy_(plain.mean)
    model.covariance.load_state_dict(plain.covariance.state_dict())
    model.log_noise.set_constant(plain.noise.variance())
    model.log_noise.covariance.set_isotropic(1e-14)
    actual, expected = model.elbo(features, target), plain.elbo(features, target)
    assert_close((actual.bound, actual.log_prior), (expected.bound, expected.log_prior))
    predicted, known = model(features), plain(features)
    assert_close(predicted.variance, known.variance)
    assert_close(predicted.log_prob(target), known.log_prob(target))
    assert_close(predicted.interval(0.9), known.interval(0.9), rtol=1e-6, atol=1e-8)
    assert_close(predicted.crps(target), known.crps(target))


def test_ignored_targets_may_be_anything_and_change_nothing(generator: torch.Generator) -> None:
    features, target = data(generator)
    model = head()
    randomize(model, generator)
    weight = torch.ones(T, K)
    weight[::3, 0] = 0
    spoiled = target.where(weight != 0, torch.nan)
    assert_close(model(features, spoiled, weight), model(features, target, weight))
    half = torch.arange(T) % 2 == 0
    alone = model.elbo(features[half], target[half])
    masked = model.elbo(features, target, half.double())
    assert_close((2 * masked.bound, 2 * masked.log_prior), (alone.bound, alone.log_prior))


def test_a_new_head_begins_at_constant_noise_whatever_the_units(generator: torch.Generator) -> None:
    features, target = data(generator)
    for units in (1e-8, 1.0, 1e8):
        prior = ll.Prior(variance=units**2, noise_scale=units**2)
        model, plain = head(prior=prior), ll.Regression(N, K, num_data=T, prior=prior)
        for one in (model, plain):
            torch.manual_seed(0)
            one.initialize(features, units * target)
        assert model.fresh
        assert model.log_noise.mean[:, :-1].abs().max() == 0
        nll = -model(features).log_prob(units * target).mean()
        assert_close(nll, -plain(features).log_prob(units * target).mean(), rtol=0, atol=0.02)


# ---------------------------------------------------------------------------- fixed features


@every_pair
def test_the_solver_finds_the_optimum(
    covariance: str, noise_covariance: str, generator: torch.Generator
) -> None:
    features, target = data(generator)
    weight = torch.rand(T, K, generator=generator)
    model = head(
        covariance=covariance,
        noise_covariance=noise_covariance,
        bias=True,
        num_noise_features=2,
        num_data=1.5 * T,
        prior=ll.Prior(variance=0.5, kl_weight=0.7),
    )
    model.prior_mean = torch.randn(model.mean.shape, generator=generator)
    losses: list[float] = []
    model.fit_features(
        features, target, weight, tolerance=1e-12, max_passes=300, report=losses.append
    )
    assert losses == sorted(losses, reverse=True)
    loss = model(features, target, weight)
    assert losses[-1] == pytest.approx(loss.item(), abs=1e-10)
    for gradient in torch.autograd.grad(loss, list(model.parameters())):
        assert gradient.abs().max() < 1e-4


def test_the_solver_begins_at_the_exact_fit_with_constant_noise(generator: torch.Generator) -> None:
    features, target = data(generator, 400)
    plain = ll.Regression(N, K, num_data=400)
    plain.fit_exact(features, target, estimate_noise=True)
    losses: list[float] = []
    model = head(num_data=400)
    model.fit_features(features, target, max_passes=1, report=losses.append)
    assert_close(model.mean, plain.mean)
    constant = (
        model(features, target)
        - model.log_noise._divergence(
            model.log_noise._deviation(),
            model.log_noise.covariance.trace().sum(),
            model.log_noise.covariance.logdet().sum(),
        )
        / 400
    )
    assert_close(constant, plain(features, target), rtol=0, atol=0.02)
    model.fit_features(features, target, report=losses.append)
    assert losses[-1] < losses[0] - 0.5


def test_the_noise_is_found_and_intervals_cover_where_it_is_low_and_high(
    generator: torch.Generator,
) -> None:
    features, target = data(generator, 4000, 1)
    train, test = slice(1000), slice(1000, None)
    model = head(1, num_data=1000, bias=True)
    model.fit_features(features[train], target[train])
    assert_close(model.log_noise.mean[0, 0].item(), 2.0, rtol=0, atol=0.15)
    assert_close(model.log_noise.mean[0, -1].item(), -2.0, rtol=0, atol=0.15)
    lower, upper = model(features[test]).interval(0.9)
    covered = ((lower <= target[test]) & (target[test] <= upper)).double().squeeze(-1)
    order = features[test, 0].argsort()
    for third in order.chunk(3):
        assert abs(covered[third].mean() - 0.9) < 0.04
    plain = ll.Regression(N, 1, num_data=1000, bias=True)
    plain.fit_exact(features[train], target[train], estimate_noise=True)
    found, constant = (
        metrics.evaluate(one, (features[test], target[test]), progress=False)["nll"]
        for one in (model, plain)
    )
    assert found < constant - 0.5


def test_learned_variances_of_both_priors_leave_constant_noise_constant(
    generator: torch.Generator,
) -> None:
    features = torch.randn(300, N, generator=generator)
    target = features[:, :1] + 0.3 * torch.randn(300, 1, generator=generator)
    evidence = ll.Prior(variance="evidence")
    model = head(1, num_data=300, prior=evidence, noise_prior=evidence)
    model.fit_features(features, target, tolerance=1e-8, max_passes=400)
    noise = model(features).noise_variance.detach()
    assert_close(noise, torch.full_like(noise, 0.09), rtol=0.25, atol=0)
    wide = head(1, num_data=300, noise_prior=ll.Prior(variance=1.0, bias_variance=100.0))
    wide.fit_features(features, target)
    assert model(features).log_noise_mean.std() < 0.6 * wide(features).log_noise_mean.std()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_regions_without_noise_and_any_units_are_fitted(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    features, target = data(generator, 300, 1)
    quiet = features[:, 1] < 0
    target = target.where(~quiet.unsqueeze(-1), features @ torch.ones(N, 1))
    features = torch.cat([features, quiet.double().unsqueeze(-1)], -1)
    fits = []
    for units in (1e-6, 1.0, 1e6):
        prior = ll.Prior(variance=units**2, noise_scale=1e-4 * units**2)
        model = ll.HeteroscedasticRegression(N + 1, num_data=300, prior=prior, dtype=dtype)
        inputs, scaled = features.to(dtype), (units * target).to(dtype)
        model.fit_features(inputs, scaled, max_passes=200)
        predicted = model(inputs)
        assert model(inputs, scaled).isfinite()
        assert predicted.log_prob(scaled).isfinite().all()
        fits.append(predicted.stddev.detach().double() / units)
    for other in fits[1:]:
        assert_close(other, fits[0], rtol=0.02, atol=0)


def test_predictions_are_finite_however_far_from_the_data(generator: torch.Generator) -> None:
    features, target = data(generator)
    model = head(num_data=T)
    model.fit_features(features, target)
    near, far = model(features), model(1e4 * features)
    log_mean = nn.functional.pad(features, (0, 1), value=1.0) @ model.log_noise.mean.mT
    assert_close(near.log_noise_mean, log_mean)  # nothing is limited near the data
    for value in (far.variance, *far.interval(0.9), far.log_prob(target), far.crps(target)):
        assert value.isfinite().all()
    assert far.to(torch.float32).variance.isfinite().all()


# ------------------------------------------------------------------------------------- use


def test_it_replaces_the_last_layer_of_a_trained_network(generator: torch.Generator) -> None:
    features, target = data(generator, 500)
    first, last = nn.Linear(N, 8), nn.Linear(8, K, bias=False)
    network = nn.Sequential(first, last)
    with torch.no_grad():
        solution = torch.linalg.lstsq(first(features), 1e3 * target).solution
        last.weight.copy_(solution.mT)
    model = ll.posttrain(network, (features, 1e3 * target), "heteroscedastic", progress=False)
    plain = ll.posttrain(network, (features, 1e3 * target), "regression", progress=False)
    assert isinstance(model.head, ll.HeteroscedasticRegression)
    assert model.posttraining.converged
    log_probs = [one(features).log_prob(1e3 * target).mean() for one in (model, plain)]
    assert log_probs[0] > log_probs[1] + 0.2


@pytest.mark.slow
def test_it_is_trained_with_a_network(generator: torch.Generator) -> None:
    features, target = data(generator, 600, 1)
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(N, 16), nn.ELU())
    heads = ll.HeteroscedasticRegression, ll.Regression
    nlls = []
    for make in heads:
        model = ll.Network(copy.deepcopy(backbone), make(16, num_data=400, bias=True))
        ll.fit(model, (features[:400], target[:400]), epochs=60, learning_rate=0.01, progress=False)
        nlls.append(-model(features[400:]).log_prob(target[400:]).mean().item())
    assert nlls[0] < nlls[1] - 0.2


def test_what_it_cannot_do_is_refused_with_what_to_do(generator: torch.Generator) -> None:
    features, target = data(generator)
    with pytest.raises(TypeError, match="call fit_features"):
        head().fit_exact(features, target)
    with pytest.raises(TypeError, match="sample_function"):
        head().joint(features)
    with pytest.raises(ValueError, match="num_noise_features=5 must be at most num_features=4"):
        head(num_noise_features=5)
    with pytest.raises(ValueError, match="at least one example"):
        head().fit_features(features[:0], target[:0])
    with pytest.raises(ValueError, match="NaN or infinite"):
        head().fit_features(features, target / 0)


@pytest.mark.parametrize("new", [True, False])
def test_updates_are_exact_given_the_noise(generator: torch.Generator, new: bool) -> None:
    features, target = data(generator)
    layer = head(covariance="dense")
    if not new:
        layer.fit_features(features, target)
    before = copy.deepcopy(layer)
    noise = before(features)
    precisions = (0.5 * noise.log_noise_variance - noise.log_noise_mean).exp().detach()
    layer.update(features[:3], target[:3], torch.full((3,), 2.0, dtype=features.dtype))
    layer.update(features[3:5], target[3:5])
    weights = precisions[:5] * torch.tensor([2.0, 2, 2, 1, 1], dtype=features.dtype)[:, None]
    for k in range(target.shape[-1]):
        start = torch.linalg.inv(before.covariance.dense()[k]).detach()
        mean = before.mean[k].detach()
        if new:  # the prior
            start, mean = torch.eye(len(mean), dtype=mean.dtype), torch.zeros_like(mean)
        gram = features[:5].mT @ (weights[:, k, None] * features[:5])
        cross = features[:5].mT @ (weights[:, k] * target[:5, k])
        expected = torch.linalg.solve(start + gram, start @ mean + cross)
        assert_close(layer.mean[k].detach(), expected)
        assert_close(layer.covariance.dense()[k].detach(), torch.linalg.inv(start + gram))
    with pytest.raises(TypeError, match="use covariance='dense'"):
        head(covariance="shared").update(features, target)


def test_tails_are_those_of_the_mean_noise(generator: torch.Generator) -> None:
    features, target = data(generator)
    layer = head()
    layer.fit_features(features, target)
    plain = layer(features)
    factors = torch.tensor([[0.5] * K, [3.0] * K], dtype=features.dtype)
    tailed = plain.with_tails(factors)
    assert_close(tailed.variance, 1.75 * plain.variance)
    parts = [
        torch.distributions.Normal(plain.mean, (c * plain.variance).sqrt()).log_prob(target).sum(-1)
        for c in (0.5, 3.0)
    ]
    assert_close(tailed.log_prob(target), torch.stack(parts).logsumexp(0) - math.log(2))
