"""What must be the same for a run to be resumed from its checkpoint."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .._data import Data, digest, has_own_batches, num_batches, num_examples
from .options import Options

# Options that a resumed run may change: where and how fast it runs, not what it computes.
FREE = {"seed", "device", "compile", "monitor", "checkpoint", "checkpoint_every", "progress"}
POINTS = 33  # of a schedule, from the beginning to the end


def identity(
    models: Sequence[nn.Module],
    train: Sequence[Data],
    validation: Sequence[Data | None],
    options: Options,
    seeds: Sequence[int],
) -> dict[str, Any]:
    """The objective, the data and the options of a run, fit for JSON."""
    validated = [data for data in validation if data is not None]
    return {
        **{name: value for name, value in vars(options).items() if name not in FREE},
        "schedule": _name(options.schedule),
        "learning rates": [options.rate(at / (POINTS - 1)) for at in range(POINTS)],
        "optimizer": _name(options.optimizer),
        "groups": {name: dict(group) for name, group in (options.groups or {}).items()},
        "augment": _name(options.augment),
        "number of models": len(models),
        "model": _described(models[0]).splitlines(),
        "functions": _functions(models[0]),
        "weights": _weights(models[0]),
        "means of priors": [digest([(mean,)]) for model in models for mean in _prior_means(model)],
        "seeds": list(seeds),
        "training examples": _size(train[0]),
        "training batches": num_batches(train[0]),
        "validation examples": _size(validated[0]) if validated else None,
        "digest of the data": digest([*train, *validated]),
    }


def check_same(saved: dict[str, Any], now: dict[str, Any], path: Any) -> None:
    """Raise if the run of a checkpoint is another one, naming what differs."""
    different = [
        _difference(name, saved.get(name), now[name])
        for name in now
        if json.dumps(saved.get(name)) != json.dumps(now[name])
    ]
    if different:
        raise ValueError(
            f"the checkpoint {path} is of another run: {'; '.join(different)}. "
            "Choose another folder, or delete this one to train from the beginning"
        )


def _difference(name: str, saved: Any, now: Any) -> str:
    """What differs; of a list, the first items that do."""
    if isinstance(saved, list) and isinstance(now, list):
        pairs = [(a, b) for a, b in zip(saved, now, strict=False) if a != b]
        if pairs:
            saved, now = _distinct(*pairs[0])
        else:
            saved, now = f"{len(saved)} items", f"{len(now)} items"
    return f"{name} was {saved!r} and is {now!r}"


def _distinct(saved: Any, now: Any) -> tuple[Any, Any]:
    """Of two lines with as many settings each, those that differ; otherwise the lines."""
    if not isinstance(saved, str) or not isinstance(now, str):
        return saved, now
    settings = [line.strip().split(", ") for line in (saved, now)]
    if len(settings[0]) == len(settings[1]):
        pairs = [pair for pair in zip(*settings, strict=True) if pair[0] != pair[1]]
        settings = [list(side) for side in zip(*pairs, strict=True)]
    return ", ".join(settings[0]), ", ".join(settings[1])


def _functions(model: nn.Module) -> list[str]:
    """Functions that modules hold as attributes, as activations may be; `repr` does not show them.

    Their names, that is: a function of the same name counts as the same.
    """
    return [
        f"{name}.{attribute} = {_name(value)}".removeprefix(".")
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, functools.partial))
    ]


def _weights(model: nn.Module) -> list[str]:
    """Names and shapes of all weights, and which are not trained."""
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    return [
        f"{name} {list(value.shape)}{' frozen' if name in frozen else ''}"
        for name, value in model.state_dict().items()
    ]


def _prior_means(model: nn.Module) -> list[Tensor]:
    """The means of priors that are not zero."""
    means = [getattr(module, "prior_mean", None) for module in model.modules()]
    return [mean for mean in means if mean is not None]


def _size(data: Data) -> int | None:
    return None if has_own_batches(data) else num_examples(data)


def _described(value: Any) -> str:
    """`repr` without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _name(choice: Any) -> str | None:
    """The same in every process, where `repr` may hold an address."""
    if choice is None or isinstance(choice, str):
        return choice
    if isinstance(choice, functools.partial):
        keywords = [f"{key}={_described(value)}" for key, value in choice.keywords.items()]
        return f"{_name(choice.func)}({', '.join([*map(_described, choice.args), *keywords])})"
    return str(getattr(choice, "__qualname__", type(choice).__qualname__))
