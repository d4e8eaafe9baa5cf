"""A Bayesian last layer for a network that is already trained (paper, appendix B)."""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._checks import check_choice
from .._data import Data, batches, part_of
from .._processes import Processes, num_rows
from ..heads import (
    DiscriminativeClassification,
    GenerativeClassification,
    Head,
    HeteroscedasticRegression,
    NoisyLabelClassification,
    Regression,
    StudentTRegression,
)
from ..network import Network
from .choosing import Choice, by_training_data, by_validation
from .features import Exit, FeatureExtractor, cache_features
from .last_layer import find_last_layer
from .sharing import gathered
from .solvers import fit_features
from .store import Features

HEADS: dict[str, type[Head]] = {
    "regression": Regression,
    "heteroscedastic": HeteroscedasticRegression,
    "student_t": StudentTRegression,
    "discriminative": DiscriminativeClassification,
    "noisy_labels": NoisyLabelClassification,
    "generative": GenerativeClassification,
}


class PostTraining(NamedTuple):
    """What `posttrain` says of its fit."""

    prior_variance: float  # s, of the weights
    reason: str  # by what it was chosen
    passes: int  # 0 for a closed form
    loss: float | None  # −ELBO/T, None for a closed form
    seconds: float  # without those of the backbone
    converged: bool


def posttrain(
    model: nn.Module,
    data: Data,
    head: str | Head | Callable[..., Head] = "discriminative",
    *,
    validation: Data | None = None,
    layer: str | None = None,
    inplace: bool = False,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
    path: Path | str | None = None,
    max_memory_bytes: int = 2**30,
    max_passes: int = 50,
    tolerance: float = 1e-4,
    distributed: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Network:
    """Replace the last linear layer of a trained network by a head, and fit that on its features.

    The backbone runs once over the data, in evaluation mode: neither its weights nor its
    batch-norm statistics change. Regression heads are then solved in closed form, with their noise;
    generative heads, with dense noise unless told, by `GenerativeClassification.fit_features`;
    discriminative heads, and those for noisy labels, initialised with the trained weights and bias,
    by `fit_discriminative`. A head without a bias takes the weights alone; a layer with one output,
    the logit of a binary question, becomes two classes.

    The variance of the head's prior decides how cautious it is. With `validation`, data that the
    network was not trained on, it is the one with the lowest NLL there; of a generative head, they
    choose shrinkage and temperature of the noise instead. Without, "discriminative" or
    "noisy_labels" without a prior refits its layer without parts of the data. If they are
    predicted much worse than the rest, as from the features of a pretrained network, they choose.
    Else the features give the labels away, and nothing in the data tells how good they are on
    others: the head keeps its own prior, which is cautious, but for a network that does not fit its
    training data closely one wide enough for its NLL there. Pass validation data where you can.
    `posttraining` of the network says what was assumed, and how the fit went.

    "regression" without a `prior` has one in the units of the targets: its variance is the mean
    square of the trained weights, the scale of its noise that of the network's residuals, and its
    mean (`head.prior_mean`) is zero for the weights and the trained bias for the bias.

    Args:
        model: a network that takes the inputs of the data as its one argument.
        data: (inputs, target) or (inputs, target, weight) as tensors, Dataset or DataLoader.
        head: "regression", "heteroscedastic", "student_t", "discriminative", "noisy_labels" or
            "generative", with a bias if the layer has one; a callable `(num_features, num_outputs,
            *, num_data, device, dtype)` that makes one; or a head, which is fitted in place.
        validation: as data, of which the network has seen no labels; to choose by.
        layer: dotted name of the layer to replace; by default the linear layer whose output the
            model returns.
        inplace: whether to take the layer out of `model` itself, and not out of a copy.
        batch_size: of the backbone, for tensors and Datasets.
        device: to run on; the model's by default.
        path: of a file in which to keep the features; see `cache_features`.
        max_memory_bytes: of features in main memory, before they go to a file, and of what the
            discriminative solver computes from them.
        max_passes: over the features, of the discriminative solver.
        tolerance: of that solver, in nats per example.
        distributed: whether all processes of `torch.distributed`, started by torchrun for example,
            post-train together. Each runs the backbone on its part of the data: every so many rows
            of tensors and Datasets, or what its own DataLoader or iterable yields. Regression and
            discriminative heads merge statistics of the parts; others gather the features. All
            processes end with the head of one process that has all the data.
        progress: whether to show progress bars; None for where there is a terminal.
        options: of the head, if it is given by name or callable.

    Returns:
        The backbone, without the layer, and the fitted head. Its attribute `posttraining` has the
        prior's variance and by what it was chosen, passes, loss and seconds. There is a warning if
        the optimum was not reached.
    """
    if isinstance(head, str):
        check_choice("head", head, HEADS)
    if isinstance(head, Head) and options:
        raise TypeError(f"{sorted(options)} are for a head yet to be made; this one is made")
    model = model if inplace else copy.deepcopy(model)
    if device is not None:
        model.to(device)
    device = next((parameter.device for parameter in model.parameters()), None)
    processes = Processes.of(distributed, device)
    few, data = _peek(part_of(data, processes.rank, processes.size), batch_size, device)
    site = find_last_layer(model, few, layer)
    stand_in = nn.Identity() if site.returned else Exit()
    stand_in.training = site.module.training
    backbone = stand_in if site.module is model else model
    _exchange(model, site.module, stand_in)
    if not site.returned:
        backbone = FeatureExtractor(backbone)
    try:
        cached = cache_features(
            backbone,
            data,
            batch_size=batch_size,
            path=path,
            max_memory_bytes=max_memory_bytes,
            progress=progress,
        )
        unseen = None
        if validation is not None:
            part = part_of(validation, processes.rank, processes.size)
            unseen = cache_features(backbone, part, batch_size=batch_size, progress=progress)
            unseen = gathered(unseen, processes)
        if not _fits_parts(head):
            cached = gathered(cached, processes, max_memory_bytes)
            processes = Processes.of(False, device)
        with processes.sharing():
            made = _make(head, site.module, cached, options)
        begun = time.perf_counter()
        choice: Choice | None = None
        extra: dict[str, Any] = {}
        if unseen is not None:
            if made.learns_prior:
                raise ValueError(
                    "validation chooses the variance of the prior, which the ELBO shall choose "
                    "too; leave out one of them"
                )
            if made.takes_validation:
                extra["validation"] = unseen
            else:
                choice = by_validation(made, cached, unseen, processes)
        elif isinstance(head, str) and made.refits_layer and "prior" not in options:
            choice = by_training_data(made, cached, processes)
        if choice is not None:
            made.prior = replace(made.prior, variance=choice.variance)
        with processes.sharing():
            losses = fit_features(
                made,
                *cached,
                max_passes=max_passes,
                tolerance=tolerance,
                max_memory_bytes=max_memory_bytes,
                progress=progress,
                **extra,
            )
    except BaseException:
        _exchange(model, stand_in, site.module)  # whole again, if it is not a copy
        raise
    network = Network(backbone, made)
    reached = len(losses) < max(max_passes, 2) or losses[-2] - losses[-1] < tolerance
    if not reached:
        warnings.warn(
            f"the head's loss still fell by more than tolerance={tolerance:g} in the last of "
            f"{max_passes} passes; allow more with max_passes",
            stacklevel=2,
        )
    network.posttraining = PostTraining(
        float(made.prior_variance[0]),
        made.assumption or "as given by the prior" if choice is None else choice.reason,
        len(losses),
        losses[-1] if losses else None,
        time.perf_counter() - begun,
        reached,
    )
    return network


def _peek(data: Data, batch_size: int, device: torch.device | None) -> tuple[Any, Data]:
    """Inputs of the first examples, and data that still has them."""
    stream = batches(data, batch_size, device=device)
    first = next(stream, None)
    if first is None or not first.size:
        raise ValueError("data holds no examples, or its first batch none")
    if isinstance(data, Iterator):  # it cannot be read again
        data = map(tuple, itertools.chain([first], stream))
    return pytree.tree_map_only(Tensor, lambda values: values[:2], first.inputs), data


def _exchange(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in the place of another, under all of its names."""
    for name, part in list(model.named_modules(remove_duplicate=False)):
        if part is old and name:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, new)


def _fits_parts(head: str | Head | Callable[..., Head]) -> bool:
    """Whether processes need not gather the features; of a callable nothing is known."""
    kind: Any = HEADS[head] if isinstance(head, str) else head
    return getattr(kind, "fits_parts", False)


def _make(
    head: str | Head | Callable[..., Head],
    layer: nn.Linear,
    cached: Features,
    options: dict[str, Any],
) -> Head:
    """The head, at the trained weights."""
    num_data = num_rows(len(cached.features))
    if isinstance(head, str):
        if HEADS[head].takes_classes and cached.target.is_floating_point():
            raise TypeError(
                f"a {head} head takes class labels, integers, got {cached.target.dtype}; for "
                "numbers pass head='regression'"
            )
        made = HEADS[head].from_linear(layer, cached, num_data=num_data, **options)
    else:
        if isinstance(head, Head):
            made, made.num_data = head, num_data
        else:
            factory = {"device": layer.weight.device, "dtype": layer.weight.dtype}
            sizes = (layer.in_features, layer.out_features)
            made = head(*sizes, num_data=num_data, **factory, **options)
        made.start_from(layer)
    if cached.features.dtype != made.mean.dtype:
        raise TypeError(
            f"the backbone's features are {cached.features.dtype}, but the head is "
            f"{made.mean.dtype}: convert the head, or the model"
        )
    return made
