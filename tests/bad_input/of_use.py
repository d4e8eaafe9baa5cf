"""What training, calibration, metrics and scores refuse."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import lastlayer as ll
from lastlayer import calibration, conformal, metrics, ood
from tests.bad_input.inputs import LABELS, TARGET, Case, K, N, features, generative, regression

logits: Any = partial(nn.Linear, N, K)
labelled = (features(), LABELS)
arrays: Any = (features().numpy(), TARGET.numpy())


def classifier() -> ll.Network:
    head = ll.DiscriminativeClassification(N, K, num_data=100)
    return ll.Network(nn.Identity(), head)


def regressor() -> ll.Network:
    return ll.Network(nn.Identity(), regression())


def users(model: Any, data: Any) -> list[Callable[[], object]]:
    """Everything that takes a model which returns predictives."""
    return [
        lambda: metrics.evaluate(model(), data),
        lambda: calibration.TemperatureScaling().fit(model(), data),
        lambda: conformal.ConformalSets(level=0.9).fit(model(), data),
        lambda: ood.scores(model(), data, "predictive_entropy"),
    ]


def lazy() -> ll.Network:
    return ll.Network(nn.Sequential(nn.LazyLinear(N), nn.Tanh()), regression())


def fit(model: nn.Module, **options: Any) -> object:
    return ll.fit(model, (features(), TARGET), epochs=1, progress=False, **options)


ERRORS: list[Case] = [
    (
        "lazy layers without a shape",
        [
            lambda: fit(lazy()),
            lambda: ll.posttrain(
                nn.Sequential(nn.LazyLinear(N), nn.Linear(N, K)), (features(), TARGET), "regression"
            ),
        ],
        ValueError,
        "call the model on one batch|run the model once",
    ),
    (
        "options of fit that need validation data",
        [lambda: fit(regressor(), retrain=True), lambda: fit(regressor(), patience=3)],
        ValueError,
        "validation data; pass some|pass validation data",
    ),
    (
        "data that are NumPy arrays",
        [lambda: ll.fit(regressor(), arrays, epochs=1)],
        TypeError,
        "convert them by torch.as_tensor",
    ),
    (
        "plain outputs where a predictive is wanted",
        [*users(logits, labelled), lambda: calibration.TemperatureScaling()(logits()(features()))],
        TypeError,
        "lastlayer.Plain",
    ),
    (
        "a scaling for the other task",
        [
            lambda: calibration.TemperatureScaling().fit(regressor(), (features(), TARGET)),
            lambda: calibration.VarianceScaling(K).fit(classifier(), labelled),
            lambda: calibration.TailScaling(K).fit(classifier(), labelled),
        ],
        TypeError,
        "scale (regression by VarianceScaling|classification by TemperatureScaling)",
    ),
    (
        "labels out of range in metrics",
        [
            lambda: metrics.evaluate(classifier(), (features(), LABELS + 1)),
            lambda: metrics.expected_calibration_error(torch.full((6, K), 1 / K), LABELS - 1),
        ],
        ValueError,
        "class labels must lie in 0 … 2",
    ),
    (
        "a joint predictive of one point without its dimension",
        [lambda: regression().joint(features()[0])],
        ValueError,
        "unsqueeze",
    ),
    (
        "a joint predictive of a generative head",
        [lambda: generative().joint(features())],
        TypeError,
        "sample_function",
    ),
]

# Situations that need several runs, processes or a full disk, and their tests.
ELSEWHERE = {
    "numbers for a classifier in `posttrain`": (
        "test_numbers_for_a_classifier_say_which_head_takes_them"
    ),
    "a checkpoint of another objective": "test_another_objective_is_not_resumed",
    "a checkpoint of other options": "test_a_run_with_other_options_is_not_resumed",
    "a checkpoint of other data": "test_other_data_are_not_resumed_with",
    "a damaged checkpoint": "test_a_damaged_checkpoint_says_so",
    "a full disk in fit": "test_a_full_disk_leaves_the_state_before",
}
