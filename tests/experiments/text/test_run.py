"""The sentiment experiment: a short run of every method, its records, tuning and command."""

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lastlayer as ll
from experiments.__main__ import app
from experiments.harness import command, jobs, records
from experiments.text import methods, tuning
from experiments.text.methods import METHODS, OURS, SIZES, TUNED
from experiments.text.run import EXPERIMENT
from experiments.text.task import ACCURACY, NLL, task
from tests.helpers.reviews import write_features

RECORDED = Path(__file__).parents[3] / "results"


@pytest.fixture(autouse=True)
def _features(tmp_path, monkeypatch):
    """Few features of few reviews, and torch's own default dtype, as users have."""
    write_features(tmp_path / "data")
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    torch.set_default_dtype(torch.float32)


def parameter(name):
    """A method; that of a package that is not installed is skipped, and says so."""
    absent = name.startswith("laplace") and importlib.util.find_spec("laplace") is None
    reason = "needs laplace-torch: pip install -e '.[laplace]'"
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=reason))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*link_approx:UserWarning")  # laplace-torch's own
@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@pytest.mark.parametrize("name", [parameter(name) for name in METHODS])
def test_every_method_trains_tests_and_records(name, tmp_path):
    changes: Any = {"epochs": 20} if "epochs" in METHODS[name].settings else {}
    planned = jobs.plan(EXPERIMENT, ["100"], [name], tmp_path, 2, **changes)
    for job in planned:
        assert jobs.run(job) is None
    found = records.read(tmp_path / "text" / f"minilm-{name}.jsonl", EXPERIMENT.identity)
    assert [(r["config"]["n"], r["config"]["seed"]) for r in found] == [(100, 0), (100, 1)]
    for record in found:
        assert record["config"]["method"] == name
        assert math.isfinite(record["metrics"]["nll"])
        assert ("head" in record["metrics"]) == (name in OURS)
        assert 0.7 < record["metrics"]["accuracy"] <= 1
        assert 0 <= record["metrics"]["ece"] < 0.5
    assert found[0]["metrics"]["nll"] != found[1]["metrics"]["nll"]
    assert jobs.plan(EXPERIMENT, ["100"], [name], tmp_path, 2, **changes) == []


def test_networks_have_two_linear_layers_before_the_head():
    made = METHODS["d-vbll"].configured("10").make(task("minilm", 10, 0))
    assert sum(isinstance(m, torch.nn.Linear) for m in made.backbone.modules()) == 2
    assert isinstance(made.head, ll.DiscriminativeClassification)


def test_the_priors_of_the_paper_are_named_and_not_the_heads_defaults():
    for name in ("d-vbll", "g-vbll"):
        made = METHODS[name].configured("25000").make(task("minilm", 100, 0))
        assert made.head.prior == ll.Prior(variance=1.0, noise_dof=1.0, noise_scale=1.0)


def test_the_same_networks_are_those_of_mlp_before_anything_is_done_to_them():
    method = METHODS["mlp"].configured("100", epochs=2)
    scaled = METHODS["posttrain"].configured("100", epochs=2)
    one = task("minilm", 100, 0)
    ((network, _),), ((trained, _),) = method.train([one]), scaled.train([one])
    features = network.network[0](one.test[0])
    torch.testing.assert_close(trained.backbone(one.test[0]), features)


def test_settings_are_those_that_tuning_chose():
    by_nll, by_accuracy = (tuning.chosen(RECORDED, metric) for metric in (NLL, ACCURACY))
    assert by_nll | {"mlp-accuracy": by_accuracy["mlp"]} == TUNED


def test_tuning_has_a_record_of_every_setting():
    found = records.read(tuning.path(RECORDED), tuning.IDENTITY)
    per_size = {size: len(seeds) for size, seeds in tuning.SEEDS.items()}
    assert len(found) == sum(per_size[size] for _, size, _, _ in tuning.settings())
    assert all(record["config"]["seed"] >= 100 for record in found)  # none of the table's


@pytest.mark.slow
def test_tuning_chooses_what_is_best_on_held_out_reviews_and_is_resumable(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "LEARNING_RATES", (1e-6, 3e-2))
    monkeypatch.setattr(tuning, "WEIGHT_DECAYS", (0.1,))
    monkeypatch.setattr(tuning, "SEEDS", {"10": range(100, 102)})
    monkeypatch.setattr(methods, "PAPER", ("mlp",))
    command = ["text", "--tune", "--results", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    lines = tuning.path(tmp_path).read_text()
    assert len(lines.splitlines()) == 2 * 2
    assert tuning.chosen(tmp_path, ACCURACY)["mlp"] == {"10": (3e-2, 0.1)}
    assert CliRunner().invoke(app, command).exit_code == 0
    assert tuning.path(tmp_path).read_text() == lines


@pytest.mark.slow
def test_the_command_runs_what_has_no_record(tmp_path):
    arguments = ["text", "--sizes", "10,100", "--methods", "mlp,logistic", "--seeds", "1"]
    arguments += ["--results", str(tmp_path), "--workers", "1"]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    assert "4 runs to do" in first.output
    assert "0 runs to do" in second.output
    path = tmp_path / "text" / "minilm-mlp.jsonl"
    assert [r["config"]["n"] for r in records.read(path, EXPERIMENT.identity)] == [10, 100]


def test_methods_of_packages_that_are_not_installed_are_left_out(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = set(command.installed(EXPERIMENT))
    assert set(METHODS) - found == {"laplace-full", "laplace-kron", "laplace-diag", "vbll"}


def test_a_wrong_size_is_named():
    shown = CliRunner().invoke(app, ["text", "--sizes", "17"])
    assert shown.exit_code == 2
    assert "17" in shown.output


def test_missing_reviews_are_an_error_without_a_traceback(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "nothing"))
    shown = CliRunner().invoke(app, ["text", "--embed"])
    assert shown.exit_code == 2
    assert "aclImdb" in shown.output
    assert "Traceback" not in shown.output


def test_columns_have_the_papers_sizes():
    assert list(SIZES.values()) == [10, 100, 1000, 25000]
    assert EXPERIMENT.columns["1000"] == {"dataset": "minilm", "n": 1000}
