"""Experiments as resumable jobs: what is still to be run, and running it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import records
from .allocation import keep_freed_memory
from .method import Entry, Method
from .records import Record
from .task import Task

RECORDED = Path(__file__).parents[2] / "results"  # those of this repository


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Methods on the columns of a table: data sets, or settings of one.

    Args:
        name: of its folder of results.
        columns: for each column what records name it by: `dataset`, and more where one data set
            has several columns.
        entries: by name, in the order of tables.
        task: from column, seed and the configured method to the task.
        num_data: from column to the number of examples, for estimates of time.
        packages: whose versions records hold.
        threads: of a job; None for those of torch.
        option: of the command line, that names columns.
    """

    name: str
    columns: Mapping[str, Mapping[str, Any]]
    entries: Mapping[str, Entry]
    task: Callable[[str, int, Any], Task]
    num_data: Callable[[str], int]
    packages: tuple[str, ...] = ()
    threads: int | None = 1  # a process for each core; None for as many as torch takes
    option: str = "datasets"

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells the runs of a method on a data set apart."""
        names = dict.fromkeys(name for about in self.columns.values() for name in about)
        return (*(name for name in names if name != "dataset"), "seed")

    def path(self, results: Path, column: str, entry: str) -> Path:
        """Where the records of a method on a column are."""
        return results / self.name / f"{self.columns[column]['dataset']}-{entry}.jsonl"

    def read(self, results: Path, column: str, entry: str) -> list[Record]:
        """The records of a method on a column."""
        about = self.columns[column].items()
        found = records.read(self.path(results, column, entry), self.identity)
        return [record for record in found if about <= record["config"].items()]


@dataclass(frozen=True)
class Job:
    """Some seeds of a method on a column, which train together."""

    experiment: Experiment
    column: str
    entry: str
    seeds: tuple[int, ...]
    results: Path
    changes: tuple[tuple[str, Any], ...] = ()  # of settings
    since: str = ""  # records from before do not count

    @property
    def method(self) -> Method:
        """The method with the settings of this column."""
        return self.experiment.entries[self.entry].configured(self.column, **dict(self.changes))

    def config(self, seed: int) -> dict[str, Any]:
        """All that a run depends on, besides versions."""
        run = {"method": self.entry, **self.experiment.columns[self.column], "seed": seed}
        return json.loads(json.dumps(run | dataclasses.asdict(self.method)))

    @property
    def path(self) -> Path:
        """The file of its records."""
        return self.experiment.path(self.results, self.column, self.entry)

    @property
    def checkpoint(self) -> Path:
        """Where training is saved until it is done."""
        text = json.dumps([self.config(seed) for seed in self.seeds])
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        return self.results / ".checkpoints" / f"{self.path.stem}-{digest}"

    def records(self) -> list[Record]:
        """Those of the same method and column."""
        return self.experiment.read(self.results, self.column, self.entry)

    def is_done(self) -> bool:
        """Whether all seeds have a record."""
        found = {r["config"]["seed"] for r in self.records() if r["time"] >= self.since}
        return found.issuperset(self.seeds)

    @property
    def cost(self) -> float:
        """How long it takes, roughly, in units that all jobs share."""
        return self.method.cost(self.experiment.num_data(self.column), len(self.seeds))

    @property
    def expected_seconds(self) -> float | None:
        """The processor time that it takes by the records of this repository, if it has some."""
        found = self.experiment.read(RECORDED, self.column, self.entry)
        num_data = self.experiment.num_data(self.column)
        names = {field.name for field in dataclasses.fields(self.method)}
        seconds = cost = 0.0
        for record in found:
            settings = {name: v for name, v in record["config"].items() if name in names}
            seeds = record["seeds_together"]
            cost += dataclasses.replace(self.method, **settings).cost(num_data, seeds) / seeds
            seconds += record["processor_seconds"]
        return self.cost * seconds / cost if found else None


def plan(
    experiment: Experiment,
    columns: Iterable[str],
    entries: Iterable[str],
    results: Path,
    num_seeds: int | None = None,
    again: bool = False,
    **changes: Any,
) -> list[Job]:
    """What is still to be run, the longest first.

    Args:
        experiment: the experiment.
        columns: by name.
        entries: by name.
        results: folder of the records.
        num_seeds: seeds 0, 1, …; each entry's own number if None.
        again: whether to run what has a record too.
        changes: settings of all methods that differ from their own.
    """
    jobs = []
    for column in columns:
        for name in entries:
            entry = experiment.entries[name]
            if column not in entry.num_seeds:
                continue
            seeds = range(entry.num_seeds[column] if num_seeds is None else num_seeds)
            since = records.now() if again else ""
            whole = Job(
                experiment, column, name, tuple(seeds), results, tuple(changes.items()), since
            )
            done = set() if again else _done(whole)
            left = [seed for seed in seeds if seed not in done]
            size = entry.together[column]
            jobs += [
                dataclasses.replace(whole, seeds=tuple(left[first : first + size]))
                for first in range(0, len(left), size)
            ]
    return sorted(jobs, key=lambda job: -job.cost)


def _done(job: Job) -> set[int]:
    """Seeds that have a record, which must be of the same configuration.

    A setting that a record does not have is younger than it, and had its default.
    """
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(job.method)
        if field.default is not dataclasses.MISSING
    }
    done = set()
    for record in job.records():
        seed = record["config"]["seed"]
        mine, theirs = job.config(seed), json.loads(json.dumps(defaults)) | record["config"]
        different = sorted(
            f"{name} was {theirs.get(name)!r} and is {mine.get(name)!r}"
            for name in {*mine, *theirs}
            if theirs.get(name) != mine.get(name)
        )
        if different:
            raise ValueError(
                f"{job.path} holds runs of another configuration: {'; '.join(different)}. Choose "
                "another folder with --results, or replace them with --again"
            )
        done.add(seed)
    return done


def is_first_process() -> bool:
    """Whether this process writes for all of those that `torchrun` started."""
    return int(os.environ.get("RANK", "0")) == 0


def run(job: Job) -> str | None:
    """Train and test all seeds of a job and write their records; an error as text, if any."""
    if job.experiment.threads is not None:
        torch.set_num_threads(job.experiment.threads)
    keep_freed_memory()
    try:
        start, start_cpu = time.perf_counter(), time.process_time()
        method = job.method
        tasks = [job.experiment.task(job.column, seed, method) for seed in job.seeds]
        trained = method.train(tasks, job.checkpoint)
        seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        common = {
            "seconds": round(seconds / len(tasks), 3),  # a seed's share
            "processor_seconds": round(cpu / len(tasks), 3),
            "seeds_together": len(tasks),
            "versions": records.versions(job.experiment.packages),
            "time": records.now(),
        }
        made = []
        for task, (model, notes) in zip(tasks, trained, strict=True):
            metrics = task.evaluate(model) | task.describe(notes)
            made.append({"config": job.config(task.seed), "metrics": metrics, **common})
        if is_first_process():
            records.append(job.path, made)
    except Exception:
        return f"{job.path.stem}, {job.column}, seeds {job.seeds}:\n{traceback.format_exc()}"
    shutil.rmtree(job.checkpoint, ignore_errors=True)
    return None
