"""The progress bar of training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from tqdm import tqdm

if TYPE_CHECKING:
    from .loop import Trainee

PARTS = {"loss": "loss", "bound": "bound", "kl": "kl", "validation_nll": "nll"}  # and their labels


class Bar:
    """Examples per second, the parts of the loss, and the last validation NLL.

    Args:
        running: the models in training.
        per_epoch: examples of an epoch, if known.
        phase: 0, or 1 for retraining.
        hidden: whether not to show it; None for where there is no terminal.
        label: what to say instead of losses; such a bar vanishes at its end.
    """

    def __init__(
        self,
        running: Sequence[Trainee],
        per_epoch: int | None,
        phase: int,
        *,
        hidden: bool | None,
        label: str = "",
    ) -> None:
        self.label = label
        self.what = (f"{label}, " if label else "") + ("epoch", "retraining, epoch")[phase]
        self.epochs = max((trainee.epochs for trainee in running), default=0)
        done = max((len(trainee.history) for trainee in running), default=0)
        self.parts = dict(PARTS)
        self.shown: dict[str, float] = {}
        self.next_look = 0.0
        measures = "{remaining} left" if label else "{rate_fmt} {remaining} left{postfix}"
        self.bar: Any = tqdm(
            desc=f"{self.what} {done + 1}/{self.epochs}",
            total=per_epoch and per_epoch * self.epochs,
            initial=done * (per_epoch or 0),
            unit="ex",
            unit_scale=True,
            dynamic_ncols=True,
            bar_format=f"{{desc}} {{bar:10}} {measures}",
            disable=hidden,
            leave=not label,
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
        if self.label:
            return
        self.shown |= {label: values[name] for name, label in self.parts.items() if name in values}
        self.bar.set_postfix({label: f"{value:.4g}" for label, value in self.shown.items()})
