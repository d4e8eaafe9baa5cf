"""Priors as targets, and starting values."""

import pytest
import torch
from torch import Tensor

import lastlayer as ll

TARGETED = ll.Prior.from_targets(
    num_data=500,
    num_outputs=2,
    weight_variance=0.3,
    noise_precision=4.0,
    weight_strength=0.7,
    noise_strength=1.5,
)


def test_prior_targets_are_where_the_regularisers_are_smallest() -> None:
    """The paper's mapping puts the minima of both regularisers at the chosen values."""
    prior = TARGETED
    head = ll.Regression(3, 2, num_data=500, prior=prior, covariance="diagonal")
    with torch.no_grad():
        head.mean.zero_()
    head.covariance.set_isotropic(0.3)
    head.noise.set_isotropic(1 / 4.0)
    elbo = head.elbo(torch.zeros(1, 3), torch.zeros(1, 2))
    regulariser = prior.kl_weight * elbo.kl / 500 - elbo.log_prior
    for gradient in torch.autograd.grad(regulariser, list(head.parameters())):
        assert gradient.abs().max() < 1e-12


def test_prior_strengths_are_the_scales_of_the_regularisers() -> None:
    """λ KL / T is ½α_S(tr S − p̂ log|S|) and −log p(Σ) is ½α_Σ(tr Σ⁻¹ − l̂ log|Σ⁻¹|)."""
    prior = TARGETED
    head = ll.Regression(3, 2, num_data=500, prior=prior, covariance="shared")

    def regularisers(variance: float, precision: float) -> tuple[Tensor, Tensor]:
        head.covariance.set_isotropic(variance)
        head.noise.set_isotropic(1 / precision)
        elbo = head.elbo(torch.zeros(1, 3), torch.zeros(1, 2))
        return prior.kl_weight * elbo.kl / 500, -elbo.log_prior

    at_target, twice = regularisers(0.3, 4.0), regularisers(0.6, 8.0)
    log_2 = torch.tensor(2.0).log()
    torch.testing.assert_close(twice[0] - at_target[0], 0.5 * 0.7 * 3 * (0.3 - 0.3 * log_2))
    torch.testing.assert_close(twice[1] - at_target[1], 0.5 * 1.5 * 2 * (4.0 - 4.0 * log_2))
    assert ll.Prior.from_targets(num_data=500, num_outputs=2).kl_weight == 1.0


def test_default_prior_is_the_papers() -> None:
    prior = ll.Prior()
    assert (prior.variance, prior.noise_dof, prior.noise_scale, prior.kl_weight) == (1, 1, 1, 1)


@pytest.mark.parametrize("width", [1, 8, 64, 512, 2048])
@pytest.mark.parametrize("num_classes", [2, 10, 100])
@pytest.mark.parametrize("kind", ["discriminative", "generative"])
def test_first_classification_loss_is_near_that_of_guessing(
    width: int, num_classes: int, kind: str, generator: torch.Generator
) -> None:
    features = torch.randn(64, width, generator=generator)
    target = torch.randint(0, num_classes, (64,), generator=generator)
    head: ll.Head
    if kind == "discriminative":
        head = ll.DiscriminativeClassification(
            width, num_classes, num_data=100_000, covariance="diagonal"
        )
    else:
        head = ll.GenerativeClassification(width, num_classes, num_data=100_000)
    bound = head.elbo(features, target).bound
    guessing = torch.tensor(float(num_classes)).log()
    assert -bound < guessing + 2.5
    assert head(features, target).isfinite()


@pytest.mark.parametrize("width", [1, 8, 64, 512, 2048])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_first_regression_loss_is_that_of_a_fitted_gaussian_at_any_output_scale(
    width: int, scale: float, generator: torch.Generator
) -> None:
    features = torch.randn(256, width, generator=generator)
    target = scale * torch.randn(256, 2, generator=generator)
    head = ll.Regression(width, 2, num_data=100_000)
    head.initialize(features, target)
    prior = head.prior  # of which the noise is never below m/T
    variance = (1e5 * scale**2 + prior.noise_scale) / (1e5 + prior.noise_dof + 3)
    fitted = torch.distributions.Normal(0, variance**0.5).log_prob(target).sum(-1).mean()
    bound = head.elbo(features, target).bound
    assert (bound - fitted).abs() < 2.0
    if scale == 1.0:  # nothing to initialise
        plain = ll.Regression(width, 2, num_data=100_000)
        assert (plain.elbo(features, target).bound - fitted).abs() < 4.0


def test_parameters_start_at_the_same_order_of_magnitude_whatever_the_seed() -> None:
    for make in (
        lambda: ll.Regression(64, 3, num_data=100, covariance="low_rank", noise="dense"),
        lambda: ll.DiscriminativeClassification(64, 3, num_data=100, covariance="kronecker"),
        lambda: ll.GenerativeClassification(64, 3, num_data=100, covariance="dense"),
    ):
        norms = []
        for seed in range(5):
            torch.manual_seed(seed)
            norms.append(torch.stack([p.norm() for p in make().parameters()]))
        spread = torch.stack(norms).std(0) / torch.stack(norms).mean(0).clamp(min=1e-12)
        assert spread.max() < 0.2
