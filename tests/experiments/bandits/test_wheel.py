"""The wheel bandit: its problem, its linear agents, and its page."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.bandits import choice, page
from experiments.bandits.linear import LinearPosterior, NormalInverseGamma, Uniform
from experiments.bandits.methods import METHODS
from experiments.bandits.neural import NetworkAgent
from experiments.bandits.published import COLUMNS, PUBLISHED
from experiments.bandits.run import EXPERIMENT, LINEAR
from experiments.bandits.task import curve_points
from experiments.bandits.wheel import SAFE, WheelTask
from experiments.harness import jobs
from experiments.harness.statistics import Runs


def task(delta: float = 0.7, count: int = 40_000, seed: int = 0) -> WheelTask:
    return WheelTask(seed=seed, delta=delta, num_contexts=count)


@pytest.mark.parametrize("delta", [float(column) for column in COLUMNS])
def test_an_arm_at_random_has_the_regret_of_the_closed_form(delta):
    problem = task(delta)
    assert problem.uniform_regret == pytest.approx(0.16 * delta**2 + 39.16 * (1 - delta**2))
    regrets = problem.regrets(np.random.default_rng(5).integers(5, size=40_000))
    error = regrets.std() / 200
    assert abs(regrets.mean() - problem.uniform_regret) < 4 * error
    always_safe = problem.regrets(np.full(40_000, SAFE))
    expected = 48.8 * (1 - delta**2)
    assert abs(always_safe.mean() - expected) < 4 * always_safe.std() / 200


def test_prizes_are_where_they_should_be():
    problem = task()
    radius = np.hypot(*problem.contexts.T)
    assert radius.max() <= 1
    prizes = problem.rewards > 25
    assert (prizes.sum(1) == (radius >= 0.7)).all()
    signs = np.sign(problem.contexts)
    for arm, sign in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)]):
        assert (signs[prizes[:, arm]] == sign).all()
    assert abs((radius >= 0.7).mean() - 0.51) < 4 * (0.51 * 0.49 / 40_000) ** 0.5


def test_metrics_are_regrets_in_percent_and_their_curve_ends_at_the_cumulative_one():
    problem = task(count=2_000)
    arms = np.random.default_rng(1).integers(5, size=2_000)
    metrics = problem.evaluate(arms)
    regrets = problem.regrets(arms)
    assert metrics["cumulative_regret"] == pytest.approx(
        100 * regrets.mean() / problem.uniform_regret
    )
    assert metrics["simple_regret"] == pytest.approx(
        100 * regrets[-500:].mean() / problem.uniform_regret
    )
    assert metrics["curve"][-1] == pytest.approx(metrics["cumulative_regret"], abs=1e-4)
    assert len(metrics["curve"]) == len(curve_points(2_000))


def test_recursive_regressions_are_those_of_all_data_at_once():
    random = np.random.default_rng(2)
    x, y = random.normal(size=(30, 3)), random.normal(size=(30, 2))
    recursive = NormalInverseGamma((2,), 3, 0.25, 6.0, 6.0)
    for row, target in zip(x, y, strict=True):
        recursive.update((np.arange(2),), np.stack([row, row]), target)
    precision = 0.25 * np.eye(3) + x.T @ x
    for which in range(2):
        mean = np.linalg.solve(precision, x.T @ y[:, which])
        residual = np.square(y[:, which] - x @ mean).sum() + 0.25 * mean @ mean
        np.testing.assert_allclose(recursive.mean[which], mean, rtol=1e-9)
        np.testing.assert_allclose(recursive.covariance[which], np.linalg.inv(precision), rtol=1e-9)
        assert recursive.a[which] == 6 + 15
        assert recursive.b[which] == pytest.approx(6 + residual / 2)
        whole = NormalInverseGamma((2,), 3, 0.25, 6.0, 6.0)
        whole.fit(which, x, y[:, which])
        np.testing.assert_allclose(whole.mean[which], mean, rtol=1e-9)
        assert whole.b[which] == pytest.approx(recursive.b[which])


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_linear_agent_draws_from_its_posterior(covariance):
    agent = LinearPosterior(covariance=covariance)
    posterior = NormalInverseGamma((1, 5), 3, 0.25, 6.0, 6.0)
    random = np.random.default_rng(3)
    for _ in range(20):
        arm = random.integers(5, size=1)
        posterior.update((np.zeros(1, int), arm), random.normal(size=(1, 3)), random.normal(size=1))
    x = random.normal(size=(1, 3))
    draws = np.stack([agent._draws(posterior, x, [random])[0] for _ in range(4_000)])
    spread = posterior.b[0] / (posterior.a[0] - 1)  # the mean of the inverse-gamma distribution
    matrices = posterior.covariance[0]
    if covariance == "diagonal":
        matrices = matrices * np.eye(3)
    variance = spread * np.einsum("i,kij,j->k", x[0], matrices, x[0])
    mean = posterior.mean[0] @ x[0]
    assert (abs(draws.mean(0) - mean) < 4 * np.sqrt(variance / 4_000)).all()
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.15)


def test_seeds_play_alike_alone_and_together():
    tasks = [task(count=300, seed=seed) for seed in range(3)]
    for agent in (LinearPosterior(), Uniform()):
        together = agent.train(tasks)
        alone = agent.train(tasks[1:2])
        np.testing.assert_array_equal(together[1][0], alone[0][0])


def test_linear_agents_do_far_better_than_an_arm_at_random():
    problem = task(0.5, 1_500)
    ((arms, _),) = LinearPosterior().train([problem])
    assert problem.evaluate(arms)["simple_regret"] < 20


SHORT: Any = {"steps": 2, "batch_size": 8}  # of agents with a network


def test_every_agent_has_a_record_and_a_row(tmp_path):
    torch.set_default_dtype(torch.float32)
    for name in METHODS:
        changes: Any = {"num_contexts": 60, **({} if name in LINEAR else SHORT)}
        (job,) = jobs.plan(EXPERIMENT, ["0.5"], [name], tmp_path, 1, **changes)
        assert jobs.run(job) is None
        (line,) = EXPERIMENT.path(tmp_path, "0.5", name).read_text().splitlines()
        record = json.loads(line)
        assert record["config"]["method"] == name
        assert (record["config"]["delta"], record["config"]["seed"]) == (0.5, 0)
        assert np.isfinite(record["metrics"]["cumulative_regret"])
    assert page.write(tmp_path)
    text = (tmp_path / "bandits" / "README.md").read_text()
    assert all(f"| {entry.title} " in text for entry in METHODS.values())
    assert (tmp_path / "bandits" / "curves.png").stat().st_size > 10_000


def test_variants_play_seeds_of_no_table_once(tmp_path, capsys, monkeypatch):
    torch.set_default_dtype(torch.float32)
    name = "short"
    monkeypatch.setitem(choice.VARIANTS, name, ("ours", {"steps": 2, "batch_size": 8}))
    path = tmp_path / "bandits" / choice.RECORDED.name
    assert choice.section(tmp_path) == ""
    for _ in range(2):  # what has a record is not run again
        choice.main([name], ["0.9"], 2, 40, path)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["config"]["seed"] for record in found] == [100, 101]
    assert len(capsys.readouterr().out.splitlines()) == 2
    mean = np.mean([record["metrics"]["cumulative_regret"] for record in found])
    (row,) = (line for line in choice.section(tmp_path).splitlines() if line.startswith("| short"))
    assert f"{mean:.2f}" in row
    assert "(2)" in row


def test_an_interrupted_game_goes_on_to_the_same_arms(tmp_path):
    torch.set_default_dtype(torch.float32)
    agent = NetworkAgent(**SHORT)
    whole, _ = agent._play(task(0.5, 80), None)
    half = agent._agent(task(0.5, 80), tmp_path)
    for start in range(0, 40, 20):
        batch = task(0.5, 80).contexts[start : start + 20]
        arms = half.predict(batch)
        half.partial_fit(batch, arms, task(0.5, 80).rewards[np.arange(start, start + 20), arms])
    resumed, _ = agent._play(task(0.5, 80), tmp_path)
    np.testing.assert_array_equal(resumed, whole)


def test_the_command_line_refuses_what_it_does_not_know():
    result = CliRunner().invoke(app, ["bandits", "--deltas", "0.6"])
    assert result.exit_code == 2
    assert "unknown deltas: 0.6" in result.output


def test_the_summary_counts_columns_at_or_below_the_papers(tmp_path):
    path = EXPERIMENT.path(tmp_path, "0.5", "ours")
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for column, factor in (("0.5", 0.9), ("0.99", 1.1)):
            cell = PUBLISHED.cells["vbll", column, "cumulative_regret"]
            config = {"method": "ours", "dataset": "wheel", "delta": float(column), "seed": 0}
            metrics = {"cumulative_regret": factor * cell.mean, "simple_regret": 0.0}
            file.write(json.dumps({"config": config, "metrics": metrics}) + "\n")
    (line,) = page.summary(Runs.load(EXPERIMENT, tmp_path))
    assert (
        "cumulative regret in 1 of 2, in simple regret in 2 of 2 columns (1 seed in each)" in line
    )
