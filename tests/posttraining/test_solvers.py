"""The solver for discriminative heads: never uphill, and at the optimum in a few passes."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from lastlayer.heads import _solver
from lastlayer.posttraining import fit_discriminative

T, N, K = 300, 5, 4


def make_data(generator: torch.Generator, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Features of unequal size, and labels that they explain more or less."""
    features = torch.randn(T, N, generator=generator) * torch.logspace(-1, 0.5, N)
    logits = scale * features @ torch.randn(N, K, generator=generator)
    return features, torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def make_head(**options: Any) -> ll.DiscriminativeClassification:
    torch.manual_seed(0)
    return ll.DiscriminativeClassification(N, K, **{"num_data": T, "bias": True, **options})


def optimum(head: ll.Head, *data: Tensor, steps: int = 600) -> float:
    """The loss after a long optimisation by torch's L-BFGS, from the head's own start."""
    head = copy.deepcopy(head)
    optimizer = torch.optim.LBFGS(
        head.parameters(),
        max_iter=steps,
        history_size=50,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = head(*data)
        loss.backward()
        return loss

    optimizer.step(closure)
    return head(*data).item()


@pytest.mark.slow
@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("bound", ["jensen", "tilted"])
def test_twenty_passes_come_within_a_thousandth_of_the_optimum(
    covariance: str, bound: str, generator: torch.Generator
) -> None:
    data = make_data(generator)
    head = make_head(covariance=covariance, bound=bound)
    best = optimum(head, *data)
    losses = fit_discriminative(head, *data, max_passes=20)
    assert head(*data).item() == pytest.approx(losses[-1], abs=1e-9)
    assert losses[-1] < best + 1e-3


@pytest.mark.parametrize("covariance", ["dense", "diagonal", "shared"])
@pytest.mark.parametrize("kind", ["joint", "blocks"])
def test_the_gradient_vanishes_where_it_stops(
    covariance: str, kind: str, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_solver, "MAX_JOINT_WEIGHTS", 1000 if kind == "joint" else 0)
    data = make_data(generator)
    head = make_head(covariance=covariance)
    fit_discriminative(head, *data, tolerance=1e-13, max_passes=500)
    gradients = torch.autograd.grad(head(*data), list(head.parameters()))
    assert max(gradient.abs().max().item() for gradient in gradients) < 1e-5
    assert head(*data).item() == pytest.approx(optimum(head, *data), abs=1e-8)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("options", [{}, {"covariance": "diagonal", "noise": "none"}])
def test_the_loss_never_rises_from_pass_to_pass(
    scale: float, options: dict[str, Any], generator: torch.Generator
) -> None:
    data = make_data(generator, scale)
    losses = []
    for num_passes in range(1, 12):
        head = make_head(**options)
        head.mean.data.mul_(30)  # a bad start
        reported = fit_discriminative(head, *data, max_passes=num_passes, tolerance=1e-12)
        assert len(reported) <= num_passes
        losses.append(head(*data).item())
        assert reported[-1] == pytest.approx(losses[-1], abs=1e-9)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 0.1


def test_weights_tempering_and_another_number_of_data_are_those_of_the_loss(
    generator: torch.Generator,
) -> None:
    features, target = make_data(generator)
    weight = torch.rand(T, generator=generator) * (torch.rand(T, generator=generator) > 0.3)
    target = target.where(weight != 0, -1)  # ignored, whatever it is
    prior = ll.Prior(variance=3.0, noise_dof=2.0, noise_scale=0.4, kl_weight=0.3)
    head = make_head(prior=prior, num_data=2 * T)
    best = optimum(head, features, target, weight)
    losses = fit_discriminative(head, features, target, weight, tolerance=1e-10, max_passes=300)
    assert head(features, target, weight).item() == pytest.approx(losses[-1], abs=1e-9)
    assert losses[-1] == pytest.approx(best, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["dense", "low_rank"])
def test_without_memory_for_matrices_it_still_descends(
    covariance: str, generator: torch.Generator
) -> None:
    data = make_data(generator, 1.0)
    head = make_head(covariance=covariance)
    best, start = optimum(head, *data), head(*data).item()
    losses = fit_discriminative(head, *data, max_memory_bytes=1, max_passes=200)
    assert len(losses) <= 200
    assert all(after <= before for before, after in itertools.pairwise(losses))
    assert head(*data).item() == pytest.approx(losses[-1], abs=1e-9)
    assert losses[-1] < best + 0.02 * (start - best)


def test_a_common_curvature_serves_covariances_without_matrices(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(generator)
    head = make_head(covariance="diagonal")
    best = optimum(head, *data)
    monkeypatch.setattr(_solver, "MAX_JOINT_WEIGHTS", 0)
    losses = fit_discriminative(head, *data, max_memory_bytes=1, max_passes=60)
    assert losses[-1] < best + 1e-3


def test_hostile_data_gives_an_answer_or_a_clear_error(generator: torch.Generator) -> None:
    features, target = make_data(generator)
    for hostile in (features * 1e6, features * 1e-6, features * 0, features[:, :1].expand(T, N)):
        head = make_head()
        before = head(hostile, target).item()
        losses = fit_discriminative(head, hostile, target)
        assert losses[-1] <= before
        assert all(parameter.isfinite().all() for parameter in head.parameters())
    one_class = make_head()
    fit_discriminative(one_class, features, torch.zeros(T).long())
    assert (one_class(features).probs()[:, 0] > 0.9).all()
    one_example = make_head(num_data=1)
    fit_discriminative(one_example, features[0], target[0])
    with pytest.raises(ValueError, match="NaN or infinite"):
        fit_discriminative(make_head(), features * float("nan"), target)
    with pytest.raises(ValueError, match="at least one example"):
        fit_discriminative(make_head(), features[:0], target[:0])
    with pytest.raises(ValueError, match="at least one example"):
        fit_discriminative(make_head(), features[:, :2], target)
    with pytest.raises(TypeError, match="labels must be integers"):
        fit_discriminative(make_head(), features, target.double())
    with pytest.raises(ValueError, match="not negative"):
        fit_discriminative(make_head(), features, target, -torch.ones(T))
    with pytest.raises(ValueError, match="max_passes"):
        fit_discriminative(make_head(), features, target, max_passes=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("covariance", "bound", "noise"),
    [  # low rank, the slowest, once
        *((covariance, "jensen", "diagonal") for covariance in COVARIANCES),
        *((covariance, "tilted", "none") for covariance in COVARIANCES if covariance != "low_rank"),
    ],
)
def test_alternating_steps_find_the_optimum_too(
    covariance: str,
    bound: str,
    noise: str,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_solver, "MAX_JOINT_WEIGHTS", 0)
    data = make_data(generator)
    head = make_head(covariance=covariance, bound=bound, noise=noise)
    best = optimum(head, *data)
    losses = fit_discriminative(head, *data, tolerance=1e-9, max_passes=200)
    assert head(*data).item() == pytest.approx(losses[-1], abs=1e-9)
    assert losses[-1] < best + 1e-5
    assert all(after <= before for before, after in itertools.pairwise(losses))


def test_alternating_steps_count_weights_tempering_and_the_number_of_data(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_solver, "MAX_JOINT_WEIGHTS", 0)
    features, target = make_data(generator)
    weight = torch.rand(T, generator=generator).round()
    prior = ll.Prior(variance=0.3, bias_variance=2.0, kl_weight=0.5)
    head = make_head(num_data=2 * T, prior=prior, covariance="kronecker")
    head.prior_mean = torch.randn(K, N + 1, generator=generator)
    fit_discriminative(head, features, target, weight, tolerance=1e-13, max_passes=500)
    loss = head(features, target, weight)
    for gradient in torch.autograd.grad(loss, list(head.parameters())):
        assert gradient.abs().max() < 1e-5


def test_alternating_steps_learn_the_variance_of_the_prior(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_solver, "MAX_JOINT_WEIGHTS", 0)
    data = make_data(generator)
    head = make_head(prior=ll.Prior(variance="evidence"), bound="tilted")
    fit_discriminative(head, *data, tolerance=1e-13, max_passes=500)
    for gradient in torch.autograd.grad(head(*data), list(head.parameters())):
        assert gradient.abs().max() < 1e-5
