"""Heavier tails: the fitted factor and spread, and the mixture they give."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.calibration import Calibrated, TailScaling, VarianceScaling
from lastlayer.predictive import GaussianPredictive

COUNT = 500


class Table(nn.Module):
    """A model that knows its predictions: inputs are row numbers."""

    def __init__(self, predictive: GaussianPredictive) -> None:
        super().__init__()
        self.predictive = predictive

    def forward(self, rows: Tensor) -> GaussianPredictive:
        return self.predictive[rows]


def table(generator: torch.Generator, num_outputs: int = 1) -> tuple[Table, Tensor]:
    """Predictions with different means and variances, and the numbers of their rows."""
    mean, log_variance = torch.randn(2, COUNT, num_outputs, generator=generator)
    variance = log_variance.exp()
    return Table(GaussianPredictive(mean, 0.3 * variance, 0.7 * variance)), torch.arange(COUNT)


def heavy_targets(model: Table, generator: torch.Generator) -> Tensor:
    """Targets whose errors are Student with three degrees of freedom, three times as wide."""
    predictive = model.predictive
    shape = predictive.mean.shape
    chi = torch.randn(3, *shape, generator=generator).square().mean(0)
    noise = torch.randn(shape, generator=generator) / chi.sqrt()
    return predictive.mean + 3 * predictive.stddev * noise


def nll(scaling: nn.Module, model: Table, rows: Tensor, target: Tensor) -> float:
    return -scaling(model(rows)).log_prob(target).mean().item()


def test_the_predictive_is_the_mixture_over_log_normal_factors(generator):
    model, rows = table(generator)
    scaling = TailScaling(num_components=5)
    scaling.variance_scale.fill_(2.0)
    scaling.log_variance_spread.fill_(0.7)
    target = heavy_targets(model, generator)
    shares = (torch.arange(5) + 0.5) / 5
    factors = 2.0 * (0.7 * Normal(0.0, 1.0).icdf(shares)).exp()
    stddev = (model.predictive.variance * factors).sqrt()  # (T, 5)
    expected = MixtureSameFamily(
        Categorical(torch.ones(COUNT, 5)), Normal(model.predictive.mean.expand(-1, 5), stddev)
    )
    predictive = scaling(model(rows))
    assert_close(predictive.log_prob(target), expected.log_prob(target.squeeze(-1)))
    assert_close(predictive.variance, expected.variance.unsqueeze(-1))
    share = predictive.noise_variance / predictive.variance
    assert_close(share, torch.full_like(share, 0.7))


def test_many_components_have_the_variance_of_a_log_normal_factor(generator):
    model, rows = table(generator)
    scaling = TailScaling(num_components=20_000)
    scaling.log_variance_spread.fill_(0.5)
    expected = math.exp(0.5**2 / 2) * model.predictive.variance[:5]
    assert_close(scaling(model(rows[:5])).variance, expected, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_nothing_around_the_fitted_factor_and_spread_is_likelier(generator, num_outputs):
    model, rows = table(generator, num_outputs)
    target = heavy_targets(model, generator)
    scaling = TailScaling(num_outputs).fit(model, (rows, target), progress=False)
    best = nll(scaling, model, rows, target)
    assert scaling.log_variance_spread > 0.5
    for change in (0.99, 1.01):
        for parameter in (scaling.log_variance_spread, *scaling.variance_scale):
            parameter.mul_(change)
            assert nll(scaling, model, rows, target) > best
            parameter.div_(change)


def test_heavy_tails_are_likelier_on_new_data_than_a_gaussian_of_the_same_scaling(generator):
    model, rows = table(generator)
    held_out, new = heavy_targets(model, generator), heavy_targets(model, generator)
    tails = TailScaling().fit(model, (rows, held_out), progress=False)
    gaussian = VarianceScaling().fit(model, (rows, held_out), progress=False)
    assert nll(tails, model, rows, new) < nll(gaussian, model, rows, new) - 0.1


def test_light_tails_give_the_gaussian_of_variance_scaling(generator):
    model, rows = table(generator)
    predictive = model.predictive
    signs = torch.randint(2, (COUNT, 1), generator=generator) * 2 - 1
    target = predictive.mean + 1.5 * predictive.stddev * signs
    tails = TailScaling().fit(model, (rows, target), progress=False)
    gaussian = VarianceScaling().fit(model, (rows, target), progress=False)
    assert tails.log_variance_spread == 0
    assert_close(tails.variance_scale, gaussian.variance_scale)
    assert_close(tails(model(rows)).log_prob(target), gaussian(model(rows)).log_prob(target))


def test_weights_count_examples_and_zero_hides_nan(generator):
    model, rows = table(generator)
    target = heavy_targets(model, generator)
    weight = torch.randint(1, 4, (COUNT,), generator=generator)
    weight[0] = 0
    repeated = torch.repeat_interleave(rows, weight)
    one = TailScaling().fit(model, (repeated, target[repeated]), progress=False)
    target[0] = math.nan
    two = TailScaling().fit(model, (rows, target, weight.double()), batch_size=64, progress=False)
    assert_close(two.variance_scale, one.variance_scale, rtol=1e-6, atol=0.0)
    assert_close(two.log_variance_spread, one.log_variance_spread, rtol=1e-6, atol=0.0)


def test_a_calibrated_model_saves_its_tails(generator):
    model, rows = table(generator)
    scaling = TailScaling().fit(model, (rows, heavy_targets(model, generator)), progress=False)
    copy = TailScaling()
    copy.load_state_dict(scaling.state_dict())
    lower, upper = Calibrated(model, copy)(rows).interval(0.9)
    expected = scaling(model(rows)).interval(0.9)
    assert_close(lower, expected[0])
    assert_close(upper, expected[1])


def test_what_cannot_be_scaled_is_refused(generator):
    model, rows = table(generator, 2)
    target = heavy_targets(model, generator)
    with pytest.raises(ValueError, match="construct TailScaling with their number"):
        TailScaling().fit(model, (rows, target), progress=False)
    with pytest.raises(ValueError, match="one weight per example"):
        TailScaling(2).fit(model, (rows, target, torch.ones(COUNT, 2)), progress=False)
    with pytest.raises(ValueError, match="mean squared standardised errors"):
        TailScaling(2).fit(model, (rows, target * math.nan), progress=False)
    with pytest.raises(ValueError, match="mean squared standardised errors"):
        TailScaling(2).fit(model, (rows, model.predictive.mean), progress=False)
    with pytest.raises(TypeError, match="does not apply to GaussianMixture"):
        TailScaling(2)(ll.predictive.mix(model.predictive))
    with pytest.raises(ValueError, match="num_components"):
        TailScaling(num_components=1)
