"""One observed output per example: the loss of weights that are zero for the others, for less."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from tests.helpers.reference import randomize

N, K, B = 4, 5, 30


def problem(
    generator: torch.Generator, *shape: int, num_features: int = N
) -> tuple[Tensor, Tensor, Tensor]:
    """Features, values of one output each, and which; output 3 of five is never observed."""
    output = torch.tensor([0, 1, 2, 4])[torch.randint(4, shape, generator=generator)]
    features = torch.randn(*shape, num_features, generator=generator)
    return features, torch.randn(shape, generator=generator), output


def made(generator: torch.Generator, num_features: int = N, **options: Any) -> ll.Regression:
    head = ll.Regression(num_features, K, num_data=B, **options)
    randomize(head, generator)
    return head


@pytest.mark.parametrize("row_covariance", ["identity", "noise"])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_loss_and_gradient_are_those_of_weights_that_are_zero_for_the_others(
    covariance: str, row_covariance: str, generator: torch.Generator
) -> None:
    head = made(generator, covariance=covariance, row_covariance=row_covariance, bias=True)
    features, value, output = problem(generator, 2, B)
    features.requires_grad_()
    weight = torch.rand(2, B, generator=generator)
    everything = [features, *head.parameters()]
    expected = head(
        features,
        value.unsqueeze(-1).expand(-1, -1, K),
        F.one_hot(output, K) * weight.unsqueeze(-1),
    )
    loss = head(features, value, weight, output)
    assert_close(loss, expected)
    assert_close(torch.autograd.grad(loss, everything), torch.autograd.grad(expected, everything))


def test_factors_of_several_blocks_are_multiplied_in_groups_too(generator: torch.Generator) -> None:
    head = made(generator, 150, covariance="dense")
    features, value, output = problem(generator, B, num_features=150)
    expected = head(features, value.unsqueeze(-1).expand(-1, K), F.one_hot(output, K).double())
    assert_close(head(features, value, output=output), expected)


def test_dense_products_cost_what_one_output_costs(generator: torch.Generator) -> None:
    def products(num_outputs: int, output: Tensor | None = None) -> int:
        covariance = ll.Dense(num_outputs, N)
        with FlopCounterMode(display=False) as counter:
            if output is None:
                covariance.quadratic_terms(features)
            else:
                covariance.observed_terms(features, output)
        return counter.get_total_flops()

    features, _, output = problem(generator, B)
    assert products(K) == K * products(1)
    assert products(K, output) == products(1)


def test_a_target_of_weight_zero_may_be_missing(generator: torch.Generator) -> None:
    head = made(generator, covariance="dense")
    features, value, output = problem(generator, B)
    weight = torch.ones(B)
    weight[3] = 0
    expected = head(features, value, weight, output)
    value[3] = torch.nan
    loss = head(features, value, weight, output)
    assert_close(loss, expected, rtol=0, atol=0)
    loss.backward()
    gradients = [parameter.grad for parameter in head.parameters()]
    assert all(g is not None and g.isfinite().all() for g in gradients)


def test_a_network_passes_the_output_on_and_compiles_with_it(generator: torch.Generator) -> None:
    head = made(generator, covariance="dense")
    backbone = torch.nn.Linear(2, N)
    model = ll.Network(backbone, head)
    inputs = torch.randn(B, 2, generator=generator)
    _, value, output = problem(generator, B)
    expected = head(backbone(inputs), value, output=output)
    assert_close(model(inputs, value, output=output), expected)
    elbo = head.elbo(backbone(inputs), value, output=output)
    assert_close(model.elbo(inputs, value, output=output), elbo)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(inputs, value, output=output), expected)


def test_statistics_of_outputs_observed_apart_are_those_of_their_own_examples(
    generator: torch.Generator,
) -> None:
    features, value, output = problem(generator, B)
    head = ll.Regression(N, K, num_data=B, covariance="dense")
    head.fit_exact(features, value.unsqueeze(-1).expand(-1, K), F.one_hot(output, K).double())
    for k in range(K):
        alone = ll.Regression(N, 1, num_data=B, covariance="dense")
        own = output == k
        alone.fit_exact(features[own], value[own])
        assert_close(head.mean[k], alone.mean[0])
        assert_close(head.covariance.dense()[k], alone.covariance.dense()[0])


def test_wrong_uses_say_what_to_do(generator: torch.Generator) -> None:
    features, value, output = problem(generator, B)
    head = made(generator)
    with pytest.raises(ValueError, match="output is for the loss"):
        head(features, output=output)
    with pytest.raises(ValueError, match="noise='diagonal'"):
        made(generator, noise="dense")(features, value, output=output)
    with pytest.raises(TypeError, match="output must be integers"):
        head(features, value, output=output.double())
    with pytest.raises(ValueError, match="output must have shape"):
        head(features, value, output=output[1:])
    with pytest.raises(ValueError, match="targets must have shape"):
        head(features, value.unsqueeze(-1).expand(-1, K), output=output)
    classifier = ll.DiscriminativeClassification(N, K, num_data=B)
    with pytest.raises(TypeError, match="regression head"):
        classifier(features, output, output=output)
