"""Metrics against numerical integration, brute force, scikit-learn and torchmetrics."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer.predictive import GaussianMixturePredictive
from tests.helpers.processes import run_together

pytest.importorskip("torchmetrics", reason="install lastlayer[metrics]")

from torchmetrics.functional.classification import multiclass_calibration_error
from torchmetrics.functional.regression import continuous_ranked_probability_score

from lastlayer import metrics

sklearn_metrics = pytest.importorskip(
    "sklearn.metrics", reason="an oracle; install lastlayer[test]"
)


def integrated_crps(distribution: Any, target: float) -> float:
    """∫ (F(x) − 1{y ≤ x})² dx by the trapezoidal rule, split where it jumps."""
    below = torch.linspace(-60, target, 400_001)
    above = torch.linspace(target, 60, 400_001)
    left = torch.trapezoid(distribution.cdf(below).square(), below)
    right = torch.trapezoid((distribution.cdf(above) - 1).square(), above)
    return (left + right).item()


def gaussian(shape: tuple[int, ...], generator: torch.Generator) -> ll.GaussianPredictive:
    mean, epistemic, noise = torch.randn(3, *shape, generator=generator)
    return ll.GaussianPredictive(mean, epistemic.exp(), noise.exp())


def classes(shape: tuple[int, ...], generator: torch.Generator) -> ll.DiscriminativePredictive:
    mean, epistemic, noise = torch.randn(3, *shape, generator=generator)
    return ll.DiscriminativePredictive(2 * mean, epistemic.exp(), noise.exp())


class Lookup(nn.Module):
    """A model whose predictions are known: the inputs are indices into a predictive."""

    def __init__(self, predictive: ll.Predictive) -> None:
        super().__init__()
        self.predictive = predictive

    def forward(self, index: Tensor) -> ll.Predictive:
        assert not self.training
        assert not torch.is_grad_enabled()
        return self.predictive[index]


# -------------------------------------------------------------------------------------- CRPS


@pytest.mark.parametrize(("mean", "stddev", "target"), [(0, 1, 0), (1, 0.3, 3), (-2, 4, -1.5)])
def test_gaussian_crps_is_the_integral_that_defines_it(mean: float, stddev: float, target: float):
    found = metrics.gaussian_crps(*torch.tensor([mean, stddev, target]).double())
    assert_close(found.item(), integrated_crps(Normal(mean, stddev), target), rtol=1e-6, atol=1e-7)


def test_mixture_crps_is_the_integral_that_defines_it():
    weights, means = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([-3.0, 0.5, 2.0])
    stddevs = torch.tensor([0.5, 2.0, 0.1])
    mixed = MixtureSameFamily(Categorical(weights), Normal(means, stddevs))
    for target in (-3.0, 0.0, 7.0):
        found = metrics.gaussian_mixture_crps(weights, means, stddevs, torch.tensor(target))
        assert_close(found.item(), integrated_crps(mixed, target), rtol=1e-6, atol=1e-6)


def test_crps_of_a_mixture_predictive_weighs_its_components_equally(generator: torch.Generator):
    components = gaussian((3, 4, 2), generator)  # 3 examples, 4 components, 2 outputs
    target = torch.randn(3, 2, generator=generator)
    found = metrics.crps(GaussianMixturePredictive(components), target)
    mixed = MixtureSameFamily(
        Categorical(torch.ones(4)), Normal(components.mean[1, :, 1], components.stddev[1, :, 1])
    )
    assert found.shape == (3, 2)
    assert_close(found[1, 1].item(), integrated_crps(mixed, target[1, 1].item()), rtol=1e-6, atol=0)


def test_crps_of_correlated_outputs_is_that_of_their_marginals(generator: torch.Generator):
    root = torch.randn(5, 3, 3, generator=generator)
    covariance = root @ root.mT + torch.eye(3)
    predictive = ll.MultivariateGaussianPredictive(
        torch.randn(5, 3, generator=generator), covariance, torch.eye(3).expand(5, 3, 3)
    )
    target = torch.randn(5, 3, generator=generator)
    found = metrics.crps(predictive, target)[2, 1].item()
    marginal = Normal(predictive.mean[2, 1], (covariance[2, 1, 1] + 1).sqrt())
    assert_close(found, integrated_crps(marginal, target[2, 1].item()), rtol=1e-6, atol=0)


def test_crps_of_a_point_is_the_absolute_error():
    mean, target = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0.0, 3.0, -5.0])
    zero = torch.zeros(3)
    assert_close(metrics.gaussian_crps(mean, zero, target), (mean - target).abs())
    alone = metrics.gaussian_mixture_crps(torch.ones(1), mean[None], zero[None], target)
    assert_close(alone, (mean - target).abs())


def test_sampled_crps_is_unbiased_whatever_the_number_of_samples(generator: torch.Generator):
    target = torch.tensor(0.7)
    exact = metrics.gaussian_crps(torch.tensor(0.0), torch.tensor(1.0), target)
    for count in (2, 3, 50):
        runs = torch.randn(count, 40_000, generator=generator)
        found = metrics.sample_crps(runs, target.expand(40_000))
        assert abs(found.mean() - exact) < 4 * found.std() / 200


def test_sampled_crps_agrees_with_torchmetrics_up_to_its_bias(generator: torch.Generator):
    samples = torch.randn(6, 9, generator=generator)
    target = torch.randn(9, generator=generator)
    distance = (samples - target).abs().mean(0)
    biased = distance - (distance - metrics.sample_crps(samples, target)) * 5 / 6  # S² for S(S−1)
    theirs = continuous_ranked_probability_score(samples.T, target)
    assert_close(biased.mean(), theirs)


def test_sampled_crps_needs_two_samples():
    with pytest.raises(ValueError, match="at least 2"):
        metrics.sample_crps(torch.zeros(1, 3), torch.zeros(3))


# ------------------------------------------------------------------------------- calibration


@pytest.mark.parametrize(
    "error", [metrics.expected_calibration_error, metrics.adaptive_calibration_error]
)
@pytest.mark.parametrize("label", [-100, 3])
def test_labels_out_of_range_are_refused_unless_ignored(error, label):
    probs, target = torch.full((4, 3), 1 / 3), torch.tensor([0, 1, 2, label])
    for measure in (error, metrics.brier_score):
        with pytest.raises(ValueError, match=r"class labels must lie in 0 … 2"):
            measure(probs, target)
    kept = error(probs, target, weight=torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert_close(kept, error(probs[:3], target[:3]))


def test_calibration_error_of_bins_made_by_hand():
    confidence = torch.tensor([0.55, 0.65, 0.95, 0.85, 1.0])
    probs = torch.stack([confidence, 1 - confidence], -1)
    target = torch.tensor([0, 1, 0, 0, 1])
    bins = metrics.calibration_bins(probs, target, num_bins=5)
    nothing = math.nan
    assert_close(bins.edges, torch.linspace(0, 1, 6))
    assert_close(bins.weight, torch.tensor([0.0, 0, 1, 1, 3]))
    expected = torch.tensor([nothing, nothing, 0.55, 0.65, 2.8 / 3])
    assert_close(bins.confidence, expected, equal_nan=True)
    expected = torch.tensor([nothing, nothing, 1.0, 0.0, 2 / 3])
    assert_close(bins.accuracy, expected, equal_nan=True)
    error = (1 * abs(1 - 0.55) + 1 * abs(0 - 0.65) + 3 * abs(2 - 2.8) / 3) / 5
    assert_close(metrics.expected_calibration_error(probs, target, 5).item(), error)


def test_calibration_error_agrees_with_torchmetrics(generator: torch.Generator):
    predictive = classes((500, 4), generator)
    target = torch.randint(4, (500,), generator=generator)
    found = metrics.expected_calibration_error(predictive.probs(), target, num_bins=10)
    theirs = multiclass_calibration_error(predictive.probs(), target, num_classes=4, n_bins=10)
    assert_close(found.item(), theirs.item(), rtol=1e-5, atol=0)  # theirs is single precision


def test_adaptive_calibration_error_of_equal_groups_of_sorted_confidences(
    generator: torch.Generator,
):
    probs = classes((600, 3), generator).probs()
    target = torch.randint(3, (600,), generator=generator)
    confidence, label = probs.max(-1)
    order = confidence.numpy().argsort()
    gaps = [
        abs((label == target).numpy()[group].mean() - confidence.numpy()[group].mean())
        for group in np.array_split(order, 12)
    ]
    found = metrics.adaptive_calibration_error(probs, target, num_bins=12)
    assert_close(found.item(), float(np.mean(gaps)))


def test_adaptive_calibration_error_does_not_depend_on_the_order_of_ties(
    generator: torch.Generator,
):
    confidence = torch.tensor([0.6, 0.8]).repeat(50)
    probs = torch.stack([confidence, 1 - confidence], -1)
    target = torch.randint(2, (100,), generator=generator)
    order = torch.randperm(100, generator=generator)
    found = metrics.adaptive_calibration_error(probs, target, 7)
    assert_close(metrics.adaptive_calibration_error(probs[order], target[order], 7), found)
    # bins inside of a group of ties have its mean: for 2 bins, one group each
    right = (target == 0).double().reshape(50, 2).mean(0)
    expected = (right - torch.tensor([0.6, 0.8])).abs().mean()
    assert_close(metrics.adaptive_calibration_error(probs, target, 2), expected)


def streaming_error_bound(
    probs: Tensor, target: Tensor, weight: Tensor, num_bins: int = 15
) -> float:
    """The documented bound: 2 Σ w (a(1 − a) + δ/4) over the narrow bins with an inner edge."""
    confidence, label = probs.max(-1)
    odds = (confidence.log() - (1 - confidence).log()).clamp(max=1e3)
    place = ((odds + 20) / 60 * 2**16).floor().clamp(0, 2**16 - 1)
    order = confidence.argsort()
    reached = weight[order].cumsum(0) / weight.sum()
    bound = 0.0
    for edge in range(1, num_bins):
        at = int((reached >= edge / num_bins).nonzero()[0])  # the example that the edge divides
        same = place == place[order[at]]
        share = weight[same].sum() / weight.sum()
        accuracy = (weight * (label == target))[same].sum() / weight[same].sum()
        spread = confidence[same].max() - confidence[same].min()
        assert spread < 3e-4
        if spread > 0:
            bound += (2 * share * (accuracy * (1 - accuracy) + spread / 4)).item()
    return bound


def both_adaptive_errors(
    logits: Tensor, target: Tensor, weight: Tensor, num_bins: int = 15
) -> tuple[float, float, float]:
    """Streamed, exact, and the bound of their difference."""
    metric = metrics.ClassificationMetrics(num_bins)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        log_probs = logits[part].log_softmax(-1)
        metric.update(ll.SoftmaxPredictive(log_probs), target[part], weight[part])
    probs = logits.softmax(-1)
    exact = metrics.adaptive_calibration_error(probs, target, num_bins, weight)
    bound = streaming_error_bound(probs, target, weight, num_bins)
    return metric.compute()["adaptive_ece"].item(), exact.item(), bound


@pytest.mark.parametrize("scale", [0.01, 0.3, 3.0, 20.0, 200.0])  # from unsure to certain
@pytest.mark.parametrize("count", [30, 300, 5000])
def test_streamed_adaptive_error_is_that_of_all_confidences_within_its_bound(
    count: int, scale: float
):
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        logits = scale * torch.randn(count, 4, generator=generator)
        target = (logits / 2).softmax(-1).multinomial(1, generator=generator).squeeze(-1)
        weight = torch.rand(count, generator=generator) if seed % 2 else torch.ones(count)
        streamed, exact, bound = both_adaptive_errors(logits, target, weight)
        assert abs(streamed - exact) <= bound + 1e-12


def test_streamed_adaptive_error_reaches_its_bound():
    # one narrow bin with the wrong half below the right one: both halves look alike in it
    logits = torch.tensor([[1.0, 1.0 - 1e-5], [1.0, 1.0 - 2e-5]])
    target = torch.tensor([1, 0])
    streamed, exact, bound = both_adaptive_errors(logits, target, torch.ones(2), num_bins=2)
    assert_close(exact, 0.5, rtol=0, atol=1e-5)
    assert_close(streamed, 0.0, rtol=0, atol=1e-5)
    assert_close(exact - streamed, bound, rtol=0, atol=1e-5)


def test_a_confidence_of_one_is_the_highest():
    confidence = torch.tensor([1.0, 0.8, 0.6, 0.6])
    probs = torch.stack([confidence, 1 - confidence], -1)
    logits = probs.log().clamp(min=-1000)
    predictive = ll.DiscriminativePredictive(logits, 0 * logits, 0 * logits)
    metric = metrics.ClassificationMetrics(num_bins=2)
    metric.update(predictive, torch.tensor([1, 0, 0, 0]))
    expected = (abs(1 - 1.8) + abs(2 - 1.2)) / 4
    assert_close(metric.compute()["adaptive_ece"].item(), expected, rtol=0, atol=1e-6)


def test_weights_count_examples_as_often(generator: torch.Generator):
    probs = classes((40, 3), generator).probs()
    target = torch.randint(3, (40,), generator=generator)
    weight = torch.randint(0, 4, (40,), generator=generator)
    repeated, labels = probs.repeat_interleave(weight, 0), target.repeat_interleave(weight)
    for error in (metrics.expected_calibration_error, metrics.adaptive_calibration_error):
        assert_close(error(probs, target, 6, weight), error(repeated, labels, 6))


# ------------------------------------------------------------------------- regression streams


def test_regression_metrics_are_their_definitions(generator: torch.Generator):
    predictive = gaussian((50, 3), generator)
    target = torch.randn(50, 3, generator=generator)
    found = metrics.evaluate(Lookup(predictive), (torch.arange(50), target), levels=(0.8,))
    expected = Normal(predictive.mean, predictive.stddev)
    inside = (expected.cdf(target) - 0.5).abs() < 0.4
    width = expected.icdf(torch.tensor(0.9)) - expected.icdf(torch.tensor(0.1))
    assert found.keys() == {"nll", "rmse", "crps", "coverage_0.8", "width_0.8"}
    assert_close(found["nll"], -expected.log_prob(target).sum(-1).mean().item())
    error = sklearn_metrics.mean_squared_error(target.flatten(), predictive.mean.flatten())
    assert_close(found["rmse"], math.sqrt(error))
    assert_close(found["coverage_0.8"], inside.double().mean().item())
    assert_close(found["width_0.8"], width.mean().item())
    assert_close(found["crps"], metrics.crps(predictive, target).mean().item())


def test_intervals_of_a_true_model_cover_as_they_promise(generator: torch.Generator):
    predictive = gaussian((20_000, 1), generator)
    target = predictive.sample(generator=generator).squeeze(-1)
    levels = (0.1, 0.5, 0.9, 0.99)
    curve = metrics.coverage_curve(predictive, target, levels)
    error = (curve.levels * (1 - curve.levels) / 20_000).sqrt()
    assert ((curve.coverage - curve.levels).abs() < 4 * error).all()
    assert curve.num_examples == 20_000


def test_levels_are_those_asked_for_whatever_the_default_dtype(generator: torch.Generator):
    predictive, levels = gaussian((5, 1), generator), (0.1, 0.9)
    stream = metrics.RegressionMetrics(levels=levels)
    stream.update(predictive, torch.zeros(5))
    torch.set_default_dtype(torch.float32)
    assert metrics.coverage_curve(predictive, torch.zeros(5), levels).levels.tolist() == [0.1, 0.9]
    assert stream.coverage_curve().levels.tolist() == [0.1, 0.9]


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_any_batches_give_the_same_metrics(kind: str, batch_size: int, generator: torch.Generator):
    weight = torch.rand(64, generator=generator)
    if kind == "regression":
        predictive: Any = gaussian((64, 2), generator)
        target = torch.randn(64, 2, generator=generator)
    else:
        predictive = classes((64, 5), generator)
        target = torch.randint(5, (64,), generator=generator)
    model, data = Lookup(predictive), (torch.arange(64), target, weight)
    whole = metrics.evaluate(model, data)
    assert metrics.evaluate(model, data, batch_size=batch_size) == pytest.approx(whole, rel=1e-12)
    loader = DataLoader(TensorDataset(*data), batch_size=batch_size)
    assert metrics.evaluate(model, loader) == pytest.approx(whole, rel=1e-12)


def test_sums_take_no_more_memory_for_more_data(generator: torch.Generator):
    regression, classification = metrics.RegressionMetrics(), metrics.ClassificationMetrics()
    sizes = []
    for _ in range(3):
        regression.update(gaussian((100, 1), generator), torch.zeros(100))
        classification.update(classes((100, 3), generator), torch.zeros(100).long())
        states = [*regression.metric_state.values(), *classification.metric_state.values()]
        assert all(isinstance(state, Tensor) for state in states)
        sizes.append(sum(state.numel() for state in states if isinstance(state, Tensor)))
    assert sizes[0] == sizes[1] == sizes[2]


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_weight_zero_ignores_an_example_that_is_not_even_a_number(
    kind: str, generator: torch.Generator
):
    if kind == "regression":
        predictive: Any = gaussian((8, 2), generator)
        target = torch.randn(8, 2, generator=generator)
        predictive.mean[3] = math.nan
        target[5] = math.nan
    else:
        predictive = classes((8, 3), generator)
        target = torch.randint(3, (8,), generator=generator)
        predictive.logit_mean[3] = math.nan
        target[5] = 255
    weight = torch.ones(8)
    weight[[3, 5]] = 0
    kept = torch.tensor([0, 1, 2, 4, 6, 7])
    model = Lookup(predictive)
    expected = metrics.evaluate(model, (kept, target[kept]))
    found = metrics.evaluate(model, (torch.arange(8), target, weight))
    assert found == pytest.approx(expected, rel=1e-12)
    assert found == metrics.evaluate(model, (torch.arange(8), target, weight > 0))  # a mask
    # and without the weight it shows
    target[5] = 0
    assert math.isnan(metrics.evaluate(model, (torch.arange(8), target))["nll"])


def test_weights_per_output_ignore_missing_outputs(generator: torch.Generator):
    predictive = gaussian((30, 2), generator)
    target = torch.randn(30, 2, generator=generator)
    weight = torch.rand(30, 2, generator=generator)
    weight[4, 0] = 0
    missing = target.clone()
    missing[4, 0] = math.nan
    found = metrics.evaluate(Lookup(predictive), (torch.arange(30), missing, weight))
    log_prob = Normal(predictive.mean, predictive.stddev).log_prob(target)
    assert_close(found["nll"], (-2 * (weight * log_prob).sum() / weight.sum()).item())
    squares = (target - predictive.mean).square()
    assert_close(found["rmse"], ((weight * squares).sum() / weight.sum()).sqrt().item())
    same = weight[:, :1].expand(30, 2)
    per_example = metrics.evaluate(Lookup(predictive), (torch.arange(30), target, same[:, 0]))
    per_output = metrics.evaluate(Lookup(predictive), (torch.arange(30), target, same))
    assert per_output == pytest.approx(per_example)


def test_weights_per_output_need_independent_outputs():
    eye = torch.eye(2).expand(3, 2, 2)
    predictive = ll.MultivariateGaussianPredictive(torch.zeros(3, 2), eye, eye)
    with pytest.raises(ValueError, match="independent outputs"):
        metrics.RegressionMetrics().update(predictive, torch.zeros(3, 2), torch.ones(3, 2))


def test_one_output_takes_flat_targets_and_sequences_are_examples(generator: torch.Generator):
    predictive = gaussian((6, 4, 1), generator)  # 6 sequences of 4 steps
    target = torch.randn(6, 4, generator=generator)
    found = metrics.evaluate(Lookup(predictive), (torch.arange(6), target), batch_size=4)
    flat = ll.GaussianPredictive(*(t.flatten(0, 1) for t in predictive._tensors()))
    expected = metrics.evaluate(Lookup(flat), (torch.arange(24), target.flatten().unsqueeze(-1)))
    assert found == pytest.approx(expected, rel=1e-12)


def test_sums_of_single_precision_predictions_are_double(generator: torch.Generator):
    predictive = gaussian((100, 1), generator).to(torch.float32)
    metric = metrics.RegressionMetrics()
    for _ in range(1000):
        metric.update(predictive, torch.zeros(100, dtype=torch.float32))
    once = metrics.RegressionMetrics()
    once.update(predictive, torch.zeros(100, dtype=torch.float32))
    assert_close(metric.compute()["rmse"], once.compute()["rmse"], rtol=1e-12, atol=0)


# --------------------------------------------------------------------- classification streams


def test_classification_metrics_agree_with_scikit_learn(generator: torch.Generator):
    predictive = classes((300, 4), generator)
    target = torch.randint(4, (300,), generator=generator)
    weight = torch.rand(300, generator=generator)
    found = metrics.evaluate(Lookup(predictive), (torch.arange(300), target, weight))
    probs = predictive.log_probs().exp().numpy()
    nll = sklearn_metrics.log_loss(target, probs, sample_weight=weight)
    accuracy = sklearn_metrics.accuracy_score(target, probs.argmax(-1), sample_weight=weight)
    squares = ((probs - np.eye(4)[target.numpy()]) ** 2).sum(-1)
    assert_close(found["nll"], float(nll))
    assert_close(found["accuracy"], float(accuracy))
    assert_close(found["brier"], float(np.average(squares, weights=weight.numpy())))
    ece = metrics.expected_calibration_error(torch.from_numpy(probs), target, weight=weight)
    assert_close(found["ece"], ece.item())


def test_certain_classifiers_are_perfect_or_as_bad_as_can_be():
    logits = 1000 * torch.eye(3)
    zero = torch.zeros(3, 3)
    model = Lookup(ll.DiscriminativePredictive(logits, zero, zero))
    index = torch.arange(3)
    perfect = {"nll": 0.0, "accuracy": 1.0, "brier": 0.0, "ece": 0.0, "adaptive_ece": 0.0}
    assert metrics.evaluate(model, (index, index)) == pytest.approx(perfect, abs=1e-6)
    worst = {"nll": 1000.0, "accuracy": 0.0, "brier": 2.0, "ece": 1.0, "adaptive_ece": 1.0}
    assert metrics.evaluate(model, (index, index.roll(1))) == pytest.approx(worst, rel=1e-6)


def test_brier_score_of_two_classes_is_twice_that_of_scikit_learn(generator: torch.Generator):
    probs = classes((50, 2), generator).probs()
    target = torch.randint(2, (50,), generator=generator)
    theirs = sklearn_metrics.brier_score_loss(target, probs[:, 1])
    assert_close(metrics.brier_score(probs, target).mean().item(), 2 * float(theirs))


def test_streamed_bins_and_coverage_are_those_of_all_data(generator: torch.Generator):
    classifier, labels = classes((90, 3), generator), torch.randint(3, (90,), generator=generator)
    stream = metrics.ClassificationMetrics(num_bins=10)
    regressor, target = gaussian((90, 2), generator), torch.randn(90, 2, generator=generator)
    weight = torch.rand(90, generator=generator)
    curve = metrics.RegressionMetrics(levels=(0.3, 0.6))
    for part in torch.arange(90).split(25):
        stream.update(classifier[part], labels[part])
        curve.update(regressor[part], target[part], weight[part])
    whole = metrics.calibration_bins(classifier.log_probs().exp(), labels, num_bins=10)
    for ours, expected in zip(stream.calibration_bins(), whole, strict=True):
        assert_close(ours, expected, equal_nan=True)
    expected_curve = metrics.coverage_curve(regressor, target, (0.3, 0.6), weight)
    for ours, expected in zip(curve.coverage_curve(), expected_curve, strict=True):
        assert_close(ours, expected)
    assert_close(expected_curve.num_examples, weight.sum().square() / weight.square().sum())


# ----------------------------------------------------------------------- out of distribution


def brute_force(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """All pairs, and all thresholds."""
    above = (outside[:, None] > inside).double() + 0.5 * (outside[:, None] == inside)
    flagged = [
        ((inside >= t).double().mean().item(), (outside >= t).double().mean().item())
        for t in torch.cat([inside, outside])
    ]
    label = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)])
    score = torch.cat([inside, outside])
    return {
        "auroc": above.mean().item(),
        "aupr": float(sklearn_metrics.average_precision_score(label, score)),
        "fpr95": min(false for false, true in flagged if true >= 0.95),
    }


@pytest.mark.parametrize("sizes", [(1, 1), (7, 20), (60, 40), (30, 101)])
@pytest.mark.parametrize("decimals", [0, 1, 8])  # many ties, some, none
def test_detection_is_that_of_all_pairs_and_thresholds(
    sizes: tuple[int, int], decimals: int, generator: torch.Generator
):
    inside = torch.randn(sizes[0], generator=generator).round(decimals=decimals)
    outside = (torch.randn(sizes[1], generator=generator) + 1).round(decimals=decimals)
    found = metrics.ood(inside, outside)
    assert found == pytest.approx(brute_force(inside, outside), abs=1e-6)


def test_detection_depends_on_ranks_only(generator: torch.Generator):
    inside, outside = torch.rand(2, 50, generator=generator)
    expected = metrics.ood(inside, outside)
    assert metrics.ood(1e6 * inside + 1e5, 1e6 * outside + 1e5) == expected
    assert metrics.ood(inside.logit().float(), outside.logit().float()) == expected
    inside[0], outside[0] = -9, 9
    expected = metrics.ood(inside, outside)
    inside[0], outside[0] = -math.inf, math.inf
    assert metrics.ood(inside, outside) == expected


def test_detection_is_perfect_useless_or_inverted():
    low, high = torch.arange(100.0), torch.arange(100.0) + 200
    assert metrics.ood(low, high) == {"auroc": 1.0, "aupr": 1.0, "fpr95": 0.0}
    inverted = metrics.ood(high, low)
    assert inverted["auroc"] == 0.0
    assert inverted["fpr95"] == 1.0
    useless = metrics.ood(torch.zeros(30), torch.zeros(70))
    assert useless == pytest.approx({"auroc": 0.5, "aupr": 0.7, "fpr95": 1.0})


def test_detection_over_data_is_that_of_its_scores(generator: torch.Generator):
    predictive = classes((60, 3), generator)
    inside, outside = torch.arange(40), torch.arange(40, 60)
    entropy = predictive.entropy()
    found = metrics.evaluate_ood(Lookup(predictive), inside, outside, batch_size=9)
    assert found == metrics.ood(entropy[:40], entropy[40:])
    negative = metrics.evaluate_ood(
        Lookup(predictive), (inside, inside), outside, lambda output: -output.entropy()
    )
    assert negative["auroc"] == pytest.approx(1 - found["auroc"])


# --------------------------------------------------------------------------------- bad input


def test_bad_input_says_what_was_expected(generator: torch.Generator):
    regressor, classifier = gaussian((4, 2), generator), classes((4, 3), generator)
    index, ones = torch.arange(4), torch.ones(4)
    with pytest.raises(ValueError, match="nothing is broadcast"):
        metrics.evaluate(Lookup(regressor), (index, ones))
    with pytest.raises(TypeError, match="must be integers"):
        metrics.evaluate(Lookup(classifier), (index, ones))
    with pytest.raises(ValueError, match=r"lie in 0 … 2, got values from 0 to 3"):
        metrics.evaluate(Lookup(classifier), (index, index))
    with pytest.raises(ValueError, match="finite and not negative"):
        metrics.evaluate(Lookup(regressor), (index, ones.expand(2, 4).T, -ones))
    with pytest.raises(ValueError, match="at least one example with a weight"):
        metrics.evaluate(Lookup(regressor), (index, ones.expand(2, 4).T, 0 * ones))
    with pytest.raises(ValueError, match="at least one example"):
        metrics.evaluate(Lookup(regressor), (index[:0], torch.ones(0, 2)))
    with pytest.raises(ValueError, match="targets"):
        metrics.evaluate(Lookup(regressor), (index,))
    with pytest.raises(TypeError, match="must return a predictive"):
        metrics.evaluate(nn.Linear(1, 1), (torch.ones(4, 1), ones))
    with pytest.raises(ValueError, match="level must lie between"):
        metrics.evaluate(Lookup(regressor), (index, ones.expand(2, 4).T), levels=(90,))
    with pytest.raises(ValueError, match="num_bins"):
        metrics.evaluate(Lookup(classifier), (index, index % 3), num_bins=0)
    with pytest.raises(ValueError, match="out_scores must hold at least one score and no NaN"):
        metrics.ood(ones, ones * math.nan)
    with pytest.raises(ValueError, match="in_scores must hold at least one score"):
        metrics.ood(ones[:0], ones)


def test_a_missing_library_names_the_extra_and_the_core_does_without():
    code = (
        "import sys; sys.modules['torchmetrics'] = None\n"
        "import lastlayer\n"
        "try:\n    import lastlayer.metrics\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'lastlayer[metrics]'" in done.stdout


# -------------------------------------------------------------------------------- processes


def everything(model: Lookup, data: tuple[Tensor, ...]) -> dict[str, float]:
    halves = model.predictive.batch_shape[0] // 2
    low, high = data[0][data[0] < halves], data[0][data[0] >= halves]
    return metrics.evaluate(model, data, batch_size=5) | metrics.evaluate_ood(model, low, high)


def evaluate_part(rank: int, _: Path, models: list[Lookup], data: list[Any], whole: list[Any]):
    for model, tensors, expected in zip(models, data, whole, strict=True):
        part = tuple(tensor[rank::2] for tensor in tensors)
        assert everything(model, part) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_two_processes_get_the_metrics_of_all_data(tmp_path: Any, generator: torch.Generator):
    models: list[Lookup] = [Lookup(gaussian((41, 2), generator))]
    models += [Lookup(classes((41, 3), generator))]
    index, weight = torch.arange(41), torch.rand(41, generator=generator)
    data = [(index, torch.randn(41, 2, generator=generator), weight), (index, index % 3, weight)]
    whole = [everything(model, tensors) for model, tensors in zip(models, data, strict=True)]
    run_together(evaluate_part, tmp_path, models, data, whole)
