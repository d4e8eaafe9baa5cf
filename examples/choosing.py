"""The figures and numbers of docs/choosing.md: what prior, covariance, bound and head do.

    python examples/choosing.py            # about a minute on one core
    python examples/choosing.py --quick    # few epochs and seeds, to see that everything works

The page itself is made in the repository:

    python examples/choosing.py --output docs/images --json results/choosing.json
    python benchmarks/tables.py

Everything is seeded. Numbers are means over seeds, each with its own data and network; pictures
show the first. Regression heads are solved in closed form on the features of the trained network,
so that each panel differs from the next by one choice alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

# Whoever starts this file, `python examples/choosing.py` or `python -m examples.choosing`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from lastlayer import metrics, ood, plots

Pair = tuple[Tensor, Tensor]
Trial = tuple[ll.Network, Pair, Pair]  # a model, and data to train and to test it on
Sections = dict[str, list[Row]]
Family = Literal["dense", "low_rank", "diagonal"]
Bound = Literal["jensen", "tilted"]
Kind = Literal["generative", "discriminative"]

FAMILIES: tuple[Family, ...] = ("dense", "low_rank", "diagonal")
BOUNDS: tuple[Bound, ...] = ("jensen", "tilted")
TITLES = {"loss": "training loss, −ELBO/T", "nll": "test NLL", "ece": "test ECE"}
SCORES: dict[Kind, tuple[str, ...]] = {
    "generative": ("feature_density", "predictive_entropy"),
    "discriminative": ("predictive_entropy", "mutual_information", "epistemic_variance"),
}


@dataclass(frozen=True)
class Config:
    width: int = 50
    num_seeds: int = 10  # 0, 1, 2 and so on
    test_size: int = 2000
    wave_size: int = 40
    wave_noise: float = 0.3  # standard deviation of the targets
    wave_epochs: int = 1500
    wave_learning_rate: float = 1e-2
    bound_sizes: tuple[int, ...] = (20, 60, 200)
    bound_noise: float = 0.25  # standard deviation of the inputs around the moons
    bound_epochs: int = 200
    bound_learning_rate: float = 5e-2
    moons_size: int = 400
    moons_noise: float = 0.15
    moons_epochs: int = 200
    moons_learning_rate: float = 1e-2
    ring_radius: float = 3.0


QUICK = Config(
    num_seeds=2,
    test_size=200,
    wave_epochs=60,
    bound_sizes=(20, 60),
    bound_epochs=60,
    moons_epochs=30,
)


class Runs(NamedTuple):
    """The same training with several seeds, one of each per seed."""

    models: list[ll.Network]
    data: list[Pair]
    tests: list[Pair]
    histories: list[ll.History]

    def measure(self) -> list[dict[str, float]]:
        """The training loss and the metrics of the test data."""
        with torch.no_grad():
            return [
                {"loss": model(*data).item()} | metrics.evaluate(model, test)
                for model, data, test in zip(*self[:3], strict=True)
            ]


def train(make: Callable[[], Trial], num_seeds: int, epochs: int, learning_rate: float) -> Runs:
    """All seeds at once, all examples in each step, and a learning rate that rises and falls."""
    trials = []
    for seed in range(num_seeds):
        torch.manual_seed(seed)
        trials.append(make())
    models, data, tests = (list(part) for part in zip(*trials, strict=True))
    options: dict[str, Any] = {"batch_size": len(data[0][0]), "learning_rate": learning_rate}
    histories = ll.fit_many(models, data, epochs=epochs, schedule="warmup_cosine", **options)
    return Runs(models, data, tests, histories)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Over seeds: the mean and its standard error."""
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Over seeds, of each number."""
    return {name: statistics.mean(run[name] for run in found) for name in found[0]}


# -------------------------------------------------------------------------------- regression


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
    """Means over seeds for each choice, and by how much its test NLL is above the reference's."""
    gap = torch.linspace(-0.5, 0.5, 21).unsqueeze(-1)
    usual = [run["nll"] for run in reference.measure()]
    rows: list[Row] = []
    for choice, runs in choices.items():
        measured = runs.measure()
        found = []
        for run, model in zip(measured, runs.models, strict=True):
            prediction = model(gap)
            noise, weights = prediction.noise_variance, prediction.epistemic_variance
            stddevs = {"noise_stddev": noise[0, 0].sqrt().item()}
            stddevs["gap_stddev"] = weights.sqrt().mean().item()
            found.append({name: run[name] for name in ("loss", "nll", "coverage_0.9")} | stddevs)
        more = [run["nll"] - nll for run, nll in zip(measured, usual, strict=True)]
        difference, error = mean_and_error(more)
        row = {"choice": choice, **means(found)}
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


# ---------------------------------------------------------------------------- classification


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
    head = ll.DiscriminativeClassification(config.width, 2, num_data=size, bound=bound, bias=True)
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
    head: ll.Head = ll.DiscriminativeClassification(width, 2, num_data=size, bias=True)
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
            found = [metrics.evaluate_ood(model, test[0], ring, name) for model, test in pairs]
            scores.append({"head": kind, "score": name, **means(found)})
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = "folder to write the figures to (%(default)s)"
    parser.add_argument("--output", type=Path, default="choosing-output", metavar="DIR", help=where)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to write the numbers to")
    parser.add_argument("--quick", action="store_true", help="few epochs and seeds")
    chosen = parser.parse_args(arguments)
    config = QUICK if chosen.quick else Config()
    chosen.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    start = time.process_time()
    sections: Sections = {}
    for run in (run_regression, run_bounds, run_heads):
        found = run(chosen.output, config)
        for title, rows in found.items():
            print_table(title, rows)
        sections |= found
    print(f"\nFigures in {chosen.output}")
    if chosen.json:
        about = environment() | {"processor_seconds": round(time.process_time() - start, 1)}
        del about["vbll"]  # not compared with
        write_json(chosen.json, asdict(config), about, sections)


if __name__ == "__main__":
    main()
