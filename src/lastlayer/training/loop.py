"""The loop: epochs, validation, stopping, retraining, checkpoints and progress."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from tqdm import tqdm

from .checkpoint import Checkpoint
from .history import History
from .options import Options


class Engine(Protocol):
    """What trains: one model, or many as one."""

    active: list[int]

    @property
    def examples_per_epoch(self) -> int | None:
        """How many examples an epoch shows, if that is known."""

    def epoch(
        self, number: int, epochs: list[int], shown: Callable[[int], object]
    ) -> list[dict[str, float]]:
        """Train on all the data once.

        Args:
            number: of the epoch, from one.
            epochs: how many there will be at most, for each active model.
            shown: to be called with the number of examples after each batch.

        Returns:
            The means over the epoch's batches, for each active model.
        """

    def validate(self) -> list[float]:
        """The validation NLL of each active model."""

    def state(self, at: int) -> dict[str, Any]:
        """A copy of a model's state."""

    def release(self, done: list[int]) -> None:
        """Stop training some models."""

    def state_dict(self) -> dict[str, Any]:
        """All that training goes on from."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


@dataclass
class Trainee:
    """How one model's training stands."""

    epochs: int  # at most
    history: History = field(default_factory=History)
    state: dict[str, Any] | None = None  # to end with: the best so far, or the last
    failed: bool = False

    def record(self, row: dict[str, float]) -> bool:
        """Note an epoch; whether it is the best so far."""
        history = self.history
        history.rows.append(row)
        nll = row.get("validation_nll")
        if nll is None or not nll < (math.inf if history.best_nll is None else history.best_nll):
            return False
        history.best_epoch, history.best_nll = int(row["epoch"]), nll
        return True

    def done(self, patience: int | None) -> bool:
        """Whether to stop here."""
        epoch = len(self.history)
        if self.failed or epoch >= self.epochs:
            return True
        best = self.history.best_epoch
        return patience is not None and best is not None and epoch - best >= patience


class Loop:
    """Trains the models of an engine until each is done, and then perhaps once more.

    Args:
        make_engine: of a phase, 0 for the first training and 1 for retraining, and of the
            models' initial states; None where what was saved will be loaded.
        initial: the models at the beginning, see `initial_state`.
        options: of `fit`.
        has_validation: whether there are validation data.
        first: whether this process shows progress and writes checkpoints.
    """

    def __init__(
        self,
        make_engine: Callable[[int, list[Any] | None], Engine],
        initial: list[Any],
        options: Options,
        has_validation: bool,
        first: bool,
    ) -> None:
        self.make_engine, self.options, self.first = make_engine, options, first
        self.has_validation = has_validation
        self.initial = initial
        self.trainees = [Trainee(options.epochs) for _ in initial]
        self.checkpoint = None if options.checkpoint is None else Checkpoint(options.checkpoint)

    def run(self, fingerprint: dict[str, Any], wait: Callable[[], None]) -> list[Trainee]:
        """Train, or go on training; the states to end with are in the trainees."""
        saved = None if self.checkpoint is None else self.checkpoint.load()
        wait()  # none may write before all have read
        if saved is not None:
            _check_same(saved["fingerprint"], fingerprint, self.options.checkpoint)
            self.trainees = [
                Trainee(**{**trainee, "history": History(**trainee["history"])})
                for trainee in saved["trainees"]
            ]
            self.initial = saved["initial"]
        self.fingerprint = fingerprint
        start = -1 if saved is None else saved["phase"]
        for phase in range(max(start, 0), 2 if self.options.retrain else 1):
            if phase == 1 and start < 1:
                self._choose_epochs()
            if saved is not None and start == phase:
                engine = self.make_engine(phase, None)
                engine.load_state_dict(saved["engine"])
            else:
                engine = self.make_engine(phase, self.initial)
                self._save(engine, phase, 0)
            self._train(engine, phase)
        return self.trainees

    def _choose_epochs(self) -> None:
        """Retrain each model for as many epochs as were best."""
        for trainee in self.trainees:
            history = trainee.history
            if history.best_epoch is None:
                raise FloatingPointError("no validation NLL was finite: nothing to retrain for")
            trainee.epochs, trainee.state, trainee.failed = history.best_epoch, None, False
            trainee.history = History([], history.best_epoch, history.best_nll, history.rows)

    def _train(self, engine: Engine, phase: int) -> None:
        validated = self.has_validation and phase == 0
        with self._progress(engine) as bar:
            while engine.active:
                running = [self.trainees[at] for at in engine.active]
                number = len(running[0].history) + 1
                rows = engine.epoch(number, [t.epochs for t in running], bar.update)
                due = validated and (
                    number % self.options.validate_every == 0 or number == self.options.epochs
                )
                nlls = engine.validate() if due else [None] * len(rows)
                for at, row, nll in zip(list(engine.active), rows, nlls, strict=True):
                    self._record(engine, at, number, row, nll)
                self._show(bar, rows)
                patience = self.options.patience if validated else None
                done = [at for at in engine.active if self.trainees[at].done(patience)]
                for at in done:
                    if self.trainees[at].state is None:
                        self.trainees[at].state = engine.state(at)
                engine.release(done)
                self._save(engine, phase, number)

    def _record(
        self, engine: Engine, at: int, number: int, row: dict[str, float], nll: float | None
    ) -> None:
        trainee = self.trainees[at]
        row = {"epoch": number, **row} | ({} if nll is None else {"validation_nll": nll})
        if trainee.record(row):
            trainee.state = engine.state(at)
        if not math.isfinite(row["loss"]):
            message = (
                f"the loss became {row['loss']} in epoch {number}; check the data for NaN and "
                "very large values, lower learning_rate, or lower clip"
            )
            if len(self.trainees) == 1:
                raise FloatingPointError(message)
            warnings.warn(f"model {at} stopped: {message}", stacklevel=2)
            trainee.failed = True

    def _save(self, engine: Engine, phase: int, number: int) -> None:
        due = number % self.options.checkpoint_every == 0 or not engine.active
        if self.checkpoint is None or not self.first or not due:
            return
        self.checkpoint.save(
            {
                "fingerprint": self.fingerprint,
                "phase": phase,
                "initial": self.initial if self.options.retrain and phase == 0 else [],
                "engine": engine.state_dict(),
                "trainees": [
                    {**vars(trainee), "history": asdict(trainee.history)}
                    for trainee in self.trainees
                ],
            }
        )

    # ------------------------------------------------------------------------------ progress

    @contextmanager
    def _progress(self, engine: Engine) -> Any:
        per_epoch = engine.examples_per_epoch
        epochs = max((self.trainees[at].epochs for at in engine.active), default=0)
        done = max((len(self.trainees[at].history) for at in engine.active), default=0)
        hidden = None if self.options.progress is None else not self.options.progress
        with tqdm(
            desc="training",
            total=per_epoch and per_epoch * epochs,
            initial=per_epoch * done if per_epoch else 0,
            unit=" examples",
            unit_scale=True,
            disable=hidden if self.first else True,
        ) as bar:
            yield bar

    def _show(self, bar: Any, rows: list[dict[str, float]]) -> None:
        if bar.disable:
            return
        last = [trainee.history.rows[-1] for trainee in self.trainees if trainee.history.rows]
        names = [n for n in ("epoch", "loss", "bound", "kl", "validation_nll") if n in last[0]]
        means = {name: sum(row.get(name, math.nan) for row in last) / len(last) for name in names}
        means["epoch"] = max(row["epoch"] for row in last)
        bar.set_postfix({name: f"{value:.4g}" for name, value in means.items()})


def _check_same(saved: dict[str, Any], now: dict[str, Any], path: Any) -> None:
    different = [
        f"{name} was {saved.get(name)!r} and is {now.get(name)!r}"
        for name in now
        if saved.get(name) != now.get(name)
    ]
    if different:
        raise ValueError(
            f"the checkpoint {path} is of another run: {'; '.join(different)}. "
            "Choose another folder, or delete this one to start anew"
        )


@contextmanager
def own_random_numbers(device: torch.device) -> Any:
    """Leave the caller's random numbers alone."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield
