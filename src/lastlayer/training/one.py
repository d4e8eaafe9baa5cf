"""Training one model, on one process or on several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .._data import Batch, Data, batches, has_own_batches, num_batches, num_examples
from .._sharding import load_whole
from .checkpoint import copied
from .loop import own_random_numbers
from .objective import Objective
from .options import Factors, Options, mixed_seed, permutation, set_rate
from .preparation import NO_TARGET, reseed
from .processes import Part, Processes
from .sharding import clip_gradients, is_shard, load_optimizer, replicated


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
        self.rate = options.rate(0.0)
        named = dict(model.named_parameters())
        groups: dict[tuple[Factors, bool], list[Tensor]] = {}  # an optimiser steps each apart
        for name, factors in options.grouped(model):
            groups.setdefault((factors, is_shard(named[name])), []).append(named[name])
        keys = sorted(groups, key=lambda key: (-key[0].weight_decay, key[0].learning_rate, key[1]))
        chosen = [(groups[key], key[0]) for key in keys]
        self.parameters = [parameter for group, _ in chosen for parameter in group]
        self.optimizer = options.make_optimizer(chosen)
        self.sharded = any(map(is_shard, named.values()))
        if options.precision == "float16" and self.sharded:
            raise ValueError("sharded models train in full or bfloat16 precision, not in float16")
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.precision == "float16")
        objective: Any = Objective(model)
        if self.processes.size > 1:
            objective = replicated(objective)
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
        for batch, factor, count in self._batches(number):
            fraction = min(1.0, (seen + count / 2) / total) if total else 0.5
            logged = self._step(batch, factor, (number - 1 + fraction) / epochs)
            for name, value in logged.items():
                sums[name] = sums[name] + value if name in sums else value
            seen, steps = seen + count, steps + 1
            shown(count, logged)
        if not steps:
            raise ValueError("there are no training data")
        names = list(sums)
        means = torch.stack([sums[name].double().cpu() for name in names]) / steps
        means = self.processes.sum(means.to(self.device)).cpu() / self.processes.size
        row = dict(zip(names, means.tolist(), strict=True))
        return [row | {"learning_rate": self.rate}]

    def _batches(self, number: int) -> Iterator[tuple[Batch, float, int]]:
        """Batches, what their losses count, and the number of examples of all processes."""
        options, processes = self.options, self.processes
        if has_own_batches(self.train):
            seed = mixed_seed("order", options.seed, self.phase, number)
            reseed(self.train, seed, number)
            size = -(-options.batch_size // processes.size)  # of an IterableDataset
            for batch in self._own_batches(self.train, size, in_step=True):
                yield batch, 1.0, batch.size * processes.size
            return
        order = permutation(num_examples(self.train), options.seed, self.phase, number)
        parts = processes.share(order, options.batch_size)
        for batch, part in zip(self._read(self.train, parts), parts, strict=True):
            yield batch, part.factor, part.total

    def _own_batches(self, data: Data, size: int, *, in_step: bool) -> Iterable[Batch]:
        """Data in batches of their own, which processes may have to read in step."""
        found = batches(data, size, device=self.device)
        unknown = has_own_batches(data) and num_batches(data) is None
        return self.processes.in_step(found) if in_step and unknown else found

    def _read(self, data: Data, parts: list[Part]) -> Iterator[Batch]:
        """Parts of batches of tensors or a Dataset; all but the last are of one size."""
        if not parts:
            return iter(())
        order = torch.cat([part.order for part in parts])
        return batches(data, len(parts[0].order), order=order, device=self.device)

    def _step(self, batch: Batch, factor: float, done: float) -> dict[str, Tensor]:
        """One step of the optimiser."""
        if batch.target is None:
            raise ValueError(NO_TARGET)
        options, scaler = self.options, self.scaler
        self.rate = options.rate(done)
        set_rate(self.optimizer, self.rate)
        if options.augment is not None:
            with torch.no_grad():
                batch = batch._replace(inputs=options.augment(batch.inputs))
        self.optimizer.zero_grad(set_to_none=True)
        with options.autocast(self.device):
            loss, logged = self.objective(*(part for part in batch if part is not None))
        if factor != 1:
            loss = factor * loss
            logged = {name: factor * value for name, value in logged.items()}
        scaler.scale(loss).backward()
        scaler.unscale_(self.optimizer)
        limit = float("inf") if options.clip is None else options.clip
        norm = clip_gradients(self.parameters, limit)
        scaler.step(self.optimizer)
        scaler.update()
        return {**logged, "gradient_norm": norm}

    @torch.no_grad()
    def validate(self) -> list[float]:
        """The mean negative log-probability of the validation data."""
        assert self.validation is not None
        torch.manual_seed(mixed_seed("validation", self.options.seed))
        self.model.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # Σ w log p, Σ w
        size = 8 * self.options.batch_size  # no activations are kept
        for (inputs, target, weight), counts in self._validation(size):
            if target is None:
                raise ValueError("validation data must be (inputs, target)")
            with self.options.autocast(self.device):
                log_prob = self.model(inputs).log_prob(target)
            if counts:
                sums += weighted_sums(log_prob, weight)
        total, count = self.processes.sum(sums).tolist()
        if not count:
            raise ValueError("the validation data are empty, or their weights all zero")
        return [-total / count]

    def monitor(self) -> list[dict[str, float]]:
        """The numbers of the option of that name."""
        assert self.options.monitor is not None
        self.model.eval()
        with torch.no_grad(), own_random_numbers():
            found = self.options.monitor(self.model)
        return [{name: float(value) for name, value in found.items()}]

    def _validation(self, size: int) -> Iterator[tuple[Batch, bool]]:
        """This process's batches of the validation data, and whether they count."""
        assert self.validation is not None
        data, processes = self.validation, self.processes
        if processes.size == 1 or has_own_batches(data):
            for batch in self._own_batches(data, size, in_step=self.sharded):
                yield batch, True
            return
        parts = processes.share(torch.arange(num_examples(data)), size * processes.size)
        for batch, part in zip(self._read(data, parts), parts, strict=True):
            yield batch, part.factor > 0

    def snapshot(self) -> dict[str, Any]:
        """A copy of the present weights."""
        return copied(self.model.state_dict())

    def state(self, _: int, snapshot: dict[str, Any] | None = None) -> dict[str, Any]:
        """A copy of the model's state, now or at a snapshot."""
        return self.snapshot() if snapshot is None else snapshot

    def release(self, done: list[int]) -> None:
        """Stop training the model, if it is done."""
        self.active = [at for at in self.active if at not in done]
        if not self.active:
            self.optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """All that training is resumed from; on several processes all must ask for it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "active": self.active,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        load_whole(self.model, state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
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
