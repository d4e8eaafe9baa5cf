"""Training features on the evidence of the last layer, few observations at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_count, check_number, check_positive
from ..functional import log_marginal_likelihood
from ..heads import Regression
from ..network import Network
from ..priors import Prior
from ..training.schedules import SCHEDULES
from .backbone import Scaled, Waves
from .data import Data

NOISE_PRIOR = Prior(noise_dof=0.0, noise_scale=1e-3)  # expensive functions have little noise
INITIAL_NOISE = 0.1  # variance, of standardised outcomes


@dataclass(frozen=True)
class FeatureTraining:
    """How features are trained: by Adam, with all the data in every step and a cosine schedule.

    Parameters whose name begins with `log_` set a scale. They have the prior N(initial, 1/κ), all
    others N(initial, 1/(λ · fan-in)).

    Attributes:
        steps: the number of gradient steps.
        learning_rate: of the weights.
        scale_learning_rate: of scales.
        noise_learning_rate: of the logarithm of the noise, and of the scale of features.
        strength: λ, how strongly weights are held to their initial values.
        scale_strength: κ, how strongly scales are.
        max_data: features are trained on as many observations, chosen at random; the last layer
            has all of them.
    """

    steps: int = 150
    learning_rate: float = 3e-3
    scale_learning_rate: float = 0.03
    noise_learning_rate: float = 0.05
    strength: float = 1e4
    scale_strength: float = 10.0
    max_data: int = 512

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("max_data", self.max_data)
        for name in ("learning_rate", "scale_learning_rate", "noise_learning_rate"):
            check_positive(name, getattr(self, name))
        for name in ("strength", "scale_strength"):
            check_number(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")


def make_network(
    inputs: Tensor,
    num_outputs: int,
    backbone: nn.Module | None,
    num_features: int | None,
    prior: Prior,
) -> Network:
    """A network of initial features for inputs (n, d)."""
    if prior.variances(bias=True) != (1.0,) or prior.kl_weight != 1:
        raise ValueError(
            "the scale of the weights is learned with the features: give the prior a noise_dof and "
            f"a noise_scale alone, got {prior}"
        )
    if (backbone is None) != (num_features is None):
        raise ValueError("pass backbone and num_features together, or neither")
    if backbone is None or num_features is None:
        waves = Waves(inputs.shape[-1])
        backbone, num_features = waves, waves.num_features
    head = Regression(
        num_features,
        num_outputs,
        num_data=len(inputs),
        covariance="dense",  # a posterior for each output, whatever its noise
        prior=prior,
        bias=True,
    )
    head.noise.set_isotropic(INITIAL_NOISE)
    return Network(Scaled(backbone), head).to(inputs).eval().requires_grad_(False)


def log_evidence(head: Regression, features: Tensor, data: Data) -> Tensor:
    r"""The ELBO at the exact posterior of the last layer, as a sum over the data, ().

    $$\sum_k \log N(y_k \mid 0,\ \Phi\Phi^\top + \sigma_k^2 I) + \log p(\Sigma)$$

    If the variances of noise are given, they stand for σ², and there is no log p(Σ).
    """
    factor = F.pad(features, (0, 1), value=1.0)
    if data.variances is None:
        factor = factor.expand(data.num_outputs, *factor.shape)
        density = log_marginal_likelihood(data.outcomes.mT, factor, head.noise.variance().sqrt())
        return density.sum() + head.noise.log_prior(head.prior)
    scale = data.variances.sqrt().mT  # (m, n)
    white = data.outcomes.mT / scale, factor / scale.unsqueeze(-1)
    return (
        log_marginal_likelihood(*white, torch.ones_like(scale[:, 0])) - scale.log().sum(-1)
    ).sum()


def train_features(network: Network, data: Data, plan: FeatureTraining) -> None:
    """Maximise the evidence over backbone and noise, from where they are."""
    if len(data.inputs) > plan.max_data:
        data = data.rows(torch.randperm(len(data.inputs))[: plan.max_data])
    scaled: Any = network.backbone
    head: Any = network.head
    named = dict(scaled.backbone.named_parameters())
    weights = {name: value for name, value in named.items() if not _is_scale(name)}
    scales = {name: value for name, value in named.items() if _is_scale(name)}
    noise = [] if data.variances is not None else list(head.noise.parameters())
    groups = [
        (plan.learning_rate, list(weights.values())),
        (plan.scale_learning_rate, list(scales.values())),
        (plan.noise_learning_rate, [scaled.log_scale, *noise]),
    ]
    optimizer = torch.optim.Adam(
        [{"params": group, "lr": rate, "rate": rate} for rate, group in groups if group]
    )
    initial = dict(scaled.initial.named_parameters())
    parameters = [parameter for _, group in groups for parameter in group]
    with torch.enable_grad():
        for parameter in parameters:
            parameter.requires_grad_()
        for step in range(plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = group["rate"] * SCHEDULES["cosine"](step / plan.steps)
            loss = -log_evidence(head, scaled(data.inputs), data)
            for name, value in named.items():
                fan_in = plan.strength * _fan_in(value)
                precision = plan.scale_strength if _is_scale(name) else fan_in
                loss = loss + 0.5 * precision * (value - initial[name]).square().sum()
            if not loss.isfinite():  # as good as noise-free and degenerate: what was found is kept
                break
            optimizer.zero_grad()
            (loss / len(data.inputs)).backward()
            optimizer.step()
    network.requires_grad_(False)


def _is_scale(name: str) -> bool:
    return name.rpartition(".")[-1].startswith("log_")


def _fan_in(weight: Tensor) -> int:
    """How many inputs an output of a layer has; 1 for a bias."""
    return weight[0].numel() if weight.ndim > 1 else 1


@torch.no_grad()
def fit_last_layer(network: Network, data: Data) -> None:
    """Set the exact posterior of the last layer."""
    head: Any = network.head
    weight = None
    if data.variances is not None:
        variance = data.variances.mean(0)
        head.noise.assign(variance.diag_embed())
        weight = variance / data.variances
    head.num_data = len(data.inputs)
    head.fit_exact(network.backbone(data.inputs), data.outcomes, weight)
