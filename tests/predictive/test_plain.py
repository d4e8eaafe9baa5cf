"""A user's own softmax or regression is measured, calibrated and scored in one line each."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.testing import assert_close

import lastlayer as ll
from lastlayer import metrics, ood
from lastlayer.calibration import Calibrated, TailScaling, TemperatureScaling, VarianceScaling
from lastlayer.conformal import ConformalIntervals, ConformalSets

COUNT = 500


@pytest.fixture
def classifier(generator: torch.Generator) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Logits twice too large, and data drawn from the right ones."""
    layer = nn.Linear(2, 3).double()
    inputs = 3 * torch.randn(COUNT, 2, generator=generator)
    with torch.no_grad():
        probs = (layer(inputs) / 2).softmax(-1)
    return layer, (inputs, probs.multinomial(1, generator=generator).squeeze(-1))


def test_metrics_of_a_softmax_are_those_of_torch(classifier: Any) -> None:
    model, (inputs, target) = classifier
    found = metrics.evaluate(ll.Plain(model, "classification"), (inputs, target), progress=False)
    logits = model(inputs)
    assert_close(found["nll"], F.cross_entropy(logits, target).item())
    assert_close(found["accuracy"], (logits.argmax(-1) == target).double().mean().item())


def test_the_temperature_of_a_softmax_is_where_its_cross_entropy_is_least(classifier: Any) -> None:
    model, data = classifier
    plain = ll.Plain(model, "classification")
    scaling = TemperatureScaling(prior_stddev=math.inf).fit(plain, data, progress=False)
    log_temperature = scaling.temperature.double().log().requires_grad_()
    F.cross_entropy(model(data[0]).detach() / log_temperature.exp(), data[1]).backward()
    assert abs(float(log_temperature.grad)) < 1e-6  # type: ignore[arg-type]
    calibrated = Calibrated(plain, scaling)(data[0])
    assert_close(calibrated.probs(), (model(data[0]) / scaling.temperature).softmax(-1))


def test_sets_of_a_softmax_cover(classifier: Any) -> None:
    model, (inputs, target) = classifier
    plain = ll.Plain(model, "classification")
    sets = ConformalSets(level=0.8).fit(plain, (inputs, target), progress=False)
    chosen = sets(plain(inputs)).gather(-1, target[:, None])
    assert chosen.double().mean() >= 0.8


def test_scores_of_a_softmax_are_those_of_its_probabilities(classifier: Any) -> None:
    model, (inputs, _) = classifier
    plain, known = ll.Plain(model, "classification"), Categorical(logits=model(inputs))
    scores = {
        name: ood.scores(plain, inputs, name, progress=False)
        for name in ood.SCORES
        if name not in ("feature_density", "mutual_information", "epistemic_variance")
    }
    assert_close(scores["max_probability"], 1 - known.probs.amax(-1))
    assert_close(scores["predictive_entropy"], known.entropy())
    assert_close(scores["energy"], -model(inputs).detach().exp().sum(-1).log())
    for name in ("mutual_information", "epistemic_variance"):  # its weights are certain
        with pytest.raises(TypeError, match=r"of every input is zero.*choose.*'energy'.*posttrain"):
            ood.scores(plain, inputs, name, progress=False)
    with pytest.raises(TypeError, match="GenerativeClassification has"):
        ood.scores(plain, inputs, "feature_density", progress=False)


def test_disagreement_of_an_ensemble_of_softmaxes_is_its_mutual_information(
    generator: torch.Generator,
) -> None:
    logits = torch.randn(7, 5, 3, generator=generator)  # of five members
    ensemble = ll.predictive.mix(ll.SoftmaxPredictive(logits))
    mean = Categorical(probs=logits.softmax(-1).mean(-2))
    assert_close(
        ood.mutual_information(ensemble),
        mean.entropy() - Categorical(logits=logits).entropy().mean(-1),
    )
    centred = logits - logits.mean(-1, keepdim=True)
    assert_close(ood.epistemic_variance(ensemble), centred.var(1, correction=0).sum(-1))


def test_a_plain_regression_is_measured_calibrated_and_covered(generator: torch.Generator) -> None:
    layer = nn.Linear(2, 2).double()
    inputs = torch.randn(COUNT, 2, generator=generator)
    target = layer(inputs).detach() + torch.randn(COUNT, 2, generator=generator)
    plain, data = ll.Plain(layer, "regression", variance=4.0), (inputs, target)
    errors = (layer(inputs) - target).detach().square()
    found = metrics.evaluate(plain, data, progress=False)
    expected = -Normal(layer(inputs), 2.0).log_prob(target).sum(-1).mean()
    assert_close(found["nll"], expected.item())
    assert_close(found["rmse"], errors.mean().sqrt().item())
    scaling = VarianceScaling(2).fit(plain, data, progress=False)
    variance = scaling(plain(inputs)).variance[0].double()
    assert_close(variance, errors.mean(0), rtol=1e-6, atol=0)
    assert TailScaling(2).fit(plain, data, progress=False).variance_scale.shape == (2,)
    lower, upper = ConformalIntervals(2).fit(plain, data, progress=False)(plain(inputs))
    assert (((lower <= target) & (target <= upper)).double().mean(0) >= 0.9).all()
    with pytest.raises(TypeError, match="the mutual information of every input is zero"):
        ood.scores(plain, inputs, "mutual_information", progress=False)


def test_a_model_may_return_means_and_variances(generator: torch.Generator) -> None:
    mean, variance = torch.randn(2, 6, 1, generator=generator)
    plain = ll.Plain(nn.Identity(), "regression")
    target = torch.randn(6, 1, generator=generator)
    found = plain((mean, variance.exp())).log_prob(target)
    assert_close(found, Normal(mean, (variance / 2).exp()).log_prob(target).squeeze(-1))


def test_outputs_that_are_not_plain_are_refused() -> None:
    with pytest.raises(ValueError, match="task must be one of"):
        ll.Plain(nn.Identity(), "clasification")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a tensor of plain outputs.*got dict"):
        ll.Plain(nn.Identity(), "classification")({"logits": torch.zeros(2, 3)})
    with pytest.raises(TypeError, match="a tensor of plain outputs"):
        ll.Plain(nn.Identity(), "classification")(torch.zeros(2, 3).long())
