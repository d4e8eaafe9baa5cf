"""The options of training, checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from .._checks import check_choice, check_count, check_number, check_positive

# Factor on the learning rate as a function of the fraction of training that is done.
Schedule = Callable[[float], float]


def constant(_: float) -> float:
    """The same learning rate throughout."""
    return 1.0


def cosine(done: float) -> float:
    """A learning rate that falls to zero along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * done))


def warmup_cosine(done: float) -> float:
    """`cosine` after a linear rise over the first twentieth of training."""
    return min(1.0, 20 * done) * cosine(max(0.0, done - 0.05) / 0.95)


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "warmup_cosine": warmup_cosine,
}
PRECISIONS = {"full": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


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
    precision: str = "full"
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
        if not callable(self.schedule):
            check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)

    def rate(self, done: float) -> float:
        """The learning rate when a fraction of training is done."""
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return self.learning_rate * schedule(done)

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """Mixed precision, if chosen."""
        dtype = PRECISIONS[self.precision]
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype)

    def make_optimizer(
        self, groups: Iterable[tuple[list[Tensor], bool]], *, stacked: bool = False
    ) -> Optimizer:
        """An optimiser of groups of parameters, each with or without weight decay.

        For optimisers to which shapes matter, the groups say whether parameters are `stacked`.
        """
        chosen = [
            {"params": group, "weight_decay": self.weight_decay * decay, "stacked": stacked}
            for group, decay in groups
            if group
        ]
        if not chosen:
            raise ValueError("the model has no parameters that require gradients")
        if self.optimizer is not None:
            return self.optimizer(chosen, lr=self.learning_rate)
        return AdamW(chosen, lr=self.learning_rate, fused=True)


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


def mixed_seed(*parts: object) -> int:
    """One seed from several numbers, unrelated to that of any others."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


def permutation(count: int, seed: int, phase: int, epoch: int) -> Tensor:
    """The order of the examples in an epoch, (count,)."""
    generator = torch.Generator().manual_seed(mixed_seed("order", seed, phase, epoch))
    return torch.randperm(count, generator=generator)
