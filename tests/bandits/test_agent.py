"""Agents: exact posteriors between trainings, arms that come and go, forgetting, clear errors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.bandits import UCB, Agent, Greedy, Retraining, Thompson

N, K = 3, 4
VARIANCE, NOISE = 2.0, 0.5


def linear(num_arms: int = K, **options: Any) -> ll.Network:
    """Bayesian linear regression on contexts as they are, of known noise."""
    prior = ll.Prior(variance=VARIANCE)
    options = {"covariance": "dense", "prior": prior, **options}
    head = ll.Regression(N, num_arms, num_data=1, **options)
    head.noise.set_isotropic(NOISE)
    return ll.Network(nn.Identity(), head)


def neural(num_arms: int = K, **options: Any) -> ll.Network:
    torch.manual_seed(1)
    head = ll.Regression(6, num_arms, num_data=1, covariance="dense", bias=True, **options)
    return ll.Network(nn.Sequential(nn.Linear(N, 6), nn.Tanh()), head)


def observations(generator: torch.Generator, count: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Contexts, arms of which the last is never pulled, rewards."""
    contexts = torch.randn(count, N, generator=generator)
    arms = torch.randint(K - 1, (count,), generator=generator)
    truth = torch.randn(K, N, generator=generator)
    noise = 0.3 * torch.randn(count, generator=generator)
    return contexts, arms, (contexts * truth[arms]).sum(-1) + noise


def posterior(
    contexts: Tensor, rewards: Tensor, weight: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of Bayesian linear regression, in numpy."""
    x, y = contexts.numpy(), rewards.numpy()
    w = np.ones(len(x)) if weight is None else weight.numpy()
    precision = np.eye(N) / VARIANCE + (x.T * w) @ x / NOISE
    return np.linalg.solve(precision, x.T @ (w * y) / NOISE), np.linalg.inv(precision)


def assert_posterior(agent: Agent, data: tuple[Tensor, Tensor, Tensor], forgetting: float) -> None:
    contexts, arms, rewards = data
    weight = forgetting ** torch.arange(len(arms) - 1, -1, -1).double()
    covariances = agent.model.head.covariance.dense().detach().numpy()
    for output, arm in enumerate(agent.arms):
        own = arms == arm
        mean, covariance = posterior(contexts[own], rewards[own], weight[own])
        np.testing.assert_allclose(agent.model.head.mean[output].detach().numpy(), mean, rtol=1e-7)
        np.testing.assert_allclose(covariances[output], covariance, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
@pytest.mark.parametrize("batch", [1, 7, 40])
def test_the_posterior_is_that_of_weighted_linear_regression_however_data_comes(
    batch: int, forgetting: float, generator: torch.Generator
) -> None:
    agent = Agent(linear(), K, retraining=None, forgetting=forgetting)
    data = observations(generator)
    for part in zip(*(column.split(batch) for column in data), strict=True):
        agent.partial_fit(*part)
    assert_posterior(agent, data, forgetting)
    assert agent.num_observations == 40


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
def test_after_training_the_posterior_is_exact_given_features_noise_and_units(
    forgetting: float, generator: torch.Generator
) -> None:
    plan = Retraining(every=30, growth=0, steps=5, batch_size=16, noise_iterations=200)
    agent = Agent(neural(), K, retraining=plan, forgetting=forgetting)
    contexts, arms, rewards = observations(generator)
    agent.partial_fit(contexts[:35], arms[:35], 10 + 3 * rewards[:35])
    assert agent.num_trainings == 1
    agent.partial_fit(contexts[35:], arms[35:], 10 + 3 * rewards[35:])
    assert agent.num_trainings == 1
    head: Any = agent.model.head
    features = nn.functional.pad(agent.model.backbone(contexts).detach(), (0, 1), value=1.0)
    old = 10 + 3 * rewards[:35]
    location, scale = old.mean(), old.std(correction=0)
    target = (10 + 3 * rewards - location) / scale
    weight = forgetting ** torch.arange(39, -1, -1).double()
    for arm in range(K):
        own = arms == arm
        x, w, noise = features[own], weight[own], head.noise.variance()[arm]
        precision = torch.eye(7) + (x.mT * w) @ x / noise
        mean = torch.linalg.solve(precision, x.mT @ (w * target[own]) / noise)
        assert_close(head.mean[arm], mean, rtol=1e-6, atol=1e-8)
        assert_close(head.covariance.precision()[arm], precision, rtol=1e-6, atol=1e-8)
    expected = location + scale * features @ head.mean.mT
    assert_close(agent.predict_expectations(contexts), expected)


def test_before_anything_is_known_all_arms_are_alike(generator: torch.Generator) -> None:
    agent = Agent(neural(), K)
    contexts = torch.randn(5, N, generator=generator)
    assert_close(agent.predict_expectations(contexts), torch.zeros(5, K))
    assert_close(agent.action_probabilities(contexts), torch.full((5, K), 1 / K))


def test_thompson_sampling_chooses_with_the_probabilities_it_tells(
    generator: torch.Generator,
) -> None:
    agent = Agent(linear(), K, retraining=None)
    agent.partial_fit(*observations(generator))
    context = torch.randn(1, N, generator=generator)
    count = 20_000
    chosen = agent.predict(context.expand(count, -1))
    frequencies = torch.bincount(chosen, minlength=K) / count
    probabilities = agent.action_probabilities(context)[0]
    errors = (probabilities * (1 - probabilities) / count).sqrt()
    assert ((frequencies - probabilities).abs() < 4 * errors + 1e-12).all()
    assert probabilities.max() < 0.99  # there is something to tell


def test_policies_follow_their_scores(generator: torch.Generator) -> None:
    data = observations(generator)
    contexts = torch.randn(200, N, generator=generator)
    for policy, width in ((Greedy(), 0.0), (UCB(1.5), 1.5), ("greedy", 0.0), ("ucb", 2.0)):
        agent = Agent(linear(), K, retraining=None, policy=policy)
        agent.partial_fit(*data)
        predictive = agent.model(contexts)
        best = (predictive.mean + width * predictive.epistemic_variance.sqrt()).argmax(-1)
        assert_close(agent.predict(contexts), best)
        assert_close(agent.action_probabilities(contexts), nn.functional.one_hot(best, K).double())
    agent = Agent(linear(), K, retraining=None, policy=Greedy(0.4))
    agent.partial_fit(*data)
    best = agent.model(contexts).mean.argmax(-1)
    share = float((agent.predict(contexts.repeat(50, 1)) == best.repeat(50)).double().mean())
    assert abs(share - 0.7) < 4 * (0.7 * 0.3 / 10_000) ** 0.5
    assert_close(
        agent.action_probabilities(contexts).gather(1, best[:, None]), torch.full((200, 1), 0.7)
    )


def test_an_agent_learns_which_arm_is_best_where(generator: torch.Generator) -> None:
    plan = Retraining(every=100, growth=0.5, steps=80, batch_size=64, learning_rate=1e-2)
    agent = Agent(neural(2), 2, retraining=plan, seed=3)
    contexts = torch.randn(600, N, generator=generator)
    best = (contexts[:, 0] * contexts[:, 1] > 0).long()  # no linear rule
    regret = []
    for part, right in zip(contexts.split(20), best.split(20), strict=True):
        arms = agent.predict(part)
        rewards = (arms == right).double()  # binary
        agent.partial_fit(part, arms, rewards)
        regret.append(1 - rewards.mean())
    assert torch.stack(regret[-10:]).mean() < 0.2
    assert torch.stack(regret[:3]).mean() > 0.3


def test_a_new_arm_begins_at_its_prior_and_leaves_the_others_as_they_are(
    generator: torch.Generator,
) -> None:
    agent = Agent(linear(), K, retraining=None)
    data = observations(generator)
    agent.partial_fit(*data)
    assert agent.add_arm() == K
    assert agent.arms == [0, 1, 2, 3, 4]
    assert_posterior(agent, data, 1.0)
    contexts, _, rewards = observations(generator, 20)
    agent.partial_fit(contexts, torch.full((20,), K), rewards)
    more = (contexts, torch.full((20,), K), rewards)
    first, second, third = (torch.cat(pair) for pair in zip(data, more, strict=True))
    assert_posterior(agent, (first, second, third), 1.0)


def test_a_removed_arm_is_never_chosen_and_its_number_never_used_again(
    generator: torch.Generator,
) -> None:
    agent = Agent(linear(), K, retraining=None)
    contexts, arms, rewards = observations(generator)
    agent.partial_fit(contexts, arms, rewards)
    agent.remove_arm(1)
    assert agent.arms == [0, 2, 3]
    assert_posterior(agent, (contexts, arms, rewards), 1.0)
    assert set(agent.predict(contexts.repeat(20, 1)).tolist()) == {0, 2, 3}
    assert agent.add_arm() == K
    agent.partial_fit(contexts[:2], [2, 4], [0.0, 1.0])
    agent.train()  # on what is left
    with pytest.raises(ValueError, match=r"no arms \[1\]"):
        agent.partial_fit(contexts[:1], [1], [0.0])


def test_only_the_most_recent_observations_are_remembered(generator: torch.Generator) -> None:
    plan = Retraining(every=1000, steps=2, batch_size=4, exact=False)
    contexts, arms, rewards = observations(generator)
    agents = [Agent(neural(), K, retraining=plan, capacity=size) for size in (15, 1000)]
    for part in zip(contexts.split(7), arms.split(7), rewards.split(7), strict=True):
        agents[0].partial_fit(*part)
    agents[1].partial_fit(contexts[-15:], arms[-15:], rewards[-15:])
    for agent in agents:
        agent.train()
    assert_close(agents[0].model.state_dict(), agents[1].model.state_dict())


def test_the_same_seed_gives_the_same_decisions(generator: torch.Generator) -> None:
    contexts, _, rewards = observations(generator, 100)

    def played(seed: int) -> list[int]:
        plan = Retraining(every=20, growth=0, steps=3, batch_size=8)
        agent = Agent(neural(), K, retraining=plan, seed=seed)
        arms = []
        for part, reward in zip(contexts.split(10), rewards.split(10), strict=True):
            arms.append(agent.predict(part))
            agent.partial_fit(part, arms[-1], reward)
        return torch.cat(arms).tolist()

    assert played(0) == played(0)
    assert played(0) != played(1)


def test_a_prior_that_is_learned_works_from_the_first_observation_on(
    generator: torch.Generator,
) -> None:
    plan = Retraining(every=20, steps=3, batch_size=8)
    agent = Agent(neural(prior=ll.Prior(variance="evidence")), K, retraining=plan)
    contexts, arms, rewards = observations(generator)
    for part in zip(contexts.split(4), arms.split(4), rewards.split(4), strict=True):
        agent.partial_fit(*part)
    assert agent.predict_expectations(contexts).isfinite().all()
    assert agent.num_trainings == 2


def test_without_exact_posteriors_only_training_changes_the_model(
    generator: torch.Generator,
) -> None:
    plan = Retraining(every=30, growth=0, steps=3, batch_size=8, exact=False)
    agent = Agent(neural(), K, retraining=plan)
    contexts, arms, rewards = observations(generator)
    before = agent.predict_expectations(contexts)
    agent.partial_fit(contexts[:29], arms[:29], rewards[:29])
    assert_close(agent.predict_expectations(contexts), before)
    agent.partial_fit(contexts[29:], arms[29:], rewards[29:])
    assert not torch.allclose(agent.predict_expectations(contexts), before)


def test_arrays_and_lists_are_taken_too(generator: torch.Generator) -> None:
    contexts, arms, rewards = observations(generator)
    first, second = (Agent(linear(), K, retraining=None) for _ in range(2))
    first.partial_fit(contexts, arms, rewards)
    second.partial_fit(contexts.numpy(), arms.numpy(), rewards.tolist())
    assert_close(first.predict(contexts), second.predict(contexts.numpy()))
    second.partial_fit(contexts[:0], [], [])
    assert second.num_observations == 40


def test_wrong_uses_say_what_to_do(generator: torch.Generator) -> None:
    contexts, arms, rewards = observations(generator)
    agent = Agent(linear(), K, retraining=None)
    wrong: list[tuple[type[Exception], str, Any]] = [
        (
            ValueError,
            "one for each context",
            lambda: agent.partial_fit(contexts, arms[1:], rewards),
        ),
        (TypeError, "must be integers", lambda: agent.partial_fit(contexts, arms + 0.5, rewards)),
        (ValueError, r"no arms \[4\]", lambda: agent.partial_fit(contexts[:1], [4], [1.0])),
        (ValueError, "rewards hold NaN", lambda: agent.partial_fit(contexts[:1], [0], [torch.nan])),
        (ValueError, "contexts or", lambda: agent.partial_fit(contexts[:1] / 0, [0], [1.0])),
        (ValueError, r"contexts\[None\]", lambda: agent.predict(contexts[0])),
        (ValueError, "no observations", agent.train),
        (ValueError, "no arm 7", lambda: agent.remove_arm(7)),
        (ValueError, "each of num_arms=3", lambda: Agent(linear(), 3)),
        (ValueError, "covariance='dense'", lambda: Agent(linear(covariance="shared"), K)),
        (ValueError, "noise='diagonal'", lambda: Agent(linear(noise="dense"), K)),
        (TypeError, "lastlayer.Network", lambda: Agent(nn.Linear(2, 2), 2)),  # type: ignore[arg-type]
        (ValueError, "did you mean 'greedy'", lambda: Agent(linear(), K, policy="gready")),
        (ValueError, "growth must not be", lambda: Retraining(growth=-1)),
        (ValueError, "width must be", lambda: Thompson(0)),
        (ValueError, "epsilon must lie", lambda: Greedy(2)),
    ]
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
    assert agent.num_observations == 0
    alone = Agent(linear(1), 1)
    with pytest.raises(ValueError, match="last arm"):
        alone.remove_arm(0)
