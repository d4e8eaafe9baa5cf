"""Fits of heads on fixed features, with a progress bar."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..heads import Head


def fit_features(
    head: Head,
    features: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    max_passes: int = 50,
    tolerance: float = 1e-4,
    max_memory_bytes: int = 2**31,
    progress: bool | None = None,
    **options: Any,
) -> list[float]:
    """Fit a head on fixed features by `head.fit_features`, and show how it goes.

    Args:
        head: initialised; its loss never rises.
        features: of all the data, (*batch, num_features), in memory or memory-mapped.
        target: as in `Head.forward`.
        weight: as in `Head.forward`.
        max_passes: maximum number of passes over the data.
        tolerance: stops when the loss falls by less, in nats per example.
        max_memory_bytes: for matrices of N × N per class.
        progress: whether to show a progress bar; None for where there is a terminal.
        options: of the head's own `fit_features`.

    Returns:
        The loss, −ELBO/T, after each pass, the first one at the initial parameters; empty for a
        head that is solved in closed form.
    """
    from tqdm import tqdm

    losses: list[float] = []
    bars: list[Any] = []  # one, from the first pass on

    def report(loss: float) -> None:
        if not bars:
            hidden = None if progress is None else not progress
            bars.append(tqdm(total=max_passes, desc="passes", disable=hidden, leave=False))
        losses.append(loss)
        bars[0].set_postfix(loss=f"{loss:.4f}", refresh=False)
        bars[0].update()

    try:
        head.fit_features(
            features,
            target,
            weight,
            max_passes=max_passes,
            tolerance=tolerance,
            max_memory_bytes=max_memory_bytes,
            report=report,
            **options,
        )
    finally:
        for bar in bars:
            bar.close()
    return losses


fit_discriminative = fit_features  # its name where it was made for one head
