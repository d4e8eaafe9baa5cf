"""Bandits of real tables: what arms pay, their regret, and the page."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn import datasets

from experiments.bandits import classes
from experiments.bandits.real import TableTask
from experiments.harness import jobs


def test_digits_pay_for_the_right_digit_alone():
    task = TableTask(seed=0, table="digits", num_contexts=1_797)
    inputs, digits = datasets.load_digits(return_X_y=True)
    assert task.rewards.shape == (1_797, 10)
    np.testing.assert_array_equal(task.rewards.sum(0), np.bincount(digits))  # every row once
    assert (task.regrets(task.rewards.argmax(1)) == 0).all()
    assert task.uniform_regret == pytest.approx(0.9)
    np.testing.assert_allclose(task.contexts.mean(0), 0, atol=1e-12)
    again = TableTask(seed=0, table="digits", num_contexts=2_000)
    assert len(np.unique(again.contexts[:1_797], axis=0)) == len(np.unique(inputs, axis=0))


def test_tumours_pay_as_mushrooms_do():
    task = TableTask(seed=0, table="cancer", num_contexts=20_000)
    ones, zeros = np.ones(20_000, int), np.zeros(20_000, int)
    good = task.regrets(ones) == 0
    assert (task.rewards[good, 1] == 5).all()
    assert set(task.rewards[~good, 1]) == {5.0, -35.0}
    assert abs((task.rewards[~good, 1] == 5).mean() - 0.5) < 4 * 0.5 / (~good).sum() ** 0.5
    assert (task.regrets(ones)[~good] == 15).all()
    assert (task.regrets(zeros)[good] == 5).all()
    assert task.uniform_regret == pytest.approx(np.where(good, 2.5, 7.5).mean())


def test_agents_have_a_record_and_a_row(tmp_path):
    torch.set_default_dtype(torch.float32)
    smaller: dict[str, Any] = {
        "ours": {"steps": 2, "batch_size": 8, "num_contexts": 40},
        "lin-full-post": {"num_contexts": 60},
    }
    for name, changes in smaller.items():
        (job,) = jobs.plan(classes.EXPERIMENT, ["cancer"], [name], tmp_path, 1, **changes)
        assert job.config(0).get("reward_scale", 35.0) == 35.0
        assert jobs.run(job) is None
    assert "cancer" in str(classes.write(tmp_path))
    text = (tmp_path / "classes" / "README.md").read_text()
    assert "| Ours " in text
    assert "| LinFullPost " in text
