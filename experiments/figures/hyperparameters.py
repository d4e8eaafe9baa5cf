"""Location and scale of the priors: what Σ⁻¹ and S become when the regularisers name a target.

Three sweeps on two data sets (paper, appendices C and D), with strengths α that outweigh the data
where a target is swept. Strength counts in examples: the optimum of Σ⁻¹ under a target l̂ is
(T + l̂α)/(α + Σ_t(e² + φᵀSφ)). The target of ‖S‖_F is that of S = p̂I, p̂√N; the same strength
weighs ‖W̄‖², by λ/s = Tα_S, so that a wide S has its price.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

import lastlayer as ll
from lastlayer.plots._canvas import INK, make_axes

from ..backbones import mlp
from ..datasets import uci
from ..harness import command
from ..harness.records import Record
from ..harness.tables import table, title
from . import record
from .style import RAMP
from .swept import TRACKED, SweptRegression


@dataclass(frozen=True)
class Config:
    """Targets and strengths, then how the networks train."""

    # The paper names neither the values nor the strengths it calls large. These were chosen so
    # that a strong pull outweighs T examples, and the weakest and smallest do not.
    noise_locations: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)  # l̂, of Σ⁻¹
    noise_location_strength: float = 1e5  # α_Σ, in examples
    weight_locations: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0)  # p̂, of the diagonal of S
    weight_location_strength: float = 1.0  # α_S
    noise_strengths: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)  # α_Σ
    noise_strength_location: float = 1.0  # l̂; paper, caption of that figure
    # What a sweep leaves alone: N(0, I) and inverse-Wishart(1, 1) (paper, appendix D), which has
    # l̂ = ν + N + 1 = 3 and α_Σ = m = 1.
    noise_location: float = 3.0
    noise_strength: float = 1.0
    datasets: tuple[str, ...] = ("energy", "wine")  # paper, captions
    epochs: int = 300  # not in the paper; the farthest targets take more than half of them
    batch_size: int = 32  # paper, appendix D, as the next three
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    record_every: int = 5  # epochs, to keep the record small
    seed: int = 0  # not in the paper; of split, weights and order of the examples


class Setting(NamedTuple):
    """One value of a sweep, and the arguments of `Prior.from_targets` that go with it."""

    sweep: str
    value: float
    targets: dict[str, Any]


def settings(config: Config) -> list[Setting]:
    """All values of the three sweeps."""
    noise = {"noise_precision": config.noise_location, "noise_strength": config.noise_strength}
    found = []
    for value in config.noise_locations:
        strength = config.noise_location_strength
        targets = {"noise_precision": value, "noise_strength": strength}
        found.append(Setting("noise location", value, targets))
    for value in config.weight_locations:
        targets = {"weight_variance": value, "weight_strength": config.weight_location_strength}
        found.append(Setting("weight location", value, targets | noise))
    for value in config.noise_strengths:
        targets = {"noise_precision": config.noise_strength_location, "noise_strength": value}
        found.append(Setting("noise strength", value, targets))
    return found


def train(config: Config, dataset: str) -> list[Record]:
    """The record of every run on a data set; all begin alike and see the same batches."""
    split, chosen = uci.split(dataset, config.seed), settings(config)
    num_data, num_inputs = split.train[0].shape
    models = []
    for setting in chosen:
        prior = ll.Prior.from_targets(num_data=num_data, num_outputs=1, **setting.targets)
        torch.manual_seed(config.seed)
        head = SweptRegression(mlp.WIDTH, num_data=num_data, prior=prior)
        models.append(ll.Network(mlp.features(num_inputs), head))
    start = time.perf_counter()
    names = "epochs", "batch_size", "learning_rate", "weight_decay", "clip"
    options: dict[str, Any] = {name: getattr(config, name) for name in names}
    seeds = [config.seed] * len(models)
    histories = ll.fit_many(models, split.train, seeds=seeds, initialize=False, **options)
    seconds = (time.perf_counter() - start) / len(models)
    about = {"dataset": dataset, "seed": config.seed, "num_data": num_data}
    return [
        {
            "config": about | {"sweep": setting.sweep, "value": setting.value} | setting.targets,
            "metrics": _last(history) | {"relative_rmse": relative_rmse(model, split.train)},
            "history": _thinned(history, config.record_every),
            "seconds": seconds,
        }
        for setting, model, history in zip(chosen, models, histories, strict=True)
    ]


@torch.no_grad()
def relative_rmse(model: torch.nn.Module, data: uci.Pair) -> float:
    """Root mean square error, as a fraction of that of predicting zero."""
    inputs, target = data
    error = model(inputs).mean - target
    return (error.square().mean() / target.square().mean()).sqrt().item()


def _last(history: ll.History) -> dict[str, float]:
    return {name: history[-1][name] for name in TRACKED}


def _thinned(history: ll.History, every: int) -> dict[str, list[float]]:
    """The first epoch and then one in so many, to five digits."""
    rows = [history[0], *history.rows[every - 1 :: every]]
    return {key: [float(f"{row[key]:.5g}") for row in rows] for key in ("epoch", *TRACKED)}


# ------------------------------------------------------------------------------- figures

DRAWN = {"noise_precision": "noise precision Σ⁻¹", "covariance_norm": "Frobenius norm ‖S‖"}


def draw(runs: list[Record], title: str, symbol: str) -> Figure:
    """One sweep: a column for each data set, Σ⁻¹ above and ‖S‖_F below."""
    datasets = list(dict.fromkeys(run["config"]["dataset"] for run in runs))
    figure = Figure(figsize=(4.4 * len(datasets), 6.2), layout="constrained")
    grid = figure.subplots(2, len(datasets), sharex=True, sharey="row", squeeze=False)
    entries: dict[str, Any] = {}
    for column, dataset in enumerate(datasets):
        here = [run for run in runs if run["config"]["dataset"] == dataset]
        for row, (key, name) in enumerate(DRAWN.items()):
            axes = make_axes(grid[row, column], "epoch" if row else "", "" if column else name)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            for at, run in enumerate(here):
                history, about = run["history"], run["config"]
                colour = RAMP(at / max(1, len(here) - 1))
                (line,) = axes.plot(history["epoch"], history[key], color=colour, lw=1.8)
                entries[f"{symbol} = {about['value']:g}"] = line
            found = [targets(run["config"]) for run in here]
            for target in {values[key] for values in found if key in values}:
                dotted = axes.axhline(target, color=INK, lw=1.1, ls=":", zorder=3)
        grid[0, column].set_title(dataset, loc="left", fontsize=11, weight="bold")
    entries["target"] = dotted
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 6, "frameon": False}
    figure.legend(entries.values(), entries.keys(), **place)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def targets(about: dict[str, Any]) -> dict[str, float]:
    """Where a run's strong regularisers have their minimum; ‖S‖_F is p̂√N at S = p̂I."""
    if about["sweep"] == "weight location":
        return {"covariance_norm": about["weight_variance"] * math.sqrt(mlp.WIDTH)}
    return {"noise_precision": about["noise_precision"]}


SWEEPS = {  # by name, the title and the symbol of what is swept
    "noise location": ("Targets of Σ⁻¹", r"$\hat l$"),
    "weight location": ("Targets of the diagonal of S", r"$\hat p$"),
    "noise strength": ("Strengths of the target of Σ⁻¹", r"$\alpha_\Sigma$"),
}


def run(config: Config, output: Path) -> list[Record]:
    """Train, draw, and write figures and record to a folder; the record of every run."""
    torch.set_num_threads(1)  # the tensors are small: threads would wait for each other
    runs = [found for dataset in config.datasets for found in train(config, dataset)]
    record.write(output, "hyperparameters", {"config": asdict(config), "runs": runs})
    fixed = {
        "noise location": f"strength {config.noise_location_strength:,.0f}",
        "weight location": f"strength {config.weight_location_strength:g}",
        "noise strength": f"target {config.noise_strength_location:g}",
    }
    for sweep, (heading, symbol) in SWEEPS.items():
        chosen = [found for found in runs if found["config"]["sweep"] == sweep]
        path = output / f"{sweep.replace(' ', '-')}.png"
        draw(chosen, f"{heading}, {fixed[sweep]}", symbol).savefig(path, dpi=160)
        print(path)
    return runs


def hyperparameters(
    output: Annotated[Path, typer.Option(help="Folder for figures and record.")] = Path(
        "results/hyperparameters"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = Config.epochs,
) -> None:
    """The paper's sweeps of targets and strengths of the priors.

    On Energy and Wine. Draws Σ⁻¹ and ‖S‖_F over training, and records what they become. A few
    minutes on one core. All settings, each with its source, are the first lines of
    experiments/figures/hyperparameters.py.
    """
    try:
        run(Config(epochs=epochs), output)
    except FileNotFoundError as error:
        command.stop(error)


def write_page(results: Path) -> str | None:
    """Write the page; a line for the index, or None without a record."""
    found = record.read(results, "hyperparameters")
    if found is None:
        return None
    parts = []
    for sweep, (heading, _) in SWEEPS.items():
        chosen = [run for run in found["runs"] if run["config"]["sweep"] == sweep]
        picture = f"![{heading}]({sweep.replace(' ', '-')}.png)"
        header = ["data", sweep, "Σ⁻¹", "‖S‖_F", "realised / target", "relative RMSE"]
        parts += [f"## {heading}", picture, table(header, map(_row, chosen), num_names=1)]
    about = (
        f"After {found['config']['epochs']} epochs. The target of ‖S‖_F is that of S = p̂I; RMSE is "
        "of training data, relative to predicting their mean."
    )
    record.write_page(results, "hyperparameters", "Sweeps of the priors", about, *parts)
    return "Noise and covariance go where strong priors draw them: the paper's sweeps."


def _row(run: Record) -> list[str]:
    about, metrics = run["config"], run["metrics"]
    ((name, target),) = targets(about).items()
    numbers = metrics["noise_precision"], metrics["covariance_norm"]
    return [
        title(about["dataset"]),
        f"{about['value']:g}",
        *(f"{number:.4g}" for number in numbers),
        f"{metrics[name] / target:.3f}",
        f"{metrics['relative_rmse']:.3f}",
    ]
