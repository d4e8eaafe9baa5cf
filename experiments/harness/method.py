"""What a method is, and how an experiment uses one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

Solved = list[tuple[Any, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to solve tasks; the fields are its settings, and part of every record.

    What it returns for a task has the two calls of this package, `model(x)` for a predictive and
    `model(x, y)` for the loss, or whatever else `Task.evaluate` takes.
    """

    label: ClassVar[str]
    single_pass: ClassVar[bool] = True  # whether a prediction is one pass through the network

    @abstractmethod
    def train(self, tasks: Sequence[Any], checkpoint: Path | None = None) -> Solved:
        """For each task a model, and what to note about its training.

        Args:
            tasks: that differ in their seeds alone.
            checkpoint: a folder to go on from after an interruption.
        """

    def cost(self, num_data: int, num_seeds: int) -> float:
        """How long training takes, in units that all methods share."""
        return float(num_data * num_seeds)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method as one experiment runs it.

    Args:
        method: the class.
        label: in tables, if not the method's own.
        about: one line, if the method's docstring does not say it.
        settings: by name; a mapping has a value for each column.
        num_seeds: by column; columns that are not there are not run.
        together: how many seeds are one job, by column.
        variant_of: the entry that it is compared with on the same seeds.
    """

    method: type[Method]
    label: str = ""
    about: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    num_seeds: Mapping[str, int]
    together: Mapping[str, int]
    variant_of: str | None = None

    @property
    def title(self) -> str:
        """The label in tables."""
        return self.label or self.method.label

    @property
    def summary(self) -> str:
        """One line about it."""
        return self.about or (self.method.__doc__ or "").strip().splitlines()[0]

    def configured(self, column: str, **changes: Any) -> Any:
        """The method with the settings of a column."""
        settings = {
            name: value[column] if isinstance(value, Mapping) else value
            for name, value in self.settings.items()
        }
        return self.method(**settings | changes)
