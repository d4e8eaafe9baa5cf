"""Classification with labels that are wrong in some regions, against sampling and limits."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from lastlayer.heads import _noisy_label_solver
from tests.helpers.reference import (
    assert_within_standard_errors,
    dense_covariance,
    minimize,
    randomize,
    sampled,
)

N, K, T = 4, 3, 60
PAIRS = list(zip(COVARIANCES, [*COVARIANCES][1:] + [*COVARIANCES][:1], strict=True))
every_pair = pytest.mark.parametrize(("covariance", "noise_covariance"), PAIRS)


def head(**options: Any) -> ll.NoisyLabelClassification:
    return ll.NoisyLabelClassification(N, K, **{"num_data": T, **options})


def data(
    generator: torch.Generator, count: int = T, share: float = 0.7
) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels of which a share is drawn at random where the first is above 1/2, right."""
    features = torch.randn(count, N, generator=generator)
    right = (4 * features[:, 1:]).argmax(-1)
    random = (features[:, 0] > 0.5) & (torch.rand(count, generator=generator) < share)
    return features, right.where(~random, torch.randint(K, (count,), generator=generator)), right


def trusting(model: ll.NoisyLabelClassification) -> ll.DiscriminativeClassification:
    """The head with the same weights that takes every label for right."""
    plain = ll.DiscriminativeClassification(
        N, K, num_data=T, noise="none", bound=model.bound, prior=model.prior, bias=model.bias
    )  # fmt: skip
    plain.mean.data.copy_(model.mean)
    plain.covariance.load_state_dict(model.covariance.state_dict())
    return plain


# ------------------------------------------------------------------------------ the objective


@every_pair
def test_bound_is_below_the_expected_log_likelihood(
    covariance: str, noise_covariance: str, generator: torch.Generator
) -> None:
    model = head(
        covariance=covariance, noise_covariance=noise_covariance, bias=True, num_noise_features=2
    )
    randomize(model, generator)
    model.log_odds.mean.data[:, -1] = -1
    features, target, _ = data(generator, 6)
    inputs = nn.functional.pad(features, (0, 1), value=1.0)

    def log_likelihood(count: int) -> Tensor:
        weights = model.mean + model.covariance.sample(count, generator)
        odds = model.log_odds.mean + model.log_odds.covariance.sample(count, generator)
        probs = torch.einsum("skn,bn->sbk", weights, inputs).softmax(-1)
        random = torch.einsum("skn,bn->sbk", odds, inputs[:, 2:]).sigmoid()
        observed = (1 - random) * probs + random / K
        return observed[:, torch.arange(6), target].log()

    with torch.no_grad():
        truth, error = sampled(log_likelihood, 40_000, 20_000)
        bound = model.objective(inputs, target, None)[0]
        assert (bound < truth + 4 * error).all()
        assert (bound > truth - 1.5).all()


@every_pair
def test_kl_is_that_of_both_layers(
    covariance: str, noise_covariance: str, generator: torch.Generator
) -> None:
    prior, noise_prior = ll.Prior(variance=0.7), ll.Prior(variance=0.3, bias_variance=2.0)
    model = head(
        covariance=covariance,
        noise_covariance=noise_covariance,
        prior=prior,
        noise_prior=noise_prior,
        wrong_share=0.2,
    )
    randomize(model, generator)
    level = torch.tensor([0.0] * N + [torch.tensor(0.3).logit().item()])  # 0.2 · K/(K − 1)
    layers = (
        (model, torch.zeros(N), torch.full((N,), 0.7)),
        (model.log_odds, level, torch.tensor([0.3] * N + [2.0])),
    )
    expected = sum(
        kl_divergence(
            MultivariateNormal(layer.mean, dense_covariance(layer.covariance)),
            MultivariateNormal(mean, variance.diag()),
        ).sum()
        for layer, mean, variance in layers
    )
    features, target, _ = data(generator)
    assert_close(model.elbo(features, target).kl, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bound", ["jensen", "tilted"])
def test_without_wrong_labels_it_is_the_head_that_trusts_every_label(
    bound: str, generator: torch.Generator
) -> None:
    features, target, _ = data(generator)
    model = head(bound=bound, bias=True)
    randomize(model, generator)
    plain = trusting(model)
    model.log_odds.mean.data.copy_(torch.tensor([[0.0] * N + [-1e4]]))
    assert torch.equal(model.elbo(features, target).bound, plain.elbo(features, target).bound)
    found, known = model(features), plain(features)
    assert torch.equal(found.right.probs(), known.probs())
    assert_close(found.log_prob(target), known.log_prob(target))
    assert_close(found.mutual_information(), known.mutual_information())
    assert_close(found.entropy(), known.entropy())
    assert (
        (found.wrong_label_probability(target) < 1e-6)
        .logical_or(known.log_prob(target) < -1e3)
        .all()
    )


def test_a_new_head_is_next_to_that_head(generator: torch.Generator) -> None:
    features, target, _ = data(generator)
    model = head(bias=True)
    assert model.fresh
    assert model.log_odds.fresh
    bound = model.elbo(features, target).bound
    assert bound > trusting(model).elbo(features, target).bound - 0.05


def test_ignored_labels_may_be_anything_and_change_nothing(generator: torch.Generator) -> None:
    features, target, _ = data(generator)
    model = head()
    randomize(model, generator)
    weight = (torch.arange(T) % 3 > 0).double()
    spoiled = target.where(weight != 0, -100)
    assert_close(model(features, spoiled, weight), model(features, target, weight))
    kept = weight != 0
    alone = model.elbo(features[kept], target[kept]).bound
    assert_close(1.5 * model.elbo(features, target, weight).bound, alone)


def test_no_label_costs_more_than_one_that_is_random(generator: torch.Generator) -> None:
    features, _, right = data(generator)
    model = head(wrong_share=0.1)
    model.mean.data.copy_(50 * torch.eye(N)[1:])
    model.covariance.set_isotropic(1e-6)
    model.log_odds.covariance.set_isotropic(1e-6)
    bound = model.objective(features, (right + 1) % K, None)[0]
    assert bound.min() > torch.tensor(0.15 / K).log() - 1e-3


# ------------------------------------------------------------------------------ the predictive


def test_predictive_agrees_with_sampled_weights(generator: torch.Generator) -> None:
    features, target, _ = data(generator, 5)
    model = head(bias=True)
    randomize(model, generator)
    model.log_odds.mean.data[:, -1] = -1
    inputs = nn.functional.pad(features, (0, 1), value=1.0)
    rows = torch.arange(5)

    def joint(count: int) -> Tensor:
        """p(right class, given label) and p(any label), (count, 2, 5, K)."""
        weights = model.mean + model.covariance.sample(count, generator)
        odds = model.log_odds.mean + model.log_odds.covariance.sample(count, generator)
        probs = torch.einsum("skn,bn->sbk", weights, inputs).softmax(-1)
        random = torch.einsum("skn,bn->sbk", odds, inputs).sigmoid()
        given = random / K * torch.ones(K)
        given[:, rows, target] += 1 - random.squeeze(-1)
        return torch.stack([probs * given, (1 - random) * probs + random / K], 1)

    with torch.no_grad():
        predictive = model(features)
        mean, error = sampled(joint, 60_000, 20_000)
        observed = predictive.probs()
        assert_within_standard_errors(observed, mean[1], error[1] + 2e-4)
        evidence = observed[rows, target].unsqueeze(-1)
        together = predictive.right_probs(target) * evidence
        assert_within_standard_errors(together, mean[0], error[0] + 2e-4)
        wrong = 1 - predictive.right_probs(target)[rows, target]
        assert_close(predictive.wrong_label_probability(target), wrong)


def test_mutual_information_is_above_that_of_the_observed_label(
    generator: torch.Generator,
) -> None:
    features, _, _ = data(generator, 5)
    model = head(bias=True)
    randomize(model, generator)
    model.log_odds.mean.data[:, -1] = -1
    model.log_odds.covariance.set_isotropic(1e-12)
    inputs = nn.functional.pad(features, (0, 1), value=1.0)
    with torch.no_grad():
        predictive = model(features)
        weights = model.mean + model.covariance.sample(40_000, generator)
        probs = torch.einsum("skn,bn->sbk", weights, inputs).softmax(-1)
        random = predictive.random_label_probability.unsqueeze(-1)
        observed = (1 - random) * probs + random / K
        mean = observed.mean(0)
        truth = torch.special.entr(mean).sum(-1) - torch.special.entr(observed).sum(-1).mean(0)
        assert (predictive.mutual_information() > truth - 0.01).all()
        assert (predictive.mutual_information() < predictive.right.mutual_information()).all()


# ---------------------------------------------------------------------------- fixed features


@every_pair
def test_the_solver_finds_an_optimum(
    covariance: str, noise_covariance: str, generator: torch.Generator
) -> None:
    features, target, _ = data(generator)
    weight = 0.2 + torch.rand(T, generator=generator)
    model = head(
        covariance=covariance,
        noise_covariance=noise_covariance,
        bias=True,
        num_noise_features=2,
        num_data=1.5 * T,
        prior=ll.Prior(variance=0.5, kl_weight=0.7),
        noise_prior=ll.Prior(variance=0.5, bias_variance=3.0),
    ).double()
    model.prior_mean = torch.randn(model.mean.shape, generator=generator)
    losses: list[float] = []
    model.fit_features(
        features, target, weight, max_passes=100, tolerance=1e-7, report=losses.append
    )
    assert all(after <= before for before, after in pairwise(losses))
    loss = model(features, target, weight).item()
    assert_close(losses[-1], loss, rtol=1e-9, atol=1e-9)
    minimize(lambda: model(features, target, weight), [*model.parameters()], 30)
    assert loss < model(features, target, weight).item() + 1e-4


def test_it_finds_wrong_labels_and_learns_what_is_right(generator: torch.Generator) -> None:
    features, target, right = data(generator, 1500)
    inputs, _, known = data(generator, 2000)
    model, plain = (
        make(N, K, num_data=1500, bias=True, prior=ll.Prior(variance=10.0))
        for make in (ll.NoisyLabelClassification, ll.DiscriminativeClassification)
    )
    for one in (model, plain):
        one.fit_features(features, target)
    with torch.no_grad():
        nll = -model(inputs).right.log_prob(known).mean()
        assert nll < 0.6 * -plain(inputs).log_prob(known).mean()
        suspicion = model(features).wrong_label_probability(target)
        wrong = target != right
        ahead = suspicion[wrong].unsqueeze(-1) > suspicion[~wrong]
        assert ahead.double().mean() > 0.98
        assert abs(suspicion.mean() - wrong.double().mean()) < 0.02
        corrected = model(features).right_probs(target).argmax(-1)
        assert (corrected == right).double().mean() > 0.97


def test_from_no_suspicion_wrong_labels_would_be_fitted_before_they_are_found(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, random = torch.rand(3, 600, generator=generator) * 4 - 2
    right = (2 * first.sin() + second > 0).long() + (first * second > 0.5).long()
    wrong = (first > 0.8) & (random > -0.4)  # six in ten of three
    target = right.where(~wrong, torch.randint(K, (600,), generator=generator))
    layer = torch.randn(3, 64, generator=generator)
    features = (torch.stack([first, second, torch.ones(600)], -1) @ layer).tanh()
    losses, suspected = [], []
    for log_odds in (0.0, -5.0):
        monkeypatch.setattr(_noisy_label_solver, "SUSPICION", log_odds)
        model = ll.NoisyLabelClassification(
            64, K, num_data=600, bias=True, prior=ll.Prior(variance=1.0)
        )
        model.fit_features(features, target)
        with torch.no_grad():
            losses.append(model(features, target).item())
            suspected.append(model(features[wrong]).random_label_probability.mean().item())
    assert losses[0] < losses[1] - 0.01
    assert suspected[0] > 4 * suspected[1]


def test_on_clean_data_it_is_the_head_that_trusts_every_label(generator: torch.Generator) -> None:
    features, target, _ = data(generator, 600, share=0.0)
    inputs, _, known = data(generator, 2000)
    losses: list[float] = []
    options: dict[str, Any] = {"num_data": 600, "bias": True}
    model = ll.NoisyLabelClassification(N, K, **options)
    plain = ll.DiscriminativeClassification(N, K, noise="none", **options)
    before = torch.get_rng_state()
    model.fit_features(features, target, report=losses.append)
    assert torch.equal(torch.get_rng_state(), before)  # the caller keeps their random numbers
    plain.fit_features(features, target)
    with torch.no_grad():
        found, expected = (
            -one.log_prob(known).mean() for one in (model(inputs).right, plain(inputs))
        )
        assert found < expected + 0.01
        assert model(features).wrong_label_probability(target).mean() < 0.01


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="wrong_share must lie between 0 and"):
        head(wrong_share=0.7)
    with pytest.raises(ValueError, match="num_noise_features=5 must be at most"):
        head(num_noise_features=5)


# ------------------------------------------------------------------------------- how it is used


def test_it_is_post_trained_cross_validated_and_trained_beside_others(
    generator: torch.Generator,
) -> None:
    features, target, _ = data(generator, 200)
    network = nn.Sequential(nn.Linear(N, 8), nn.ELU(), nn.Linear(8, K)).double()
    made = ll.posttrain(network, (features, target), "noisy_labels", progress=False)
    assert isinstance(made.head, ll.NoisyLabelClassification)
    loss = made(features, target).item()
    assert_close(loss, made.posttraining.loss)

    def model() -> ll.Network:
        head = ll.NoisyLabelClassification(8, K, num_data=200, bias=True)
        return ll.Network(nn.Sequential(nn.Linear(N, 8), nn.ELU()), head)

    models = [model() for _ in range(2)]
    quick: dict[str, Any] = {"epochs": 3, "batch_size": 50, "progress": False}
    ll.fit_many(models, (features, target), seeds=[3, 4], **quick)
    found = ll.crossfit(
        lambda tensors: model(), (features, target), num_folds=2, epochs=3, shortest=3,
        weight_decays=(30.0,), progress=False,
    )  # fmt: skip
    predictive, (_, given, *_) = found.held_out()
    assert predictive.wrong_label_probability(given).shape == (200,)
