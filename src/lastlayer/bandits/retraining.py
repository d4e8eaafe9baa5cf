"""Training the network of an agent on the observations it remembers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_choice, check_count, check_number, check_positive
from ..functional import of_output
from ..network import Network
from ..training.schedules import SCHEDULES


@dataclass(frozen=True)
class Retraining:
    """When and how the network of an agent is trained on the observations it remembers.

    Attributes:
        every: minimum number of new observations between two trainings.
        growth: another minimum, as a fraction of the observations that are remembered.
        steps: gradient steps of a training.
        batch_size: of a step, drawn with replacement, unless `passes` asks for more.
        passes: minimum number of passes of a training over what is remembered; its batches are as
            large as that asks for. What many observations could show, noisy gradients hide.
        learning_rate: of AdamW, which begins anew each time.
        epsilon: of AdamW. Steps are as long for tiny gradients as for large ones, unless these are
            small beside it: before there is a reward to learn, steps for the noise of gradients
            can kill ReLUs. In units of `reward_scale`, 1e-4 keeps most of them.
        schedule: of the learning rate during a training: "cosine", "constant" or "warmup_cosine".
        weight_decay: of the backbone alone; the head has its prior.
        clip: maximum norm of the gradient.
        exact: whether features and mean are trained on the squared error, after which the last
            layer's exact posterior is set, and updated with every observation until the next
            training. If not, everything is trained on the ELBO, as in the paper, and changes in
            trainings alone.
        noise_iterations: of the alternation of noise and exact posterior.
        balanced: whether, if `exact`, half of a batch is drawn by how far rewards are from the mean
            of their arm, so that features are learned for rewards that are rare and large. The
            posterior counts every observation once, whatever the batches.
        common_noise: whether, if `exact`, all arms share one noise variance. Misfit counts as
            noise: with noises of their own, arms whose rewards were found to vary are tried more
            than arms of which that is not known yet.
        undo: whether, if `exact`, a training is undone after which the noise, in which misfit
            counts, is larger than with the features of before, given the same observations.
    """

    every: int = 20
    growth: float = 0.1
    steps: int = 200
    batch_size: int = 512
    passes: float = 0.0
    learning_rate: float = 3e-3
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0
    schedule: str = "cosine"
    exact: bool = True
    noise_iterations: int = 10
    balanced: bool = True
    common_noise: bool = True
    undo: bool = False

    def __post_init__(self) -> None:
        for name in ("every", "steps", "batch_size", "noise_iterations"):
            check_count(name, getattr(self, name))
        check_choice("schedule", self.schedule, SCHEDULES)
        for name in ("learning_rate", "epsilon", "clip"):
            check_positive(name, getattr(self, name))
        for name in ("growth", "passes", "weight_decay"):
            check_number(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")

    def due(self, num_new: int, num_remembered: int) -> bool:
        """Whether it is time to train, after so many new observations."""
        return num_new >= max(self.every, self.growth * num_remembered)

    def rows(self, num_remembered: int) -> int:
        """Examples of a batch, drawn from so many observations."""
        return max(self.batch_size, math.ceil(self.passes * num_remembered / self.steps))


def train_network(
    model: Network,
    data: tuple[Tensor, Tensor, Tensor],
    shares: Tensor,
    plan: Retraining,
    seed: int,
) -> None:
    """Train a network on contexts, targets and observed outputs, one row per observation.

    Args:
        model: the network.
        data: contexts (n, …), targets (n,) and outputs (n,).
        shares: weights of the observations, (n,).
        plan: how.
        seed: of all that is random.
    """
    head = model.head
    trained = [head.mean] if plan.exact else list(head.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": list(model.backbone.parameters()), "weight_decay": plan.weight_decay},
            {"params": trained, "weight_decay": 0.0},
        ],
        lr=plan.learning_rate,
        eps=plan.epsilon,
        fused=True,
    )
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if plan.exact and plan.balanced:
        shares = balanced(shares, data[1], data[2])
    ends, count = shares.double().cumsum(0), plan.rows(len(shares))
    model.train()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        for step in range(plan.steps):
            rate = plan.learning_rate * SCHEDULES[plan.schedule](step / plan.steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            rows = draw(ends, count)
            contexts, target, output = (column[rows].to(head.mean.device) for column in data)
            if plan.exact:
                loss = _squared_error(model, contexts, target, output)
            else:
                loss = model(contexts, target, output=output)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, plan.clip)
            optimizer.step()
    model.eval()


def balanced(weight: Tensor, target: Tensor, output: Tensor) -> Tensor:
    r"""Weights that are half by squares of deviations from the output's mean, (n,).

    $$w_i\Big(1 + \frac{(y_i - m_k)^2}{v_k}\Big)$$

    with weighted mean m_k and variance v_k of the targets of the example's output k. The weights of
    an output sum to twice what they did; an example can have at most half of that.

    Args:
        weight: w, (n,).
        target: y, (n,).
        output: k, (n,).
    """
    weight, target = weight.double(), target.double()
    sums = weight.new_zeros(int(output.max()) + 1)
    total = sums.index_add(0, output, weight)[output]
    mean = sums.index_add(0, output, weight * target)[output] / total
    deviation = (target - mean).square()
    variance = sums.index_add(0, output, weight * deviation)[output] / total
    return weight * (1 + (deviation / variance).where(variance > 0, 1.0))


def draw(ends: Tensor, count: int) -> Tensor:
    """Indices of examples by weights whose cumulative sums are given, (count,)."""
    points = ends[-1] * torch.rand(count, dtype=ends.dtype)
    return torch.searchsorted(ends, points, right=True).clamp_max(len(ends) - 1)


def _squared_error(model: Network, contexts: Tensor, target: Tensor, output: Tensor) -> Tensor:
    """Mean squared error of the observed outputs, ()."""
    features, head = model.backbone(contexts), model.head
    bias = head.mean[:, -1] if head.bias else None
    mean = F.linear(features, head.mean[:, : head.num_features], bias)
    return F.mse_loss(of_output(mean, output), target)
