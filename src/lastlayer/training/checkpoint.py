"""Checkpoints: a folder with safetensors and JSON, replaced in one step, never unpickled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._disk import to_disk

FORMAT = 1
TENSORS, REST = "state.safetensors", "state.json"


class Checkpoint:
    """The newest state of a run, in a folder.

    Every state is written to a folder of its own, brought to the disk and then renamed, so that
    whatever interrupts the writing, the state before it stays whole.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self) -> dict[str, Any] | None:
        """The newest state, or None if there is none yet."""
        found = self._folders()
        if not found:
            return None
        from safetensors.torch import load_file

        folder = found[-1]
        try:
            rest = json.loads((folder / REST).read_text())
            if rest.pop("format") != FORMAT:
                raise ValueError("it was written by another version of lastlayer")
            tensors = load_file(folder / TENSORS)
            state = _unpack(rest["state"], tensors)
        except Exception as error:
            raise ValueError(
                f"the checkpoint {folder} cannot be read: {error}; "
                f"delete {self.path} to start anew, or choose another folder"
            ) from error
        return dict(state)

    def save(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        from safetensors.torch import save_file

        found = self._folders()
        number = int(found[-1].name) + 1 if found else 1
        target = self.path / f"{number:08d}"
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        tensors: dict[str, Tensor] = {}
        rest = {"format": FORMAT, "state": _pack(state, tensors, "state")}
        save_file(tensors, partial / TENSORS)
        (partial / REST).write_text(json.dumps(rest))
        for file in (partial / TENSORS, partial / REST, partial):
            to_disk(file)
        partial.rename(target)
        to_disk(self.path)
        for old in found:
            shutil.rmtree(old)

    def _folders(self) -> list[Path]:
        """Whole states, oldest first; there are two if the removal of the older was cut short."""
        if not self.path.exists():
            return []
        if not self.path.is_dir():
            raise NotADirectoryError(f"the checkpoint {self.path} must be a folder, or not exist")
        found = (entry for entry in self.path.iterdir() if entry.name.isdecimal())
        return sorted(found, key=lambda entry: int(entry.name))


def _pack(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Put tensors aside, and make the rest fit for JSON."""
    if isinstance(value, Tensor):
        # a copy: safetensors refuses tensors that share their storage
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        items = [[key, _pack(item, tensors, f"{name}.{key}")] for key, item in value.items()]
        return {"items": items}
    if isinstance(value, list | tuple):
        return [_pack(item, tensors, f"{name}.{at}") for at, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold {name}, a {type(value).__name__}")


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _unpack(item, tensors) for key, item in value["items"]}
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    return value


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict whose tensors nobody else changes."""
    return {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }
