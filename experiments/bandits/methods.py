"""The agents of the wheel bandit, with the settings and seeds of each."""

from __future__ import annotations

from typing import Any

from ..harness.method import Entry
from .linear import LinearPosterior, Player, Uniform
from .neural import NetworkAgent, NeuralLinear
from .published import COLUMNS

SEEDS = dict.fromkeys(COLUMNS, 50)
NEURAL_SEEDS = dict.fromkeys(COLUMNS, 10)
ALONE = dict.fromkeys(COLUMNS, 1)  # seeds of a job
# A published setting that may be the one called MR, or near it; the paper has none.
MR: dict[str, Any] = {"ridge": 23.0, "shape_prior": 12.0, "scale_prior": 30.0, "initial_pulls": 2}


def linear(method: type[Player], **about: Any) -> Entry:
    """An agent whose seeds play in step."""
    return Entry(method=method, num_seeds=SEEDS, together=SEEDS, **about)


def neural(method: type[Player], **about: Any) -> Entry:
    """An agent with a network."""
    return Entry(method=method, num_seeds=NEURAL_SEEDS, together=ALONE, **about)


METHODS: dict[str, Entry] = {
    "ours": neural(
        NetworkAgent,
        label="Ours",
        about="`lastlayer.bandits.Agent`: exact posteriors, a network trained ever more rarely.",
        settings={
            "passes": 16.0,
            "undo": True,
            "schedule": "warmup_cosine",
            "epsilon": 1e-4,
            "weight_decay": 0.0,
        },
    ),
    "vbll": neural(
        NetworkAgent,
        label="VBLL",
        about="The paper's appendix D: everything by gradient steps on the ELBO, all priors 1.",
        settings={
            "squared": False,
            "exact": False,
            "variance": 1.0,
            "noise_scale": 1.0,
            "reward_scale": 1.0,
            "bias": False,
            "growth": 0.0,
            "steps": 100,
            "batch_size": 512,
            "learning_rate": 3e-3,
            "schedule": "constant",
        },
    ),
    "neural-linear": neural(NeuralLinear, label="NeuralLinear"),
    "neural-linear-mr": neural(
        NeuralLinear,
        label="NeuralLinear-MR",
        about="NeuralLinear with other settings.",
        settings=MR | {"learning_rate": 0.01, "steps": 50},
    ),
    "lin-full-post": linear(LinearPosterior),
    "lin-diag-post": linear(
        LinearPosterior,
        label="LinDiagPost",
        about="LinFullPost with the diagonal of the posterior covariance.",
        settings={"covariance": "diagonal"},
    ),
    "lin-post-mr": linear(
        LinearPosterior, label="LinPost-MR", about="LinFullPost with other settings.", settings=MR
    ),
    "uniform": linear(Uniform),
}
