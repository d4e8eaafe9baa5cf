"""The sides of a comparison, lastlayer, nn.Linear and vbll, made for the same sizes and data.

A contender has a training step (forward, loss, backward to the parameters and to the features)
and a prediction (up to class probabilities, or mean and variance), both without arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lastlayer as ll

NUM_DATA = 50_000  # T of the objective, the size of CIFAR-10; weighs the KL, costs nothing
RANK = 3  # of low-rank covariances, vbll's default
FLOAT_BYTES = 4
VBLL_LIMIT = 2 * 2**30  # bytes of its largest tensor beyond which vbll is not run

HEADS = ("regression", "discriminative", "generative")
VBLL_COVARIANCES = {"dense": "dense", "diagonal": "diagonal", "low_rank": "lowrank"}


class Size(NamedTuple):
    """B examples of N features, K outputs or classes."""

    batch: int
    width: int
    outputs: int

    def __str__(self) -> str:
        return f"B{self.batch} N{self.width} K{self.outputs}"


class Model(NamedTuple):
    """Which last layer: one of HEADS and the names of its covariance and noise."""

    head: str
    covariance: str
    noise: str = "diagonal"

    def __str__(self) -> str:
        noise = ", dense noise" if self.noise == "dense" else ""
        return f"{self.head} {self.covariance}{noise}"


@dataclass(frozen=True)
class Contender:
    """One side of a comparison, ready to be timed."""

    module: nn.Module
    train: Callable[[], object]
    predict: Callable[[], object]


def make(library: str, model: Model, size: Size, backend: str | None = None) -> Contender:
    """Build the head of "lastlayer", "linear" (with cross-entropy or squared error) or "vbll".

    With a backend of `torch.compile`, forward, loss and backward of training are compiled by it.
    """
    torch.manual_seed(0)
    features = torch.randn(size.batch, size.width, requires_grad=True)
    target = torch.randint(size.outputs, (size.batch,))
    if model.head == "regression":
        target = torch.randn(size.batch, size.outputs)
    make_module, loss, predict = SIDES[library]
    module = make_module(model, size)
    objective: Callable[[Tensor, Tensor], Tensor] = functools.partial(loss, module)
    if backend is not None:
        objective = torch.compile(objective, backend=backend, fullgraph=True)
    return Contender(
        module,
        train_step(module, objective, features, target),
        _without_gradients(functools.partial(predict, module, model.head, features.detach())),
    )


def train_step(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    features: Tensor,
    target: Tensor,
) -> Callable[[], None]:
    """Gradients to None, forward, loss, backward to the parameters and to the features."""
    leaves = [features, *module.parameters()]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        loss(features, target).backward()

    return step


def _without_gradients(call: Callable[[], object]) -> Callable[[], object]:
    def predict() -> object:
        with torch.no_grad():
            return call()

    return predict


# -------------------------------------------------------------------------------- lastlayer


def _lastlayer(model: Model, size: Size) -> nn.Module:
    options: dict[str, Any] = {"num_data": NUM_DATA, "covariance": model.covariance}
    if model.head == "discriminative":  # the paper's bound, and no bias
        return ll.DiscriminativeClassification(
            size.width, size.outputs, bound="jensen", bias=False, **options
        )
    options["noise"] = model.noise
    if model.head == "generative":
        return ll.GenerativeClassification(size.width, size.outputs, **options)
    return ll.Regression(size.width, size.outputs, bias=False, **options)


def _lastlayer_loss(module: nn.Module, features: Tensor, target: Tensor) -> Tensor:
    return module(features, target)


def _lastlayer_predict(module: nn.Module, head: str, features: Tensor) -> object:
    predictive = module(features)
    if head == "regression":
        return predictive.mean, predictive.variance
    return predictive.probs()


# ------------------------------------------------------------------------------- nn.Linear


def _linear(model: Model, size: Size) -> nn.Module:
    return nn.Linear(size.width, size.outputs)


def _linear_loss(module: nn.Module, features: Tensor, target: Tensor) -> Tensor:
    outputs = module(features)
    if target.is_floating_point():
        return F.mse_loss(outputs, target)
    return F.cross_entropy(outputs, target)


def _linear_predict(module: nn.Module, head: str, features: Tensor) -> object:
    outputs = module(features)
    return outputs if head == "regression" else outputs.softmax(-1)


# ------------------------------------------------------------------------------------ vbll


def import_vbll() -> Any:
    """The vbll package, or an explanation of how to get it."""
    try:
        import vbll
    except ImportError as error:
        raise SystemExit(
            "These comparisons need the vbll package: pip install 'lastlayer[authors]' "
            "(in a checkout: pip install -e '.[authors]'), or run without it: --without-vbll"
        ) from error
    return vbll


def vbll_obstacle(model: Model, size: Size) -> str | None:
    """Why vbll cannot be compared here, or None if it can."""
    if model.covariance not in VBLL_COVARIANCES or model.noise != "diagonal":
        return "vbll has no such model"
    if model.head == "generative" and model.covariance != "diagonal":
        return "vbll has no such model"
    if vbll_bytes(model, size) > VBLL_LIMIT:
        return f"vbll asks for {vbll_bytes(model, size) / 1e9:.0f} GB"
    return None


def vbll_bytes(model: Model, size: Size) -> int:
    """Size of the largest tensor of vbll's step: it copies its factors for every example."""
    columns = {"dense": size.width, "low_rank": RANK}.get(model.covariance, 1)
    return size.batch * size.outputs * size.width * columns * FLOAT_BYTES


def _vbll(model: Model, size: Size) -> nn.Module:
    vbll = import_vbll()
    options: dict[str, Any] = {"parameterization": VBLL_COVARIANCES[model.covariance]}
    if model.covariance == "low_rank":
        options["cov_rank"] = RANK
    maker = {
        "regression": vbll.Regression,
        "discriminative": vbll.DiscClassification,
        "generative": vbll.GenClassification,
    }[model.head]
    return maker(size.width, size.outputs, 1 / NUM_DATA, **options)


def _vbll_loss(module: nn.Module, features: Tensor, target: Tensor) -> Tensor:
    return module(features).train_loss_fn(target)


def _vbll_predict(module: nn.Module, head: str, features: Tensor) -> object:
    predictive = module(features).predictive
    return (predictive.mean, predictive.variance) if head == "regression" else predictive.probs


class _Side(NamedTuple):
    make: Callable[[Model, Size], nn.Module]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    predict: Callable[[nn.Module, str, Tensor], object]


SIDES = {
    "lastlayer": _Side(_lastlayer, _lastlayer_loss, _lastlayer_predict),
    "linear": _Side(_linear, _linear_loss, _linear_predict),
    "vbll": _Side(_vbll, _vbll_loss, _vbll_predict),
}
