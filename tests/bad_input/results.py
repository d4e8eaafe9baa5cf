"""Unusual input that has a documented result."""

import numpy as np
import torch
from torch import Tensor

import lastlayer as ll
from tests.bad_input.inputs import (
    HEADS,
    LABELS,
    TARGET,
    B,
    K,
    N,
    discriminative,
    features,
    generative,
    regression,
    single,
)


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
