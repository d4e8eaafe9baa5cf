"""The experiment of active learning: short runs on data made here, its curves and its page."""

import functools
import json
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.active import curves, page
from experiments.active.methods import METHODS
from experiments.active.problems import ERROR, METRICS, table_task
from experiments.active.run import EXPERIMENT
from experiments.harness import jobs
from experiments.harness.statistics import Runs
from tests.helpers.reviews import write_features

pytest.importorskip("botorch", reason="tables are fitted by lastlayer.botorch")

# Two rounds that label the whole pool, two thirds of a table and all training reviews.
WHOLE: dict[str, Any] = {
    "concrete": {"initial": 20, "batch": 20, "rounds": 2},
    "imdb": {"initial": 100, "batch": 100, "rounds": 2},
}


@pytest.fixture(autouse=True)
def _data(tmp_path, monkeypatch):
    """A small table, few features of few reviews, and torch's own default dtype, as users have.

    Features of tables are trained for a few steps.
    """
    from lastlayer.botorch import FeatureTraining

    quick = functools.partial(FeatureTraining, steps=3)
    monkeypatch.setattr("lastlayer.optimisation.model.FeatureTraining", quick)
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * random.normal(size=90)
    path = tmp_path / "data" / "uci" / "concrete.csv"
    path.parent.mkdir(parents=True)
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", header="a,b,c,y", comments="")
    write_features(tmp_path / "data")
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    torch.set_default_dtype(torch.float32)


def record(method: str, seed: int, error: list[float]) -> str:
    """A line of records on concrete, whose NLL is the error."""
    metrics = {"labels": [10, 20, 30, 40][: len(error)], "error": error, "nll": error}
    config = {"method": method, "dataset": "concrete", "seed": seed}
    return json.dumps({"config": config, "metrics": metrics}) + "\n"


@pytest.fixture
def made(tmp_path):
    """Two seeds of LCMD and of random, of which LCMD comes down to random's end at 15 labels."""
    (tmp_path / "active").mkdir()
    for method, end in (("lcmd", 1.0), ("random", 2.0)):
        path = EXPERIMENT.path(tmp_path, "concrete", method)
        with path.open("w") as file:
            for seed, shift in enumerate((-0.5, 0.5)):
                middle = 1.0 if method == "lcmd" else 2.5
                file.write(
                    record(method, seed, [3 + shift, middle + shift, 4 + shift, end + shift])
                )
    return Runs.load(EXPERIMENT, tmp_path)


def test_every_method_ends_where_all_do_once_the_pool_is_labelled(tmp_path):
    for column, budget in WHOLE.items():
        ends, starts = [], []
        for name in METHODS:
            for job in jobs.plan(EXPERIMENT, [column], [name], tmp_path, 2, **budget):
                assert jobs.run(job) is None
            for run in EXPERIMENT.read(tmp_path, column, name):
                metrics = run["metrics"]
                first = budget["initial"]
                assert metrics["labels"] == [first, first + budget["batch"], 3 * first]
                seed = run["config"]["seed"]
                starts.append((seed, *(metrics[metric.name][0] for metric in METRICS)))
                ends.append((seed, *(metrics[metric.name][-1] for metric in METRICS)))
        assert len(set(starts)) == 2  # the same labels, for both seeds
        for seed in (0, 1):
            same = np.array([score for score in ends if score[0] == seed])
            np.testing.assert_allclose(same, same[:1].repeat(len(same), 0), atol=2e-3)
        assert starts[0] != ends[0]
    assert "LCMD" in str(page.write(tmp_path))
    text = (tmp_path / "active" / "README.md").read_text()
    assert all(f"| {METHODS[name].title} " in text for name in METHODS)
    assert (tmp_path / "active" / "curves.png").stat().st_size > 10_000


def test_scores_are_those_of_predictions():
    task = table_task("concrete", 0)
    model = task.fitted(torch.arange(40))
    inputs, target = task.test
    predictive: Any = model(inputs)
    error = (predictive.mean - target).detach().double()
    variance = predictive.variance.detach().double()
    nll = 0.5 * (error.square() / variance + variance.log() + np.log(2 * np.pi))
    score = task.score(model)
    assert score["error"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)
    assert score["nll"] == pytest.approx(float(nll.mean()), rel=1e-4)


def test_labels_saved_are_interpolated_on_the_mean_curve(made):
    # 3 at 10 labels, 1 at 20: random's final 2 is reached at 15 of 40
    assert curves.saved(made, "lcmd", "concrete", ERROR, "random") == pytest.approx(1 - 15 / 40)
    assert curves.saved(made, "random", "concrete", ERROR, "lcmd") == 0.0  # never reached
    assert curves.saved(made, "bait", "concrete", ERROR, "random") is None
    assert curves.reached(np.array([10, 20]), np.array([1.0, 0.5]), 1.0) == 10


def test_budgets_are_compared_seed_by_seed_beyond_the_first(made):
    found = curves.counts(made, "lcmd", "random", ["concrete", "energy"], METRICS)
    assert found == (4, 6, 4, 0)  # better at 20 and 40 labels, equal at 30, in both metrics
    assert curves.initial_spread(made, "concrete", ERROR) == 0.0
    assert any("**missed**, 4 of 6" in line for line in page.verdicts(made))


def test_the_command_line_refuses_what_it_does_not_know():
    result = CliRunner().invoke(app, ["active", "--datasets", "boston"])
    assert result.exit_code == 2
    assert "unknown datasets: boston" in result.output
