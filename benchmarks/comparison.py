"""The models that are compared, and one comparison."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.contenders import Model, Size, make
from benchmarks.timing import Timing, interleave

REGRESSION = Model("regression", "dense")
DENSE = Model("discriminative", "dense")
DIAGONAL = Model("discriminative", "diagonal")
LOW_RANK = Model("discriminative", "low_rank")
KRONECKER = Model("discriminative", "kronecker")
GENERATIVE = Model("generative", "diagonal")


class Budget(NamedTuple):
    """Seconds for each row, and the minimum number of rounds."""

    seconds: float
    rounds: int


def compare(
    phase: str, model: Model, size: Size, libraries: list[str], budget: Budget
) -> dict[str, Timing]:
    """Time one phase of the same model in several libraries."""
    contenders = {library: make(library, model, size) for library in libraries}
    steps = {library: getattr(contender, phase) for library, contender in contenders.items()}
    return interleave(steps, budget.seconds, budget.rounds)
