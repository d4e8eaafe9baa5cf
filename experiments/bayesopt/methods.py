"""The surrogates, all of which choose points by Thompson sampling, and random search."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..harness.method import Entry, Method, Solved
from .tasks import PROBLEMS, OptimisationTask

if TYPE_CHECKING:
    from .surrogates import Surrogate

TRIALS = dict.fromkeys(PROBLEMS, 5)
ALONE = dict.fromkeys(PROBLEMS, 1)


@dataclass(frozen=True, kw_only=True)
class Strategy(Method):
    """A way to choose the points of the next round.

    Attributes:
        rounds: instead of the published number, for a quick look.
    """

    rounds: int | None = None

    def train(self, tasks: Sequence[OptimisationTask], checkpoint: Path | None = None) -> Solved:
        """All values in order, (n, m), and the seconds that each round took."""
        return [self._optimise(task) for task in tasks]

    def _optimise(self, task: OptimisationTask) -> tuple[Tensor, dict[str, Any]]:
        torch.manual_seed(task.seed)
        about, seconds, state = task.about, [], None
        function = about.make(task.seed)
        points = task.first()
        values = function(points)
        for _ in range(about.rounds if self.rounds is None else self.rounds):
            begun = time.perf_counter()
            with warnings.catch_warnings(action="ignore"):
                chosen, state = self.choose(task, points, values, state)
            seconds.append(round(time.perf_counter() - begun, 3))
            points, values = torch.cat([points, chosen]), torch.cat([values, function(chosen)])
        return values, {"round_seconds": seconds}

    @abstractmethod
    def choose(
        self, task: OptimisationTask, points: Tensor, values: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """The points of a round, (batch, d), and what to keep for the next one."""

    def cost(self, num_data: int, num_seeds: int) -> float:
        """Rounds, roughly."""
        return float(num_data * num_seeds)


@dataclass(frozen=True, kw_only=True)
class Random(Strategy):
    """Points at random."""

    label: ClassVar[str] = "random"

    def choose(
        self, task: OptimisationTask, points: Tensor, values: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """Uniform in the unit cube."""
        shape = task.about.batch, task.about.num_inputs
        return task.about.snap(torch.rand(shape, dtype=points.dtype)), None


@dataclass(frozen=True, kw_only=True)
class Thompson(Strategy):
    """A surrogate from which functions are drawn."""

    def __post_init__(self) -> None:
        from . import surrogates  # noqa: F401 - or an ImportError that names the extra

    def choose(
        self, task: OptimisationTask, points: Tensor, values: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """Where drawn functions are largest."""
        from .draws import maximise

        state = self.fit(points, values, state)
        draws = state.draw(task.about.batch)
        return maximise(draws, task.about, points, values), state

    @abstractmethod
    def fit(self, points: Tensor, values: Tensor, state: Any) -> Surrogate:
        """The surrogate of all observations, given that of the round before."""


@dataclass(frozen=True, kw_only=True)
class GaussianProcess(Thompson):
    """BoTorch's `SingleTaskGP` with its defaults, fitted anew in every round."""

    label: ClassVar[str] = "SingleTaskGP"

    def fit(self, points: Tensor, values: Tensor, state: Any) -> Surrogate:
        """By maximum a posteriori."""
        from . import surrogates

        return surrogates.gaussian_process(points, values)


@dataclass(frozen=True, kw_only=True)
class LastLayer(Thompson):
    """`lastlayer.botorch.LastLayerModel` with its defaults, one for each objective.

    Attributes:
        tolerance: of `observe`; None to fit anew in every round.
        training: settings of `FeatureTraining`.
    """

    label: ClassVar[str] = "Ours"
    tolerance: float | None = None
    training: dict[str, Any] = field(default_factory=dict)

    def fit(self, points: Tensor, values: Tensor, state: Any) -> Surrogate:
        """Anew, or by observing what is new."""
        from . import surrogates

        if state is None or self.tolerance is None:
            return surrogates.LastLayers(points, values, **self.training)
        state.observe(points, values, self.tolerance)
        return state


@dataclass(frozen=True, kw_only=True)
class CommunityVBLL(Thompson):
    """The variational last layer of `botorch_community`, one for each objective, with its recipe.

    Attributes:
        epochs: at most; it stops after 100 without a better training loss.
    """

    label: ClassVar[str] = "BoTorch's VBLL"
    epochs: int = 10_000

    def fit(self, points: Tensor, values: Tensor, state: Any) -> Surrogate:
        """Anew, on standardised values."""
        from . import surrogates

        return surrogates.CommunityVBLL(points, values, self.epochs)


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(Thompson):
    """Networks of the same size, trained from different initial weights; each draw is one of them.

    Attributes:
        members: how many.
        steps: of AdamW on the squared error of standardised values, with batches of 32.
    """

    label: ClassVar[str] = "deep ensemble"
    single_pass: ClassVar[bool] = False
    members: int = 5
    steps: int = 500

    def fit(self, points: Tensor, values: Tensor, state: Any) -> Surrogate:
        """Anew."""
        from . import surrogates

        return surrogates.DeepEnsemble(points, values, self.members, self.steps)


def entry(method: type[Method], **about: Any) -> Entry:
    """A method with five trials of every task."""
    return Entry(method=method, num_seeds=TRIALS, together=ALONE, **about)


METHODS: dict[str, Entry] = {
    "ours": entry(LastLayer),
    "ours-continual": entry(
        LastLayer,
        label="Ours, continual",
        about="Ours, whose features are trained again when new values surprise it.",
        settings={"tolerance": 1.0},
        variant_of="ours",
    ),
    "gp": entry(GaussianProcess),
    "vbll": entry(CommunityVBLL),
    "ensemble": entry(DeepEnsemble),
    "random": entry(Random),
}
