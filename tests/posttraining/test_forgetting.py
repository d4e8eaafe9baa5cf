"""A post-trained regression that is updated with forgetting stays accurate."""

import pytest
import torch
from torch import Tensor, nn

import lastlayer as ll

T, N, NOISE, FORGETTING = 400, 6, 0.1, 0.95


def make_data(count: int, weight: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, N, generator=generator)
    noise = NOISE * torch.randn(count, 1, generator=generator)
    return inputs, 1000 + inputs @ weight.mT + noise


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("saved", [False, True])
def test_a_posttrained_regression_forgets_the_data_and_not_the_trained_bias(
    dtype: torch.dtype, saved: bool, generator: torch.Generator
) -> None:
    weight = torch.randn(1, N, generator=generator)
    inputs, target = make_data(T, weight, generator)
    layer = nn.Linear(N, 1)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.fill_(1000.0)
    model = nn.Sequential(layer).to(dtype)
    network = ll.posttrain(model, (inputs.to(dtype), target.to(dtype)), "regression")
    if saved:
        state = network.state_dict()
        network = ll.Network(
            network.backbone,
            ll.Regression(N, 1, num_data=T, bias=True, prior=network.head.prior, dtype=dtype),
        )
        network.load_state_dict(state)
    head = network.head
    assert isinstance(head, ll.Regression)
    seen, wanted, discount = inputs, target, torch.ones(T)
    for _ in range(60):
        more, values = make_data(1, weight, generator)
        head.update(more.to(dtype), values.to(dtype), forgetting=FORGETTING)
        seen, wanted = torch.cat([seen, more]), torch.cat([wanted, values])
        discount = torch.cat([FORGETTING * discount, torch.ones(1)])
    # the posterior of discounted data about the mean of the prior, in closed form
    phi, noise = torch.cat([seen, torch.ones(len(seen), 1)], -1), head.noise.variance().double()
    prior_mean = torch.zeros(N + 1, 1)
    prior_mean[-1] = 1000
    precision = (
        torch.eye(N + 1) / head.prior.fixed_variance + phi.mT @ (discount[:, None] * phi) / noise
    )
    residual = discount[:, None] * (wanted - phi @ prior_mean)
    mean = prior_mean + torch.linalg.solve(precision, phi.mT @ residual / noise)
    tolerance = 1e-8 if dtype == torch.float64 else 2e-3
    torch.testing.assert_close(head.mean.double().mT, mean, rtol=0, atol=tolerance)
    inputs, target = make_data(2000, weight, generator)
    predictive = network(inputs.to(dtype))
    error = predictive.mean.double() - target
    assert error.square().mean().sqrt() < 1.3 * NOISE
    lower, upper = predictive.interval(0.9)
    covered = ((lower <= target) & (target <= upper)).double().mean()
    assert 0.87 < covered < 0.93
