"""The UCI experiment: a short run of every method, its records and its command."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import lastlayer as ll
from experiments.__main__ import app
from experiments.datasets import uci as data
from experiments.harness import executors, jobs, records
from experiments.uci.methods import METHODS
from experiments.uci.published import PUBLISHED
from experiments.uci.run import EXPERIMENT
from experiments.uci.task import task
from tests.helpers.tables import write_tables

RECORDED = Path(__file__).parents[3] / "results"


@pytest.fixture(autouse=True)
def _tables(tmp_path, monkeypatch):
    """Every data set as a small table, and torch's own default dtype, as users have."""
    write_tables(tmp_path / "data", list(data.NAMES))
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    torch.set_default_dtype(torch.float32)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_records_of_this_repository_are_of_the_configurations_that_would_run():
    pytest.importorskip("vbll")
    assert jobs.plan(EXPERIMENT, EXPERIMENT.columns, METHODS, RECORDED) == []


def test_settings_of_vbll_are_those_of_appendix_d():
    vbll, bbb = METHODS["vbll"], METHODS["vbll_bbb"]
    power, wine = (vbll.configured(name) for name in ("power", "wine"))
    assert (power.epochs, power.batch_size) == (3000, 256)
    assert (wine.epochs, wine.batch_size) == (1000, 32)
    assert {bbb.configured(name).epochs for name in data.NAMES} == {10_000}
    assert [bbb.configured(name).batch_size for name in ("wine", "power")] == [32, 256]
    assert (set(vbll.num_seeds.values()), set(bbb.num_seeds.values())) == ({20}, {10})


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_trains_tests_and_records(method, tmp_path):
    (job,) = jobs.plan(EXPERIMENT, ["yacht"], [method], tmp_path, 2, epochs=3)
    assert not job.is_done()
    assert jobs.run(job) is None
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
    assert jobs.plan(EXPERIMENT, ["yacht"], [method], tmp_path, 2, epochs=3) == []


def test_metrics_are_in_the_units_of_the_targets():
    method = METHODS["vbll"].configured("energy")
    plain, scaled = (
        task("energy", 0, replace(method, scale_targets=flag)) for flag in (False, True)
    )
    scale = scaled.target_scale

    def predictor(mean, variance):
        def predict(inputs):
            zero = torch.zeros(len(inputs), 1)
            return ll.GaussianPredictive(zero + mean, zero, zero + variance)

        return predict

    one = plain.evaluate(predictor(0.5, 4.0))
    two = scaled.evaluate(predictor(0.5 / scale, 4.0 / scale**2))
    assert two == pytest.approx(one, rel=1e-5)
    notes = {"validation_nll": 1.0, "validation_rmse": 2.0, "tried": [{"validation_nll": 3.0}]}
    shift = math.log(scale)
    assert scaled.describe(notes) == {
        "validation_nll": 1.0 + shift,
        "validation_rmse": 2.0 * scale,
        "tried": [{"validation_nll": 3.0 + shift}],
    }


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
    planned: list[jobs.Job] = []

    def run_all(run, found, **options):
        planned.extend(found)
        return []

    monkeypatch.setattr(executors, "run_all", run_all)
    invoke("uci", *(["--methods", named] if named else []), "--results", tmp_path)
    paper = {method for method, _, _ in PUBLISHED.cells}
    expected = {"paper,ours": {*paper, "ours"}, "all": set(METHODS)}.get(named, paper)
    assert {job.entry for job in planned} == expected
    runs = [(job.column, job.entry, seed) for job in planned for seed in job.seeds]
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
    ],
)
def test_missing_data_says_how_to_get_them(tmp_path, monkeypatch, command):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "nowhere"))
    shown = invoke(*command, tmp_path)
    assert shown.exit_code == 2
    text = " ".join(shown.output.split())
    assert "LASTLAYER_DATA" in text
    assert "python -m experiments download" in text
