"""Regression on six UCI data sets: NLL, RMSE, CRPS, coverage and width of every method."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import shutil
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lastlayer as ll

from . import records
from .datasets import uci as data
from .method import Method
from .methods import METHODS

LEVEL = 0.9  # of the intervals
RECORDED = Path(__file__).parent.parent / "results"  # those of this repository


@dataclass(frozen=True)
class Job:
    """Some seeds of a method on a data set, which train together."""

    dataset: str
    method: str
    seeds: tuple[int, ...]
    results: Path
    epochs: int | None = None  # at most, if not the method's own number
    since: str = ""  # records from before do not count

    @property
    def settings(self) -> Method:
        """The method with the knobs of this data set."""
        changes = {} if self.epochs is None else {"epochs": self.epochs}
        return METHODS[self.method].for_dataset(self.dataset, **changes)

    def config(self, seed: int) -> dict[str, Any]:
        """All that a run depends on, besides versions."""
        name = {"method": self.method, "dataset": self.dataset, "seed": seed}
        return json.loads(json.dumps(name | dataclasses.asdict(self.settings)))

    @property
    def path(self) -> Path:
        """Of the records."""
        return records.path_of(self.results, self.dataset, self.method)

    @property
    def checkpoint(self) -> Path:
        """Where training is saved until it is done."""
        text = json.dumps([self.config(seed) for seed in self.seeds])
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        return self.results / ".checkpoints" / f"{self.dataset}-{self.method}-{digest}"

    def is_done(self) -> bool:
        """Whether all seeds have a record."""
        found = {r["config"]["seed"] for r in records.read(self.path) if r["time"] >= self.since}
        return found.issuperset(self.seeds)

    @property
    def cost(self) -> float:
        """How long it takes, roughly, in units of its own."""
        settings = self.settings
        num_data = _num_data(self.dataset, data.root())
        steps = settings.epochs * math.ceil(num_data / settings.batch_size)
        return settings.relative_cost * steps * (settings.common_cost + len(self.seeds))

    @property
    def expected_seconds(self) -> float | None:
        """Of processor time, by the records of this repository, if it has some."""
        size = self.settings.batch_size
        path = records.path_of(RECORDED, self.dataset, self.method)
        found = [one for one in records.read(path) if one["config"]["batch_size"] == size]
        seconds = sum(record["processor_seconds"] for record in found)
        costs = 0.0
        for record in found:
            seeds, epochs = tuple(range(record["seeds_together"])), record["config"]["epochs"]
            costs += dataclasses.replace(self, seeds=seeds, epochs=epochs).cost / len(seeds)
        return self.cost * seconds / costs if found else None


@functools.cache
def _num_data(dataset: str, root: Path) -> int:
    """Of a data set in a folder, read once."""
    return len(data.load(dataset)[1])


def plan(
    datasets: Iterable[str],
    methods: Iterable[str],
    num_seeds: int | None,
    results: Path,
    epochs: int | None = None,
    again: bool = False,
) -> list[Job]:
    """What is still to be run, the longest first.

    Args:
        datasets: by name.
        methods: by name.
        num_seeds: seeds 0, 1, …; each method's own number if None.
        results: folder of the records.
        epochs: at most, for all; each method's own number if None.
        again: whether to run what has a record too.
    """
    jobs = []
    for dataset in datasets:
        for method in methods:
            planned = METHODS[method].planned_seeds()
            if dataset not in planned:
                continue
            count = planned[dataset] if num_seeds is None else num_seeds
            since = records.now() if again else ""
            whole = Job(dataset, method, tuple(range(count)), results, epochs, since)
            done = set() if again else _done(whole)
            seeds = [seed for seed in whole.seeds if seed not in done]
            size = whole.settings.seeds_together(dataset)
            for first in range(0, len(seeds), size):
                part = tuple(seeds[first : first + size])
                jobs.append(dataclasses.replace(whole, seeds=part))
    return sorted(jobs, key=lambda job: -job.cost)


def _done(job: Job) -> set[int]:
    """Seeds that have a record, which must be of the same configuration."""
    done = set()
    for record in records.read(job.path):
        seed = record["config"]["seed"]
        mine = job.config(seed)
        if record["config"] != mine:
            different = sorted(
                f"{name} was {record['config'].get(name)!r} and is {mine.get(name)!r}"
                for name in {*mine, *record["config"]}
                if record["config"].get(name) != mine.get(name)
            )
            raise ValueError(
                f"{job.path} holds runs of another configuration: {'; '.join(different)}. Choose "
                "another folder with --results, or replace them with --again"
            )
        done.add(seed)
    return done


def run(job: Job) -> str | None:
    """Train and test all seeds of a job and write their records; an error as text, if any."""
    torch.set_num_threads(1)  # a process for each core
    try:
        start, start_cpu = time.perf_counter(), time.process_time()
        settings = job.settings
        splits = [
            data.split(job.dataset, seed, scale_targets=settings.scale_targets)
            for seed in job.seeds
        ]
        trained = settings.train(splits, job.checkpoint)
        seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        common = {
            "seconds": round(seconds / len(splits), 3),  # a seed's share
            "processor_seconds": round(cpu / len(splits), 3),
            "seeds_together": len(splits),
            "versions": records.versions(),
            "time": records.now(),
        }
        records.append(
            job.path,
            [
                {
                    "config": job.config(split.seed),
                    "metrics": metrics(model, split) | _noted(notes, split),
                    **common,
                }
                for (model, notes), split in zip(trained, splits, strict=True)
            ],
        )
    except Exception:
        return f"{job.dataset}-{job.method}, seeds {job.seeds}:\n{traceback.format_exc()}"
    shutil.rmtree(job.checkpoint, ignore_errors=True)
    return None


def metrics(model: nn.Module, split: data.Split) -> dict[str, float]:
    """Of a model on test data, in the units of the targets."""
    torch.manual_seed(split.seed)  # of predictions that draw
    found = ll.metrics.evaluate(model, split.test, levels=(LEVEL,), progress=False)
    scale = split.target_scale
    return {
        "nll": found["nll"] + math.log(scale),
        "rmse": scale * found["rmse"],
        "crps": scale * found["crps"],
        "coverage": found[f"coverage_{LEVEL}"],
        "width": scale * found[f"width_{LEVEL}"],
    }


def _noted(notes: dict[str, Any], split: data.Split) -> dict[str, Any]:
    """Notes about training in the units of the targets, with metrics of alternative models."""
    found: dict[str, Any] = {}
    for name, value in notes.items():
        if "nll" in name and value is not None:
            found[name] = value + math.log(split.target_scale)
        elif "rmse" in name:
            found[name] = value * split.target_scale
        elif name == "tried":
            found[name] = [_noted(one, split) for one in value]
        elif name == "alternatives":
            found[name] = {key: metrics(model, split) for key, model in value.items()}
        else:
            found[name] = value
    return found
