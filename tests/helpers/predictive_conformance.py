"""What every predictive must satisfy, built in or brought along.

Each check compares one ability with another, with `torch.distributions`, with integrals of its own
distribution function, or with samples. A predictive of your own passes if `check_regression` or
`check_classification` does, of a batch of shape (B, S) in double precision.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from lastlayer import metrics, ood
from lastlayer.calibration import (
    Calibrated,
    TemperatureScaling,
    VarianceScaling,
    default_scaling,
)
from lastlayer.conformal import ConformalIntervals, ConformalSets
from lastlayer.predictive import ClassificationPredictive, RegressionPredictive, mix
from tests.helpers.reference import assert_within_standard_errors, sampled

COUNT = 400  # examples that are predicted alike


class Same(nn.Module):
    """A model that predicts every example alike."""

    def __init__(self, predictive: Any) -> None:
        super().__init__()
        self.predictive = predictive

    def forward(self, inputs: Tensor) -> Any:
        return self.predictive.expand(len(inputs))


# ------------------------------------------------------------------------------------- both


def tensors_are_indexed_moved_and_passed_through_pytrees(
    predictive: Any, generator: torch.Generator
) -> None:
    target = predictive.sample((), generator)
    expected = predictive.log_prob(target)
    assert expected.shape == predictive.batch_shape == predictive[...].batch_shape
    assert len(predictive) == predictive.batch_shape[0]
    for index in (1, slice(1, None), (slice(None), 0), (0, 1), torch.tensor([1, 0])):
        assert_close(predictive[index].log_prob(target[index]), expected[index])
    with pytest.raises(IndexError, match="3 indices"):
        predictive[0, 0, 0]
    leaves, spec = pytree.tree_flatten(predictive)
    again = pytree.tree_unflatten(leaves, spec)
    assert type(again) is type(predictive)
    assert_close(again.log_prob(target), expected)
    assert_close(predictive.detach().cpu().log_prob(target), expected)
    single = predictive.to(torch.float32)
    assert {leaf.dtype for leaf in pytree.tree_leaves(single)} == {torch.float32}
    mapped = torch.func.vmap(lambda part, known: part.log_prob(known))(predictive, target)
    assert_close(mapped, expected)


def scores_are_finite_or_refused(predictive: Any, generator: torch.Generator) -> None:
    inputs = torch.zeros(5, 1)
    for name in ood.SCORES:
        refusal, found = "", torch.zeros(5, *predictive.batch_shape[:1])
        try:
            found = ood.scores(Same(predictive[:, 0]), inputs, name, progress=False)
        except TypeError as error:
            refusal = str(error)
        reasons = ("does not have", "must return", "have no distribution")
        assert not refusal or any(reason in refusal for reason in reasons)
        assert found.shape == (5, *predictive.batch_shape[:1])
        assert found.isfinite().all()


# ------------------------------------------------------------------------------- regression


def density_is_that_of_the_distribution(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    target = predictive.sample((), generator)
    assert target.shape == predictive.mean.shape
    found = predictive.log_prob(target)
    assert_close(found, predictive.distribution().log_prob(target))
    refusal, apart = "", found.unsqueeze(-1)
    try:
        apart = predictive.log_prob_per_output(target)
    except ValueError as error:
        refusal = str(error)
    assert not refusal or "independent outputs" in refusal
    assert_close(apart.sum(-1), found)


def moments_and_masses_are_those_of_samples(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    assert_close(predictive.variance, predictive.epistemic_variance + predictive.noise_variance)
    assert_close(predictive.stddev.square(), predictive.variance)
    value = predictive.mean + 0.3 * predictive.stddev

    def draws(count: int) -> Tensor:
        drawn = predictive.sample((count,), generator)
        error = drawn - predictive.mean
        return torch.stack([drawn, error.square(), (drawn <= value).to(drawn)], 1)

    expected = torch.stack([predictive.mean, predictive.variance, predictive.cdf(value)])
    assert_within_standard_errors(expected, *sampled(draws, 40_000, 20_000))

    def squares(count: int) -> Tensor:
        drawn = predictive.sample((count,), generator)
        terms = predictive.expand(count).standardized_squares(drawn)
        return terms.flatten(1 + len(predictive.batch_shape)).sum(-1)

    total = torch.full(predictive.batch_shape, float(predictive.num_outputs))
    assert_within_standard_errors(total, *sampled(squares, 40_000, 20_000))


def quantiles_invert_masses(predictive: RegressionPredictive, generator: torch.Generator) -> None:
    masses = torch.rand(predictive.mean.shape, generator=generator)
    assert_close(predictive.cdf(predictive.quantile(masses)), masses)
    for mass in (1e-4, 0.5, 0.99):
        found = predictive.cdf(predictive.quantile(mass))
        assert_close(found, torch.full_like(found, mass), rtol=1e-7, atol=1e-9)
    for level in (0.5, 0.95):
        lower, upper = predictive.interval(level)
        outside = torch.full_like(lower, (1 - level) / 2)
        assert_close(predictive.cdf(lower), outside)
        assert_close(1 - predictive.cdf(upper), outside)
    with pytest.raises(ValueError, match="between 0 and 1"):
        predictive.quantile(1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        predictive.interval(90)


def crps_is_the_integral_of_its_definition(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    target = predictive.sample((), generator)
    count, reach = 2001, 60 * predictive.stddev
    shares = torch.linspace(0, 1, count)
    simpson = torch.where(torch.arange(count) % 2 == 1, 4.0, 2.0)
    simpson[0] = simpson[-1] = 1.0
    weights = simpson / 3 / (count - 1) * 3 * shares**2  # of x = share³: finer near the target
    shares, weights = (t.reshape(-1, *[1] * target.ndim) for t in (shares, weights))
    expected = torch.zeros_like(target)
    for sign in (-1, 1):
        points = target + sign * reach * shares**3
        below = predictive.expand(count).cdf(points)
        squares = (below if sign < 0 else 1 - below).square()
        expected += reach * (weights * squares).sum(0)
    assert_close(predictive.crps(target), expected, rtol=1e-4, atol=1e-6)


def units_change_as_variables_do(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    target = predictive.sample((), generator)
    num_outputs = predictive.num_outputs
    for shape in ((num_outputs,), tuple(target.shape)):
        location = torch.randn(shape, generator=generator)
        scale = torch.randn(shape, generator=generator).exp()
        changed = predictive.affine(location, scale)
        moved = location + scale * target
        volume = scale.log().expand_as(target).sum(-1)
        assert_close(changed.log_prob(moved), predictive.log_prob(target) - volume)
        assert_close(changed.cdf(moved), predictive.cdf(target))
        assert_close(changed.mean, location + scale * predictive.mean)
        assert_close(changed.epistemic_variance, scale.square() * predictive.epistemic_variance)
        assert_close(changed.noise_variance, scale.square() * predictive.noise_variance)
        assert_close(changed.crps(moved), scale * predictive.crps(target), rtol=1e-6, atol=1e-8)


def variances_are_scaled_about_the_mean(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    target = predictive.sample((), generator)
    factor = torch.randn(predictive.num_outputs, generator=generator).exp()
    scaled = predictive.scale_variance(factor)
    assert_close(scaled.mean, predictive.mean)
    assert_close(scaled.variance, factor * predictive.variance)
    assert_close(scaled.epistemic_variance, factor * predictive.epistemic_variance)
    stretched = predictive.mean + factor.sqrt() * (target - predictive.mean)
    assert_close(scaled.cdf(stretched), predictive.cdf(target))
    assert_close(scaled.log_prob(stretched), predictive.log_prob(target) - 0.5 * factor.log().sum())


def mixtures_average_densities(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    mixture: Any = mix(predictive)
    batch = predictive.batch_shape
    target = mixture.sample((), generator)
    each = target.unsqueeze(-2).expand_as(predictive.mean)
    assert mixture.batch_shape == batch[:-1]
    assert_close(mixture.log_prob(target).exp(), predictive.log_prob(each).exp().mean(-1))
    assert_close(mixture.cdf(target), predictive.cdf(each).mean(-2))
    nested = mix(mix(predictive.expand(4).map(lambda tensor: tensor.movedim(0, 1))))
    assert_close(nested.log_prob(target), mixture.log_prob(target))
    for check in (
        moments_and_masses_are_those_of_samples,
        quantiles_invert_masses,
        crps_is_the_integral_of_its_definition,
        units_change_as_variables_do,
        variances_are_scaled_about_the_mean,
    ):
        check(mixture, generator)


def regression_is_calibrated_covered_and_measured(
    predictive: RegressionPredictive, generator: torch.Generator
) -> None:
    one = predictive[0, 0]
    inputs, num_outputs = torch.zeros(COUNT, 1), one.num_outputs
    target = one.scale_variance(torch.full((num_outputs,), 4.0)).sample((COUNT,), generator)
    model, data = Same(one), (inputs, target)

    scaling = VarianceScaling(num_outputs).double().fit(model, data, progress=False)
    squares = scaling(one.expand(COUNT)).standardized_squares(target).flatten(1).sum(-1)
    assert_close(squares.mean().item(), float(num_outputs))
    default = default_scaling(one)
    assert type(default).__name__ == one.scalings[0]
    default.fit(model, data, progress=False)
    found = metrics.evaluate(model, data, progress=False)
    calibrated = metrics.evaluate(Calibrated(model, default), data, progress=False)
    assert calibrated["nll"] < found["nll"]
    with pytest.raises(TypeError, match="scale regression by"):
        TemperatureScaling()(one)

    repeated = one.expand(COUNT)
    assert_close(found["nll"], -repeated.log_prob(target).mean().item())
    assert_close(found["rmse"], (target - one.mean).square().mean().sqrt().item())
    assert_close(found["crps"], repeated.crps(target).mean().item(), rtol=1e-6, atol=0)
    lower, upper = one.interval(0.9)
    covered = ((lower <= target) & (target <= upper)).double().mean().item()
    assert_close(found["coverage_0.9"], covered)

    intervals = ConformalIntervals(num_outputs).fit(model, data, progress=False)
    lower, upper = intervals(model(inputs))
    assert (((lower <= target) & (target <= upper)).double().mean(0) >= 0.9).all()
    with pytest.raises(TypeError, match="use ConformalIntervals"):
        ConformalSets()(one)
    with pytest.raises(TypeError, match="of classification"):
        ood.max_probability(one)


# --------------------------------------------------------------------------- classification


def probabilities_are_those_of_the_distribution(
    predictive: ClassificationPredictive, generator: torch.Generator
) -> None:
    label = predictive.sample((), generator)
    known: Any = predictive.distribution()
    assert label.shape == predictive.batch_shape
    assert predictive.log_probs().shape == (*predictive.batch_shape, predictive.num_classes)
    assert_close(predictive.probs().sum(-1), torch.ones(predictive.batch_shape))
    assert_close(predictive.log_probs().exp(), predictive.probs())
    assert_close(predictive.log_prob(label), known.log_prob(label))
    assert_close(predictive.entropy(), known.entropy())
    assert (predictive.mode == known.probs.argmax(-1)).all()

    def counts(count: int) -> Tensor:
        drawn = predictive.sample((count,), generator)
        return torch.nn.functional.one_hot(drawn, predictive.num_classes).to(known.probs)

    assert_within_standard_errors(predictive.probs(), *sampled(counts, 40_000, 20_000))


def temperature_one_changes_nothing_and_more_makes_less_sure(
    predictive: ClassificationPredictive, generator: torch.Generator
) -> None:
    assert_close(predictive.temper(torch.tensor(1.0)).probs(), predictive.probs())
    warm = predictive.temper(torch.tensor(3.0))
    assert (warm.entropy() > predictive.entropy()).all()
    hot = predictive.temper(torch.tensor(1e6)).probs()
    assert_close(hot, torch.full_like(hot, 1 / predictive.num_classes), rtol=0, atol=1e-3)
    unit = torch.ones(predictive.num_classes)
    assert_close(predictive.affine(unit, 2 * unit).probs(), predictive.probs())


def mixtures_average_probabilities(
    predictive: ClassificationPredictive, generator: torch.Generator
) -> None:
    mixture: Any = mix(predictive)
    assert mixture.batch_shape == predictive.batch_shape[:-1]
    assert mixture.num_classes == predictive.num_classes
    assert_close(mixture.probs(), predictive.probs().mean(-2))
    nested: Any = mix(mix(predictive.expand(4).map(lambda tensor: tensor.movedim(0, 1))))
    assert_close(nested.probs(), mixture.probs())
    probabilities_are_those_of_the_distribution(mixture, generator)
    temperature_one_changes_nothing_and_more_makes_less_sure(mixture, generator)


def classification_is_calibrated_covered_and_measured(
    predictive: ClassificationPredictive, generator: torch.Generator
) -> None:
    one = predictive[0, 0]
    label = one.temper(torch.tensor(2.5)).sample((COUNT,), generator)
    inputs = torch.zeros(COUNT, 1)
    model, data = Same(one), (inputs, label)
    scaling = TemperatureScaling().fit(model, data, progress=False)
    found = metrics.evaluate(model, data, progress=False)
    calibrated = metrics.evaluate(Calibrated(model, scaling), data, progress=False)
    assert calibrated["nll"] < found["nll"]
    assert type(default_scaling(one)).__name__ == one.scalings[0]
    with pytest.raises(TypeError, match="scale classification by"):
        VarianceScaling()(one)

    repeated = one.expand(COUNT)
    assert_close(found["nll"], -repeated.log_prob(label).mean().item())
    assert_close(found["accuracy"], (repeated.mode == label).double().mean().item())
    assert_close(found["brier"], metrics.brier_score(repeated.probs(), label).mean().item())

    sets = ConformalSets(level=0.8).fit(model, data, progress=False)
    assert sets(model(inputs)).gather(-1, label.unsqueeze(-1)).double().mean() >= 0.8
    with pytest.raises(TypeError, match="use ConformalSets"):
        ConformalIntervals()(one)
    assert_close(ood.max_probability(one), 1 - one.probs().amax(-1))


Check = Callable[[Any, torch.Generator], None]
BOTH: tuple[Check, ...] = (
    tensors_are_indexed_moved_and_passed_through_pytrees,
    scores_are_finite_or_refused,
)
REGRESSION: tuple[Check, ...] = (
    *BOTH,
    density_is_that_of_the_distribution,
    moments_and_masses_are_those_of_samples,
    quantiles_invert_masses,
    crps_is_the_integral_of_its_definition,
    units_change_as_variables_do,
    variances_are_scaled_about_the_mean,
    mixtures_average_densities,
    regression_is_calibrated_covered_and_measured,
)
CLASSIFICATION: tuple[Check, ...] = (
    *BOTH,
    probabilities_are_those_of_the_distribution,
    temperature_one_changes_nothing_and_more_makes_less_sure,
    mixtures_average_probabilities,
    classification_is_calibrated_covered_and_measured,
)


def check_regression(predictive: RegressionPredictive, generator: torch.Generator) -> None:
    """Run every check of a regression predictive of batch shape (B, S)."""
    for check in REGRESSION:
        check(predictive, generator)


def check_classification(predictive: ClassificationPredictive, generator: torch.Generator) -> None:
    """Run every check of a classification predictive of batch shape (B, S)."""
    for check in CLASSIFICATION:
        check(predictive, generator)
