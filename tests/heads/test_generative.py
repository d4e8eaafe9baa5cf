"""The generative head against Bayes' rule, explicit normals and sampling."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, MultivariateNormal

import lastlayer as ll
from tests.helpers.classifiers import COVARIANCES, PRIOR, K, N, T, data, generative
from tests.helpers.reference import (
    assert_within_standard_errors,
    dense_covariance,
    sampled,
)


@pytest.mark.parametrize(
    ("covariance", "noise"), list(itertools.product(COVARIANCES, ["diagonal", "dense"]))
)
def test_generative_predictive_is_bayes_rule_over_explicit_normals(
    covariance: str, noise: str, generator: torch.Generator
) -> None:
    features, target = data(generator)
    head = generative(generator, covariance=covariance, noise=noise)
    sigma = head.noise.covariance()
    matrices = dense_covariance(head.covariance)
    if noise == "dense":  # S_k lives in the basis L that whitens Σ: S_k = L⁻ᵀ S̃_k L⁻¹
        root = torch.linalg.inv(torch.linalg.cholesky(torch.linalg.inv(sigma)))
        matrices = root.mT @ matrices @ root
    densities = MultivariateNormal(head.mean, sigma + matrices).log_prob(features.unsqueeze(-2))
    joint = densities + (head.concentration / head.concentration.sum()).log()
    predictive = head(features)
    torch.testing.assert_close(predictive.log_joint, joint)
    torch.testing.assert_close(predictive.probs(), joint.softmax(-1))
    torch.testing.assert_close(predictive.log_density(), joint.logsumexp(-1))
    expected = joint.log_softmax(-1)[torch.arange(T), target]
    torch.testing.assert_close(predictive.log_prob(target), expected)


@pytest.mark.parametrize(
    ("covariance", "noise"), list(itertools.product(COVARIANCES, ["diagonal", "dense"]))
)
def test_generative_bound_is_theorem_3_term_by_term_and_below_what_it_bounds(
    covariance: str, noise: str, generator: torch.Generator
) -> None:
    features, target = data(generator, 6)
    head = generative(generator, covariance=covariance, noise=noise)
    sigma, alpha = head.noise.covariance(), head.concentration
    matrices = dense_covariance(head.covariance)
    if noise == "dense":
        root = torch.linalg.inv(torch.linalg.cholesky(torch.linalg.inv(sigma)))
        matrices = root.mT @ matrices @ root
    own = MultivariateNormal(head.mean[target], sigma).log_prob(features)
    traces = torch.einsum("ij,kji->k", torch.linalg.inv(sigma), matrices)
    marginal = MultivariateNormal(head.mean, sigma + matrices).log_prob(features.unsqueeze(-2))
    evidence = (marginal + alpha.log()).logsumexp(-1)
    dirichlet = alpha.digamma()[target] - alpha.sum().digamma() + alpha.sum().log()
    expected = (own - 0.5 * traces[target] + dirichlet - evidence).mean()
    bound = head.elbo(features, target).bound
    torch.testing.assert_close(bound, expected)

    roots = torch.linalg.cholesky(matrices)
    white = torch.linalg.cholesky(torch.linalg.inv(sigma))

    def log_likelihood(count: int) -> Tensor:
        draws = torch.randn(count, K, N, 1, generator=generator)
        means = head.mean + (roots @ draws).squeeze(-1)
        errors = (features[:, None] - means.unsqueeze(1)) @ white  # (count, batch, K, N)
        joint = Dirichlet(alpha).sample((count,)).log().unsqueeze(1) - 0.5 * errors.square().sum(-1)
        return joint.log_softmax(-1)[:, torch.arange(6), target].mean(-1)

    with torch.no_grad():
        truth, error = sampled(log_likelihood)
        assert bound < truth + 4 * error


def test_generative_bound_is_tight_without_uncertainty(generator: torch.Generator) -> None:
    features, target = data(generator)
    head = generative(generator)
    head.covariance.set_isotropic(1e-16)
    head.concentration.mul_(1e12)
    exact = head(features).log_prob(target).mean()
    torch.testing.assert_close(head.elbo(features, target).bound, exact)


@pytest.mark.parametrize("noise", ["diagonal", "dense"])
@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("kl_weight", [1.0, 0.5])
def test_exact_generative_posterior_is_the_conjugate_one(
    noise: str, covariance: str, kl_weight: float, generator: torch.Generator
) -> None:
    features, target = data(generator)
    prior = ll.Prior(variance=1.7, kl_weight=kl_weight)
    head = generative(generator, noise=noise, covariance=covariance, prior=prior)
    sigma = head.noise.covariance()
    head.fit_exact(features, target)
    prior_covariance = prior.variance * (sigma if noise == "dense" else torch.eye(N))
    for k in range(K):
        own = features[target == k]
        precision = torch.linalg.inv(prior_covariance)
        precision = precision + len(own) / kl_weight * torch.linalg.inv(sigma)
        shift = torch.linalg.inv(sigma) @ own.sum(0) / kl_weight
        torch.testing.assert_close(head.mean[k], torch.linalg.solve(precision, shift))
        if covariance in ("dense", "diagonal", "low_rank"):
            posterior = head.covariance.dense()[k]
            if noise == "dense":
                root = torch.linalg.inv(torch.linalg.cholesky(torch.linalg.inv(sigma)))
                posterior = root.mT @ posterior @ root
            torch.testing.assert_close(posterior, torch.linalg.inv(precision), atol=1e-6, rtol=1e-5)
    counts = torch.bincount(target, minlength=K)
    torch.testing.assert_close(head.concentration, 1.0 + counts)


@pytest.mark.parametrize("noise", ["diagonal", "dense"])
def test_estimated_generative_noise_maximises_the_generative_evidence_bound(
    noise: str, generator: torch.Generator
) -> None:
    features, target = data(generator)
    head = generative(generator, noise=noise)
    head.fit_exact(features, target, estimate_noise=True)

    def objective() -> Tensor:
        """E_q log p(Φ|Y, μ) + log p(Σ) − KL(q(μ)‖p(μ)), with explicit matrices."""
        sigma = head.noise.covariance()
        matrices = head.covariance.dense()
        if noise == "dense":
            root = torch.linalg.inv(torch.linalg.cholesky(torch.linalg.inv(sigma)))
            matrices = root.mT @ matrices @ root
        fit = MultivariateNormal(head.mean[target], sigma).log_prob(features)
        traces = torch.einsum("ij,kji->k", torch.linalg.inv(sigma), matrices)
        elbo = head.elbo(features, target)
        return (fit - 0.5 * traces[target]).sum() + elbo.log_prior - elbo.kl

    for gradient in torch.autograd.grad(objective(), list(head.parameters())):
        assert gradient.abs().max() < 1e-5


@pytest.mark.parametrize("noise", ["diagonal", "dense"])
@pytest.mark.parametrize("splits", [[10, 20], [1, 1, 28], [T]])
def test_updating_classes_in_any_split_equals_fitting_once(
    noise: str, splits: list[int], generator: torch.Generator
) -> None:
    features, target = data(generator)
    once = generative(generator, noise=noise)
    once.fit_exact(features, target)
    made: Any = ll.GenerativeClassification
    updated = made(N, K, num_data=T, prior=PRIOR, noise=noise)
    updated.noise.load_state_dict(once.noise.state_dict())
    for part, labels in zip(features.split(splits), target.split(splits), strict=True):
        updated.update(part, labels)
    torch.testing.assert_close(updated.mean, once.mean)
    torch.testing.assert_close(updated.covariance.dense(), once.covariance.dense())
    torch.testing.assert_close(updated.concentration, once.concentration)


def test_forgetting_equals_weighting_old_examples(generator: torch.Generator) -> None:
    features, target = data(generator)
    weighted, forgetful = generative(generator), generative(generator)
    forgetful.load_state_dict(weighted.state_dict())
    weight = torch.cat([torch.full((10,), 0.5), torch.ones(T - 10)])
    weighted.fit_exact(features, target, weight)
    forgetful.fit_exact(features[:10], target[:10])
    forgetful.update(features[10:], target[10:], forgetting=0.5)
    torch.testing.assert_close(forgetful.mean, weighted.mean)
    torch.testing.assert_close(forgetful.covariance.dense(), weighted.covariance.dense())
    torch.testing.assert_close(forgetful.concentration, weighted.concentration)


def test_observed_counts_are_the_dirichlet_posterior_and_may_be_edited(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    head = ll.GenerativeClassification(N, K, num_data=T, concentration=2.0)
    for part in target.split(7):
        head.observe(part)
    torch.testing.assert_close(head.concentration, 2.0 + torch.bincount(target, minlength=K))
    before = head(features).log_joint
    head.concentration.copy_(torch.tensor([1e-9, 1.0, 1.0, 1.0, 1.0]))  # class 0 is gone
    after = head(features)
    assert after.probs()[:, 0].max() < 1e-6
    ratio = (after.log_joint - before)[:, 1:]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))  # densities unchanged


def test_edited_counts_may_be_whole_numbers() -> None:
    head = ll.GenerativeClassification(2, 3, num_data=10)
    head.concentration = torch.tensor([90, 5, 5])
    head.observe(torch.tensor([0, 1, 2]), torch.tensor([0.5, 0.5, 0.0]))
    assert head.concentration.tolist() == [90.5, 5.5, 5.0]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["diagonal", "dense"])
def test_sampled_class_densities_average_to_the_predictive(
    noise: str, generator: torch.Generator
) -> None:
    features, _ = data(generator, 3)
    head = generative(generator, noise=noise, covariance="low_rank")
    with torch.no_grad():
        draws = torch.stack([head.sample_function(generator)(features).exp() for _ in range(4_000)])
        mean, error = draws.mean(0), draws.std(0) / 4_000**0.5
        assert_within_standard_errors(head(features).log_joint.exp(), mean, error)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["diagonal", "dense"])
@pytest.mark.parametrize("covariance", ["diagonal", "low_rank"])
def test_generative_mutual_information_agrees_with_sampled_means(
    noise: str, covariance: str, generator: torch.Generator
) -> None:
    features, target = data(generator, 150)
    head = generative(generator, noise=noise, covariance=covariance)
    head.fit_exact(features, target, estimate_noise=True)
    between = features[:8] + torch.randn(8, N, generator=generator)
    predictive = head(between)
    with torch.no_grad():
        draws = torch.stack([head.sample_function(generator)(between) for _ in range(4_000)])
    # the posterior given φ too weighs each draw by the density it gives to φ
    weight = draws.logsumexp(-1).softmax(0).unsqueeze(-1)
    probs = draws.softmax(-1)
    mean = (weight * probs).sum(0)
    entropies = -torch.xlogy(probs, probs).sum(-1, keepdim=True)
    expected = -torch.xlogy(mean, mean).sum(-1) - (weight * entropies).sum(0).squeeze(-1)
    torch.testing.assert_close(predictive.mutual_information(), expected, rtol=0, atol=0.02)
    assert expected.max() > 0.02
    expected_log = draws.mean(0)
    error = draws.std(0) / 4_000**0.5
    assert_within_standard_errors(predictive.expected_log_joint, expected_log, error)


@pytest.mark.parametrize("covariance", ["diagonal", "low_rank", "shared"])
@pytest.mark.parametrize("num_classes", [3, 30])
def test_generative_logits_survive_cancellation_in_single_precision(
    covariance: str, num_classes: int, generator: torch.Generator
) -> None:
    """Features offset by 1,000 and class means 1,000 times wider than the noise."""
    width = 64
    exact = ll.GenerativeClassification(width, num_classes, num_data=100, covariance=covariance)
    means = 1000 + 1000 * torch.randn(num_classes, width, generator=generator)
    with torch.no_grad():
        exact.mean.copy_(means.float())
    exact.covariance.set_isotropic(0.01)
    target = torch.randint(0, num_classes, (200,), generator=generator)
    features = exact.mean[target] + torch.randn(200, width, generator=generator)
    features = features.detach().float()
    single = ll.GenerativeClassification(
        width, num_classes, num_data=100, covariance=covariance, dtype=torch.float32
    )
    single.load_state_dict(exact.state_dict())
    got, want = single(features), exact(features.double())
    assert (got.log_prob(target) - want.log_prob(target)).abs().max() < 1e-3
    assert (got.log_density() - want.log_density()).abs().max() < 1e-3 * width
    loss = single(features, target)
    torch.testing.assert_close(
        loss.double(), exact(features.double(), target), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("noise", ["diagonal", "dense"])
def test_many_classes_close_together_are_told_apart_beside_others_far_away(
    covariance: str, noise: Any, generator: torch.Generator
) -> None:
    means = torch.randn(2, 1, 64, generator=generator) * 1000 + 1000  # two groups of ten
    means = (means + torch.randn(2, 10, 64, generator=generator) / 8).flatten(0, 1)
    exact = ll.GenerativeClassification(
        64, 20, num_data=1000, covariance=covariance, noise=noise, dtype=torch.float64
    )
    with torch.no_grad():
        exact.mean.copy_(means.float())
        exact.covariance.set_isotropic(0.01)
    single = ll.GenerativeClassification(
        64, 20, num_data=1000, covariance=covariance, noise=noise, dtype=torch.float32
    )
    single.load_state_dict(exact.state_dict())
    target = torch.arange(20).repeat(10)
    features = (means[target] + torch.randn(200, 64, generator=generator)).float()
    found, expected = single(features), exact(features.double())
    assert found.log_joint.dtype == torch.float32
    error = found.log_prob(target) - expected.log_prob(target)
    assert error.abs().max() < 1e-3


@pytest.mark.parametrize("covariance", ["diagonal", "low_rank"])
def test_generative_gradients_survive_cancellation_in_single_precision(
    covariance: str, generator: torch.Generator
) -> None:
    exact = ll.GenerativeClassification(16, 20, num_data=100, covariance=covariance)
    with torch.no_grad():
        exact.mean.copy_((1000 + 1000 * torch.randn(20, 16, generator=generator)).float())
    exact.covariance.set_isotropic(0.01)
    target = torch.randint(0, 20, (100,), generator=generator)
    features = exact.mean.detach()[target] + torch.randn(100, 16, generator=generator)
    features = features.float()
    single = ll.GenerativeClassification(
        16, 20, num_data=100, covariance=covariance, dtype=torch.float32
    )
    single.load_state_dict(exact.state_dict())
    want = torch.autograd.grad(exact.elbo(features.double(), target).bound, [*exact.parameters()])
    got = torch.autograd.grad(single.elbo(features, target).bound, [*single.parameters()])
    for left, right in zip(got, want, strict=True):
        assert (left - right).abs().max() < 1e-3 * right.abs().max()


@pytest.mark.parametrize("scale", [30.0, 300.0, 3000.0])
def test_low_rank_densities_survive_large_factors_in_single_precision(
    scale: float, generator: torch.Generator
) -> None:
    exact = ll.GenerativeClassification(40, 6, num_data=100, covariance="low_rank")
    covariance: Any = exact.covariance
    direction = torch.randn(1, 1, 40, generator=generator)
    with torch.no_grad():  # nearly parallel: the classes differ in a small angle
        spread = 0.05 * torch.randn(6, 3, 40, generator=generator)
        covariance.factor.copy_((scale * (direction + spread)).float())
        exact.mean.copy_(exact.mean.float())
    covariance.log_variance.requires_grad_(False).fill_(0.0)
    target = torch.randint(0, 6, (50,), generator=generator)
    along = torch.randn(50, 1, 3, generator=generator)
    features = (along @ covariance.factor.detach()[target]).squeeze(1)
    features = (features + torch.randn(50, 40, generator=generator)).float()
    single = ll.GenerativeClassification(
        40, 6, num_data=100, covariance="low_rank", dtype=torch.float32
    )
    single.load_state_dict(exact.state_dict())
    got, want = single(features), exact(features.double())
    assert (got.log_prob(target) - want.log_prob(target)).abs().max() < 1e-3


def test_single_examples_without_a_batch_dimension_have_densities_and_losses(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    for covariance, noise in itertools.product(COVARIANCES, ["diagonal", "dense"]):
        head = generative(generator, covariance=covariance, noise=noise)
        torch.testing.assert_close(head(features[0]).log_joint, head(features).log_joint[0])
        alone = head.elbo(features[0], target[0]).bound
        torch.testing.assert_close(alone, head.elbo(features[:1], target[:1]).bound)


@pytest.mark.parametrize(
    ("dtype", "digits"), [(torch.float16, 1e-2), (torch.bfloat16, 1e-2), (torch.float32, 1e-6)]
)
def test_the_log_prior_of_wide_noise_survives_half_precision(
    dtype: torch.dtype, digits: float
) -> None:
    head = ll.GenerativeClassification(640, 3, num_data=1000, dtype=torch.float64)
    head.noise.set_isotropic(0.135)
    wide = head.noise.log_prior(head.prior).item()
    assert head.to(dtype).noise.log_prior(head.prior).item() == pytest.approx(wide, rel=digits)


def test_counts_survive_half_precision() -> None:
    head = ll.GenerativeClassification(N, K, num_data=T, dtype=torch.float32)
    head.observe(torch.zeros(100_000, dtype=torch.int64))
    narrow = head.half()
    assert narrow.concentration[0] == 100_001
    assert narrow(torch.zeros(2, N, dtype=torch.float16)).probs().isfinite().all()


def test_impossible_classes_leave_entropy_and_information_finite(
    generator: torch.Generator,
) -> None:
    head = generative(generator)
    head.concentration[2] = 0.0
    features = data(generator)[0].requires_grad_()
    predictive = head(features)
    assert predictive.probs()[:, 2].max() == 0
    assert predictive.mutual_information().isfinite().all()
    entropy = predictive.entropy()
    possible = predictive.probs()[:, [0, 1, 3, 4]]
    torch.testing.assert_close(entropy, -torch.xlogy(possible, possible).sum(-1))
    assert torch.autograd.grad(entropy.sum(), features)[0].isfinite().all()
