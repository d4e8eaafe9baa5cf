"""The UCI experiment: data, records, resuming, and a short run of every method."""

import importlib.util
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from experiments import __main__ as main
from experiments import jobs, published, records, uci
from experiments.__main__ import app
from experiments.datasets import uci as data
from experiments.methods import METHODS
from tests.helpers.tables import write_tables


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    """Every data set as a small table, and torch's own default dtype, as users have."""
    write_tables(tmp_path / "data", list(data.NAMES))
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(default)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# --------------------------------------------------------------------------------------- data


def test_a_split_has_the_papers_proportions_and_every_example_once():
    split = data.split("boston", seed=3)
    sizes = [len(part[0]) for part in (split.train, split.validation, split.test)]
    assert sizes == [29, 7, 4]  # 0.72, 0.18 and 0.1 of 40
    _, target = data.load("boston")
    parts = [part[1] for part in (split.train, split.validation, split.test)]
    centred = torch.cat(parts).double().squeeze(-1).sort().values
    expected = np.sort(target) - np.sort(target)[0]
    assert np.allclose(centred - centred[0], expected, atol=1e-5)


def test_training_inputs_are_standard_and_targets_centred():
    split = data.split("yacht", seed=0)
    inputs, target = split.train
    assert torch.allclose(inputs.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(inputs.std(0, correction=0), torch.ones(3), atol=1e-5)
    assert abs(target.mean()) < 1e-5
    assert split.target_scale == 1.0


def test_scaled_targets_times_their_scale_are_the_centred_ones():
    plain, scaled = data.split("yacht", 1), data.split("yacht", 1, scale_targets=True)
    assert abs(scaled.train[1].std(correction=0) - 1) < 1e-5
    for one, two in ((plain.train, scaled.train), (plain.test, scaled.test)):
        assert torch.equal(one[0], two[0])
        assert torch.allclose(one[1], scaled.target_scale * two[1], atol=1e-5)


def test_seeds_differ_and_a_seed_repeats():
    assert torch.equal(data.split("wine", 0).test[0], data.split("wine", 0).test[0])
    assert not torch.equal(data.split("wine", 0).test[1], data.split("wine", 1).test[1])


def test_splits_do_not_depend_on_the_order_of_the_rows(tmp_path):
    path = tmp_path / "data" / "uci" / "wine.csv"
    before = data.split("wine", 0)
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert torch.equal(data.split("wine", 0).test[0], before.test[0])


def test_a_constant_column_is_zero_not_nan(tmp_path):
    path = tmp_path / "data" / "uci" / "wine.csv"
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    table[:, 1] = 7.0
    np.savetxt(path, table, delimiter=",", header="a,b,c,y", comments="")
    assert torch.equal(data.split("wine", 0).test[0][:, 1], torch.zeros(4))


# ------------------------------------------------------------------------------------ records


def record(seed, nll=1.0):
    return {"config": {"seed": seed}, "metrics": {"nll": nll}, "time": "2026-01-01"}


def test_records_come_back_in_order_and_the_later_of_two_counts(tmp_path):
    path = tmp_path / "uci" / "boston-vbll.jsonl"
    records.append(path, [record(2), record(0)])
    records.append(path, [record(2, nll=5.0)])
    assert records.read(path) == [record(0), record(2, nll=5.0)]


def test_a_line_cut_short_is_skipped_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "records.jsonl"
    records.append(path, [record(0)])
    with path.open("a") as file:
        file.write(json.dumps(record(1))[:20])
    records.append(path, [record(2)])
    with pytest.warns(UserWarning, match="line 2 is no whole record"):
        assert records.read(path) == [record(0), record(2)]


# --------------------------------------------------------------------------- every method runs


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_trains_tests_and_records(method, tmp_path):
    (job,) = uci.plan(["yacht"], [method], 2, tmp_path, epochs=3)
    assert not job.is_done()
    assert uci.run(job) is None
    assert job.is_done()
    first, second = records.read(tmp_path / "uci" / f"yacht-{method}.jsonl")
    assert [r["config"]["seed"] for r in (first, second)] == [0, 1]
    for found in (first, second):
        assert found["config"]["method"] == method
        assert found["config"]["dataset"] == "yacht"
        assert found["config"]["epochs"] == 3
        assert found["versions"]["torch"] == torch.__version__
        assert found["seconds"] > 0
        metrics = found["metrics"]
        names = ("nll", "rmse", "crps", "coverage", "width")
        assert all(math.isfinite(metrics[name]) for name in names)
        assert 0 <= metrics["coverage"] <= 1
    assert first["metrics"]["nll"] != second["metrics"]["nll"]
    assert not job.checkpoint.exists()
    assert uci.plan(["yacht"], [method], 2, tmp_path, epochs=3) == []


def test_metrics_are_in_the_units_of_the_targets():
    plain, scaled = data.split("energy", 0), data.split("energy", 0, scale_targets=True)
    scale = scaled.target_scale

    def predictor(split, mean, variance):
        import lastlayer as ll

        def predict(inputs):
            shape = (len(inputs), 1)
            zero, full = torch.zeros(shape), torch.full(shape, variance)
            return ll.GaussianPredictive(zero + mean, zero, full)

        return predict

    one = uci.metrics(predictor(plain, 0.5, 4.0), plain)
    two = uci.metrics(predictor(scaled, 0.5 / scale, 4.0 / scale**2), scaled)
    assert two == pytest.approx(one, rel=1e-5)


# ------------------------------------------------------------------------------------ resuming


def test_only_what_has_no_record_is_planned_and_another_configuration_is_refused(tmp_path):
    assert uci.run(uci.plan(["wine"], ["vbll"], 1, tmp_path, epochs=2)[0]) is None
    (job,) = uci.plan(["wine"], ["vbll"], 3, tmp_path, epochs=2)
    assert job.seeds == (1, 2)
    with pytest.raises(ValueError, match=r"epochs was 2 and is 5.*--again"):
        uci.plan(["wine"], ["vbll"], 3, tmp_path, epochs=5)
    (job,) = uci.plan(["wine"], ["vbll"], 1, tmp_path, epochs=5, again=True)
    assert job.seeds == (0,)


def test_a_job_that_fails_leaves_no_record_and_says_why(tmp_path, monkeypatch):
    (job,) = uci.plan(["wine"], ["vbll"], 1, tmp_path, epochs=2)

    def fail(*_, **__):
        raise RuntimeError("out of paper")

    monkeypatch.setattr(uci, "metrics", fail)
    error = uci.run(job)
    assert error is not None
    assert "wine-vbll" in error
    assert "out of paper" in error
    assert records.read(job.path) == []


# --------------------------------------------------------------------------------- command line


def test_the_bare_command_lists_the_experiments():
    shown = invoke()
    assert shown.exit_code == 0
    for name in ("uci", "report", "toy", "regularizers", "hyperparameters", "splits", "download"):
        assert name in shown.output


def test_methods_are_listed_with_what_they_are(monkeypatch):
    monkeypatch.setattr(main, "console", Console(width=200))
    shown = invoke("methods").output
    lines = {line.split()[0]: line for line in shown.splitlines() if line[:1].strip()}
    assert set(METHODS) <= set(lines)
    assert "exact Gaussian process regression" in lines["gp"]  # of its file
    assert "The learning rate does not decay." in lines["ours-constant"]  # of its class


def test_help_names_the_data_sets_and_explains_resuming():
    shown = invoke("uci", "--help")
    assert "yacht" in shown.output
    assert "not run again" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "bostn"], "unknown data sets: bostn"),
        (["--methods", "vbll,gpp"], "unknown methods: gpp"),
        (["--datasets", ""], "none given"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(arguments, message):
    shown = invoke("uci", *arguments)
    assert shown.exit_code == 2
    assert message in " ".join(shown.output.split())


@pytest.mark.parametrize("named", [None, "gp, paper,gp", "paper,ours", "all"])
def test_by_default_the_methods_of_the_paper_run(named, tmp_path, monkeypatch):
    planned: list[uci.Job] = []

    def run_all(run, found, **options):
        planned.extend(found)
        return []

    monkeypatch.setattr(jobs, "run_all", run_all)
    invoke("uci", *(["--methods", named] if named else []), "--results", tmp_path)
    paper = {method for method, _, _ in published.UCI}
    expected = {"paper,ours": {*paper, "ours"}, "all": set(METHODS)}.get(named, paper)
    assert {job.method for job in planned} == expected
    runs = [(job.dataset, job.method, seed) for job in planned for seed in job.seeds]
    assert len(runs) == len(set(runs))


def test_a_missing_package_is_named_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown = invoke("uci", "--methods", "vbll,vbll-package", "--results", tmp_path)
    assert shown.exit_code == 2
    assert "pip install -e '.[authors]'" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    "command",
    [
        ("uci", "--methods", "vbll", "--results"),
        ("hyperparameters", "--output"),
        ("splits", "--output"),
    ],
)
def test_missing_data_says_how_to_get_them(tmp_path, monkeypatch, command):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "nowhere"))
    shown = invoke(*command, tmp_path)
    assert shown.exit_code == 2
    text = " ".join(shown.output.split())
    assert "LASTLAYER_DATA" in text
    assert "python -m experiments download" in text


@pytest.mark.slow
def test_the_command_runs_jobs_on_two_processes_and_then_has_nothing_to_do(tmp_path):
    arguments = ["uci", "--datasets", "wine,yacht", "--methods", "vbll", "--seeds", 1]
    arguments += ["--epochs", 2, "--workers", 2, "--results", tmp_path]
    shown = invoke(*arguments)
    assert shown.exit_code == 0, shown.output
    assert "2 runs to do" in shown.output
    for name in ("wine", "yacht"):
        assert len(records.read(tmp_path / "uci" / f"{name}-vbll.jsonl")) == 1
    assert "0 runs to do" in invoke(*arguments).output


def test_the_time_left_is_expected_by_records_and_then_measured(tmp_path, monkeypatch):
    job = uci.Job("wine", "vbll", (0, 1, 2), tmp_path, epochs=4)
    monkeypatch.setattr(uci, "RECORDED", tmp_path)
    assert job.expected_seconds is None
    record = {"config": job.config(0), "seeds_together": 3, "processor_seconds": 7.0}
    records.append(job.path, [record])
    assert job.expected_seconds == pytest.approx(21)
    twice = uci.Job("wine", "vbll", (0, 1, 2), tmp_path, epochs=8)
    assert twice.expected_seconds == pytest.approx(42)

    assert jobs._expected([120.0, None], 2) is None
    assert jobs._expected([120.0, 60.0, 60.0], 2) == 120
    assert jobs._expected([120.0, 10.0], 2) == 120

    def left(elapsed, **fields):
        fields = {"share": 0.0, "since": 0.0} | fields
        task: Any = SimpleNamespace(elapsed=elapsed, finished=fields["share"] == 1, fields=fields)
        return jobs._TimeLeft().render(task).plain

    assert left(1.0, expected=None) == "time left: known after the first job"
    assert left(30.0, expected=600.0) == "about 10 min left, going by earlier records"
    assert left(700.0, expected=600.0) == "longer than expected, going by earlier records"
    assert left(130.0, expected=9.0, share=0.25, since=100.0) == "about 5 min left"
    assert not left(130.0, expected=9.0, share=1, since=130.0)


@pytest.mark.slow
def test_the_same_jobs_run_on_a_ray_cluster_of_two_workers(tmp_path):
    pytest.importorskip("ray")
    planned = uci.plan(["wine", "yacht"], ["vbll"], 1, tmp_path, epochs=2)
    assert jobs.run_all(uci.run, planned, executor="ray", num_workers=2) == []
    assert all(job.is_done() for job in planned)
