"""Joint predictives agree with an explicit Gaussian posterior of all weights."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import lastlayer as ll
from lastlayer.predictive import JointLogitPredictive
from tests.helpers.cases import CASES, JOINTS, NUM_OUTPUTS, make_examples, make_head
from tests.helpers.reference import (
    assert_within_standard_errors,
    dense_covariance,
    sampled,
)

K = NUM_OUTPUTS
WITH_JOINT = ("regression", "discriminative")
GAUSSIAN = [name for name in CASES if name.startswith(WITH_JOINT) and "tilted" not in name]
NOISY = [name for name in GAUSSIAN if not name.endswith("none")]
every_case = pytest.mark.parametrize("name", GAUSSIAN)
every_noisy_case = pytest.mark.parametrize("name", NOISY)
every_family = pytest.mark.parametrize("name", JOINTS)
NUM_POINTS = [1, 4, 11]  # fewer and more than there are features


def noise_covariance(head: Any) -> Tensor:
    if head.noise is None:
        return torch.zeros(K, K)
    return torch.linalg.inv(head.noise.precision()).contiguous()


@torch.no_grad()
def explicit(head: Any, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance due to weights and covariance due to noise of all targets, flattened."""
    noise = noise_covariance(head)
    if head.bias:
        features = torch.cat([features, torch.ones(len(features), 1)], -1)
    width = features.shape[-1]
    rows = torch.eye(K)
    if getattr(head, "conjugate", False):
        rows = noise
    matrices = dense_covariance(head.covariance)
    weights = torch.zeros(K, width, K, width)  # of W, flattened output after output
    for k in range(K):
        for other in range(K):
            weights[k, :, other] = rows[k, other] * matrices[k]
    design = torch.stack([torch.kron(torch.eye(K), row) for row in features]).flatten(0, 1)
    covariance = design @ weights.reshape(K * width, K * width) @ design.mT
    return design @ head.mean.flatten(), covariance, torch.kron(torch.eye(len(features)), noise)


@pytest.mark.parametrize("num_points", NUM_POINTS)
@every_case
def test_moments_are_those_of_the_explicit_posterior(name: str, num_points: int) -> None:
    head = make_head(name)
    features, _ = make_examples(head, num_points)
    joint = head.joint(features)
    mean, epistemic, noise = explicit(head, features)
    assert joint.event_shape == (num_points, K)
    torch.testing.assert_close(joint.mean.flatten(), mean)
    torch.testing.assert_close(joint.full_covariance, epistemic + noise)
    for k in range(K):
        torch.testing.assert_close(joint.epistemic_covariance[k], epistemic[k::K, k::K])
        torch.testing.assert_close(joint.covariance[k], (epistemic + noise)[k::K, k::K])
    diagonal = epistemic.diagonal().reshape(num_points, K)
    torch.testing.assert_close(joint.epistemic_variance, diagonal)
    torch.testing.assert_close(joint.noise_variance, noise.diagonal().reshape(num_points, K))
    torch.testing.assert_close(joint.variance, joint.epistemic_variance + joint.noise_variance)


@every_case
def test_each_point_by_itself_has_the_predictive_of_the_head(name: str) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 2, 5)
    marginal, expected = head.joint(features).marginal(), head(features)
    assert type(marginal) is type(expected)
    for actual, tensor in zip(marginal._tensors(), expected._tensors(), strict=True):
        torch.testing.assert_close(actual, tensor)


@pytest.mark.parametrize("num_points", NUM_POINTS)
@every_noisy_case
def test_density_entropy_and_information_are_those_of_the_explicit_normal(
    name: str, num_points: int, generator: torch.Generator
) -> None:
    head = make_head(name)
    features, _ = make_examples(head, num_points)
    joint = head.joint(features)
    mean, epistemic, noise = explicit(head, features)
    normal = MultivariateNormal(mean, epistemic + noise)
    target = 2 * torch.randn(num_points, K, generator=generator)
    torch.testing.assert_close(joint.log_prob(target), normal.log_prob(target.flatten()))
    torch.testing.assert_close(joint.entropy(), normal.entropy())
    information = 0.5 * (torch.logdet(epistemic + noise) - torch.logdet(noise))
    torch.testing.assert_close(joint.mutual_information(), information)
    same = joint.distribution()
    torch.testing.assert_close(same.log_prob(target.flatten()), normal.log_prob(target.flatten()))


def test_one_point_has_the_density_and_information_of_its_predictive() -> None:
    for name in [name for name in NOISY if name.startswith("regression")]:
        head = make_head(name)
        features, target = make_examples(head, 3, 1)
        joint, alone = head.joint(features), head(features.squeeze(1))
        torch.testing.assert_close(joint.log_prob(target), alone.log_prob(target.squeeze(1)))
        torch.testing.assert_close(joint.entropy(), alone.entropy())
        torch.testing.assert_close(joint.mutual_information(), alone.mutual_information())


@pytest.mark.parametrize("name", [name for name in JOINTS if name.startswith("regression")])
def test_a_change_of_units_changes_moments_and_density_with_them(
    name: str, generator: torch.Generator
) -> None:
    head = make_head(name)
    joint = head.joint(make_examples(head, 2, 4)[0])
    location, scale = torch.randn(K, generator=generator), torch.rand(K, generator=generator) + 0.5
    target = torch.randn(2, 4, K, generator=generator)
    for shape in [(K,), (2, K)]:
        changed = joint.affine(location.expand(shape), scale.expand(shape))
        torch.testing.assert_close(changed.mean, location + scale * joint.mean)
        scales = scale.repeat(4)
        expected = scales[:, None] * joint.full_covariance * scales
        torch.testing.assert_close(changed.full_covariance, expected)
        torch.testing.assert_close(
            changed.log_prob(location + scale * target),
            joint.log_prob(target) - 4 * scale.log().sum(),
        )
        torch.testing.assert_close(changed.mutual_information(), joint.mutual_information())


def test_labels_have_no_units_to_change() -> None:
    head = make_head("discriminative-dense-jensen-diagonal")
    joint = head.joint(make_examples(head, 4)[0])
    assert joint.affine(torch.ones(K), torch.ones(K)) is joint


@pytest.mark.slow
@every_family
def test_draws_have_mean_and_covariance(name: str, generator: torch.Generator) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 4)
    joint = head.joint(features).detach()
    mean, epistemic, noise = explicit(head, features)
    for covariance, noisy in ((epistemic + noise, True), (epistemic, False)):

        def draw(count: int, noisy: bool = noisy) -> Tensor:
            return joint.sample(count, generator, noise=noisy).flatten(1)

        def outer(count: int, draw: Callable[[int], Tensor] = draw) -> Tensor:
            error = draw(count) - mean
            return error.unsqueeze(-1) * error.unsqueeze(-2)

        assert_within_standard_errors(mean, *sampled(draw))
        assert_within_standard_errors(covariance, *sampled(outer))


@pytest.mark.slow
@every_family
def test_drawn_functions_vary_together_at_several_points_as_the_joint_says(
    name: str, generator: torch.Generator
) -> None:
    head: Any = make_head(name)
    features, _ = make_examples(head, 3)
    joint = head.joint(features)

    def outer(count: int) -> Tensor:
        drawn = [head.sample_function(generator)(features) for _ in range(count)]
        error = (torch.stack(drawn) - joint.mean).flatten(1)
        return error.unsqueeze(-1) * error.unsqueeze(-2)

    with torch.no_grad():
        noise = torch.kron(torch.eye(3), noise_covariance(head))
        value, error = sampled(outer, 2000, 1000)
        assert_within_standard_errors(joint.full_covariance - noise, value, error)


@pytest.mark.slow
def test_joint_probabilities_of_labels_are_products_averaged_over_drawn_weights(
    generator: torch.Generator,
) -> None:
    head = make_head("discriminative-dense-jensen-diagonal")
    features, _ = make_examples(head, 2)
    features = torch.stack([features[0], features[0] + 0.1 * features[1]])  # alike
    joint = head.joint(features)
    assert isinstance(joint, JointLogitPredictive)
    with torch.no_grad():
        probs = joint.sample_log_probs(20_000, generator).exp()
        both = probs[:, 0, :, None] * probs[:, 1, None, :]
        noise = joint.noise_scale

        def drawn(count: int) -> Tensor:
            logits = joint.sample(count, generator, noise=False)
            extra = torch.randn(logits.shape, generator=generator) * noise
            inner = (logits + extra).softmax(-1)
            return inner[:, 0, :, None] * inner[:, 1, None, :]

        value, error = sampled(drawn, 50_000)
        spread = both.std(0) / len(both) ** 0.5
        assert_within_standard_errors(
            both.mean(0), value, (error.square() + spread.square()).sqrt()
        )
        # points that are alike have labels that are alike
        apart = probs[:, 0].mean(0)[:, None] * probs[:, 1].mean(0)
        assert (both.mean(0) - apart).diagonal().min() > 0.01


# ------------------------------------------------------------------ repeated points, no noise


@every_noisy_case
def test_repeated_points_are_as_good_as_any(name: str, generator: torch.Generator) -> None:
    head = make_head(name)
    features = make_examples(head, 1)[0].repeat(9, 1).requires_grad_()
    joint = head.joint(features)
    mean, epistemic, noise = explicit(head, features.detach())
    normal = MultivariateNormal(mean, epistemic + noise)
    target = torch.randn(9, K, generator=generator)
    torch.testing.assert_close(joint.log_prob(target), normal.log_prob(target.flatten()))
    draw = joint.sample((), generator, noise=False)
    torch.testing.assert_close(draw, draw[:1].expand_as(draw))
    values = (joint.log_prob(target), joint.entropy(), joint.mutual_information(), draw.sum())
    for value in values:
        (gradient,) = torch.autograd.grad(value, features, retain_graph=True)
        assert gradient.isfinite().all()


def test_repeated_points_tell_what_that_many_measurements_tell() -> None:
    head = make_head("regression-dense-diagonal-identity")
    features = make_examples(head, 1)[0]
    ratio = head.joint(features).epistemic_variance / head.joint(features).noise_variance
    for count in (1, 2, 9):
        information = head.joint(features.repeat(count, 1)).mutual_information()
        torch.testing.assert_close(information, 0.5 * (count * ratio).log1p().sum())


def test_without_noise_logits_have_a_density_at_fewer_points_than_weights(
    generator: torch.Generator,
) -> None:
    head = make_head("discriminative-low_rank-jensen-none")
    few, _ = make_examples(head, 4)
    mean, epistemic, _ = explicit(head, few)
    normal = MultivariateNormal(mean, epistemic)
    target = torch.randn(4, K, generator=generator)
    joint = head.joint(few)
    torch.testing.assert_close(joint.log_prob(target), normal.log_prob(target.flatten()))
    torch.testing.assert_close(joint.entropy(), normal.entropy())
    assert joint.mutual_information() == math.inf


def test_without_noise_more_points_than_weights_are_degenerate() -> None:
    head = make_head("discriminative-dense-jensen-none")
    features, _ = make_examples(head, 20)
    joint = head.joint(features)
    assert joint.log_prob(torch.zeros(20, K)) == -math.inf
    assert joint.entropy() == -math.inf
    assert joint.mutual_information() == math.inf
    assert joint.sample(3).isfinite().all()


@pytest.mark.parametrize("num_points", [5, 200])
def test_single_precision_keeps_its_digits_where_weights_are_far_more_uncertain_than_noise(
    num_points: int, generator: torch.Generator
) -> None:
    """The covariance has a condition number of 1e12, beyond what a Cholesky factor survives."""
    head = ll.Regression(30, 2, num_data=10, covariance="dense", prior=ll.Prior(variance=1e8))
    head.covariance.set_isotropic(1e8)
    head.noise.set_isotropic(1e-2)
    wide = torch.randn(num_points, 30, generator=generator)
    wide[1:3] = wide[0]
    target = head.joint(wide).sample((), generator).detach()
    narrow = ll.Regression(30, 2, num_data=10, covariance="dense", dtype=torch.float32)
    narrow.load_state_dict(head.state_dict())
    exact, joint = head.joint(wide), narrow.joint(wide.float())
    for name in ("entropy", "mutual_information"):
        actual, expected = getattr(joint, name)().double(), getattr(exact, name)()
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)
    assert joint.log_prob(target.float()).isfinite()


# ------------------------------------------------------------------------------- base samples


@every_family
def test_equal_base_samples_draw_the_same_function_at_other_points(
    name: str, generator: torch.Generator
) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 6)
    few, many = head.joint(features[2:4]), head.joint(features)
    base = torch.randn(5, *many.base_shape(noise=False), generator=generator)
    assert few.base_shape(noise=False) == many.base_shape(noise=False)
    values = many.sample_from(base, noise=False)
    torch.testing.assert_close(few.sample_from(base, noise=False), values[:, 2:4])


@every_family
def test_draws_are_differentiable_in_the_features(name: str, generator: torch.Generator) -> None:
    head = make_head(name)
    features = make_examples(head, 2, 3)[0].requires_grad_()
    base = torch.randn(4, *head.joint(features).base_shape(), generator=generator)
    assert torch.autograd.gradcheck(lambda x: head.joint(x).sample_from(base), (features,))


@pytest.mark.parametrize("name", [name for name in JOINTS if name in NOISY])
def test_density_and_information_are_differentiable(name: str) -> None:
    head = make_head(name)
    for num_points in (3, 9):
        features = make_examples(head, num_points)[0].requires_grad_()
        target = torch.randn(num_points, K)

        def values(features: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            joint = head.joint(features)
            return joint.log_prob(target), joint.entropy(), joint.mutual_information()

        assert torch.autograd.gradcheck(values, (features, target.requires_grad_()))


def test_base_samples_are_broadcast_over_leading_dimensions(generator: torch.Generator) -> None:
    for name in JOINTS:
        head = make_head(name)
        joint = head.joint(make_examples(head, 2, 3, 4)[0])
        base = torch.randn(5, 7, 1, 1, joint.base_shape()[-1], generator=generator)
        draws = joint.sample_from(base)
        assert draws.shape == (5, 7, 2, 3, 4, K)
        whole = joint.sample_from(base.expand(5, 7, *joint.base_shape()))
        torch.testing.assert_close(draws, whole)
        torch.testing.assert_close(joint[1, 2].sample_from(base[:, :, 0, 0]), draws[:, :, 1, 2])


def test_base_samples_of_another_size_are_refused() -> None:
    head = make_head(JOINTS[0])
    joint = head.joint(make_examples(head, 2, 3)[0])
    for shape in [(2, 5), (joint.base_shape(noise=False)), (joint.base_shape()[-1],)]:
        with pytest.raises(ValueError, match="base must end in"):
            joint.sample_from(torch.zeros(shape))
