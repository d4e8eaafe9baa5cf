"""Every method on an MLP with a Gaussian and on a convolutional network with a softmax."""

import math
from typing import Any

import pytest
import torch

import lastlayer as ll
from experiments.baselines.bbb import BBB
from experiments.baselines.dropout import Dropout
from experiments.baselines.ensemble import Ensemble
from experiments.baselines.fitted import Fitted
from experiments.baselines.generative import GenerativeVBLL
from experiments.baselines.map import MAP
from experiments.baselines.ours import Ours
from experiments.baselines.swag import SWAG
from experiments.baselines.vbll import VBLL, LastLayer
from experiments.baselines.vbll_bbb import VBLLBBB
from tests.helpers.tasks import NUM_CLASSES, image_task, table_task

SETTINGS: Any = {"epochs": 16, "batch_size": 16, "learning_rate": 1e-2, "validate_every": 8}
METHODS: list[Fitted] = [
    MAP(**SETTINGS),
    Dropout(num_prediction_samples=5, **SETTINGS),
    Ensemble(num_members=2, **SETTINGS),
    SWAG(num_snapshots=3, num_prediction_samples=5, **SETTINGS),
    BBB(num_prediction_samples=5, **SETTINGS),
    LastLayer(**SETTINGS),
    VBLL(**SETTINGS),
    VBLLBBB(num_prediction_samples=5, **SETTINGS),
    Ours(num_folds=2, **SETTINGS),
]
CLASSIFIERS = [*METHODS, GenerativeVBLL(**SETTINGS)]


def name(method: Fitted) -> str:
    return type(method).__name__


@pytest.fixture(autouse=True)
def _single_precision() -> None:
    torch.set_default_dtype(torch.float32)  # that of the experiments


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_regression_by_an_mlp_is_better_than_no_inputs_at_all(method: Fitted):
    """Two seeds train as one; predictives have the metrics of regression."""
    tasks = [table_task(seed, num_train=64, num_validation=32) for seed in (0, 1)]
    solved = method.train(tasks)
    assert solved[0][1]["validation_nll"] != solved[1][1]["validation_nll"]
    for task, (model, notes) in zip(tasks, solved, strict=True):
        predictive = model(task.test[0])
        assert isinstance(predictive, ll.RegressionPredictive)
        assert predictive.mean.shape == (8, 1)
        found = task.evaluate(model)
        assert set(found) == {"nll", "rmse", "crps", "coverage", "width"}
        assert all(math.isfinite(value) for value in found.values())
        assert notes["epochs"] <= 16
        inputs, target = task.train
        assert (model(inputs).mean - target).square().mean() < target.square().mean()


@pytest.mark.slow
@pytest.mark.parametrize("method", CLASSIFIERS, ids=name)
def test_classification_by_a_convolutional_network_is_better_than_chance(method: Fitted):
    """One seed alone; predictives have the metrics of classification."""
    task = image_task()
    ((model, notes),) = method.train([task])
    predictive = model(task.test[0])
    assert isinstance(predictive, ll.ClassificationPredictive)
    probs = predictive.probs()
    assert probs.shape == (30, NUM_CLASSES)
    torch.testing.assert_close(probs.sum(-1), torch.ones(30))
    found = task.evaluate(model)
    assert {"nll", "accuracy", "brier", "ece"} <= set(found)
    assert all(math.isfinite(value) for value in found.values())
    assert found["accuracy"] > 2 / NUM_CLASSES
    assert found["nll"] < math.log(NUM_CLASSES)
    assert notes["epochs"] <= 16


@pytest.mark.slow
def test_classifiers_of_several_seeds_train_as_one():
    tasks = [image_task(seed) for seed in (0, 1)]
    method = MAP(**SETTINGS)
    for task, (model, _) in zip(tasks, method.train(tasks), strict=True):
        ((alone, _),) = method.train([task])
        torch.testing.assert_close(
            model(task.test[0]).log_probs(), alone(task.test[0]).log_probs(), rtol=0.0, atol=1e-3
        )
