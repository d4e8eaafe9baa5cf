"""A linear last layer with a likelihood against torch's distributions."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.testing import assert_close

from experiments.baselines.plain import PlainNetwork, mixed
from experiments.uci.task import TableTask
from tests.helpers.tasks import image_task, table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_a_plain_network_of_regression_is_a_normal_with_one_learned_variance(task):
    network = PlainNetwork.of(task)
    with torch.no_grad():
        network.get_parameter("output.log_stddev").fill_(0.3)
    inputs, target = task.train
    expected = Normal(network.network(inputs), torch.tensor(0.3).exp())
    assert_close(network(inputs).log_prob(target), expected.log_prob(target).squeeze(-1))
    assert_close(network(inputs, target), -expected.log_prob(target).mean())


def test_a_plain_network_of_classes_has_the_cross_entropy_of_its_logits():
    inputs, target = image_task().train
    network = PlainNetwork.of(image_task())
    expected = nn.functional.cross_entropy(network.network(inputs), target)
    assert_close(network(inputs, target), expected)


def test_a_mixture_of_models_is_the_mean_of_their_densities(task):
    inputs, target = task.test
    models = [PlainNetwork.of(task) for _ in range(3)]
    densities = [model(inputs).log_prob(target).exp() for model in models]
    found = mixed([model(inputs) for model in models])
    assert_close(found.log_prob(target).exp(), torch.stack(densities).mean(0))
