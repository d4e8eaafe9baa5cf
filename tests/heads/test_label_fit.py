"""A generative head on fixed features: shrinkage and temperature of its noise by labels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.functional.conjugate import class_statistics
from lastlayer.functional.discriminant import (
    LabelledClasses,
    best_sharpness,
    left_out_distances,
    left_out_log_prior,
    squared_distances,
)
from lastlayer.heads._discriminant import SHRINKAGES, shrink_noise
from lastlayer.heads._linear import layer_loss

N, K, T = 5, 3, 60


def data(generator: torch.Generator, count: int = T, width: int = N) -> tuple[Tensor, Tensor]:
    """Classes that overlap, with correlated features of unequal size away from zero."""
    target = torch.arange(count) % K
    means = 0.8 * torch.randn(K, width, generator=generator)
    mixing = torch.randn(width, width, generator=generator)
    noise = torch.randn(count, width, generator=generator) @ mixing
    return 3 + means[target] + noise * torch.logspace(-0.5, 0.5, width), target


def fitted(
    features: Tensor, target: Tensor, weight: Tensor | None = None, **options: Any
) -> ll.GenerativeClassification:
    validation = options.pop("validation", None)
    memory = options.pop("max_memory_bytes", 2**31)
    options = {"noise": "dense", "dtype": features.dtype, **options}
    head = ll.GenerativeClassification(features.shape[-1], K, num_data=len(features), **options)
    head.fit_features(features, target, weight, validation=validation, max_memory_bytes=memory)
    return head


def within(features: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Means of classes and the scatter about them, by loops."""
    means = torch.stack(
        [
            (weight[target == k, None] * features[target == k]).sum(0) / weight[target == k].sum()
            for k in range(K)
        ]
    )
    scatter = torch.zeros(features.shape[-1], features.shape[-1])
    for phi, k, w in zip(features, target, weight, strict=True):
        scatter += w * torch.outer(phi - means[k], phi - means[k])
    return means, scatter


@pytest.mark.parametrize("correlated", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_distances_are_those_of_estimates_without_the_example(
    correlated: bool, weighted: bool, generator: torch.Generator
) -> None:
    features, target = data(generator, 18)
    weight = 0.2 + torch.rand(18, generator=generator) if weighted else torch.ones(18)
    means, scatter = within(features, target, weight)
    total, shrinkage = weight.sum(), 0.3
    covariance = scatter / total
    variance, basis = torch.linalg.eigh(covariance)
    if not correlated:
        variance, basis = covariance.diagonal(), torch.eye(N)
    counts = torch.stack([weight[target == k].sum() for k in range(K)])
    classes = LabelledClasses(features @ basis, target, weight, means @ basis, counts, variance)
    ours = left_out_distances(classes, shrinkage, correlated=correlated)
    log_prior, left = left_out_log_prior(target, weight, counts, 0.7)
    for t in range(18):
        kept = torch.arange(18) != t
        means, scatter = within(features[kept], target[kept], weight[kept])
        if not correlated:
            scatter = scatter.diagonal().diag()
        noise = (1 - shrinkage) * scatter / total + shrinkage * covariance.trace() / N * torch.eye(
            N
        )
        error = features[t] - means
        expected = (error * torch.linalg.solve(noise, error.mT).mT).sum(-1)
        assert_close(ours[t], expected, rtol=1e-9, atol=1e-10)
        counts = torch.stack([weight[kept & (target == k)].sum() for k in range(K)])
        assert_close(log_prior[t], (counts + 0.7).log())
    assert_close(left, weight)


def test_the_temperature_is_where_the_likelihood_of_labels_has_no_slope(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    weight = torch.rand(T, generator=generator)
    distances = squared_distances(features, torch.randn(K, N, generator=generator), torch.ones(N))
    log_prior = torch.randn(K, generator=generator)
    for penalty in (0.0, 3.0):
        for initial in (1.0, 1e-6, 500.0):
            best = best_sharpness(distances, log_prior, target, weight, penalty, initial)
            point = torch.tensor(best.inverse_temperature, requires_grad=True)
            losses = F.cross_entropy(log_prior - 0.5 * point * distances, target, reduction="none")
            loss = weight @ losses + 0.5 * penalty * point.square()
            (slope,) = torch.autograd.grad(loss, point)
            assert abs((slope * point).item()) < 1e-6 * T
            assert best.loss == pytest.approx(loss.item())
    apart = torch.where(F.one_hot(target, K) == 1, 0.0, 1e4)
    assert best_sharpness(apart, log_prior, target, weight).inverse_temperature > 1000


def test_predictions_are_those_of_shrunk_discriminant_analysis_at_a_temperature(
    generator: torch.Generator,
) -> None:
    """Scikit-learn's, whose logits are divided by the temperature but for the class priors."""
    features, target = data(generator)
    head = fitted(features, target, concentration=1e-9, prior=ll.Prior(variance=1e12))
    statistics = class_statistics(features, target, torch.ones(T), K)
    covariance, noise = statistics.within / T, head.noise.covariance().detach()
    temperature = float(noise.trace() / covariance.trace())
    values, shrunk = torch.linalg.eigvalsh(covariance), torch.linalg.eigvalsh(noise / temperature)
    shrinkage = float((values[-1] - shrunk[-1]) / (values[-1] - values.mean()))
    assert min(abs(shrinkage - tried) for tried in SHRINKAGES) < 1e-9
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    theirs.fit(features.numpy(), target.numpy())
    log_prior = torch.from_numpy(theirs.priors_).log()
    logits = torch.from_numpy(theirs.decision_function(features.numpy())) - log_prior
    wider = temperature * (1 + K / T)  # by the uncertainty of the class means
    expected = (logits / wider + log_prior).log_softmax(-1)
    assert_close(head(features).log_probs(), expected, rtol=1e-6, atol=1e-8)
    assert_close(head.mean.detach(), torch.from_numpy(theirs.means_), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", ["dense", "diagonal"])
def test_validation_chooses_by_its_own_labels(noise: str, generator: torch.Generator) -> None:
    features, target = data(generator, 300)
    train, unseen = (features[:60], target[:60]), (features[60:], target[60:])
    head = fitted(*train, noise=noise, validation=(*unseen, None), prior=ll.Prior(variance=1e12))
    assert head.assumption == "chosen by the validation data"

    def nll(scale: float) -> float:
        other = fitted(*train, noise=noise, validation=(*unseen, None))
        with torch.no_grad():
            other.noise.assign(scale * head.noise.covariance())
            return -float(other(unseen[0]).log_prob(unseen[1]).mean())

    best, alone = nll(1.0), fitted(*train, noise=noise)
    assert best < min(nll(0.6), nll(1.6))
    assert best < -float(alone(unseen[0]).log_prob(unseen[1]).mean().detach()) + 5e-3


def test_redundant_features_are_not_counted_as_so_many_witnesses(
    generator: torch.Generator,
) -> None:
    """As the closed form does; ours are about as good as the four numbers behind the features."""
    target = torch.arange(1200) % K
    hidden = torch.randn(K, 4, generator=generator)[target]
    hidden = hidden + torch.randn(1200, 4, generator=generator)
    features = hidden @ torch.randn(4, 40, generator=generator)
    features = features + 0.1 * torch.randn(1200, 40, generator=generator)
    train, unseen, test = slice(0, 300), slice(300, 600), slice(600, 1200)
    head = fitted(
        features[train], target[train], validation=(features[unseen], target[unseen], None)
    )
    closed = ll.GenerativeClassification(40, K, num_data=300)
    closed.fit_exact(features[train], target[train], estimate_noise=True)
    theirs = LinearDiscriminantAnalysis().fit(hidden[train].numpy(), target[train].numpy())
    reachable = torch.from_numpy(theirs.predict_log_proba(hidden[test].numpy()))
    ours = -head(features[test]).log_prob(target[test]).mean().item()
    assert ours < F.nll_loss(reachable, target[test]).item() + 0.05
    assert ours < -closed(features[test]).log_prob(target[test]).mean().item() - 0.5


def test_features_that_carry_their_labels_are_recognised(generator: torch.Generator) -> None:
    unseen = data(generator, 60, 30)
    assert fitted(*unseen).assumption == "chosen by leave-one-out predictions"
    target = torch.randint(K, (60,), generator=generator)  # labels of which nothing can be known
    trained = F.one_hot(target, K).double() @ torch.randn(K, 30, generator=generator)
    trained = trained + 0.05 * torch.randn(60, 30, generator=generator)
    for noise in ("dense", "diagonal"):
        head = fitted(trained, target, noise=noise)
        assert "seem to have been trained on these labels" in str(head.assumption)
        probs = head(trained).probs().detach().amax(-1)
        assert probs.max() < 0.99  # cautious, although every label fits


def test_a_layer_that_fits_better_than_predictions_without_the_example_clears_the_features(
    generator: torch.Generator,
) -> None:
    features, target = data(generator, 600)
    head = ll.GenerativeClassification(N, K, num_data=600, noise="dense")
    reasons = {}
    for loss in (None, 10.0, 0.01):
        weight = torch.ones(600)
        noise = shrink_noise(
            class_statistics(features, target, weight, K),
            (features, target, weight),
            held_out=False,
            correlated=True,
            concentration=1.0,
            kl_weight=1.0,
            replaced_loss=loss,
        )
        assert noise is not None
        reasons[loss] = "seem to have been trained" in noise.reason
    assert reasons == {None: True, 10.0: True, 0.01: False}  # with five features, who knows
    layer = torch.nn.Linear(N, K)
    head.start_from(layer)
    assert head.replaced is not None
    ours = layer_loss(*head.replaced, features, target, target.double())
    losses = F.cross_entropy(layer(features).detach(), target, reduction="none")
    assert ours == pytest.approx((target * losses).sum().item() / target.sum().item())
    logit = torch.nn.Linear(N, 1)
    question = (target > 0).long()
    ours = layer_loss(logit.weight.detach(), None, features, question, torch.ones(600))
    values = F.linear(features, logit.weight.detach())[:, 0]
    assert ours == pytest.approx(
        F.binary_cross_entropy_with_logits(values, question.double()).item()
    )
    assert layer_loss(logit.weight.detach(), None, features, target, torch.ones(600)) is None


# ------------------------------------------------------------------------------- edge cases


def test_examples_of_no_weight_are_as_if_absent(generator: torch.Generator) -> None:
    features, target = data(generator)
    weight = (torch.rand(T, generator=generator) > 0.3).double()
    labels = target.where(weight != 0, -100)
    kept = weight != 0
    for noise in ("dense", "diagonal"):
        ours = fitted(features, labels, weight, noise=noise).state_dict()
        theirs = fitted(features[kept], target[kept], noise=noise).state_dict()
        for name, value in theirs.items():
            assert_close(ours[name], value)


@pytest.mark.parametrize("noise", ["dense", "diagonal"])
def test_classes_of_one_example_or_none_and_constant_features_are_fitted(
    noise: Any, generator: torch.Generator
) -> None:
    features, target = data(generator)
    few = torch.where(target == 2, 0, target)
    few[0] = 2  # the only one
    features[:, 1] = 7.0
    one = fitted(features, few, noise=noise)
    assert one(features).probs().isfinite().all()
    assert one.observed.all()
    none = fitted(features, few.clamp(max=1), noise=noise)
    probs = none(features).probs()
    assert_close(probs[:, 2], torch.full((T,), 1 / (T + 3)))
    single = fitted(features[:K], torch.arange(K), noise=noise)  # no two of a class
    assert single.assumption == "closed form: no two examples of a class differ"
    exact = ll.GenerativeClassification(N, K, num_data=K, noise=noise)
    exact.fit_exact(features[:K], torch.arange(K), estimate_noise=True)
    assert_close(single(features).probs(), exact(features).probs())


@pytest.mark.parametrize("noise", ["dense", "diagonal"])
def test_more_features_than_examples_in_single_precision(
    noise: str, generator: torch.Generator
) -> None:
    features, target = data(generator, 30, 80)
    double = fitted(features, target, noise=noise)
    single = fitted(features.float(), target, noise=noise)
    assert_close(
        single(features.float()).probs(), double(features).probs().float(), atol=1e-3, rtol=0
    )
    probs = double(features).probs().detach()
    assert -probs.gather(-1, target[:, None]).log().mean() < math.log(K)


def test_all_classes_have_the_same_covariance_and_updates_go_on_from_there(
    generator: torch.Generator,
) -> None:
    features, target = data(generator)
    target[:15] = 0  # unequal classes
    head = fitted(features, target)
    variances = head.covariance.diagonal().detach()
    assert_close(variances, variances[:1].expand_as(variances))
    assert_close(variances[0, 0], torch.tensor(1 / (1 + T / K)))
    before = head.mean.detach().clone()
    head.update(features[:1] + 100, target[:1])
    moved = (head.mean - before).detach().norm(dim=-1)
    assert moved[0] > 1
    assert_close(moved[1:], torch.zeros(2))


def test_a_part_of_many_examples_chooses_almost_as_all(generator: torch.Generator) -> None:
    features, target = data(generator, 3000)
    whole = fitted(features, target)
    part = fitted(features, target, max_memory_bytes=1000 * 32 * (N + 2 * K))
    assert_close(part.mean, whole.mean)
    assert_close(part(features).probs(), whole(features).probs(), atol=0.05, rtol=0)
    assert not torch.equal(part.noise.covariance(), whole.noise.covariance())


# ------------------------------------------------------------------------ density of the features


def _fitted_density(generator: torch.Generator) -> tuple[ll.GenerativeClassification, Any, Any]:
    label = torch.arange(90) % 3
    features = (
        torch.randn(90, 4, generator=generator) + 2 * torch.randn(3, 4, generator=generator)[label]
    )
    head = ll.GenerativeClassification(4, 3, num_data=90, noise="dense")
    head.fit_features(features, label)
    return head, features, label


def test_density_after_fitting_labels_is_that_of_feature_density(
    generator: torch.Generator,
) -> None:
    head, features, label = _fitted_density(generator)
    score = ll.ood.FeatureDensity(4, 3)
    score.update(features, label)
    points = 3 * torch.randn(2, 7, 4, generator=generator)
    assert_close(head(points).log_density(), -score(points))
    positive = features.abs()
    head.fit_density(positive, label)
    score = ll.ood.FeatureDensity(4, 3, power=0.5)
    score.update(positive, label)
    assert_close(head(points).log_density(), -score(points))


def test_density_changes_no_probability_of_labels(generator: torch.Generator) -> None:
    head, features, _ = _fitted_density(generator)
    after = head(features)
    head.density = None
    before = head(features)
    assert_close(after.probs(), before.probs())
    assert_close(after.mutual_information(), before.mutual_information())
    tempered = after.temper(torch.tensor(2.0))
    assert_close(tempered.log_density(), after.log_density())


def test_density_is_saved_moved_and_dropped(generator: torch.Generator) -> None:
    head, features, label = _fitted_density(generator)
    twin = ll.GenerativeClassification(4, 3, num_data=90, noise="dense")
    twin.load_state_dict(head.state_dict())
    assert_close(twin(features).log_density(), head(features).log_density())
    head.double()
    assert_close(head(features.double()).log_density().to(features), twin(features).log_density())
    density = head.half().density
    assert density is not None
    assert density.power.dtype == torch.float64
    twin.update(features[:2], label[:2])
    assert twin.density is not None
    twin.fit_exact(features, label)
    assert twin.density is None
    head = head.double()
    head.load_state_dict(twin.state_dict())
    assert head.density is None


def test_there_is_no_relative_density_of_one_class(generator: torch.Generator) -> None:
    head = ll.GenerativeClassification(4, 3, num_data=9)
    features = torch.randn(9, 4, generator=generator)
    head.fit_density(features, torch.ones(9, dtype=torch.int64))
    assert head.density is None
    head.fit_density(features, torch.arange(9) % 2, weight=torch.arange(9) % 2)
    assert head.density is None
