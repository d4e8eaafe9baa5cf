"""Location and scale of the priors: what Σ⁻¹ and S become when the regularisers name a target.

    python -m experiments.hyperparameters --output results/hyperparameters

Three sweeps on energy and wine (paper, appendices C and D), with strengths α that outweigh the data
where a target is swept. Do the paper's claims hold? Values after 300 epochs:

- Target l̂ of Σ⁻¹, α_Σ = 10⁵: yes. From l̂ = 1 on, Σ⁻¹ is 1.00 to 1.01 times l̂; at 0.1 it is 1.05
  (energy) and 1.11 (wine) times that. At 0.01 the likelihood limits it, as the paper says: 0.0155
  and 0.0214. Strength counts in examples: the optimum is (T + l̂α)/(α + Σ_t(e² + φᵀSφ)).
- Target p̂ of S, α_S = 1: yes, for a price. The mean diagonal of S is 0.83 to 1.00 times p̂. The
  paper has ‖S‖_F above p̂ because of the elements off the diagonal; but ‖p̂I‖_F is p̂√50 = 7.07 p̂,
  which is drawn here as the target, and ‖S‖_F is 0.87 to 1.00 times that. From p̂ = 1 on the
  networks predict the mean of the targets: with S held that wide features are costly, and the
  same strength weighs ‖W̄‖², by λ/s = Tα_S.
- Strength α_Σ of the target Σ⁻¹ = 1: yes. From α_Σ = 1 to 10⁴, Σ⁻¹ goes from 7.3 to 1.04 (energy)
  and from 32 to 1.11 (wine), without a change of target.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from torch import Tensor

import lastlayer as ll
from benchmarks.report import environment
from lastlayer.functional import gaussian_kl, inverse_wishart_log_density
from lastlayer.heads import _parts
from lastlayer.plots._canvas import AMBER, BLUE, INK, NIGHT, ORANGE, SKY, make_axes

from .backbones import mlp
from .datasets import uci
from .records import Record

# From small to large, also for colour-blind eyes.
RAMP = LinearSegmentedColormap.from_list("sweep", [NIGHT, BLUE, SKY, AMBER, ORANGE])


@dataclass(frozen=True)
class Config:
    """Targets and strengths, then how the networks train."""

    # The paper names neither the values nor the strengths it calls large. These were chosen so
    # that a strong pull outweighs T examples, and the weakest and smallest do not.
    noise_locations: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)  # l̂, of Σ⁻¹
    noise_location_strength: float = 1e5  # α_Σ, in examples: T is 553 (energy) and 1151 (wine)
    weight_locations: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0)  # p̂, of the diagonal of S
    weight_location_strength: float = 1.0  # α_S
    noise_strengths: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)  # α_Σ
    noise_strength_location: float = 1.0  # l̂; paper, caption of that figure
    # What a sweep leaves alone: N(0, I) and inverse-Wishart(1, 1) (paper, appendix D), which has
    # l̂ = ν + N + 1 = 3 and α_Σ = m = 1.
    noise_location: float = 3.0
    noise_strength: float = 1.0
    datasets: tuple[str, ...] = ("energy", "wine")  # paper, captions
    epochs: int = 300  # not in the paper; the farthest targets take about 170
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


# --------------------------------------------------------------------------------- model


# What is tracked beside the parts of the objective: Σ⁻¹, ‖S‖_F, and the mean of the diagonal of S.
TRACKED = ("noise_precision", "covariance_norm", "covariance_diagonal")


class SweptRegression(ll.Regression):
    """A head whose prior is a buffer, so that networks with different priors train as one.

    `fit_many` takes models that are alike but for parameters and buffers. The regularisers are
    linear in λ/s, λ, m and ν + N + 1, which the buffer holds; constants are left out.

    Args:
        num_features: N.
        num_data: T.
        prior: instead of the head's own, which only says where S starts.
    """

    pull: Tensor

    def __init__(self, num_features: int, *, num_data: int, prior: ll.Prior) -> None:
        super().__init__(num_features, num_data=num_data)
        exponent = prior.noise_dof + self.num_outputs + 1
        weight = prior.kl_weight
        pull = torch.tensor([weight / prior.variance, weight, prior.noise_scale, exponent])
        self.register_buffer("pull", pull)

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The objective under the prior of the buffer; what is tracked is recorded with it."""
        bound, *_ = super().objective(features, target, weight)
        covariance, noise = self.covariance.dense().squeeze(0), self.noise
        precision, logdet = noise.precision_trace(), self.covariance.logdet().sum()
        size, zero = self.mean.square().sum(), torch.zeros_like(logdet)
        by_size = gaussian_kl(size, self.covariance.trace().sum(), zero, 0, 1.0)
        by_logdet = gaussian_kl(zero, zero, logdet, 0, 1.0)
        dimension = self.num_outputs + 1
        by_scale = inverse_wishart_log_density(noise.log_precision_scale, precision, -dimension, 1)
        by_dof = inverse_wishart_log_density(noise.log_precision_scale, zero, 1 - dimension, 1)
        kl = self.pull[0] * by_size + self.pull[1] * by_logdet
        log_prior = self.pull[2] * by_scale + self.pull[3] * by_dof
        tracked = precision, covariance.norm(), covariance.diagonal().mean()
        _parts.record(self, **dict(zip(TRACKED, tracked, strict=True)))
        return bound, kl, log_prior


def train(config: Config, dataset: str) -> list[Record]:
    """The record of every run on a data set; all start alike and see the same batches."""
    split, chosen = uci.split(dataset, config.seed), settings(config)
    models = []
    for setting in chosen:
        prior = ll.Prior.from_targets(num_data=split.num_data, num_outputs=1, **setting.targets)
        torch.manual_seed(config.seed)
        head = SweptRegression(mlp.WIDTH, num_data=split.num_data, prior=prior)
        models.append(ll.Network(mlp.features(split.num_inputs), head))
    start = time.perf_counter()
    names = "epochs", "batch_size", "learning_rate", "weight_decay", "clip"
    options: dict[str, Any] = {name: getattr(config, name) for name in names}
    seeds = [config.seed] * len(models)
    histories = ll.fit_many(models, split.train, seeds=seeds, initialize=False, **options)
    seconds = (time.perf_counter() - start) / len(models)
    about = {"dataset": dataset, "seed": config.seed, "num_data": split.num_data}
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
    datasets = list(dict.fromkeys(record["config"]["dataset"] for record in runs))
    figure = Figure(figsize=(4.4 * len(datasets), 6.2), layout="constrained")
    grid = figure.subplots(2, len(datasets), sharex=True, sharey="row", squeeze=False)
    entries: dict[str, Any] = {}
    for column, dataset in enumerate(datasets):
        here = [record for record in runs if record["config"]["dataset"] == dataset]
        for row, (key, name) in enumerate(DRAWN.items()):
            axes = make_axes(grid[row, column], "epoch" if row else "", "" if column else name)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            for at, record in enumerate(here):
                history, about = record["history"], record["config"]
                colour = RAMP(at / max(1, len(here) - 1))
                (line,) = axes.plot(history["epoch"], history[key], color=colour, lw=1.8)
                entries[f"{symbol} = {about['value']:g}"] = line
            found = [targets(record["config"]) for record in here]
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


def run(config: Config, output: Path) -> list[Record]:
    """Train, draw, and write figures and record to a folder; the record of every run."""
    torch.set_num_threads(1)  # the tensors are small: threads would wait for each other
    output.mkdir(parents=True, exist_ok=True)
    runs = [record for dataset in config.datasets for record in train(config, dataset)]
    record = {"config": asdict(config), "runs": runs, "versions": environment()}
    (output / "hyperparameters.json").write_text(json.dumps(record) + "\n")
    strong, weight = config.noise_location_strength, config.weight_location_strength
    location = config.noise_strength_location
    for sweep, title, symbol in [
        ("noise location", f"Targets of Σ⁻¹, with strength {strong:,.0f}", r"$\hat l$"),
        ("weight location", f"Targets of the diagonal of S, with strength {weight:g}", r"$\hat p$"),
        ("noise strength", f"Strengths of the target Σ⁻¹ = {location:g}", r"$\alpha_\Sigma$"),
    ]:
        chosen = [record for record in runs if record["config"]["sweep"] == sweep]
        path = output / f"{sweep.replace(' ', '-')}.png"
        draw(chosen, title, symbol).savefig(path, dpi=160)
        print(f"\n{path}: {title}", *map(_line, chosen), sep="\n")
    return runs


def _line(record: Record) -> str:
    about, metrics = record["config"], record["metrics"]
    ((key, target),) = targets(about).items()
    return (
        f"  {about['dataset']:8} {about['value']:<8g} Σ⁻¹ {metrics['noise_precision']:<9.4g} "
        f"‖S‖ {metrics['covariance_norm']:<9.4g} realised/target {metrics[key] / target:<7.3f} "
        f"relative RMSE {metrics['relative_rmse']:.3f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description="Sweep targets and strengths of the priors of noise and weights on UCI data, "
        "draw Σ⁻¹ and ‖S‖_F over training and print what they become. All settings, each with "
        "its source, are the first lines of this file."
    )
    default = Path("results/hyperparameters")
    where = "folder to write figures and record to (%(default)s)"
    parser.add_argument("--output", type=Path, default=default, metavar="DIR", help=where)
    epochs = "epochs of training (%(default)s)"
    parser.add_argument("--epochs", type=int, default=Config.epochs, metavar="N", help=epochs)
    options = parser.parse_args(arguments)
    run(Config(epochs=options.epochs), options.output)


if __name__ == "__main__":
    main()
