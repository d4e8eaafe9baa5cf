"""JSON that keeps arrays, tuples, NaN and infinity, or that any program reads.

`dumps` and `loads` are inverse to each other: what JSON has no form for is written as an object
with a `$type`. `dumps(…, portable=True)` is for readers that know nothing of this: arrays and
tuples are lists, and numbers that are not finite are null.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

TYPE = "$type"


def dumps(value: Any, *, portable: bool = False, **options: Any) -> str:
    """JSON text of a value; options are those of `json.dumps`.

    Raises:
        TypeError: for values of types that cannot be restored.
    """
    return json.dumps(_plain(value, portable), allow_nan=False, **options)


def loads(text: str | bytes) -> Any:
    """The value that `dumps` was given, from text that is not portable."""
    return json.loads(text, object_hook=_restored, parse_constant=_refuse)


def _plain(value: Any, portable: bool) -> Any:
    """The value in types of JSON."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUO":
        items = [_plain(item, portable) for item in value.tolist()]
        kind = "object" if value.dtype == object else value.dtype.str
        return items if portable else {TYPE: "array", "dtype": kind, "items": items}
    if isinstance(value, np.generic) and not isinstance(value, float):
        return _plain(value.item(), portable)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return None if portable else {TYPE: "float", "text": str(float(value))}
    if isinstance(value, tuple) and not portable:
        return {TYPE: "tuple", "items": [_plain(item, portable) for item in value]}
    if isinstance(value, list | tuple):
        return [_plain(item, portable) for item in value]
    if isinstance(value, dict) and TYPE not in value and all(isinstance(key, str) for key in value):
        return {key: _plain(item, portable) for key, item in value.items()}
    if isinstance(value, dict) and TYPE not in value and not portable:  # keys of any type
        pairs = [[_plain(part, portable) for part in pair] for pair in value.items()]
        return {TYPE: "dict", "items": pairs}
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be written as JSON")


def _restored(entry: dict[str, Any]) -> Any:
    """An object of JSON, or the value that it stands for."""
    kind = entry.get(TYPE)
    if kind is None:
        return entry
    if kind == "array":
        return np.array(entry["items"], dtype=entry["dtype"])
    if kind == "tuple":
        return tuple(entry["items"])
    if kind == "dict":
        return dict(entry["items"])
    if kind == "float":
        return float(entry["text"])
    raise ValueError(f"unknown {TYPE} {kind!r}")


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
