"""Thompson sampling: points that maximise functions drawn from a surrogate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.generation.gen import gen_candidates_scipy
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from .tasks import Problem

Draws = Callable[
    [Tensor], Tensor
]  # values (*batch, q, m) of q functions, each at a point of its own
NUM_CANDIDATES, NUM_RESTARTS, MAX_ITERATIONS = 512, 4, 50
NUM_NEAR, NEAR = 8, 0.05  # best points so far around which candidates are too, and how far


class _Sum(AcquisitionFunction):
    """The sum of the values of all functions, which are maximised together."""

    def __init__(self, value: Draws) -> None:
        super().__init__(model=None)  # type: ignore[arg-type]
        self.value = value

    def forward(self, X: Tensor) -> Tensor:  # noqa: N803
        return self.value(X).sum(-1)


def scalarised(draws: Draws, values: Tensor, count: int) -> Draws:
    """One value of each function; with several objectives those of Chebyshev at random weights.

    Objectives are divided by their ranges on the front so far. Those of all values would be far
    larger where an objective is bad away from the front, and most weights would ask for one end.
    """
    if values.shape[-1] == 1:
        return lambda points: draws(points).squeeze(-1)
    front = values[is_non_dominated(values)]
    high, spread = front.amax(0), front.amax(0) - front.amin(0)
    spread = spread.where(spread > 0, values.amax(0) - values.amin(0))
    weight = torch.rand(count, values.shape[-1], dtype=values.dtype)
    weight = weight / weight.sum(-1, keepdim=True)

    def value(points: Tensor) -> Tensor:
        scaled = weight * (draws(points) - high) / spread
        return scaled.amin(-1) + 0.05 * scaled.sum(-1)

    return value


def best(values: Tensor) -> Tensor:
    """Indices of values near whose points larger ones are sought; of several objectives a front."""
    if values.shape[-1] > 1:
        return is_non_dominated(values).nonzero().squeeze(-1)
    return values.squeeze(-1).topk(min(NUM_NEAR, len(values))).indices


def maximise(draws: Draws, problem: Problem, points: Tensor, values: Tensor) -> Tensor:
    """For each of q functions a point where it is large, (q, d): candidates, then L-BFGS-B.

    Args:
        draws: the functions.
        problem: on whose unit cube.
        points: asked so far, (n, d).
        values: there, (n, m).
    """
    count, size = problem.batch, problem.num_inputs
    value = scalarised(draws, values, count)
    candidates = torch.rand(NUM_CANDIDATES, count, size, dtype=points.dtype)
    leading = points[best(values)]
    chosen = leading[torch.randint(len(leading), (NUM_CANDIDATES, count))]
    near = (chosen + NEAR * torch.randn_like(chosen)).clamp(0, 1)
    candidates = problem.snap(torch.cat([candidates, near]))
    with torch.no_grad():
        start = value(candidates).topk(NUM_RESTARTS, dim=0).indices  # (restarts, q)
    initial = candidates.gather(0, start.unsqueeze(-1).expand(-1, -1, size))
    found, _ = gen_candidates_scipy(
        initial,
        _Sum(value),
        lower_bounds=0.0,
        upper_bounds=1.0,
        options={"maxiter": MAX_ITERATIONS},
    )
    found = problem.snap(torch.cat([found.detach(), initial]))
    with torch.no_grad():
        winner = value(found).argmax(0)
    return found[winner, torch.arange(count)]
