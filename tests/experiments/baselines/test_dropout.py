"""Dropout against the plain network."""

from typing import Any

import pytest
from torch import nn
from torch.testing import assert_close

from experiments.baselines.dropout import LAYERS, AlwaysDropout, Dropout, insert_dropout
from experiments.baselines.plain import PlainNetwork
from experiments.uci.task import TableTask
from tests.helpers.tasks import image_task, table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_dropout_at_rate_zero_is_the_plain_network_and_else_draws_differ(task):
    inputs, target = task.test
    plain = Dropout(epochs=2, rate=0.0).make(task)
    expected = PlainNetwork(plain.network, plain.output)
    assert_close(plain(inputs).log_prob(target), expected(inputs).log_prob(target))
    dropped = Dropout(epochs=2, rate=0.5, num_prediction_samples=7).make(task).eval()
    means = dropped(inputs).components.mean
    assert means.shape == (len(inputs), 7, 1)
    assert (means.std(1) > 0).all()


def test_dropout_keeps_the_mean_of_a_linear_last_layer(task):
    """Units are dropped or scaled up, so the mean over draws of the last product stays."""
    model: Any = Dropout(epochs=2, rate=0.2, num_prediction_samples=20_000).make(task)
    first, last = (layer for layer in model.modules() if isinstance(layer, AlwaysDropout))
    first.rate = 0.0  # comes before a nonlinearity
    inputs = task.test[0][:3]
    components = model(inputs).components.mean
    last.rate = 0.0
    error = components.mean(1) - model.network(inputs)
    assert (error.abs() < 4 * components.std(1) / 20_000**0.5).all()


def test_every_layer_but_the_first_gets_dropout_whatever_the_network():
    model = Dropout(epochs=1).make(image_task())
    before = [
        type(layer) for layer in model.modules() if isinstance(layer, (AlwaysDropout, *LAYERS))
    ]
    assert before == [nn.Conv2d, AlwaysDropout, nn.Conv2d, AlwaysDropout, nn.Linear]
    insert_dropout(branched := nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}), 0.5)
    assert [type(layer) for layer in branched.values()] == [nn.Linear, nn.Sequential]
