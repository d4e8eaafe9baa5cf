"""Training one model, on one process or on several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .._data import Batch, Data, batches, has_own_batches, num_examples
from ..heads import Head
from ..network import Network
from .checkpoint import copied
from .options import Options, decays, mixed_seed, permutation
from .processes import Processes
from .start import NO_TARGET, reseed


class Objective(nn.Module):
    """The loss of a model and its parts, as one forward pass for compilers and processes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, inputs: Any, target: Tensor | None, weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and what to note of it."""
        if isinstance(self.model, Head | Network) and target is not None:
            elbo = self.model.elbo(inputs, target, weight)
            loss = self.model.loss(elbo)
            found = elbo._asdict().items()
            parts = {name: part.detach() for name, part in found if part is not None}
        else:  # any module with the same two calls
            arguments = (inputs, target) if weight is None else (inputs, target, weight)
            loss, parts = self.model(*arguments), {}
        return loss, {"loss": loss.detach(), **parts}


class OneModel:
    """One model and its optimiser.

    Data is a tuple of tensors or a Dataset, which are shuffled here, or an iterable of batches.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Data,
        validation: Data | None,
        options: Options,
        phase: int,
        processes: Processes,
    ) -> None:
        self.model, self.train, self.validation = model, train, validation
        self.options, self.phase = options, phase
        self.device = next(model.parameters()).device
        self.processes, self.rank = processes, processes.rank
        self.active = [0]
        named = dict(model.named_parameters())
        parameters: dict[bool, list[Tensor]] = {True: [], False: []}
        for name, decay in decays(model):
            parameters[decay].append(named[name])
        self.parameters = [*parameters[True], *parameters[False]]
        self.optimizer = options.make_optimizer(parameters[True], parameters[False])
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.precision == "float16")
        objective: Any = Objective(model)
        if self.processes.size > 1:
            objective = DistributedDataParallel(objective)
        self.objective = torch.compile(objective) if options.compile else objective

    @property
    def examples_per_epoch(self) -> int | None:
        """How many examples an epoch shows, if that is known."""
        try:
            parts = self.processes.size if has_own_batches(self.train) else 1
            return parts * num_examples(self.train)
        except TypeError:
            return None

    def epoch(self, number: int, epochs: int, shown: Any) -> list[dict[str, float]]:
        """Train on all the data once; see `Engine`."""
        torch.manual_seed(mixed_seed("noise", self.options.seed, self.phase, number, self.rank))
        self.model.train()
        total = self.examples_per_epoch
        seen, sums = 0, dict[str, Tensor]()
        steps = 0
        for batch in self._batches(number):
            count = batch.size * self.processes.size
            fraction = min(1.0, (seen + count / 2) / total) if total else 0.5
            notes = self._step(batch, (number - 1 + fraction) / epochs)
            for name, value in notes.items():
                sums[name] = sums[name] + value if name in sums else value
            seen, steps = seen + count, steps + 1
            shown(count, notes)
        if not steps:
            raise ValueError("there are no training data")
        names = list(sums)
        means = torch.stack([sums[name].double().cpu() for name in names]) / steps
        means = self.processes.sum(means.to(self.device)).cpu() / self.processes.size
        row = dict(zip(names, means.tolist(), strict=True))
        return [row | {"learning_rate": self.optimizer.param_groups[0]["lr"]}]

    def _batches(self, number: int) -> Iterator[Batch]:
        options, processes = self.options, self.processes
        if has_own_batches(self.train):
            seed = mixed_seed("order", options.seed, self.phase, number)
            reseed(self.train, seed, number)
            yield from batches(self.train, device=self.device)
            return
        order = permutation(num_examples(self.train), options.seed, self.phase, number)
        share = processes.share(order, options.batch_size)
        size = processes.local_size(options.batch_size)
        weights = None if share.weight is None else share.weight.split(size)
        found = batches(self.train, size, order=share.order, device=self.device)
        for at, batch in enumerate(found):
            yield batch if weights is None else _reweighted(batch, weights[at], self.model)

    def _step(self, batch: Batch, done: float) -> dict[str, Tensor]:
        """One step of the optimiser."""
        if batch.target is None:
            raise ValueError(NO_TARGET)
        options, scaler = self.options, self.scaler
        for group in self.optimizer.param_groups:
            group["lr"] = options.rate(done)
        self.optimizer.zero_grad(set_to_none=True)
        with options.autocast(self.device):
            loss, notes = self.objective(*batch)
        scaler.scale(loss).backward()
        scaler.unscale_(self.optimizer)
        limit = float("inf") if options.clip is None else options.clip
        notes["gradient_norm"] = nn.utils.clip_grad_norm_(self.parameters, limit)
        scaler.step(self.optimizer)
        scaler.update()
        return dict(notes)

    @torch.no_grad()
    def validate(self) -> list[float]:
        """The mean negative log-probability of the validation data."""
        assert self.validation is not None
        torch.manual_seed(mixed_seed("validation", self.options.seed))
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # Σ w log p, Σ w
        order, size = None, 8 * self.options.batch_size  # no activations are kept
        if not has_own_batches(self.validation):
            order = torch.arange(num_examples(self.validation))[self.rank :: self.processes.size]
        for inputs, target, weight in batches(
            self.validation, size, order=order, device=self.device
        ):
            if target is None:
                raise ValueError("validation data must be (inputs, target)")
            with self.options.autocast(self.device):
                log_prob = self.model(inputs).log_prob(target)
            sums += weighted_sums(log_prob, weight)
        total, count = self.processes.sum(sums).tolist()
        if not count:
            raise ValueError("the validation data are empty, or their weights all zero")
        return [-total / count]

    def state(self, _: int) -> dict[str, Any]:
        """A copy of the model's state."""
        return copied(self.model.state_dict())

    def release(self, done: list[int]) -> None:
        """Stop training the model, if it is done."""
        self.active = [at for at in self.active if at not in done]
        if not self.active:
            self.optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """All that training goes on from."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "active": self.active,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.active = list(state["active"])


def weighted_sums(log_prob: Tensor, weight: Tensor | None = None) -> Tensor:
    """Σ w log p and Σ w of some examples, (2,); those with weight zero may be NaN."""
    log_prob = log_prob.double()
    if weight is None:
        return torch.stack([log_prob.sum(), log_prob.new_tensor(float(log_prob.numel()))])
    if weight.shape == (*log_prob.shape, 1):
        weight = weight.squeeze(-1)
    if weight.shape != log_prob.shape:
        raise ValueError(
            f"validation data may have one weight per example, {tuple(log_prob.shape)}, because "
            f"log-probabilities are joint over outputs; got {tuple(weight.shape)}"
        )
    weight = weight.double()
    return torch.stack([(log_prob * weight).where(weight != 0, 0.0).sum(), weight.sum()])


def _reweighted(batch: Batch, factor: Tensor, model: nn.Module) -> Batch:
    """Multiply the weights of examples, for heads of any leading dimensions."""
    inputs, target, weight = batch
    assert target is not None
    factor = factor.to(target.device)
    if weight is None:
        outputs = {head.num_outputs for head in model.modules() if isinstance(head, Head)}
        joint = target.is_floating_point() and target.ndim > 1 and target.shape[-1] in outputs
        weight = torch.ones(target.shape[:-1] if joint else target.shape, device=target.device)
    weight = weight if weight.is_floating_point() else weight.to(factor.dtype)
    factor = factor.to(weight.dtype).reshape(-1, *[1] * (weight.ndim - 1))
    return Batch(inputs, target, weight * factor)
