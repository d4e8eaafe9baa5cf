"""Mixtures over variances against numerical integration by SciPy."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor

from lastlayer.functional import scale_mixtures
from lastlayer.predictive import HeteroscedasticPredictive

EPISTEMIC, LOG_MEAN = 0.3, -0.7
SPREADS = (0.0, 0.3, 1.0, 2.0)  # standard deviations of the log-variance
MASSES = (1e-5, 0.02, 0.3, 0.7, 0.975)


def predictive(spread: float) -> HeteroscedasticPredictive:
    mean, epistemic, log_mean, log_variance = torch.tensor(
        [1.5, EPISTEMIC, LOG_MEAN, spread**2]
    ).unsqueeze(-1)
    return HeteroscedasticPredictive(mean, epistemic, log_mean, log_variance)


def expectation(function, spread: float) -> float:
    """E of a function of the standard deviation, over the log-normal variance of the noise."""

    def integrand(score: float) -> float:
        stddev = np.sqrt(EPISTEMIC + np.exp(LOG_MEAN + spread * score))
        return stats.norm.pdf(score) * function(stddev)

    return integrate.quad(integrand, -12, 12, epsabs=1e-13, epsrel=1e-12, limit=400)[0]


def over_the_line(function) -> float:
    """The integral of an even function, by adaptive quadrature of x = t³."""
    return 2 * integrate.quad(lambda t: 3 * t * t * function(t**3), 0, 10, epsabs=1e-9)[0]


def value(result: Tensor) -> float:
    return float(result.reshape(()))


@pytest.mark.parametrize("spread", SPREADS)
def test_density_and_mass_are_those_of_numerical_integration(spread: float) -> None:
    p = predictive(spread)
    for error in (0.0, 0.4, -2.0, 6.0):
        target = torch.tensor([1.5 + error])
        density = expectation(lambda s, e=error: stats.norm.pdf(e, scale=s), spread)
        assert value(p.log_prob(target)) == pytest.approx(np.log(density), abs=1e-6)
        mass = expectation(lambda s, e=error: special.ndtr(e / s), spread)
        assert value(p.cdf(target)) == pytest.approx(mass, abs=1e-7)


@pytest.mark.parametrize("spread", SPREADS)
def test_moments_crps_and_entropy_are_those_of_numerical_integration(spread: float) -> None:
    p = predictive(spread)
    assert value(p.variance) == pytest.approx(expectation(np.square, spread), rel=1e-9)
    square = expectation(lambda s: (s * s - EPISTEMIC) ** 2, spread)
    mean = expectation(lambda s: s * s - EPISTEMIC, spread)
    expected = np.sqrt(max(square - mean**2, 0.0))
    assert value(p.noise_variance_stddev) == pytest.approx(expected, rel=1e-6, abs=1e-7)

    def both(x: float) -> float:
        below = value(p.cdf(torch.tensor([1.5 + x])))
        return below * (1 - below)

    apart = over_the_line(both)
    for error in (0.0, 1.3):
        to_target = expectation(
            lambda s, e=error: (
                e * special.erf(e / s / 2**0.5)
                + s * (2 / np.pi) ** 0.5 * np.exp(-0.5 * (e / s) ** 2)
            ),
            spread,
        )
        found = value(p.crps(torch.tensor([1.5 + error])))
        assert found == pytest.approx(to_target - apart, abs=1e-6)

    def surprise(x: float) -> float:
        log_density = value(p.log_prob(torch.tensor([1.5 + x])))
        return -log_density * np.exp(log_density)

    entropy = over_the_line(surprise)
    assert value(p.entropy()) == pytest.approx(entropy, abs=1e-6)
    noise = 0.5 * (LOG_MEAN + np.log(2 * np.pi * np.e))
    assert value(p.mutual_information()) == pytest.approx(entropy - noise, abs=1e-6)


@pytest.mark.parametrize("spread", SPREADS)
def test_distances_invert_masses_in_all_precisions(spread: float) -> None:
    variances, log_probs = predictive(spread)._components()
    for mass in (1e-12, 1e-5, 0.1, 0.4, 0.499):
        distance = scale_mixtures.tail_distance(torch.tensor(mass), variances, log_probs)
        found = scale_mixtures.tail_mass(distance, variances, log_probs)
        torch.testing.assert_close(found, torch.full_like(found, mass), rtol=1e-9, atol=0)
    single = predictive(spread).to(torch.float32)
    for mass in MASSES:
        exact = predictive(spread).quantile(mass)
        torch.testing.assert_close(single.quantile(mass).double(), exact, rtol=2e-5, atol=0)
        assert single.quantile(mass).dtype == torch.float32
    torch.testing.assert_close(single.quantile(0.5), single.mean)


def test_constant_noise_is_a_normal_distribution() -> None:
    p = predictive(0.0)
    normal = torch.distributions.Normal(1.5, (EPISTEMIC + np.exp(LOG_MEAN)) ** 0.5)
    torch.testing.assert_close(p.entropy(), normal.entropy())
    for mass in MASSES:
        torch.testing.assert_close(p.quantile(mass), normal.icdf(torch.tensor([mass])))
