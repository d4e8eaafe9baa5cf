"""Heads in Lightning: a callback for any LightningModule, and a module for those who want one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError(
        "lastlayer.lightning needs lightning: pip install 'lastlayer[lightning]'"
    ) from error

from ._data import as_batch, num_examples
from .heads import Head, recorded
from .network import Network
from .posttraining import Features
from .posttraining.solvers import fit_features
from .predictive import Predictive
from .training.options import Factors, Options
from .training.preparation import counting, the_head, warn_of_weight_decay

__all__ = ["HeadCallback", "NetworkModule"]

# Targets and weights of a batch.
Reader = Callable[[Any], tuple[Tensor, Tensor | None]]


def read_pair(batch: Any) -> tuple[Tensor, Tensor | None]:
    """The target and the weight of (inputs, target) or (inputs, target, weight)."""
    read = as_batch(batch)
    if read.target is None:
        raise ValueError("batches must be (inputs, target); say how to read others with read=…")
    return read.target, read.weight


class HeadCallback(Callback):
    """What heads need of training, for any LightningModule that has some inside.

    Before the first step, heads get the number of training examples (`num_data`), from the data
    loader; a module with one head lets it prepare itself as in `lastlayer.fit`: a generative one
    counts classes. There is a warning if weight decay reaches a head. Losses leave the parts of the
    ELBO in the logs, as `elbo/bound`, `elbo/kl`, ….

    Args:
        num_data: the number of training examples, where the loader does not know it.
        log: whether to log the parts of the ELBO.
        solve: whether to solve the last layer at the end of training, on the features of all the
            training data: exactly where there is a closed form. It runs `training_step` once over
            the data, in evaluation mode and without gradients. Checkpoints that were saved before
            have the trained head; `trainer.save_checkpoint` afterwards saves the solved one.
        read: target and weight of a batch, by default of (inputs, target) or (inputs, target,
            weight). Only for the preparation.
    """

    def __init__(
        self,
        num_data: float | None = None,
        *,
        log: bool = True,
        solve: bool = False,
        read: Reader = read_pair,
    ) -> None:
        self.num_data, self.log, self.solve, self.read = num_data, log, solve, read
        self._recording = ExitStack()
        self._parts: dict[str, Tensor] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the number of examples, and let the head prepare itself."""
        if not any(isinstance(module, Head) for module in pl_module.modules()):
            raise ValueError(
                f"{type(pl_module).__name__} has no head inside; use one for its last layer, such "
                "as lastlayer.Regression"
            )
        count = _num_data(trainer) if self.num_data is None else self.num_data
        for module in counting(pl_module):
            module.num_data = count
        for optimizer in trainer.optimizers:
            warn_of_weight_decay(pl_module, optimizer.param_groups)
        head = the_head(pl_module)
        if head is not None and trainer.global_step == 0:
            with torch.no_grad():
                targets = (self.read(batch) for batch in _loader(trainer))
                head.prepare(targets, new=head.fresh, total=_summing(trainer))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Record the parts of the loss, which the step will compute."""
        if self.log:
            self._recording.close()
            self._parts = self._recording.enter_context(recorded(pl_module))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log them."""
        self._recording.close()
        if self._parts:
            parts = {f"elbo/{name}": part.detach() for name, part in self._parts.items()}
            pl_module.log_dict(parts, on_step=True, on_epoch=False)
        self._parts = {}

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave the module as it was."""
        self._recording.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Solve the last layer, if that was asked for."""
        if self.solve:
            head = the_head(pl_module)
            if head is None:
                raise ValueError("solve=True is for a module with one head; this one has several")
            fit_features(head, *_features(trainer, pl_module, head), progress=False)


class NetworkModule(LightningModule):
    """A `Network` as a LightningModule, for `Trainer` and `LightningCLI`.

    Batches are (inputs, target) or (inputs, target, weight). Training is AdamW, with weight decay
    on the backbone alone; `val_nll` and `test_nll` are logged. `predict_step` returns predictives.

    Args:
        backbone: from inputs to features.
        head: the last layer; its `num_data` is set from the data.
        learning_rate: of AdamW.
        weight_decay: of the backbone.
        solve: whether to solve the last layer at the end; see `HeadCallback`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        solve: bool = False,
    ) -> None:
        super().__init__()
        self.network = Network(backbone, head)
        self.options = Options(learning_rate=learning_rate, weight_decay=weight_decay)
        self.solve = solve

    def forward(self, inputs: Any) -> Predictive:
        """The predictive."""
        predictive: Predictive = self.network(inputs)
        return predictive

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        read = as_batch(batch)
        loss: Tensor = self.network(read.inputs, read.target, read.weight)
        self.log("train_loss", loss, prog_bar=True, batch_size=read.size)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log the mean negative log-likelihood."""
        self._log_nll("val_nll", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log the mean negative log-likelihood."""
        self._log_nll("test_nll", batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Predictive:
        """The predictive of a batch."""
        return self(as_batch(batch).inputs)

    def configure_optimizers(self) -> Optimizer:
        """AdamW, without weight decay where there is a prior."""
        named = dict(self.named_parameters())
        groups: dict[Factors, list[Tensor]] = {}
        for name, factors in self.options.grouped(self):
            groups.setdefault(factors, []).append(named[name])
        return self.options.make_optimizer((group, factors) for factors, group in groups.items())

    def configure_callbacks(self) -> list[Callback]:
        """The callback that heads need."""
        return [HeadCallback(solve=self.solve)]

    def _log_nll(self, name: str, batch: Any) -> None:
        read = as_batch(batch)
        predictive: Any = self(read.inputs)
        nll = -predictive.log_prob(read.target).mean()
        self.log(name, nll, prog_bar=True, sync_dist=True, batch_size=read.size)


def _loader(trainer: Trainer) -> Any:
    """The loader of training data, which must be one."""
    loader: Any = trainer.train_dataloader
    if isinstance(loader, dict | list | tuple):
        raise TypeError(f"heads need one loader of training data, got a {type(loader).__name__}")
    return loader


def _num_data(trainer: Trainer) -> float:
    """The number of training examples, of all processes."""
    loader = _loader(trainer)
    try:
        sampler = getattr(loader, "sampler", None)
        if hasattr(sampler, "num_replicas"):  # of all the data, a part for each process
            return len(loader.dataset)
        return num_examples(loader) * trainer.world_size
    except TypeError as error:
        raise ValueError(
            "the number of training examples is not known without reading them all; pass it: "
            "HeadCallback(num_data=…)"
        ) from error


def _summing(trainer: Trainer) -> Callable[[Tensor], Tensor]:
    def total(tensor: Tensor) -> Tensor:
        summed = trainer.strategy.reduce(tensor, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    return total


@torch.no_grad()
def _features(trainer: Trainer, module: LightningModule, head: Head) -> Features:
    """What `training_step` gives to the head, over the training data of all processes."""
    if not module.automatic_optimization:
        raise ValueError(
            "solve=True runs training_step without training, which manual optimisation is not made "
            "for; call head.fit_features with the features yourself"
        )
    rows: list[list[Tensor | None]] = []
    signature = inspect.signature(type(head).forward)

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(head, *args, **kwargs).arguments
        if given.get("target") is not None:
            last = given["features"].ndim - 2  # of the leading dimensions
            given["features"] = given["features"].to(head.mean.dtype)  # not autocast's
            parts = (given.get(name) for name in ("features", "target", "weight"))
            rows.append([None if p is None else p.flatten(0, last).cpu() for p in parts])

    step: Any = module.training_step
    takes_index = "batch_idx" in inspect.signature(step).parameters
    with head.register_forward_pre_hook(keep, with_kwargs=True), _evaluating(module):
        for index, batch in enumerate(_loader(trainer)):
            batch = trainer.strategy.batch_to_device(trainer.precision_plugin.convert_input(batch))
            with trainer.precision_plugin.train_step_context():
                step(batch, index) if takes_index else step(batch)
    if trainer.world_size > 1:
        every: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(every, rows)
        rows = [row for part in every for row in part]
    features, target, weight = zip(*rows, strict=True)
    return Features(
        torch.cat(features), torch.cat(target), None if weight[0] is None else torch.cat(weight)
    )


@contextmanager
def _evaluating(module: LightningModule) -> Iterator[None]:
    """In evaluation mode, and without logs, which are not allowed at the end of training."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    logs: Any = {"log": _nothing, "log_dict": _nothing}
    vars(module).update(logs)
    try:
        yield
    finally:
        for name in logs:
            del vars(module)[name]
        for part, mode in modes.items():
            part.training = mode


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass
