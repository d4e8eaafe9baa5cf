"""How settings of agents with a network were chosen: by regret on seeds that are in no table.

`python -m experiments.bandits.choice --deltas 0.99 --seeds 4 --contexts 24000 [variant …]`; seeds
count from 100. What has a record is not run again.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from ..harness import records
from ..harness.statistics import estimate
from ..harness.tables import BLANK, show, table
from .methods import METHODS
from .published import COLUMNS
from .task import CUMULATIVE, SIMPLE
from .wheel import WheelTask

ABOUT = """\
Cumulative regret of variants on seeds from 100 on, which are in no other table, in brackets how
many: `python -m experiments.bandits.choice`. Runs of fewer contexts end before their regret is
low."""

FIRST_SEED = 100
RECORDED = Path("results/bandits/choice.jsonl")
KEYS = ("variant", "delta", "num_contexts", "seed")
FORMER = {"schedule": "cosine", "weight_decay": 0.01, "epsilon": 1e-8}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "ours, epsilon 1e-3": ("ours", {"epsilon": 1e-3}),
    "ours, epsilon 1e-3, no warm-up": ("ours", {"epsilon": 1e-3, "schedule": "cosine"}),
    "ours, usual epsilon": ("ours", {"epsilon": 1e-8}),
    "ours, no warm-up, usual epsilon, weight decay": ("ours", FORMER),
    "vbll": ("vbll", {}),
    "vbll, rewards / 10": ("vbll", {"reward_scale": 10.0}),
    "vbll, rewards / 50": ("vbll", {"reward_scale": 50.0}),
}


def measure(variant: str, delta: float, num_contexts: int, seed: int) -> dict[str, Any]:
    """The record of one run."""
    method, settings = VARIANTS[variant]
    task = WheelTask(seed=seed, delta=delta, num_contexts=num_contexts)
    player = METHODS[method].configured(str(delta), num_contexts=num_contexts, **settings)
    begun = time.process_time()
    ((arms, _),) = player.train([task])
    seconds = time.process_time() - begun
    metrics = task.evaluate(arms)
    return {
        "config": dict(zip(KEYS, (variant, delta, num_contexts, seed), strict=True)),
        "metrics": {metric.name: metrics[metric.name] for metric in (CUMULATIVE, SIMPLE)},
        "processor_seconds": round(seconds, 1),
        "versions": records.versions(()),
        "time": records.now(),
    }


def main(
    variants: list[str], deltas: list[str], seeds: int, contexts: int, path: Path = RECORDED
) -> None:
    """Run what has no record, and print it."""
    torch.set_num_threads(1)
    known = {tuple(r["config"][key] for key in KEYS) for r in records.read(path, KEYS)}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for delta in map(float, deltas):
            for variant in variants or VARIANTS:
                if (variant, delta, contexts, seed) not in known:
                    record = measure(variant, delta, contexts, seed)
                    records.append(path, [record])
                    print(variant, delta, seed, record["metrics"], record["processor_seconds"])


def section(results: Path) -> str:
    """Cumulative regret of the variants, as Markdown; nothing without records."""
    found: dict[str, dict[tuple[float, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records.read(results / "bandits" / RECORDED.name, KEYS):
        variant, *where, _ = (record["config"][key] for key in KEYS)
        found[variant][where[0], where[1]].append(record["metrics"][CUMULATIVE.name])
    columns = sorted({where for cells in found.values() for where in cells})
    rows = [
        [name, *(_shown(found[name][where]) for where in columns)]
        for name in VARIANTS
        if name in found
    ]
    header = ["", *(f"δ = {delta}, {count:,} contexts" for delta, count in columns)]
    return f"## Choice of settings\n\n{ABOUT}\n\n{table(header, rows)}" if rows else ""


def _shown(values: list[float]) -> str:
    """Mean ± standard error, and how many seeds."""
    return f"{show(estimate(values), CUMULATIVE.digits)} ({len(values)})" if values else BLANK


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", nargs="*", metavar="variant", help=", ".join(VARIANTS))
    parser.add_argument("--deltas", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--contexts", type=int, default=80_000)
    given = parser.parse_args()
    main(given.variants, given.deltas, given.seeds, given.contexts)
