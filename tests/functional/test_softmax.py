"""Expectations of softmax against sampling."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

import lastlayer as ll
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
