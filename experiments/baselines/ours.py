"""Ours: VBLL along a cosine of the best length, its tails calibrated on held-out predictions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

import lastlayer as ll
from lastlayer.calibration import Calibrated, TailScaling, VarianceScaling

from ..datasets.uci import Pair, Split
from ..method import AnyMethod
from .vbll import VBLL

OPTIMIZERS = {"soap": ll.SOAP, "adamw": torch.optim.AdamW}

Try = tuple[list[nn.Module], dict[str, Any]]  # calibrations, and notes on held-out data

# What the ablation puts in the place of calibrated tails: a Gaussian with calibrated variance, no
# calibration, and calibrated tails after last layer and noise are solved in closed form.
ALTERNATIVES = {
    "gaussian": VarianceScaling,
    "uncalibrated": nn.Identity,
    "exact": TailScaling,
}


@dataclass(frozen=True, kw_only=True)
class Ours(VBLL):
    """One configuration for all data sets.

    Stopping before the noise becomes too small for new data, as VBLL does, also stops before the
    mean is as good as it could be. Here training goes to the end of a cosine, and predictions of
    held-out data say how large errors really are. Training and validation data take turns in
    being held out: one part of them is too few data to choose by. The length of the cosine
    doubles as long as that helps. Then the model is trained anew on training and validation data,
    and keeps the calibration of the held-out predictions.
    """

    label = "Ours"
    relative_cost = 4.0

    num_folds: int = 5
    optimizer: str = "soap"
    learning_rate: float = 3e-3
    weight_decay: float = 100.0  # over the number of examples, as the strength of a prior is
    schedule: str = "cosine"
    scale_targets: bool = True
    bias: bool = True
    noise_scale: float = 0.01  # of targets with unit variance

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """The same for all."""
        return super().for_dataset(dataset, **{"epochs": 2048, "batch_size": 32} | changes)

    def seeds_together(self, dataset: str) -> int:
        """Fewer than of other methods, for each seed has several models."""
        return 10

    @property
    def lengths(self) -> list[int]:
        """Numbers of epochs to try, each twice the one before."""
        return sorted({max(1, self.epochs // 2**halvings) for halvings in range(8)})

    def optimise(self, *arguments: Any, **changes: Any) -> list[ll.History]:
        """As other methods do, with an optimiser of our choice."""
        return super().optimise(*arguments, optimizer=OPTIMIZERS[self.optimizer], **changes)

    def train(
        self, splits: Sequence[Split], checkpoint: Path | None = None
    ) -> list[tuple[nn.Module, dict[str, Any]]]:
        """Double the length while that helps, then train anew on all but the test data."""
        tries: list[list[Try]] = [[] for _ in splits]
        going = list(range(len(splits)))
        for length in self.lengths:
            for at, found in zip(
                going, self._try([splits[at] for at in going], length, checkpoint), strict=True
            ):
                tries[at].append(found)
            going = [at for at in going if tries[at][-1] is _best(tries[at])]
        best = list(map(_best, tries))
        models: dict[int, nn.Module] = {}
        for length in self.lengths:
            chosen = [at for at, (_, notes) in enumerate(best) if notes["epochs"] == length]
            whole = [splits[at].whole() for at in chosen]
            folder = checkpoint and checkpoint / f"whole-{length}"
            models |= zip(chosen, self._fitted(whole, length, folder), strict=True)
        trained = []
        for at, (scalings, notes) in enumerate(best):
            model, *others = _variants(models[at], splits[at].development)
            tried = {"tried": [notes for _, notes in tries[at]]}
            alternatives = dict(zip(ALTERNATIVES, map(_apply, others, scalings[1:]), strict=True))
            notes = notes | tried | {"alternatives": alternatives}
            trained.append((_apply(model, scalings[0]), notes))
        return trained

    def _fitted(
        self, splits: Sequence[Split], length: int, checkpoint: Path | None
    ) -> list[nn.Module]:
        """New models, trained for so many epochs."""
        if not splits:
            return []
        models = self.new(splits)
        train = [split.train for split in splits]
        decay = self.weight_decay / splits[0].num_data  # all have as many
        knobs = replace(self, epochs=length, weight_decay=decay)
        knobs.optimise(models, splits, train, checkpoint)
        return [model.eval() for model in models]

    def _try(self, splits: Sequence[Split], length: int, checkpoint: Path | None) -> list[Try]:
        """For each seed the calibrations of all variants, and how well ours does when held out."""
        folds = [self.folds(split) for split in splits]
        all_folds = [fold for several in folds for fold in several]
        models = self._fitted(all_folds, length, checkpoint and checkpoint / f"try-{length}")
        each = iter(models)
        return [_judged([next(each) for _ in some], some, {"epochs": length}) for some in folds]

    def folds(self, split: Split) -> list[Split]:
        """What to train on and what to hold out, for the choice of a length."""
        return split.folds(self.num_folds) if self.num_folds > 1 else [split]


def _best(tries: list[Try]) -> Try:
    return min(tries, key=lambda one: one[1]["validation_nll"])


@torch.no_grad()
def _judged(models: list[nn.Module], folds: list[Split], notes: dict[str, Any]) -> Try:
    """Calibrate every variant on what was held out from each model, and note how well it does."""
    target = torch.cat([fold.validation[1] for fold in folds])
    held_out = torch.arange(len(target)), target  # for predictives, whose inputs are rows
    pairs = zip(models, folds, strict=True)
    variants = zip(*(_variants(model, fold.train) for model, fold in pairs), strict=True)
    scalings, scores = [], []
    for kind, variant in zip((TailScaling, *ALTERNATIVES.values()), variants, strict=True):
        parts = [model(fold.validation[0]) for model, fold in zip(variant, folds, strict=True)]
        predictive = pytree.tree_map(lambda *tensors: torch.cat(tensors), *parts)
        scaling = kind()
        if not isinstance(scaling, nn.Identity):
            scaling.fit(predictive.__getitem__, held_out, progress=False)
        scaled = scaling(predictive)
        scores.append(ll.metrics.evaluate(scaled.__getitem__, held_out, progress=False))
        scalings.append(scaling)
    notes |= {"validation_nll": scores[0]["nll"], "validation_rmse": scores[0]["rmse"]}
    others = zip(ALTERNATIVES, scores[1:], strict=True)
    return scalings, notes | {f"validation_nll_{name}": score["nll"] for name, score in others}


def _variants(model: nn.Module, train: Pair) -> list[nn.Module]:
    """The model for each kind of calibration; for the last, its last layer is solved exactly."""
    assert isinstance(model, ll.Network)
    exact = copy.deepcopy(model)
    assert isinstance(exact.head, ll.Regression)
    with torch.no_grad():
        exact.head.fit_exact(exact.backbone(train[0]), train[1], estimate_noise=True)
    return [model, model, model, exact]


def _apply(model: nn.Module, scaling: nn.Module) -> nn.Module:
    return Calibrated(model, scaling).eval()
