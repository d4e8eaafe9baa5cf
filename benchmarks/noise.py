"""Noise that depends on the input, and outliers, beside the layers of the vbll package and others.

All networks have the same two layers of 64 units, the same batches, Adam, and the weights of the
epoch with the lowest validation loss. Errors and NLL are of test data, in the units of the data,
and means over seeds with their standard error.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/noise.py` or `python -m benchmarks.noise`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.contenders import NUM_DATA, import_vbll, train_step
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import interleave, progress
from lastlayer.predictive._base import log_mean_exp

WIDTH = 64
NUM_TRAIN, NUM_VALIDATION, NUM_TEST = 2400, 600, 3000
SHARE_OF_OUTLIERS = 0.05
SECTIONS = ("noise", "outliers", "speed", "priors")
NOISE_PRIORS: dict[str, ll.Prior] = {
    "1/M, the default": ll.Prior(variance=1 / WIDTH, bias_variance=100.0),
    "0.1/M": ll.Prior(variance=0.1 / WIDTH, bias_variance=100.0),
    "10/M": ll.Prior(variance=10 / WIDTH, bias_variance=100.0),
    "evidence": ll.Prior(variance="evidence", bias_variance=100.0),
}
Data = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


# ------------------------------------------------------------------------------------- data


def signal(inputs: Tensor) -> Tensor:
    return (6 * inputs[:, :1]).sin() + inputs[:, 1:2] * inputs[:, 2:3]


def spread(inputs: Tensor) -> Tensor:
    """A standard deviation of the noise that grows with the last column, from 0.05 to 1.35."""
    return 0.05 * 27 ** inputs[:, 3:4]


def rows(count: int, generator: torch.Generator, *, constant: bool = False) -> Data:
    inputs = torch.rand(count, 4, generator=generator)
    noise = torch.randn(count, 1, generator=generator)
    return inputs, signal(inputs) + (0.3 if constant else spread(inputs)) * noise


# -------------------------------------------------------------------------------- contenders


class Model(nn.Module):
    """A backbone and a last layer: its loss, its NLL and its intervals."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(4, WIDTH), nn.ELU(), nn.Linear(WIDTH, WIDTH), nn.ELU()
        )
        self.layer = layer

    def features(self, inputs: Tensor) -> Tensor:
        return self.backbone(12**0.5 * (inputs - 0.5))  # of mean zero and unit variance

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.layer(self.features(inputs), target)

    def predictive(self, inputs: Tensor) -> Any:
        return self.layer(self.features(inputs))

    def mean(self, inputs: Tensor) -> Tensor:
        return self.predictive(inputs).mean

    def nll(self, inputs: Tensor, target: Tensor) -> Tensor:
        return -self.predictive(inputs).log_prob(target).mean()

    def interval(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictive(inputs).interval(0.9)


class Vbll(Model):
    """A layer of the vbll package, with its own loss."""

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.layer(self.features(inputs)).train_loss_fn(target)

    def predictive(self, inputs: Tensor) -> Any:
        return self.layer(self.features(inputs)).predictive

    def mean(self, inputs: Tensor) -> Tensor:
        return self.predictive(inputs).loc  # also where few degrees of freedom leave no mean


class VbllHeteroscedastic(Vbll):
    """Its predictive is one draw of the noise; here densities and draws are mixed over many."""

    def _draws(self, inputs: Tensor, count: int = 64) -> list[Any]:
        features = self.features(inputs)
        return [self.layer(features).predictive for _ in range(count)]

    def nll(self, inputs: Tensor, target: Tensor) -> Tensor:
        log_probs = torch.stack([one.log_prob(target) for one in self._draws(inputs)], -1)
        return -log_mean_exp(log_probs).mean()

    def interval(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        draws = torch.cat([one.sample((20,)) for one in self._draws(inputs)])
        return draws.quantile(0.05, 0), draws.quantile(0.95, 0)


class Huber(Model):
    """A linear layer trained on Huber's loss, quadratic up to a tenth of the targets' scale."""

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(self.layer(self.features(inputs)), target, delta=0.1)

    def mean(self, inputs: Tensor) -> Tensor:
        return self.layer(self.features(inputs))


def trained(
    make: Callable[[], Model], train: Data, validation: Data, seed: int, epochs: int
) -> Model:
    """The model of the epoch with the lowest validation loss: its own, so of every kind."""
    torch.manual_seed(seed)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best, state = math.inf, copy.deepcopy(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        for batch in torch.randperm(len(train[0]), generator=generator).split(100):
            optimizer.zero_grad()
            model.loss(train[0][batch], train[1][batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        if epoch % 2:
            with torch.no_grad():
                loss = model.loss(*validation).item()
            if loss < best:
                best, state = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)


def makers(num_data: int, with_vbll: bool) -> dict[str, Callable[[], Model]]:
    options: dict[str, Any] = {"num_data": num_data, "bias": True}
    found: dict[str, Callable[[], Model]] = {
        "HeteroscedasticRegression": lambda: Model(ll.HeteroscedasticRegression(WIDTH, **options)),
        "StudentTRegression": lambda: Model(ll.StudentTRegression(WIDTH, **options)),
        "Regression": lambda: Model(ll.Regression(WIDTH, **options)),
    }
    if with_vbll:
        vbll = import_vbll()
        sizes = (WIDTH, 1, 1 / num_data)
        found |= {
            "vbll HetRegression": lambda: VbllHeteroscedastic(vbll.HetRegression(*sizes)),
            "vbll tRegression": lambda: Vbll(vbll.tRegression(*sizes)),
        }
    return found | {"Huber's loss": lambda: Huber(nn.Linear(WIDTH, 1))}


# --------------------------------------------------------------------------------- sections


def summary(values: list[float]) -> tuple[float, float]:
    found = torch.tensor(values, dtype=torch.float64)
    error = found.std().item() / len(values) ** 0.5 if len(values) > 1 else math.nan
    return found.mean().item(), error


def split(seed: int, *, constant: bool = False) -> tuple[Data, Data, Data]:
    generator = torch.Generator().manual_seed(1000 + seed)
    train, validation, test = (
        rows(count, generator, constant=constant) for count in (NUM_TRAIN, NUM_VALIDATION, NUM_TEST)
    )
    return train, validation, test


@torch.no_grad()
def scores(model: Model, test: Data, scale: float) -> dict[str, float]:
    """NLL, and how many targets intervals of 90 % cover in each third of the noise."""
    inputs, target = test
    found = {"nll": model.nll(inputs, target).item() + math.log(scale)}
    lower, upper = model.interval(inputs)
    covered = ((lower <= target) & (target <= upper)).double().flatten()
    for name, third in zip(("low", "middle", "high"), inputs[:, 3].argsort().chunk(3), strict=True):
        found[f"coverage, {name}"] = covered[third].mean().item()
    return found


def noise_rows(arguments: argparse.Namespace) -> list[Row]:
    """NLL and coverage where the noise grows with a column."""
    names = ("HeteroscedasticRegression", "Regression", "vbll HetRegression")
    by_name: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        train, validation, test = split(seed)
        scale = train[1].std().item()
        center = train[1].mean()
        parts = [(x, (y - center) / scale) for x, y in (train, validation, test)]
        for name, make in makers(NUM_TRAIN, arguments.with_vbll).items():
            if name not in names:
                continue
            progress(f"noise: seed {seed}, {name}")
            model = trained(make, parts[0], parts[1], seed, arguments.epochs)
            by_name.setdefault(name, []).append(scores(model, parts[2], scale))
            if name == "Regression":  # the same features, with a new last layer
                layer = ll.HeteroscedasticRegression(WIDTH, num_data=NUM_TRAIN, bias=True)
                layer.fit_features(model.features(parts[0][0]), parts[0][1])
                model.layer = layer.requires_grad_(False)
                by_name.setdefault("HeteroscedasticRegression, post-trained", []).append(
                    scores(model, parts[2], scale)
                )
        exact = torch.distributions.Normal(signal(test[0]), spread(test[0]))
        by_name.setdefault("the truth", []).append({"nll": -exact.log_prob(test[1]).mean().item()})
    found = []
    for name, runs in by_name.items():
        row: Row = {"model": name}
        for key in ("nll", "coverage, low", "coverage, middle", "coverage, high"):
            values = [run[key] for run in runs if key in run]
            row[key], row[f"{key} ±"] = summary(values) if values else (math.nan, math.nan)
        found.append(row)
    return found


def outlier_rows(arguments: argparse.Namespace) -> list[Row]:
    """Errors of the mean with and without gross outliers among the training targets."""
    names = ("StudentTRegression", "Regression", "vbll tRegression", "Huber's loss")
    errors: dict[str, tuple[list[float], list[float]]] = {}
    for seed in range(arguments.seeds):
        train, validation, test = split(seed, constant=True)
        scale, center = train[1].std(), train[1].mean()
        generator = torch.Generator().manual_seed(2000 + seed)
        spoiled = []
        for inputs, target in (train, validation):
            wrong = torch.rand(len(target), 1, generator=generator) < SHARE_OF_OUTLIERS
            gross = 10 + 10 * torch.randn(target.shape, generator=generator)
            spoiled.append((inputs, (target + gross * wrong - center) / scale))
        clean = [(x, (y - center) / scale) for x, y in (train, validation)]
        for name, make in makers(NUM_TRAIN, arguments.with_vbll).items():
            if name not in names:
                continue
            for at, parts in enumerate((spoiled, clean)):
                progress(f"outliers: seed {seed}, {name}, {'clean' if at else 'spoiled'}")
                model = trained(make, parts[0], parts[1], seed, arguments.epochs)
                with torch.no_grad():
                    mean = model.mean(test[0]) * scale + center
                error = (mean - signal(test[0])).square().mean().sqrt().item()
                errors.setdefault(name, ([], []))[at].append(error)
    found = []
    for name, (with_them, without) in errors.items():
        row: Row = {"model": name}
        row["with outliers"], row["with outliers ±"] = summary(with_them)
        row["without"], row["without ±"] = summary(without)
        found.append(row)
    return found


def prior_rows(arguments: argparse.Namespace) -> list[Row]:
    """Held-out NLL of priors of the log-noise, for noise that varies and noise that does not.

    Heads are solved on the features of a network that was not trained, which have seen nothing.
    """
    found = []
    for constant in (False, True):
        for count in (200, NUM_TRAIN):
            progress(f"priors: {count} rows, constant={constant}")
            by_name: dict[str, list[float]] = {}
            for seed in range(arguments.seeds):
                train, held_out, _ = split(seed, constant=constant)
                torch.manual_seed(seed)
                features = Model(nn.Identity()).requires_grad_(False).features
                inputs, target = features(train[0][:count]), train[1][:count]
                options: dict[str, Any] = {"num_data": count, "bias": True}
                heads: dict[str, Any] = {
                    name: ll.HeteroscedasticRegression(WIDTH, noise_prior=prior, **options)
                    for name, prior in NOISE_PRIORS.items()
                }
                heads["Regression"] = ll.Regression(WIDTH, **options)
                for name, head in heads.items():
                    head.fit_features(inputs, target)
                    predictive = head.requires_grad_(False)(features(held_out[0]))
                    nll = -predictive.log_prob(held_out[1]).mean().item()
                    by_name.setdefault(name, []).append(nll)
            row: Row = {"noise": "constant" if constant else "grows", "rows": count}
            for name, values in by_name.items():
                row[name], row[f"{name} ±"] = summary(values)
            found.append(row)
    return found


def vbll_loss(layer: nn.Module, features: Tensor, target: Tensor) -> Tensor:
    return layer(features).train_loss_fn(target)


def speed_rows(arguments: argparse.Namespace) -> list[Row]:
    """A training step beside the layers of the vbll package."""
    vbll = import_vbll()
    found = []
    for batch, width in ((32, 50), (128, 128), (128, 640)):
        torch.manual_seed(0)
        features = torch.randn(batch, width, requires_grad=True)
        target = torch.randn(batch, 1)
        pairs = (
            (ll.HeteroscedasticRegression, vbll.HetRegression),
            (ll.StudentTRegression, vbll.tRegression),
        )
        plain = ll.Regression(width, num_data=NUM_DATA)
        for ours, theirs in pairs:
            progress(f"speed: {ours.__name__}, B{batch} N{width}")
            own: nn.Module = ours(width, num_data=NUM_DATA)
            other: nn.Module = theirs(width, 1, 1 / NUM_DATA)
            steps: dict[str, Callable[[], object]] = {
                "ours": train_step(own, own, features, target),
                "theirs": train_step(other, partial(vbll_loss, other), features, target),
                "Regression": train_step(plain, plain, features, target),
            }
            timings = interleave(steps, arguments.seconds, 3)
            ours_ms = 1e3 * timings["ours"].median
            theirs_ms = 1e3 * timings["theirs"].median
            found.append(
                {
                    "head": ours.__name__,
                    "size": f"B{batch} N{width} K1",
                    "ours_ms": ours_ms,
                    "vbll_ms": theirs_ms,
                    "faster": theirs_ms / ours_ms,
                    "of Regression": ours_ms / (1e3 * timings["Regression"].median),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", default=",".join(SECTIONS), help="of these, by comma")
    parser.add_argument("--seeds", type=int, default=5, help="of data and networks (default: 5)")
    parser.add_argument("--epochs", type=int, default=60, help="of training (default: 60)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row of speed")
    parser.add_argument("--without-vbll", action="store_true", help="leave that package out")
    parser.add_argument("--quick", action="store_true", help="does it run? numbers mean little")
    parser.add_argument(
        "--records", type=Path, metavar="FOLDER", help="also write a record of each section here"
    )
    arguments = parser.parse_args()
    arguments.with_vbll = not arguments.without_vbll
    if arguments.quick:
        arguments.seeds, arguments.epochs, arguments.seconds = 1, 2, 0.05
    torch.set_num_threads(1)
    measure: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
        "noise": noise_rows,
        "outliers": outlier_rows,
        "speed": speed_rows,
        "priors": prior_rows,
    }
    names = ("seeds", "epochs", "seconds", "with_vbll", "quick")
    config = {name: getattr(arguments, name) for name in names}
    for name in arguments.sections.split(","):
        if name == "speed" and not arguments.with_vbll:
            continue
        begun, about = time.perf_counter(), environment()
        found = measure[name](arguments)
        print_table(name, found)
        if arguments.records:
            about["seconds"] = round(time.perf_counter() - begun, 1)
            write_json(arguments.records / f"noise-{name}.json", config, about, {name: found})


if __name__ == "__main__":
    main()
