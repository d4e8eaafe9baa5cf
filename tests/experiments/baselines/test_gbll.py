"""GBLL and LDGBLL against the marginal density of all targets."""

import copy

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import lastlayer as ll
from experiments.baselines.gbll import GBLL, GaussianLastLayer
from experiments.baselines.ldgbll import LDGBLL, LatentDerivatives
from tests.helpers.tasks import NUM_INPUTS, NUM_TRAIN, conditioned, large_task, perturbed


def prior_of_targets(model: GaussianLastLayer, inputs: Tensor) -> MultivariateNormal:
    """N(0, sΦΦᵀ + σ²I), as large as the data are many."""
    features = model.network(inputs)
    features = torch.cat([features, torch.ones(len(features), 1)], -1)
    prior_variance = model.log_prior_stddev.exp() ** 2
    noise_variance = model.log_noise_stddev.exp() ** 2
    covariance = prior_variance * features @ features.T + noise_variance * torch.eye(len(features))
    return MultivariateNormal(torch.zeros(len(features)), covariance)


def test_gbll_loss_and_gradient_are_those_of_the_marginal_density_of_all_targets() -> None:
    task = large_task()
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
    task = large_task()
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
    task = large_task()
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
    task = large_task()
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
        GBLL(epochs=1, batch_size=27).make(large_task())


# ------------------------------------------------------------------------------------- LDGBLL


def derivative_model() -> tuple[LatentDerivatives, Tensor, Tensor]:
    task = large_task()
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


@pytest.mark.slow
@pytest.mark.parametrize("method", [GBLL(epochs=20), LDGBLL(epochs=20)])
def test_seeds_trained_together_are_those_trained_one_by_one_and_have_learned(
    method: GBLL,
) -> None:
    tasks = [large_task(seed) for seed in (0, 1)]
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
