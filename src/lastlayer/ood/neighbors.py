"""Distance to the nearest training features (Sun et al., 2022)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._checks import check_choice, check_count, check_finite, check_weight
from ..functional import at_least_float32
from ._base import FeatureScore
from ._rough import RoughReferences

DTYPES = {"float32": torch.float32, "mixed": torch.float32, "bfloat16": torch.bfloat16}
CHUNK = 2**25  # numbers in memory at a time
CANDIDATES = 16  # at least, whose similarity is computed anew where it was rounded


class NearestNeighbors(FeatureScore):
    """Distance to the k-th nearest of the training features, in units of length one.

    The search is exact: one matrix product for a batch. "mixed" is exact too, and twice as fast on
    processors that know bfloat16: rounded distances find candidates, which are measured again, and
    a bound on their errors tells for which inputs a neighbour may have been missed; those are
    searched again in single precision. In "bfloat16" the references take half the memory, and
    neighbours are missed only within its rounding.

    Args:
        num_features: N.
        num_neighbors: k; with fewer references, the furthest of them counts.
        unit_length: see `FeatureScore`.
        power: see `FeatureScore`.
        precision: of the references, "float32", "mixed", with a copy in bfloat16, or "bfloat16".
        device: of the references.

    Attributes:
        references: (T, N), a buffer.
    """

    references: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        num_neighbors: int = 5,
        unit_length: bool = True,
        power: float = 1.0,
        precision: str = "float32",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(num_features, unit_length=unit_length, power=power)
        check_count("num_neighbors", num_neighbors)
        check_choice("precision", precision, DTYPES)
        self.num_neighbors, self.precision = num_neighbors, precision
        empty = torch.empty(0, num_features, dtype=DTYPES[precision], device=device)
        self.register_buffer("references", empty)
        self._parts: list[Tensor] = []  # not joined yet
        self._squares: Tensor | None = None
        self._mean: Tensor | None = None
        self._rough: RoughReferences | None = None

    @torch.no_grad()
    def update(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """Add references; labels say nothing, and only weights of zero do. See `FeatureScore`."""
        points = self._points(features, torch.float32).reshape(-1, self.num_features)
        if weight is not None:
            points = points[check_weight(weight, features.shape[:-1], None).flatten() != 0]
        check_finite("features", points)
        self._parts.append(points.to(self.references.dtype))
        self._forget()

    @torch.no_grad()
    def merge(self, other: NearestNeighbors) -> None:
        """Add all references of another one, in place."""
        self._check_alike(other)
        other._join()
        self._parts.append(other.references.to(self.references))
        self._forget()

    @torch.no_grad()
    def all_reduce(self, group: Any = None) -> None:
        """Add the references of all processes of a `torch.distributed` group, in place."""
        self._join()
        parts: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(parts, self.references.cpu(), group)
        self.references = torch.cat(parts).to(self.references.device)
        self._forget()

    def _join(self) -> None:
        if self._parts:
            self.references = torch.cat([self.references, *self._parts])
            self._parts = []

    @torch.no_grad()
    def forward(self, features: Tensor) -> Tensor:
        """The distance of features (*batch, N) to their k-th nearest reference, (*batch,)."""
        self._join()
        if not len(self.references):
            raise RuntimeError("there are no references; call update or from_model first")
        if self._squares is None:
            self._squares = (self.references.float() - self._center()).square().sum(-1)
        if self.precision == "mixed" and self._rough is None:
            self._rough = RoughReferences.of(self.references)
        points = self._points(features, torch.float32)
        rows = points.reshape(-1, self.num_features)
        widest = max(len(self.references), self._num_measured() * self.num_features)
        size = max(1, CHUNK // widest)
        distances = [self._distances(chunk) for chunk in rows.split(size)]
        result = torch.cat(distances) if distances else rows.new_empty(0)
        return result.reshape(points.shape[:-1]).to(at_least_float32(features).dtype)

    def _center(self) -> Tensor | float:
        """About which distances are ordered: digits that all references share would cost others."""
        if self._mean is None:
            self._mean = self.references.float().mean(0)
        return self._mean if self.references.dtype == torch.float32 else 0.0

    def _num_measured(self) -> int:
        """References whose distance is computed anew for each row: more where it was rounded."""
        if self._rough is not None:
            return self._rough.num_measured(self.num_neighbors)
        rounded = self.references.dtype != torch.float32
        count = max(2 * self.num_neighbors, CANDIDATES) if rounded else self.num_neighbors
        return min(count, len(self.references))

    def _distances(self, rows: Tensor) -> Tensor:
        if self._rough is None:
            return self._searched(rows)
        count = min(self.num_neighbors, len(self.references))
        distances, sure = self._rough.nearest(rows, self.references, count)
        if not bool(sure.all()):
            distances[~sure] = self._searched(rows[~sure])
        return distances

    def _searched(self, rows: Tensor) -> Tensor:
        """Distances of rows to their k-th neighbours, in the precision of the references."""
        assert self._squares is not None
        count = min(self.num_neighbors, len(self.references))
        # ‖r − c‖²/2 − (φ − c)ᵀr orders references like their distance, for any c
        points = (rows - self._center()).to(self.references)
        order = torch.addmm(
            (0.5 * self._squares).to(self.references), points, self.references.mT, alpha=-1
        )
        measured = count if self._rough is not None else self._num_measured()
        nearest = order.topk(measured, -1, largest=False, sorted=False).indices
        squares = self._measured(rows, nearest)
        return squares.kthvalue(count, -1).values.sqrt().where(rows.isfinite().all(-1), torch.nan)

    def _measured(self, rows: Tensor, nearest: Tensor) -> Tensor:
        """Squared distances of rows to some references each, (rows, measured)."""
        chosen = self.references[nearest]  # (rows, measured, N)
        if chosen.dtype == torch.float32:
            return (rows.unsqueeze(-2) - chosen).square().sum(-1)
        # products cost half as much, and lose digits only where those of bfloat16 are lost
        assert self._squares is not None
        products = torch.bmm(chosen.float(), rows.unsqueeze(-1)).squeeze(-1)
        own = rows.square().sum(-1, keepdim=True)
        return (own + self._squares[nearest] - 2 * products).clamp(min=0)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._join()
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._join()
        super()._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take as many references as there are."""
        self._parts = []
        if (loaded := state.get(f"{prefix}references")) is not None:
            self.references = self.references.new_empty((len(loaded), self.num_features))
        super()._load_from_state_dict(state, prefix, *rest)

    def _forget(self) -> None:
        self._squares = self._mean = self._rough = None

    def options(self) -> dict[str, Any]:
        """Arguments that make a score like this one, without references."""
        return {
            "num_features": self.num_features,
            "num_neighbors": self.num_neighbors,
            "unit_length": self.unit_length,
            "power": self.power,
            "precision": self.precision,
        }

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        number = len(self.references) + sum(map(len, self._parts))
        return (
            f"{super().extra_repr()}, num_neighbors={self.num_neighbors}, "
            f"precision={self.precision!r}, references={number}"
        )
