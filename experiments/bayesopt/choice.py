"""How defaults of `LastLayerModel` were chosen: by log-likelihood of held-out values.

`python -m experiments.bayesopt.choice [--seeds N] [variant …]`, on functions that are none of the
tasks. What has a record is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.test_functions import synthetic
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.botorch import FeatureTraining, LastLayerModel, Waves

from ..harness import records

NUM_TEST = 400
SIZES = (20, 60, 200)
RECORDED = Path("results/bayesopt/choice.jsonl")
FUNCTIONS: dict[str, Any] = {
    "six-hump camel": synthetic.SixHumpCamel(),
    "Holder table": synthetic.HolderTable(),
    "Rosenbrock-4": synthetic.Rosenbrock(4),
    "Shekel": synthetic.Shekel(),
    "Griewank-5": synthetic.Griewank(5),
    "Michalewicz-5": synthetic.Michalewicz(5),
    "Levy-6": synthetic.Levy(6),
    "Cosine-8": synthetic.Cosine8(),
    "network-20": 20,
    "network-100": 100,
}


def network(num_inputs: int, seed: int) -> Callable[[Tensor], Tensor]:
    """A drawn network of two hidden layers of tanh, on the unit cube."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(50, num_inputs, 2.0), (50, 50, 1.5), (1, 50, 7.0)]
    weights = [torch.randn(n, m, generator=generator) * s / m**0.5 for n, m, s in sizes]

    def value(inputs: Tensor) -> Tensor:
        hidden = (2 * inputs - 1) @ weights[0].mT
        return (hidden.tanh() @ weights[1].mT).tanh() @ weights[2].mT

    return value


def problem(name: str, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs in the unit cube and standardised values, of training and of test."""
    generator = torch.Generator().manual_seed(1000 * seed + size)
    function = FUNCTIONS[name]
    num_inputs = function if isinstance(function, int) else function.dim
    inputs = torch.rand(size + NUM_TEST, num_inputs, generator=generator)
    if isinstance(function, int):
        values = network(function, seed)(inputs)
    else:
        low, high = function.bounds.double()
        values = function(low + (high - low) * inputs).unsqueeze(-1)
    location, scale = values[:size].mean(0), values[:size].std(0)
    values = (values - location) / scale
    return inputs[:size], values[:size], inputs[size:], values[size:]


def layers(num_inputs: int, activation: type[nn.Module]) -> nn.Module:
    """The network that BoTorch's community model has: 1 + 3 layers of 64."""
    sizes = [num_inputs, 64, 64, 64, 64]
    parts = [(nn.Linear(n, m), activation()) for n, m in itertools.pairwise(sizes)]
    return nn.Sequential(*(layer for pair in parts for layer in pair))


def gaussian_process(inputs: Tensor, values: Tensor) -> Model:
    """BoTorch's default."""
    model = SingleTaskGP(inputs, values)
    with warnings.catch_warnings(action="ignore"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def last_layer(
    inputs: Tensor,
    values: Tensor,
    *,
    waves: int | None = None,
    activation: type[nn.Module] | None = None,
    prior: ll.Prior | None = None,
    **training: Any,
) -> Model:
    """A variant of the model."""
    size = inputs.shape[-1]
    options: dict[str, Any] = {}
    if waves is not None:
        options = {"backbone": Waves(size, waves), "num_features": waves}
    if activation is not None:
        options = {"backbone": layers(size, activation), "num_features": 64}
    plan = FeatureTraining(**training)
    return LastLayerModel(inputs, values, prior=prior, training=plan, **options).fit()


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "128 waves": {"waves": 128},
    "512 waves": {"waves": 512},
    "scale_strength=1": {"scale_strength": 1.0},
    "scale_strength=3": {"scale_strength": 3.0},
    "scale_strength=30": {"scale_strength": 30.0},
    "strength=100": {"strength": 100.0},
    "noise_scale=1e-2": {"prior": ll.Prior(noise_dof=0.0, noise_scale=1e-2)},
    "noise_scale=1e-4": {"prior": ll.Prior(noise_dof=0.0, noise_scale=1e-4)},
    "steps=75": {"steps": 75},
    "steps=300": {"steps": 300},
    "1 + 3 layers of 64 ELU": {"activation": nn.ELU, "strength": 1.0},
    "1 + 3 layers of 64 tanh": {"activation": nn.Tanh, "strength": 1.0},
}


def measure(variant: str, name: str, size: int, seed: int) -> dict[str, Any]:
    """The record of one fit."""
    inputs, values, test_inputs, test_values = problem(name, size, seed)
    torch.manual_seed(seed)
    begun = time.process_time()
    if variant == "SingleTaskGP":
        model = gaussian_process(inputs, values)
    else:
        model = last_layer(inputs, values, **VARIANTS[variant])
    seconds = time.process_time() - begun
    with torch.no_grad():
        posterior: Any = model.posterior(test_inputs.unsqueeze(-2), observation_noise=True)
        mean, variance = posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)
    normal = torch.distributions.Normal(mean, variance.sqrt())
    return {
        "config": {"variant": variant, "function": name, "num_points": size, "seed": seed},
        "metrics": {
            "log_likelihood": float(normal.log_prob(test_values).mean()),
            "rmse": float((test_values - mean).square().mean().sqrt()),
        },
        "processor_seconds": round(seconds, 3),
        "versions": records.versions(("botorch", "gpytorch")),
        "time": records.now(),
    }


def main(variants: list[str], seeds: int = 2, path: Path = RECORDED) -> None:
    """Measure variants that have no record."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    names = ("variant", "function", "num_points", "seed")
    known = {tuple(r["config"][n] for n in names) for r in records.read(path, names)}
    for variant in variants or ["SingleTaskGP", *VARIANTS]:
        for size in SIZES:
            for name in FUNCTIONS:
                for seed in range(seeds):
                    if (variant, name, size, seed) not in known:
                        records.append(path, [measure(variant, name, size, seed)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    main(given.variants, given.seeds)
