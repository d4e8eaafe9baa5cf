"""SWAG against its definition."""

import copy

import pytest
import torch
from torch.testing import assert_close

from experiments.baselines.plain import PlainNetwork
from experiments.baselines.swag import SWAG, WeightDraws, draws
from experiments.uci.task import TableTask
from tests.helpers.tasks import table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_swag_draws_have_the_mean_and_covariance_of_its_gaussian(generator):
    path = {
        "a": torch.randn(6, 2, generator=generator),
        "b": torch.randn(6, 1, generator=generator),
    }
    count = 200_000
    found = draws(path, count, generator)
    drawn = torch.cat([found["a"], found["b"]], -1)
    snapshots = torch.cat([path["a"], path["b"]], -1)
    centred = snapshots - snapshots.mean(0)
    expected = 0.5 * centred.square().mean(0).diag() + centred.T @ centred / (2 * 5)
    scale = expected.diagonal().sqrt()
    assert ((drawn.mean(0) - snapshots.mean(0)).abs() < 5 * scale / count**0.5).all()
    error = (drawn.T.cov() - expected).abs() / scale.outer(scale)
    assert (error < 5 * 2**0.5 / count**0.5).all()


def test_swag_predicts_the_mixture_over_its_draws(task):
    network = PlainNetwork.of(task)
    weights = {name: torch.stack([w, 2 * w]).detach() for name, w in network.named_parameters()}
    inputs, target = task.test
    other = copy.deepcopy(network)
    other.load_state_dict({name: w[1] for name, w in weights.items()})
    one, two = network(inputs).log_prob(target), other(inputs).log_prob(target)
    expected = torch.stack([one, two]).logsumexp(0) - torch.tensor(2.0).log()
    assert_close(WeightDraws(network, weights)(inputs).log_prob(target), expected)


def test_swag_collects_weights_that_differ(task):
    method = SWAG(epochs=5, num_snapshots=3)
    ((model, notes),) = method.train([task])
    assert notes["epochs"] <= 5
    assert model(task.test[0]).components.mean.std(1).min() > 0
