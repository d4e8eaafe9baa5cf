"""MAP against textbook formulas."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import lastlayer as ll
from experiments.baselines.map import MAP
from experiments.uci.task import TableTask
from tests.helpers.tasks import image_task, table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_map_is_bayesian_regression_on_the_trained_features_at_the_trained_noise(task):
    method = MAP(epochs=20)
    model: Any = method.new([task])[0]
    method.fit([model], [task], None)
    finished: Any = method.finish(model, task)

    def features(inputs):
        return nn.functional.pad(model.network[0](inputs), (0, 1), value=1.0).detach()

    noise = (2 * model.output.log_stddev).exp().item()
    s = model.network[1].weight.square().mean().item()
    inputs, target = task.development
    phi, new = features(inputs), features(task.test[0])
    covariance = (phi.T @ phi / noise + torch.eye(51) / s).inverse()
    found = finished(task.test[0])
    assert_close(found.mean, new @ covariance @ phi.T @ target / noise)
    assert_close(found.epistemic_variance, (new @ covariance * new).sum(-1, keepdim=True))
    assert_close(found.noise_variance, torch.full_like(found.mean, noise))


def test_map_of_classes_is_at_the_optimum_of_its_head_on_the_trained_features():
    task = image_task()
    ((model, _),) = MAP(epochs=20).train([task])
    assert isinstance(model.head, ll.DiscriminativeClassification)
    inputs, target = task.development
    features = model.backbone(inputs).detach()
    best = model.head(features, target).item()
    for name, _ in model.head.named_parameters():
        for step in (-1e-2, 1e-2):
            moved = copy.deepcopy(model.head)
            with torch.no_grad():
                moved.get_parameter(name).add_(step)
            assert moved(features, target).item() > best - 1e-5
