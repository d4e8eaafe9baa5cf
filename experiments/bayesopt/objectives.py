"""Objectives on shared features or a model for each: `python -m experiments.bayesopt.objectives`.

By the log-likelihood of held-out values on functions of several outputs that are none of the tasks.
What has a record is not run again.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.test_functions import multi_objective
from torch import Tensor

from lastlayer.botorch import LastLayerModel

from ..harness import records
from .choice import NUM_TEST
from .surrogates import fitted

SIZES, SEEDS = (20, 60), (0, 1)
RECORDED = Path("results/bayesopt/objectives.jsonl")
IDENTITY = ("variant", "function", "num_points", "seed")
FUNCTIONS: dict[str, Any] = {
    "ZDT1": multi_objective.ZDT1(4),
    "ZDT3": multi_objective.ZDT3(4),
    "DTLZ2": multi_objective.DTLZ2(6, 2),
    "vehicle safety": multi_objective.VehicleSafety(),
    "car side impact": multi_objective.CarSideImpact(),
    "penicillin": multi_objective.Penicillin(),
    "BNH": multi_objective.BNH(),
    "disc brake": multi_objective.DiscBrake(),
}
TOGETHER, APART, GAUSSIAN_PROCESS = "shared features", "a model for each", "SingleTaskGP"


def problem(name: str, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs in the unit cube and standardised outputs, of training and of test."""
    function = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(1000 * seed + size)
    inputs = torch.rand(size + NUM_TEST, function.dim, generator=generator)
    low, high = function.bounds.double()
    values = function(low + (high - low) * inputs)
    values = (values - values[:size].mean(0)) / values[:size].std(0)
    return inputs[:size], values[:size], inputs[size:], values[size:]


def models(variant: str, inputs: Tensor, values: Tensor) -> list[Model]:
    """One model of all outputs, or one of each."""
    if variant == GAUSSIAN_PROCESS:
        return [fitted(SingleTaskGP(inputs, values))]
    parts = [values] if variant == TOGETHER else values.split(1, -1)
    return [LastLayerModel(inputs, part).fit() for part in parts]


def measure(variant: str, name: str, size: int, seed: int) -> dict[str, Any]:
    """The record of one fit."""
    inputs, values, test_inputs, test_values = problem(name, size, seed)
    torch.manual_seed(seed)
    begun = time.process_time()
    found = models(variant, inputs, values)
    seconds = time.process_time() - begun
    points = test_inputs.unsqueeze(-2)
    with torch.no_grad():
        told: list[Any] = [model.posterior(points, observation_noise=True) for model in found]
    mean = torch.cat([one.mean for one in told], -1).squeeze(-2)
    scale = torch.cat([one.variance for one in told], -1).squeeze(-2).sqrt()
    density = torch.distributions.Normal(mean, scale).log_prob(test_values)
    return {
        "config": {"variant": variant, "function": name, "num_points": size, "seed": seed},
        "metrics": {"log_likelihood": float(density.mean())},
        "processor_seconds": round(seconds, 3),
        "versions": records.versions(("botorch", "gpytorch")),
        "time": records.now(),
    }


def main(path: Path = RECORDED) -> None:
    """Measure what has no record."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    known = {tuple(r["config"][n] for n in IDENTITY) for r in records.read(path, IDENTITY)}
    variants = (TOGETHER, APART, GAUSSIAN_PROCESS)
    jobs = [(v, f, n, s) for f in FUNCTIONS for n in SIZES for s in SEEDS for v in variants]
    for job in jobs:
        if job not in known:
            with warnings.catch_warnings(action="ignore"):
                records.append(path, [measure(*job)])


if __name__ == "__main__":
    main()
