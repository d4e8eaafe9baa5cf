"""Both panels of the paper's figure 1: a cubic with a gap, and two half-moons.

    python examples/demo.py            # `make demo`; half a minute on two cores
    python examples/demo.py --quick    # a tenth of the epochs, to see that everything works

Settings are those of the paper's appendix D, with these differences:

- The paper's left panel has Bayes-by-backprop features, which this package does not have yet. Here
  the features are a plain network, and all epistemic uncertainty comes from the last layer.
- After training, the regression posterior is solved in closed form on the learned features
  (`head.fit_exact`). Where no data reach, only KL/T pulls S to its prior, and 1000 epochs of SGD
  at this learning rate leave it near its start, far too narrow. Both numbers are printed.
- On the moons, gradients are clipped and the learning rate decays to zero. At a constant 3e-2,
  with Σ near the mode 1/257 of its prior, the steps of the class means are too long: unclipped
  training ends in NaN, clipped training at a test NLL of 0.13 instead of 0.08.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor, nn
from tqdm import tqdm

import lastlayer as ll

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Cubic:
    num_data: int = 100  # paper, appendix D, as all here but two; the caption of figure 1 says 50
    noise: float = 0.1  # standard deviation
    coefficient: float = 1 / 32  # not in the paper; y(4) = 2, so curve and noise are both visible
    width: int = 128
    epochs: int = 1000
    batch_size: int = 32
    learning_rate: float = 3e-4
    final_learning_rate: float = 3e-4
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip: float = 2.0
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    seed: int = 0  # not in the paper


@dataclass(frozen=True)
class Moons:
    num_data: int = 1000  # paper, appendix D, as all here but three
    noise: float = 0.2  # standard deviation
    width: int = 128
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 3e-2
    final_learning_rate: float = 0.0  # not in the paper; on a cosine
    momentum: float = 0.9
    weight_decay: float = 1e-4  # of the backbone only: the head has its prior
    clip: float = 2.0  # not in the paper, which clips so on the cubic
    noise_dof: float = 128.0
    noise_scale: float = 1.0
    seed: int = 0  # not in the paper


def cubic(config: Cubic) -> Pair:
    """Points of a noisy cubic in [−4, −2] ∪ [2, 4], (T, 1) each."""
    side = torch.arange(config.num_data).remainder(2).mul(2).sub(1).unsqueeze(-1)  # −1, 1, −1, …
    x = side * (2 + 2 * torch.rand(config.num_data, 1))
    return x, config.coefficient * x**3 + config.noise * torch.randn_like(x)


def moons(config: Moons) -> Pair:
    """Two interleaved half circles, like scikit-learn's: points (T, 2) and labels (T,)."""
    label = torch.arange(config.num_data).remainder(2)
    angle = math.pi * torch.rand(config.num_data)
    upper = torch.stack([angle.cos(), angle.sin()], -1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], -1)
    x = torch.where(label.unsqueeze(-1) == 0, upper, lower)
    return x + config.noise * torch.randn_like(x), label


def train(
    config: Cubic | Moons, backbone: nn.Module, head: ll.Head, x: Tensor, y: Tensor, epochs: int
) -> list[float]:
    """Minimise the head's loss by SGD with momentum; the mean loss of each epoch."""
    features, last = [*backbone.parameters()], [*head.parameters()]
    decayed: dict[str, Any] = {"params": features, "weight_decay": config.weight_decay}
    rate, final = config.learning_rate, config.final_learning_rate
    optimizer = torch.optim.SGD([decayed, {"params": last}], lr=rate, momentum=config.momentum)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs, final)
    losses = []
    bar = tqdm(range(epochs), desc=type(config).__name__, unit="epoch", mininterval=0.5)
    for _ in bar:
        total = 0.0
        for batch in torch.randperm(len(x)).split(config.batch_size):
            loss = head(backbone(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(features + last, config.clip)
            optimizer.step()
            total += loss.item() * len(batch)
        schedule.step()
        losses.append(total / len(x))
        bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return losses


# ----------------------------------------------------------------- regression, left panel


def run_cubic(path: Path, epochs: int, config: Cubic) -> dict[str, float]:
    """Train a regression head, draw it, return what the figure shows in numbers."""
    torch.manual_seed(config.seed)
    x, y = cubic(config)
    width = config.width
    backbone = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    prior = ll.Prior(noise_dof=config.noise_dof, noise_scale=config.noise_scale)
    head = ll.Regression(width, num_data=len(x), prior=prior)
    losses = train(config, backbone, head, x, y, epochs)
    grid = torch.linspace(-6, 6, 601)
    with torch.no_grad():
        features = backbone(grid.unsqueeze(-1))
        by_sgd = head(features).epistemic_variance.squeeze(-1).sqrt()
        head.fit_exact(backbone(x), y)
        exact_loss = head(backbone(x), y).item()
        prediction = head(features)
        generator = torch.Generator().manual_seed(config.seed)
        draws = [head.sample_function(generator)(features).squeeze(-1) for _ in range(6)]
    truth = config.coefficient * grid**3
    plot_cubic(path, (x, y), (grid, truth), prediction, draws)
    low, high = (end.squeeze(-1) for end in prediction.interval(0.95))
    covered = ((low <= truth) & (truth <= high)).double()
    exact = prediction.epistemic_variance.squeeze(-1).sqrt()
    distance = grid.abs()
    data, gap, beyond = (distance - 3).abs() < 1, distance < 1, distance > 5
    return {
        "loss, first epoch": losses[0],
        "loss, last epoch": losses[-1],
        "loss, posterior solved exactly": exact_loss,
        "noise stddev (0.1 in truth)": prediction.noise_variance.mean().sqrt().item(),
        "epistemic stddev at the data, 2 < |x| < 4": exact[data].mean().item(),
        "epistemic stddev in the gap, |x| < 1": exact[gap].mean().item(),
        "  the same before the exact solve": by_sgd[gap].mean().item(),
        "epistemic stddev beyond, 5 < |x| < 6": exact[beyond].mean().item(),
        "truth inside the 95 % band, |x| < 4": covered[distance < 4].mean().item(),
        "truth inside the 95 % band, 4 < |x| < 6": covered[distance > 4].mean().item(),
    }


# ------------------------------------------------------------ classification, right panel


class Residual(nn.Linear):
    """A hidden layer, added to its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.elu(super().forward(x))


def run_moons(path: Path, epochs: int, config: Moons) -> dict[str, float]:
    """Train a generative head, draw it, return what the figure shows in numbers."""
    torch.manual_seed(config.seed)
    (x, y), (test_x, test_y) = moons(config), moons(config)
    width = config.width  # two hidden layers and ELU: the paper names neither
    backbone = nn.Sequential(nn.Linear(2, width), Residual(width, width), Residual(width, width))
    prior = ll.Prior(noise_dof=config.noise_dof, noise_scale=config.noise_scale)
    head = ll.GenerativeClassification(width, 2, num_data=len(x), prior=prior)
    head.observe(y)
    losses = train(config, backbone, head, x, y, epochs)
    angle = torch.linspace(0, 2 * math.pi, 65)[:-1]
    circle = torch.stack([0.5 + 4 * angle.cos(), 0.25 + 4 * angle.sin()], -1)
    across, up = torch.linspace(-3.2, 4.2, 371), torch.linspace(-2.6, 3.0, 281)
    with torch.no_grad():
        test, far = head(backbone(test_x)), head(backbone(circle))
        plane = head(backbone(torch.stack(torch.meshgrid(across, up, indexing="xy"), -1)))
    log_class = (head.concentration / head.concentration.sum()).log()
    plot_moons(path, (x, y), across, up, plane.log_joint - log_class, plane.log_density())
    return {
        "loss, first epoch": losses[0],
        "loss, last epoch": losses[-1],
        "test accuracy": (test.mode == test_y).double().mean().item(),
        "test negative log-likelihood": -test.log_prob(test_y).mean().item(),
        "mean log-density of test points": test.log_density().mean().item(),
        "mean log-density 4 away from their centre": far.log_density().mean().item(),
    }


# -------------------------------------------------------------------------------- figures

INK, GREY, BLUE, SKY, PALE = "#22272e", "#7d8590", "#2463a8", "#b9d0e8", "#e3ecf5"
ORANGE = "#c8701a"
STYLE: dict[Any, Any] = {"font.size": 11, "text.color": INK, "axes.edgecolor": GREY}
STYLE |= {"contour.linewidth": 0.8}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False}
STYLE |= {"axes.titlelocation": "left", "axes.titleweight": "bold", "axes.titlesize": 12}


@mpl.rc_context(STYLE)
def plot_cubic(
    path: Path, data: Pair, truth: Pair, prediction: ll.GaussianPredictive, draws: list[Tensor]
) -> None:
    grid, mean = truth[0], prediction.mean.squeeze(-1)
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    low, high = (end.squeeze(-1) for end in prediction.interval(0.95))
    weights = 1.96 * prediction.epistemic_variance.squeeze(-1).sqrt()
    axes.fill_between(grid, low, high, color=PALE)
    axes.fill_between(grid, mean - weights, mean + weights, color=SKY)
    for draw in draws:
        axes.plot(grid, draw, color=BLUE, linewidth=0.7, alpha=0.7)
    axes.plot(*truth, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.plot(grid, mean, color=BLUE, linewidth=2.4)
    axes.scatter(data[0], data[1], s=12, color=INK, linewidth=0.4, edgecolor="white", zorder=3)
    for text, place, target, colour in [
        ("truth, y = x³/32", (2.1, 4.3), (5.0, 3.9), INK),
        ("mean", (4.75, 1.0), (4.6, 2.45), BLUE),
        ("95 %, weights alone", (-2.9, 2.5), (-0.3, 0.9), BLUE),
        ("95 %, with noise", (-5.6, 0.4), (-3.2, -0.78), BLUE),
        ("draws of the last layer", (0.2, -2.6), (0.35, -0.85), BLUE),
        (f"{len(data[0])} points", (1.5, 2.2), (3.25, 1.2), INK),
    ]:
        leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.8}
        axes.annotate(text, target, place, color=colour, arrowprops=leader)
    axes.set(xlim=(-6, 6), ylim=(-5, 5), xlabel="x", ylabel="y")
    axes.set_title("Regression: uncertain in the gap and beyond the data")
    figure.savefig(path, dpi=160)


@mpl.rc_context(STYLE)
def plot_moons(
    path: Path, data: Pair, across: Tensor, up: Tensor, class_log_density: Tensor, total: Tensor
) -> None:
    x, y = data
    plane = across.numpy(), up.numpy()
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    axes = figure.subplots()
    density = (class_log_density - class_log_density.max()).exp()  # rescaled: the peak is 1
    colours = LinearSegmentedColormap.from_list("classes", [ORANGE, "white", BLUE])
    difference = (density[..., 1] - density[..., 0]).numpy()
    axes.pcolormesh(*plane, difference, cmap=colours, vmin=-1, vmax=1, shading="gouraud")
    below = (total - total.max()).numpy()
    rings = axes.contour(*plane, below, [-100, -30, -10], colors=GREY, linestyles="solid")
    axes.clabel(rings, fmt=lambda level: f"−{-level:.0f}", fontsize=9)
    for label, colour, place in [(0, ORANGE, (-1.0, 1.7)), (1, BLUE, (1.85, -1.3))]:
        points = x[y == label]
        axes.scatter(points[:, 0], points[:, 1], s=9, color=colour, edgecolor="white", lw=0.4)
        axes.text(*place, f"y = {label}", color=colour, weight="bold", ha="center")
    axes.text(-3.1, -2.5, "nats from\nthe peak of\nlog p(φ(x))", color=GREY, size=9)
    axes.set(aspect="equal", xlabel="x₁", ylabel="x₂")
    axes.set_title("Half-moons: p(φ(x) | y = 1) − p(φ(x) | y = 0), rescaled")
    figure.savefig(path, dpi=160)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Train a regression head on a cubic with a gap and a generative head on "
        "half-moons, draw both panels of the paper's figure 1 and print what they show. "
        "All settings, each with its source, are the first lines of this file."
    )
    where = "folder to write the figures to (%(default)s)"
    parser.add_argument("--output", type=Path, default="demo-output", metavar="DIR", help=where)
    scale = "multiplies the paper's 1000 (cubic) and 100 (moons) epochs (%(default)s)"
    parser.add_argument("--epochs-scale", type=float, default=1.0, metavar="X", help=scale)
    quick = "the same as --epochs-scale 0.1: a few seconds, rougher figures"
    parser.add_argument("--quick", dest="epochs_scale", action="store_const", const=0.1, help=quick)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the tensors are small: threads would wait for each other
    options.output.mkdir(parents=True, exist_ok=True)

    def report(name: str, shows: str, run: Any, config: Cubic | Moons) -> None:
        path, start = options.output / name, time.perf_counter()
        numbers = run(path, max(1, round(config.epochs * options.epochs_scale)), config)
        print(f"\n{path} ({time.perf_counter() - start:.0f} s): {shows}")
        print(*(f"  {fact:42} {value:9.3f}" for fact, value in numbers.items()), sep="\n")

    report("cubic.png", "mean, 95 % bands, draws of the last layer", run_cubic, Cubic())
    report("moons.png", "difference of the class densities, with the data", run_moons, Moons())
    print(
        "\nThe features are deterministic; the paper's left panel has Bayes-by-backprop features."
        "\nFar beyond the data the truth leaves the band: ReLU features go on in straight lines."
    )


if __name__ == "__main__":
    main()
