"""Training many models of one architecture as one batched model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.utils import _pytree as pytree

from .._data import Batch
from .checkpoint import copied
from .objective import Objective
from .one import weighted_sums
from .options import Factors, Options, decays, mixed_seed, permutation, set_rate
from .stacking import length, part, stacked
from .tracing import trace

VALIDATED = 256  # examples of each model at once; memory for many more takes longer than they
UNTRACED = 60  # calls with tensors of the same shapes; to trace one takes longer


class ManyModels:
    """Models stacked along a new first dimension, each with its own data and order.

    A step is one vectorised pass over all of them. If there are many of a batch shape, it is
    traced, so that later ones run its operations without the cost of finding them again. Models
    that are done leave the stack when half of it is.

    Args:
        models: all alike but for their weights.
        train: for each model.
        validation: for each model, if any.
        options: of `fit`.
        seeds: for each model.
        phase: 0, or 1 for retraining.
        traces: recorded steps of models that differ from these in nothing but their tensors, to
            use and to add to.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        train: Sequence[tuple[Any, ...]],
        validation: Sequence[tuple[Any, ...]] | None,
        options: Options,
        seeds: Sequence[int],
        phase: int,
        traces: dict[Any, Any] | None = None,
    ) -> None:
        if options.precision == "float16":
            raise ValueError("many models train in full or bfloat16 precision, not in float16")
        self.models, self.options, self.seeds, self.phase = models, options, seeds, phase
        self.train = stacked(train, "training")
        self.validation = None if validation is None else stacked(validation, "validation")
        self.device = next(models[0].parameters()).device
        self.active = list(range(len(models)))
        self.rows = list(self.active)  # the model in each row of the stack
        self.skeleton = Objective(copy.deepcopy(models[0]))
        self.decayed = dict(decays(models[0]))
        # what was traced, or how often it was called so far
        self.traced: dict[Any, Any] = {} if traces is None else traces
        self._stack()
        self._reset()

    def _stack(self) -> None:
        """Stack what the models are made of."""
        parameters, buffers = stack_module_state([self.models[at] for at in self.rows])
        self.parameters = {name: parameters.pop(name).detach() for name in self.decayed}
        self.constants = {name: tensor.detach() for name, tensor in parameters.items()}
        self.buffers = {name: buffer.detach() for name, buffer in buffers.items()}

    def _reset(self) -> None:
        """Make an optimiser for the stack as it is now."""
        groups: dict[bool, list[Tensor]] = {True: [], False: []}
        for name, decay in self.decayed.items():
            self.parameters[name].requires_grad_()
            groups[decay].append(self.parameters[name])
        chosen = [(group, Factors(1.0, float(decay))) for decay, group in groups.items()]
        self.optimizer = self.options.make_optimizer(chosen, stacked=True)

    @property
    def examples_per_epoch(self) -> int:
        """How many examples an epoch shows, to all models together."""
        return len(self.active) * length(self.train)

    # ----------------------------------------------------------------------------- training

    def epoch(self, number: int, epochs: int, shown: Any) -> list[dict[str, float]]:
        """Train each model on its data once; see `Engine`."""
        torch.manual_seed(mixed_seed("noise", *self.seeds, self.phase, number))
        self.skeleton.train()
        count = length(self.train)
        orders = [permutation(count, self.seeds[at], self.phase, number) for at in self.rows]
        shuffled = self._take(self.train, torch.stack(orders))
        sums: dict[str, Tensor] = {}
        seen = steps = 0
        while seen < count:
            batch = part(shuffled, seen, seen + self.options.batch_size)
            size = length(batch)
            done = number - 1 + (seen + size / 2) / count
            rate = self.options.rate(done / epochs)
            logged = self._step(batch, rate)
            sums = {name: sums[name] + value if sums else value for name, value in logged.items()}
            seen, steps = seen + size, steps + 1
            shown(size * len(self.active), logged)
        means = {name: (value.double() / steps).tolist() for name, value in sums.items()}
        return [
            {name: values[self.rows.index(at)] for name, values in means.items()}
            | {"learning_rate": rate}
            for at in self.active
        ]

    def _take(self, data: Batch, chosen: Tensor) -> Batch:
        """Some examples of each row's own data, of indices (rows, count)."""
        rows = torch.tensor(self.rows).unsqueeze(1)
        values = pytree.tree_map_only(Tensor, lambda t: t[rows, chosen], tuple(data))
        return Batch(*values).to(self.device)

    def _step(self, batch: Batch, rate: float) -> dict[str, Tensor]:
        """One step of the optimiser for every row."""
        with torch.no_grad():
            gradients, logged = self._call(self._gradients, batch)
        flat = [gradient.reshape(len(gradient), -1) for gradient in gradients.values()]
        norm = torch.cat(flat, 1).norm(dim=1)
        factor = torch.ones_like(norm)
        if self.options.clip is not None:
            factor = (self.options.clip / (norm + 1e-6)).clamp(max=1.0)  # as torch does
        for name, gradient in gradients.items():  # not in place: they may share memory
            self.parameters[name].grad = gradient * _along(factor, gradient)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        return {**logged, "gradient_norm": norm}

    def _gradients(self, parameters: Any, constants: Any, buffers: Any, batch: Any) -> Any:
        """The gradient of every row's loss, and what to log of it."""

        def objective(parameters: Any, constants: Any, buffers: Any, batch: Any) -> Any:
            return functional_call(self.skeleton, _named(parameters, constants, buffers), batch)

        with self.options.autocast(self.device):
            gradient = vmap(grad_and_value(objective, has_aux=True), randomness="different")
            gradients, (_, logged) = gradient(parameters, constants, buffers, batch)
        return gradients, logged

    def _log_probs(self, parameters: Any, constants: Any, buffers: Any, batch: Any) -> Any:
        """Sums of the log-probabilities of every row's examples and of their weights."""

        def sums(parameters: Any, constants: Any, buffers: Any, batch: Any) -> Any:
            inputs, target, *weight = batch
            named = _named(parameters, constants, buffers, prefix="")
            predictive = functional_call(self.skeleton.model, named, (inputs,))
            return weighted_sums(predictive.log_prob(target), *weight)

        with self.options.autocast(self.device):
            return vmap(sums, randomness="different")(parameters, constants, buffers, batch)

    def _call(self, function: Callable[..., Any], batch: Batch) -> Any:
        """Call a function of the stack and a batch; from some call on, one of a shape is traced."""
        arguments = (
            {name: tensor.detach() for name, tensor in self.parameters.items()},
            self.constants,
            self.buffers,
            tuple(values for values in batch if values is not None),
        )
        shapes = [tensor.shape for tensor in pytree.tree_leaves(arguments[-1])]
        key = (function.__name__, self.phase, *shapes)
        if key not in self.traced and self.options.compile:
            self.traced[key] = torch.compile(function)
        known = self.traced.get(key, 0)
        if callable(known):
            return known(*arguments)
        if known < UNTRACED and not self._many_calls(batch):
            self.traced[key] = known + 1
            return function(*arguments)
        self.traced[key] = trace(function, arguments)
        return self.traced[key](*arguments)

    def _many_calls(self, batch: Batch) -> bool:
        """Whether there will be so many batches of this size that tracing pays from the first."""
        size = self.options.batch_size
        calls = self.options.epochs * (length(self.train) // size)
        return length(batch) == size and calls > 2 * UNTRACED

    # --------------------------------------------------------------------- what a loop needs

    @torch.no_grad()
    def validate(self) -> list[float]:
        """The mean negative log-probability of each active model's validation data."""
        assert self.validation is not None
        torch.manual_seed(mixed_seed("validation", *self.seeds))
        self.skeleton.eval()
        count, size = length(self.validation), max(VALIDATED, self.options.batch_size)
        data = self._take(self.validation, torch.arange(count).expand(len(self.rows), -1))
        sums = sum(
            self._call(self._log_probs, part(data, start, start + size))
            for start in range(0, count, size)
        )
        values = (-sums[:, 0] / sums[:, 1]).tolist()
        return [values[self.rows.index(at)] for at in self.active]

    def monitor(self) -> list[dict[str, float]]:
        """Not offered: the models are there as one."""
        raise NotImplementedError("fit_many takes no monitor")

    def snapshot(self) -> tuple[list[int], dict[str, Tensor]]:
        """A copy of the present weights of all rows, and their models."""
        stacks = self.parameters | self.constants | self.buffers
        return list(self.rows), copied(stacks)

    @torch.no_grad()
    def state(self, at: int, snapshot: Any = None) -> dict[str, Any]:
        """A copy of a model's state, now or at a snapshot."""
        stacks = self.parameters | self.constants | self.buffers
        rows, stacks = (self.rows, stacks) if snapshot is None else snapshot
        model = self.models[at]
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        for name, tensor in stacks.items():
            named[name].copy_(tensor[rows.index(at)])
        return copied(model.state_dict())

    @torch.no_grad()
    def release(self, done: list[int]) -> None:
        """Stop training some models."""
        self.active = [at for at in self.active if at not in done]
        if not self.active or 2 * len(self.active) > len(self.rows):
            return
        keep = torch.tensor([self.rows.index(at) for at in self.active])
        states = {name: self.optimizer.state[p] for name, p in self.parameters.items()}
        for stack in (self.parameters, self.constants, self.buffers):
            stack.update({name: tensor.detach()[keep] for name, tensor in stack.items()})
        rows, self.rows = len(self.rows), list(self.active)
        self._reset()
        for name, parameter in self.parameters.items():
            self.optimizer.state[parameter] = {
                key: value[keep] if _has_rows(value, rows) else value
                for key, value in states[name].items()
            }

    def state_dict(self) -> dict[str, Any]:
        """All that training is resumed from."""
        return {
            "parameters": self.parameters,
            "constants": self.constants,
            "buffers": self.buffers,
            "optimizer": self.optimizer.state_dict(),
            "active": self.active,
            "rows": self.rows,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.active, self.rows = list(state["active"]), list(state["rows"])
        for stack, name in (
            (self.parameters, "parameters"),
            (self.constants, "constants"),
            (self.buffers, "buffers"),
        ):
            stack.update({key: value.to(self.device) for key, value in state[name].items()})
        self._reset()
        self.optimizer.load_state_dict(state["optimizer"])


def _named(*stacks: dict[str, Tensor], prefix: str = "model.") -> dict[str, Tensor]:
    return {prefix + name: tensor for stack in stacks for name, tensor in stack.items()}


def _along(factor: Tensor, like: Tensor) -> Tensor:
    """One factor for each row, in the shape, type and place of a stacked tensor."""
    return factor.to(like).reshape(-1, *[1] * (like.ndim - 1))


def _has_rows(value: Any, rows: int) -> bool:
    """Whether a value of an optimiser's state belongs to the rows; a step count does not."""
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == rows
