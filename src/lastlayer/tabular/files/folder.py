"""Trained estimators as folders of safetensors and JSON, written in one step, never unpickled."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
from sklearn.utils.validation import check_is_fitted

from ... import __version__
from ..._disk import open_to_others, to_disk
from ..columns import Columns
from ..estimators import LastLayerClassifier, LastLayerRegressor
from ..estimators._base import LastLayerEstimator
from .codec import dumps, loads
from .errors import check_model_folder

FORMAT = 3
DESCRIPTION, TENSORS = "model.json", "model.safetensors"
ESTIMATORS: dict[str, type[LastLayerEstimator]] = {
    estimator.task: estimator for estimator in (LastLayerRegressor, LastLayerClassifier)
}


class Saved(NamedTuple):
    """A model folder that was read."""

    estimator: Any
    about: dict[str, Any]  # what `save` was given


def save(
    estimator: LastLayerEstimator, folder: str | Path, about: dict[str, Any] | None = None
) -> None:
    """Write a trained estimator into a folder; an older model in it is replaced.

    Whatever interrupts the writing, the folder then holds the older model or the new one.

    Args:
        estimator: trained.
        folder: to write.
        about: values that JSON can hold, to be kept in `model.json`.
    """
    check_is_fitted(estimator, "model_")
    if type(estimator) not in ESTIMATORS.values():
        names = " or ".join(known.__name__ for known in ESTIMATORS.values())
        raise TypeError(
            f"save takes a {names}, got {type(estimator).__name__}, which `load` could not "
            "restore; save the state_dict of its model_ instead"
        )
    folder = check_folder(folder)
    state = {name: t.cpu().contiguous() for name, t in estimator.model_.state_dict().items()}
    tensors = safetensors.torch.save(state)
    description = {
        "format": FORMAT,
        "lastlayer": __version__,
        "task": estimator.task,
        "parameters": _parameters(estimator),
        "columns": estimator.columns_.to_json(),
        "fitted": {name: getattr(estimator, name) for name in _fitted(estimator)},
        "about": about or {},
    }
    description["digest"] = _digest(description, tensors)
    text = dumps(description, indent=1)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (partial / TENSORS).write_bytes(tensors)
        (partial / DESCRIPTION).write_text(text)
        open_to_others(partial)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load(folder: str | Path, device: str | None = None) -> Any:
    """Read a trained estimator from a folder that `save` wrote.

    Args:
        folder: to read.
        device: device to compute on from now on; by default the CPU.
    """
    return open_folder(folder, device).estimator


def open_folder(folder: str | Path, device: str | None = None) -> Saved:
    """Read a trained estimator, and what was noted about it, from a folder that `save` wrote."""
    description = _describe(Path(folder))
    try:
        tensors = _contents(Path(folder) / TENSORS)
        if description.pop("digest") != _digest(description, tensors):
            raise ValueError("its files have changed since they were written")
        estimator_class = ESTIMATORS[description["task"]]
        estimator = estimator_class(**description["parameters"] | {"device": device})
        estimator.columns_ = Columns.from_json(description["columns"])
        for name, value in description["fitted"].items():
            setattr(estimator, name, value)
        state = safetensors.torch.load(tensors)
        model = estimator.blank_model(len(state["encoding.source"]))
        model.load_state_dict(state)
        estimator.model_ = model.to(device or "cpu")
        return Saved(estimator, dict(description["about"]))
    except OSError:  # says what to do
        raise
    except KeyError as error:
        raise ValueError(f"the model in {folder} lacks {error}; train it again") from error
    except Exception as error:
        raise ValueError(f"the model in {folder} is damaged: {error}; train it again") from error


def check_folder(folder: str | Path) -> Path:
    """Raise if a model cannot be written to a folder; creates the folders above it.

    Returns:
        The folder itself, if it was named by a link.
    """
    folder = Path(folder).resolve()
    if folder.exists() and not _replaceable(folder):
        raise FileExistsError(
            f"{folder} exists and holds more than a model; choose another folder, or remove it"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent)).rmdir()
    except OSError as error:
        reason = f"cannot write into {folder.parent}: {error.strerror}; choose another folder"
        raise OSError(error.errno, reason) from error
    return folder


def _describe(folder: Path) -> dict[str, Any]:
    """The contents of `model.json`, of this format."""
    check_model_folder(folder)
    try:
        description = dict(loads(_contents(folder / DESCRIPTION)))
        version = int(description["format"])
    except KeyError as error:
        raise ValueError(f"{folder} is not a model: it lacks {error}; train it again") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{folder} is not a model: {error!r}; train it again") from error
    if version != FORMAT:
        remedy = "upgrade lastlayer" if version > FORMAT else "train it again"
        raise ValueError(
            f"{folder} was written by lastlayer {description.get('lastlayer', '?')} in format "
            f"{version}, and lastlayer {__version__} reads format {FORMAT}; {remedy}"
        )
    return description


def _contents(path: Path) -> bytes:
    """A file of a model; a missing one is damage, one that may not be read is not."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"{path.name} is missing") from error
    except OSError as error:
        reason = f"cannot read {path}: {error.strerror}; permit reading it and try again"
        raise OSError(error.errno, reason) from error  # of the same type


def _digest(description: dict[str, Any], tensors: bytes) -> str:
    """A digest of both files."""
    text = dumps(description, sort_keys=True)
    return hashlib.blake2b(text.encode() + tensors, digest_size=16).hexdigest()


def _parameters(estimator: LastLayerEstimator) -> dict[str, Any]:
    """The parameters of an estimator, without the state of a random generator."""
    return {
        name: None if isinstance(value, np.random.RandomState | np.random.Generator) else value
        for name, value in estimator.get_params().items()
    }


def _fitted(estimator: LastLayerEstimator) -> list[str]:
    """Names of fitted attributes, except columns and tensors."""
    names = [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]
    return [name for name in names if name not in ("columns_", "model_")]


def _replaceable(folder: Path) -> bool:
    """Whether a folder is empty or holds nothing but a model, of any format."""
    if not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    if not names:
        return True
    if not names <= {DESCRIPTION, TENSORS}:
        return False
    try:
        return {"format", "columns"} <= set(loads(_contents(folder / DESCRIPTION)))
    except (ValueError, TypeError):
        return False


def _replace(new: Path, folder: Path) -> None:
    """Let a folder take the place of another."""
    for file in (*new.iterdir(), new):
        to_disk(file)
    old = new.with_name(f"{new.name}-old")
    try:
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    to_disk(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
