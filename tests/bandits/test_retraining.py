"""What the network is trained on, and the noise that arms share."""

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.bandits import Agent, Retraining
from lastlayer.bandits.retraining import balanced, draw, train_network


def test_half_of_an_outputs_weight_is_by_squared_deviations(generator: torch.Generator) -> None:
    weight = torch.rand(200, generator=generator, dtype=torch.float64)
    target = torch.randn(200, generator=generator, dtype=torch.float64)
    output = torch.randint(3, (200,), generator=generator)
    found = balanced(weight, target, output)
    for k in range(3):
        own = output == k
        w, y = weight[own], target[own]
        square = (y - (w * y).sum() / w.sum()).square()
        assert_close(found[own], w + w * square * w.sum() / (w * square).sum())
        assert_close(found[own].sum(), 2 * w.sum())


def test_a_rare_large_reward_has_half_of_the_weight_and_equal_rewards_equal_ones() -> None:
    target = torch.zeros(10_000)
    target[17] = 50.0
    output = torch.arange(10_000) % 2  # of the other output all rewards are equal
    found = balanced(torch.ones(10_000), target, output)
    assert float(found[17] / found[1::2].sum()) == pytest.approx(0.5, abs=1e-3)
    assert bool((found[::2] == found[0]).all())


def test_an_output_that_was_forgotten_has_no_weight() -> None:
    weight = torch.tensor([0.0, 0.0, 1.0, 1.0])
    found = balanced(weight, torch.tensor([1.0, 2.0, 3.0, 5.0]), torch.tensor([0, 0, 1, 1]))
    assert_close(found, torch.tensor([0.0, 0.0, 2.0, 2.0], dtype=torch.float64))


def test_batches_are_drawn_by_weight() -> None:
    weight = torch.tensor([0.0, 1.0, 0.0, 3.0, 6.0, 0.0])
    torch.manual_seed(0)
    rows = draw(weight.double().cumsum(0), 40_000)
    shares = torch.bincount(rows, minlength=6) / 40_000
    expected = weight / weight.sum()
    assert bool((shares[weight == 0] == 0).all())
    assert bool(((shares - expected).abs() < 4 * (expected / 40_000).sqrt() + 1e-12).all())


def test_batches_grow_until_a_training_makes_its_passes(generator: torch.Generator) -> None:
    seen: list[int] = []
    learner = agent(common_noise=True)
    backbone = learner.model.backbone
    backbone.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    plan = Retraining(steps=7, batch_size=8, passes=2.5)
    for count in (10, 100):
        contexts = torch.randn(count, 3, generator=generator, dtype=torch.float64)
        data = (contexts, contexts[:, 0], torch.arange(count) % 4)
        seen.clear()
        train_network(learner.model, data, torch.ones(count), plan, 0)
        rows = max(8, math.ceil(2.5 * count / 7))  # 8 for ten observations, 36 for a hundred
        assert seen == 7 * [rows]
    with pytest.raises(ValueError, match="passes must not be negative"):
        Retraining(passes=-1)


@pytest.mark.parametrize("undo", [True, False])
def test_a_training_that_spoils_features_can_be_undone(
    undo: bool, generator: torch.Generator
) -> None:
    learner = agent(common_noise=True)
    contexts = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    arms = torch.arange(60) % 4
    learner.partial_fit(contexts, arms, contexts.sum(1))
    before = copy.deepcopy(learner.model.state_dict())
    learner.retraining = Retraining(
        steps=3, learning_rate=1e3, noise_iterations=1000, schedule="constant", undo=undo
    )
    learner.train()
    kept = {name: torch.allclose(t, before[name]) for name, t in learner.model.state_dict().items()}
    assert all(kept.values()) == undo


def test_a_training_after_which_all_units_are_dead_is_undone_with_a_warning(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = agent(common_noise=True)
    layer = nn.Linear(3, 6).double()
    learner.model.backbone = nn.Sequential(layer, nn.ReLU())
    contexts = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    arms = torch.arange(60) % 4
    learner.partial_fit(contexts, arms, contexts.sum(1))
    before = copy.deepcopy(learner.model.backbone.state_dict())
    expected = learner.predict_expectations(contexts)

    def kill(*_: Any) -> None:
        torch.nn.init.constant_(layer.bias, -1e3)

    monkeypatch.setattr("lastlayer.bandits.agent.train_network", kill)
    with pytest.warns(UserWarning, match="same for all contexts, and was undone"):
        learner.train()
    assert all(torch.equal(t, before[n]) for n, t in learner.model.backbone.state_dict().items())
    assert_close(learner.predict_expectations(contexts), expected, rtol=1e-3, atol=1e-3)
    learner = agent(common_noise=True)  # contexts that are all the same say nothing of units
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.partial_fit(contexts[:1].expand(60, 3), arms, contexts.sum(1))


def test_gradients_far_below_epsilon_hardly_move_the_backbone(generator: torch.Generator) -> None:
    contexts = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    data = (contexts, 1e-3 * contexts[:, 0], torch.arange(60) % 4)
    moved = {}
    for epsilon in (1e-8, 1.0):
        learner = agent(common_noise=True)
        layer: Any = next(learner.model.backbone.children())
        before = layer.weight.detach().clone()
        plan = Retraining(steps=50, batch_size=8, epsilon=epsilon, weight_decay=0.0)
        train_network(learner.model, data, torch.ones(60), plan, 0)
        moved[epsilon] = float((layer.weight.detach() - before).abs().max())
    assert moved[1e-8] > 0.01  # most of 50 steps of up to 3e-3
    assert moved[1.0] < 1e-3
    with pytest.raises(ValueError, match="epsilon"):
        Retraining(epsilon=0.0)


def agent(*, common_noise: bool) -> Agent:
    torch.manual_seed(1)
    head = ll.Regression(6, 4, num_data=1, covariance="dense", bias=True, dtype=torch.float64)
    backbone = nn.Sequential(nn.Linear(3, 6), nn.Tanh()).double()
    plan = Retraining(steps=3, batch_size=8, noise_iterations=1000, common_noise=common_noise)
    return Agent(ll.Network(backbone, head), 4, retraining=plan)


@torch.no_grad()
def test_shared_noise_is_the_mode_of_all_arms_together(generator: torch.Generator) -> None:
    contexts = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    arms = torch.randint(3, (60,), generator=generator)  # the last one is never pulled
    rewards = contexts[:, 0] * arms + torch.randn(60, generator=generator) * (1 + arms)
    one, other = agent(common_noise=True), agent(common_noise=False)
    for learner in (one, other):
        learner.partial_fit(contexts, arms, rewards)
    common: Any = one.model.head
    own: Any = other.model.head
    features = nn.functional.pad(other.model.backbone(contexts), (0, 1), value=1.0)
    target = (rewards - rewards.mean()) / rewards.std(correction=0)
    scatter = 4 * own.prior.noise_scale  # m of every arm
    for k in range(3):
        x, y = features[arms == k], target[arms == k]
        quadratic = ((x @ own.covariance.dense()[k]) * x).sum()
        scatter += float((y - x @ own.mean[k]).square().sum() + quadratic)
    count = 60 + 4 * (own.prior.noise_dof + 4 + 1)
    assert_close(common.noise.variance(), torch.full_like(common.noise.variance(), scatter / count))
    for k in range(4):  # and the posterior is exact with that noise
        x, y = features[arms == k], target[arms == k]
        precision = torch.eye(7) + x.mT @ x * count / scatter
        assert_close(common.covariance.precision()[k], precision, rtol=1e-6, atol=1e-8)
        mean = torch.linalg.solve(precision, x.mT @ y * count / scatter)
        assert_close(common.mean[k], mean, rtol=1e-6, atol=1e-8)


def test_an_arm_that_is_not_known_to_vary_is_as_uncertain_as_one_that_is() -> None:
    """A rare large reward of one arm says that others may have such, too."""
    torch.manual_seed(0)
    contexts = torch.rand(200, 3, dtype=torch.float64)
    arms = torch.arange(200) % 2
    rewards = torch.zeros(200)
    rewards[::40] = 50.0  # of the first arm, for no reason that the context tells
    deviations = {}
    for common in (True, False):
        learner = agent(common_noise=common)
        learner.partial_fit(contexts, arms, rewards)
        deviations[common] = learner._moments(contexts)[1].mean(0)
    assert 0.8 < float(deviations[True][1] / deviations[True][0]) < 1.25
    assert float(deviations[False][1] / deviations[False][0]) < 0.6
