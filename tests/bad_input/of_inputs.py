"""Features, targets, labels and weights that heads refuse."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import lastlayer as ll
from tests.bad_input.inputs import (
    HEADS,
    LABELS,
    TARGET,
    B,
    Case,
    K,
    discriminative,
    features,
    generative,
    regression,
    single,
)


def everywhere(change: Callable[[Tensor], Tensor]) -> list[Callable[[], object]]:
    """Calls of every head, loss and prediction, with changed features."""
    losses = [partial(lambda make, y: make()(change(features()), y), *head) for head in HEADS]
    predictions = [partial(lambda make: make()(change(features())), make) for make, _ in HEADS]
    return [*losses, *predictions]


def updated_after_weights_per_output(head: ll.Regression) -> None:
    head.fit_exact(features(), TARGET, torch.ones(B, K))
    head.update(features(), TARGET)


ERRORS: list[Case] = [
    (
        "features of the wrong width",
        everywhere(lambda x: x[:, :3]),
        ValueError,
        "must end in num_features=4",
    ),
    (
        "features that are an array",
        everywhere(lambda x: x.numpy()),  # type: ignore[arg-type,return-value]
        TypeError,
        "convert arrays by torch.as_tensor",
    ),
    ("integer features", everywhere(lambda x: x.long()), TypeError, "must be floating point"),
    (
        "features of another dtype than the head",
        [
            *everywhere(lambda x: x.float()),
            lambda: regression(device="meta")(features().float().to("meta")),
        ],
        TypeError,
        "but the head is torch.float64",
    ),
    (
        "features on another device than the head",
        everywhere(lambda x: x.to("meta")),
        ValueError,
        "but the head is on cpu",
    ),
    (
        "targets on another device than the features",
        [
            lambda: regression()(features(), TARGET.to("meta")),
            lambda: discriminative()(features(), LABELS.to("meta")),
            lambda: generative()(features(), LABELS.to("meta")),
        ],
        ValueError,
        "target is on meta",
    ),
    (
        "targets (B,) for K > 1 outputs",
        [lambda: regression()(features(), TARGET[:, 0])],
        ValueError,
        "nothing is broadcast",
    ),
    (
        "targets (B, 1) for K > 1 outputs, or (B, K) for one",
        [
            lambda: regression()(features(), TARGET[:, :1]),
            lambda: single()(features(), TARGET),
            lambda: single()(features(), TARGET[:1, 0]),
            lambda: single()(features()).log_prob(TARGET[:1, 0]),
        ],
        ValueError,
        "nothing is broadcast",
    ),
    (
        "integer regression targets",
        [lambda: single()(features(), LABELS)],
        TypeError,
        "must be floating point",
    ),
    (
        "labels (B, 1), or one-hot",
        [
            lambda: discriminative()(features(), LABELS[:, None]),
            lambda: generative()(features(), LABELS[:, None]),
            lambda: generative()(features(), torch.nn.functional.one_hot(LABELS)),
            lambda: generative()(features()).log_prob(LABELS[:, None]),
        ],
        ValueError,
        "one index per example",
    ),
    (
        "float or boolean labels",
        [
            lambda: discriminative()(features(), LABELS.double()),
            lambda: generative()(features(), LABELS.double()),
            lambda: generative()(features(), LABELS > 0),
            lambda: generative().observe(LABELS.double()),
        ],
        TypeError,
        "must be integers",
    ),
    (
        "labels below 0 or above K - 1",
        [
            lambda: discriminative()(features(), LABELS + 1),
            lambda: discriminative()(features(), LABELS - 1),
            lambda: generative()(features(), LABELS + 1),
            lambda: generative()(features(), LABELS - 1),
            lambda: generative()(features()).log_prob(LABELS + 1),
        ],
        Exception,
        "out of (range|bounds)",
    ),
    (
        "the same where labels are counted or solved for",
        [
            lambda: generative().observe(LABELS + 1),
            lambda: generative().observe(LABELS - 1),
            lambda: generative().fit_exact(features(), LABELS - 1),
        ],
        ValueError,
        "class labels must lie in 0 … 2",
    ),
    (
        "the loss of an empty batch",
        [
            lambda: regression()(features()[:0], TARGET[:0]),
            lambda: discriminative()(features()[:0], LABELS[:0]),
            lambda: generative()(features()[:0], LABELS[:0]),
            lambda: regression().initialize(features()[:0], TARGET[:0]),
        ],
        ValueError,
        "at least one example",
    ),
    (
        "NaN or infinite features or targets in an exact fit",
        [
            lambda: regression().fit_exact(features() / 0, TARGET),
            lambda: regression().fit_exact(features(), TARGET * torch.nan),
            lambda: regression().update(features() / 0, TARGET),
            lambda: regression().initialize(features(), TARGET / 0),
            lambda: regression().initialize(features() / 0, TARGET),
            lambda: generative().fit_exact(features() / 0, LABELS),
            lambda: generative().update(features() * torch.nan, LABELS),
        ],
        ValueError,
        "NaN or infinite",
    ),
    (
        "NaN or negative weights in an exact fit",
        [
            lambda: regression().fit_exact(features(), TARGET, torch.full((B,), torch.nan)),
            lambda: generative().update(features(), LABELS, torch.full((B,), -1.0)),
            lambda: generative().observe(LABELS, torch.full((B,), torch.nan)),
        ],
        ValueError,
        "must be finite and not negative",
    ),
    (
        "weights of the wrong shape",
        [
            lambda: regression()(features(), TARGET, torch.ones(B, 1)),
            lambda: regression()(features(), TARGET, torch.ones(K)),
            lambda: discriminative()(features(), LABELS, torch.ones(B, K)),
            lambda: generative()(features(), LABELS, torch.ones(())),
        ],
        ValueError,
        "weight must have shape",
    ),
    (
        "weights per output with correlated noise",
        [lambda: regression(noise="dense")(features(), TARGET, torch.ones(B, K))],
        ValueError,
        "need noise='diagonal'",
    ),
    (
        "weights without a target",
        [lambda: regression()(features(), weight=torch.ones(B))],
        ValueError,
        "weight is for the loss",
    ),
    (
        "update with a covariance that cannot hold the posterior",
        [
            lambda: regression(covariance="diagonal").update(features(), TARGET),
            lambda: regression(covariance="low_rank").update(features(), TARGET),
            lambda: generative(covariance="dense").update(features(), LABELS),
        ],
        TypeError,
        "call fit_exact on all the data",
    ),
    (
        "update of one shared S with weights per output",
        [
            lambda: regression().update(features(), TARGET, torch.ones(B, K)),
            lambda: updated_after_weights_per_output(regression()),
        ],
        ValueError,
        "use covariance='dense'",
    ),
]
