"""The options of training, checked."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from .._checks import check_choice, check_count, check_number, check_positive
from .schedules import Schedule, named

PRECISIONS = {"full": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


GROUPED = ("learning_rate", "weight_decay")  # settings of which a group may have a multiple


class Factors(NamedTuple):
    """What the learning rate and the weight decay of some parameters are multiplied by."""

    learning_rate: float = 1.0
    weight_decay: float = 1.0


@dataclass(frozen=True)
class Options:
    """The arguments of `fit`, where they are explained."""

    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float | None = 1.0
    schedule: str | Schedule = "constant"
    optimizer: Callable[..., Optimizer] | None = None
    groups: Mapping[str, Mapping[str, float]] | None = None
    augment: Callable[[Any], Any] | None = None
    precision: str = "full"
    monitor: Callable[[nn.Module], Mapping[str, float]] | None = None
    validate_every: int = 1
    patience: int | None = None
    retrain: bool = False
    initialize: bool = True
    seed: int = 0
    device: torch.device | str | None = None
    compile: bool = False
    checkpoint: str | Path | None = None
    checkpoint_every: int = 1
    progress: bool | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **changes: Any) -> Options:
        """The options among a function's arguments."""
        names = {field.name for field in fields(cls)}
        chosen = {name: value for name, value in arguments.items() if name in names}
        return cls(**chosen | changes)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validate_every", "checkpoint_every"):
            check_count(name, getattr(self, name))
            object.__setattr__(self, name, int(getattr(self, name)))  # not a NumPy number
        check_positive("learning_rate", self.learning_rate)
        check_number("weight_decay", self.weight_decay)
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay!r}")
        check_count("seed", self.seed, 0)
        for name in ("learning_rate", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.clip is not None:
            check_positive("clip", self.clip)
        if self.patience is not None:
            check_count("patience", self.patience)
        named(self.schedule)
        for pattern, factors in (self.groups or {}).items():
            for name, factor in factors.items():
                check_choice(f"a setting of groups[{pattern!r}]", name, GROUPED)
                check_number(f"groups[{pattern!r}][{name!r}]", factor)
                if factor < 0:
                    raise ValueError(f"groups[{pattern!r}][{name!r}] must not be negative")
        check_choice("precision", self.precision, PRECISIONS)

    def rate(self, done: float) -> float:
        """The learning rate when a fraction of training is done."""
        return self.learning_rate * named(self.schedule)(done)

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """Mixed precision, if chosen."""
        dtype = PRECISIONS[self.precision]
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype)

    def grouped(self, model: nn.Module) -> Iterator[tuple[str, Factors]]:
        """Names of the trainable parameters, and the factors of each."""
        patterns = dict(self.groups or {})
        unused = set(patterns)
        for name, decay in decays(model):
            found = next((pattern for pattern in patterns if _matches(name, pattern)), None)
            own = {} if found is None else patterns[found]
            unused.discard(found or "")
            yield (
                name,
                Factors(
                    float(own.get("learning_rate", 1.0)),
                    float(own.get("weight_decay", 1.0) if decay else 0.0),
                ),
            )
        if unused:
            raise ValueError(
                f"groups names parameters that are not there or come after an earlier pattern: "
                f"{sorted(unused)}; the model has {_some([name for name, _ in decays(model)])}"
            )

    def make_optimizer(
        self, groups: Iterable[tuple[list[Tensor], Factors]], *, stacked: bool = False
    ) -> Optimizer:
        """An optimiser of groups of parameters, each with its factors.

        For optimisers to which shapes matter, the groups say whether parameters are `stacked`.
        """
        chosen = [
            {
                "params": group,
                "lr": self.learning_rate * factors.learning_rate,
                "weight_decay": self.weight_decay * factors.weight_decay,
                "learning_rate_factor": factors.learning_rate,
                "stacked": stacked,
            }
            for group, factors in groups
            if group
        ]
        if not chosen:
            raise ValueError("the model has no parameters that require gradients")
        if self.optimizer is not None:
            return self.optimizer(chosen, lr=self.learning_rate)
        return AdamW(chosen, lr=self.learning_rate, fused=True)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all groups, each of which may have a factor of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("learning_rate_factor", 1.0)


def decays(model: nn.Module) -> Iterator[tuple[str, bool]]:
    """Names of the trainable parameters, and whether weight decay is for them.

    It is not for modules that have a prior, as heads and variational layers do.
    """
    free: set[int] = set()
    for module in model.modules():
        if getattr(module, "has_prior", False):
            free |= {id(parameter) for parameter in module.parameters()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name, id(parameter) not in free


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern is for a parameter: it names it, or a module that has it."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def mixed_seed(*parts: object) -> int:
    """One seed from several numbers, unrelated to that of any others."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


def permutation(count: int, seed: int, phase: int, epoch: int) -> Tensor:
    """The order of the examples in an epoch, (count,)."""
    generator = torch.Generator().manual_seed(mixed_seed("order", seed, phase, epoch))
    return torch.randperm(count, generator=generator)
