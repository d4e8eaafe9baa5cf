"""Coverage of split conformal prediction, given the held-out set, has an exact distribution."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.conformal import ConformalIntervals, ConformalSets, upper_quantile
from lastlayer.predictive import GaussianPredictive, GenerativePredictive
from tests.calibration.test_calibration import Table


def wrong_regression(inputs: Tensor) -> GaussianPredictive:
    """Biased, and with spreads that are too small by a factor that varies."""
    variance = 0.1 + 0.05 * inputs.square()
    return GaussianPredictive(inputs + 0.3, variance, torch.full_like(variance, 0.01))


def wrong_classifier(inputs: Tensor) -> GenerativePredictive:
    """Far too sure of itself."""
    logits = inputs * torch.tensor([3.0, 1.0, -4.0]) + torch.tensor([0.0, 0.5, 1.0])
    return GenerativePredictive(logits, logits)


def true_probs(inputs: Tensor) -> Tensor:
    return (inputs * torch.tensor([1.0, 0.5, -1.0])).softmax(-1)


def assert_beta(coverage: Tensor, count: int, level: float, noise: float = 0.0) -> None:
    """Mean and variance of the coverage are those of Beta(r, n + 1 − r), in standard errors."""
    rank = math.ceil(round((count + 1) * level, 9))
    mean = rank / (count + 1)
    variance = mean * (1 - mean) / (count + 2)
    repeats = len(coverage)
    assert mean >= level
    assert abs(float(coverage.mean()) - mean) < 4 * ((variance + noise) / repeats) ** 0.5
    # the variance of a variance, generously, from the sample's fourth moment
    spread = (coverage - coverage.mean()).square()
    error = float(spread.std()) / repeats**0.5
    assert abs(float(spread.mean()) - variance - noise) < 4 * error


# ----------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("target_dtype", [torch.float32, torch.float64])
def test_as_many_tied_ratings_are_covered_as_the_guarantee_counts(
    normalized, dtype, target_dtype, generator
):
    count, level = 200, 0.9
    for _ in range(50):
        # few different predictions and whole ratings: the threshold is the score of many
        mean = (1 + 4 * torch.rand(3, 1, generator=generator)).to(dtype)
        variance = torch.rand(3, 1, generator=generator).to(dtype)
        group = torch.randint(3, (count,), generator=generator)
        rating = torch.randint(1, 6, (count, 1), generator=generator).to(target_dtype)
        model = Table(GaussianPredictive(mean, torch.zeros_like(mean), variance))
        intervals = ConformalIntervals(level=level, normalized=normalized)
        intervals.fit(model, (group, rating), progress=False)
        lower, upper = intervals(model(group))
        covered = (lower <= rating) & (rating <= upper)
        assert int(covered.sum()) >= math.ceil((count + 1) * level)


def test_an_interval_is_no_wider_than_rounding_asks_for(generator):
    predictive = GaussianPredictive(*torch.rand(3, 100, 1, generator=generator).float())
    intervals = ConformalIntervals()
    intervals.threshold.fill_(1.5)
    lower, upper = intervals(predictive)
    width = 1.5 * predictive.stddev
    assert_close(lower, predictive.mean - width, rtol=0, atol=3e-6)
    assert_close(upper, predictive.mean + width, rtol=0, atol=3e-6)


# --------------------------------------------------------------------------------- guarantee


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("count", "level"), [(19, 0.9), (12, 0.7)])
def test_coverage_of_intervals_is_beta_distributed(normalized, count, level, generator):
    repeats, fresh = 600, torch.randn(4000, 1, generator=generator)
    coverage = []
    for _ in range(repeats):
        inputs = torch.randn(count, 1, generator=generator)
        target = 2 * inputs + torch.randn(count, 1, generator=generator)
        intervals = ConformalIntervals(level=level, normalized=normalized)
        intervals.fit(wrong_regression, (inputs, target))
        lower, upper = intervals(wrong_regression(fresh))
        # exact given the input: the target is N(2x, 1)
        inside = torch.special.ndtr(upper - 2 * fresh) - torch.special.ndtr(lower - 2 * fresh)
        coverage.append(inside.mean())
    assert_beta(torch.stack(coverage), count, level)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["threshold", "adaptive"])
def test_coverage_of_sets_is_beta_distributed(method, generator):
    count, level, repeats = 19, 0.9, 600
    fresh = torch.randn(4000, 1, generator=generator)
    coverage = []
    for _ in range(repeats):
        inputs = torch.randn(count, 1, generator=generator)
        target = true_probs(inputs).multinomial(1, generator=generator).squeeze(-1)
        sets = ConformalSets(level=level, method=method)
        sets.fit(wrong_classifier, (inputs, target), generator=generator)
        chosen = sets(wrong_classifier(fresh), generator)
        coverage.append((chosen * true_probs(fresh)).sum(-1).mean())
    # what the 4000 fresh inputs, and random decisions on them, add to the variance
    assert_beta(torch.stack(coverage), count, level, noise=0.1 / 4000)


def test_sets_that_are_not_random_cover_at_least_as_often(generator):
    repeats, count = 400, 19
    fresh = torch.randn(2000, 1, generator=generator)
    coverage = []
    for _ in range(repeats):
        inputs = torch.randn(count, 1, generator=generator)
        target = true_probs(inputs).multinomial(1, generator=generator).squeeze(-1)
        sets = ConformalSets(method="adaptive", randomized=False)
        sets.fit(wrong_classifier, (inputs, target))
        chosen = sets(wrong_classifier(fresh))
        coverage.append((chosen * true_probs(fresh)).sum(-1).mean())
    values = torch.stack(coverage)
    assert float(values.mean()) > 0.9 - 4 * float(values.std()) / repeats**0.5


# ------------------------------------------------------------------------------- definitions


def test_the_quantile_is_an_order_statistic_per_output():
    scores = torch.stack([torch.arange(10.0), 100 - torch.arange(10.0)], -1)
    assert_close(upper_quantile(scores, 0.8), torch.tensor([8.0, 99.0]))  # the ninth of ten
    assert_close(upper_quantile(scores[:9], 0.07), torch.tensor([0.0, 92.0]))
    assert upper_quantile(torch.arange(99.0), 0.07) == 6  # 100 · 0.07 is a little above 7


def test_intervals_are_multiples_of_the_predicted_spread_or_constant(generator):
    inputs = torch.randn(30, 2, generator=generator)
    target = inputs + torch.randn(30, 2, generator=generator)
    predictive = wrong_regression(inputs)
    error = (target - predictive.mean).abs()
    for normalized, unit in ((True, predictive.stddev), (False, torch.ones(30, 2))):
        intervals = ConformalIntervals(2, level=0.8, normalized=normalized)
        intervals.fit(wrong_regression, (inputs, target), batch_size=7)
        width = (error / unit).sort(0).values[24]  # the 25th of 30, per output
        lower, upper = intervals(predictive)
        assert_close(lower, predictive.mean - width * unit)
        assert_close(upper, predictive.mean + width * unit)
        inside = ((target >= lower - 1e-12) & (target <= upper + 1e-12)).sum(0)
        assert inside.tolist() == [25, 25]


def test_threshold_sets_hold_the_classes_of_large_probability(generator):
    inputs = torch.randn(30, 1, generator=generator)
    target = torch.randint(3, (30,), generator=generator)
    sets = ConformalSets(level=0.5).fit(wrong_classifier, (inputs, target))
    probs = wrong_classifier(inputs).probs()
    limit = probs.gather(-1, target[:, None]).flatten().sort(descending=True).values[15]
    assert torch.equal(sets(wrong_classifier(inputs)), probs >= limit * (1 - 1e-12))


def test_adaptive_sets_add_classes_from_the_likeliest_down():
    log_probs = torch.tensor([[0.2, 0.5, 0.3]]).log()
    predictive = GenerativePredictive(log_probs, log_probs)
    sets = ConformalSets(method="adaptive", randomized=False)
    for limit, members in (
        (0.4, [False, False, False]),
        (0.6, [False, True, False]),
        (0.85, [False, True, True]),
        (1.1, [True, True, True]),
    ):
        sets.threshold.fill_(limit)
        assert sets(predictive)[0].tolist() == members


def test_the_last_class_of_an_adaptive_set_is_in_with_the_right_probability(generator):
    log_probs = torch.tensor([0.2, 0.5, 0.3]).log().expand(20_000, 3)
    sets = ConformalSets(method="adaptive")
    sets.threshold.fill_(0.6)
    share = sets(GenerativePredictive(log_probs, log_probs), generator).double().mean(0)
    # class 2 is in if 0.5 + 0.3 u ≤ 0.6
    expected = torch.tensor([0.0, 1.0, 1 / 3])
    assert ((share - expected).abs() <= 4 * (expected * (1 - expected) / 20_000).sqrt()).all()


def test_random_sets_repeat_with_their_generator(generator):
    inputs = torch.randn(50, 1, generator=generator)
    target = torch.randint(3, (50,), generator=generator)

    def run(seed: int) -> Tensor:
        source = torch.Generator().manual_seed(seed)
        sets = ConformalSets(method="adaptive")
        sets.fit(wrong_classifier, (inputs, target), generator=source)
        return sets(wrong_classifier(inputs), source)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


# ------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("count", [0, 1, 8])
def test_too_few_examples_give_the_trivial_answer(count, generator):
    inputs = torch.randn(count, 1, generator=generator)
    intervals, sets = ConformalIntervals(), ConformalSets()
    if count:  # else as constructed
        intervals.fit(wrong_regression, (inputs, inputs))
        sets.fit(wrong_classifier, (inputs, torch.zeros(count).long()))
    lower, upper = intervals(wrong_regression(torch.zeros(2, 1)))
    assert (lower == -math.inf).all()
    assert (upper == math.inf).all()
    assert sets(wrong_classifier(torch.zeros(2, 1))).all()


def test_nine_examples_are_enough_for_ninety_percent(generator):
    inputs = torch.randn(9, 1, generator=generator)
    intervals = ConformalIntervals().fit(wrong_regression, (inputs, inputs))
    assert intervals.threshold.isfinite().all()


def test_the_score_that_is_the_threshold_is_covered_in_single_precision():
    first = math.exp(-0.7)  # a score of 0.7, which single precision rounds down
    joint = torch.tensor([first, 1 - first]).log().expand(9, 2)
    table, rows = Table(GenerativePredictive(joint, joint)), torch.arange(9)
    sets = ConformalSets().to(torch.float32).fit(table, (rows, torch.zeros(9).long()))
    assert sets(table(rows))[:, 0].all()


def test_a_mixture_has_intervals_and_sets(generator):
    parts = torch.rand(3, 40, 5, 2, generator=generator).unbind()
    predictive: Any = ll.predictive.mix(GaussianPredictive(*parts))
    target = torch.rand(40, 2, generator=generator)
    rows = torch.arange(40)
    intervals = ConformalIntervals(2, level=0.5).fit(Table(predictive), (rows, target))
    expected = ((target - predictive.mean).abs() / predictive.stddev).sort(0).values[20]
    assert_close(intervals.threshold, expected)
    classes = ll.predictive.mix(GenerativePredictive(parts[0], parts[1]))
    labels = torch.randint(2, (40,), generator=generator)
    sets = ConformalSets(level=0.5).fit(Table(classes), (rows, labels))
    assert_close(sets.threshold, (-classes.log_prob(labels)).sort().values[20])


@pytest.mark.parametrize("make", [lambda: ConformalIntervals(2), ConformalSets])
def test_the_state_goes_through_safetensors(make: Callable[[], Any], tmp_path):
    fitted, loaded = make(), make()
    fitted.threshold.fill_(0.7)
    save_file(fitted.state_dict(), tmp_path / "conformal.safetensors")
    loaded.load_state_dict(load_file(tmp_path / "conformal.safetensors"))
    assert torch.equal(loaded.threshold, fitted.threshold)


def test_bad_input_is_refused(generator):
    inputs = torch.randn(20, 1, generator=generator)
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 90"):
        ConformalIntervals(level=90)
    with pytest.raises(ValueError, match="method must be one of"):
        ConformalSets(method="aps")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for classes use ConformalSets"):
        ConformalIntervals().fit(wrong_classifier, (inputs, inputs))
    with pytest.raises(TypeError, match="for regression use ConformalIntervals"):
        ConformalSets().fit(wrong_regression, (inputs, torch.zeros(20).long()))
    with pytest.raises(ValueError, match="num_outputs=1, got a mean of shape"):
        ConformalIntervals()(wrong_regression(torch.zeros(4, 2)))
    with pytest.raises(ValueError, match="have no weights"):
        ConformalIntervals().fit(wrong_regression, (inputs, inputs, torch.ones(20)))
    with pytest.raises(ValueError, match="NaN"):
        ConformalIntervals().fit(wrong_regression, (inputs, inputs * math.nan))
    with pytest.raises(ValueError, match="at least one example"):
        ConformalIntervals().fit(wrong_regression, (inputs[:0], inputs[:0]))
