"""Baselines with exact posteriors: GBLL, LDGBLL and the Gaussian process."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

import lastlayer as ll
from experiments.baselines.fitted import Fitted
from experiments.baselines.gbll import GBLL, GaussianLastLayer
from experiments.baselines.ldgbll import LDGBLL, LatentDerivatives
from experiments.uci.task import TableTask
from tests.helpers.tasks import NUM_INPUTS, table_task

NUM_TRAIN, NUM_VALIDATION = 20, 8


def a_task(seed: int = 0) -> TableTask:
    """A smooth function with noise, in units in which it is large."""
    task = table_task(seed, NUM_TRAIN, NUM_VALIDATION)
    parts = {name: getattr(task, name) for name in ("train", "validation", "test")}
    scaled: Any = {name: (x, 5 * y) for name, (x, y) in parts.items()}
    return replace(task, **scaled)


def perturbed(method: Fitted, task: TableTask) -> nn.Module:
    """A model whose every parameter, also those that begin at zero, is like no other."""
    model = method.make(task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def prior_of_targets(model: GaussianLastLayer, inputs: Tensor) -> MultivariateNormal:
    """N(0, sΦΦᵀ + σ²I), as large as the data are many."""
    features = model.network(inputs)
    features = torch.cat([features, torch.ones(len(features), 1)], -1)
    prior_variance = model.log_prior_stddev.exp() ** 2
    noise_variance = model.log_noise_stddev.exp() ** 2
    covariance = prior_variance * features @ features.T + noise_variance * torch.eye(len(features))
    return MultivariateNormal(torch.zeros(len(features)), covariance)


def conditioned(
    prior: MultivariateNormal, target: Tensor, noise_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance without noise of what follows the first targets, (rest,) each."""
    first, rest = slice(None, len(target)), slice(len(target), None)
    covariance, mean = prior.covariance_matrix, prior.mean
    gain = torch.linalg.solve(covariance[first, first], covariance[first, rest]).T
    variance = (covariance[rest, rest] - gain @ covariance[first, rest]).diagonal()
    return mean[rest] + gain @ (target - mean[first]), variance - noise_variance


# --------------------------------------------------------------------------------------- GBLL


def test_gbll_loss_and_gradient_are_those_of_the_marginal_density_of_all_targets() -> None:
    task = a_task()
    inputs, target = task.train
    model = perturbed(GBLL(epochs=1), task)
    assert isinstance(model, GaussianLastLayer)
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = -prior_of_targets(model, inputs).log_prob(target.squeeze(-1)) / NUM_TRAIN
    loss = model(inputs, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    )


@pytest.mark.parametrize("method", [GBLL(epochs=1), LDGBLL(epochs=1)])
def test_finished_model_predicts_as_a_gaussian_process_with_a_linear_kernel_on_its_features(
    method: GBLL,
) -> None:
    task = a_task()
    model = perturbed(method, task)
    assert isinstance(model, GaussianLastLayer)
    (inputs, target), new = task.development, task.test[0]
    prior = prior_of_targets(model, torch.cat([inputs, new]))
    noise_variance = model.log_noise_stddev.exp() ** 2
    mean, variance = conditioned(prior, target.squeeze(-1), noise_variance)
    predictive = method.finish(model, task)(new)
    torch.testing.assert_close(predictive.mean.squeeze(-1), mean)
    torch.testing.assert_close(predictive.epistemic_variance.squeeze(-1), variance)
    torch.testing.assert_close(predictive.noise_variance, noise_variance.expand(len(new), 1))


def test_gbll_in_single_precision_is_exact_for_features_of_any_size() -> None:
    task = a_task()
    inputs, target = task.train
    model = GBLL(epochs=1).make(task).float()
    assert isinstance(model, GaussianLastLayer)
    with torch.no_grad():
        model.get_parameter("network.2.weight").mul_(
            1e4
        )  # ΦᵀΦ of 1e9 and more, and as ill-conditioned
    exact = copy.deepcopy(model).double()
    exact.network.float()  # the features are those of single precision
    prior = prior_of_targets(exact, inputs.float())
    expected = -prior.log_prob(target.squeeze(-1)) / NUM_TRAIN
    loss = model(inputs.float(), target.float())
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0.0)


def test_gbll_begins_with_the_noise_that_is_best_for_its_features() -> None:
    task = a_task()
    model = GBLL(epochs=1).make(task)
    assert isinstance(model, GaussianLastLayer)
    losses = []
    for shift in (-0.01, 0.0, 0.01):
        moved = copy.deepcopy(model)
        moved.log_noise_stddev.data += shift
        losses.append(moved(*task.train).item())
    assert losses[1] < min(losses[0], losses[2])


def test_gbll_refuses_batches_that_do_not_hold_all_the_data() -> None:
    with pytest.raises(ValueError, match="all 28 examples in one batch"):
        GBLL(epochs=1, batch_size=27).make(a_task())


# ------------------------------------------------------------------------------------- LDGBLL


def derivative_model() -> tuple[LatentDerivatives, Tensor, Tensor]:
    task = a_task()
    model = perturbed(LDGBLL(epochs=1, divergence_weight=0.7, num_points=5), task)
    assert isinstance(model, LatentDerivatives)
    return model, *task.train


def test_forward_mode_jacobian_of_the_features_is_that_of_reverse_mode() -> None:
    model, inputs, _ = derivative_model()
    expected = torch.stack(
        [torch.autograd.functional.jacobian(model.features, point) for point in inputs]
    )
    torch.testing.assert_close(model.jacobian(inputs), expected)


def test_ldgbll_adds_the_mean_divergence_of_the_derivatives_to_the_loss_of_gbll() -> None:
    model, inputs, target = derivative_model()
    features = model.features(inputs)
    prior_precision = (-2 * model.log_prior_stddev).exp() * torch.eye(features.shape[-1])
    noise_precision = (-2 * model.log_noise_stddev).exp()
    covariance = torch.linalg.inv(prior_precision + noise_precision * features.T @ features)
    mean = (noise_precision * covariance @ features.T @ target).squeeze(-1)
    stddev = model.log_derivative_stddev.exp()
    prior = MultivariateNormal(torch.zeros(NUM_INPUTS), stddev**2 * torch.eye(NUM_INPUTS))
    divergences = []
    for point in inputs[:5]:
        jacobian = torch.autograd.functional.jacobian(model.features, point)
        slope = MultivariateNormal(jacobian.T @ mean, jacobian.T @ covariance @ jacobian)
        divergences.append(kl_divergence(slope, prior))
    evidence = prior_of_targets(model, inputs).log_prob(target.squeeze(-1))
    expected = -evidence / NUM_TRAIN + 0.7 * torch.stack(divergences).mean()
    torch.testing.assert_close(model(inputs, target), expected)


# ----------------------------------------------------------------------------------- training


@pytest.mark.parametrize("method", [GBLL(epochs=20), LDGBLL(epochs=20)])
def test_seeds_trained_together_are_those_trained_one_by_one_and_have_learned(
    method: GBLL,
) -> None:
    tasks = [a_task(seed) for seed in (0, 1)]
    for task, (model, notes) in zip(tasks, method.train(tasks), strict=True):
        start, alone = method.new([task, task])
        history = ll.fit(
            alone,
            task.train,
            task.validation,
            epochs=method.epochs,
            batch_size=method.batch_size,
            learning_rate=method.learning_rate,
            validate_every=method.validate_every,
            retrain=True,
            seed=task.seed,
            progress=False,
        )
        assert notes["epochs"] == history.best_epoch
        assert notes["validation_nll"] == pytest.approx(history.best_nll)
        expected = method.finish(alone, task)(task.test[0])
        torch.testing.assert_close(model(task.test[0]).mean, expected.mean)
        torch.testing.assert_close(model(task.test[0]).stddev, expected.stddev)
        assert model(*task.development) < start(*task.development)


# ------------------------------------------------------------------------------------------ GP


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
    gp = pytest.importorskip("experiments.baselines.gp")
    task = a_task()
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
    gp = pytest.importorskip("experiments.baselines.gp")
    tasks = [a_task(seed) for seed in (0, 1)]
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
    gp = pytest.importorskip("experiments.baselines.gp")
    task = a_task()
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
    gp = pytest.importorskip("experiments.baselines.gp")
    task = a_task()
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
    gp = pytest.importorskip("experiments.baselines.gp")
    task = a_task()
    train = task.train[0], torch.full_like(task.train[1], target)
    task = replace(task, train=train, validation=(train[0][:0], train[1][:0]))
    if fails:
        with pytest.raises(FloatingPointError, match="check the data for NaN"):
            gp.GP(most_data=10).train([task])
    else:
        ((model, _),) = gp.GP(most_data=10).train([task])
        torch.testing.assert_close(model(task.test[0]).mean, torch.zeros(8, 1), atol=1e-6, rtol=0)
