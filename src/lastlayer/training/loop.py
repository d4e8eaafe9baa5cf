"""The loop: epochs, validation, stopping, retraining, checkpoints and progress."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from .bar import Bar
from .checkpoint import Checkpoint
from .history import History
from .identity import check_same
from .options import Options
from .processes import Processes
from .sharding import gathered


class Engine(Protocol):
    """What trains: one model, or many as one."""

    active: list[int]

    @property
    def examples_per_epoch(self) -> int | None:
        """How many examples an epoch shows, if that is known."""

    def epoch(
        self, number: int, epochs: int, shown: Callable[[int, dict[str, Tensor]], None]
    ) -> list[dict[str, float]]:
        """Train on all the data once.

        Args:
            number: of the epoch, from one.
            epochs: how many the schedule is for.
            shown: to be called after each batch, with the number of examples and their losses.

        Returns:
            The means over the epoch's batches, for each active model.
        """

    def validate(self) -> list[float]:
        """The validation NLL of each active model."""

    def monitor(self) -> list[dict[str, float]]:
        """The numbers that the option of that name asks for, of each active model."""

    def snapshot(self) -> Any:
        """A copy of the present weights of all models."""

    def state(self, at: int, snapshot: Any = None) -> dict[str, Any]:
        """A copy of a model's state, now or at a snapshot."""

    def release(self, done: list[int]) -> None:
        """Stop training some models."""

    def state_dict(self) -> dict[str, Any]:
        """All that training is resumed from."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""


@dataclass
class Trainee:
    """How far the training of one model is."""

    epochs: int  # the maximum number
    history: History = field(default_factory=History)
    state: dict[str, Any] | None = None  # to end with: the best so far, or the last

    def record(self, row: dict[str, float]) -> bool:
        """Add the row of an epoch; whether it is the best so far."""
        history = self.history
        history.rows.append(row)
        nll = row.get("validation_nll")
        if nll is None or not nll < (math.inf if history.best_nll is None else history.best_nll):
            return False
        history.best_epoch, history.best_nll = int(row["epoch"]), nll
        return True

    def done(self, patience: int | None) -> bool:
        """Whether to stop here; out of patience only where there was a validation."""
        epoch = len(self.history)
        if self.history.failed or epoch >= self.epochs:
            return True
        if patience is None or "validation_nll" not in self.history[-1]:
            return False
        return epoch - (self.history.best_epoch or 0) >= patience


class Loop:
    """Trains the models of an engine until each is done, and then perhaps once more.

    Args:
        make_engine: from a phase, 0 for the first training and 1 for retraining, the models'
            initial states, and whether to start from those and not from a checkpoint.
        initial: the states of the models before training, see `initial_state`.
        options: of `fit`.
        has_validation: whether there are validation data.
        processes: that train together, of which the first shows progress and writes checkpoints.
        bar: shows progress in the place of a bar of this training.
        deadline: when to stop, after the epoch of that time, in the seconds of `time.monotonic`.
    """

    def __init__(
        self,
        make_engine: Callable[[int, list[Any], bool], Engine],
        initial: list[Any],
        options: Options,
        has_validation: bool,
        processes: Processes,
        bar: Any = None,
        deadline: float = math.inf,
    ) -> None:
        self.make_engine, self.options, self.processes = make_engine, options, processes
        self.has_validation, self.bar, self.deadline = has_validation, bar, deadline
        self.initial = initial
        self.trainees = [Trainee(options.epochs) for _ in initial]
        self.checkpoint = None if options.checkpoint is None else Checkpoint(options.checkpoint)

    def run(self, identity: dict[str, Any]) -> list[Trainee]:
        """Train, or go on training; the states to end with are in the trainees."""
        saved = None if self.checkpoint is None else self.checkpoint.load()
        self.processes.wait()  # none may write before all have read
        if saved is not None:
            check_same(saved["identity"], identity, self.options.checkpoint)
            self.trainees = [
                Trainee(**{**trainee, "history": History(**trainee["history"])})
                for trainee in saved["trainees"]
            ]
            self.initial = saved["initial"] or self.initial
        self.identity = identity
        start = -1 if saved is None else saved["phase"]
        for phase in range(max(start, 0), 2 if self.options.retrain else 1):
            if phase == 1 and start < 1:
                self._choose_epochs()
            if saved is not None and start == phase:
                engine = self.make_engine(phase, self.initial, False)
                engine.load_state_dict(saved["engine"])
            else:
                engine = self.make_engine(phase, self.initial, True)
                self._save(engine, phase, 0)
            self._train(engine, phase)
        return self.trainees

    def final_state(self, at: int) -> dict[str, Any]:
        """The state that a model ends with; the initial one if no epoch was good."""
        return self.trainees[at].state or self.initial[at]["state"]

    def _choose_epochs(self) -> None:
        """Retrain each model for as many epochs as were best; not one that had no best."""
        for trainee in self.trainees:
            history = trainee.history
            history.failed = history.best_epoch is None
            if history.failed and len(self.trainees) == 1:
                raise FloatingPointError("no validation NLL was finite: nothing to retrain for")
            if not history.failed:
                trainee.epochs, trainee.state = int(history.best_epoch or 0), None
                trainee.history = History([], history.best_epoch, history.best_nll, history.rows)

    def _train(self, engine: Engine, phase: int) -> None:
        validated = self.has_validation and phase == 0
        engine.release([at for at in engine.active if self.trainees[at].history.failed])
        running, hidden = self._running(engine), self._hidden()
        shown = self.bar or Bar(running, engine.examples_per_epoch, phase, hidden=hidden)
        good = self._snapshot(engine)
        with shown as bar:
            while engine.active:
                number = len(self._running(engine)[0].history) + 1
                rows = engine.epoch(number, self.options.epochs, bar.step)
                every, last = self.options.validate_every, number == self.options.epochs
                due = number % every == 0 or last
                nlls = engine.validate() if due and validated else [None] * len(rows)
                monitored = due and self.options.monitor is not None
                numbers = engine.monitor() if monitored else [{} for _ in rows]
                for at, row, nll, more in zip(
                    list(engine.active), rows, nlls, numbers, strict=True
                ):
                    self._record(engine, at, number, _joined(row, more), nll, good)
                bar.epoch(self._running(engine), list(numbers[0]))
                patience = self.options.patience if validated else None
                late = time.monotonic() > self.deadline
                done = [at for at in engine.active if late or self.trainees[at].done(patience)]
                for at in done:
                    trainee = self.trainees[at]
                    if trainee.state is None and not trainee.history.failed:
                        trainee.state = engine.state(at)
                engine.release(done)
                self._save(engine, phase, number)
                good = self._snapshot(engine)

    def _snapshot(self, engine: Engine) -> Any:
        """The weights after a good epoch, if a model would have no others to return to."""
        running = self._running(engine)
        return (
            engine.snapshot()
            if any(trainee.state is None and len(trainee.history) for trainee in running)
            else None
        )

    def _record(
        self,
        engine: Engine,
        at: int,
        number: int,
        row: dict[str, float],
        nll: float | None,
        good: Any,
    ) -> None:
        """Add the row of an epoch; if its loss is not finite, return to the last good weights."""
        trainee = self.trainees[at]
        row = {"epoch": number, **row} | ({} if nll is None else {"validation_nll": nll})
        if trainee.record(row):
            trainee.state = engine.state(at)
        scaled = self.options.precision == "float16"  # whose steps with infinite norms are skipped
        value = row["loss"] if scaled else row["loss"] + 0 * row["gradient_norm"]
        if math.isfinite(value):
            return
        trainee.history.failed = True
        if trainee.state is not None:
            kept = f"its best weights so far, those of epoch {trainee.history.best_epoch}"
        elif good is not None:
            trainee.state = engine.state(at, good)
            kept = f"the weights of epoch {number - 1}, the last with a finite loss"
        else:
            kept = "its initial weights"
        message = (
            f"the loss became {value} in epoch {number}; check the data for NaN and very large "
            "values, lower learning_rate, or lower clip. The model has " + kept
        )
        if len(self.trainees) == 1:
            raise FloatingPointError(message)
        warnings.warn(f"model {at} stopped: {message}", stacklevel=2)

    def _save(self, engine: Engine, phase: int, number: int) -> None:
        due = number % self.options.checkpoint_every == 0 or not engine.active
        if self.checkpoint is None or not due:
            return
        state = {
            "identity": self.identity,
            "phase": phase,
            "initial": self.initial if self.options.retrain else [],
            "engine": engine.state_dict(),
            "trainees": [
                {**vars(trainee), "history": asdict(trainee.history)} for trainee in self.trainees
            ],
        }
        state = gathered(state, keep=self.processes.first)
        if self.processes.first:
            self.checkpoint.save(state)

    def _running(self, engine: Engine) -> list[Trainee]:
        return [self.trainees[at] for at in engine.active]

    def _hidden(self) -> bool | None:
        if not self.processes.first:
            return True
        return None if self.options.progress is None else not self.options.progress


def _joined(row: dict[str, float], more: dict[str, float]) -> dict[str, float]:
    """The row of an epoch with what a monitor adds, under names of its own."""
    if taken := sorted({*row, "epoch", "validation_nll"} & set(more)):
        raise ValueError(f"monitor must return other names than those of the history: {taken}")
    return row | more


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Leave the caller's random numbers alone."""
    count = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    with torch.random.fork_rng(range(count)):
        yield
