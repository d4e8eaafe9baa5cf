"""A head needs two methods; everything else has a default."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.predictive import GaussianPredictive

N, K, T = 5, 2, 40


class Laplace(ll.Head):
    """Regression with a fixed Laplace likelihood, and the predictive with its two moments."""

    def __init__(self, num_features: int, num_outputs: int, **options: Any) -> None:
        super().__init__(num_features, num_outputs, **options)
        self.reset_parameters()

    def predict(self, features: Tensor) -> GaussianPredictive:
        mean = F.linear(features, self.mean)
        epistemic = self.covariance.quadratic(features)
        return GaussianPredictive(mean, epistemic, torch.full_like(mean, 2.0))

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = F.linear(features, self.mean)
        quadratic, trace, logdet = self.covariance.quadratic_terms(features)
        bounds = -((target - mean).square() + quadratic + 1e-9).sqrt().sum(-1)  # Jensen
        if weight is not None:
            bounds = bounds * weight
        return bounds, self._divergence(self._deviation(), trace, logdet), mean.new_zeros(())


def data(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    features = torch.randn(T, N, generator=generator)
    return features, features[:, :K] + 0.1 * torch.randn(T, K, generator=generator)


def test_a_head_of_two_methods_trains_predicts_and_is_remembered(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    head = Laplace(N, K, num_data=T, bias=True)
    assert head.fresh
    before = head(features, target).item()
    network = ll.Network(nn.Identity(), head)
    ll.fit(network, (features, target), epochs=60, learning_rate=0.05, progress=False)
    assert head(features, target) < before - 0.5
    assert not head.fresh
    loaded = Laplace(N, K, num_data=T, bias=True)
    loaded.load_state_dict(head.state_dict())
    assert_close(loaded(features).mean, head(features).mean)
    elbo = head.elbo(features, target)
    assert_close(-elbo.bound + elbo.kl / T, head(features, target))
    assert (head.num_densities, head.density_prior) == (1, None)


def test_a_head_of_two_methods_replaces_a_layer(generator: torch.Generator) -> None:
    features, target = data(generator)
    layer = nn.Linear(N, K)
    head = Laplace.from_linear(layer, (features, target, None), num_data=T, bias=True)
    assert_close(head(features).mean, layer(features))
    with pytest.raises(TypeError, match=r"Laplace has no solver.*lastlayer\.fit"):
        ll.posttrain(nn.Sequential(layer), (features, target), Laplace)
    with pytest.raises(ValueError, match="2 outputs, but the layer it replaces 3"):
        head.start_from(nn.Linear(N, 3))
    with pytest.raises(ValueError, match=r"num_features=5.*7 inputs"):
        head.start_from(nn.Linear(7, K))


def test_an_objective_with_a_value_per_output_is_refused(generator: torch.Generator) -> None:
    class Apart(Laplace):
        def objective(self, features: Tensor, target: Tensor, weight: Tensor | None) -> Any:
            bounds, kl, log_prior = super().objective(features, target, weight)
            return bounds.unsqueeze(-1).expand(-1, K), kl, log_prior

    with pytest.raises(ValueError, match=r"one bound per example, \(40,\), got shape \(40, 2\)"):
        Apart(N, K, num_data=T)(*data(generator))


def test_preparing_reads_no_more_than_it_needs() -> None:
    target = torch.randn(9, K)

    def batches() -> Any:
        yield 3 * target, None
        raise AssertionError("the first batch is enough")

    def forbidden() -> Any:
        raise AssertionError("nothing to read")
        yield

    head = ll.Regression(N, K, num_data=T)
    head.prepare(forbidden(), new=False, total=torch.clone)
    head.prepare(batches(), new=True, total=torch.clone)
    torch.manual_seed(0)
    head.prepare([(3 * target, None)], new=True, total=torch.clone)
    torch.manual_seed(0)
    same = copy.deepcopy(head)
    same.initialize(torch.zeros(9, N), 3 * target)
    assert_close(same.state_dict(), head.state_dict())
    weight = torch.rand(9, K).round()
    missing = target.where(weight != 0, torch.nan)
    head.prepare([(missing, weight)], new=True, total=lambda sums: 2 * sums)
    power = (target.square() * weight).sum(0) / weight.sum(0)
    prior = head.prior
    expected = (T * power + prior.noise_scale) / (T + prior.noise_dof + K + 1)
    assert_close(head.noise.variance(), expected)
    Laplace(N, K, num_data=T).prepare(forbidden(), new=True, total=torch.clone)


def test_preparing_counts_classes_anew_over_all_processes() -> None:
    head = ll.GenerativeClassification(N, 3, num_data=T, concentration=0.5)
    labels = torch.tensor([0, 0, 1, -1])
    batches = [(labels, torch.tensor([1.0, 1.0, 0.5, 0.0])), (labels[:2], None)]
    for _ in range(2):
        head.prepare(iter(batches), new=False, total=lambda counts: 2 * counts)
        assert head.concentration.tolist() == [8.5, 1.5, 0.5]
        assert head.observed.tolist() == [True, True, False]
    assert (head.num_densities, head.density_prior) == (3, head.prior)


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_heads_for_the_place_of_a_layer_start_at_its_weights(
    num_outputs: int, generator: torch.Generator
) -> None:
    features = torch.randn(T, N, generator=generator)
    layer = nn.Linear(N, num_outputs)
    labels = torch.arange(T) % max(num_outputs, 2)
    head = ll.DiscriminativeClassification.from_linear(layer, (features, labels, None), num_data=T)
    logits = head(features).logit_mean
    expected = layer(features)
    if num_outputs == 1:
        assert_close(logits[:, 1] - logits[:, 0], expected[:, 0])
    else:
        assert_close(logits, expected)
    cached = (features, expected.detach() + 0.5, None)
    regression = ll.Regression.from_linear(layer, cached, num_data=T)
    assert_close(regression(features).mean, expected)
    assert regression.prior.variance == pytest.approx(layer.weight.square().mean().item())
    assert regression.prior.noise_scale == pytest.approx(0.25)
    prior_mean = regression.prior_mean
    assert prior_mean is not None
    assert_close(prior_mean[:, -1], layer.bias.detach())
    assert not prior_mean[:, :-1].any()
    given = ll.Regression.from_linear(layer, cached, num_data=T, prior=ll.Prior())
    assert given.prior_mean is None
    generative = ll.GenerativeClassification.from_linear(
        layer, (features, labels, None), num_data=T
    )
    assert generative.num_outputs == max(num_outputs, 2)
    assert generative.fresh
