"""A gradient step where one output of each example is observed, as in bandits.

The whole step of the wheel bandit's network, forward to clipped AdamW, with all outputs computed
and weighted and with the observed one alone, interleaved in one process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/observed.py` or `python -m benchmarks.observed`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import interleave, progress

BATCH, NUM_INPUTS, WIDTH = 512, 2, 100


def make_step(loss: Callable[[ll.Network], Tensor], num_outputs: int) -> Callable[[], None]:
    """One step of training on a loss."""
    torch.manual_seed(0)
    backbone = nn.Sequential(
        *(nn.Linear(NUM_INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    )
    head = ll.Regression(WIDTH, num_outputs, num_data=10_000, covariance="dense")
    model = ll.Network(backbone, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def measure(num_outputs: int, seconds: float) -> Row:
    """Processor time of both steps."""
    progress(f"{num_outputs} outputs")
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(BATCH, NUM_INPUTS, generator=generator)
    values = torch.randn(BATCH, generator=generator)
    output = torch.randint(num_outputs, (BATCH,), generator=generator)
    target = values.unsqueeze(-1).expand(-1, num_outputs).contiguous()
    weight = F.one_hot(output, num_outputs).float()

    def all_outputs(model: ll.Network) -> Tensor:
        return model(inputs, target, weight)

    def observed(model: ll.Network) -> Tensor:
        return model(inputs, values, output=output)

    def backbone(model: ll.Network) -> Tensor:
        return model.backbone(inputs).square().mean()

    losses = (all_outputs, observed, backbone)
    steps = {loss.__name__: make_step(loss, num_outputs) for loss in losses}
    times = {name: timing.median for name, timing in interleave(steps, seconds, 3).items()}
    return {
        "outputs": num_outputs,
        "all outputs, ms": 1e3 * times["all_outputs"],
        "observed, ms": 1e3 * times["observed"],
        "backbone, ms": 1e3 * times["backbone"],
        "ratio": times["all_outputs"] / times["observed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", type=int, nargs="+", default=[5, 20, 50], help="how many")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each number of outputs")
    parser.add_argument("--quick", action="store_true", help="does it run? numbers mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.quick:
        arguments.outputs, arguments.seconds = [3], 0.1
    rows = [measure(count, arguments.seconds) for count in arguments.outputs]
    print_table("A step with one observed output per example", rows)
    if arguments.json:
        config = {**vars(arguments), "json": str(arguments.json)}
        write_json(arguments.json, config, environment(), {"observed": rows})


if __name__ == "__main__":
    main()
