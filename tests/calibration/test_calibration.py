"""Fitted scalings are compared with known temperatures, grids and closed forms."""

import math
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer.calibration import Calibrated, TemperatureScaling, VarianceScaling, predictions
from lastlayer.predictive import (
    DiscriminativePredictive,
    GaussianPredictive,
    GenerativePredictive,
    MultivariateGaussianPredictive,
)

COUNT, NUM_CLASSES = 400, 3


class Table(nn.Module):
    """A model that knows its predictions: inputs are row numbers."""

    def __init__(self, predictive: Any) -> None:
        super().__init__()
        self.predictive = predictive

    def forward(self, rows: Tensor) -> Any:
        return self.predictive[rows]


def make_classifier(kind: str, generator: torch.Generator) -> Any:
    def normal(*shape: int) -> Tensor:
        return torch.randn(COUNT, *shape, NUM_CLASSES, generator=generator)

    if kind == "discriminative":
        return DiscriminativePredictive(3 * normal(), normal().square(), 0.2 * normal().square())
    if kind == "generative":
        joint = 5 * normal() - 100
        return GenerativePredictive(joint, joint - normal().square())
    components = DiscriminativePredictive(3 * normal(4), normal(4).square(), normal(4).square())
    return ll.predictive.mix(components)


def tempered_probs(predictive: Any, temperature: float) -> Tensor:
    """Probabilities at a temperature, from the definition: softmax(z/τ), averaged."""
    if hasattr(predictive, "components"):
        return tempered_probs(predictive.components, temperature).mean(-2)
    if isinstance(predictive, GenerativePredictive):
        powers = predictive.probs() ** (1 / temperature)
        return powers / powers.sum(-1, keepdim=True)
    return DiscriminativePredictive(
        predictive.logit_mean / temperature,
        predictive.epistemic_variance / temperature**2,
        predictive.noise_variance / temperature**2,
    ).probs()


def nll(predictive: Any, labels: Tensor, temperature: float) -> float:
    probs = tempered_probs(predictive, temperature)
    return -float(probs.gather(-1, labels[:, None]).log().mean())


KINDS = ["discriminative", "generative", "mixture"]

# ------------------------------------------------------------------------------- temperature


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_probabilities_are_those_at_the_temperature(kind, generator):
    predictive = make_classifier(kind, generator)
    scaled = TemperatureScaling(1.7)(predictive)
    assert type(scaled) is type(predictive)
    assert_close(scaled.probs(), tempered_probs(predictive, 1.7))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_fitted_temperature_is_where_the_likelihood_is_flat_and_largest(kind, generator):
    predictive = make_classifier(kind, generator)
    labels = tempered_probs(predictive, 2.5).multinomial(1, generator=generator).squeeze(-1)
    scaling = TemperatureScaling(prior_stddev=math.inf)
    scaling.fit(Table(predictive), (torch.arange(COUNT), labels))
    found, step = float(scaling.temperature), 1e-3
    ahead, behind = (nll(predictive, labels, found * math.exp(s)) for s in (step, -step))
    # differences of the quadrature, whose nodes move with τ, are themselves good to about 1e-7
    assert abs(ahead - behind) / (2 * step) < 1e-6
    grid = torch.logspace(-1.5, 1.5, 61).tolist()
    assert nll(predictive, labels, found) <= min(nll(predictive, labels, t) for t in grid)


def test_the_temperature_is_the_same_in_parts(generator, monkeypatch):
    predictive = make_classifier("discriminative", generator)
    data = (torch.arange(COUNT), torch.randint(2, (COUNT,), generator=generator))
    whole = TemperatureScaling().fit(Table(predictive), data).temperature
    monkeypatch.setattr("lastlayer.calibration.temperature.LARGEST_GRAPH", COUNT // 3)
    assert_close(TemperatureScaling().fit(Table(predictive), data).temperature, whole)


@pytest.mark.parametrize("truth", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_recovered_within_standard_errors(truth, generator):
    logits = 4 * torch.randn(20_000, NUM_CLASSES, generator=generator)
    predictive = GenerativePredictive(logits, logits)
    labels = tempered_probs(predictive, truth).multinomial(1, generator=generator).squeeze(-1)
    rows = torch.arange(len(labels))
    found = float(TemperatureScaling().fit(Table(predictive), (rows, labels)).temperature)
    # Fisher information about 1/τ: the variance of the logits under the true probabilities
    probs = tempered_probs(predictive, truth)
    variance = (probs * logits**2).sum(-1) - (probs * logits).sum(-1) ** 2
    error = truth**2 / float(variance.sum()) ** 0.5
    assert abs(found - truth) < 4 * error
    assert error < 0.05 * truth


def test_the_density_of_the_features_and_impossible_classes_keep_their_place(generator):
    joint = torch.randn(6, 3, generator=generator)
    joint[:, 1] = -math.inf
    predictive = GenerativePredictive(joint, joint - 0.1)
    scaled = TemperatureScaling(3.0)(predictive)
    assert_close(scaled.log_density(), predictive.log_density())
    assert (scaled.probs()[:, 1] == 0).all()
    assert scaled.mutual_information().isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_temperature_of_one_changes_nothing(kind, generator):
    predictive = make_classifier(kind, generator)
    scaled = TemperatureScaling()(predictive)
    assert_close(scaled.log_probs(), predictive.log_probs())
    assert_close(scaled.mutual_information(), predictive.mutual_information())


def test_temperature_stays_within_its_bounds_where_the_likelihood_has_no_maximum():
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    table = Table(GenerativePredictive(logits, logits))
    rows = torch.arange(2)
    for labels, bound in (([0, 1], 0.01), ([1, 0], 100.0)):
        scaling = TemperatureScaling(prior_stddev=math.inf)
        scaling.fit(table, (rows, torch.tensor(labels)))
        assert_close(scaling.temperature.item(), bound)


@pytest.mark.parametrize("labels", [[0, 1], [1, 0]])
@pytest.mark.parametrize("prior_stddev", [0.3, 2.0])
def test_with_few_labels_the_temperature_is_the_mode_of_its_posterior(labels, prior_stddev):
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    table = Table(GenerativePredictive(logits, logits))
    scaling = TemperatureScaling(prior_stddev=prior_stddev)
    scaling.fit(table, (torch.arange(2), torch.tensor(labels)))
    grid = torch.linspace(-4.6, 4.6, 92_001)
    margin = torch.tensor([2.0, 3.0]) * (1 if labels == [0, 1] else -1)
    log_likelihood = torch.sigmoid(margin / grid.exp()[:, None]).log().sum(-1)
    log_prior = torch.distributions.Normal(0.0, prior_stddev).log_prob(grid)
    mode = grid[(log_likelihood + log_prior).argmax()]
    assert_close(scaling.temperature.log(), mode, rtol=0, atol=1e-4)


@pytest.mark.parametrize("prior_stddev", [0.0, -1.0, math.nan])
def test_a_prior_of_the_temperature_without_width_is_refused(prior_stddev):
    with pytest.raises(ValueError, match=r"math\.inf is no prior"):
        TemperatureScaling(prior_stddev=prior_stddev)


def test_temperature_stays_where_it_does_not_matter():
    table = Table(GenerativePredictive(torch.zeros(2, 3), torch.zeros(2, 3)))
    scaling = TemperatureScaling(7.0).fit(table, (torch.arange(2), torch.tensor([0, 2])))
    assert scaling.temperature == 1


def test_weights_count_as_repeats_and_zero_ignores_a_label(generator):
    predictive = make_classifier("discriminative", generator)
    labels = torch.randint(NUM_CLASSES, (COUNT,), generator=generator)
    weight = torch.randint(3, (COUNT,), generator=generator)
    rows = torch.arange(COUNT)
    repeated = (rows.repeat_interleave(weight), labels.repeat_interleave(weight))
    weighted = (rows, labels.where(weight > 0, -100), weight.double())
    expected, found = (
        TemperatureScaling().fit(Table(predictive), data) for data in (repeated, weighted)
    )
    assert_close(found.temperature, expected.temperature)


def test_fitting_in_single_precision_agrees_with_double(generator):
    predictive = make_classifier("discriminative", generator)
    labels = predictive.sample(generator=generator)
    data = (torch.arange(COUNT), labels)
    double = TemperatureScaling().fit(Table(predictive), data)
    single = TemperatureScaling().fit(Table(predictive.to(torch.float32)), data)
    assert_close(single.temperature, double.temperature, rtol=1e-5, atol=0)
    assert single(predictive.to(torch.float32)).logit_mean.dtype == torch.float32


# ---------------------------------------------------------------------------------- variance


def make_regression(generator: torch.Generator, num_outputs: int = 2) -> GaussianPredictive:
    shape = (COUNT, num_outputs)
    return GaussianPredictive(
        torch.randn(shape, generator=generator),
        torch.rand(shape, generator=generator) + 0.1,
        torch.rand(shape, generator=generator) + 0.1,
    )


def test_scaled_variances_have_their_factor_per_output_and_the_mean_stays(generator):
    predictive = make_regression(generator)
    scaling = VarianceScaling(2)
    scaling.variance_scale.copy_(torch.tensor([4.0, 0.5]))
    scaled = scaling(predictive)
    assert_close(scaled.mean, predictive.mean)
    assert_close(scaled.variance, predictive.variance * torch.tensor([4.0, 0.5]))
    ratio = predictive.epistemic_variance / predictive.noise_variance
    assert_close(scaled.epistemic_variance / scaled.noise_variance, ratio)


def test_fitted_factors_beat_a_grid_around_them(generator):
    predictive = make_regression(generator)
    factors = torch.tensor([3.0, 0.2])
    target = predictive.mean + (factors * predictive.variance).sqrt() * torch.randn(
        COUNT, 2, generator=generator
    )
    data = TensorDataset(torch.arange(COUNT), target)
    scaling = VarianceScaling(2).fit(Table(predictive), DataLoader(data, batch_size=64))
    assert ((scaling.variance_scale / factors).log().abs() < 4 * (2 / COUNT) ** 0.5).all()
    best = float(scaling(predictive).log_prob(target).mean())
    for first in (0.98, 1.0, 1.02):
        for second in (0.98, 1.0, 1.02):
            other = VarianceScaling(2)
            other.variance_scale.copy_(scaling.variance_scale * torch.tensor([first, second]))
            if (first, second) != (1.0, 1.0):
                assert float(other(predictive).log_prob(target).mean()) < best


def test_factors_of_correlated_outputs_maximise_the_joint_likelihood(generator):
    factor = torch.randn(COUNT, 3, 3, generator=generator) + 2 * torch.eye(3)
    covariance = factor @ factor.mT
    predictive = MultivariateGaussianPredictive(
        torch.randn(COUNT, 3, generator=generator), 0.3 * covariance, 0.7 * covariance
    )
    stretch = torch.tensor([2.0, 1.0, 0.3])
    target = predictive.mean + stretch * (predictive.sample(generator=generator) - predictive.mean)
    scaling = VarianceScaling(3).fit(Table(predictive), (torch.arange(COUNT), target))
    assert ((scaling.variance_scale.sqrt() / stretch).log().abs() < 0.15).all()
    # the likelihood, written with explicit matrices, is flat in every factor
    log_scale = scaling.variance_scale.log().requires_grad_()
    root = (0.5 * log_scale).exp().diag()
    normal = torch.distributions.MultivariateNormal(predictive.mean, root @ covariance @ root)
    (slope,) = torch.autograd.grad(normal.log_prob(target).mean(), log_scale)
    assert_close(slope, torch.zeros(3), rtol=0, atol=1e-10)
    assert_close(scaling(predictive).covariance, (root @ covariance @ root).detach())


def test_independent_outputs_have_the_same_factors_either_way(generator):
    predictive = make_regression(generator)
    dense = MultivariateGaussianPredictive(
        predictive.mean, predictive.epistemic_covariance, predictive.noise_covariance
    )
    data = (torch.arange(COUNT), torch.randn(COUNT, 2, generator=generator))
    closed, iterated = (VarianceScaling(2).fit(Table(p), data) for p in (predictive, dense))
    assert_close(iterated.variance_scale, closed.variance_scale)


def test_a_mixture_is_stretched_about_its_mean_to_the_variance_of_the_targets(generator):
    components = GaussianPredictive(
        *(torch.rand(3, COUNT, 5, 2, generator=generator) + 0.1).unbind()
    )
    predictive: Any = ll.predictive.mix(components)
    target = 3 * torch.randn(COUNT, 2, generator=generator)
    scaling = VarianceScaling(2).fit(Table(predictive), (torch.arange(COUNT), target))
    scaled = scaling(predictive)
    assert_close(scaled.mean, predictive.mean)
    assert_close(scaled.variance, predictive.variance * scaling.variance_scale)
    standardized = (target - scaled.mean).square() / scaled.variance
    assert_close(standardized.mean(0), torch.ones(2))
    # the shape stays: quantiles are stretched too
    (low, _), (expected, _) = scaled.interval(0.8), predictive.interval(0.8)
    stretched = predictive.mean + scaling.variance_scale.sqrt() * (expected - predictive.mean)
    assert_close(low, stretched)


def test_missing_targets_are_left_out(generator):
    predictive = make_regression(generator)
    target = torch.randn(COUNT, 2, generator=generator)
    weight = torch.ones(COUNT, 2)
    weight[100:, 1] = 0
    rows = torch.arange(COUNT)
    holes = target.where(weight > 0, math.nan)
    found = VarianceScaling(2).fit(Table(predictive), (rows, holes, weight), batch_size=90)
    squares = (target - predictive.mean).square() / predictive.variance
    expected = torch.stack([squares[:, 0].mean(), squares[:100, 1].mean()])
    assert_close(found.variance_scale, expected)


def test_one_output_takes_flat_targets(generator):
    predictive = make_regression(generator, 1)
    target = torch.randn(COUNT, generator=generator)
    scaling = VarianceScaling().fit(Table(predictive), (torch.arange(COUNT), target))
    expected = ((target - predictive.mean[:, 0]).square() / predictive.variance[:, 0]).mean()
    assert_close(scaling.variance_scale, expected[None])


# -------------------------------------------------------------------------------- the model


def test_a_calibrated_model_predicts_better_and_is_otherwise_the_same(generator, tmp_path):
    head = ll.Regression(2, 1, num_data=100)
    model = ll.Network(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), head)
    inputs = torch.randn(50, 2, generator=generator)
    target = 5 * torch.randn(50, generator=generator)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scaling = VarianceScaling().fit(model, (inputs, target))
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert model.training
    calibrated = Calibrated(model, scaling).eval()
    better = calibrated(inputs).log_prob(target).mean()
    assert better > model(inputs).log_prob(target).mean()
    save_file(scaling.state_dict(), tmp_path / "scaling.safetensors")
    loaded = VarianceScaling()
    loaded.load_state_dict(load_file(tmp_path / "scaling.safetensors"))
    assert_close(Calibrated(model, loaded)(inputs).log_prob(target).mean(), better)


def test_predictions_put_the_model_back_even_if_it_fails():
    class Failing(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            assert not self.training
            raise RuntimeError("out of luck")

    model = nn.Sequential(Failing(), nn.Dropout().eval())
    with pytest.raises(RuntimeError, match="out of luck"):
        next(predictions(model, torch.zeros(2, 1)))
    assert [module.training for module in model.modules()] == [True, True, False]


def test_plain_outputs_are_refused_with_what_to_wrap_them_in(generator):
    logits, labels = torch.randn(5, 3, generator=generator), torch.zeros(5, dtype=torch.int64)
    for use in (
        lambda: TemperatureScaling()(logits),
        lambda: TemperatureScaling().fit(nn.Identity(), (logits, labels), progress=False),
    ):
        with pytest.raises(TypeError, match=r"got Tensor; .*lastlayer\.Plain\(model"):
            use()
    with pytest.raises(TypeError, match=r"lastlayer\.SoftmaxPredictive\(logits\)"):
        TemperatureScaling()(logits)
    with pytest.raises(TypeError, match=r"Plain\(model, 'regression'\)"):
        VarianceScaling()(logits)
    regression = Table(make_regression(generator))
    with pytest.raises(TypeError, match="scale regression by VarianceScaling or TailScaling"):
        TemperatureScaling().fit(regression, (torch.arange(5), labels), progress=False)


def test_the_wrong_kind_of_predictive_is_refused(generator):
    regression, classes = make_regression(generator), make_classifier("mixture", generator)
    with pytest.raises(TypeError, match="scale regression by VarianceScaling"):
        TemperatureScaling()(regression)
    with pytest.raises(TypeError, match="scale classification by TemperatureScaling"):
        VarianceScaling()(classes)
    with pytest.raises(ValueError, match="num_outputs=3, got predictions of 2"):
        VarianceScaling(3)(regression)
    with pytest.raises(ValueError, match="temperature must be a finite number above zero"):
        TemperatureScaling(0)


def test_held_out_data_that_cannot_calibrate_is_refused(generator):
    regression = make_regression(generator)
    table, rows = Table(regression), torch.arange(COUNT)
    with pytest.raises(ValueError, match="come with its targets"):
        VarianceScaling(2).fit(table, (rows,))
    with pytest.raises(ValueError, match="at least one example"):
        VarianceScaling(2).fit(table, (rows[:0], torch.zeros(0, 2)))
    with pytest.raises(ValueError, match="differ from their prediction"):
        VarianceScaling(2).fit(table, (rows, regression.mean))
    with pytest.raises(ValueError, match="nothing is broadcast"):
        VarianceScaling(2).fit(table, (rows, torch.zeros(COUNT)))
    with pytest.raises(ValueError, match="differ from their prediction"):
        VarianceScaling(2).fit(table, (rows, torch.full((COUNT, 2), math.nan)))
    logits = torch.full((2, 2), math.nan)
    unknown, data = GenerativePredictive(logits, logits), (torch.arange(2), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="hold NaN"):
        TemperatureScaling().fit(Table(unknown), data)
