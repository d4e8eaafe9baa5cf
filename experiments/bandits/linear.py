"""Agents that are linear in the context, for many seeds at once, and an agent that is not one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ..harness.method import Method, Solved
from .task import BanditTask


@dataclass(frozen=True, kw_only=True)
class Player(Method):
    """An agent; what it returns for a task are the arms it pulled, (T,)."""

    num_contexts: int = 80_000


@dataclass(frozen=True, kw_only=True)
class Uniform(Player):
    """An arm at random."""

    label: ClassVar[str] = "Uniform"

    def train(self, tasks: Sequence[BanditTask], checkpoint: Path | None = None) -> Solved:
        """Pull."""
        generators = [np.random.default_rng([task.seed, 1]) for task in tasks]
        size = (tasks[0].num_contexts,)
        num_arms = tasks[0].num_arms
        return [(generator.integers(num_arms, size=size), {}) for generator in generators]


class NormalInverseGamma:
    r"""Bayesian linear regressions with unknown noise, updated one example at a time.

    $\sigma^2 \sim IG(a, b)$, $\beta\mid\sigma^2 \sim N(\mu, \sigma^2 P^{-1})$ with
    $P = \lambda I + X^\top X$, $\mu = P^{-1}X^\top y$, $a = a_0 + n/2$ and
    $b = b_0 + (y^\top y - \mu^\top P\mu)/2$.

    Args:
        shape: of the array of regressions.
        size: number of features.
        ridge: λ.
        shape_prior: a₀.
        scale_prior: b₀.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        size: int,
        ridge: float,
        shape_prior: float,
        scale_prior: float,
    ) -> None:
        self.covariance = np.broadcast_to(np.eye(size) / ridge, (*shape, size, size)).copy()
        self.cross = np.zeros((*shape, size))
        self.mean = np.zeros((*shape, size))
        self.squares = np.zeros(shape)
        self.a = np.full(shape, float(shape_prior))
        self.b = np.full(shape, float(scale_prior))
        self.ridge, self.scale_prior = ridge, float(scale_prior)

    def fit(self, which: int, features: np.ndarray, target: np.ndarray) -> None:
        """Add many examples to one regression that had none: features (n, size), targets (n,)."""
        precision = features.T @ features + self.ridge * np.eye(features.shape[-1])
        self.covariance[which] = np.linalg.inv(precision)
        self.cross[which] = features.T @ target
        self.mean[which] = np.linalg.solve(precision, self.cross[which])
        self.squares[which] = target @ target
        self.a[which] += 0.5 * len(target)
        explained = self.mean[which] @ self.cross[which]  # μᵀPμ
        self.b[which] = self.scale_prior + 0.5 * (self.squares[which] - explained)

    def update(self, which: tuple[np.ndarray, ...], features: np.ndarray, target: Any) -> None:
        """Add an example to each of some regressions: features (n, size), targets (n,)."""
        covariance = self.covariance[which]
        along = np.einsum("nij,nj->ni", covariance, features)
        gain = along / (1 + np.einsum("ni,ni->n", along, features))[:, None]
        covariance -= gain[:, :, None] * along[:, None, :]  # Sherman–Morrison
        cross = self.cross[which] + features * target[:, None]
        mean = np.einsum("nij,nj->ni", covariance, cross)
        squares = self.squares[which] + np.square(target)
        self.covariance[which], self.cross[which], self.mean[which] = covariance, cross, mean
        self.squares[which] = squares
        self.a[which] += 0.5
        explained = np.einsum("ni,ni->n", mean, cross)  # μᵀPμ
        self.b[which] = self.scale_prior + 0.5 * (squares - explained)


@dataclass(frozen=True, kw_only=True)
class LinearPosterior(Player):
    """Thompson sampling with a Bayesian linear regression of each arm on the context and one.

    Attributes:
        covariance: that of the posterior, or its diagonal alone.
        ridge: λ, the precision of the weights in units of the noise's.
        shape_prior: a₀ of the inverse-gamma prior of the noise variance.
        scale_prior: b₀.
        initial_pulls: of each arm, in turn, before the agent chooses.
    """

    label: ClassVar[str] = "LinFullPost"
    covariance: Literal["full", "diagonal"] = "full"
    ridge: float = 0.25
    shape_prior: float = 6.0
    scale_prior: float = 6.0
    initial_pulls: int = 3

    def train(self, tasks: Sequence[BanditTask], checkpoint: Path | None = None) -> Solved:
        """Play all tasks in step; each has random numbers of its own."""
        generators = [np.random.default_rng([task.seed, 1]) for task in tasks]
        num_tasks, num_contexts = len(tasks), tasks[0].num_contexts
        num_arms = tasks[0].num_arms
        contexts = np.stack([task.contexts for task in tasks], 1)  # (T, tasks, inputs)
        features = np.concatenate([contexts, np.ones((num_contexts, num_tasks, 1))], -1)
        rewards = np.stack([task.rewards for task in tasks], 1)  # (T, tasks, arms)
        every = np.arange(num_tasks)
        priors = (self.ridge, self.shape_prior, self.scale_prior)
        posterior = NormalInverseGamma((num_tasks, num_arms), features.shape[-1], *priors)
        arms = np.empty((num_contexts, num_tasks), np.int64)
        for step, x in enumerate(features):
            if step < self.initial_pulls * num_arms:
                arms[step] = step % num_arms
            else:
                arms[step] = self._draws(posterior, x, generators).argmax(-1)
            posterior.update((every, arms[step]), x, rewards[step, every, arms[step]])
        return [(pulled, {}) for pulled in arms.T]

    def _draws(
        self, posterior: NormalInverseGamma, features: np.ndarray, generators: Sequence[Any]
    ) -> np.ndarray:
        """Expected rewards under a draw of noise and weights, (tasks, arms)."""
        gamma = np.stack(
            [g.standard_gamma(a) for g, a in zip(generators, posterior.a, strict=True)]
        )
        normal = np.stack([g.standard_normal(posterior.a.shape[-1]) for g in generators])
        if self.covariance == "full":
            along = posterior.covariance @ features[:, None, :, None]
            quadratic = (along[..., 0] * features[:, None]).sum(-1)
        else:
            diagonal = np.einsum("tkii->tki", posterior.covariance)
            quadratic = (diagonal * np.square(features[:, None])).sum(-1)
        mean = (posterior.mean * features[:, None]).sum(-1)
        return mean + normal * np.sqrt(posterior.b / gamma * quadratic)
