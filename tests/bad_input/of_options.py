"""Options that heads, priors and predictives refuse."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import parametrizations

import lastlayer as ll
from tests.bad_input.inputs import (
    LABELS,
    TARGET,
    Case,
    K,
    N,
    discriminative,
    features,
    generative,
    regression,
)


def a_set(attribute: str, value: float | Tensor) -> None:
    setattr(regression(), attribute, value)


def weight_normed() -> ll.Regression:
    head: ll.Regression = regression()
    parametrizations.weight_norm(head, "mean")
    return head


ERRORS: list[Case] = [
    (
        "an exact fit of a parametrised mean or covariance",
        [
            lambda: weight_normed().fit_exact(features(), TARGET),
            lambda: weight_normed().update(features(), TARGET),
        ],
        TypeError,
        "remove the parametrisation",
    ),
    (
        "a prior mean of another shape than the weights",
        [lambda: a_set("prior_mean", torch.zeros(K))],
        ValueError,
        "prior_mean must have the shape of the mean",
    ),
    (
        "zero, negative or infinite num_data",
        [
            lambda: ll.Regression(N, K, num_data=0),
            lambda: ll.Regression(N, K, num_data=-5),
            lambda: ll.Regression(N, K, num_data=float("inf")),
            lambda: ll.GenerativeClassification(N, K, num_data=float("nan")),
            lambda: a_set("num_data", 0),
        ],
        ValueError,
        "num_data must be a finite number above zero",
    ),
    (
        "a rank above the width",
        [lambda: regression(covariance=partial(ll.LowRank, rank=N + 1))],
        ValueError,
        "rank must be at most",
    ),
    (
        "a misspelt option",
        [
            lambda: regression(covariance="diag"),
            lambda: regression(noise="dens"),
            lambda: regression(row_covariance="nois"),
            lambda: discriminative(bound="jenson"),
            lambda: generative(noise="diagonall"),
        ],
        ValueError,
        "did you mean",
    ),
    (
        "a covariance that is made already",
        [lambda: regression(covariance=ll.Dense(K, N))],
        TypeError,
        "a name or a callable",
    ),
    (
        "an average over no samples",
        [
            lambda: discriminative()(features()).probs(num_samples=0),
            lambda: discriminative()(features()).mutual_information(num_samples=0),
        ],
        ValueError,
        "num_samples must be an integer of at least 1",
    ),
    (
        "classification with one class",
        [
            lambda: ll.DiscriminativeClassification(N, 1, num_data=100),
            lambda: ll.GenerativeClassification(N, 1, num_data=100),
        ],
        ValueError,
        "two classes",
    ),
    (
        "sizes that are not positive integers",
        [
            lambda: ll.Regression(0, K, num_data=100),
            lambda: ll.Regression(N, 0, num_data=100),
            lambda: ll.Regression(N, 2.0, num_data=100),  # type: ignore[arg-type]
        ],
        ValueError,
        "must be an integer of at least",
    ),
    (
        "a prior that is not positive",
        [
            lambda: ll.Prior(variance=0),
            lambda: ll.Prior(noise_scale=-1),
            lambda: ll.Prior(kl_weight=float("nan")),
            lambda: ll.Prior(variance=True),
            lambda: ll.Prior.from_targets(num_data=0, num_outputs=1),
            lambda: ll.Prior.from_targets(num_data=10, num_outputs=1, noise_precision=-1),
        ],
        ValueError,
        "must be a finite number above zero",
    ),
    (
        "a prior that is not a number",
        [lambda: ll.Prior(noise_dof=float("nan"))],
        ValueError,
        "noise_dof must be a finite number",
    ),
    (
        "noise_dof so negative that no noise can be estimated",
        [
            lambda: regression(prior=ll.Prior(noise_dof=-50)).fit_exact(
                features(), TARGET, estimate_noise=True
            ),
            lambda: generative(prior=ll.Prior(noise_dof=-50)).fit_exact(
                features(), LABELS, estimate_noise=True
            ),
        ],
        ValueError,
        "leaves no weight for the noise estimate",
    ),
    (
        'row_covariance="noise" and dense noise without one shared S',
        [lambda: regression(row_covariance="noise", noise="dense", covariance="dense")],
        ValueError,
        "needs one S for all outputs",
    ),
    (
        "a forgetting factor outside (0, 1]",
        [
            lambda: regression().update(features(), TARGET, forgetting=0.0),
            lambda: generative().update(features(), LABELS, forgetting=1.5),
        ],
        ValueError,
        "forgetting must lie in",
    ),
    (
        "an interval level outside (0, 1)",
        [
            lambda: regression()(features()).interval(95),
            lambda: regression()(features()).interval(0),
        ],
        ValueError,
        "0.9 is 90 percent",
    ),
]
