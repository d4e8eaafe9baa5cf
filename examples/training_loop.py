"""A Bayesian last layer in a training loop of your own.

python examples/training_loop.py
"""

import torch
from torch import nn

import lastlayer as ll


def make_data(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy points of a sine in [−4, −1] ∪ [1, 4]."""
    x = (1 + 3 * torch.rand(count, 1)) * (torch.randint(2, (count, 1)) * 2 - 1)
    return x, x.sin() + 0.2 * torch.randn_like(x)


def main() -> dict[str, float]:
    torch.manual_seed(0)
    train, test = make_data(200), make_data(1000)
    backbone = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh())
    model = ll.Network(backbone, ll.Regression(50, 1, num_data=200, bias=True))
    groups = [  # no weight decay on the head: it has a prior
        {"params": model.backbone.parameters(), "weight_decay": 1e-4},
        {"params": model.head.parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        loss = model(*train)  # the only line that differs from other networks
        loss.backward()
        optimizer.step()

    with torch.no_grad():
        prediction = model(test[0])
        lower, upper = prediction.interval(0.9)
        gap = model(torch.zeros(1, 1))  # no data there
    return {
        "rmse": (prediction.mean - test[1]).square().mean().sqrt().item(),
        "coverage of 90 % intervals": ((lower < test[1]) & (test[1] < upper)).float().mean().item(),
        "epistemic stddev at the data": prediction.epistemic_variance.sqrt().mean().item(),
        "epistemic stddev in the gap": gap.epistemic_variance.sqrt().item(),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:32}{value:.3f}")
