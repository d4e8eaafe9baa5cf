"""Running jobs on processes and on a Ray cluster, and the time left."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.harness import executors


@dataclass(frozen=True)
class Note:
    """A job that writes a file, or fails."""

    path: Path
    cost: float = 1.0
    expected_seconds: float | None = None

    def is_done(self) -> bool:
        return self.path.exists()


def write(job: Note) -> str | None:
    if not job.path.parent.exists():
        return f"no folder {job.path.parent.name}"
    job.path.write_text("done")
    return None


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_all_jobs_run_and_those_that_fail_say_why(executor: executors.Executor, tmp_path: Path):
    if executor == "ray":
        pytest.importorskip("ray")
    planned = [Note(tmp_path / name) for name in ("a", "nowhere/b", "c")]
    errors = executors.run_all(write, planned, executor=executor, num_workers=2)
    assert errors == ["no folder nowhere"]
    assert [job.is_done() for job in planned] == [True, False, True]


def test_the_time_left_is_expected_by_records_and_then_measured():
    assert executors._expected([120.0, None], 2) is None
    assert executors._expected([120.0, 60.0, 60.0], 2) == 120
    assert executors._expected([120.0, 10.0], 2) == 120

    def left(elapsed, **fields):
        fields = {"share": 0.0, "since": 0.0} | fields
        task: Any = SimpleNamespace(elapsed=elapsed, finished=fields["share"] == 1, fields=fields)
        return executors._TimeLeft().render(task).plain

    assert left(1.0, expected=None) == "time left: known after the first job"
    assert left(30.0, expected=600.0) == "about 10 min left, going by earlier records"
    assert left(700.0, expected=600.0) == "longer than expected, going by earlier records"
    assert left(130.0, expected=9.0, share=0.25, since=100.0) == "about 5 min left"
    assert not left(130.0, expected=9.0, share=1, since=130.0)
