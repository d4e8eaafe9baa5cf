"""`Prior(variance="evidence")`: s is where the ELBO is highest, in every head and every fit."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

import lastlayer as ll
from lastlayer.functional.gaussian import MIN_PRIOR_VARIANCE
from tests.helpers.cases import CASES, make_examples, make_head
from tests.helpers.reference import dense_covariance

EVIDENCE = ll.Prior(variance="evidence")
N, K, T = 5, 2, 40
HEADS = [
    "regression-shared-diagonal-identity",
    "regression-dense-diagonal-noise",
    "regression-shared-dense-noise",
    "discriminative-low_rank-tilted-none",
    "discriminative-kronecker-jensen-diagonal",
    "generative-diagonal-diagonal",
    "generative-diagonal-dense",
]


def data(generator: torch.Generator, scale: float = 0.5) -> tuple[Tensor, Tensor]:
    features = torch.randn(T, N, generator=generator)
    weights = scale * torch.randn(K, N, generator=generator)
    noise = 0.3 * torch.randn(T, K, generator=generator)
    return features, 2.0 + features @ weights.mT + noise


def divergence_by_definition(head: Any, variance: Tensor) -> Tensor:
    """KL of dense normals, in the units in which the prior of a head is meant."""
    deviation = head.mean.detach()
    if isinstance(head, ll.GenerativeClassification):
        deviation = head.noise.to_basis(deviation)
    elif getattr(head, "conjugate", False):  # rows share the noise: Σ^{-1/2} W
        root = torch.linalg.cholesky(head.noise.covariance().reshape(K + 1, K + 1))
        deviation = torch.linalg.solve_triangular(root, deviation, upper=False)
    posterior = MultivariateNormal(deviation, dense_covariance(head.covariance))
    prior = MultivariateNormal(torch.zeros(head.width), variance.diag())
    return kl_divergence(posterior, prior).sum()


@pytest.mark.parametrize("name", HEADS)
def test_kl_is_the_least_over_s_of_that_of_normals(name: str) -> None:
    head = make_head(name, prior=EVIDENCE)
    variance = head.prior_variance
    kl = head.elbo(*make_examples(head, 5)).kl
    torch.testing.assert_close(kl, divergence_by_definition(head, variance))
    groups = [torch.ones(head.width, dtype=torch.bool)]
    if head.bias:  # has a variance of its own
        last = torch.arange(head.width) == head.width - 1
        groups = [~last, last]
        assert variance[0] != variance[-1]
    for group in groups:
        log_s = torch.zeros((), requires_grad=True)
        by_definition = divergence_by_definition(
            head, torch.where(group, variance * log_s.exp(), variance)
        )
        (slope,) = torch.autograd.grad(by_definition, log_s)
        assert slope.abs() < 1e-9


@pytest.mark.parametrize("row", ["identity", "noise"])
@pytest.mark.parametrize("covariance", ["shared", "dense"])
def test_exact_fit_of_regression_is_type_two_maximum_likelihood(
    covariance: str, row: Any, generator: torch.Generator
) -> None:
    """Against scipy on the dense marginal likelihood of all targets, bias included."""
    features, target = data(generator)
    noise = torch.tensor([0.09, 0.2])
    head = ll.Regression(
        N, K, num_data=T, covariance=covariance, row_covariance=row, prior=EVIDENCE, bias=True
    )
    if covariance == "shared" and row == "identity":
        noise = torch.tensor([0.1, 0.1])  # one S for all outputs holds the posterior only then
    head.noise.assign(noise.diag())
    head.fit_exact(features, target)

    def negative(log_variances: np.ndarray) -> float:
        weights, bias = np.exp(log_variances)
        gram = weights * features @ features.mT + bias
        total = 0.0
        for output, variance in enumerate(noise):
            scale = variance if row == "noise" else 1.0
            matrix = scale * gram + variance * torch.eye(T)
            total -= MultivariateNormal(torch.zeros(T), matrix).log_prob(target[:, output]).item()
        return total

    found = minimize(
        negative, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    learned = head.prior_variance[[0, -1]].log()
    torch.testing.assert_close(learned, torch.from_numpy(found.x), rtol=0, atol=1e-5)
    elbo = head.elbo(features, target)
    torch.testing.assert_close(
        T * elbo.bound - elbo.kl, torch.tensor(-found.fun), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(("regression", "generative"))]
)
def test_exact_fits_settle_where_s_is_best_for_their_own_posterior(name: str) -> None:
    head: Any = CASES[name](prior=EVIDENCE)
    features, target = make_examples(head, 60)
    if target.is_floating_point():
        target = 1 + target + features[:, :3]
    else:
        features = features + nn.functional.one_hot(target, features.shape[-1])
    head.fit_exact(features, target)
    at_fit = head._by_feature(head.fitted_variance)
    torch.testing.assert_close(head.prior_variance, at_fit, rtol=1e-7, atol=0)


@pytest.mark.parametrize("bound", ["jensen", "tilted"])
def test_solver_finds_the_optimum_of_the_elbo_with_s(
    bound: Any, generator: torch.Generator
) -> None:
    features, target = data(generator, 3.0)[0], torch.arange(T) % 3
    features = features + nn.functional.one_hot(target, N)
    head = ll.DiscriminativeClassification(N, 3, num_data=T, bound=bound, prior=EVIDENCE, bias=True)
    head.fit_features(features, target, tolerance=1e-13, max_passes=2000)
    for gradient in torch.autograd.grad(head(features, target), list(head.parameters())):
        assert gradient.abs().max() < 1e-5
    fixed = copy.deepcopy(head)
    variance = head.prior_variance
    fixed.prior = ll.Prior(variance=float(variance[0]), bias_variance=float(variance[-1]))
    torch.testing.assert_close(fixed(features, target), head(features, target))


def test_a_given_variance_of_the_bias_is_that_of_the_bias_alone() -> None:
    prior = ll.Prior(variance=0.2, bias_variance=7.0)
    head = ll.DiscriminativeClassification(N, 3, num_data=T, prior=prior, bias=True)
    torch.testing.assert_close(head.prior_variance, torch.tensor([0.2] * N + [7.0]))
    features, target = torch.randn(4, N), torch.tensor([0, 1, 2, 0])
    kl = head.elbo(features, target).kl
    torch.testing.assert_close(kl, divergence_by_definition(head, head.prior_variance))
    plain = ll.DiscriminativeClassification(N, 3, num_data=T, prior=ll.Prior(variance=0.2))
    torch.testing.assert_close(plain.prior_variance, torch.full((N,), 0.2))


def test_updates_keep_the_variance_of_the_fit(generator: torch.Generator) -> None:
    features, target = data(generator)
    head = ll.Regression(N, K, num_data=T, prior=EVIDENCE, bias=True)
    with pytest.raises(ValueError, match="nothing was learned yet"):
        head.update(features, target)
    head.fit_exact(features[:20], target[:20])
    variance = head.prior_variance
    loaded = ll.Regression(N, K, num_data=T, prior=EVIDENCE, bias=True)
    loaded.load_state_dict(head.state_dict())
    for part in (slice(20, 25), slice(25, T)):
        loaded.update(features[part], target[part])
    prior = ll.Prior(variance=float(variance[0]), bias_variance=float(variance[-1]))
    known = ll.Regression(N, K, num_data=T, prior=prior, bias=True)
    known.fit_exact(features, target)
    torch.testing.assert_close(loaded.mean, known.mean, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        loaded.covariance.dense(), known.covariance.dense(), rtol=1e-6, atol=1e-9
    )
    with torch.no_grad():  # training since then: s is the best for what there is now
        loaded.mean.mul_(1.1)
    best = loaded.prior_variance
    loaded.update(features[:0], target[:0])
    torch.testing.assert_close(loaded._by_feature(loaded.fitted_variance), best)


def test_nothing_to_learn_leaves_a_finite_head(generator: torch.Generator) -> None:
    """Without a relation to the features the best s is zero; it stops above."""
    features = torch.randn(T, N, generator=generator)
    head = ll.Regression(N, K, num_data=T, prior=EVIDENCE)
    head.fit_exact(features, torch.zeros(T, K))
    assert (head.prior_variance >= MIN_PRIOR_VARIANCE).all()
    assert head(features, torch.zeros(T, K)).isfinite()
    classes = ll.DiscriminativeClassification(N, 2, num_data=T, prior=EVIDENCE)
    target = torch.arange(T) % 2
    classes.fit_features(torch.zeros(T, N), target)
    assert classes.prior_variance.isfinite().all()
    torch.testing.assert_close(classes(features).probs().sum(-1), torch.ones(T))


def test_many_heads_at_once_learn_the_variance_that_each_learns_alone(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    labels = (target[:, 0] > 2).long()

    def made(seed: int) -> ll.Network:
        torch.manual_seed(seed)
        head = ll.DiscriminativeClassification(4, 2, num_data=T, prior=EVIDENCE, bias=True)
        return ll.Network(nn.Sequential(nn.Linear(N, 4), nn.Tanh()), head)

    together, alone = [made(0), made(1)], made(1)
    options: Any = {"epochs": 3, "batch_size": 8, "progress": False}
    ll.fit_many(together, (features, labels), **options)
    ll.fit(alone, (features, labels), seed=1, **options)
    head: Any = together[1].head
    torch.testing.assert_close(head.prior_variance, alone.head.prior_variance)


@pytest.mark.slow
@pytest.mark.parametrize("name", [HEADS[1], HEADS[3], HEADS[6]])
def test_learned_variances_compile_export_and_halve(name: str) -> None:
    head = make_head(name, prior=EVIDENCE)
    features, target = make_examples(head, 5)
    loss = head(features, target)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(features, target), loss)
    exported = torch.export.export(head, (features, target)).module()
    torch.testing.assert_close(exported(features, target), loss)
    half = copy.deepcopy(head).bfloat16()
    narrow = half(features.bfloat16(), target)
    assert (narrow - loss).abs() < 0.05 * loss.abs() + 0.05
    ratio = half.prior_variance / head.prior_variance.float()
    assert (ratio - 1).abs().max() < 0.05


def test_evidence_is_spelt_so() -> None:
    with pytest.raises(ValueError, match="did you mean 'evidence'"):
        ll.Prior(variance="evidense")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bias_variance must be a finite number above zero"):
        ll.Prior(bias_variance=0.0)
    with pytest.raises(ValueError, match="take head"):
        _ = EVIDENCE.fixed_variance
