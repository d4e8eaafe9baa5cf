"""Trained estimators as folders of safetensors and JSON, written in one step, never unpickled."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from sklearn.utils.validation import check_is_fitted

from ... import __version__
from ..._disk import open_to_others, to_disk
from ..columns import Columns
from ._base import LastLayerEstimator
from .classifier import LastLayerClassifier
from .regressor import LastLayerRegressor

FORMAT = 1
DESCRIPTION, TENSORS = "model.json", "model.safetensors"
KINDS: dict[str, type[LastLayerEstimator]] = {
    "regression": LastLayerRegressor,
    "classification": LastLayerClassifier,
}


def save(
    estimator: LastLayerEstimator, folder: str | Path, about: dict[str, Any] | None = None
) -> None:
    """Write a trained estimator into a folder, which is replaced if there is one of a model.

    Whatever interrupts the writing, there is a whole model afterwards, or none.

    Args:
        estimator: trained.
        folder: to write.
        about: anything that JSON can hold, to be found in `model.json` later.
    """
    check_is_fitted(estimator)
    folder = check_folder(folder)
    state = {name: t.cpu().contiguous() for name, t in estimator.model_.state_dict().items()}
    tensors = safetensors.torch.save(state)
    kind = next(name for name, one in KINDS.items() if isinstance(estimator, one))
    description = {
        "format": FORMAT,
        "lastlayer": __version__,
        "kind": kind,
        "parameters": _plain(estimator.get_params()),
        "columns": estimator.columns_.to_json(),
        "fitted": {name: _plain(getattr(estimator, name)) for name in _fitted(estimator)},
        "about": about or {},
    }
    description["digest"] = _digest(description, tensors)
    text = json.dumps(description, indent=1, allow_nan=False)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (partial / TENSORS).write_bytes(tensors)
        (partial / DESCRIPTION).write_text(text)
        open_to_others(partial)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_folder(folder: str | Path) -> Path:
    """Raise if a model cannot be written there; makes the folders above it, to see.

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


def describe(folder: str | Path) -> dict[str, Any]:
    """What is known about a model: the contents of `model.json`, checked."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}; `lastlayer fit` writes one")
    try:
        description = json.loads(_contents(folder / DESCRIPTION))
        version = int(description["format"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{folder} is not a model that can be read: {error!r}; train it anew"
        ) from error
    if version > FORMAT:
        raise ValueError(
            f"{folder} was written by lastlayer {description.get('lastlayer', '?')}, whose format "
            f"{version} this version ({__version__}) does not know; upgrade lastlayer"
        )
    return dict(description)


def load(folder: str | Path, device: str | None = None) -> Any:
    """Read a trained estimator from a folder that `save` wrote.

    Args:
        folder: to read.
        device: where to compute from now on; by default the processor.
    """
    description = describe(folder)
    try:
        tensors = _contents(Path(folder) / TENSORS)
        if description.pop("digest") != _digest(description, tensors):
            raise ValueError("its files are not what was written")
        parameters = {name: _unplain(value) for name, value in description["parameters"].items()}
        estimator = KINDS[description["kind"]](**parameters | {"device": device})
        estimator.columns_ = Columns.from_json(description["columns"])
        for name, value in description["fitted"].items():
            setattr(estimator, name, _unplain(value))
        state = safetensors.torch.load(tensors)
        estimator.model_ = estimator.blank_model(len(state["encoding.source"]))
        estimator.model_.load_state_dict(state)
        estimator.model_.to(device or "cpu")
    except OSError:  # says what to do
        raise
    except Exception as error:
        raise ValueError(f"the model in {folder} is damaged: {error}; train it anew") from error
    return estimator


def _contents(path: Path) -> bytes:
    """Of a file of a model; one that is not there is damage, one that may not be read is not."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"{path.name} is missing") from error
    except OSError as error:
        reason = f"cannot read {path}: {error.strerror}; see to it that you may, and try again"
        raise OSError(error.errno, reason) from error  # of the same kind


def _digest(description: dict[str, Any], tensors: bytes) -> str:
    """Of all that is written."""
    text = json.dumps(description, sort_keys=True)
    return hashlib.blake2b(text.encode() + tensors, digest_size=16).hexdigest()


def _fitted(estimator: LastLayerEstimator) -> list[str]:
    """Names of what was learnt, but columns and tensors."""
    names = [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]
    return [name for name in names if name not in ("columns_", "model_")]


def _plain(value: Any) -> Any:
    """For JSON; arrays and tuples become lists that say what they were."""
    if isinstance(value, np.ndarray):
        kind = "object" if value.dtype == object else value.dtype.str
        return {"array": value.tolist(), "dtype": kind}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, np.random.RandomState):
        return None
    return value


def _unplain(value: Any) -> Any:
    """What `_plain` was given."""
    if isinstance(value, list):
        return [_unplain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"])
    if "tuple" in value:
        return tuple(_unplain(item) for item in value["tuple"])
    if "float" in value:
        return float(value["float"])
    return {name: _unplain(item) for name, item in value.items()}


def _replaceable(folder: Path) -> bool:
    """Whether nothing is lost but an older model."""
    if not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    if not names:
        return True
    try:
        return names <= {DESCRIPTION, TENSORS} and "columns" in describe(folder)
    except ValueError:
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
