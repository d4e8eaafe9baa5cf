"""Checks of arguments and shapes: what was expected, what came, what to do.

None of them reads a tensor's values, so all may run inside a compiled or exported forward.
"""

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real

import torch
from torch import Tensor

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise unless value is one of the choices, suggesting the nearest."""
    choices = list(choices)
    if value in choices:
        return
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} must be one of {choices}, got {value!r}{hint}")


def check_positive(name: str, value: float) -> None:
    """Raise unless value is a finite number above zero."""
    if not _is_number(value) or not value > 0:
        got = f"a {type(value).__name__}" if hasattr(value, "__array__") else repr(value)
        raise ValueError(f"{name} must be a finite number above zero, got {got}")


def check_number(name: str, value: float) -> None:
    """Raise unless value is a finite number."""
    if not _is_number(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_count(name: str, value: int, minimum: int = 1, hint: str = "") -> None:
    """Raise unless value is an integer of at least minimum."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        hint = f"; {hint}" if hint else ""
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}{hint}")


def check_features(features: Tensor, num_features: int, like: Tensor) -> None:
    """Raise unless features are (*batch, num_features), of the head's dtype and device."""
    if not isinstance(features, Tensor):
        raise TypeError(
            f"features must be a tensor, got a {type(features).__name__}; convert arrays by "
            "torch.as_tensor"
        )
    if features.ndim == 0 or features.shape[-1] != num_features:
        raise ValueError(
            f"features must end in num_features={num_features}, got shape "
            f"{tuple(features.shape)}; pass the penultimate activations, not the logits"
        )
    if not features.is_floating_point():
        raise TypeError(
            f"features must be floating point, got {features.dtype}; convert with features.float()"
        )
    if features.device != like.device:
        raise ValueError(
            f"features are on {features.device} but the head is on {like.device}; "
            "move one with .to(device)"
        )
    if features.dtype != like.dtype and (
        features.is_meta or not torch.is_autocast_enabled(features.device.type)
    ):
        raise TypeError(
            f"features are {features.dtype} but the head is {like.dtype}; convert one, for "
            "example features.to(head.mean.dtype) or head.to(features.dtype)"
        )


def check_not_empty(features: Tensor) -> None:
    """Raise for a batch without examples, whose mean loss is not a number."""
    if features.numel() == 0:
        raise ValueError(
            f"a loss needs at least one example, got features of shape {tuple(features.shape)}; "
            "skip empty batches (prediction accepts them)"
        )


def check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    """Raise unless the tensor is where the features are."""
    if tensor.device != device:
        raise ValueError(
            f"{name} is on {tensor.device} but the features are on {device}; "
            "move one with .to(device)"
        )


def check_labels(target: Tensor, batch_shape: torch.Size, name: str = "class labels") -> Tensor:
    """Return class indices (*batch,) as int64, or raise."""
    if target.dtype not in INTEGERS:
        raise TypeError(
            f"{name} must be integers, got {target.dtype}; pass indices 0 … K-1 "
            "(probabilities.argmax(-1), or target.long() if they are whole numbers)"
        )
    if target.shape != batch_shape:
        extra = target.shape[-1] if target.shape[:-1] == batch_shape else 0
        hint = "; squeeze the last dimension" if extra == 1 else ""
        hint = "; pass indices, target.argmax(-1)" if extra > 1 else hint
        raise ValueError(
            f"{name} must have shape {tuple(batch_shape)}, one index per example, "
            f"got {tuple(target.shape)}{hint}"
        )
    return target.long()


def check_target(target: Tensor, batch_shape: torch.Size, num_outputs: int) -> Tensor:
    """Return regression targets as (*batch, K), or raise rather than broadcast."""
    if not target.is_floating_point():
        raise TypeError(
            f"regression targets must be floating point, got {target.dtype}; "
            "convert with target.float()"
        )
    if target.shape == (*batch_shape, num_outputs):
        return target
    if num_outputs == 1 and target.shape == batch_shape:
        return target.unsqueeze(-1)
    raise ValueError(
        f"targets must have shape {(*batch_shape, num_outputs)}"
        f"{f' or {tuple(batch_shape)}' if num_outputs == 1 else ''}, got {tuple(target.shape)}; "
        "nothing is broadcast: reshape the target"
    )


def check_weight(weight: Tensor, batch_shape: torch.Size, num_outputs: int | None) -> Tensor:
    """Return weights that multiply terms of shape (*batch,), or (*batch, K) for K outputs."""
    if weight.shape == batch_shape:
        return weight if num_outputs is None else weight.unsqueeze(-1)
    if num_outputs is not None and weight.shape == (*batch_shape, num_outputs):
        return weight
    per_output = "" if num_outputs is None else f" or {(*batch_shape, num_outputs)} (per output)"
    raise ValueError(
        f"weight must have shape {tuple(batch_shape)} (per example){per_output}, "
        f"got {tuple(weight.shape)}"
    )


def check_range(target: Tensor, num_classes: int) -> None:
    """Raise for labels that are none of the classes; for what runs outside `forward`."""
    if target.numel() and not bool(((target >= 0) & (target < num_classes)).all()):
        raise ValueError(
            f"class labels must lie in 0 … {num_classes - 1}, got values from "
            f"{int(target.min())} to {int(target.max())}; give examples to be ignored weight zero"
        )


def check_weights(weight: Tensor) -> None:
    """Raise if a weight is NaN, infinite or negative; for what runs outside `forward`."""
    if not bool((weight.isfinite() & (weight >= 0)).all()):
        raise ValueError("weights must be finite and not negative")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise if any value is NaN or infinite; for exact fits, which run outside `forward`."""
    if not bool(tensor.isfinite().all()):
        raise ValueError(
            f"{name} hold NaN or infinite values; an exact fit would spread them to every "
            "parameter: clean them, or give missing targets a weight of zero"
        )


def check_forgetting(forgetting: float) -> None:
    """Raise unless forgetting is a factor in (0, 1]."""
    if not 0 < forgetting <= 1:
        raise ValueError(f"forgetting must lie in (0, 1], got {forgetting!r}; 1 forgets nothing")
