"""Agents with a network: those of this package, and NeuralLinear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.bandits import Agent, Retraining

from ..harness.method import Solved
from .linear import NormalInverseGamma, Player
from .task import BanditTask

WIDTH = 100  # of the paper's network
PHASE = 20  # contexts between two updates


@dataclass(frozen=True, kw_only=True)
class NetworkAgent(Player):
    """Thompson sampling by `lastlayer.bandits.Agent`, in batches of 20 contexts.

    Attributes:
        exact, growth, steps, batch_size, passes, learning_rate, epsilon, weight_decay, clip,
            schedule, undo: of `lastlayer.bandits.Retraining`.
        squared: whether half of the units of the first layer are squared.
        variance: of the prior of the weights, in units of the scale of rewards.
        noise_scale: of the prior of the noise, in the same units.
        reward_location: is subtracted from rewards.
        reward_scale: by which they are divided.
        bias: whether the head has a bias.
    """

    label: ClassVar[str] = "Agent"
    squared: bool = True
    exact: bool = True
    growth: float = 0.1
    steps: int = 600
    batch_size: int = 256
    passes: float = 0.0
    learning_rate: float = 1e-2
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0
    schedule: str = "cosine"
    undo: bool = False
    variance: float = 1.0
    noise_scale: float = 0.12
    reward_location: float = 0.0
    reward_scale: float = 50.0
    bias: bool = True

    def train(self, tasks: Sequence[BanditTask], checkpoint: Path | None = None) -> Solved:
        """Play one task after the other; an interrupted one goes on where it ended."""
        return [
            self._play(task, None if checkpoint is None else checkpoint / str(task.seed))
            for task in tasks
        ]

    def _play(self, task: BanditTask, folder: Path | None) -> tuple[np.ndarray, dict[str, Any]]:
        agent = self._agent(task, folder)
        contexts = torch.from_numpy(task.contexts).float()
        for start in range(agent.num_observations, task.num_contexts, PHASE):
            batch = contexts[start : start + PHASE]
            arms = agent.predict(batch)
            rewards = task.rewards[np.arange(start, start + len(batch)), arms]
            agent.partial_fit(batch, arms, rewards)
        return agent.observations[1].numpy(), {"trainings": agent.num_trainings}

    def _agent(self, task: BanditTask, folder: Path | None) -> Agent:
        torch.manual_seed(task.seed)
        head = ll.Regression(
            WIDTH,
            task.num_arms,
            num_data=1,
            covariance="dense",
            prior=ll.Prior(variance=self.variance, noise_scale=self.noise_scale),
            bias=self.bias,
        )
        names = ("growth", "steps", "batch_size", "passes", "learning_rate", "epsilon")
        rules = ("weight_decay", "clip", "schedule", "exact", "undo")
        plan = {name: getattr(self, name) for name in names + rules}
        return Agent(
            ll.Network(network(task, squared=self.squared), head),
            task.num_arms,
            retraining=Retraining(every=PHASE, **plan),
            reward_scale=self.reward_scale,
            reward_location=self.reward_location,
            capacity=task.num_contexts,
            seed=task.seed,
            folder=folder,
        )


def network(task: BanditTask, *, squared: bool = False) -> nn.Sequential:
    """From contexts to features: two layers of 100 ReLU units, some of them squared."""
    size = task.contexts.shape[-1]
    first = HalfSquaredReLU() if squared else nn.ReLU()
    return nn.Sequential(nn.Linear(size, WIDTH), first, nn.Linear(WIDTH, WIDTH), nn.ReLU())


class HalfSquaredReLU(nn.Module):
    """max(x, 0) of half of the units and max(x, 0)² of the others (So et al. 2021), (*batch, N)."""

    def forward(self, x: Tensor) -> Tensor:
        """Straight boundaries from the first half, curved ones from the second."""
        straight, curved = F.relu(x).chunk(2, -1)
        return torch.cat([straight, curved.square()], -1)


@dataclass(frozen=True, kw_only=True)
class NeuralLinear(Player):
    """Exact Bayesian regressions on the features of a network trained by least squares.

    After Riquelme, Tucker & Snoek (2018): noise and weights have a normal-inverse-gamma posterior,
    refreshed with every reward; the network is trained every 20 contexts, after which the
    features of all that was observed are computed again.

    Attributes:
        steps: gradient steps of a training.
        batch_size: drawn with replacement from all observations.
        learning_rate: of RMSProp, divided by 1 + decay · step anew in each training.
        decay: of the learning rate.
        clip: maximum norm of the gradient.
        initial_scale: weights are initially uniform within ± this, biases zero.
        ridge, shape_prior, scale_prior, initial_pulls: as in `LinearPosterior`.
    """

    label: ClassVar[str] = "NeuralLinear"
    steps: int = 100
    batch_size: int = 512
    learning_rate: float = 0.1
    decay: float = 0.5
    clip: float = 5.0
    initial_scale: float = 0.3
    ridge: float = 0.25
    shape_prior: float = 6.0
    scale_prior: float = 6.0
    initial_pulls: int = 3

    def train(self, tasks: Sequence[BanditTask], checkpoint: Path | None = None) -> Solved:
        """Play one task after the other."""
        return [(self._play(task), {}) for task in tasks]

    def _play(self, task: BanditTask) -> np.ndarray:
        random = np.random.default_rng([task.seed, 1])
        torch.manual_seed(task.seed)
        model = nn.Sequential(network(task), nn.Linear(WIDTH, task.num_arms))
        for parameter in model.parameters():
            if parameter.ndim == 2:
                nn.init.uniform_(parameter, -self.initial_scale, self.initial_scale)
            else:
                nn.init.zeros_(parameter)
        contexts = torch.from_numpy(task.contexts).float()
        arms = np.empty(task.num_contexts, np.int64)
        rewards = np.empty(task.num_contexts)
        posterior = self._posterior(task, torch.empty(0, WIDTH), arms[:0], rewards[:0])
        for start in range(0, task.num_contexts, PHASE):
            with torch.no_grad():
                features = model[0](contexts[start : start + PHASE]).double().numpy()
            for step, x in enumerate(features, start):
                if step < self.initial_pulls * task.num_arms:
                    arms[step] = step % task.num_arms
                else:
                    arms[step] = _draw(posterior, x, random).argmax()
                rewards[step] = task.rewards[step, arms[step]]
                posterior.update((arms[step : step + 1],), x[None], rewards[step : step + 1])
            seen = slice(0, start + len(features))
            known = (contexts[seen], torch.from_numpy(arms[seen]), torch.from_numpy(rewards[seen]))
            self._fit(model, *known)
            with torch.no_grad():
                features = model[0](contexts[seen])
                posterior = self._posterior(task, features, arms[seen], rewards[seen])
        return arms

    def _fit(self, model: nn.Sequential, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        optimizer = torch.optim.RMSprop(model.parameters(), lr=self.learning_rate, alpha=0.9)
        for step in range(self.steps):
            optimizer.param_groups[0]["lr"] = self.learning_rate / (1 + self.decay * step)
            rows = torch.randint(len(arms), (self.batch_size,))
            mean = model(contexts[rows]).gather(1, arms[rows, None]).squeeze(1)
            optimizer.zero_grad()
            F.mse_loss(mean, rewards[rows].float()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()

    def _posterior(
        self, task: BanditTask, features: Tensor, arms: np.ndarray, rewards: np.ndarray
    ) -> NormalInverseGamma:
        """Given all observations, a regression for each arm."""
        priors = (self.ridge, self.shape_prior, self.scale_prior)
        posterior = NormalInverseGamma((task.num_arms,), WIDTH, *priors)
        for arm in range(task.num_arms):
            own = arms == arm
            posterior.fit(arm, features[torch.from_numpy(own)].double().numpy(), rewards[own])
        return posterior


def _draw(posterior: NormalInverseGamma, x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Expected rewards of all arms under a draw of noise and weights, (arms,)."""
    variance = posterior.b / random.standard_gamma(posterior.a)
    quadratic = (posterior.covariance @ x) @ x
    return posterior.mean @ x + random.standard_normal(len(variance)) * np.sqrt(
        variance * quadratic
    )
