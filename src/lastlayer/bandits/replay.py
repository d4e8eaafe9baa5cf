"""The observations an agent remembers."""

from __future__ import annotations

import torch
from torch import Tensor

INITIAL_ROWS = 256


class Replay:
    """Contexts, arms and rewards of the most recent observations.

    Args:
        capacity: the maximum number of observations; older ones are dropped.

    Attributes:
        contexts: (n, …).
        arms: (n,).
        rewards: (n,), in double precision.
        numbers: of the observations, counted from the first that was ever made, (n,).
    """

    NAMES = ("contexts", "arms", "rewards", "numbers")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._columns: list[Tensor] = []
        self._start = self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._start

    def __getattr__(self, name: str) -> Tensor:
        if name in self.NAMES and self._columns:
            return self._columns[self.NAMES.index(name)][self._start : self._stop]
        raise AttributeError(f"a replay has no {name!r}" + (" yet" if name in self.NAMES else ""))

    def extend(self, *columns: Tensor) -> None:
        """Remember observations: contexts, arms, rewards, numbers."""
        columns = tuple(column[-self.capacity :] for column in columns)
        count = len(columns[0])
        if not self._columns or self._stop + count > len(self._columns[0]):
            self._move(count, columns)
        for mine, new in zip(self._columns, columns, strict=True):
            mine[self._stop : self._stop + count] = new
        self._stop += count
        self._start = max(self._start, self._stop - self.capacity)

    def _move(self, count: int, like: tuple[Tensor, ...]) -> None:
        """Move to the beginning of storage with room for twice as many."""
        size = len(self)
        rows = max(INITIAL_ROWS, 2 * (size + count))
        moved = [column.new_empty(rows, *column.shape[1:]) for column in like]
        if size:
            for mine, old in zip(moved, self._columns, strict=True):
                mine[:size] = old[self._start : self._stop]
        self._columns, self._start, self._stop = moved, 0, size

    def keep(self, wanted: Tensor) -> None:
        """Forget all observations but some, given as booleans, (n,)."""
        columns = [getattr(self, name)[wanted].clone() for name in self.NAMES]
        self._columns, self._start, self._stop = columns, 0, len(columns[0])

    def state(self) -> dict[str, Tensor]:
        """The columns by name; none if there are no observations yet."""
        return {name: getattr(self, name) for name in self.NAMES} if self._columns else {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Become a replay with this state."""
        self._columns = [state[name] for name in self.NAMES] if state else []
        self._start, self._stop = 0, len(self._columns[0]) if state else 0

    def weights(self, forgetting: float) -> Tensor:
        """forgetting to the power of each observation's age, (n,); one for the newest."""
        age = self.numbers[-1] - self.numbers
        return torch.full((), forgetting, dtype=torch.float64) ** age
