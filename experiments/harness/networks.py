"""Trained networks that are kept, so that other methods and a later run need not train them again.

One safetensors file each, with the notes about its training; never part of the repository. A
network is found by its settings, data set, backbone and seed, not by the code that trained it:
after a change of the code of a backbone or of training, delete the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

NOTES = "notes"


def folder() -> Path:
    """The folder that LASTLAYER_NETWORKS names, else one in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lastlayer"
    return Path(os.environ.get("LASTLAYER_NETWORKS", default / "networks"))


def place(within: Path, name: str, about: Mapping[str, Any]) -> Path:
    """The file of a network.

    Args:
        within: the folder of all networks.
        name: of the file, for readers.
        about: all that the network depends on, fit for JSON.
    """
    text = json.dumps(about, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return within / f"{name}-{digest}.safetensors"


def save(path: Path, model: nn.Module, notes: Mapping[str, Any]) -> None:
    """Write a network; the file is complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    save_file(state, partial, metadata={NOTES: json.dumps(dict(notes))})
    partial.replace(path)


def load(path: Path, model: nn.Module) -> dict[str, Any]:
    """Read the weights of a network, and return the notes about its training."""
    with safe_open(path, framework="pt") as file:
        state: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes: dict[str, Any] = json.loads(file.metadata()[NOTES])
    model.load_state_dict(state)
    return notes
