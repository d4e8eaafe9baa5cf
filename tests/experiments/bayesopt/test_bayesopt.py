"""Bayesian optimisation: its tasks, its surrogates for a round or two, and its page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.bayesopt import choice, page, timing
from experiments.bayesopt.draws import best, maximise, scalarised
from experiments.bayesopt.methods import METHODS
from experiments.bayesopt.pests import EFFECT, NUM_STAGES, PRICE, cost
from experiments.bayesopt.run import EXPERIMENT
from experiments.bayesopt.tasks import PROBLEMS, OptimisationTask
from experiments.harness.statistics import Runs

QUICK: dict[str, dict[str, Any]] = {
    "ours": {"training": {"steps": 3}},
    "ours-continual": {"training": {"steps": 3}},
    "vbll": {"epochs": 2},
    "ensemble": {"members": 2, "steps": 2},
}


@pytest.mark.parametrize(
    ("name", "where", "best"),
    [
        ("branin", [(np.pi + 5) / 15, 2.275 / 15], [-0.397887]),
        ("hartmann", [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573], [3.32237]),
        ("ackley", [0.5] * 10, [0.0]),
        ("dtlz1", [0.5] * 5, [-0.25, -0.25]),
    ],
)
def test_tasks_have_their_published_optima(
    name: str, where: list[float], best: list[float]
) -> None:
    values = PROBLEMS[name].make(0)(torch.tensor([where]))
    assert_close(values[0], torch.tensor(best), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_tasks_have_published_budgets_and_begin_alike(name: str) -> None:
    about = PROBLEMS[name]
    total = {"branin": 100, "hartmann": 200, "ackley": 200, "network": 600, "pests": 120}
    total |= {"branin_currin": 105, "dtlz1": 100}
    assert about.initial + about.rounds * about.batch == total[name]
    points = OptimisationTask(seed=3, problem=name).first()
    assert points.shape == (about.initial, about.num_inputs)
    assert torch.equal(points, OptimisationTask(seed=3, problem=name).first())
    values = about.make(3)(points)
    assert values.shape == (about.initial, 1 if about.reference is None else 2)
    assert torch.equal(about.snap(points), points)


def test_pests_cost_what_was_paid_and_what_they_eat() -> None:
    nothing = cost(np.zeros(NUM_STAGES, int))
    assert 15 < nothing < NUM_STAGES  # soon they are always above the threshold
    for choice_ in range(1, 5):
        always = cost(np.full(NUM_STAGES, choice_))
        discount = {1: 0.2, 2: 0.3, 3: 0.3, 4: 0.0}[choice_]
        paid = NUM_STAGES * PRICE[choice_] * (1 - discount)
        assert 0 <= always - paid < nothing
    assert EFFECT[4] == pytest.approx(5 / 7)  # not changed by the above


def test_scores_are_best_values_or_hypervolumes() -> None:
    assert PROBLEMS["branin"].score(torch.tensor([[-3.0], [-1.0], [-2.0]])) == -1
    values = torch.tensor([[-17.0, -5.0], [-16.0, -5.5], [-17.5, -5.5]])
    assert PROBLEMS["branin_currin"].score(values) == pytest.approx(1 + 2 * 0.5 - 0.5)


def test_drawn_functions_are_maximised_each_by_itself() -> None:
    about = PROBLEMS["hartmann"]
    centres = torch.rand(about.batch, about.num_inputs)
    points = torch.rand(12, about.num_inputs)
    found = maximise(
        lambda x: -(x - centres).square().sum(-1, keepdim=True), about, points, torch.rand(12, 1)
    )
    assert_close(found, centres, rtol=0, atol=1e-4)


def test_scalarised_objectives_prefer_what_dominates() -> None:
    values = torch.rand(20, 2)
    value = scalarised(lambda x: x, values, 7)
    better = value(torch.full((7, 2), 0.6))
    assert (better > value(torch.full((7, 2), 0.5))).all()


def test_values_away_from_the_front_change_neither_scales_nor_where_one_looks() -> None:
    front = torch.tensor([[0.0, 3.0], [1.0, 2.0], [2.0, 0.0]])
    points, found = torch.rand(5, 2), []
    for values in (front, torch.cat([front, torch.tensor([[-500.0, -1.0]])])):
        torch.manual_seed(0)
        found.append(scalarised(lambda x: x, values, 5)(points))
    assert_close(found[1], found[0])
    torch.manual_seed(0)
    scaled = torch.rand(5, 2)
    scaled = scaled / scaled.sum(-1, keepdim=True) * (points - torch.tensor([2.0, 3.0]))
    scaled = scaled / torch.tensor([2.0, 3.0])
    assert_close(found[0], scaled.amin(-1) + 0.05 * scaled.sum(-1))
    assert sorted(best(torch.cat([values, values[:2] - 1])).tolist()) == [0, 1, 2]


def test_a_front_of_one_point_has_the_range_of_all_values() -> None:
    values = torch.tensor([[0.0, 0.0], [4.0, 2.0]])
    points = torch.rand(5, 2)
    torch.manual_seed(0)
    value = scalarised(lambda x: x, values, 5)(points)
    assert value.isfinite().all()
    torch.manual_seed(0)
    assert_close(value, scalarised(lambda x: 3 * x, 3 * values, 5)(points))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_surrogate_plays_the_smallest_tasks(method: str) -> None:
    for name in ("branin", "branin_currin"):
        task = OptimisationTask(seed=0, problem=name)
        player = METHODS[method].configured(name, rounds=2, **QUICK.get(method, {}))
        ((values, notes),) = player.train([task])
        assert len(values) == task.about.initial + 2 * task.about.batch
        assert len(notes["round_seconds"]) == 2
        metrics = task.evaluate(values)
        assert metrics["curve"] == sorted(metrics["curve"])
        assert metrics["final"] == task.about.score(values)
        if name == "branin":
            ((again, _),) = player.train([task])
            assert torch.equal(again, values)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hartmann", "ackley", "network", "pests", "dtlz1"])
def test_our_model_plays_every_task(name: str) -> None:
    task = OptimisationTask(seed=0, problem=name)
    player = METHODS["ours"].configured(name, rounds=1, training={"steps": 2})
    ((values, _),) = player.train([task])
    assert values.isfinite().all()


@pytest.mark.slow
def test_records_become_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["bayesopt", "--tasks", "branin", "--methods", "random", "--rounds", "2"]
    result = CliRunner().invoke(app, [*command, "--results", str(tmp_path), "--workers", "1"])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "bayesopt"
    lines = (folder / "branin-random.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["config"]["seed"] for line in lines) == list(range(5))
    for line in lines:  # as if ours had played too
        record = json.loads(line)
        record["config"]["method"] = "ours"
        with (folder / "branin-ours.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    timing.main(folder / "timing.jsonl", sizes=(12,))
    monkeypatch.setattr(choice, "FUNCTIONS", {"six-hump camel": choice.FUNCTIONS["six-hump camel"]})
    monkeypatch.setattr(choice, "SIZES", (10,))
    choice.main(["default", "SingleTaskGP"], seeds=1, path=folder / "choice.jsonl")
    assert page.write(tmp_path)
    text = (folder / "README.md").read_text()
    assert text == page.page(Runs.load(EXPERIMENT, tmp_path), tmp_path)
    for words in (
        "| Ours ",
        "## Time of a round",
        "## Choice of defaults",
        "1 function and 1 seed",
    ):
        assert words in text
    assert (folder / "curves.png").stat().st_size > 10_000
