"""Planning and running jobs of an experiment that is made here: estimating a mean by draws."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.harness import jobs, records
from experiments.harness.jobs import Experiment, Job
from experiments.harness.method import Entry, Method
from experiments.harness.task import Task


@dataclass(frozen=True, kw_only=True)
class Guess(Task):
    """The number to be guessed."""

    truth: float

    def evaluate(self, model: Any) -> dict[str, Any]:
        return {"error": abs(model - self.truth)}

    def describe(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        return {f"noted_{name}": value for name, value in notes.items()}


@dataclass(frozen=True, kw_only=True)
class Guesser(Method):
    """Guesses the same always."""

    label = "Guesser"

    guess: float
    patience: int | None = None
    rates: Any = (1.0, 2.0)

    def train(self, tasks, checkpoint=None):
        assert checkpoint is not None
        checkpoint.mkdir(parents=True)
        if self.guess < 0:
            raise RuntimeError("no such guess")
        return [(self.guess, {"seeds": len(tasks)}) for _ in tasks]


def task(column: str, seed: int, method: Guesser) -> Guess:
    return Guess(seed=seed, truth=float(len(column) + seed))


def experiment(**settings: Any) -> Experiment:
    """Two columns of one data set, and one of another."""
    columns: dict[str, dict[str, Any]] = {
        "near": {"dataset": "wheel", "delta": 0.5},
        "far": {"dataset": "wheel", "delta": 0.9},
        "plain": {"dataset": "plain", "delta": 0.0},
    }
    entry = Entry(
        method=Guesser,
        settings={"guess": {"near": 1.0, "far": 2.0, "plain": 3.0}, **settings},
        num_seeds={"near": 3, "far": 2},
        together={"near": 2, "far": 2, "plain": 2},
    )
    return Experiment(
        name="guesses",
        columns=columns,
        entries={"guesser": entry},
        task=task,
        num_data=len,
    )


def plan(results: Path, made: Experiment | None = None, **options: Any) -> list[Job]:
    made = experiment() if made is None else made
    return jobs.plan(made, made.columns, made.entries, results, **options)


def test_a_run_leaves_a_record_with_config_metrics_versions_and_time(tmp_path: Path):
    planned = plan(tmp_path)
    assert [(job.column, job.seeds) for job in planned] == [
        ("near", (0, 1)),
        ("far", (0, 1)),
        ("near", (2,)),
    ]
    for job in planned:
        assert not job.is_done()
        assert jobs.run(job) is None
        assert job.is_done()
        assert not job.checkpoint.exists()
    assert [path.name for path in (tmp_path / "guesses").iterdir()] == ["wheel-guesser.jsonl"]
    found = experiment().read(tmp_path, "far", "guesser")
    settings = {"guess": 2.0, "patience": None, "rates": [1.0, 2.0]}
    run = {"method": "guesser", "dataset": "wheel", "delta": 0.9}
    assert [record["config"] for record in found] == [
        run | {"seed": seed} | settings for seed in (0, 1)
    ]
    assert found[1]["metrics"] == {"error": 2.0, "noted_seeds": 2}
    assert {"seconds", "processor_seconds", "seeds_together", "versions", "time"} <= set(found[0])
    assert plan(tmp_path) == []


def test_only_what_has_no_record_is_planned(tmp_path: Path):
    jobs.run(plan(tmp_path)[0])
    assert {(job.column, job.seeds) for job in plan(tmp_path, num_seeds=4)} == {
        ("far", (0, 1)),
        ("near", (2, 3)),
        ("far", (2, 3)),
    }
    assert len(plan(tmp_path, again=True)) == 3


def test_another_configuration_is_refused_and_again_replaces_it(tmp_path: Path):
    for job in plan(tmp_path):
        jobs.run(job)
    with pytest.raises(ValueError, match=r"guess was 1.0 and is 7.0.*--again"):
        plan(tmp_path, guess=7.0)
    replaced = plan(tmp_path, guess=7.0, again=True)
    assert [job.changes for job in replaced] == [(("guess", 7.0),)] * 3
    assert jobs.run(replaced[0]) is None
    assert [r["config"]["guess"] for r in replaced[0].records()] == [7.0, 7.0, 1.0]


def test_a_setting_younger_than_a_record_had_its_default(tmp_path: Path):
    (job,) = [job for job in plan(tmp_path) if job.column == "far"]
    jobs.run(job)
    lines = [json.loads(line) for line in job.path.read_text().splitlines()]
    for line in lines:
        del line["config"]["rates"]
    job.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert {job.column for job in plan(tmp_path)} == {"near"}
    with pytest.raises(ValueError, match=r"rates was \[1.0, 2.0\] and is \[3.0\]"):
        plan(tmp_path, experiment(rates=(3.0,)))


def test_a_job_that_fails_leaves_no_record_and_says_why(tmp_path: Path):
    (job, *_) = plan(tmp_path, guess=-1.0)
    error = jobs.run(job)
    assert error is not None
    assert "wheel-guesser, near, seeds (0, 1)" in error
    assert "no such guess" in error
    assert job.records() == []
    assert job.checkpoint.exists()  # to go on from


def test_checkpoints_of_other_configurations_are_elsewhere(tmp_path: Path):
    (one, *_), (two, *_) = plan(tmp_path), plan(tmp_path, guess=4.0)
    assert one.checkpoint == plan(tmp_path)[0].checkpoint != two.checkpoint
    assert one.checkpoint.parent == tmp_path / ".checkpoints"


def test_the_expected_time_is_in_proportion_to_that_of_earlier_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jobs, "RECORDED", tmp_path)
    job = plan(tmp_path / "new")[0]
    assert job.expected_seconds is None
    record = {"config": job.config(0), "seeds_together": 2, "processor_seconds": 7.0}
    records.append(experiment().path(tmp_path, "near", "guesser"), [record])
    assert job.expected_seconds == pytest.approx(14.0)
    assert replace(job, seeds=(0, 1, 2, 3)).expected_seconds == pytest.approx(28.0)
