"""Bad input gives a clear error or a documented result, never a silently wrong number.

Every case is a row of the table in docs/bad-input.md, which a test below keeps in step.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lastlayer as ll

B, N, K = 6, 4, 3
TABLE = Path(__file__).parent.parent / "docs" / "bad-input.md"


def features(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(-1, 1, B * N, dtype=dtype).reshape(B, N).expand(*(shape or (B, N)))


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
TARGET = torch.linspace(-1, 1, B * K, dtype=torch.float64).reshape(B, K)

regression: Any = partial(ll.Regression, N, K, num_data=100)
single: Any = partial(ll.Regression, N, 1, num_data=100)
discriminative: Any = partial(ll.DiscriminativeClassification, N, K, num_data=100)
generative: Any = partial(ll.GenerativeClassification, N, K, num_data=100)
HEADS: list[tuple[Any, Tensor]] = [
    (regression, TARGET),
    (discriminative, LABELS),
    (generative, LABELS),
]


def everywhere(change: Callable[[Tensor], Tensor]) -> list[Callable[[], object]]:
    """Calls of every head, loss and prediction, with changed features."""
    losses = [partial(lambda make, y: make()(change(features()), y), *head) for head in HEADS]
    predictions = [partial(lambda make: make()(change(features())), make) for make, _ in HEADS]
    return [*losses, *predictions]


def a_set(attribute: str, value: float) -> None:
    setattr(regression(), attribute, value)


def updated_after_weights_per_output(head: ll.Regression) -> None:
    head.fit_exact(features(), TARGET, torch.ones(B, K))
    head.update(features(), TARGET)


# What a row of the table says: situation, the calls, the error, a part of its message.
ERRORS: list[tuple[str, list[Callable[[], object]], type[Exception], str]] = [
    (
        "features of the wrong width",
        everywhere(lambda x: x[:, :3]),
        ValueError,
        "must end in num_features=4",
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
        'row_covariance="noise" and dense noise without one shared S',
        [lambda: regression(row_covariance="noise", noise="dense", covariance="dense")],
        ValueError,
        "needs one S for all outputs",
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


@pytest.mark.parametrize(
    ("calls", "error", "message"),
    [case[1:] for case in ERRORS],
    ids=[case[0].replace(" ", "_") for case in ERRORS],
)
def test_bad_input_raises_an_error_that_says_what_to_do(
    calls: list[Callable[[], object]], error: type[Exception], message: str
) -> None:
    for call in calls:
        with pytest.raises(error, match=message):
            call()


def poisoned(value: float) -> Tensor:
    inputs = features().clone()
    inputs[1, 2] = value
    return inputs


def not_finite_features_poison_their_row_and_the_loss() -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        for make, target in HEADS:
            head = make()
            assert not head(poisoned(value), target).isfinite()
            predictive, clean = head(poisoned(value)), head(features())
            spoilt = predictive.variance if make is regression else predictive.probs()
            intact = clean.variance if make is regression else clean.probs()
            assert not spoilt[1].isfinite().all()
            others = [0, 2, 3, 4, 5]
            torch.testing.assert_close(spoilt[others], intact[others])


def not_finite_targets_poison_the_loss() -> None:
    for value in (torch.nan, torch.inf):
        target = TARGET.clone()
        target[1, 0] = value
        assert not regression()(features(), target).isfinite()


def missing_targets_with_weight_zero_are_ignored() -> None:
    target, weight, head = TARGET.clone(), torch.ones(B, K), regression()
    target[1, 0], weight[1, 0] = torch.nan, 0
    ignored = head(features(), target, weight)
    assert torch.autograd.grad(ignored, head.mean)[0].isfinite().all()
    torch.testing.assert_close(ignored, head(features(), TARGET, weight))


def labels_with_weight_zero_are_ignored() -> None:
    labels, weight = LABELS.clone(), torch.ones(B)
    labels[1], weight[1] = -100, 0
    for make in (discriminative, generative):
        head = make()
        torch.testing.assert_close(
            head(features(), labels, weight), head(features(), LABELS, weight)
        )


def integers_of_numpy_are_integers() -> None:
    head = ll.DiscriminativeClassification(np.int64(N), np.int64(K), num_data=np.int64(100))  # type: ignore[arg-type]
    assert head(features(), LABELS).isfinite()


def one_output_takes_both_shapes() -> None:
    head = single()
    flat, column = head(features(), TARGET[:, 0]), head(features(), TARGET[:, :1])
    torch.testing.assert_close(flat, column)
    predictive = head(features())
    torch.testing.assert_close(
        predictive.log_prob(TARGET[:, 0]), predictive.log_prob(TARGET[:, :1])
    )


def other_float_targets_are_converted() -> None:
    head = regression()
    loss = head(features(), TARGET.float())
    assert loss.dtype == torch.float64
    torch.testing.assert_close(loss, head(features(), TARGET.float().double()))


def empty_batches_predict_nothing() -> None:
    for make, _ in HEADS:
        assert len(make()(features()[:0])) == 0
    assert discriminative()(features()[:0]).probs().shape == (0, K)
    assert generative()(features()[:0]).probs().shape == (0, K)


def an_exact_fit_without_data_is_the_prior() -> None:
    head = regression(prior=ll.Prior(variance=2.0))
    head.fit_exact(features()[:0], TARGET[:0])
    torch.testing.assert_close(head.mean, torch.zeros(K, N))
    torch.testing.assert_close(head.covariance.dense(), 2 * torch.eye(N).expand(K, N, N))


# Situation in the table, and the check of its documented result.
RESULTS = [
    ("NaN or infinite features", not_finite_features_poison_their_row_and_the_loss),
    ("NaN or infinite targets", not_finite_targets_poison_the_loss),
    ("missing targets, NaN, with weight zero", missing_targets_with_weight_zero_are_ignored),
    ("labels that are no class, with weight zero", labels_with_weight_zero_are_ignored),
    ("sizes that are NumPy integers", integers_of_numpy_are_integers),
    ("targets (B,) or (B, 1) for one output", one_output_takes_both_shapes),
    ("regression targets of another floating dtype", other_float_targets_are_converted),
    ("prediction for an empty batch", empty_batches_predict_nothing),
    ("an exact fit on no data", an_exact_fit_without_data_is_the_prior),
]


@pytest.mark.parametrize("check", [case[1] for case in RESULTS], ids=lambda check: check.__name__)
def test_unusual_input_has_its_documented_result(check: Callable[[], None]) -> None:
    check()


def test_every_case_is_a_row_of_the_documented_table_and_no_row_is_untested() -> None:
    rows = [line.split("|")[1].strip() for line in TABLE.read_text().splitlines() if "|" in line]
    situations = [case[0] for case in ERRORS] + [case[0] for case in RESULTS]
    assert sorted(rows[2:]) == sorted(situations)
