"""The ensemble against separate networks."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.testing import assert_close

from experiments.backbones import mlp
from experiments.baselines.ensemble import Ensemble
from experiments.uci.task import TableTask
from tests.helpers.tasks import table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_an_ensemble_is_the_equal_mixture_of_separate_networks(task):
    inputs, target = task.test
    torch.manual_seed(0)
    model = Ensemble(epochs=2, num_members=3).make(task)
    torch.manual_seed(0)
    members = [nn.Sequential(mlp.features(3), nn.Linear(50, 2)) for _ in range(3)]  # the same
    outputs = torch.stack([member(inputs) for member in members], 1)  # (B, 3, 2)
    normal = Normal(outputs[..., 0], (nn.functional.softplus(outputs[..., 1]) + 1e-6).sqrt())
    mixture = MixtureSameFamily(Categorical(torch.ones(len(inputs), 3)), normal)
    assert_close(model(inputs).log_prob(target), mixture.log_prob(target.squeeze(-1)))
    assert_close(model(inputs, target), -normal.log_prob(target).sum(1).mean())
