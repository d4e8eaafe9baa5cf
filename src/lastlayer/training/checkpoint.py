"""Checkpoints: a folder with safetensors and JSON, replaced in one step, never unpickled."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._disk import to_disk

FORMAT = 2
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
        folders = self._folders()
        if not folders:
            return None
        from safetensors.torch import load_file

        folder = folders[-1]
        try:
            saved = json.loads((folder / REST).read_text())
            if saved["format"] != FORMAT:
                raise ValueError("it was written by another version of lastlayer")
            if saved["digest"] != _digest(saved["state"], folder / TENSORS):
                raise ValueError("its files are damaged, or were changed after they were written")
            return dict(_unpack(saved["state"], load_file(folder / TENSORS)))
        except Exception as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"the checkpoint {folder} cannot be read: {reason}; "
                f"delete {self.path} to train from the beginning, or choose another folder"
            ) from error

    def save(self, state: dict[str, Any]) -> None:
        """Replace the state; if that fails, the one before it stays, and no partial file."""
        folders = self._folders()
        number = int(folders[-1].name) + 1 if folders else 1
        target = self.path / f"{number:08d}"
        partial = target.with_suffix(".partial")
        tensors: dict[str, Tensor] = {}
        rest = _pack(state, tensors, "state")
        try:
            self._write(partial, rest, tensors)
            partial.rename(target)
            to_disk(self.path)
        except (OSError, _safetensors_error()) as error:
            shutil.rmtree(partial, ignore_errors=True)
            kept = (
                f"the state before it is kept in {folders[-1]}" if folders else "there is none yet"
            )
            raise OSError(
                getattr(error, "errno", None) or errno.EIO,
                f"cannot save a checkpoint in {self.path}: {error}; {kept}. Free some space, or "
                "choose another folder, and call fit again to go on",
            ) from error
        for old in folders:
            shutil.rmtree(old)

    def _write(self, folder: Path, rest: Any, tensors: dict[str, Tensor]) -> None:
        """Write a state to a folder, and wait until it has reached the disk."""
        from safetensors.torch import save_file

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        save_file(tensors, folder / TENSORS)
        saved = {"format": FORMAT, "digest": _digest(rest, folder / TENSORS), "state": rest}
        (folder / REST).write_text(json.dumps(saved))
        for file in (folder / TENSORS, folder / REST, folder):
            to_disk(file)

    def _folders(self) -> list[Path]:
        """Whole states, oldest first; there are two if the removal of the older was cut short."""
        if not self.path.exists():
            return []
        if not self.path.is_dir():
            raise NotADirectoryError(f"the checkpoint {self.path} must be a folder, or not exist")
        folders = (entry for entry in self.path.iterdir() if entry.name.isdecimal())
        return sorted(folders, key=lambda entry: int(entry.name))


def _digest(rest: Any, tensors: Path) -> str:
    """A digest of a state."""
    digest = hashlib.blake2b(json.dumps(rest).encode(), digest_size=16)
    with tensors.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def _safetensors_error() -> type[Exception]:
    """What safetensors raises where Python raises an OSError."""
    from safetensors import SafetensorError

    return SafetensorError


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
