"""Fitted scores in files: tensors as safetensors, options as JSON; nothing is unpickled."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .._disk import replacing
from ..priors import Prior
from ._base import FeatureScore
from .density import FeatureDensity
from .logits import DecisionBoundaryDistance, VirtualLogitMatching
from .mahalanobis import RelativeMahalanobis
from .neighbors import NearestNeighbors

KEY = "lastlayer.ood"
KINDS: dict[str, type[FeatureScore]] = {
    kind.__name__: kind
    for kind in (
        DecisionBoundaryDistance,
        FeatureDensity,
        NearestNeighbors,
        RelativeMahalanobis,
        VirtualLogitMatching,
    )
}


def save(score: FeatureScore, path: Path | str) -> None:
    """Write a fitted score into one file, which appears when it is complete.

    Args:
        score: of one of the classes of `lastlayer.ood`.
        path: of the file, in safetensors format.
    """
    kind = type(score).__name__
    if KINDS.get(kind) is not type(score):
        raise TypeError(f"a score to save must be one of {', '.join(KINDS)}, got {kind}")
    options = {
        name: asdict(value) if isinstance(value, Prior) else value
        for name, value in score.options().items()
        if not isinstance(value, Tensor)  # which are among the buffers
    }
    about = json.dumps({"kind": kind, "options": options})
    tensors = {name: value.contiguous() for name, value in score.state_dict().items()}
    with replacing(Path(path)) as partial:
        save_file(tensors, partial, metadata={KEY: about})


def load(path: Path | str, *, device: torch.device | str = "cpu") -> FeatureScore:
    """Read a score that `save` wrote.

    Args:
        path: of the file.
        device: of its tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            about = json.loads((file.metadata() or {})[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        kind, options = KINDS[about["kind"]], about["options"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of lastlayer.ood.save: {error}") from error
    score = kind(**_arguments(kind, options, tensors))
    score.to(device)
    score.load_state_dict(tensors)
    return score


def _arguments(
    kind: type[FeatureScore], options: dict[str, Any], tensors: dict[str, Tensor]
) -> dict[str, Any]:
    if "prior" in options:
        return options | {"prior": Prior(**options["prior"])}
    if "layer_weight" in tensors:
        return options | {"weight": tensors["layer_weight"], "bias": tensors["layer_bias"]}
    return options
