"""Bounds and heads on half-moons, for docs/choosing.md."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import lastlayer as ll
from benchmarks.report import Row
from docs.figures.runs import Config, Pair, Sections, Trial, mean_and_error, means, train
from lastlayer import metrics, ood, plots

Bound = Literal["jensen", "tilted"]
Kind = Literal["generative", "discriminative"]
BOUNDS: tuple[Bound, ...] = ("jensen", "tilted")
TITLES = {"loss": "training loss, −ELBO/T", "nll": "test NLL", "ece": "test ECE"}
SCORES: dict[Kind, tuple[str, ...]] = {
    "generative": ("feature_density", "predictive_entropy"),
    "discriminative": ("predictive_entropy", "mutual_information", "epistemic_variance"),
}


def moons(count: int, noise: float) -> Pair:
    """Points around two half-moons, (T, 2), and which of them, (T,)."""
    label = torch.arange(count) % 2
    angle = math.pi * torch.rand(count)
    upper = torch.stack([angle.cos(), angle.sin()], -1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], -1)
    x = torch.where(label.unsqueeze(-1) == 0, upper, lower)
    return x + noise * torch.randn_like(x), label


def bound_trial(config: Config, size: int, bound: Bound) -> Trial:
    """A head on random features."""
    data, test = (moons(count, config.bound_noise) for count in (size, config.test_size))
    layer = nn.Linear(2, config.width).requires_grad_(False)
    layer.weight.mul_(3)
    head = ll.DiscriminativeClassification(
        config.width, 2, num_data=size, bound=bound, prior=ll.Prior(), bias=True
    )
    return ll.Network(nn.Sequential(layer, nn.Tanh()), head), data, test


def run_bounds(folder: Path, config: Config) -> Sections:
    """Both bounds by the size of the training set, on the same features and data."""
    options = (config.num_seeds, config.bound_epochs, config.bound_learning_rate)
    rows: list[Row] = []
    for size in config.bound_sizes:
        makers = (partial(bound_trial, config, size, bound) for bound in BOUNDS)
        jensen, tilted = (train(make, *options).measure() for make in makers)
        for name in TITLES:
            differences = [b[name] - a[name] for a, b in zip(jensen, tilted, strict=True)]
            values = {"jensen": [run[name] for run in jensen]}
            values |= {"tilted": [run[name] for run in tilted], "difference": differences}
            row: Row = {"metric": name, "num_data": size}
            for key, runs in values.items():
                row[key], row[f"{key}_error"] = mean_and_error(runs)
            rows.append(row)
    draw_bounds(folder / "choosing-bound.png", rows)
    return {"bound": rows}


def draw_bounds(path: Path, rows: list[Row]) -> None:
    figure = Figure(figsize=(9, 3.2), layout="constrained", dpi=110)
    for ax, (name, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        points = [row for row in rows if row["metric"] == name]
        sizes = [row["num_data"] for row in points]
        for bound, colour in zip(BOUNDS, ("#0072b2", "#d55e00"), strict=True):
            mean, error = ([row[key] for row in points] for key in (bound, f"{bound}_error"))
            style: dict[str, Any] = {"color": colour, "marker": "o", "capsize": 3, "label": bound}
            ax.errorbar(sizes, mean, error, **style)
        ax.set(xscale="log", xlabel="T", ylim=(0, None), title=title)
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    figure.savefig(path)


class Residual(nn.Linear):
    """A hidden layer, added to its input, so that distances in the input survive."""

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.elu(super().forward(x))


def head_trial(config: Config, kind: Kind) -> Trial:
    width, size = config.width, config.moons_size
    data, test = (moons(count, config.moons_noise) for count in (size, config.test_size))
    layers = (nn.Linear(2, width), Residual(width, width), Residual(width, width))
    head: ll.Head = ll.DiscriminativeClassification(
        width, 2, num_data=size, bound="jensen", prior=ll.Prior(), bias=True
    )
    if kind == "generative":
        prior = ll.Prior(noise_dof=width)
        head = ll.GenerativeClassification(width, 2, num_data=size, prior=prior)
    return ll.Network(nn.Sequential(*layers), head), data, test


def run_heads(folder: Path, config: Config) -> Sections:
    """The generative and the discriminative head on half-moons, and a ring around them."""
    options = (config.num_seeds, config.moons_epochs, config.moons_learning_rate)
    angle, centre = torch.linspace(0, 2 * math.pi, config.test_size), torch.tensor([0.5, 0.25])
    ring = centre + config.ring_radius * torch.stack([angle.cos(), angle.sin()], -1)
    figure = Figure(figsize=(11, 3.6), layout="constrained", dpi=110)
    axes = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    heads: list[Row] = []
    scores: list[Row] = []
    for ax, (kind, names) in zip(axes[1:], SCORES.items(), strict=True):
        runs = train(partial(head_trial, config, kind), *options)
        heads.append({"head": kind, **means(runs.measure())})
        for name in names:
            pairs = zip(runs.models, runs.tests, strict=True)
            rates = [metrics.evaluate_ood(model, test[0], ring, name) for model, test in pairs]
            scores.append({"head": kind, "score": name, **means(rates)})
        model = runs.models[0]
        inside, outside = (ood.scores(model, x, names[0]) for x in (runs.tests[0][0], ring))
        if kind == "generative":
            plots.feature_density(model, *runs.data[0], margin=1.2, ax=axes[0])
            plots.ood_histogram(inside, outside, label="−log p(φ), nats", ax=ax)
        else:  # most entropies are close to zero: show their logarithm
            label = "log₁₀ of the entropy, nats"
            plots.ood_histogram(inside.log10(), outside.log10(), label=label, ax=ax)
            ax.set_ylim(0, 1.4 * ax.get_ylim()[1])  # room for the legend
        ax.set_title(f"{kind}: {names[0]}", fontsize="medium")
    axes[0].plot(*ring.T, color="black", lw=1, ls="--", label="ring")
    axes[0].set(xlim=(-3, 4), ylim=(-3.2, 3.7), aspect="equal")
    axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    figure.savefig(folder / "choosing-heads.png")
    return {"heads": heads, "scores": scores}
