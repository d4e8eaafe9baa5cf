"""The figure of docs/deciding.md: `python -m docs.figures.deciding`.

A bandit's regret, a surrogate before its next evaluations, and what is labelled next.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.botorch import LastLayerModel
from lastlayer.plots._canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, as_array, make_axes

ROUNDS, CONTEXTS = 60, 20  # of the bandit
NUM_LABELLED, NUM_POOL, BATCH = 40, 1500, 20


def network(head: Any) -> ll.Network:
    """Two inputs, two hidden layers of tanh, and a head."""
    hidden = (nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, head.num_features), nn.Tanh())
    return ll.Network(nn.Sequential(*hidden), head)


def regrets(policy: str | None) -> Tensor:
    """Cumulative regret after each round, of an agent or, if None, of arms at random."""
    torch.manual_seed(0)
    head = ll.Regression(50, 3, num_data=1, covariance="dense", bias=True)
    agent = ll.bandits.Agent(network(head), num_arms=3, policy=policy or "greedy")
    lost = []
    for _ in range(ROUNDS):
        contexts = 2 * torch.rand(CONTEXTS, 2) - 1
        expected = -(contexts[:, :1] - 0.7 * (torch.arange(3) - 1)).abs()
        arms = torch.randint(3, (CONTEXTS,)) if policy is None else agent.predict(contexts)
        earned = expected.gather(1, arms[:, None]).squeeze(1)
        lost.append((expected.amax(1) - earned).sum())
        if policy is not None:
            agent.partial_fit(contexts, arms, earned + 0.1 * torch.randn(CONTEXTS))
    return torch.stack(lost).cumsum(0)


def draw_bandit(axes: Axes) -> None:
    """Regret by the number of contexts."""
    ax = make_axes(axes, "contexts seen", "cumulative regret")
    steps = CONTEXTS * torch.arange(1, ROUNDS + 1)
    for policy, name, colour in ((None, "at random", GREY), ("thompson", "Thompson", BLUE)):
        ax.plot(steps, as_array(regrets(policy)), color=colour, linewidth=2, label=name)
    ax.set_title("A bandit stops paying for what it has learnt", fontsize=11)
    ax.legend(frameon=False)


def draw_optimisation(axes: Axes) -> None:
    """A surrogate of five evaluations, and where functions drawn from it are largest."""
    torch.manual_seed(3)
    truth = lambda x: (10 * x).sin() + 0.5 * x  # noqa: E731
    x = torch.tensor([[0.02], [0.3], [0.5], [0.64], [0.98]], dtype=torch.float64)
    model = LastLayerModel(x, truth(x)).fit()
    grid = torch.linspace(0, 1, 301, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        posterior: Any = model.posterior(grid)
        middle, spread = posterior.mean[:, 0], 2 * posterior.variance[:, 0].sqrt()
        drawn = posterior.rsample(torch.Size([5]))[..., 0]
    ax, at = make_axes(axes, "input", "value"), as_array(grid[:, 0])
    ax.fill_between(at, as_array(middle - spread), as_array(middle + spread), color=PALE, lw=0)
    ax.plot(at, as_array(drawn).T, color=BLUE, linewidth=0.8, alpha=0.6)
    ax.plot(at, as_array(truth(grid)), "--", color=INK, linewidth=1, label="truth")
    ax.plot(at, as_array(middle), color=BLUE, linewidth=2, label="surrogate, with draws")
    ax.plot(x, truth(x), "o", color=INK, label="evaluated")
    for place in grid[drawn.argmax(-1), 0].tolist():
        ax.axvline(place, color=ORANGE, linewidth=1.2)
    ax.plot([], [], color=ORANGE, label="evaluated next")
    ax.set_title("A surrogate asks where a maximum may be", fontsize=11)
    ax.legend(edgecolor="none", framealpha=0.9, fontsize="small")


def draw_labelling(axes: Axes) -> None:
    """A pool in the plane, half of it dense, and the batches that two methods choose."""
    torch.manual_seed(0)
    pool = torch.cat([0.5 * torch.randn(NUM_POOL // 2, 2), 5 * torch.rand(NUM_POOL // 2, 2) - 2.5])
    labelled = 0.4 * torch.randn(NUM_LABELLED, 2)
    target = (2 * labelled[:, :1]).sin() * labelled[:, 1:].cos()
    model = network(ll.Regression(64, num_data=NUM_LABELLED, bias=True))
    rows = (labelled, target + 0.05 * torch.randn(NUM_LABELLED, 1))
    ll.fit(model, rows, epochs=100, learning_rate=3e-3, progress=False)
    ax = make_axes(axes, "", "")
    ax.scatter(pool[:, 0], pool[:, 1], s=4, color=PALE)
    ax.scatter(labelled[:, 0], labelled[:, 1], s=14, color=INK, label="labelled")
    for method, name, colour, marker in (
        ("max_variance", "most uncertain", ORANGE, "x"),
        ("lcmd", "LCMD", GREEN, "o"),
    ):
        chosen = pool[ll.acquisition.select(model, labelled, pool, BATCH, method, progress=False)]
        ax.scatter(chosen[:, 0], chosen[:, 1], s=42, color=colour, marker=marker, label=name)
    ax.set_title("A batch chosen together covers the pool", fontsize=11)
    ax.set(xticks=[], yticks=[], ylim=(-3.6, 2.6))
    ax.legend(frameon=True, edgecolor="none", fontsize="small", loc="lower left", ncols=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, default=Path("docs/images/deciding.png"))
    figure = Figure(figsize=(14, 4.2), dpi=110, layout="constrained")
    panels: Any = figure.subplots(1, 3)
    for draw, panel in zip((draw_bandit, draw_optimisation, draw_labelling), panels, strict=True):
        draw(panel)
    figure.savefig(parser.parse_args().path)


if __name__ == "__main__":
    main()
