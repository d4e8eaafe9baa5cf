"""Luck of the splits: how hard those of the tables are, by trees trained on many more.

    python -m experiments.splits --output results/splits

The tables have the splits of seeds 0 to 19, and the paper does not publish its own. Boosted trees,
which share nothing with the methods of the tables and train in a second, measure the error on these
and on a hundred others. `python -m experiments report` shows what came out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.report import environment

from .datasets import uci


@dataclass(frozen=True)
class Config:
    """Which splits, and the trees; these settings were not tuned."""

    datasets: tuple[str, ...] = uci.NAMES
    num_seeds: int = 20  # of the tables: seeds 0 to 19
    num_others: int = 100  # the seeds after them
    max_iter: int = 300
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31


def rmse(config: Config, dataset: str, seed: int) -> float:
    """RMSE on the test data of a seed, of trees trained on the rest."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # late: takes long

    split = uci.split(dataset, seed)
    trees = HistGradientBoostingRegressor(
        max_iter=config.max_iter,
        learning_rate=config.learning_rate,
        max_leaf_nodes=config.max_leaf_nodes,
        early_stopping=False,
    )
    inputs, target = split.development
    trees.fit(inputs.numpy(), target.squeeze(-1).numpy())
    error = trees.predict(split.test[0].numpy()) - split.test[1].squeeze(-1).numpy()
    return float(np.sqrt(np.mean(error**2)))


def run(config: Config, output: Path) -> dict[str, Any]:
    """Measure all splits and write the record to a folder: RMSE by data set, in order of seeds."""
    seeds = range(config.num_seeds + config.num_others)
    found = {
        dataset: [rmse(config, dataset, seed) for seed in track(seeds, f"{dataset:8}")]
        for dataset in config.datasets
    }
    record = {"config": asdict(config), "rmse": found, "versions": environment()}
    output.mkdir(parents=True, exist_ok=True)
    (output / "splits.json").write_text(json.dumps(record) + "\n")
    return record


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description="Train boosted trees on the splits of the UCI tables and on others, to see how "
        "hard the tables' own are. Takes a few minutes; then: python -m experiments report"
    )
    where = "folder to write the record to (%(default)s)"
    parser.add_argument("--output", type=Path, default="results/splits", metavar="DIR", help=where)
    others = "splits besides the 20 of the tables (%(default)s)"
    default = Config.num_others
    parser.add_argument("--others", type=int, default=default, metavar="N", help=others)
    options = parser.parse_args(arguments)
    if options.others < 2:
        parser.error(f"--others must be at least 2, got {options.others}")
    run(Config(num_others=options.others), options.output)
    print(options.output / "splits.json")


if __name__ == "__main__":
    main()
