"""The regression head against closed forms, explicit matrices and gradient descent."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import lastlayer as ll
from tests.helpers.reference import (
    assert_within_standard_errors,
    log_marginal_likelihood,
    minimize,
    randomize,
    sampled,
)

N, T = 4, 25
NOISE = torch.tensor([[0.5, 0.2, 0.0], [0.2, 0.9, -0.3], [0.0, -0.3, 1.4]], dtype=torch.float64)
PRIOR = ll.Prior(variance=1.7, noise_dof=2.0, noise_scale=0.6)

OPTIONS = [
    (covariance, noise, row)
    for covariance, noise, row in itertools.product(
        ["dense", "diagonal", "low_rank", "shared", "kronecker"],
        ["diagonal", "dense"],
        ["identity", "noise"],
    )
    if not (noise == "dense" and row == "noise" and covariance != "shared")
]


def data(num_outputs: int, generator: torch.Generator, count: int = T) -> tuple[Tensor, Tensor]:
    features = torch.randn(count, N, generator=generator)
    weights = torch.randn(num_outputs, N, generator=generator)
    return features, features @ weights.mT + torch.randn(count, num_outputs, generator=generator)


def head(num_outputs: int = 3, *, num_data: int = T, **options: Any) -> ll.Regression:
    options = {"prior": PRIOR, **options}
    made = ll.Regression(N, num_outputs, num_data=num_data, **options)
    noise = NOISE[:num_outputs, :num_outputs]
    made.noise.assign(noise if options.get("noise") == "dense" else noise.diagonal().diag())
    return made


@pytest.mark.parametrize(
    ("num_outputs", "options"),
    [
        (1, {}),
        (1, {"covariance": "dense"}),
        (1, {"covariance": "kronecker"}),
        (1, {"noise": "dense"}),
        (1, {"row_covariance": "noise"}),
        (1, {"bias": True}),
        (3, {"covariance": "dense"}),
        (3, {"covariance": "dense", "row_covariance": "noise"}),
        (3, {"row_covariance": "noise"}),
        (3, {"row_covariance": "noise", "noise": "dense"}),
        (3, {"row_covariance": "noise", "noise": "dense", "bias": True}),
    ],
)
def test_elbo_equals_the_log_marginal_likelihood_at_the_exact_posterior(
    num_outputs: int, options: dict[str, Any], generator: torch.Generator
) -> None:
    features, target = data(num_outputs, generator)
    model = head(num_outputs, **options)
    model.fit_exact(features, target)
    elbo = model.elbo(features, target)
    noise = model.noise.covariance()
    row = noise if options.get("row_covariance") == "noise" else torch.eye(num_outputs)
    if options.get("bias"):
        features = torch.cat([features, torch.ones(T, 1)], -1)
    exact = log_marginal_likelihood(features, target, row, noise, PRIOR.fixed_variance)
    torch.testing.assert_close(T * elbo.bound - elbo.kl, exact)


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
def test_elbo_is_below_the_log_marginal_likelihood_anywhere_else(
    covariance: str, noise: str, row: str, generator: torch.Generator
) -> None:
    features, target = data(3, generator)
    model = head(3, covariance=covariance, noise=noise, row_covariance=row)
    sigma = model.noise.covariance()
    prior_row = sigma if row == "noise" else torch.eye(3)
    exact = log_marginal_likelihood(features, target, prior_row, sigma, PRIOR.fixed_variance)
    model.fit_exact(features, target)
    for _ in range(5):
        randomize(model.covariance, generator, 0.1)
        with torch.no_grad():
            model.mean.add_(0.1 * torch.randn(model.mean.shape, generator=generator))
        elbo = model.elbo(features, target)
        assert T * elbo.bound - elbo.kl < exact


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
@pytest.mark.parametrize("kl_weight", [1.0, 0.3])
def test_training_by_gradient_converges_to_the_exact_fit(
    covariance: str, noise: str, row: str, kl_weight: float, generator: torch.Generator
) -> None:
    features, target = data(3, generator)
    prior = ll.Prior(variance=1.7, kl_weight=kl_weight)
    model = head(3, covariance=covariance, noise=noise, row_covariance=row, prior=prior)
    model.noise.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    minimize(lambda: model(features, target), trained)
    reached, mean, variance = model(features, target), model.mean.clone(), model(features).variance
    model.fit_exact(features, target)
    torch.testing.assert_close(model(features, target), reached, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(model.mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(features).variance, variance, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
def test_nothing_is_left_to_train_after_an_exact_fit_with_noise(
    covariance: str, noise: str, row: str, generator: torch.Generator
) -> None:
    features, target = data(3, generator)
    model = head(3, covariance=covariance, noise=noise, row_covariance=row)
    before = model(features, target)
    model.fit_exact(features, target, estimate_noise=True)
    loss = model(features, target)
    assert loss < before
    for gradient in torch.autograd.grad(loss, list(model.parameters())):
        assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
def test_bound_is_the_expected_log_likelihood(
    covariance: str, noise: str, row: str, generator: torch.Generator
) -> None:
    features, target = data(3, generator, count=4)
    model = head(3, covariance=covariance, noise=noise, row_covariance=row)
    randomize(model, generator)
    normal = MultivariateNormal(torch.zeros(3), model.noise.covariance())

    def likelihood(count: int) -> Tensor:
        weights = model.covariance.sample(count, generator)
        if row == "noise":
            weights = torch.einsum("ij,cjn->cin", _root(model), weights)
        weights = weights + model.mean
        return normal.log_prob(target - torch.einsum("ckn,bn->cbk", weights, features)).mean(-1)

    with torch.no_grad():
        mean, error = sampled(likelihood)
        assert_within_standard_errors(model.elbo(features, target).bound, mean, error)


def _root(model: ll.Regression) -> Tensor:
    """A square root of Σ that does not touch the head's own."""
    return torch.linalg.cholesky(model.noise.covariance())


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
def test_kl_is_that_of_the_joint_normal_of_all_weights(
    covariance: str, noise: str, row: str, generator: torch.Generator
) -> None:
    model = head(3, covariance=covariance, noise=noise, row_covariance=row)
    randomize(model, generator)
    posterior = torch.block_diag(*model.covariance.dense())
    prior = PRIOR.fixed_variance * torch.eye(3 * N)
    if row == "noise":
        sigma = torch.kron(model.noise.covariance(), torch.ones(N, N))
        matrices = model.covariance.dense()
        if noise == "dense":  # one S: the Kronecker product Σ ⊗ S
            posterior = torch.kron(model.noise.covariance(), matrices[0])
        else:
            posterior = posterior * sigma
        prior = torch.kron(model.noise.covariance(), PRIOR.fixed_variance * torch.eye(N))
    expected = kl_divergence(
        MultivariateNormal(model.mean.flatten(), posterior),
        MultivariateNormal(torch.zeros(3 * N), prior),
    )
    torch.testing.assert_close(model.elbo(*data(3, generator)).kl, expected)


def test_log_prior_is_the_inverse_wishart_log_density_up_to_a_constant(
    generator: torch.Generator,
) -> None:
    differences = []
    for noise in ("diagonal", "dense"):
        for _ in range(3):
            model = head(3, noise=noise)
            randomize(model, generator)
            sigma = model.noise.covariance()
            # the density of Σ follows from that of Σ⁻¹, a Wishart, and the Jacobian |Σ|^-(K+1)
            dof = 5.0
            wishart = torch.distributions.Wishart(torch.tensor(dof), torch.eye(3) / 0.6)
            exact = wishart.log_prob(torch.linalg.inv(sigma)) - 4 * torch.logdet(sigma)
            model.prior = ll.Prior(noise_dof=dof, noise_scale=0.6)
            differences.append(model.elbo(*data(3, generator)).log_prior - exact)
    torch.testing.assert_close(torch.stack(differences), differences[0].expand(6))


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
def test_predictive_moments_are_those_of_sampled_weights_and_noise(
    covariance: str, noise: str, row: str, generator: torch.Generator
) -> None:
    features, _ = data(3, generator, count=2)
    model = head(3, covariance=covariance, noise=noise, row_covariance=row)
    randomize(model, generator)
    predictive = model(features)

    def functions(count: int) -> Tensor:
        weights = model.covariance.sample(count, generator)
        if row == "noise":
            weights = torch.einsum("ij,cjn->cin", _root(model), weights)
        return torch.einsum("ckn,bn->cbk", weights, features)

    def outer(count: int) -> Tensor:
        draws = functions(count)
        return draws.unsqueeze(-1) * draws.unsqueeze(-2)

    with torch.no_grad():
        mean, error = sampled(outer)
        assert_within_standard_errors(predictive.epistemic_covariance, mean, error)
        torch.testing.assert_close(predictive.mean, features @ model.mean.mT)
        torch.testing.assert_close(
            predictive.noise_covariance, model.noise.covariance().expand(2, 3, 3)
        )
        total = MultivariateNormal(predictive.mean, predictive.covariance)
        target = torch.randn(2, 3, generator=generator)
        torch.testing.assert_close(predictive.log_prob(target), total.log_prob(target))


@pytest.mark.parametrize(
    ("covariance", "noise", "row"), [case for case in OPTIONS if case[0] in ("dense", "shared")]
)
@pytest.mark.parametrize("splits", [[10, 15], [1] * 5 + [20], [T]])
def test_updating_in_any_split_equals_fitting_once(
    covariance: str, noise: str, row: str, splits: list[int], generator: torch.Generator
) -> None:
    features, target = data(3, generator)
    prior = ll.Prior(variance=1.7, kl_weight=0.7)
    options: dict[str, Any] = {
        "covariance": covariance,
        "noise": noise,
        "row_covariance": row,
        "prior": prior,
    }
    once, updated = head(3, **options), head(3, **options)
    once.fit_exact(features, target)
    for part, wanted in zip(features.split(splits), target.split(splits), strict=True):
        updated.update(part, wanted)
    torch.testing.assert_close(updated.mean, once.mean)
    torch.testing.assert_close(updated.covariance.dense(), once.covariance.dense())


@pytest.mark.parametrize(
    "move",
    [
        lambda head: head.float(),
        lambda head: head.bfloat16().float(),
        lambda head: head.half().double().float(),
        lambda head: copy.deepcopy(head).float(),
    ],
    ids=["float32", "by bfloat16", "by float16", "copied"],
)
def test_a_new_head_updates_from_its_prior_whatever_it_was_cast_to(
    move: Any, generator: torch.Generator
) -> None:
    features, target = (part.float() for part in data(2, generator))
    moved, fitted = move(head(2)), move(head(2))
    moved.update(features, target)
    fitted.fit_exact(features, target)
    torch.testing.assert_close(moved.mean, fitted.mean)
    torch.testing.assert_close(moved.covariance.dense(), fitted.covariance.dense())


@pytest.mark.parametrize("assign", [False, True])
def test_a_head_made_on_the_meta_device_updates_from_what_it_loaded(
    assign: bool, generator: torch.Generator
) -> None:
    features, target = data(2, generator)
    fitted = head(2)
    fitted.fit_exact(features[:10], target[:10])
    loaded = ll.Regression(N, 2, num_data=T, prior=PRIOR, device="meta", dtype=torch.float64)
    loaded = loaded if assign else loaded.to_empty(device="cpu")
    loaded.load_state_dict(fitted.state_dict(), assign=assign)
    for one in (fitted, loaded):
        one.update(features[10:], target[10:])
    torch.testing.assert_close(loaded.mean, fitted.mean)


def test_single_examples_without_a_batch_dimension_update_too(generator: torch.Generator) -> None:
    features, target = data(1, generator)
    once, updated = head(1), head(1)
    once.fit_exact(features, target)
    updated.fit_exact(features[:-1], target[:-1])
    updated.update(features[-1], target[-1, 0])
    torch.testing.assert_close(updated.mean, once.mean)
    torch.testing.assert_close(updated(features).variance, once(features).variance)


def test_forgetting_discounts_old_data_and_returns_to_the_prior(generator: torch.Generator) -> None:
    features, target = data(1, generator)
    weight = torch.cat([torch.full((10,), 0.5), torch.ones(T - 10)])
    weighted, forgetful = head(1), head(1)
    weighted.fit_exact(features, target, weight)
    forgetful.fit_exact(features[:10], target[:10])
    forgetful.update(features[10:], target[10:], forgetting=0.5)
    torch.testing.assert_close(forgetful.mean, weighted.mean)
    torch.testing.assert_close(forgetful.covariance.dense(), weighted.covariance.dense())
    for _ in range(60):
        forgetful.update(features[:0], target[:0], forgetting=0.5)
    prior = PRIOR.fixed_variance * torch.eye(N)
    torch.testing.assert_close(forgetful.covariance.dense()[0], prior)
    torch.testing.assert_close(forgetful.mean, torch.zeros(1, N))


@pytest.mark.slow
def test_sampled_functions_have_the_mean_and_covariance_of_the_posterior(
    generator: torch.Generator,
) -> None:
    features, target = data(2, generator)
    cases: list[dict[str, Any]] = [
        {"covariance": "dense"},
        {"row_covariance": "noise", "noise": "dense"},
    ]
    for options in cases:
        model = head(2, bias=True, **options)
        model.fit_exact(features, target)
        inputs = features[:3]

        def draws(count: int, model: ll.Regression = model, inputs: Tensor = inputs) -> Tensor:
            return torch.stack([model.sample_function(generator)(inputs) for _ in range(count)])

        predictive = model(inputs)
        with torch.no_grad():
            values = draws(2000)
            mean, error = values.mean(0), values.std(0) / 2000**0.5
            assert_within_standard_errors(predictive.mean, mean, error)
            centred = values - predictive.mean
            outer = centred.unsqueeze(-1) * centred.unsqueeze(-2)
            error = outer.std(0) / 2000**0.5
            assert_within_standard_errors(predictive.epistemic_covariance, outer.mean(0), error)


@pytest.mark.parametrize("row", ["identity", "noise"])
def test_outputs_weighted_zero_are_as_if_never_seen(row: str, generator: torch.Generator) -> None:
    features, target = data(2, generator)
    weight = (torch.rand(T, 2, generator=generator) > 0.4).double()
    target[weight == 0] = torch.nan  # missing
    both = head(2, covariance="dense", row_covariance=row)
    both.fit_exact(features, target, weight)
    for output in range(2):
        seen = weight[:, output] == 1
        alone = head(1, covariance="dense", row_covariance=row)
        alone.noise.assign(both.noise.covariance()[output : output + 1, output : output + 1])
        alone.fit_exact(features[seen], target[seen, output])
        torch.testing.assert_close(both.mean[output], alone.mean[0])
        torch.testing.assert_close(both.covariance.dense()[output], alone.covariance.dense()[0])
    loss = both(features, target, weight)
    for gradient in torch.autograd.grad(loss, [both.mean, *both.covariance.parameters()]):
        assert gradient.abs().max() < 1e-9  # finite, and at the optimum


@pytest.mark.parametrize(("covariance", "noise", "row"), OPTIONS)
def test_estimated_noise_does_not_drown_in_the_level_of_targets(
    covariance: str, noise: str, row: str, generator: torch.Generator
) -> None:
    features = torch.randn(2000, N, generator=generator)
    error = 0.01 * torch.randn(2000, 2, generator=generator)
    made = []
    for level in (0.0, 1e6):
        options: Any = {"covariance": covariance, "noise": noise, "row_covariance": row}
        prior = ll.Prior(variance=1e18, noise_scale=1e-6)
        one = ll.Regression(N, 2, num_data=2000, bias=True, prior=prior, **options)
        one.fit_exact(features, features[:, :2] + level + error, estimate_noise=True)
        made.append(one.noise.covariance())
    torch.testing.assert_close(*made, rtol=1e-3, atol=1e-8)


def test_integer_weights_count_as_repeated_examples(generator: torch.Generator) -> None:
    features, target = data(2, generator)
    counts = torch.randint(1, 4, (T,), generator=generator)
    again = torch.repeat_interleave(torch.arange(T), counts)
    for options in ({"noise": "dense"}, {"covariance": "dense"}):
        weighted = head(2, num_data=int(counts.sum()), **options)
        repeated = head(2, num_data=int(counts.sum()), **options)
        weighted.fit_exact(features, target, counts.double(), estimate_noise=True)
        repeated.fit_exact(features[again], target[again], estimate_noise=True)
        torch.testing.assert_close(weighted.mean, repeated.mean, rtol=1e-6, atol=1e-8)
        scaled = weighted.elbo(features, target, counts.double()).bound * T
        torch.testing.assert_close(
            scaled, repeated.elbo(features[again], target[again]).bound * len(again)
        )


def test_leading_dimensions_are_only_examples(generator: torch.Generator) -> None:
    features, target = data(2, generator, count=24)
    model = head(2, covariance="low_rank", bias=True)
    shaped = model(features.reshape(2, 3, 4, N), target.reshape(2, 3, 4, 2))
    torch.testing.assert_close(shaped, model(features, target))
    predictive = model(features.reshape(2, 3, 4, N))
    torch.testing.assert_close(predictive.variance.reshape(24, 2), model(features).variance)


def test_tiny_posterior_covariance_gives_the_plain_gaussian_likelihood(
    generator: torch.Generator,
) -> None:
    features, target = data(2, generator)
    model = head(2, noise="dense")
    model.covariance.set_isotropic(1e-16)
    plain = MultivariateNormal(features @ model.mean.mT, NOISE[:2, :2]).log_prob(target).mean()
    torch.testing.assert_close(model.elbo(features, target).bound, plain)
