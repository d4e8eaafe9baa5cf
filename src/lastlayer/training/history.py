"""What `fit` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class History(Sequence[dict[str, float]]):
    """What happened in each epoch, a sequence of rows.

    A row has the number of the `epoch`, the mean over its batches of `loss`, `bound`, `kl`,
    `log_prior`, `feature_kl` (of variational features) and `gradient_norm` (before clipping), the
    last `learning_rate`, and, where it was measured, `validation_nll`: the mean negative
    log-probability of the validation data.

    Attributes:
        rows: one for each epoch.
        best_epoch: the epoch with the lowest validation NLL; the model has the weights of its end,
            or of as many epochs of retraining. None without validation data.
        best_nll: the validation NLL of that epoch.
        selection: with `retrain`, the rows of the training that chose the number of epochs.
        failed: whether training ended early because the loss was not finite. The model then has
            its best weights, or without validation those of the last epoch with a finite loss.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None
    best_nll: float | None = None
    selection: list[dict[str, float]] = field(default_factory=list)
    failed: bool = False

    def __len__(self) -> int:
        """The number of epochs."""
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        """The row, or rows, of some epochs, counted from zero."""
        return self.rows[index]

    def __iter__(self) -> Iterator[dict[str, float]]:
        """Epoch by epoch."""
        return iter(self.rows)
