"""The search for the number of epochs and the weight decay that are best on held-out data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._checks import check_count
from ..calibration import default_scaling
from .folds import CrossFit, Fold, Tensors, calibrated, held_out_predictions
from .loop import own_random_numbers
from .one import weighted_sums


class Setting(NamedTuple):
    """Hyperparameters that are chosen on held-out data."""

    weight_decay: float  # times the number of examples
    epochs: int
    alternative: int = 0  # which of the functions that make models


def lengths(shortest: int, longest: int, growth: int = 2) -> list[int]:
    """Numbers of epochs, each `growth` times the one before, up to the longest."""
    check_count("shortest", shortest)
    check_count("epochs", longest)
    check_count("growth", growth, 2)
    found = [longest]
    while found[0] // growth >= shortest:
        found.insert(0, found[0] // growth)
    return found


def race(
    weight_decays: Sequence[float], num_epochs: Sequence[int], num_models: int
) -> list[Setting]:
    """All settings, in the order in which they may be tried: the models race with one decay."""
    return [
        Setting(decay, epochs, alternative)
        for decay in weight_decays
        for epochs in num_epochs
        for alternative in range(num_models)
    ]


class Try(NamedTuple):
    """The NLL of held-out data with one setting."""

    setting: Setting
    nll: float  # infinite if training failed
    models: list[nn.Module]
    scaling: nn.Module | None


@dataclass
class Problem:
    """Data to fit a model to, what was tried, and which of the settings to try next.

    With the first weight decay all alternatives race: of those that are left, the better half goes
    on with twice as many epochs, as long as the best of them is better than all before.
    """

    makes: Sequence[Callable[[Tensors], nn.Module]]  # by alternative
    data: Tensors
    seed: int
    folds: list[Fold]
    settings: list[Setting]
    wants: int | None = 0
    racing: list[int] = field(default_factory=list)  # alternatives of the present length
    tries: list[Try] = field(default_factory=list)
    model: nn.Module | None = None

    @property
    def best(self) -> Try:
        """The try with the lowest NLL."""
        return min(self.tries, key=lambda one: one.nll)

    def new(self, train: Tensors, alternative: int) -> nn.Module:
        """A new model, initialised from the seed."""
        with own_random_numbers():
            torch.manual_seed(self.seed)
            return self.makes[alternative](train)

    def judge(
        self, models: list[nn.Module], scaling: Callable[[], nn.Module] | None = None
    ) -> None:
        """Record the held-out NLL of the folds' models with the wanted setting, and go on.

        Args:
            models: one for each fold; none if their training failed.
            scaling: makes their calibration.
        """
        assert self.wants is not None
        nll, fitted = self._calibrate(models, scaling) if models else (math.inf, None)
        self.tries.append(Try(self.settings[self.wants], nll, models, fitted))
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
                f"no training of the problem with seed {self.seed} had finite predictions of "
                "held-out data; check its data for NaN, or lower learning_rate"
            )

    def _next(self, last: int) -> int | None:
        """The next of a race, else longer training of the best, else another weight decay."""
        before, best = self.settings[last], self.best.setting
        racing = self.racing or list(range(len(self.makes)))
        if waiting := [at for at in racing if at > before.alternative]:
            return self._index(before._replace(alternative=waiting[0]))
        longer = [each.epochs for each in self.settings if each.epochs > before.epochs]
        if longer and best[:2] == before[:2]:  # the best so far is of the length that was tried
            self.racing = self._better_part(before, longer[0] // before.epochs)
            following = before._replace(epochs=longer[0], alternative=self.racing[0])
            return self._index(following)
        tried = {one.setting.weight_decay for one in self.tries}
        others = [one.weight_decay for one in self.settings if one.weight_decay not in tried]
        self.racing = [best.alternative]
        return self._index(best._replace(weight_decay=others[0])) if others else None

    def _index(self, setting: Setting) -> int:
        return self.settings.index(setting)

    def _better_part(self, length: Setting, parts: int) -> list[int]:
        """The best of the alternatives that were tried with a length, in their order.

        With n times as many epochs an n-th of them goes on, which takes as long.
        """
        tried = [one for one in self.tries if one.setting[:2] == length[:2]]
        tried.sort(key=lambda one: one.nll)
        return sorted(one.setting.alternative for one in tried[: -(-len(tried) // parts)])

    def falling(self) -> float:
        """By how much the last lengthening lowered the NLL, if no longer one was tried; else 0."""
        best = self.best
        chain = [one for one in self.tries if one.setting[::2] == best.setting[::2]]
        shorter = [one for one in chain if one.setting.epochs < best.setting.epochs]
        if not shorter or any(one.setting.epochs > best.setting.epochs for one in chain):
            return 0.0
        return shorter[-1].nll - best.nll

    def result(self) -> CrossFit:
        """The model of all the data, its calibration, and what was tried."""
        best = self.best
        assert self.model is not None
        assert best.scaling is not None
        return CrossFit(
            self.model,
            best.scaling,
            *best.setting[:2],
            [{**one.setting._asdict(), "nll": one.nll} for one in self.tries],
            list(zip(best.models, self.folds, strict=True)),
            best.setting.alternative,
            self.falling(),
        )


def alike(problems: list[Problem]) -> list[Problem]:
    """The problems that are to try the first of all wanted settings."""
    first = min((problem.wants or 0 for problem in problems), default=0)
    return [problem for problem in problems if problem.wants == first]


def label(problems: Sequence[Problem]) -> str:
    """What a progress bar says: how far the search is, and how good the best setting so far."""
    tries = max(len(problem.tries) for problem in problems)
    best = sum(problem.best.nll for problem in problems) / len(problems)
    return f"try {tries + 1} (held-out NLL so far {best:.4g})"


def most_examples(problems: Sequence[Problem], num_models: int) -> int:
    """How many examples the longest possible search shows to its models."""
    settings = problems[0].settings
    epochs = sorted({setting.epochs for setting in settings})
    decays = len({setting.weight_decay for setting in settings})
    total = sum(epochs) * (decays - 1)
    for length in epochs:
        total, num_models = total + length * num_models, (num_models + 1) // 2
    return sum(
        total * sum(len(fold.train[0]) for fold in problem.folds)
        + epochs[-1] * len(problem.data[0])
        for problem in problems
    )
