"""Policies: which arm to pull, given what is believed of its expected reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_choice, check_number, check_positive
from ..functional import widest

REACH = 8.5  # standard deviations beyond which a normal distribution has no mass in float64
NUM_INTERVALS = 12  # between the ends of each arm's own range
NODES = (-0.906179845938664, -0.538469310105683, 0.0, 0.538469310105683, 0.906179845938664)
WEIGHTS = (0.236926885056189, 0.478628670499366, 0.568888888888889, 0.478628670499366)
MOST_NUMBERS = 2**24  # values of distribution functions at once


class Policy(ABC):
    """A rule from the posterior of expected rewards to an arm.

    Attributes:
        values: arguments with which its class makes it again: numbers and strings, for saving.
    """

    @property
    def values(self) -> tuple[Any, ...]:
        """The fields of a dataclass; nothing otherwise."""
        return tuple(vars(self)[field.name] for field in fields(self)) if is_dataclass(self) else ()

    @abstractmethod
    def choose(self, mean: Tensor, stddev: Tensor, generator: torch.Generator) -> Tensor:
        """Indices of arms, (*batch,), for posterior moments (*batch, K)."""

    @abstractmethod
    def probabilities(self, mean: Tensor, stddev: Tensor) -> Tensor:
        """The probability with which `choose` takes each arm, (*batch, K)."""


@dataclass(frozen=True)
class Thompson(Policy):
    """Thompson sampling: the arm that is best under one draw from the posterior (Thompson 1933).

    Attributes:
        width: factor on the standard deviations; above 1 it explores more than the posterior says.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        check_positive("width", self.width)

    def choose(self, mean: Tensor, stddev: Tensor, generator: torch.Generator) -> Tensor:
        """The best arm of an independent draw for each context."""
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        return torch.addcmul(mean, stddev, noise, value=self.width).argmax(-1)

    def probabilities(self, mean: Tensor, stddev: Tensor) -> Tensor:
        """The probability of each arm to be the best."""
        return best_arm_probabilities(mean, self.width * stddev)


@dataclass(frozen=True)
class UCB(Policy):
    """Upper confidence bound: the arm with the highest mean plus `width` standard deviations."""

    width: float = 2.0

    def __post_init__(self) -> None:
        check_number("width", self.width)

    def choose(self, mean: Tensor, stddev: Tensor, generator: torch.Generator) -> Tensor:
        """The arm with the highest bound."""
        return (mean + self.width * stddev).argmax(-1)

    def probabilities(self, mean: Tensor, stddev: Tensor) -> Tensor:
        """One for the arm with the highest bound."""
        return _certain(mean + self.width * stddev)


@dataclass(frozen=True)
class Greedy(Policy):
    """The arm with the highest mean, or with probability `epsilon` any arm."""

    epsilon: float = 0.0

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must lie in [0, 1], got {self.epsilon!r}")

    def choose(self, mean: Tensor, stddev: Tensor, generator: torch.Generator) -> Tensor:
        """The best arm, or any."""
        random = torch.rand(mean.shape[:-1], generator=generator) < self.epsilon
        anything = torch.randint(mean.shape[-1], mean.shape[:-1], generator=generator)
        return torch.where(random, anything, mean.argmax(-1))

    def probabilities(self, mean: Tensor, stddev: Tensor) -> Tensor:
        """1 − ε for the best arm, and ε shared by all."""
        return (1 - self.epsilon) * _certain(mean) + self.epsilon / mean.shape[-1]


POLICIES: dict[str, Policy] = {
    "thompson": Thompson(),
    "ucb": UCB(),
    "greedy": Greedy(),
    "epsilon": Greedy(0.1),
}


def make_policy(policy: str | Policy) -> Policy:
    """The policy of this name, or a policy as it is."""
    if isinstance(policy, Policy):
        return policy
    check_choice("policy", policy, POLICIES)
    return POLICIES[policy]


def best_arm_probabilities(mean: Tensor, stddev: Tensor) -> Tensor:
    r"""The probability of each of several independent Gaussians to be the largest.

    $$p_k = \int \prod_{j\ne k}\Phi\Big(\frac{t-m_j}{s_j}\Big)\,N(t|m_k,s_k^2)\,dt$$

    By Gauss–Legendre quadrature between the points of a grid that has every arm's own range in
    it, so that narrow and wide arms are both resolved.

    Args:
        mean: m, (*batch, K).
        stddev: s, (*batch, K), above zero.

    Returns:
        (*batch, K), summing to one.
    """
    mean, stddev = widest(mean), widest(stddev)
    flat = torch.stack([mean.reshape(-1, mean.shape[-1]), stddev.reshape(-1, mean.shape[-1])], -1)
    num_arms = mean.shape[-1]
    rows = max(1, MOST_NUMBERS // (len(NODES) * num_arms**2 * NUM_INTERVALS))
    parts = [_best(*part.unbind(-1)) for part in flat.split(rows)]
    return torch.cat(parts).reshape(mean.shape)


def _best(mean: Tensor, stddev: Tensor) -> Tensor:
    grid = torch.linspace(-REACH, REACH, NUM_INTERVALS + 1, dtype=mean.dtype)
    ends = (mean.unsqueeze(-1) + stddev.unsqueeze(-1) * grid).flatten(-2).sort(-1).values
    half = 0.5 * ends.diff(dim=-1).unsqueeze(-1)  # (batch, intervals, 1)
    centre = 0.5 * (ends[:, 1:] + ends[:, :-1]).unsqueeze(-1)
    nodes = (centre + half * torch.tensor(NODES, dtype=mean.dtype)).flatten(-2)
    weights = torch.tensor([*WEIGHTS, WEIGHTS[0]], dtype=mean.dtype)
    score = (nodes.unsqueeze(-1) - mean.unsqueeze(-2)) / stddev.unsqueeze(-2)  # (batch, nodes, K)
    log_below = torch.special.log_ndtr(score)
    log_density = -0.5 * score.square() - stddev.log().unsqueeze(-2)
    others = log_below.sum(-1, keepdim=True) - log_below
    volume = (half * weights).flatten(-2).unsqueeze(-1)
    mass = (volume * (others + log_density).exp()).sum(-2)
    return mass / mass.sum(-1, keepdim=True)


def _certain(score: Tensor) -> Tensor:
    """One for the highest score, zero for the others, (*batch, K)."""
    return F.one_hot(score.argmax(-1), score.shape[-1]).to(score.dtype)
