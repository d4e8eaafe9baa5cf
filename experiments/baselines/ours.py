"""Ours: VBLL along a cosine of the best length, its tails calibrated on held-out predictions."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import Calibrated, TailScaling, VarianceScaling
from lastlayer.training.crossfitting import CrossFit, calibrated, crossfit_many

from ..datasets.uci import Pair, Split
from ..method import OPTIONS, AnyMethod
from .vbll import LastLayer

OPTIMIZERS = {"soap": ll.SOAP, "adamw": torch.optim.AdamW}

# What the ablation puts in the place of calibrated tails: a Gaussian with calibrated variance, no
# calibration, and calibrated tails after last layer and noise are solved in closed form.
ALTERNATIVES = ("gaussian", "uncalibrated", "exact")


@dataclass(frozen=True, kw_only=True)
class Ours(LastLayer):
    """One configuration for all data sets; see `lastlayer.crossfit` for how it is trained.

    Stopping before the noise becomes too small for new data, as VBLL does, also stops before the
    mean is as good as it could be. Here training goes to the end of a cosine, and predictions of
    held-out data say how large errors really are. Training and validation data take turns in
    being held out: one part of them is too few data to choose by.
    """

    label = "Ours"
    relative_cost = 4.0
    turns: ClassVar[int | None] = None  # folds that are held out: all

    num_folds: int = 5
    optimizer: str = "soap"
    learning_rate: float = 3e-3
    weight_decay: Any = (30.0, 300.0)  # over the number of examples; the better one
    schedule: str = "cosine"
    scale_targets: bool = True
    bias: bool = True
    noise_scale: float = 0.01  # of targets with unit variance

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """The same for all, in the largest data with as many steps in fewer epochs."""
        epochs = 256 if dataset == "power" else 2048  # fewer than 60,000 steps in all of them
        return super().for_dataset(dataset, **{"epochs": epochs, "batch_size": 32} | changes)

    def seeds_together(self, dataset: str) -> int:
        """Fewer than of other methods, for each seed has several models."""
        return 10

    def train(
        self, splits: Sequence[Split], checkpoint: Path | None = None
    ) -> list[tuple[nn.Module, dict[str, Any]]]:
        """Double the length while that helps, then train anew on all but the test data."""
        options = {name: getattr(self, name) for name in OPTIONS if name != "weight_decay"}
        found = crossfit_many(
            [functools.partial(self._model, split) for split in splits],
            [split.development for split in splits],
            seeds=[split.seed for split in splits],
            num_folds=self.num_folds,
            turns=self.turns,
            weight_decays=self.weight_decay,
            checkpoint=checkpoint,
            checkpoint_every=max(1, self.epochs // 20),
            progress=False,
            **options | {"optimizer": OPTIMIZERS[self.optimizer]},
        )
        return [_described(one, split) for one, split in zip(found, splits, strict=True)]

    def _model(self, split: Split, train: Pair) -> nn.Module:
        """A new model for some of the data of a seed."""
        return self.make(replace(split, train=train))


@torch.no_grad()
def _described(found: CrossFit, split: Split) -> tuple[nn.Module, dict[str, Any]]:
    """The model that predicts, what to note about it, and alternatives to it."""
    exact = _exact(found.model, split.development)
    exact_folds = [_exact(model, fold.train) for model, fold in found.folds]
    (predictive, data), (exact_predictive, _) = found.held_out(), found.held_out(exact_folds)
    tails, variance, none = TailScaling(), VarianceScaling(), nn.Identity()
    cases = {  # what predicts, and what that predicts of held-out data
        "": (Calibrated(found.model, found.scaling), found.scaling(predictive)),
        "gaussian": (Calibrated(found.model, variance), calibrated(variance, predictive, data)),
        "uncalibrated": (Calibrated(found.model, none), predictive),
        "exact": (Calibrated(exact, tails), calibrated(tails, exact_predictive, data)),
    }
    notes: dict[str, Any] = {"epochs": found.epochs, "weight_decay": found.weight_decay}
    for name, (_, held_out) in cases.items():
        nll = -held_out.log_prob(data[1]).double().mean().item()
        notes[f"validation_nll_{name}".rstrip("_")] = nll
    notes["validation_rmse"] = (predictive.mean - data[1]).square().mean().sqrt().item()
    notes["tried"] = [
        {name.replace("nll", "validation_nll"): value for name, value in one.items()}
        for one in found.tried
    ]
    notes["alternatives"] = {name: cases[name][0].eval() for name in ALTERNATIVES}
    return cases[""][0].eval(), notes


def _exact(model: nn.Module, train: tuple[Tensor, ...]) -> nn.Module:
    """The model with its last layer solved in closed form."""
    exact = copy.deepcopy(model)
    assert isinstance(exact, ll.Network)
    assert isinstance(exact.head, ll.Regression)
    exact.head.fit_exact(exact.backbone(train[0]), train[1], estimate_noise=True)
    return exact
