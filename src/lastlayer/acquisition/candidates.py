"""From a model and data to the channels of their points."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._data import Data
from ..functional import at_least_float32
from ..heads import Head
from ..network import Network
from ..posttraining import cache_features
from ..variational import variational_layers
from ._base import Candidates
from .channels import TINY, Channel, LabelChannel


class Layout(NamedTuple):
    """Which columns of a row of `Observer` are what."""

    num_roots: int  # 1, or one for each output
    root_width: int  # M
    num_lengths: int  # independent observations that a target is
    num_classes: int  # 0 for regression


class Observer(nn.Module):
    """From inputs to what their targets would tell.

    A row has directions, lengths, probabilities, variance and entropy.

    Args:
        backbone: from inputs to features.
        head: whose weights the targets are about.
    """

    layout: Layout | None = None

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.mean_root: Tensor | None = None

    def forward(self, inputs: Any) -> Tensor:
        """One row for each example, (n, width)."""
        features = self.backbone(inputs)
        if not isinstance(features, Tensor) or features.ndim != 2:
            raise ValueError(
                "the backbone must return one row of features for each example, (n, "
                f"{self.head.num_features}), got {_shape(features)}; flatten sequences and pixels, "
                "or pool them"
            )
        if self.head.joint(features[:1]).marginal().task == "classification":
            marginal: Any = self.head(features)
            roots = self._mean_roots(features).unsqueeze(0)
            lengths = (2 * marginal.mutual_information()).expm1().sqrt().unsqueeze(-1)
            probs = marginal.probs()
        else:
            joint = self.head.joint(features)
            marginal, roots = joint.marginal(), joint.white_factor()  # (C, n, M)
            lengths, probs = roots.norm(dim=-1).mT, roots.new_zeros(len(features), 0)
            roots = roots[:1] if self.head.covariance.shared else roots
        spread = marginal.total_epistemic_variance().unsqueeze(-1)
        self.layout = Layout(len(roots), roots.shape[-1], lengths.shape[-1], probs.shape[-1])
        directions = F.normalize(roots, dim=-1, eps=TINY).movedim(0, 1).flatten(1)
        entropy = marginal.entropy().unsqueeze(-1)
        return torch.cat([directions, lengths, probs, spread, entropy], -1)

    def _mean_roots(self, features: Tensor) -> Tensor:
        """Rφ with RᵀR the mean of S_k over classes, (n, M)."""
        if self.mean_root is None:
            covariance = self.head.covariance
            if covariance.axis_aligned:
                self.mean_root = at_least_float32(covariance.diagonal()).mean(0).sqrt().diag_embed()
            else:
                mean = at_least_float32(covariance.dense()).mean(0)
                self.mean_root = torch.linalg.cholesky(mean).mT
        features = at_least_float32(features)
        inputs = F.pad(features, (0, 1), value=1.0) if self.head.bias else features
        return F.linear(inputs, self.mean_root)

    def channels(self, rows: Tensor) -> list[Channel]:
        """The channels of cached rows."""
        *directions, lengths, probs, _ = self._split(rows)
        assert self.layout is not None
        num_roots, _, num_lengths, num_classes = self.layout
        directions = directions * num_lengths if num_roots == 1 else directions
        pairs = zip(directions, lengths.unbind(-1), strict=True)
        if num_classes:
            return [LabelChannel(direction, length, probs) for direction, length in pairs]
        return [Channel(direction, length) for direction, length in pairs]

    def _split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Directions of each root, lengths, probabilities, and variance with entropy."""
        assert self.layout is not None
        num_roots, width, num_lengths, num_classes = self.layout
        return rows.split([*[width] * num_roots, num_lengths, num_classes, 2], -1)

    def candidates(self, pool: Tensor, labelled: Tensor | None) -> Candidates:
        """The candidates of cached rows, (n, width), and those of labelled points if any."""
        known = () if labelled is None else self.channels(labelled)
        *_, probs, moments = self._split(pool)
        spread, entropy = moments.unbind(-1)
        return Candidates(self.channels(pool), known, spread, entropy, probs)


def observe(
    model: Network | Head,
    labelled: Data | Tensor | None,
    pool: Data | Tensor,
    inference_batch_size: int,
    max_memory_bytes: int,
    progress: bool | None,
) -> Candidates:
    """The candidates of a pool; arguments as in `select`."""
    observer = Observer(*_parts(model))

    def cached(name: str, data: Data | Tensor) -> Tensor:
        rows = cache_features(
            observer,
            (data,) if isinstance(data, Tensor) else data,
            batch_size=inference_batch_size,
            max_memory_bytes=max_memory_bytes,
            targets=False,
            progress=progress,
        ).features
        check_rows(name, rows)
        return rows

    rows = cached("pool", pool)
    return observer.candidates(rows, None if labelled is None else cached("labelled", labelled))


def _parts(model: Network | Head) -> tuple[nn.Module, Head]:
    """Backbone and head."""
    if isinstance(model, Head):
        return nn.Identity(), model
    if not isinstance(model, Network):
        raise TypeError(
            "model must be a lastlayer.Network or a head, whose posterior tells what is not known "
            f"yet, got {type(model).__name__}; give a trained network one by lastlayer.posttrain"
        )
    if variational_layers(model.backbone):
        raise TypeError(
            "a backbone with variational layers has other features at every call; choose by a "
            "network whose last layer alone is Bayesian"
        )
    return model.backbone, model.head


def check_rows(name: str, rows: Tensor) -> None:
    """Raise if there is a row that is not finite, naming the first of them."""
    wrong = (~rows.isfinite().all(-1)).nonzero().flatten()
    if len(wrong):
        shown = ", ".join(map(str, wrong[:5].tolist())) + (", …" if len(wrong) > 5 else "")
        raise ValueError(
            f"{len(wrong)} examples of {name} have features or predictions that are NaN or "
            f"infinite (rows {shown}); drop them, or repair the model"
        )


def _shape(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
