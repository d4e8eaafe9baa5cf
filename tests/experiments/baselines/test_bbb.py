"""Bayes by backprop: what the loss holds."""

from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.testing import assert_close

import lastlayer as ll
from experiments.baselines.bbb import BBB
from experiments.baselines.vbll_bbb import VBLLBBB
from experiments.uci.task import TableTask
from tests.helpers.tasks import image_task, table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_bbb_pays_the_divergence_of_all_its_weights(task):
    model: Any = BBB(epochs=2).make(task)
    inputs, target = task.train
    weights: Any = [layer for layer in model.modules() if isinstance(layer, ll.VariationalLinear)]
    assert len(weights) == 3
    divergence = torch.zeros(())
    for layer in weights:
        prior = Normal(0.0, (4 / layer.in_features**0.5) ** 0.5)
        for mean, log_stddev in (
            (layer.weight, layer.weight_log_stddev),
            (layer.bias, layer.bias_log_stddev),
        ):
            divergence = divergence + kl_divergence(Normal(mean, log_stddev.exp()), prior).sum()
    torch.manual_seed(1)
    loss = model(inputs, target)
    torch.manual_seed(1)
    nll = -model.output(model.network(inputs)).log_prob(target).mean()
    assert_close(loss, nll + divergence / len(inputs))


def test_bbb_weighs_its_divergence_by_all_the_data_it_is_retrained_on(task):
    method = BBB(epochs=2)
    (model,) = method.new([task])
    assert model.num_data == 24
    method.fit([model], [task], None)
    assert model.num_data == 32


def test_vbll_bbb_integrates_the_last_layer_and_draws_the_features(task):
    model = VBLLBBB(epochs=2).make(task)
    assert isinstance(model.head, ll.Regression)
    assert len(ll.variational.variational_layers(model)) == 2
    assert model(task.test[0]).components.batch_shape == (len(task.test[0]), 10)
    assert model.head.prior == ll.Prior()


def test_draws_of_convolutions_differ_between_passes_and_agree_within_one():
    """Examples that are equal see the same draw of the weights, and other draws in other passes."""
    task = image_task()
    model: Any = BBB(epochs=2, num_prediction_samples=4).make(task)
    same = task.test[0][:1].expand(5, -1, -1, -1)
    features = model.network[0]
    torch.manual_seed(0)
    outputs = torch.stack([features(same) for _ in range(4)], 1)
    assert_close(outputs, outputs[:1].expand_as(outputs))
    assert (outputs[0].std(0) > 0).any()
    assert model(task.test[0]).components.batch_shape == (30, 4)
