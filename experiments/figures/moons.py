"""The right panel of the paper's figure 1: a generative head on two half-moons.

Settings are those of the paper's appendix D, but gradients are clipped and the learning rate decays
to zero: at a constant rate, with Σ near the mode of its prior, the steps of the class means are too
long, and unclipped training ends in NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor, nn

import lastlayer as ll

from .sgd import Pair, train
from .style import BLUE, GREY, ORANGE, STYLE


@dataclass(frozen=True)
class Moons:
    """Settings of the right panel."""

    num_data: int = 1000  # paper, appendix D, as all here but three
    noise: float = 0.2  # standard deviation
    width: int = 128
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 3e-2
    schedule: str = "cosine"  # not in the paper; to zero
    momentum: float = 0.9
    weight_decay: float = 1e-4  # of the backbone only: the head has its prior
    clip: float = 2.0  # not in the paper, which clips so on the cubic
    noise_dof: float = 128.0
    noise_scale: float = 1.0
    seed: int = 0  # not in the paper


def moons(config: Moons) -> Pair:
    """Two interleaved half circles, like scikit-learn's: points (T, 2) and labels (T,)."""
    label = torch.arange(config.num_data).remainder(2)
    angle = math.pi * torch.rand(config.num_data)
    upper = torch.stack([angle.cos(), angle.sin()], -1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], -1)
    x = torch.where(label.unsqueeze(-1) == 0, upper, lower)
    return x + config.noise * torch.randn_like(x), label


class Residual(nn.Linear):
    """A hidden layer, added to its input."""

    def forward(self, x: Tensor) -> Tensor:
        """From (*batch, width) to the same shape."""
        return x + nn.functional.elu(super().forward(x))


def run_moons(path: Path, epochs: int, config: Moons) -> dict[str, float]:
    """Train a generative head, draw it, return what the figure shows in numbers."""
    torch.manual_seed(config.seed)
    (x, y), (test_x, test_y) = moons(config), moons(config)
    width = config.width  # two hidden layers and ELU: the paper names neither
    backbone = nn.Sequential(nn.Linear(2, width), Residual(width, width), Residual(width, width))
    prior = ll.Prior(noise_dof=config.noise_dof, noise_scale=config.noise_scale)
    head = ll.GenerativeClassification(width, 2, num_data=len(x), prior=prior)
    network = ll.Network(backbone, head)
    history = train(config, network, (x, y), epochs)
    angle = torch.linspace(0, 2 * math.pi, 65)[:-1]
    circle = torch.stack([0.5 + 4 * angle.cos(), 0.25 + 4 * angle.sin()], -1)
    across, up = torch.linspace(-3.2, 4.2, 371), torch.linspace(-2.6, 3.0, 281)
    with torch.no_grad():
        test, far = network(test_x), network(circle)
        plane = network(torch.stack(torch.meshgrid(across, up, indexing="xy"), -1))
    log_class = (head.concentration / head.concentration.sum()).log()
    plot_moons(path, (x, y), across, up, plane.log_joint - log_class, plane.log_density())
    return {
        "loss, first epoch": history[0]["loss"],
        "loss, last epoch": history[-1]["loss"],
        "test accuracy": (test.mode == test_y).double().mean().item(),
        "test negative log-likelihood": -test.log_prob(test_y).mean().item(),
        "mean log-density of test points": test.log_density().mean().item(),
        "mean log-density 4 away from their centre": far.log_density().mean().item(),
    }


@mpl.rc_context(STYLE)
def plot_moons(
    path: Path, data: Pair, across: Tensor, up: Tensor, class_log_density: Tensor, total: Tensor
) -> None:
    """Draw the difference of the class densities, and rings of the density of the features."""
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
    figure.savefig(path, dpi=125)  # shades do not compress well
