"""Accuracy and speed of deterministic approximations of E[softmax(z)], z_k ~ N(m_k, v_k).

Every approximation is compared with the mean of many samples (antithetic pairs, double
precision, a fixed seed), over a grid of class counts, spreads of the means and variances. The
variances of a case are equal over its classes, or log-uniform over three decades around the
same centre. The reference has an error of its own: the columns "reference" give its standard
error, and an approximation whose error is no larger than that is as good as this can show.
Times are medians of single calls without gradient, in single precision, on one thread, interleaved.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

# Whoever starts this file, `python benchmarks/softmax.py` or `python -m benchmarks.softmax`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.report import Row, environment, print_table
from benchmarks.timing import interleave, progress
from lastlayer.functional import expected_softmax

NUM_CLASSES = (2, 3, 10, 30, 100)
SPREADS = (0.5, 2.0, 5.0, 10.0)
VARIANCES = (0.01, 0.1, 1.0, 10.0, 100.0)
NUM_NODES = (16, 24, 32, 48)
FINE_NODES = 300
DECADES = 3.0  # width of the log-uniform variances
CHUNK = 1_000_000  # logits drawn at a time
BATCH, TIMED_CLASSES = 128, (10, 100)

Approximation = Callable[[Tensor, Tensor], Tensor]


class Case(NamedTuple):
    """Several random mean vectors that share their kind, and what sampling says of them."""

    num_classes: int
    spread: float
    variance_centre: float
    equal: bool
    mean: Tensor  # (repeats, K)
    variance: Tensor  # (repeats, K)
    truth: Tensor  # (repeats, K)
    error: Tensor  # standard error of `truth`


def plain(mean: Tensor, variance: Tensor) -> Tensor:
    """Softmax of the means: what ignoring the uncertainty gives."""
    return mean.softmax(-1)


def mean_field(mean: Tensor, variance: Tensor) -> Tensor:
    """Logits shrunk by the probit factor (MacKay, 1992)."""
    return (mean / (1 + math.pi / 8 * variance).sqrt()).softmax(-1)


def pairwise_mean_field(mean: Tensor, variance: Tensor) -> Tensor:
    """Every pair of classes by the probit factor (Lu, Ie and Sha, 2020)."""
    total = variance.unsqueeze(-1) + variance.unsqueeze(-2)  # (*batch, K, K)
    difference = mean.unsqueeze(-1) - mean.unsqueeze(-2)
    return (-(-difference / (1 + math.pi / 8 * total).sqrt()).logsumexp(-1)).softmax(-1)


def laplace_bridge(mean: Tensor, variance: Tensor) -> Tensor:
    """Mean of the Dirichlet whose softmax basis has these logits (Hobbhahn et al., 2022)."""
    num_classes = mean.shape[-1]
    ratio = (mean + (-mean).logsumexp(-1, keepdim=True)).exp() / num_classes**2
    concentration = (1 - 2 / num_classes + ratio) / variance
    return concentration / concentration.sum(-1, keepdim=True)


def second_order(mean: Tensor, variance: Tensor) -> Tensor:
    """Taylor expansion around the means, cut off at zero."""
    probs = mean.softmax(-1)
    bend = variance * (1 - 2 * probs)
    corrected = probs * (1 + (bend - (probs * bend).sum(-1, keepdim=True)) / 2)
    return corrected.clamp_min(0) / corrected.clamp_min(0).sum(-1, keepdim=True)


def sampled(mean: Tensor, variance: Tensor, num_samples: int = 100) -> Tensor:
    """The mean over samples, with the seed fixed."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(num_samples, *mean.shape, generator=generator, dtype=mean.dtype)
    return (mean + variance.sqrt() * noise).softmax(-1).mean(0)


APPROXIMATIONS: dict[str, Approximation] = {
    "lastlayer": expected_softmax,
    **{f"{n} nodes": functools.partial(expected_softmax, num_nodes=n) for n in NUM_NODES},
    "pairwise mean field": pairwise_mean_field,
    "mean field": mean_field,
    "second order": second_order,
    "Laplace bridge": laplace_bridge,
    "softmax of the mean": plain,
    "20 samples": functools.partial(sampled, num_samples=20),
    "100 samples": sampled,
}


def sample_truth(
    mean: Tensor, variance: Tensor, num_samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mean of softmax over antithetic pairs of one example, (K,), and its standard error."""
    num_pairs = num_samples // 2
    total, squares = torch.zeros_like(mean), torch.zeros_like(mean)
    for chunk in torch.arange(num_pairs).split(max(1, CHUNK // mean.numel())):
        noise = torch.randn(len(chunk), mean.numel(), generator=generator, dtype=mean.dtype)
        noise = variance.sqrt() * noise
        pair = ((mean + noise).softmax(-1) + (mean - noise).softmax(-1)) / 2
        total, squares = total + pair.sum(0), squares + pair.square().sum(0)
    truth = total / num_pairs
    return truth, ((squares / num_pairs - truth.square()).clamp_min(0) / num_pairs).sqrt()


def make_cases(num_repeats: int, num_samples: int, seed: int, quick: bool) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = []
    for num_classes in NUM_CLASSES[:3] if quick else NUM_CLASSES:
        progress(f"sampling the reference for {num_classes} classes")
        for spread in SPREADS:
            for centre in VARIANCES:
                for equal in (True, False):
                    size = (num_repeats, num_classes)
                    mean = spread * torch.randn(size, generator=generator, dtype=torch.float64)
                    place = torch.rand(size, generator=generator, dtype=torch.float64) - 0.5
                    decades = torch.zeros_like(place) if equal else DECADES * place
                    variance = centre * 10**decades
                    drawn = [
                        sample_truth(m, v, num_samples, generator)
                        for m, v in zip(mean, variance, strict=True)
                    ]
                    truth, error = (torch.stack(part) for part in zip(*drawn, strict=True))
                    cases.append(
                        Case(num_classes, spread, centre, equal, mean, variance, truth, error)
                    )
    return cases


def measure(approximation: Approximation, cases: list[Case]) -> Row:
    """Errors over all probabilities (largest, mean) and over all examples (distance, KL)."""
    absolute, distance, divergence, reference = [], [], [], []
    for case in cases:
        probs = approximation(case.mean, case.variance)
        difference = (probs - case.truth).abs()
        absolute.append(difference.flatten())
        distance.append(difference.sum(-1) / 2)
        ratio = case.truth.clamp_min(1e-300).log() - probs.clamp_min(1e-12).log()
        divergence.append((case.truth * ratio).sum(-1))
        reference.append(case.error.flatten())
    return {
        "max error": float(torch.cat(absolute).max()),
        "mean error": float(torch.cat(absolute).mean()),
        "max reference": float(torch.cat(reference).max()),
        "mean reference": float(torch.cat(reference).mean()),
        "max total variation": float(torch.cat(distance).max()),
        "mean KL": float(torch.cat(divergence).mean()),
    }


def time_calls(seconds: float) -> dict[str, Row]:
    """Milliseconds of a call, by approximation and number of classes."""
    times: dict[str, Row] = {name: {} for name in APPROXIMATIONS}
    for num_classes in TIMED_CLASSES:
        progress(f"timing with {num_classes} classes")
        generator = torch.Generator().manual_seed(0)
        mean = 2 * torch.randn(BATCH, num_classes, generator=generator)
        variance = 5 * torch.rand(BATCH, num_classes, generator=generator)
        steps = {
            name: functools.partial(approximation, mean, variance)
            for name, approximation in APPROXIMATIONS.items()
        }
        with torch.no_grad():
            timings = interleave(steps, seconds=seconds, min_rounds=3)
        for name, timing in timings.items():
            times[name][f"ms, K={num_classes}"] = 1e3 * timing.median
    return times


def by_variance(cases: list[Case]) -> list[Row]:
    """Largest total variation of every approximation, for each kind of variance."""
    rows = []
    for equal in (True, False):
        for centre in VARIANCES:
            chosen = [c for c in cases if c.equal == equal and c.variance_centre == centre]
            row: Row = {"variances": "equal" if equal else "unequal", "centre": centre}
            for name, approximation in APPROXIMATIONS.items():
                row[name] = measure(approximation, chosen)["max total variation"]
            rows.append(row)
    return rows


def convergence(cases: list[Case]) -> list[Row]:
    """The rule against itself with many nodes: sampling is too noisy to tell the sizes apart."""
    finest = [expected_softmax(case.mean, case.variance, FINE_NODES) for case in cases]
    rows: list[Row] = []
    for num_nodes in NUM_NODES:
        row: Row = {"nodes": num_nodes}
        for equal in (True, False):
            difference = torch.cat(
                [
                    (expected_softmax(case.mean, case.variance, num_nodes) - fine).abs().flatten()
                    for case, fine in zip(cases, finest, strict=True)
                    if case.equal == equal
                ]
            )
            kind = "equal" if equal else "unequal"
            row[f"{kind}: max"] = float(difference.max())
            row[f"{kind}: mean"] = float(difference.mean())
        rows.append(row)
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python benchmarks/softmax.py                      the whole grid, a few minutes
  python benchmarks/softmax.py --quick              does it run? seconds; numbers mean little
  python benchmarks/softmax.py --samples 1000000    a sharper reference, ten times slower
  python benchmarks/softmax.py --seed 1 --json softmax.json""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--samples", type=int, default=100_000, help="samples of the reference (default: 100000)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="random mean vectors of each kind (default: 3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of means, variances and samples")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time for each table of times (default: 10)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: few samples and classes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    if arguments.samples < 4 or arguments.repeats < 1:
        parser.error("--samples must be at least 4 and --repeats at least 1")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    start = time.perf_counter()
    if arguments.quick:
        arguments.samples, arguments.repeats = min(arguments.samples, 2000), 1
        arguments.seconds = min(arguments.seconds, 0.5)
    cases = make_cases(arguments.repeats, arguments.samples, arguments.seed, arguments.quick)
    times = time_calls(arguments.seconds)
    rows: list[Row] = [
        {"approximation": name, **measure(approximation, cases), **times[name]}
        for name, approximation in APPROXIMATIONS.items()
    ]
    num_examples = sum(len(case.mean) for case in cases)
    print_table(f"Errors over {num_examples} examples; times of a batch of {BATCH}", rows)
    grouped = by_variance(cases)
    print_table("Largest total variation, by variance", grouped)
    converged = convergence(cases)
    print_table(f"Error of the rule against itself with {FINE_NODES} nodes", converged)
    if arguments.json:
        record = {
            "config": {**vars(arguments), "json": str(arguments.json)},
            "environment": environment(),
            "seconds": time.perf_counter() - start,
            "rows": rows,
            "by_variance": grouped,
            "convergence": converged,
        }
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")
        print(f"\nWritten to {arguments.json}")


if __name__ == "__main__":
    main()
