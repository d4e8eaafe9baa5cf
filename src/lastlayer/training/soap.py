"""SOAP: Adam in a basis that follows the gradients, for small networks that are hard to fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .._checks import check_count, check_positive

State = dict[str, Any]


class SOAP(Optimizer):
    r"""Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al., 2024).

    Of the gradient G of a matrix, running means of $GG^\top$ and $G^\top G$ are kept. Adam's step
    is taken in the basis of their eigenvectors, where the entries of G are least correlated.
    Vectors, and before the first basis matrices, are trained as AdamW does, whose weight decay this
    is too.

    A parameter of more than two dimensions, such as the kernel of a convolution, counts as a
    matrix whose rows are its first dimension. In a group of parameters with `stacked=True` the
    first dimension counts models, which share nothing; `fit_many` says so of its own accord.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: decay of the means of the gradient and, in the basis, of its square.
        memory: decay of the means that the basis is from.
        every: for how many steps a basis stays; the first comes after as many.
        eps: is added to the root of the mean square.
        weight_decay: decoupled, as in AdamW.
        max_size: a larger side of a matrix keeps the basis it has, to save time.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 3e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        memory: float = 0.99,
        every: int = 20,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        max_size: int = 1024,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps)):
            check_positive(name, value)
        for name, value in (("every", every), ("max_size", max_size)):
            check_count(name, value)
        if not 0.0 <= weight_decay < math.inf:
            raise ValueError(
                f"weight_decay must be a finite number of at least 0, not {weight_decay}"
            )
        for name, value in (("betas", betas[0]), ("betas", betas[1]), ("memory", memory)):
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name} must be at least 0 and less than 1, not {value}")
        options = {"lr": lr, "betas": betas, "memory": memory, "every": every, "eps": eps}
        options |= {"weight_decay": weight_decay, "max_size": max_size, "stacked": False}
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for options in self.param_groups:
            for parameter in options["params"]:
                if parameter.grad is not None and parameter.numel():
                    if parameter.grad.layout != torch.strided or parameter.is_complex():
                        raise TypeError("SOAP needs dense gradients of real parameters")
                    if hasattr(parameter, "full_tensor"):
                        raise TypeError(
                            "SOAP needs whole parameters, and these are sharded over processes; "
                            "use AdamW, or do not shard the model"
                        )
                    gradient = _matrices(parameter.grad, options["stacked"])
                    change, factor = _adam(self.state[parameter], gradient, options)
                    parameter.mul_(1 - options["lr"] * options["weight_decay"])
                    parameter.sub_(change.view_as(parameter), alpha=options["lr"] * factor)
        return loss


def _adam(state: State, gradient: Tensor, options: dict[str, Any]) -> tuple[Tensor, float]:
    """Adam's step for the learning rate one, taken in the basis and turned back; and its factor."""
    if not state:
        state |= _initial(gradient, options["max_size"])
    state["step"] += 1
    count, (decay, decay_square) = int(state["step"]), options["betas"]
    _accumulate(state, gradient, options["memory"])
    if count % options["every"] == 0:  # not before: the first gradients leave most of it open
        _renew(state)
    turned = _turn(state, gradient)
    state["mean"].lerp_(turned, 1 - decay)
    state["square"].mul_(decay_square).addcmul_(turned, turned, value=1 - decay_square)
    root = state["square"].sqrt().mul_((1 - decay_square**count) ** -0.5).add_(options["eps"])
    return _turn(state, state["mean"] / root, back=True), 1 / (1 - decay**count)


def _matrices(gradient: Tensor, stacked: bool) -> Tensor:
    """One matrix for each model, (M, rows, columns)."""
    models = gradient if stacked else gradient.unsqueeze(0)
    rows = models.shape[1] if models.dim() > 1 else 1
    return models.reshape(len(models), rows, -1)


def _initial(gradient: Tensor, max_size: int) -> State:
    """What is kept of a parameter, before any step."""
    num_models, *sides = gradient.shape
    state: State = {"step": torch.tensor(0.0, dtype=torch.float32)}
    state |= {"mean": torch.zeros_like(gradient), "square": torch.zeros_like(gradient)}
    for name, size in zip(("left", "right"), sides, strict=True):
        if min(sides) > 1 and size <= max_size:
            state[f"{name}_moment"] = gradient.new_zeros(num_models, size, size)
            state[name] = torch.eye(size).to(gradient).repeat(num_models, 1, 1)
    return state


def _accumulate(state: State, gradient: Tensor, memory: float) -> None:
    """Let the second moments of both sides follow the gradient."""
    share = {"beta": memory, "alpha": 1 - memory}
    if "left" in state:
        state["left_moment"].baddbmm_(gradient, gradient.mT, **share)
    if "right" in state:
        state["right_moment"].baddbmm_(gradient.mT, gradient, **share)


def _renew(state: State) -> None:
    """Take the eigenvectors of the second moments as the basis.

    The mean moves there, and the mean squares as variances of uncorrelated entries do. In their old
    places, beside entries of another size, they would let a step be of any length.
    """
    for name in ("left", "right"):
        if name in state:
            moment = torch.nan_to_num(state[f"{name}_moment"].double(), 0.0, 0.0, 0.0)
            basis = torch.linalg.eigh(moment).eigenvectors.to(state[name])
            move = basis.mT @ state[name]
            for kept, by in (("mean", move), ("square", move.square())):
                state[kept] = by @ state[kept] if name == "left" else state[kept] @ by.mT
            state[name] = basis


def _turn(state: State, matrices: Tensor, back: bool = False) -> Tensor:
    """Matrices in the basis, or back from there."""
    if "left" in state:
        matrices = (state["left"] if back else state["left"].mT) @ matrices
    if "right" in state:
        matrices = matrices @ (state["right"].mT if back else state["right"])
    return matrices
