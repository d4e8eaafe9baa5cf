"""Keeping freed memory, in a process of its own: it cannot be undone."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from experiments.harness.allocation import keep_freed_memory

if {keep} and not keep_freed_memory():
    raise SystemExit(3)
for _ in range(30):  # until the free parts are of the right size
    torch.ones(2**25)  # 128 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def _faults(keep: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True
    )
    if done.returncode == 3:
        pytest.skip("the C library is not glibc")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_kept_memory_is_not_asked_of_the_system_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting, raising=False)
    assert _faults(keep=True) < _faults(keep=False) / 10
