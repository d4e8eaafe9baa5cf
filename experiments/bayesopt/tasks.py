"""The published tasks of Bayesian optimisation: functions on the unit cube, larger is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..harness.statistics import Metric
from ..harness.task import Task
from .pests import NUM_CHOICES, NUM_STAGES, pest_control

FINAL = Metric("final", "best value or hypervolume at the end", 3, higher_is_better=True)
AREA = Metric("area", "mean over rounds of the best value or hypervolume", 3, higher_is_better=True)


@dataclass(frozen=True)
class Problem:
    """A function to maximise, and how often it may be asked.

    Attributes:
        title: of panels and tables.
        num_inputs: d.
        make: from a seed to the function, of points (n, d) to values (n, m).
        initial: points at random to begin with.
        rounds: of as many batches.
        batch: points of a round.
        reference: of the hypervolume, for several objectives.
        levels: of every input, if it is a category.
    """

    title: str
    num_inputs: int
    make: Callable[[int], Callable[[Tensor], Tensor]]
    initial: int
    rounds: int
    batch: int
    reference: tuple[float, ...] | None = None
    levels: int | None = None

    def snap(self, points: Tensor) -> Tensor:
        """Points at which the function can be asked."""
        if self.levels is None:
            return points
        return ((points * self.levels).floor().clamp(max=self.levels - 1) + 0.5) / self.levels

    def score(self, values: Tensor) -> float:
        """The best value so far, or the hypervolume of values (n, m)."""
        if self.reference is None:
            return float(values.max())
        from botorch.utils.multi_objective.hypervolume import Hypervolume
        from botorch.utils.multi_objective.pareto import is_non_dominated

        front = values[is_non_dominated(values)]
        return float(Hypervolume(torch.tensor(self.reference, dtype=values.dtype)).compute(front))


def _botorch(name: str, *sizes: int) -> Callable[[int], Callable[[Tensor], Tensor]]:
    """A function of BoTorch, the same for all seeds."""

    def make(seed: int) -> Callable[[Tensor], Tensor]:
        from botorch import test_functions

        function = getattr(test_functions, name)(*sizes, negate=True)
        low, high = function.bounds.double()
        return lambda points: function(low + (high - low) * points).reshape(len(points), -1)

    return make


def _network(num_inputs: int, width: int = 50) -> Callable[[int], Callable[[Tensor], Tensor]]:
    """Networks of two hidden layers of tanh, drawn by the seed."""

    def make(seed: int) -> Callable[[Tensor], Tensor]:
        generator = torch.Generator().manual_seed(10_000 + seed)
        sizes = [(width, num_inputs), (width, width), (1, width)]
        weights = [
            torch.randn(n, m, generator=generator, dtype=torch.float64) * (2 / m**0.5)
            for n, m in sizes
        ]

        def value(points: Tensor) -> Tensor:
            hidden = ((2 * points - 1) @ weights[0].mT).tanh()
            return (hidden @ weights[1].mT).tanh() @ weights[2].mT

        return value

    return make


PROBLEMS: dict[str, Problem] = {
    "branin": Problem("Branin", 2, _botorch("Branin"), 10, 9, 10),
    "hartmann": Problem("Hartmann-6", 6, _botorch("Hartmann", 6), 10, 19, 10),
    "ackley": Problem("Ackley-10", 10, _botorch("Ackley", 10), 10, 19, 10),
    "network": Problem("network draw, 200 inputs", 200, _network(200), 100, 50, 10),
    "pests": Problem(
        "pest control",
        NUM_STAGES,
        lambda seed: pest_control,
        20,
        25,
        4,
        levels=NUM_CHOICES,
    ),
    "branin_currin": Problem(
        "Branin–Currin", 2, _botorch("BraninCurrin"), 10, 19, 5, (-18.0, -6.0)
    ),
    "dtlz1": Problem("DTLZ1", 5, _botorch("DTLZ1", 5, 2), 10, 9, 10, (-400.0, -400.0)),
}


@dataclass(frozen=True, kw_only=True)
class OptimisationTask(Task):
    """A problem as one trial poses it.

    Attributes:
        problem: by name.
    """

    problem: str

    @property
    def about(self) -> Problem:
        """What is to be maximised."""
        return PROBLEMS[self.problem]

    def first(self) -> Tensor:
        """Initial points, the same for every method, (initial, d)."""
        generator = torch.Generator().manual_seed(self.seed)
        shape = self.about.initial, self.about.num_inputs
        return self.about.snap(torch.rand(shape, generator=generator, dtype=torch.float64))

    def evaluate(self, model: Tensor) -> dict[str, Any]:
        """The curve of the score after each round, from all values (n, m) in order."""
        about = self.about
        ends = range(about.initial, len(model) + 1, about.batch)
        curve = [about.score(model[:end]) for end in ends]
        return {
            FINAL.name: curve[-1],
            AREA.name: sum(curve) / len(curve),
            "curve": [float(f"{value:.6g}") for value in curve],
        }
