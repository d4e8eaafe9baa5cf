"""Heads with one output for each arm: what an agent needs of them, and other sets of arms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._checks import INTEGERS, check_count, check_number, check_positive
from ..heads import Regression
from ..network import Network
from ..variational import variational_layers


def check_model(model: Any, num_arms: int, *, exact: bool) -> None:
    """Raise unless a network can be an agent's model of rewards."""
    check_count("num_arms", num_arms)
    if not isinstance(model, Network) or not isinstance(model.head, Regression):
        raise TypeError(
            "an agent needs a lastlayer.Network with a lastlayer.Regression head, got "
            f"{type(model).__name__}; binary rewards are the numbers 0 and 1"
        )
    head = model.head
    if head.num_outputs != num_arms:
        raise ValueError(
            f"the head must have an output for each of num_arms={num_arms}, got "
            f"num_outputs={head.num_outputs}"
        )
    if not head.diagonal_noise:
        raise ValueError("an agent sees one arm's reward at a time and needs noise='diagonal'")
    if exact and (head.covariance.shared or not head.covariance.full):
        raise ValueError(
            "every arm has a posterior of its own, which needs covariance='dense', got "
            f"{type(head.covariance).__name__}"
        )
    if variational_layers(model.backbone):
        raise TypeError(
            "recursive updates need features that are not random; use a backbone without "
            "variational layers"
        )


def check_units(location: float | None, scale: float | None) -> None:
    """Raise unless location and scale of rewards are numbers, or not given."""
    if location is not None:
        check_number("reward_location", location)
    if scale is not None:
        check_positive("reward_scale", scale)


def check_observations(contexts: Tensor, arms: Tensor, rewards: Tensor, known: list[int]) -> None:
    """Raise unless every context has one known arm and one finite reward."""
    expected = (len(contexts),)
    if tuple(arms.shape) != expected or tuple(rewards.shape) != expected:
        raise ValueError(
            f"arms and rewards must have shape {expected}, one for each context, got "
            f"{tuple(arms.shape)} and {tuple(rewards.shape)}"
        )
    if arms.dtype not in INTEGERS and len(arms):
        raise TypeError(f"arms must be integers, got {arms.dtype}")
    unknown = sorted(set(arms.tolist()) - set(known))
    if unknown:
        raise ValueError(f"there are no arms {unknown}; the arms are {known}")
    if not bool(rewards.isfinite().all()):
        raise ValueError("rewards hold NaN or infinite values; leave these observations out")


@torch.no_grad()
def with_outputs(head: Regression, kept: list[int], num_new: int = 0) -> Regression:
    """A regression with some outputs of another, in this order, and new ones at their prior.

    Args:
        head: the other, with one covariance per output and diagonal noise.
        kept: indices of its outputs.
        num_new: number of new outputs. The mean of their prior is that of the other outputs'
            priors, and their noise the geometric mean of the kept outputs'.
    """
    made = Regression(
        head.num_features,
        len(kept) + num_new,
        num_data=head.num_data,
        covariance=type(head.covariance),
        row_covariance="noise" if head.conjugate else "identity",
        prior=head.prior,
        bias=head.bias,
        device=head.mean.device,
        dtype=head.mean.dtype,
    )
    zero = torch.zeros_like(head.mean)
    prior_mean = zero if head.prior_mean is None else head.prior_mean
    new = prior_mean.mean(0, keepdim=True).expand(num_new, -1)
    made.mean.copy_(torch.cat([head.mean[kept], new]))
    if head.prior_mean is not None:
        made.prior_mean = torch.cat([prior_mean[kept], new])
    precision = head.covariance.precision().double()[kept]
    prior = (1 / head.prior_variance.double()).diag_embed().expand(num_new, -1, -1)
    made.covariance.project(torch.cat([precision, prior]))
    noise = head.noise.variance()[kept]
    typical = noise.log().mean().exp().expand(num_new)
    made.noise.assign(torch.cat([noise, typical]).diag_embed())
    made.initial_digest.zero_()  # not new: it has a posterior
    return made.train(head.training)
