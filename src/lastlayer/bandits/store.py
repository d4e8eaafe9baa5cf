"""The folder of an agent: its newest state, and what it observed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..training.checkpoint import Checkpoint
from .journal import Journal


class Store:
    """A state that is replaced in one step, and a journal of the observations after it."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.folder = folder
        self._checkpoint, self._journal = Checkpoint(folder / "state"), Journal(folder / "journal")

    def load(self) -> dict[str, Any] | None:
        """The newest state, or None if there is none."""
        return self._checkpoint.load()

    def save(self, state: dict[str, Any]) -> None:
        """Replace the state, after which the journal is not needed."""
        self._checkpoint.save(state)
        self._journal.clear()

    def append(self, start: int, observations: dict[str, Tensor]) -> None:
        """Write down observations, of which the first has this number."""
        self._journal.append({"start": torch.tensor(start), **observations})

    def since(self, count: int) -> list[dict[str, Tensor]]:
        """What was written down from an observation's number on."""
        return [record for record in self._journal.read() if int(record["start"]) >= count]
