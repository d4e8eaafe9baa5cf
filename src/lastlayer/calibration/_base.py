"""The base class of scalings: maps of predictives, fitted to held-out data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import nn

from .._data import Data
from ..predictive import Predictive


class Scaling(nn.Module, ABC):
    """A map of predictives with a buffer or two, fitted to held-out data."""

    @abstractmethod
    def fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        *,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> Scaling:
        """Fit to held-out data."""

    @classmethod
    @abstractmethod
    def like(cls, predictive: Any) -> Scaling:
        """A new scaling for predictives such as this."""

    def _applies(self, predictive: Predictive) -> None:
        """Raise unless the predictive names this scaling among its own."""
        if not {base.__name__ for base in type(self).__mro__} & set(predictive.scalings):
            raise TypeError(
                f"{type(self).__name__} does not apply to {type(predictive).__name__}; scale "
                f"{predictive.task} by {' or '.join(predictive.scalings) or 'a map of your own'}"
            )
