"""A class without examples has the probability of its prior, whatever the features."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, MultivariateNormal
from torch.func import functional_call, stack_module_state, vmap
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from tests.helpers.reference import assert_within_standard_errors, dense_covariance

N, K, T = 4, 4, 60
SEEN = [0, 2, 3]


def data(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Examples of all classes but class 1."""
    target = torch.tensor(SEEN)[torch.randint(3, (T,), generator=generator)]
    means = 3 * torch.randn(K, N, generator=generator)
    return means[target] + torch.randn(T, N, generator=generator), target


def fitted(generator: torch.Generator, **options: Any) -> ll.GenerativeClassification:
    head = ll.GenerativeClassification(N, K, num_data=T, **options)
    head.fit_exact(*data(generator), estimate_noise=True)
    return head


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("noise", ["diagonal", "dense"])
def test_an_empty_class_has_the_probability_of_its_prior(
    scale: float, noise: str, generator: torch.Generator
) -> None:
    head = fitted(generator, noise=noise)
    predictive = head(scale * torch.randn(50, N, generator=generator))
    prior = head.concentration[1] / head.concentration.sum()
    assert_close(predictive.probs()[:, 1], prior.expand(50), rtol=1e-9, atol=0)
    assert_close(predictive.probs().sum(-1), torch.ones(50))
    surprise = -predictive.log_prob(torch.ones(50, dtype=torch.int64))
    assert_close(surprise, -prior.log().expand(50))
    for value in (predictive.log_density(), predictive.entropy(), predictive.mutual_information()):
        assert value.isfinite().all()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_others_share_what_is_left_by_bayes_rule(
    covariance: str, generator: torch.Generator
) -> None:
    head = fitted(generator, covariance=covariance)
    features = 3 * torch.randn(20, N, generator=generator)
    total = dense_covariance(head.covariance) + head.noise.covariance()
    density = MultivariateNormal(head.mean, total).log_prob(features.unsqueeze(1))[:, SEEN]
    alpha = head.concentration[SEEN]
    share = (density + alpha.log()).softmax(-1) * alpha.sum() / head.concentration.sum()
    predictive = head(features)
    assert_close(predictive.probs()[:, SEEN], share)
    # and p(φ) is the mixture of the observed classes
    mixture = (density + (alpha / alpha.sum()).log()).logsumexp(-1)
    assert_close(predictive.log_density(), mixture)


@pytest.mark.slow
def test_sampled_class_densities_average_to_the_predictive(generator: torch.Generator) -> None:
    head = fitted(generator)
    features = torch.randn(3, N, generator=generator)
    with torch.no_grad():
        draws = torch.stack([head.sample_function(generator)(features) for _ in range(4_000)])
    joint = draws.exp()
    error = joint.std(0) / 4_000**0.5
    predictive = head(features)
    assert_within_standard_errors(predictive.log_joint.exp(), joint.mean(0), error)
    # given the draw, features say nothing of the class either
    share = draws.softmax(-1)[..., 1]
    assert_close(share, share[:, :1].expand(-1, 3))
    expected = Dirichlet(head.concentration).mean[1]
    deviation = share[:, 0].std() / 4_000**0.5
    assert_within_standard_errors(expected, share[:, 0].mean(), deviation)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, 400])
def test_mutual_information_agrees_with_sampled_class_densities(
    count: int, generator: torch.Generator
) -> None:
    target = torch.tensor(SEEN)[torch.arange(count) % 3]
    means = 2 * torch.randn(K, N, generator=generator)
    features = means[target] + torch.randn(count, N, generator=generator)
    head = ll.GenerativeClassification(N, K, num_data=count)
    head.fit_exact(features, target, estimate_noise=True)
    between = features[:8] + torch.randn(8, N, generator=generator)
    with torch.no_grad():
        draws = torch.stack([head.sample_function(generator)(between) for _ in range(4_000)])
    weight = draws.logsumexp(-1).softmax(0).unsqueeze(-1)  # the posterior given φ too
    probs = draws.softmax(-1)
    mean = (weight * probs).sum(0)
    entropies = -torch.xlogy(probs, probs).sum(-1, keepdim=True)
    expected = -torch.xlogy(mean, mean).sum(-1) - (weight * entropies).sum(0).squeeze(-1)
    got = head(between).mutual_information()
    assert_close(got, expected, rtol=0, atol=0.02)


def test_nothing_changes_before_any_class_or_after_every_class_was_observed(
    generator: torch.Generator,
) -> None:
    features, _ = data(generator)
    new = ll.GenerativeClassification(N, K, num_data=T)
    full = copy.deepcopy(new)
    full.observe(torch.arange(K).repeat(3))
    total = dense_covariance(new.covariance) + new.noise.covariance()
    density = MultivariateNormal(new.mean, total).log_prob(features.unsqueeze(1))
    for head in (new, full):
        assert_close(head(features).log_joint, density - math.log(K))


def test_editing_class_weights_does_not_make_a_class_unobserved(
    generator: torch.Generator,
) -> None:
    head = fitted(generator)
    features, target = data(generator)
    before = head(features)
    head.concentration.copy_(torch.tensor([0.5, 0.2, 0.2, 0.1]))  # frequencies elsewhere
    after = head(features)
    assert_close(after.probs()[:, 1], torch.full((T,), 0.2))
    change = (after.log_joint - before.log_joint)[:, SEEN]
    assert_close(change, change[:1].expand_as(change))  # densities are the same
    head.update(features[:1], target[:1])
    assert head.observed.tolist() == [True, False, True, True]


def test_a_class_joins_with_its_first_example_and_leaves_when_forgotten(
    generator: torch.Generator,
) -> None:
    head = fitted(generator)
    features, target = data(generator)
    alone = torch.ones(1, dtype=torch.int64)
    head.update(features[:1], alone)
    assert head.observed.all()
    for _ in range(100):
        head.update(features, target, forgetting=0.9)
    assert head.observed.tolist() == [True, False, True, True]
    far = 1e3 * torch.randn(9, N, generator=generator)
    prior = head.concentration[1] / head.concentration.sum()
    assert_close(head(far).probs()[:, 1], prior.expand(9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_leaves_no_class_that_wins_by_emptiness(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    features, target = data(generator)
    head = ll.GenerativeClassification(N, K, num_data=T)
    ll.fit(head, (features, target), epochs=40, learning_rate=0.05, progress=False)
    far = 30 * torch.randn(100, N, generator=generator)
    assert (head(far).mode != 1).all()
    assert head(far).probs()[:, 1].max() < 0.02
    narrow = copy.deepcopy(head).to(dtype)
    assert narrow(far.to(dtype)).probs()[:, 1].max() < 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_compiler")
def test_the_rule_compiles_exports_and_vectorises(generator: torch.Generator) -> None:
    heads = [fitted(generator) for _ in range(2)]
    heads[1].observe(torch.ones(3, dtype=torch.int64))  # one with all classes, one without
    features = torch.randn(6, N, generator=generator)
    expected = [head(features).log_joint for head in heads]
    compiled: Any = torch.compile(heads[0], backend="eager", fullgraph=True)
    assert_close(compiled(features).log_joint, expected[0])
    exported = torch.export.export(heads[0], (features,)).module()
    assert_close(exported(features).log_joint, expected[0])
    skeleton = copy.deepcopy(heads[0])

    def predict(parameters: Any, buffers: Any) -> Tensor:
        return functional_call(skeleton, (parameters, buffers), (features,)).log_joint

    assert_close(vmap(predict)(*stack_module_state(heads)), torch.stack(expected))


def test_gradients_by_features_are_finite_with_an_empty_class(generator: torch.Generator) -> None:
    head = fitted(generator)
    features = torch.randn(5, N, generator=generator, requires_grad=True)
    predictive = head(features)
    for value in (predictive.log_density(), predictive.entropy(), predictive.log_probs()[:, 1]):
        gradient = torch.autograd.grad(value.sum(), features, retain_graph=True)[0]
        assert gradient.isfinite().all()
    assert gradient.abs().max() < 1e-9  # its probability does not depend on them
