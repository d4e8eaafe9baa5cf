"""Which of four offers to show? A contextual bandit with Thompson sampling.

python examples/deciding.py
"""

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.bandits import Agent

NUM_ARMS, ROUNDS, BATCH = 4, 40, 10
CENTERS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def expected_rewards(contexts: Tensor) -> Tensor:
    """(B, 4): each offer suits the customers of one corner."""
    return torch.exp(-torch.cdist(contexts, CENTERS))


def run(policy: str) -> float:
    """Mean regret of the last rounds: what the best offer would have earned more."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    head = ll.Regression(32, NUM_ARMS, num_data=1, covariance="dense", bias=True)
    agent = Agent(ll.Network(backbone, head), num_arms=NUM_ARMS, policy=policy)
    regrets = []
    for _ in range(ROUNDS):
        contexts = 2 * torch.rand(BATCH, 2) - 1
        arms = agent.predict(contexts)
        expected = expected_rewards(contexts)
        chosen = expected.gather(1, arms[:, None]).squeeze(1)
        agent.partial_fit(contexts, arms, chosen + 0.1 * torch.randn(BATCH))
        regrets.append((expected.amax(1) - chosen).mean())
    return float(torch.stack(regrets[-10:]).mean())


def main() -> dict[str, float]:
    torch.manual_seed(1)
    rewards = expected_rewards(2 * torch.rand(10_000, 2) - 1)
    chance = rewards.amax(1) - rewards.mean(1)
    return {"regret by chance": float(chance.mean()), "regret, Thompson": run("thompson")}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:32}{value:.3f}")
