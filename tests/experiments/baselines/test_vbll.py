"""VBLL: initial values, and the authors' package."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import lastlayer as ll
from experiments.backbones import mlp
from experiments.baselines.fitted import OPTIONS
from experiments.baselines.vbll import VBLL
from experiments.baselines.vbll_package import VBLLPackage
from experiments.uci.task import TableTask
from tests.helpers.tasks import table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_initial_weights_of_vbll_are_at_the_scale_of_the_targets_and_noise_at_their_variance(task):
    """A mean square of n Gaussian weights has a relative standard error of √(2/n)."""
    inputs, target = task.train
    scaled = replace(task, train=(inputs, 30 * target))
    method = VBLL(epochs=2, start_scale=0.5)
    models: list[Any] = method.new([replace(scaled, seed=seed) for seed in range(40)])
    for seed, model in enumerate(models):
        ll.fit(model, scaled.train, epochs=1, learning_rate=1e-12, seed=seed, progress=False)
    means = torch.stack([model.head.mean for model in models])
    power = (30 * target).square().mean()
    standard_error = (2 / means.numel()) ** 0.5
    ratio = means.square().mean() / (0.5**2 * power / mlp.WIDTH)
    assert abs(ratio - 1) < 4 * standard_error
    noise = (24 * power + 1) / (24 + 1 + 1 + 1)  # the mode under the inverse-Wishart(1, 1)
    for model in models:
        assert_close(model.head.noise.variance(), noise.reshape(1))


def test_the_authors_package_has_the_loss_and_the_predictive_of_vbll(task):
    """Up to the constant of the divergence, which it leaves out; also when retrained."""
    settings: Any = {"prior_variance": 2.0, "noise_dof": 3.0, "noise_scale": 0.5}
    theirs: Any = VBLLPackage(epochs=2, **settings).make(task)
    ours: Any = VBLL(epochs=2, **settings).make(task)
    ours.backbone.load_state_dict(theirs.backbone.state_dict())
    with torch.no_grad():
        theirs.head.noise_logdiag.fill_(0.4)
        ours.head.mean.copy_(theirs.head.W_mean)
        ours.head.covariance.project(theirs.head.W().covariance.inverse())
        ours.head.noise.assign((2 * theirs.head.noise_logdiag).exp().diag())
    for num_data in (24, 32):
        theirs.num_data = ours.head.num_data = num_data
        constant = mlp.WIDTH / (2 * num_data)
        assert_close(theirs(*task.train), ours(*task.train) + constant)
    inputs, target = task.test
    assert_close(theirs(inputs).log_prob(target), ours(inputs).log_prob(target))


@pytest.mark.slow
def test_the_authors_package_trains_in_batches_of_seeds_as_one_by_one(task):
    method = VBLLPackage(epochs=20, validate_every=10)
    tasks = [task, table_task(1)]
    together, alone = method.new(tasks), method.new(tasks)
    method.fit(together, tasks, None)
    options = {name: getattr(method, name) for name in OPTIONS}
    for one, model, batched in zip(tasks, alone, together, strict=True):
        ll.fit(
            model,
            one.train,
            one.validation,
            seed=one.seed,
            validate_every=10,
            retrain=True,
            progress=False,
            **options,
        )
        assert model.num_data == 32
        assert_close(batched.state_dict(), model.state_dict())
