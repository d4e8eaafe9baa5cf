"""The figures and numbers of docs/choosing.md: what prior, covariance, bound and head do.

    python examples/choosing.py --output docs/images    # under a minute on one core

Everything is seeded. Regression heads in the figures are solved in closed form on the features
of one trained network, so that each panel differs from the next by one choice alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import lastlayer as ll
from lastlayer import metrics, ood, plots

Pair = tuple[Tensor, Tensor]
Bound = Literal["jensen", "tilted"]
Family = Literal["dense", "low_rank", "diagonal"]
NOISE = 0.3  # standard deviation of the targets
WIDTH = 50


def train(model: nn.Module, data: Pair, epochs: int, rate: float) -> list[dict[str, float]]:
    """Minimise the loss by Adam on all data at once; the parts of the objective, epoch by epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    history = []
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        loss = model(*data)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        row = {"epoch": epoch, "loss": loss.item(), "learning_rate": schedule.get_last_lr()[0]}
        optimizer.step()
        schedule.step()
        if epoch % 10 == 0:
            with torch.no_grad():
                elbo = model.elbo(*data)  # type: ignore[operator]
            parts = {name: value.item() for name, value in elbo._asdict().items()}
            history.append({**row, **parts})
    return history


def mlp(num_inputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(num_inputs, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()
    )


# -------------------------------------------------------------------------------- regression


def wave(count: int) -> Pair:
    """Points of a noisy sine in [−4, −1] ∪ [1, 4], (T, 1) each."""
    x = (1 + 3 * torch.rand(count, 1)) * (torch.randint(2, (count, 1)) * 2 - 1)
    return x, x.sin() + NOISE * torch.randn_like(x)


def bands(
    path: Path, backbone: nn.Module, data: Pair, panels: dict[str, dict[str, Any]], columns: int
) -> dict[str, float]:
    """Solve a head per panel on the same features and draw its band; what the bands show."""
    x, y = data
    grid = torch.linspace(-7, 7, 281).unsqueeze(-1)
    torch.manual_seed(1)
    test = wave(4000)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 0.5 + 2.6 * rows), layout="constrained", dpi=110)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    numbers: dict[str, float] = {}
    for ax, (title, options) in zip(axes.flat, panels.items(), strict=True):
        head = ll.Regression(WIDTH, num_data=len(x), bias=True, **options)
        head.fit_exact(backbone(x), y, estimate_noise=True)
        prediction = head(backbone(grid))
        plots.predictive_band(grid, prediction, data, ax=ax)
        handles, labels = ax.get_legend_handles_labels()
        ax.get_legend().remove()
        ax.set_title(title, fontsize="medium")
        ax.set_ylim(-4, 4)
        ax.label_outer()
        gap = prediction.epistemic_variance.sqrt()[grid.abs() < 0.5].mean().item()
        found = metrics.evaluate(ll.Network(backbone, head), test)
        numbers[f"{title}: epistemic stddev in the gap"] = gap
        numbers[f"{title}: noise stddev"] = prediction.noise_variance[0, 0].sqrt().item()
        numbers[f"{title}: test NLL"] = found["nll"]
        numbers[f"{title}: coverage of 90 %"] = found["coverage_0.9"]
        numbers[f"{title}: −ELBO/T"] = head(backbone(x), y).item()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path)
    return numbers


def run_regression(folder: Path) -> dict[str, float]:
    torch.manual_seed(0)
    data = wave(40)
    backbone = mlp(1)
    model = ll.Network(backbone, ll.Regression(WIDTH, num_data=40, bias=True))
    history = train(model, data, 1500, 1e-2)
    figure = Figure(figsize=(6, 3.6), layout="constrained", dpi=110)
    plots.training_curves(history, num_data=40, ax=figure.subplots())
    figure.savefig(folder / "choosing-training.png")
    backbone.requires_grad_(False)
    targets: Callable[..., ll.Prior] = ll.Prior.from_targets
    noise = {"num_data": 40, "num_outputs": 1}
    priors = {
        "variance = 0.01": ll.Prior(variance=0.01),
        "variance = 1": ll.Prior(variance=1),
        "variance = 100": ll.Prior(variance=100),
        "kl_weight = 0.1": ll.Prior(kl_weight=0.1),
        "kl_weight = 1": ll.Prior(),
        "kl_weight = 10": ll.Prior(kl_weight=10),
        "noise stddev 1, strength 1": targets(noise_precision=1, noise_strength=1, **noise),
        "noise stddev 1, strength 30": targets(noise_precision=1, noise_strength=30, **noise),
        "noise stddev 0.1, strength 1": targets(noise_precision=100, noise_strength=1, **noise),
    }
    panels: dict[str, dict[str, Any]] = {name: {"prior": prior} for name, prior in priors.items()}
    numbers = bands(folder / "choosing-prior.png", backbone, data, panels, 3)
    families: tuple[Family, ...] = ("dense", "low_rank", "diagonal")
    for name in families:  # and with a backbone of its own
        torch.manual_seed(0)
        data = wave(40)
        head = ll.Regression(WIDTH, num_data=40, bias=True, covariance=name)
        model = ll.Network(mlp(1), head)
        train(model, data, 1500, 1e-2)
        torch.manual_seed(1)
        found = metrics.evaluate(model, wave(4000))
        numbers[f"{name}, trained together: −ELBO/T"] = model(*data).item()
        numbers[f"{name}, trained together: test NLL"] = found["nll"]
        numbers[f"{name}, trained together: coverage of 90 %"] = found["coverage_0.9"]
    panels = {name: {"covariance": name} for name in families}
    return numbers | bands(folder / "choosing-covariance.png", backbone, data, panels, 3)


# ---------------------------------------------------------------------------- classification


def moons(count: int, noise: float = 0.25) -> Pair:
    label = torch.arange(count) % 2
    angle = math.pi * torch.rand(count)
    upper = torch.stack([angle.cos(), angle.sin()], -1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], -1)
    x = torch.where(label.unsqueeze(-1) == 0, upper, lower)
    return x + noise * torch.randn_like(x), label


def run_bounds(folder: Path) -> dict[str, float]:
    """Test NLL by the size of the training set, of both bounds, on the same random features."""
    sizes, seeds = (20, 60, 200), range(5)
    found: dict[Bound, list[list[dict[str, float]]]] = {"jensen": [], "tilted": []}
    for bound, rows in found.items():
        for size in sizes:
            row = []
            for seed in seeds:
                torch.manual_seed(seed)
                data, test = moons(size), moons(2000)
                layer = nn.Linear(2, WIDTH).requires_grad_(False)
                layer.weight.mul_(3)
                backbone = nn.Sequential(layer, nn.Tanh())
                head = ll.DiscriminativeClassification(
                    WIDTH, 2, num_data=size, bound=bound, bias=True
                )
                model = ll.Network(backbone, head)
                train(model, data, 200, 0.05)
                loss = {"loss": model(*data).item()}
                row.append(loss | metrics.evaluate(model, test, batch_size=2000))
            rows.append(row)
    figure = Figure(figsize=(9, 3.2), layout="constrained", dpi=110)
    numbers: dict[str, float] = {}
    for ax, name in zip(figure.subplots(1, 3), ("loss", "nll", "ece"), strict=True):
        for (bound, rows), colour in zip(found.items(), ("#0072b2", "#d55e00"), strict=True):
            values = torch.tensor([[run[name] for run in row] for row in rows])
            mean, error = values.mean(1), values.std(1) / len(seeds) ** 0.5
            style: dict[str, Any] = {"color": colour, "marker": "o", "capsize": 3, "label": bound}
            ax.errorbar(list(sizes), mean.tolist(), error.tolist(), **style)
            for size, value, spread in zip(sizes, mean, error, strict=True):
                numbers[f"{bound}, T = {size}: {name}"] = value.item()
                numbers[f"{bound}, T = {size}: {name}, standard error"] = spread.item()
        ax.set(xscale="log", xlabel="T", xticks=sizes, xticklabels=sizes)
        ax.minorticks_off()
        ax.set_title({"loss": "training loss, −ELBO/T", "nll": "test NLL", "ece": "test ECE"}[name])
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    figure.savefig(folder / "choosing-bound.png")
    return numbers


def run_heads(folder: Path) -> dict[str, float]:
    """The generative and the discriminative head on half-moons, and what lies outside of them."""
    numbers: dict[str, float] = {}
    figure = Figure(figsize=(11, 3.8), layout="constrained", dpi=110)
    axes = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    head: ll.Head
    for name in ("generative", "discriminative"):
        torch.manual_seed(0)
        data, test = moons(400, 0.15), moons(2000, 0.15)
        angle = 2 * math.pi * torch.rand(1000)
        ring = torch.stack([0.5 + 3 * angle.cos(), 0.25 + 3 * angle.sin()], -1)
        if name == "generative":
            prior = ll.Prior(noise_dof=WIDTH)
            generative = ll.GenerativeClassification(WIDTH, 2, num_data=400, prior=prior)
            generative.observe(data[1])
            head, score = generative, "feature_density"
        else:
            head = ll.DiscriminativeClassification(WIDTH, 2, num_data=400, bias=True)
            score = "predictive_entropy"
        backbone = nn.Sequential(nn.Linear(2, WIDTH), Residual(), Residual())
        model = ll.Network(backbone, head)
        train(model, data, 500, 1e-2)
        if name == "generative":
            plots.feature_density(model, *data, ax=axes[0])
        inside, outside = (ood.scores(model, inputs, score) for inputs in (test[0], ring))
        ax = axes[1 if name == "generative" else 2]
        plots.ood_histogram(inside, outside, label=f"{score}, nats", ax=ax)
        ax.set_title(name, fontsize="medium")
        everything = metrics.evaluate(model, test) | metrics.ood(inside, outside)
        numbers |= {f"{name}: {fact}": value for fact, value in everything.items()}
    for other in ("mutual_information", "epistemic_variance"):  # of the discriminative, the last
        detection = metrics.evaluate_ood(model, test[0], ring, other)
        numbers[f"{name}: auroc of {other}"] = detection["auroc"]
    figure.savefig(folder / "choosing-heads.png")
    return numbers


class Residual(nn.Linear):
    """A hidden layer, added to its input, so that distances in the input survive."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.elu(super().forward(x))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = "folder to write the figures to (%(default)s)"
    parser.add_argument("--output", type=Path, default="choosing-output", metavar="DIR", help=where)
    folder = parser.parse_args(arguments).output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for run in (run_regression, run_bounds, run_heads):
        for fact, value in run(folder).items():
            print(f"{fact:60} {value:9.3f}")


if __name__ == "__main__":
    main()
