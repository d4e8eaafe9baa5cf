"""The Gaussian process against the textbook."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from tests.helpers.tasks import conditioned, large_task, perturbed

gp = pytest.importorskip("experiments.baselines.gp")


def rbf_prior(model: nn.Module, inputs: Tensor) -> tuple[MultivariateNormal, Tensor]:
    """N(c, a exp(−‖x − x'‖²/2l²) + σ²I), and σ²."""
    named = dict(model.named_parameters())

    def positive(name: str, least: float = 0.0) -> Tensor:
        (value,) = (value for key, value in named.items() if key.endswith(name))
        return nn.functional.softplus(value.detach()) + least

    (mean,) = (value.detach() for key, value in named.items() if key.endswith("raw_constant"))
    noise = positive("raw_noise", 1e-4)
    scaled = inputs / positive("raw_lengthscale")
    kernel = (-0.5 * (scaled.unsqueeze(0) - scaled.unsqueeze(1)).square().sum(-1)).exp()
    covariance = positive("raw_outputscale") * kernel + noise * torch.eye(len(inputs))
    return MultivariateNormal(mean.expand(len(inputs)), covariance), noise


@pytest.mark.parametrize("ard", [False, True])
def test_gaussian_process_is_that_of_the_textbook(ard: bool) -> None:
    task = large_task()
    model = perturbed(gp.GP(ard=ard), task)
    (inputs, target), new = task.development, task.test[0]
    prior, noise = rbf_prior(model, torch.cat([inputs, new]))
    mean, variance = conditioned(prior, target.squeeze(-1), noise)
    predictive = model(new)
    torch.testing.assert_close(predictive.mean.squeeze(-1), mean)
    torch.testing.assert_close(predictive.epistemic_variance.squeeze(-1), variance)
    torch.testing.assert_close(predictive.noise_variance, noise.expand(len(new), 1))
    prior, _ = rbf_prior(model, inputs)
    expected = -prior.log_prob(target.squeeze(-1)) / len(inputs)
    torch.testing.assert_close(model(inputs, target), expected)


def test_gaussian_process_is_fitted_to_a_stationary_point_of_the_marginal_likelihood() -> None:
    tasks = [large_task(seed) for seed in (0, 1)]
    for task, (model, notes) in zip(tasks, gp.GP().train(tasks), strict=True):
        start, loss = gp.GP().make(task)(*task.development), model(*task.development)
        assert loss < start - 0.1
        assert notes["marginal_nll"] == pytest.approx(loss.item())
        model.zero_grad()
        loss.backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert gradients.abs().max() < 1e-4


@pytest.mark.parametrize("ard", [False, True])
def test_gaussian_process_without_gradients_finds_the_same_hyperparameters(ard: bool) -> None:
    task = large_task()
    ((climbed, expected),) = gp.GP(ard=ard).train([task])
    ((searched, notes),) = gp.GP(ard=ard, most_data=10, epochs=200).train([task])
    assert notes["marginal_nll"] == pytest.approx(searched(*task.development).item(), abs=1e-10)
    assert notes["marginal_nll"] == pytest.approx(expected["marginal_nll"], abs=1e-4)
    found = climbed(task.test[0]), searched(task.test[0])
    torch.testing.assert_close(found[1].mean, found[0].mean, rtol=0.0, atol=0.05)
    torch.testing.assert_close(found[1].variance, found[0].variance, rtol=0.05, atol=0.0)


@pytest.mark.parametrize("repeat", [False, True])
def test_gaussian_process_without_gradients_keeps_the_least_noise_as_it_does_with_them(
    repeat: bool,
) -> None:
    task = large_task()
    inputs = task.train[0].repeat(2, 1) if repeat else task.train[0]
    smooth = inputs, inputs.sum(-1, keepdim=True).sin()
    task = replace(task, train=smooth, validation=(inputs[:0], inputs[:0, :1]))
    ((_, expected),) = gp.GP(epochs=200).train([task])
    ((model, notes),) = gp.GP(most_data=10).train([task])
    assert model.likelihood.noise.item() == pytest.approx(1e-4, rel=0.01)
    assert notes["marginal_nll"] == pytest.approx(model(*task.development).item(), abs=1e-8)
    assert notes["marginal_nll"] == pytest.approx(expected["marginal_nll"], abs=2e-3)


@pytest.mark.parametrize(("target", "fails"), [(0.0, False), (math.nan, True)])
def test_gaussian_process_without_gradients_of_constant_and_of_missing_targets(
    target: float, fails: bool
) -> None:
    task = large_task()
    train = task.train[0], torch.full_like(task.train[1], target)
    task = replace(task, train=train, validation=(train[0][:0], train[1][:0]))
    if fails:
        with pytest.raises(FloatingPointError, match="check the data for NaN"):
            gp.GP(most_data=10).train([task])
    else:
        ((model, _),) = gp.GP(most_data=10).train([task])
        torch.testing.assert_close(model(task.test[0]).mean, torch.zeros(8, 1), atol=1e-6, rtol=0)
