"""Methods that only the UCI tables have: our configuration with its ablation, deeper networks."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import Calibrated, TailScaling, VarianceScaling
from lastlayer.training.folds import calibrated

from ..baselines.ours import Ours, held_out_nll
from ..baselines.vbll import VBLL
from ..harness.task import Supervised

# What the ablation puts in the place of calibrated tails: a Gaussian with calibrated variance, no
# calibration, and calibrated tails after last layer and noise are solved in closed form.
ALTERNATIVES = {
    "gaussian": "calibrated variance, Gaussian tails",
    "uncalibrated": "no calibration",
    "exact": "last layer and noise solved exactly, calibrated tails",
}


@dataclass(frozen=True, kw_only=True)
class OursWithAlternatives(Ours):
    """Ours; beside it, it notes what other calibrations of the same training would give."""

    @torch.no_grad()
    def notes(self, found: ll.CrossFit, task: Supervised) -> dict[str, Any]:
        """What to note about training, and alternatives to the model."""
        exact = _exact(found.model, task.development)
        exact_folds = [_exact(model, fold.train) for model, fold in found.folds]
        (predictive, data), (exact_predictive, _) = found.held_out(), found.held_out(exact_folds)
        tails, variance, none = TailScaling(), VarianceScaling(), nn.Identity()
        cases = {  # what predicts, and what that predicts of held-out data
            "gaussian": (Calibrated(found.model, variance), calibrated(variance, predictive, data)),
            "uncalibrated": (Calibrated(found.model, none), predictive),
            "exact": (Calibrated(exact, tails), calibrated(tails, exact_predictive, data)),
        }
        notes = super().notes(found, task)
        for name, (_, held_out) in cases.items():
            notes[f"validation_nll_{name}"] = held_out_nll(held_out, data[1])
        notes["validation_rmse"] = (predictive.mean - data[1]).square().mean().sqrt().item()
        notes["alternatives"] = {name: cases[name][0].eval() for name in ALTERNATIVES}
        return notes


def _exact(model: nn.Module, train: tuple[Tensor, ...]) -> nn.Module:
    """The model with its last layer solved in closed form."""
    exact = copy.deepcopy(model)
    assert isinstance(exact, ll.Network)
    assert isinstance(exact.head, ll.Regression)
    exact.head.fit_exact(exact.backbone(train[0]), train[1], estimate_noise=True)
    return exact


@dataclass(frozen=True, kw_only=True)
class ConjugateRows(OursWithAlternatives):
    """Ours, with a posterior of the weights that shares the noise covariance."""

    def make(self, task: Supervised) -> ll.Network:
        """The network with a conjugate head, which draws its initial weights first."""
        head = self.head(task, row_covariance="noise")
        return ll.Network(task.backbone(), head)


@dataclass(frozen=True, kw_only=True)
class OneFold(OursWithAlternatives):
    """Ours, with one fifth of the data held out and the others never."""

    turns: ClassVar[int | None] = 1


@dataclass(frozen=True, kw_only=True)
class ScaledOurs(OursWithAlternatives, VBLL):
    """Ours, with initial weights of the last layer as large as those of VBLL."""


@dataclass(frozen=True, kw_only=True)
class Deeper(VBLL):
    """VBLL with one hidden layer more, as the example network of the authors' package has."""

    relative_cost = 1.2

    depth: int = 3

    def make(self, task: Supervised) -> ll.Network:
        """The deeper network with the same head."""
        return ll.Network(task.backbone(depth=self.depth), self.head(task))
