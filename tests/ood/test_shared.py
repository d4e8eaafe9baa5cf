"""The density with a shared covariance, against SciPy's normals and its optimiser."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp, multigammaln
from scipy.stats import multivariate_normal
from torch import Tensor
from torch.testing import assert_close

from lastlayer import ood
from lastlayer.functional import covariance_evidence, mean_evidence
from lastlayer.ood import FeatureDensity


def make_data(generator: torch.Generator, count: int = 90) -> tuple[Tensor, Tensor]:
    """Four correlated features of three classes, of which the last has a tenth of the examples."""
    labels = torch.where(torch.rand(count, generator=generator) < 0.1, 2, torch.arange(count) % 2)
    mixing = torch.eye(4) + 0.2 * torch.randn(4, 4, generator=generator)
    means = 3 * torch.randn(3, 4, generator=generator)
    return torch.randn(count, 4, generator=generator) @ mixing + means[labels], labels


def scatter_evidence(theta: np.ndarray, scatter: np.ndarray, count: float) -> float:
    """Minus the log of the marginal likelihood of a scatter under Σ ~ inverse-Wishart."""
    c, t = np.exp(theta)
    size = len(scatter)
    dof, prior = c + size + 1, c * t * np.eye(size)
    return -float(
        multigammaln((dof + count) / 2, size)
        - multigammaln(dof / 2, size)
        + dof / 2 * np.linalg.slogdet(prior)[1]
        - (dof + count) / 2 * np.linalg.slogdet(prior + scatter)[1]
    )


def oracle(points: Tensor, features: Tensor, labels: Tensor, normalized: bool) -> np.ndarray:
    """The formulas of the class's docstring, class by class."""
    phi, y = features.numpy(), labels.numpy()
    classes = sorted(set(y.tolist()))
    total, size = phi.shape
    means = {k: phi[y == k].mean(0) for k in classes}
    counts = {k: int((y == k).sum()) for k in classes}
    error = phi - np.stack([means[k] for k in y.tolist()])
    scatter, degrees = error.T @ error, total - len(classes)
    begin = np.log([degrees / 2, np.trace(scatter) / degrees / size])
    options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000}
    c, t = np.exp(
        minimize(
            scatter_evidence, begin, (scatter, degrees), method="Nelder-Mead", options=options
        ).x
    )
    covariance = (c * t * np.eye(size) + scatter) / (c + degrees)
    center = phi.mean(0)

    def minus_log_evidence(log_kappa: float) -> float:
        # K/(K − 1): the centre is estimated from the same means
        larger = len(classes) / (len(classes) - 1)
        return sum(
            larger * d @ np.linalg.solve(covariance, d) / (math.exp(log_kappa) + 1 / counts[k])
            + size * math.log(math.exp(log_kappa) + 1 / counts[k])
            for k, d in ((k, means[k] - center) for k in classes)
        )

    kappa = math.exp(minimize_scalar(minus_log_evidence, bounds=(-15, 15), method="bounded").x)
    x = points.numpy()
    joint = []
    for k in classes:
        share = counts[k] / (counts[k] + 1 / kappa)
        mean = center + share * (means[k] - center)
        spread = (1 + 1 / (counts[k] + 1 / kappa)) * covariance
        log_density = multivariate_normal(mean, spread).logpdf(x)
        joint.append(log_density + math.log(counts[k] / total))
    score = -logsumexp(joint, axis=0)
    if normalized:
        for i, point in enumerate(x):
            square = (point - center) @ np.linalg.solve(covariance, point - center)
            scale = max(1 + kappa, square / size)
            score[i] += multivariate_normal(center, scale * covariance).logpdf(point)
    return score


@pytest.mark.parametrize("normalized", [True, False])
def test_the_score_is_that_of_scipys_normals_and_optimiser(normalized, generator):
    features, labels = make_data(generator)
    points = 4 * torch.randn(12, 4, generator=generator)
    density = FeatureDensity(4, 3, normalized=normalized, unit_length=False)
    density.update(features, labels)
    expected = oracle(points, features, labels, normalized)
    assert_close(density(points), torch.from_numpy(expected), rtol=1e-6, atol=1e-6)


def test_the_gaussians_are_those_of_the_density(generator):
    features, labels = make_data(generator)
    density = FeatureDensity(4, 3, unit_length=False)
    density.update(features, labels)
    mean, factor = density.gaussians()
    joint = torch.distributions.MultivariateNormal(mean, scale_tril=factor).log_prob(
        features[:, None]
    )
    log_class = (density.counts / density.counts.sum()).log()
    assert_close(density.log_density(features), (joint + log_class).logsumexp(-1))


def test_evidence_finds_the_best_prior_of_a_covariance(generator):
    features = torch.randn(30, 6, generator=generator) @ torch.randn(6, 6, generator=generator)
    scatter = features.T @ features
    eigenvalues = torch.linalg.eigvalsh(scatter)
    found = torch.stack(covariance_evidence(eigenvalues, torch.tensor(30.0))).log().numpy()
    best = scatter_evidence(found, scatter.numpy(), 30)
    for step in ([0.01, 0], [-0.01, 0], [0, 0.01], [0, -0.01], [0.01, -0.01]):
        assert best < scatter_evidence(found + np.array(step), scatter.numpy(), 30)


def test_evidence_of_means_is_closed_form_with_equal_counts(generator):
    squares, counts = torch.rand(5, generator=generator) * 9, torch.full((5,), 20.0)
    expected = squares.sum() / 4 / 3 - 1 / 20  # N = 3
    assert_close(mean_evidence(squares, counts, 3), expected, rtol=1e-6, atol=1e-9)


def test_isotropic_features_are_shrunk_and_long_samples_are_not(generator):
    few = torch.randn(12, 10, generator=generator)
    stretched = torch.randn(20_000, 10, generator=generator) * torch.linspace(0.1, 3, 10)
    shares = []
    for features in (few, stretched):
        count = torch.tensor(float(len(features)))
        prior_count, _ = covariance_evidence(torch.linalg.eigvalsh(features.T @ features), count)
        shares.append(float(prior_count / (prior_count + count)))
    assert shares[0] > 0.5
    assert shares[1] < 0.001


def test_the_length_of_features_does_not_matter_unless_asked(generator):
    features, labels = make_data(generator)
    density = FeatureDensity(4, 3)
    density.update(features, labels)
    longer = FeatureDensity(4, 3)
    longer.update(7 * features * torch.rand(len(features), 1, generator=generator), labels)
    assert_close(density(features), longer(0.01 * features))


def test_a_power_is_taken_of_magnitudes(generator):
    features, labels = make_data(generator)
    root = FeatureDensity(4, 3, power=0.5)
    root.update(features, labels)
    plain = FeatureDensity(4, 3)
    plain.update(features.sign() * features.abs().sqrt(), labels)
    assert_close(root(features), plain(features.sign() * features.abs().sqrt()))


@pytest.mark.parametrize(("shift", "power"), [(0.0, 1.0), (10.0, 0.5)])
def test_a_model_without_negative_features_gets_their_square_root(shift, power, generator):
    data = torch.randn(30, 4, generator=generator) + shift
    density = FeatureDensity.from_model(torch.nn.Identity(), (data,), num_classes=1)
    assert density.power == power


def test_one_class_is_scored_by_its_density(generator):
    features, _ = make_data(generator)
    density = FeatureDensity(4, 1, unit_length=False)
    density.update(features)
    assert_close(density(features), -density.log_density(features))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_examples_give_finite_scores(count, generator):
    density = FeatureDensity(4, 3)
    density.update(torch.randn(count, 4, generator=generator), torch.arange(count))
    assert density(torch.randn(5, 4, generator=generator)).isfinite().all()
    assert density(torch.zeros(2, 4)).isfinite().all()  # zero has no direction


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_scored_in_double(dtype, generator):
    features, labels = make_data(generator)
    density = FeatureDensity(4, 3)
    density.update(features.to(dtype), labels)
    scores: Any = density(features.to(dtype))
    assert scores.dtype == torch.float32
    assert_close(scores.double(), density(features.to(dtype).double()), rtol=1e-6, atol=1e-5)


def test_shrinkage_detects_where_the_empirical_covariance_cannot(generator):
    size, classes, each = 60, 4, 20  # fewer examples than features and classes need
    means = torch.randn(classes, size, generator=generator)
    labels = torch.arange(classes * each) % classes
    features = means[labels] + torch.randn(len(labels), size, generator=generator)
    fresh = means[labels] + torch.randn(len(labels), size, generator=generator)
    far = torch.randn(1, size, generator=generator) + torch.randn(
        len(labels), size, generator=generator
    )
    density = FeatureDensity(size, classes)
    relative = ood.RelativeMahalanobis(size, classes)
    for score in (density, relative):
        score.update(features, labels)
    ours, theirs = (
        ood.detection(score(fresh), score(far))["auroc"] for score in (density, relative)
    )
    assert ours > 0.95
    assert ours > theirs
