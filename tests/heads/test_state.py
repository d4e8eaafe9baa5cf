"""What a head remembers survives `state_dict`: the mean of its prior, projection, newness."""

import copy
import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.utils import parametrizations, parametrize, prune

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from tests.helpers.cases import CASES, NUM_FEATURES, make_examples, make_head
from tests.helpers.reference import dense_covariance

N, K, T = 4, 2, 30
HEADS = ["regression-shared-diagonal-identity", "discriminative-dense-jensen-diagonal"]
HEADS += ["generative-diagonal-diagonal", "generative-low_rank-dense"]


def data(generator: torch.Generator, num_outputs: int = K) -> tuple[Tensor, Tensor]:
    features = torch.randn(T, N, generator=generator)
    return features, torch.randn(T, num_outputs, generator=generator)


def regression(**options: Any) -> ll.Regression:
    return ll.Regression(N, K, num_data=T, **options)


# ----------------------------------------------------------------------- the mean of the prior


@pytest.mark.parametrize("name", HEADS)
def test_kl_is_that_of_normals_about_the_mean_of_the_prior(
    name: str, generator: torch.Generator
) -> None:
    head = make_head(name)
    head.prior_mean = torch.randn(head.mean.shape, generator=generator)
    basis = getattr(head.noise, "to_basis", lambda values: values)
    if not isinstance(head, ll.GenerativeClassification):
        basis = torch.clone
    posterior = MultivariateNormal(basis(head.mean), dense_covariance(head.covariance))
    prior = MultivariateNormal(
        basis(head.prior_mean), head.prior.fixed_variance * torch.eye(NUM_FEATURES)
    )
    kl = head.elbo(*make_examples(head, 5)).kl
    torch.testing.assert_close(kl, kl_divergence(posterior, prior).sum())


@pytest.mark.parametrize("options", [{}, {"noise": "dense"}, {"row_covariance": "noise"}])
@pytest.mark.parametrize("covariance", ["shared", "dense"])
def test_regression_about_a_prior_mean_is_regression_of_what_that_leaves(
    options: dict[str, Any], covariance: str, generator: torch.Generator
) -> None:
    if options.get("noise") == "dense" and covariance == "dense":
        options = {**options, "row_covariance": "identity"}
    features, target = data(generator)
    prior_mean = 5 * torch.randn(K, N, generator=generator)
    about = regression(covariance=covariance, **options)
    about.prior_mean = prior_mean
    plain = regression(covariance=covariance, **options)
    about.fit_exact(features[:20], target[:20], estimate_noise=True)
    plain.fit_exact(features[:20], target[:20] - features[:20] @ prior_mean.mT, estimate_noise=True)
    for forgetting in (1.0, 0.7):
        torch.testing.assert_close(about.mean, prior_mean + plain.mean)
        torch.testing.assert_close(about.covariance.dense(), plain.covariance.dense())
        torch.testing.assert_close(about.noise.covariance(), plain.noise.covariance())
        rest = target[20:] - features[20:] @ prior_mean.mT
        about.update(features[20:], target[20:], forgetting=forgetting)
        plain.update(features[20:], rest, forgetting=forgetting)
    for _ in range(80):
        about.update(features[:0], target[:0], forgetting=0.5)
    torch.testing.assert_close(about.mean, prior_mean)


@pytest.mark.parametrize("noise", ["diagonal", "dense"])
def test_classes_about_a_prior_mean_are_classes_of_shifted_features(
    noise: Any, generator: torch.Generator
) -> None:
    """With one prior mean for all classes, shifting the features by it changes nothing else."""
    features, labels = data(generator)[0], torch.arange(T) % K
    shift = 3 * torch.randn(N, generator=generator)
    about, plain = (ll.GenerativeClassification(N, K, num_data=T, noise=noise) for _ in range(2))
    about.prior_mean = shift.expand(K, N)
    about.fit_exact(features + shift, labels, estimate_noise=True)
    plain.fit_exact(features, labels, estimate_noise=True)
    about.update(features + shift, labels, forgetting=0.6)
    plain.update(features, labels, forgetting=0.6)
    torch.testing.assert_close(about.mean, plain.mean + shift)
    torch.testing.assert_close(about.covariance.dense(), plain.covariance.dense())
    torch.testing.assert_close(about(features + shift).log_joint, plain(features).log_joint)


def test_the_solver_finds_the_optimum_about_a_prior_mean(generator: torch.Generator) -> None:
    features, labels = data(generator)[0], torch.arange(T) % 3
    head = ll.DiscriminativeClassification(N, 3, num_data=T)
    head.prior_mean = torch.randn(3, N, generator=generator)
    head.fit_features(features, labels, tolerance=1e-13, max_passes=300)
    for gradient in torch.autograd.grad(head(features, labels), list(head.parameters())):
        assert gradient.abs().max() < 1e-5


def test_a_head_is_initialised_about_the_mean_of_its_prior() -> None:
    head = ll.Regression(400, 2, num_data=T, bias=True, prior=ll.Prior(variance=1e8))
    head.prior_mean = torch.full_like(head.mean, 1000.0)
    head.reset_parameters()
    assert (head.mean - 1000).abs().max() < 1
    target = 1000 + 0.1 * torch.randn(T, 2)
    head.prepare([(target, None)], new=True, total=torch.clone)
    assert (head.mean - 1000).abs().max() < 0.1  # a tenth of the targets' scale about the bias
    assert head.noise.variance().max() < 1
    head.initialize(torch.zeros(T, 400), target)
    assert head.noise.variance().max() < 1
    assert head.fresh


@pytest.mark.parametrize("assign", [False, True])
def test_a_prior_mean_or_its_absence_is_part_of_the_state(assign: bool) -> None:
    with_mean, without = regression(), regression()
    with_mean.prior_mean = torch.randn(K, N)
    assert with_mean.state_dict().keys() - without.state_dict().keys() == {"prior_mean"}
    for source, target in itertools.product((with_mean, without), repeat=2):
        loaded = copy.deepcopy(target)
        loaded.load_state_dict(source.state_dict(), assign=assign)
        if source.prior_mean is None:
            assert loaded.prior_mean is None
        else:
            assert loaded.prior_mean is not None
            assert torch.equal(loaded.prior_mean, source.prior_mean)
    network = ll.Network(nn.Linear(3, N), regression())
    network.load_state_dict(ll.Network(nn.Linear(3, N), with_mean).state_dict())
    assert network.head.prior_mean is not None
    network.load_state_dict({}, strict=False)  # says nothing of the head
    assert network.head.prior_mean is not None
    assert network.float().head.state_dict()["prior_mean"].dtype == torch.float32
    with pytest.raises(ValueError, match=r"shape of the mean, \(2, 4\), got \(4,\)"):
        without.prior_mean = torch.zeros(N)


# --------------------------------------------------------------------------------- projection


def test_a_load_that_fails_leaves_no_prior_mean_of_arbitrary_values() -> None:
    head, other = regression(), ll.Regression(N, K + 1, num_data=T)
    other.prior_mean = torch.ones_like(other.mean)
    with torch.no_grad(), pytest.raises(RuntimeError, match="size mismatch"):
        head.load_state_dict(other.state_dict())
    assert head.prior_mean is None or not head.prior_mean.any()


def test_whether_a_fit_was_projected_is_part_of_the_state(generator: torch.Generator) -> None:
    features, target = data(generator)
    weight = torch.rand(T, K, generator=generator)
    projected, exact = regression(), regression()
    projected.fit_exact(features, target, weight)
    exact.fit_exact(features, target)
    loaded = regression()
    loaded.load_state_dict(projected.state_dict())
    with pytest.raises(ValueError, match="covariance='dense'"):
        loaded.update(features, target)
    loaded.load_state_dict(exact.state_dict())
    loaded.update(features, target)  # and now it may
    assert bool(copy.deepcopy(projected).projected)
    projected.reset_parameters()
    projected.update(features, target)


# ----------------------------------------------------------------------------------- newness


@pytest.mark.parametrize("name", CASES)
def test_any_change_of_the_mean_or_the_covariance_shows(
    name: str, generator: torch.Generator
) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        head = CASES[name]().to(dtype)
        state = copy.deepcopy(head.state_dict())
        mean = head.mean.detach().clone()
        order = torch.randperm(mean.numel(), generator=generator)
        changes = {
            "permuted": mean.flatten()[order].view_as(mean),
            "negated": -mean,  # as many signs as there are values, an even number
            "two signs": mean * torch.tensor([-1.0, -1.0] + [1.0] * (mean.shape[1] - 2)).to(mean),
            "rows exchanged": mean.flip(0),
            "antisymmetric": mean
            + torch.tensor([1.0, -1.0]).repeat(mean.numel())[: mean.numel()].view_as(mean).to(mean),
            "one last bit": mean.clone(),
        }
        integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[mean.element_size()]
        changes["one last bit"].view(integer)[0, 0] ^= 1
        for change, values in changes.items():
            with torch.no_grad():
                head.mean.copy_(values)
            assert not head.fresh, change
            head.load_state_dict(state)
            assert head.fresh
        parameter = next(head.covariance.parameters())
        with torch.no_grad():
            parameter.view(integer).flatten()[-1] ^= 1
        assert not head.fresh


@pytest.mark.parametrize("name", HEADS)
def test_a_new_heads_state_makes_any_head_new(name: str) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for own in (torch.float64, torch.float32, torch.bfloat16):
            new, other = CASES[name]().to(dtype), make_head(name).to(own)
            assert not other.fresh
            other.load_state_dict(new.state_dict())
            assert other.fresh, (dtype, own)
            assert copy.deepcopy(other).fresh
            other.load_state_dict(make_head(name).state_dict())
            assert not other.fresh
            network = ll.Network(nn.Linear(2, NUM_FEATURES, dtype=own), other)
            network.load_state_dict(ll.Network(nn.Linear(2, NUM_FEATURES), new).state_dict())
            assert network.head.fresh
    assigned = CASES[name](device="meta")
    assert not assigned.fresh
    assigned.load_state_dict(CASES[name]().float().state_dict(), assign=True)
    assert assigned.fresh


@pytest.mark.parametrize("covariance", ["shared", "dense"])
@pytest.mark.parametrize("bias", [False, True])
def test_updating_a_loaded_new_head_equals_fitting(
    covariance: Any, bias: bool, generator: torch.Generator
) -> None:
    features, target = data(generator)
    for seed in range(5):
        torch.manual_seed(seed)
        loaded, fitted = (regression(covariance=covariance, bias=bias) for _ in range(2))
        loaded.load_state_dict(regression(covariance=covariance, bias=bias).state_dict())
        loaded.update(features, target)
        fitted.fit_exact(features, target)
        torch.testing.assert_close(loaded.mean, fitted.mean)
        torch.testing.assert_close(loaded.covariance.dense(), fitted.covariance.dense())


def test_a_head_that_was_fitted_or_updated_is_not_new(generator: torch.Generator) -> None:
    features, target = data(generator)
    fitted, updated = regression(), regression()
    fitted.fit_exact(features, target)
    updated.update(features[:0], target[:0])  # nothing was learnt, but it is at its prior now
    assert not fitted.fresh
    assert not updated.fresh
    torch.testing.assert_close(updated.mean, torch.zeros(K, N))


def test_a_state_without_memory_of_newness_is_of_a_head_that_is_not_new() -> None:
    """As was written before heads remembered."""
    state = regression().state_dict()
    old = {name: state[name] for name in state if name not in ("initial_digest", "projected")}
    head = regression()
    head.load_state_dict(old)
    assert not head.fresh
    generative = ll.GenerativeClassification(N, K, num_data=T)
    generative.observe(torch.tensor([1]))
    before = {name: value for name, value in generative.state_dict().items() if name != "observed"}
    other = ll.GenerativeClassification(N, K, num_data=T)
    other.load_state_dict(before)
    assert other.observed.tolist() == [False, True]


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_heads_without_values_are_not_new_and_may_be_moved(covariance: Any) -> None:
    head = regression(covariance=covariance, device="meta")
    assert not head.fresh
    assert not head.float().fresh
    with FakeTensorMode():
        fake = regression(covariance=covariance)
        assert not fake.fresh


# --------------------------------------------------------------------- parametrised parameters


def weight_norm(head: Any) -> None:
    parametrizations.weight_norm(head, "mean")


def weight_norm_by_hooks(head: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(head, "mean")


def pruned(head: Any) -> None:
    prune.l1_unstructured(head, "mean", 0.5)


def parametrized_covariance(head: Any) -> None:
    name, _ = next(head.covariance.named_parameters())
    owner, _, own = name.rpartition(".")
    part = head.covariance.get_submodule(owner)
    parametrize.register_parametrization(part, own, nn.Identity())


WAYS = [weight_norm, weight_norm_by_hooks, pruned, parametrized_covariance]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_exact_fits_of_parametrised_parameters_are_refused(
    way: Any, generator: torch.Generator
) -> None:
    features, target = data(generator)
    labels, layer = torch.arange(T) % K, nn.Linear(N, K)
    for make, values in (
        (ll.Regression, target),
        (ll.GenerativeClassification, labels),
        (ll.DiscriminativeClassification, labels),
    ):
        head: Any = make(N, K, num_data=T)
        way(head)
        calls: list[Any] = [lambda h=head, v=values: h.fit_features(features, v)]
        if make is not ll.GenerativeClassification:
            calls.append(lambda h=head: h.start_from(layer))
        if make is not ll.DiscriminativeClassification:
            calls.append(lambda h=head, v=values: h.fit_exact(features, v))
            calls.append(lambda h=head, v=values: h.update(features, v))
        for call in calls:
            with pytest.raises(TypeError, match=r"is parametrised.*remove"):
                call()
        head(features, values).backward()  # while training goes on as ever
