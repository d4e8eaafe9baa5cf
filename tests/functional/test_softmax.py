"""Expectations of softmax against sampling."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical
from torch.profiler import profile

import lastlayer as ll
from lastlayer.functional import softmax_entropy, softmax_quick
from lastlayer.functional.softmax import expected_log_softmax
from tests.helpers.reference import sampled


def test_expected_softmax_is_the_same_in_parts(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = torch.randn(4, 3, 5, generator=generator, requires_grad=True)
    variance = torch.rand(5, generator=generator)
    whole = expected_log_softmax(mean, variance)
    expected = torch.autograd.grad(whole.square().sum(), mean)
    monkeypatch.setattr("lastlayer.functional.softmax.MOST_NODES", 5 * 32 * 5)
    parts = expected_log_softmax(mean, variance)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.autograd.grad(parts.square().sum(), mean), expected)


@pytest.mark.parametrize("num_classes", [2, 10, 100])
@pytest.mark.parametrize("variance", [0.0, 0.01, 1.0])
def test_expected_entropy_agrees_with_sampling(
    num_classes: int, variance: float, generator: torch.Generator
) -> None:
    mean = 2 * torch.randn(4, num_classes, generator=generator)
    variances = variance * torch.rand(4, num_classes, generator=generator)
    value = ll.functional.expected_entropy_of_softmax(mean, variances)

    def entropies(count: int) -> Tensor:
        logits = mean + variances.sqrt() * torch.randn(count, *mean.shape, generator=generator)
        return Categorical(logits=logits).entropy()

    truth, error = sampled(entropies, 20_000, 5_000)
    accuracy = 1e-4 if variance < 1 else 4e-3
    assert ((value - truth).abs() < 5 * error + accuracy).all()


# ------------------------------------------------------------------------------------ far tails

FAR = [  # means and variances of two logits
    ((-1000.0, 0.0), (1000.0, 1000.0)),
    ((-1000.0, 0.0), (1.0, 1.0)),
    ((-1000.0, 0.0), (1e4, 1.0)),
    ((-1000.0, 0.0), (0.0, 1000.0)),
    ((-1000.0, 0.0), (1000.0, 0.0)),
    ((-100.0, 0.0), (0.0, 0.0)),
    ((-1e4, 0.0), (1e6, 1.0)),
    ((-1e5, 0.0), (1000.0, 1000.0)),
    ((-200.0, 0.0), (100.0, 100.0)),
    ((-60.0, 0.0), (30.0, 30.0)),
    ((-80.0, 0.0), (40.0, 5.0)),
]


def log_mean_sigmoid(mean: float, variance: float) -> float:
    """log E σ(d) of d ~ N(mean, variance), by a fine trapezoid rule in logarithms."""
    score = torch.linspace(-80, 80, 400_001)
    terms = F.logsigmoid(mean + math.sqrt(variance) * score) - score.square() / 2
    step = float(score[1] - score[0])
    return float(terms.logsumexp(0)) + math.log(step / math.sqrt(2 * math.pi))


def log_probs_by_integration(mean: Tensor, variance: Tensor) -> Tensor:
    """log ∫ f_k Π F_j dt, each F and f by a trapezoid rule over the Gaussian, in logarithms."""
    score = torch.linspace(-45, 45, 1501)
    normal = -score.square() / 2 + math.log(float(score[1] - score[0]) / math.sqrt(2 * math.pi))
    width = variance.sqrt().amax()
    points = torch.linspace(
        float(mean.amin() - 3 * width), float(mean.amax() + 8 * width + 20), 1500
    )
    cdfs, densities = [], []
    for center, spread in zip(mean, variance.sqrt(), strict=True):
        gumbel = points.unsqueeze(-1) - center - spread * score
        log_cdf = -(-gumbel).clamp(max=700).exp()
        cdfs.append((normal + log_cdf).logsumexp(-1))
        densities.append((normal + log_cdf - gumbel).logsumexp(-1))
    cdf, density = torch.stack(cdfs), torch.stack(densities)  # (K, points)
    terms = density + cdf.sum(0) - cdf
    return terms.logsumexp(-1) + math.log(float(points[1] - points[0]))


def assert_honest(found: Tensor, truth: Tensor) -> None:
    """Right, or too small by little: never too large."""
    assert (found <= truth + 0.005 + 1e-5 * truth.abs()).all()
    assert (found >= truth - 0.5 - 0.02 * truth.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("mean", "variance"), FAR)
def test_log_probabilities_of_two_classes_far_apart_are_right_or_too_small(
    mean: tuple[float, float], variance: tuple[float, float], dtype: torch.dtype
) -> None:
    difference = mean[0] - mean[1]
    truth = [log_mean_sigmoid(sign * difference, sum(variance)) for sign in (1, -1)]
    found = expected_log_softmax(
        torch.tensor(mean, dtype=dtype), torch.tensor(variance, dtype=dtype)
    )
    assert_honest(found.double(), torch.tensor(truth))


@pytest.mark.parametrize("num_classes", [3, 10, 20])
@pytest.mark.parametrize(("size", "variance"), [(60.0, 100.0), (300.0, 1000.0), (100.0, 1.0)])
def test_log_probabilities_of_many_classes_far_apart_are_right_or_too_small(
    num_classes: int, size: float, variance: float, generator: torch.Generator
) -> None:
    mean = size * torch.randn(num_classes, generator=generator)
    variances = variance * (0.1 + torch.rand(num_classes, generator=generator))
    assert_honest(expected_log_softmax(mean, variances), log_probs_by_integration(mean, variances))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_probabilities_far_apart_have_finite_gradients(dtype: torch.dtype) -> None:
    mean, variance = torch.tensor(FAR, dtype=dtype).unbind(1)
    mean.requires_grad_()
    variance.requires_grad_()
    found = expected_log_softmax(mean, variance)
    for gradient in torch.autograd.grad(found.sum(), [mean, variance]):
        assert gradient.isfinite().all()
    behind = torch.autograd.grad(expected_log_softmax(mean, variance)[:, 0].sum(), mean)[0]
    assert (behind[:, 0] > 0).all()
    assert (behind[:, 1] < 0).all()


def test_log_probabilities_far_apart_are_the_same_compiled_and_mapped() -> None:
    mean, variance = torch.tensor(FAR).unbind(1)
    expected = expected_log_softmax(mean, variance)
    compiled = torch.compile(expected_log_softmax, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(mean, variance), expected)
    mapped = torch.func.vmap(expected_log_softmax)(mean, variance)
    torch.testing.assert_close(mapped, expected)
    torch._dynamo.reset()


def test_probabilities_are_those_of_the_log_probabilities(generator: torch.Generator) -> None:
    mean = 30 * torch.randn(50, 7, generator=generator)
    variance = 100 * torch.rand(50, 7, generator=generator)
    probs = ll.functional.expected_softmax(mean, variance)
    found = expected_log_softmax(mean, variance).exp()
    torch.testing.assert_close(found, probs, rtol=0, atol=2e-4)
    likely = mean / 20, variance / 100  # no tails to compute in another way
    probs = ll.functional.expected_softmax(*likely)
    torch.testing.assert_close(expected_log_softmax(*likely), probs.log(), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------- the quick rule


def grid_of_logits(generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Means and variances like those of benchmarks/softmax.py."""
    cases = []
    for num_classes in (2, 3, 10, 30, 100):
        for spread in (0.5, 2.0, 5.0, 10.0):
            for centre in (0.01, 0.1, 1.0, 10.0, 100.0):
                for decades in (0.0, 3.0):
                    mean = spread * torch.randn(5, num_classes, generator=generator)
                    place = torch.rand(5, num_classes, generator=generator) - 0.5
                    cases.append((mean, centre * 10 ** (decades * place)))
    return cases


def test_quick_probabilities_are_off_by_few_ten_thousandths_on_average(
    generator: torch.Generator,
) -> None:
    absolute, lost = [], []
    for mean, variance in grid_of_logits(generator):
        truth = ll.functional.expected_softmax(mean, variance, num_nodes=100)
        probs = ll.functional.expected_softmax(mean.float(), variance.float()).double()
        absolute.append((probs - truth).abs().flatten())
        terms = truth * (truth.clamp_min(1e-30).log() - probs.clamp_min(1e-30).log())
        lost.append(terms.sum(-1))
    assert torch.cat(absolute).mean() < 2e-4
    assert torch.cat(absolute).max() < 0.05
    assert torch.cat(lost).mean() < 2e-4  # nats


def by_trapezoid(value: Tensor, variance: float) -> tuple[Tensor, Tensor]:
    """Distribution function and density of N(0, variance) + Gumbel."""
    score = torch.linspace(-9, 9, 601)
    weight = (-score.square() / 2).softmax(-1)
    power = (math.sqrt(variance) * score - value).clamp(max=700).exp()
    cdf = (weight * (-power).exp()).sum(-1, keepdim=True)
    return cdf, (weight * (-power).exp() * power).sum(-1, keepdim=True)


VARIANCES = [0.0, 0.03, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0]


@pytest.mark.parametrize("variance", VARIANCES)
def test_fitted_exponents_are_those_of_a_normal_and_a_gumbel_variable(variance: float) -> None:
    classes = softmax_entropy.exponents_of(torch.zeros(1), torch.tensor([variance]))
    value = torch.linspace(-3, 6, 200).unsqueeze(-1) * math.sqrt(1 + variance)
    exponent, hazard = softmax_entropy.exponents(classes, value)
    cdf, density = by_trapezoid(value, variance)
    torch.testing.assert_close((-exponent).exp(), cdf, rtol=0, atol=2e-3)
    scaled = math.sqrt(1 + variance) * (hazard * (-exponent).exp() - density)
    assert scaled.abs().max() < 1e-2


@pytest.mark.parametrize("variance", VARIANCES)
def test_fitted_cubics_are_those_of_a_normal_and_a_gumbel_variable(variance: float) -> None:
    mean, variances = torch.zeros(1, 2), torch.full((1, 2), variance)
    constants = softmax_quick._constants(2, mean.dtype, mean.device)
    classes = softmax_quick._classes(mean, variances, constants, softmax_quick.NONE)
    value = torch.linspace(-1.5, 6, 200).unsqueeze(-1) * math.sqrt(1 + variance)
    nodes = value.unsqueeze(-1) - softmax_entropy.EULER
    exponent = softmax_quick._exponents(classes, nodes, softmax_quick.NONE)[1][..., 0]
    exponent = exponent * math.exp(-softmax_entropy.EULER)
    torch.testing.assert_close(
        (-exponent).exp(), by_trapezoid(value, variance)[0], rtol=0, atol=0.02
    )
    assert (exponent.diff(dim=0) < 0).all()


def test_the_mean_share_of_a_class_is_its_probability() -> None:
    """E softmax = E[A_k/S] where S has the Gamma(2) distribution, by brute force."""
    mean, variance = torch.tensor([0.0, 1.0, -2.0]), torch.tensor([4.0, 0.5, 9.0])
    value = torch.linspace(-20, 60, 8001).unsqueeze(-1)
    exponents = []
    for center, spread in zip(mean, variance, strict=True):
        cdf, _ = by_trapezoid(value - center, float(spread))
        exponents.append(-cdf.squeeze(-1).clamp_min(1e-300).log())
    exponent = torch.stack(exponents)
    total = exponent.sum(0)
    density = total * (-total).exp()
    steps = (total[:-1] - total[1:]).clamp_min(0)
    shares = (exponent / total.clamp_min(1e-300)) * density
    found = ((shares[:, 1:] + shares[:, :-1]) / 2 * steps).sum(-1)
    truth = ll.functional.expected_softmax(mean, variance, num_nodes=200)
    torch.testing.assert_close(found, truth, rtol=0, atol=3e-4)


@pytest.mark.parametrize("shift", [-0.2, 0.0, 0.2])
def test_weights_integrate_cubics_to_first_order_in_where_nodes_are(shift: float) -> None:
    constants = softmax_quick._constants(10, torch.float64, torch.device("cpu"))
    for index in range(4):
        nodes = constants.nodes.flatten().clone()
        nodes[index] += 1e-3 * shift
        weights = constants.weights.squeeze(-1) + constants.slopes @ nodes
        value = torch.linspace(-40, 6, 20_001)
        density = (2 * value - value.exp()).softmax(-1)
        for power in range(4):
            expected = (density * value**power).sum()
            found = (weights * (nodes - softmax_entropy.EULER) ** power).sum()
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * abs(shift) + 1e-7)


def test_quick_probabilities_are_exact_without_variance(generator: torch.Generator) -> None:
    mean = 20 * torch.randn(50, 7, generator=generator)
    probs = ll.functional.expected_softmax(mean, torch.zeros_like(mean))
    torch.testing.assert_close(probs, mean.softmax(-1))
    entropy = ll.functional.expected_entropy_of_softmax(mean, torch.zeros_like(mean))
    torch.testing.assert_close(entropy, Categorical(logits=mean).entropy())


def test_quick_rules_are_the_same_compiled_mapped_and_in_parts(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean, variance = 3 * torch.randn(6, 5, generator=generator), torch.rand(6, 5)
    for rule in (ll.functional.expected_softmax, ll.functional.expected_entropy_of_softmax):
        expected = rule(mean, variance)
        compiled = torch.compile(rule, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(mean, variance), expected)
        torch.testing.assert_close(torch.func.vmap(rule)(mean, variance), expected)
        with torch.no_grad():
            torch.testing.assert_close(rule(mean, variance), expected)
            torch.testing.assert_close(torch.func.vmap(rule)(mean, variance), expected)
        with monkeypatch.context() as patched:
            patched.setattr(softmax_quick, "LOGITS_AT_ONCE", 10)
            patched.setattr(softmax_quick, "FEWEST_IN_PARTS", 10)
            patched.setattr(softmax_entropy, "LOGITS_AT_ONCE", 10)
            torch.testing.assert_close(rule(mean, variance), expected)
            with torch.no_grad():
                torch.testing.assert_close(rule(mean, variance), expected)
    torch._dynamo.reset()


def test_quick_rules_have_finite_gradients_that_are_those_of_the_accurate_rule(
    generator: torch.Generator,
) -> None:
    mean = (2 * torch.randn(20, 5, generator=generator)).requires_grad_()
    variance = (2 * torch.rand(20, 5, generator=generator)).requires_grad_()
    slopes = torch.randn(20, 5, generator=generator)
    quick, accurate = (
        torch.autograd.grad(
            (slopes * ll.functional.expected_softmax(mean, variance, num_nodes)).sum(),
            [mean, variance],
        )
        for num_nodes in (None, 64)
    )
    for found, expected in zip(quick, accurate, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)
    far, wide = torch.tensor(FAR).unbind(1)
    leaves = far.requires_grad_(), wide.requires_grad_()
    for rule in (ll.functional.expected_softmax, ll.functional.expected_entropy_of_softmax):
        for gradient in torch.autograd.grad(rule(*leaves).square().sum(), leaves):
            assert gradient.isfinite().all()


def test_log_probability_of_labels_is_that_among_all(generator: torch.Generator) -> None:
    mean, variance = torch.tensor(FAR).unbind(1)
    log_probs = expected_log_softmax(mean, variance)
    for label in (0, 1):
        labels = torch.full((len(FAR), 1), label)
        found = expected_log_softmax(mean, variance, classes=labels)
        torch.testing.assert_close(found, log_probs[:, label : label + 1])


def test_probabilities_of_many_classes_take_little_memory(generator: torch.Generator) -> None:
    mean = torch.randn(4, 32_000, generator=generator, dtype=torch.float32)
    variance = torch.rand(4, 32_000, generator=generator, dtype=torch.float32)
    with torch.no_grad(), profile(profile_memory=True) as profiled:
        ll.functional.expected_softmax(mean.repeat(16, 1), variance.repeat(16, 1))
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    assert peak < 8 * 16 * mean.numel() * 4  # logits, mean and variance repeated among them


def test_probabilities_under_autocast_are_in_full_precision(generator: torch.Generator) -> None:
    mean = torch.randn(40, 6, generator=generator, dtype=torch.float32)
    variance = torch.rand(40, 6, generator=generator, dtype=torch.float32)
    expected = ll.functional.expected_softmax(mean, variance)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ll.functional.expected_softmax(mean, variance)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_probabilities_first_computed_in_inference_mode_have_gradients_later() -> None:
    mean, variance = torch.zeros(2, 13), torch.ones(2, 13)  # a number of classes not yet met
    with torch.inference_mode():
        ll.functional.expected_softmax(mean, variance)
    mean.requires_grad_()
    ll.functional.expected_softmax(mean, variance)[0, 0].backward()
    assert mean.grad is not None
    assert mean.grad[0, 0] > 0


@pytest.mark.parametrize("shape", [(0, 5), (5,), (2, 3, 5)])
def test_probabilities_have_any_batch_shape(shape: tuple[int, ...]) -> None:
    probs = ll.functional.expected_softmax(torch.zeros(shape), torch.ones(5))
    torch.testing.assert_close(probs, torch.full(shape, 0.2))
