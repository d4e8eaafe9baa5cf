"""How to train, and how large errors really are: both from data held out in turns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._checks import check_count
from .._data import as_batch
from ..calibration import default_scaling
from . import SOAP, fit_many
from .loop import own_random_numbers
from .one import weighted_sums

Tensors = tuple[Tensor, ...]  # (inputs, target) or (inputs, target, weight)


class Setting(NamedTuple):
    """How to train."""

    weight_decay: float  # over the number of examples
    epochs: int


@dataclass(frozen=True)
class Fold:
    """Data to train on, and what is held out meanwhile."""

    train: Tensors
    held_out: Tensors

    @classmethod
    def of(cls, data: Tensors, count: int, turns: int, seed: int) -> list[Fold]:
        """Hold out one of `count` equal parts of the data, then the next, `turns` times.

        Parts are random. What is left over is never held out, so that all folds train on as many
        examples.
        """
        total = as_batch(data).size
        size = total // count
        if not size:
            raise ValueError(
                f"{total} examples cannot be held out in {count} parts; lower num_folds"
            )
        order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
        part = torch.empty_like(order)
        part[order] = torch.arange(total) // size
        held = [part == turn for turn in range(turns)]
        return [cls(_rows(data, ~chosen), _rows(data, chosen)) for chosen in held]


@dataclass
class CrossFit:
    """A model of all the data, and what held-out data say about models like it.

    Attributes:
        model: trained on all the data in the best way of those tried.
        scaling: fitted on the held-out predictions of the folds' models.
        weight_decay: the best, over the number of examples.
        epochs: the best number.
        tried: in order, dicts of `weight_decay`, `epochs` and the `nll` of the scaled predictions
            of held-out data.
        folds: for each fold the model trained on its data in the best way, and the fold.
    """

    model: nn.Module
    scaling: nn.Module
    weight_decay: float
    epochs: int
    tried: list[dict[str, float]]
    folds: list[tuple[nn.Module, Fold]] = field(repr=False)

    def held_out(self, models: Sequence[nn.Module] | None = None) -> tuple[Any, Tensors]:
        """Predictions of all that was held out, by models that have not seen it, and the data.

        Args:
            models: others than those of the folds, one for each.
        """
        models = [model for model, _ in self.folds] if models is None else models
        return held_out_predictions(models, [fold for _, fold in self.folds])


def crossfit(
    make: Callable[[Tensors], nn.Module],
    data: Tensors,
    *,
    seed: int = 0,
    **options: Any,
) -> CrossFit:
    """Train for as long as is good for data held out, calibrate on those, train on everything.

    Parts of the data take turns in being held out from a model that is trained on the rest. The
    number of epochs doubles as long as predictions of the held-out data become better, calibrated
    on the same data; then another weight decay is tried. A model is trained in the best way on all
    the data, and the calibration goes with it. Validation data of its own would be fewer, and lost
    for training.

    Args:
        make: from training data to a new model for them. Models may differ in what their
            parameters and buffers hold, and in nothing else.
        data: (inputs, target) or (inputs, target, weight), tensors.
        seed: of all random numbers.
        options: see `crossfit_many`.

    Returns:
        The model, its calibration, and what was tried.
    """
    return crossfit_many([make], [data], seeds=[seed], **options)[0]


def crossfit_many(
    makes: Sequence[Callable[[Tensors], nn.Module]],
    data: Sequence[Tensors],
    *,
    seeds: Sequence[int] | None = None,
    num_folds: int = 5,
    turns: int | None = None,
    epochs: int = 2048,
    shortest: int = 16,
    scaling: Callable[[], nn.Module] | None = None,
    weight_decays: Sequence[float] = (30.0, 300.0),
    checkpoint: str | Path | None = None,
    **options: Any,
) -> list[CrossFit]:
    """`crossfit` of many problems, whose models train together as in `fit_many`.

    Args:
        makes: for each problem, a function from training data to a new model for them.
        data: for each problem, all of the same shapes.
        seeds: one for each problem; 0, 1, 2 and so on.
        num_folds: of how many parts each is held out.
        turns: how many parts are held out in turn; all of them if None.
        epochs: at most.
        shortest: the least number of epochs to try.
        scaling: makes a calibration of `lastlayer.calibration`, such as `VarianceScaling`. If None
            it is `TailScaling` of independent outputs, `VarianceScaling` of other regression, and
            `TemperatureScaling` of classes.
        weight_decays: of the backbone, over the number of examples, as the strength of a prior is.
            Each is tried with the best number of epochs so far, and with more if it is better.
        checkpoint: a folder to go on from after an interruption.
        options: others of `fit`. Here the optimiser is `SOAP`, with a learning rate of 3e-3 along a
            cosine.

    Returns:
        For each problem the model, its calibration, and what was tried.
    """
    check_count("num_folds", num_folds, 2)
    turns = num_folds if turns is None else turns
    check_count("turns", turns)
    if turns > num_folds:
        raise ValueError(f"turns={turns}, but there are only num_folds={num_folds} parts")
    weight_decays = tuple(weight_decays)
    if not weight_decays or min(weight_decays) < 0:
        raise ValueError(
            f"weight_decays are numbers of at least zero, got {weight_decays}; pass (0.0,) for none"
        )
    if not makes or len(makes) != len(data):
        raise ValueError(
            f"each problem has data and a function that makes models, got {len(makes)} functions "
            f"and {len(data)} data"
        )
    for name in sorted({"validation", "retrain", "patience", "weight_decay"} & set(options)):
        raise TypeError(
            f"crossfit takes no {name}: it holds data out by itself, chooses the epochs, trains on "
            "everything in the end, and tries weight_decays"
        )
    seeds = list(range(len(data)) if seeds is None else seeds)
    settings = [
        Setting(decay, length) for decay in weight_decays for length in lengths(shortest, epochs)
    ]
    problems = [
        _Problem(make, tensors, seed, Fold.of(tensors, num_folds, turns, seed), settings)
        for make, tensors, seed in zip(makes, data, seeds, strict=True)
    ]
    defaults: dict[str, Any] = {"optimizer": SOAP, "learning_rate": 3e-3, "schedule": "cosine"}
    traces: dict[str, dict[Any, Any]] = {"try": {}, "whole": {}}  # steps are alike within each

    def train(jobs: list[_Job], setting: Setting, name: str) -> Iterator[nn.Module]:
        models = [problem.new(tensors) for problem, tensors in jobs]
        recorded, label = traces[name], _label(name, problems)
        name = f"{name}-{setting.weight_decay:g}-{setting.epochs}"
        fit_many(
            models,
            [tensors for _, tensors in jobs],
            seeds=[problem.seed for problem, _ in jobs],
            epochs=setting.epochs,
            weight_decay=setting.weight_decay / len(jobs[0][1][0]),
            checkpoint=checkpoint and Path(checkpoint) / name,
            label=label,
            traces=recorded,
            **defaults | options,
        )
        return (model.eval() for model in models)

    while going := _alike([problem for problem in problems if problem.wants is not None]):
        jobs = [(problem, fold.train) for problem in going for fold in problem.folds]
        try:
            models = train(jobs, settings[going[0].wants or 0], "try")
        except FloatingPointError:  # none of them can be trained in this way
            models = iter([])
        for problem in going:
            problem.judge(list(itertools.islice(models, turns)), scaling)
    for problem in problems:
        problem.check()
    for setting in settings:
        if chosen := [problem for problem in problems if problem.best.setting == setting]:
            models = train([(problem, problem.data) for problem in chosen], setting, "whole")
            for problem in chosen:
                problem.model = next(models)
    return [problem.found() for problem in problems]


def lengths(shortest: int, longest: int) -> list[int]:
    """Numbers of epochs, each twice the one before, up to the longest."""
    check_count("shortest", shortest)
    check_count("epochs", longest)
    found = [longest]
    while found[0] // 2 >= shortest:
        found.insert(0, found[0] // 2)
    return found


def _label(name: str, problems: Sequence[_Problem]) -> str:
    """What a progress bar says: how far the search is, and how good the best found so far."""
    if name == "whole":
        return "training on all data"
    tries = max(len(problem.tries) for problem in problems)
    best = sum(problem.best.nll for problem in problems if problem.tries) / len(problems)
    return f"try {tries + 1}" + (f" (held-out NLL so far {best:.4g})" if tries else "")


@torch.no_grad()
def held_out_predictions(models: Sequence[nn.Module], folds: Sequence[Fold]) -> tuple[Any, Tensors]:
    """What each fold's model predicts of what was held out from it, joined, and those data."""
    pairs = list(zip(models, folds, strict=True))
    predictives = [model(fold.held_out[0]) for model, fold in pairs]
    predictive = pytree.tree_map(lambda *parts: torch.cat(parts), *predictives)
    data = zip(*(fold.held_out for _, fold in pairs), strict=True)
    return predictive, tuple(torch.cat(parts) for parts in data)


def calibrated(scaling: Any, predictive: Any, data: Tensors) -> Any:
    """Fit a scaling to predictions of data, and scale them."""
    rows = torch.arange(len(data[0]))  # in the place of inputs, for what is predicted already
    scaling.fit(predictive.__getitem__, (rows, *data[1:]), progress=False)
    return scaling(predictive)


class _Try(NamedTuple):
    """How well models do on what was held out from them; infinitely badly if they fail."""

    setting: Setting
    nll: float
    models: list[nn.Module]
    scaling: nn.Module | None


@dataclass
class _Problem:
    """What to fit, what was tried, and which of the settings to try next."""

    make: Callable[[Tensors], nn.Module]
    data: Tensors
    seed: int
    folds: list[Fold]
    settings: list[Setting]
    wants: int | None = 0
    tries: list[_Try] = field(default_factory=list)
    model: nn.Module | None = None

    @property
    def best(self) -> _Try:
        """The try with the lowest NLL."""
        return min(self.tries, key=lambda one: one.nll)

    def new(self, train: Tensors) -> nn.Module:
        """A new model, whose random numbers are the seed's."""
        with own_random_numbers():
            torch.manual_seed(self.seed)
            return self.make(train)

    def judge(
        self, models: list[nn.Module], scaling: Callable[[], nn.Module] | None = None
    ) -> None:
        """Calibrate models with the wanted setting on what was held out from them, and go on."""
        assert self.wants is not None
        nll, fitted = self._calibrate(models, scaling) if models else (math.inf, None)
        self.tries.append(_Try(self.settings[self.wants], nll, models, fitted))
        self.tries = [  # of the others, only how well they did
            one if one is self.best else one._replace(models=[], scaling=None) for one in self.tries
        ]
        self.wants = self._next(self.wants)

    @torch.no_grad()
    def _calibrate(
        self, models: list[nn.Module], scaling: Callable[[], nn.Module] | None
    ) -> tuple[float, nn.Module | None]:
        """The NLL of calibrated predictions, and their calibration."""
        with own_random_numbers():
            torch.manual_seed(self.seed)
            predictive, data = held_out_predictions(models, self.folds)
        if not all(part.isfinite().all() for part in pytree.tree_leaves(predictive)):
            return math.inf, None
        fitted = default_scaling(predictive) if scaling is None else scaling()
        log_prob = calibrated(fitted, predictive, data).log_prob(data[1])
        total, count = weighted_sums(log_prob, *data[2:])
        nll = float(-total / count)
        return (nll if math.isfinite(nll) else math.inf), fitted

    def check(self) -> None:
        """Raise if all that was tried failed."""
        if self.best.nll == math.inf:
            raise FloatingPointError(
                f"no training of the problem with seed {self.seed} had finite predictions of what "
                "was held out; look for NaN in its data, or lower learning_rate"
            )

    def _next(self, last: int) -> int | None:
        """Longer training if the last was the best so far, else the next decay, if there is one."""
        best, improved = self.best.setting, self.tries[-1] is self.best
        for at in range(last + 1, len(self.settings)):
            decay, epochs = self.settings[at]
            if decay == self.settings[last].weight_decay:
                if improved:
                    return at
            elif epochs == best.epochs:
                return at
        return None

    def found(self) -> CrossFit:
        """What there is to know in the end."""
        best = self.best
        assert self.model is not None
        assert best.scaling is not None
        return CrossFit(
            self.model,
            best.scaling,
            *best.setting,
            [{**one.setting._asdict(), "nll": one.nll} for one in self.tries],
            list(zip(best.models, self.folds, strict=True)),
        )


def _alike(problems: list[_Problem]) -> list[_Problem]:
    """Those that want the first of the settings that any of them wants."""
    first = min((problem.wants or 0 for problem in problems), default=0)
    return [problem for problem in problems if problem.wants == first]


_Job = tuple[_Problem, Tensors]  # a model for it, to be trained on these


def _rows(data: Tensors, chosen: Tensor) -> Tensors:
    return tuple(tensor[chosen] for tensor in data)
