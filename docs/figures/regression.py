"""Priors and covariances on a sine with a gap, for docs/choosing.md.

Heads are solved in closed form on the features of the trained network, so that each panel differs
from the next by one choice alone.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from matplotlib.figure import Figure
from torch import nn

import lastlayer as ll
from benchmarks.report import Row
from docs.figures.runs import Config, Pair, Runs, Sections, Trial, mean_and_error, means, train
from lastlayer import plots

Family = Literal["dense", "low_rank", "diagonal"]
FAMILIES: tuple[Family, ...] = ("dense", "low_rank", "diagonal")


def wave(count: int, noise: float) -> Pair:
    """Points of a noisy sine in [−4, −1] ∪ [1, 4], (T, 1) each."""
    x = (1 + 3 * torch.rand(count, 1)) * (torch.randint(2, (count, 1)) * 2 - 1)
    return x, x.sin() + noise * torch.randn_like(x)


def wave_trial(config: Config, covariance: Family) -> Trial:
    data, test = (wave(size, config.wave_noise) for size in (config.wave_size, config.test_size))
    width = config.width
    layers = (nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
    head = ll.Regression(width, num_data=config.wave_size, bias=True, covariance=covariance)
    return ll.Network(nn.Sequential(*layers), head), data, test


@torch.no_grad()
def solve(trained: Runs, **options: Any) -> Runs:
    """The same features with new heads, solved in closed form."""
    models = []
    for model, (x, y) in zip(trained.models, trained.data, strict=True):
        head = ll.Regression(model.head.num_features, num_data=len(x), bias=True, **options)
        head.fit_exact(model.backbone(x), y, estimate_noise=True)
        models.append(ll.Network(model.backbone, head))
    return trained._replace(models=models)


def facts(choices: dict[str, Runs], reference: Runs) -> list[Row]:
    """Means over seeds for each choice, and the difference of its test NLL to the reference."""
    gap = torch.linspace(-0.5, 0.5, 21).unsqueeze(-1)
    usual = [run["nll"] for run in reference.measure()]
    rows: list[Row] = []
    for choice, runs in choices.items():
        measured = runs.measure()
        numbers = []
        for run, model in zip(measured, runs.models, strict=True):
            prediction = model(gap)
            noise, weights = prediction.noise_variance, prediction.epistemic_variance
            stddevs = {"noise_stddev": noise[0, 0].sqrt().item()}
            stddevs["gap_stddev"] = weights.sqrt().mean().item()
            numbers.append({name: run[name] for name in ("loss", "nll", "coverage_0.9")} | stddevs)
        more = [run["nll"] - nll for run, nll in zip(measured, usual, strict=True)]
        difference, error = mean_and_error(more)
        row = {"choice": choice, **means(numbers)}
        rows.append(row | {"nll_difference": difference, "nll_difference_error": error})
    return rows


def draw_bands(path: Path, panels: dict[str, Runs]) -> None:
    """The band of the first seed, in a panel for each choice."""
    grid = torch.linspace(-7, 7, 281).unsqueeze(-1)
    num_rows = -(-len(panels) // 3)
    figure = Figure(figsize=(10.2, 0.5 + 2.5 * num_rows), layout="constrained", dpi=110)
    axes = figure.subplots(num_rows, 3, sharex=True, sharey=True, squeeze=False)
    for ax, (title, runs) in zip(axes.flat, panels.items(), strict=True):
        plots.predictive_band(grid, runs.models[0](grid), runs.data[0], ax=ax)
        handles, labels = ax.get_legend_handles_labels()
        ax.get_legend().remove()
        ax.set_title(title, fontsize="medium")
        ax.set(xlim=(-7, 7), ylim=(-4, 4), xticks=range(-6, 7, 2), yticks=range(-4, 5, 2))
        ax.label_outer()
    figure.get_layout_engine().set(wspace=0.04)  # type: ignore[union-attr, call-arg]
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path)


def run_regression(folder: Path, config: Config) -> Sections:
    """Priors and covariances on the features of one network; covariances trained with it."""
    options = (config.num_seeds, config.wave_epochs, config.wave_learning_rate)
    together: dict[str, Runs] = {
        name: train(partial(wave_trial, config, name), *options) for name in FAMILIES
    }
    trained = together["dense"]
    figure = Figure(figsize=(6, 3.6), layout="constrained", dpi=110)
    plots.training_curves(trained.histories[0], num_data=config.wave_size, ax=figure.subplots())
    figure.savefig(folder / "choosing-training.png")
    prior = {name: solve(trained, prior=prior) for name, prior in priors(config.wave_size).items()}
    covariance: dict[str, Runs] = {name: solve(trained, covariance=name) for name in FAMILIES}
    draw_bands(folder / "choosing-prior.png", prior)
    draw_bands(folder / "choosing-covariance.png", covariance)
    sections = {"prior": prior, "covariance": covariance, "together": together}
    return {name: facts(choices, covariance["dense"]) for name, choices in sections.items()}


def priors(num_data: int) -> dict[str, ll.Prior]:
    """Three numbers of a prior, three values each."""
    targets = partial(ll.Prior.from_targets, num_data=num_data, num_outputs=1)
    return {
        "variance = 0.01": ll.Prior(variance=0.01),
        "variance = 1": ll.Prior(variance=1),
        "variance = 100": ll.Prior(variance=100),
        "kl_weight = 0.1": ll.Prior(kl_weight=0.1),
        "kl_weight = 1": ll.Prior(kl_weight=1),
        "kl_weight = 10": ll.Prior(kl_weight=10),
        "noise stddev 1, strength 1": targets(noise_precision=1, noise_strength=1),
        "noise stddev 1, strength 30": targets(noise_precision=1, noise_strength=30),
        "noise stddev 0.1, strength 1": targets(noise_precision=100, noise_strength=1),
    }
