"""The progress bar of training."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from tqdm import tqdm

if TYPE_CHECKING:
    from .loop import Trainee

PARTS = {"loss": "loss", "bound": "bound", "kl": "kl", "validation_nll": "nll"}  # and their labels
SECONDS_PER_LINE = 10.0  # where there is no terminal


class Bar:
    """Examples per second, the parts of the loss, and the last validation NLL.

    Args:
        running: the models in training.
        per_epoch: examples of an epoch, if known.
        phase: 0, or 1 for retraining.
        hidden: whether not to show it; None for where there is no terminal.
    """

    def __init__(
        self,
        running: Sequence[Trainee],
        per_epoch: int | None,
        phase: int,
        *,
        hidden: bool | None,
    ) -> None:
        self.what = ("epoch", "retraining, epoch")[phase]
        self.epochs = max((trainee.epochs for trainee in running), default=0)
        done = max((len(trainee.history) for trainee in running), default=0)
        self.parts = dict(PARTS)
        self.shown: dict[str, float] = {}
        self.next_look = 0.0
        self.bar: Any = tqdm(
            desc=f"{self.what} {done + 1}/{self.epochs}",
            total=per_epoch and per_epoch * self.epochs,
            initial=done * (per_epoch or 0),
            unit="ex",
            unit_scale=True,
            dynamic_ncols=True,
            bar_format="{desc} {bar:10} {rate_fmt} {remaining} left{postfix}",
            disable=hidden,
        )

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def step(self, count: int, losses: dict[str, Tensor]) -> None:
        """After a batch; its losses are looked at once a second, because that waits for them."""
        if not self.bar.disable and time.monotonic() > self.next_look:
            self.next_look = time.monotonic() + 1
            self._show({name: float(value.mean()) for name, value in losses.items()})
        self.bar.update(count)

    def epoch(self, running: Sequence[Trainee], monitored: Sequence[str] = ()) -> None:
        """After an epoch: the means over it, and over the models in training.

        Args:
            running: the models in training.
            monitored: names in their histories to show besides the usual ones.
        """
        self.parts |= {name: name for name in monitored}
        if self.bar.disable:
            return
        rows = [trainee.history[-1] for trainee in running]
        number = len(running[0].history)
        self.bar.set_description_str(f"{self.what} {number}/{self.epochs}", refresh=False)
        self._show({name: sum(row[name] for row in rows) / len(rows) for name in rows[0]})

    def _show(self, values: dict[str, float]) -> None:
        self.shown |= {label: values[name] for name, label in self.parts.items() if name in values}
        self.bar.set_postfix({label: f"{value:.4g}" for label, value in self.shown.items()})


class SearchBar:
    """How far a search is, as one bar for all its trainings; it vanishes at the end.

    Where lines are asked for but there is no terminal, one is written every ten seconds or so.

    Args:
        progress: whether to show it; None for where there is a terminal.
        most: examples that the longest possible search shows.
    """

    def __init__(self, progress: bool | None, most: int) -> None:
        self.lines = bool(progress) and not sys.stderr.isatty()
        self.most, self.shown, self.text = max(most, 1), 0, "try 1"
        self.next_line = time.monotonic() + SECONDS_PER_LINE
        self.bar: Any = tqdm(
            desc=self.text,
            total=self.most,
            dynamic_ncols=True,
            bar_format="{desc} {bar:10} at most {remaining} left",
            disable=True if self.lines else None if progress is None else not progress,
            leave=False,
        )

    def __enter__(self) -> SearchBar:
        return self

    def __exit__(self, *_: object) -> None:  # of one of its trainings too, which is not its end
        self.bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()

    def step(self, count: int, losses: dict[str, Tensor]) -> None:
        """After a batch."""
        self.shown += count
        self.bar.update(count)
        if self.lines and time.monotonic() > self.next_line:
            self.next_line = time.monotonic() + SECONDS_PER_LINE
            share = min(1.0, self.shown / self.most)
            print(f"{self.text}: {share:.0%} of the longest search", file=sys.stderr)

    def epoch(self, running: Sequence[Trainee], monitored: Sequence[str] = ()) -> None:
        """After an epoch: nothing, for a search has many."""

    def say(self, text: str) -> None:
        """Say what goes on now."""
        self.text = text
        self.bar.set_description_str(text)
