"""A head and a predictive of a user's own go through everything that the package's own do."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer import metrics, ood
from lastlayer.calibration import Calibrated, TemperatureScaling, VarianceScaling
from lastlayer.conformal import ConformalIntervals, ConformalSets
from lastlayer.predictive import ClassMixturePredictive, RegressionMixturePredictive
from lastlayer.tabular.model import Units
from tests.helpers.predictive_conformance import check_classification, check_regression
from tests.helpers.toys import DirichletHead, DirichletPredictive, LaplaceHead, LaplacePredictive

T, N, K = 240, 3, 2  # examples, inputs, and outputs or classes
TASKS = ("regression", "classification")
QUICK = {"epochs": 30, "learning_rate": 0.02, "batch_size": 60, "progress": False}


def data(task: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(T, N, generator=generator)
    signal = inputs[:, :K] + inputs[:, 1:] ** 2
    if task == "regression":
        return inputs, signal + 0.3 * torch.randn(T, K, generator=generator)
    return inputs, (2 * signal).softmax(-1).multinomial(1, generator=generator).squeeze(-1)


def network(task: str, *, variational: bool = False) -> ll.Network:
    backbone = nn.Sequential(nn.Linear(N, 16), nn.ELU())
    head = LaplaceHead if task == "regression" else DirichletHead
    return ll.Network(
        ll.make_variational(backbone) if variational else backbone,
        head(16, K, num_data=T, bias=True),
    )


def fitted(task: str, generator: torch.Generator) -> ll.Network:
    model = network(task)
    ll.fit(model, data(task, generator), **QUICK)  # type: ignore[arg-type]
    return model


@pytest.mark.parametrize("task", TASKS)
def test_it_is_trained_logged_saved_and_loaded(task, generator, tmp_path):
    model, train = network(task), data(task, generator)
    before = model(*train).item()
    history = ll.fit(model, train, **QUICK)  # type: ignore[arg-type]
    assert model(*train).item() < before - 0.1
    assert history[-1]["loss"] < history[0]["loss"]
    elbo = model.elbo(*train)
    assert_close(-elbo.bound + elbo.kl / T, model(*train))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again = network(task)
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    expected = LaplacePredictive if task == "regression" else DirichletPredictive
    assert type(again(train[0])) is expected
    assert_close(again(train[0]).log_prob(train[1]), model(train[0]).log_prob(train[1]))


@pytest.mark.parametrize("task", TASKS)
def test_many_are_trained_as_each_would_be_alone(task, generator):
    train = data(task, generator)
    torch.manual_seed(0)
    models = [network(task) for _ in range(2)]
    torch.manual_seed(0)
    alone = [network(task) for _ in range(2)]
    ll.fit_many(models, [train, train], seeds=[3, 4], **QUICK)  # type: ignore[arg-type]
    for model, other, seed in zip(models, alone, (3, 4), strict=True):
        ll.fit(other, train, seed=seed, **QUICK)  # type: ignore[arg-type]
        assert_close(model(train[0]).log_prob(train[1]), other(train[0]).log_prob(train[1]))


@pytest.mark.parametrize("task", TASKS)
def test_it_is_cross_validated_with_the_calibration_that_its_predictive_names(task, generator):
    train = data(task, generator)
    found = ll.crossfit(
        lambda tensors: network(task), train, num_folds=2, epochs=16, shortest=16,
        weight_decays=(30.0,), progress=False,
    )  # fmt: skip
    assert type(found.scaling) is (VarianceScaling if task == "regression" else TemperatureScaling)
    predictive, (_, target, *_) = found.held_out()
    assert len(predictive) == len(target) == T
    nll = -found.scaling(predictive).log_prob(target).mean().item()
    assert_close(found.tried[0]["nll"], nll, rtol=1e-5, atol=0)


@pytest.mark.parametrize("task", TASKS)
def test_it_is_measured_calibrated_covered_and_scored(task, generator):
    model, (inputs, target) = fitted(task, generator), data(task, generator)
    regression = task == "regression"
    predictive = model(inputs)
    found = metrics.evaluate(model, (inputs, target), progress=False)
    assert_close(found["nll"], -predictive.log_prob(target).mean().item())
    scaling = VarianceScaling(K) if regression else TemperatureScaling()
    scaling.fit(model, (inputs, target), progress=False)
    calibrated = metrics.evaluate(Calibrated(model, scaling), (inputs, target), progress=False)
    assert calibrated["nll"] <= found["nll"] + 0.05
    if regression:
        lower, upper = ConformalIntervals(K).fit(model, (inputs, target), progress=False)(
            predictive
        )
        assert (((lower <= target) & (target <= upper)).double().mean(0) >= 0.9).all()
    else:
        sets = ConformalSets().fit(model, (inputs, target), progress=False)(predictive)
        assert sets.gather(-1, target[:, None]).double().mean() >= 0.9
    inside = ood.scores(model, inputs, progress=False)
    assert_close(inside, predictive.entropy())
    density = ood.FeatureDensity.from_model(model, (inputs, target), progress=False)
    assert density.num_classes == (1 if regression else K)
    near, far = (
        ood.scores(model.backbone, x, density, progress=False) for x in (inputs, 50 * inputs)
    )
    assert metrics.ood(near, far)["auroc"] > 0.95


@pytest.mark.parametrize("task", TASKS)
def test_its_predictives_pass_the_conformance_suite(task, generator):
    model = fitted(task, generator).requires_grad_(False)
    predictive = model(torch.randn(3, 2, N, generator=generator))
    check = check_regression if task == "regression" else check_classification
    check(predictive, generator)


@pytest.mark.parametrize("task", TASKS)
def test_it_predicts_mixtures_over_variational_features(task, generator):
    model, (inputs, target) = network(task, variational=True), data(task, generator)
    ll.fit(model, (inputs, target), **QUICK)  # type: ignore[arg-type]
    mixture = model.predict(inputs, num_samples=4, generator=generator)
    regression = task == "regression"
    assert type(mixture) is (RegressionMixturePredictive if regression else ClassMixturePredictive)
    found = metrics.evaluate(model, (inputs[:40], target[:40]), progress=False)
    assert found["nll"] < 5
    assert mixture.components.batch_shape == (T, 4)


@pytest.mark.parametrize("task", TASKS)
def test_its_predictions_change_to_the_units_of_a_table(task, generator):
    model, (inputs, target) = fitted(task, generator), data(task, generator)
    units = Units(K)
    units.location.copy_(torch.tensor([5e4, -3.0]))
    units.scale.copy_(torch.tensor([1000.0, 0.1]))
    predictive = model(inputs)
    changed = units(predictive)
    if task == "classification":
        assert_close(changed.probs(), predictive.probs())
        return
    volume = units.scale.log().sum()
    moved = units.restore(target)
    assert_close(changed.log_prob(moved), predictive.log_prob(target) - volume)
    assert_close(changed.interval(0.9)[0], units.restore(predictive.interval(0.9)[0]))
