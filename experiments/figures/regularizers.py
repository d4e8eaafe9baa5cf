"""Regularisers of a variance: weight decay beside the priors of noise and weights.

The two figures of the paper's "Understanding Prior Regularizers" (appendix C), for one diagonal
element p of a triangular factor: weight decay is λp²/2, the terms of this package a·exp(2p) − 2bp.
Weight decay has its minimum at exp(p) = 1, whatever its strength; a and b put theirs at
exp(2p) = b/a, and with b = ŝa the location ŝ and the strength a are chosen apart.

Curves are the package's own terms under the prior that `Prior.from_targets` makes. The first
figure shows −log p(Σ) of the noise, and the second λ·KL of the weights, which differs by a
constant: a divergence is zero at its minimum, so its curves need not be shifted, as the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import lastlayer as ll
from lastlayer.functional import gaussian_kl, inverse_wishart_log_density
from lastlayer.plots._canvas import make_axes

from ..harness.tables import table
from . import record
from .style import RAMP


@dataclass(frozen=True)
class Config:
    """What is swept; the paper names b, the fixed a and the fixed ŝ alone."""

    weight_decays: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)  # λ
    strengths: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)  # a, beside weight decay
    logdet_weight: float = 1.0  # b; paper, caption of the first figure
    locations: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # ŝ
    location_strength: float = 100.0  # a; paper, caption of the second figure
    location_strengths: tuple[float, ...] = (10.0, 30.0, 100.0, 300.0, 1000.0)  # a
    strength_location: float = 1.0  # ŝ; paper, caption of the second figure
    num_points: int = 300


# ---------------------------------------------------------------------------------- terms


def weight_decay(log_scale: Tensor, strength: float) -> Tensor:
    """λp²/2, elementwise: what weight decay adds to the loss for p = `log_scale`."""
    return 0.5 * strength * log_scale.square()


def prior(strength: float, location: float) -> ll.Prior:
    """Whose terms of noise and weights are a·exp(2p) − 2ŝa·p each, up to a constant.

    Appendix C writes the terms with a factor ½, hence α = 2a; T = 1 leaves λ·KL undivided.
    """
    return ll.Prior.from_targets(
        num_data=1,
        num_outputs=1,
        weight_variance=location,
        weight_strength=2 * strength,
        noise_precision=location,
        noise_strength=2 * strength,
    )


def noise_term(log_scale: Tensor, prior: ll.Prior) -> Tensor:
    """−log p(Σ) of one output with Σ⁻¹ = exp(2p), elementwise."""

    def term(log_scale: Tensor) -> Tensor:
        trace = (2 * log_scale).exp()
        dof, scale = prior.noise_dof, prior.noise_scale
        return -inverse_wishart_log_density(log_scale.unsqueeze(-1), trace, dof, scale)

    return torch.vmap(term)(log_scale)


def weight_term(log_scale: Tensor, prior: ll.Prior) -> Tensor:
    """λ·KL of one weight with mean zero and variance exp(2p), elementwise."""
    logdet = 2 * log_scale
    kl = gaussian_kl(torch.zeros_like(logdet), logdet.exp(), logdet, 1, prior.fixed_variance)
    return prior.kl_weight * kl


# -------------------------------------------------------------------------------- figures


class Curve(NamedTuple):
    """A term as a function of p, and the exp(2p) at which it has its minimum."""

    label: str
    term: Callable[[Tensor], Tensor]
    location: float


class Panel(NamedTuple):
    """Curves over exp(p), or over its square."""

    title: str
    power: int  # 1 or 2
    limits: tuple[float, float, float]  # right, bottom and top
    curves: list[Curve]


def panels(config: Config) -> dict[str, list[Panel]]:
    """The two figures, two panels each."""
    decays = [
        Curve(f"λ = {decay:g}", partial(weight_decay, strength=decay), 1.0)
        for decay in config.weight_decays
    ]

    def ours(term: Callable[..., Tensor], label: str, strength: float, location: float) -> Curve:
        return Curve(label, partial(term, prior=prior(strength, location)), location)

    b, fixed_strength = config.logdet_weight, config.location_strength
    fixed_location = config.strength_location
    strengths = [ours(noise_term, f"a = {a:g}", a, b / a) for a in config.strengths]
    locations = [ours(weight_term, f"ŝ = {s:g}", fixed_strength, s) for s in config.locations]
    scales = [ours(weight_term, f"a = {a:g}", a, fixed_location) for a in config.location_strengths]
    return {
        "regularizers": [
            Panel("Weight decay, λp²/2", 1, (4, -2, 8), decays),
            Panel(f"Ours, a·exp(2p) − 2bp with b = {b:g}", 1, (4, -2, 8), strengths),
        ],
        "locations": [
            Panel(f"Sweeping the location ŝ, a = {fixed_strength:g}", 2, (6, 0, 200), locations),
            Panel(f"Sweeping the strength a, ŝ = {fixed_location:g}", 2, (3, 0, 200), scales),
        ],
    }


def data(panel: Panel, num_points: int) -> dict[str, Any]:
    """What a panel shows, in numbers."""
    grid = torch.linspace(0, 1, num_points + 1, dtype=torch.float64)[1:]
    x = panel.limits[0] * grid.square()  # closest near zero, where the curves are steep
    log_scale = x.log() / panel.power
    minima = torch.tensor([curve.location for curve in panel.curves], dtype=torch.float64)
    return {
        "title": panel.title,
        "xlabel": "exp(p)" if panel.power == 1 else "exp(2p)",
        "x": _rounded(x),
        "curves": {curve.label: _rounded(curve.term(log_scale)) for curve in panel.curves},
        "minima": {  # closed form
            curve.label: _rounded(torch.cat([at ** (panel.power / 2), curve.term(at.log() / 2)]))
            for curve, at in zip(panel.curves, minima.split(1), strict=True)
        },
    }


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def draw(axes: Axes, shown: dict[str, Any], limits: tuple[float, float, float]) -> None:
    """One panel; a dot marks each minimum, and what leaves the panel goes on."""
    axes = make_axes(axes, shown["xlabel"], "regulariser")
    for at, (label, values) in enumerate(shown["curves"].items()):
        colour = RAMP(at / max(1, len(shown["curves"]) - 1))
        axes.plot(shown["x"], values, color=colour, lw=1.8, label=label)
        x, lowest = shown["minima"][label]
        axes.scatter(x, lowest, s=36, color=colour, edgecolor="white", zorder=3, clip_on=False)
    right, bottom, top = limits
    axes.set(xlim=(0, right), ylim=(bottom, top))
    axes.set_title(shown["title"], loc="left", fontsize=11, weight="bold")
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 5}
    axes.legend(frameon=False, fontsize="small", handlelength=1.2, columnspacing=1.2, **place)


def regularizers(
    output: Annotated[Path, typer.Option(help="Folder for figures and record.")] = Path(
        "results/regularizers"
    ),
) -> None:
    """The paper's regularisers of a variance, beside weight decay.

    Draws weight decay and the regularisers of the priors for several strengths and targets. All
    settings, each with its source, are the first lines of experiments/figures/regularizers.py.
    """
    config, figures = Config(), {}
    output.mkdir(parents=True, exist_ok=True)
    for name, both in panels(config).items():
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        figures[name] = [data(panel, config.num_points) for panel in both]
        for axes, panel, shown in zip(figure.subplots(1, 2), both, figures[name], strict=True):
            draw(axes, shown, panel.limits)
        figure.savefig(output / f"{name}.png", dpi=160)
        print(output / f"{name}.png")
    record.write(output, "regularizers", {"config": asdict(config), "figures": figures})


def write_page(results: Path) -> str | None:
    """Write the page; a line for the index, or None without a record."""
    found = record.read(results, "regularizers")
    if found is None:
        return None
    parts = []
    for name, both in found["figures"].items():
        rows = [
            [shown["title"], label, f"{minimum[0]:g}"]
            for shown in both
            for label, minimum in shown["minima"].items()
        ]
        header = ["", "", f"minimum at {both[0]['xlabel']}"]
        parts += [f"![{both[1]['title']}]({name}.png)", table(header, rows, num_names=2)]
    about = (
        "For one diagonal element p of a triangular factor. Weight decay has its minimum at "
        "exp(p) = 1, whatever its strength; the regularisers of the priors have location and "
        "strength apart."
    )
    record.write_page(results, "regularizers", "Regularisers of a variance", about, *parts)
    return "Weight decay cannot choose where a variance is drawn to; the priors can."
