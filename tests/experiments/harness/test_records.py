"""Records: appended whole, read in order."""

import json

import pytest

from experiments.harness import records


def record(seed, nll=1.0):
    return {"config": {"seed": seed}, "metrics": {"nll": nll}, "time": "2026-01-01"}


def test_records_come_back_in_order_and_the_later_of_two_counts(tmp_path):
    path = tmp_path / "folder" / "records.jsonl"
    records.append(path, [record(2), record(0)])
    records.append(path, [record(2, nll=5.0)])
    assert records.read(path) == [record(0), record(2, nll=5.0)]


def test_a_line_cut_short_is_skipped_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "records.jsonl"
    records.append(path, [record(0)])
    with path.open("a") as file:
        file.write(json.dumps(record(1))[:20])
    records.append(path, [record(2)])
    with pytest.warns(UserWarning, match="line 2 is no complete record"):
        assert records.read(path) == [record(0), record(2)]


def test_runs_of_one_file_are_told_apart_by_more_than_their_seed(tmp_path):
    path = tmp_path / "records.jsonl"
    runs = [{"config": {"delta": delta, "seed": seed}} for delta in (0.5, 0.9) for seed in (0, 1)]
    records.append(path, [*reversed(runs), {"config": {"delta": 0.9, "seed": 1}, "later": True}])
    found = records.read(path, ("delta", "seed"))
    assert found == [*runs[:3], {"config": {"delta": 0.9, "seed": 1}, "later": True}]


def test_a_record_names_the_versions_that_are_there():
    found = records.versions(["pytest", "no-such-package"])
    assert set(found) == {"python", "torch", "lastlayer", "pytest"}
