"""Processes that train together have the losses and the weights of one process."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests.helpers.processes import made_once
from tests.helpers.together import CASES

TIMEOUT = 120  # seconds


def run(argument: str | Path) -> subprocess.CompletedProcess[str]:
    """Two processes, each of which checks that it leaves the others before it ends."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("--module", "tests.helpers.together", str(argument)),
    ]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes come to, started once for all cases."""

    def train(folder: Path) -> None:
        done = run(folder / "results")
        assert done.returncode == 0, done.stderr

    folder = made_once(tmp_path_factory, "together", train)
    return torch.load(folder / "results", weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_two_processes_train_as_one(case: str, together: dict[str, Any]) -> None:
    model, history = CASES[case](1)
    state, rows = together[case]
    assert_close(state, model.state_dict())
    for row, expected in zip(rows, history, strict=True):
        assert row == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.slow
def test_a_process_that_fails_ends_all_and_leaves_no_thread_behind() -> None:
    done = run("fail")
    assert done.returncode == 1
    assert "RuntimeError: boom" in done.stderr
    assert "threads are left" not in done.stderr
