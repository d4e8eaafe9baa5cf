"""The prior variance of a head on cached features, by data that its features have not seen."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..heads import Head
from .features import Features

STEP = 10**0.5  # between variances that are tried
MAX_STEPS = 8  # from the initial variance, up or down
TOLERANCE = 1e-3  # of fits that only compare, in nats per example
MIN_GAIN = 0.002  # nats, for which another variance is worth another fit
MIN_HELD_OUT = 20  # examples, below which a held-out part says too little
UNSEEN = 1.5  # times the NLL of the rest, and
MIN_GAP = 0.1  # nats more than that: then features have not seen the labels


class Choice(NamedTuple):
    """A prior variance, and by what it was chosen."""

    variance: float
    reason: str


def by_validation(head: Head, cached: Features, validation: Features) -> Choice:
    """The variance, about that of a head's prior, with the lowest NLL of validation data."""
    variance, _ = _search(head, cached, validation)
    return Choice(variance, "chosen by the validation data")


def by_held_out(head: Head, cached: Features) -> Choice:
    """The variance by a fifth of the data, if the features have not seen their labels.

    Features that were trained on the labels of the fifth predict it as well as the rest,
    whatever the last layer is fitted on; then the head's own prior stays.
    """
    order = torch.randperm(len(cached.features), generator=torch.Generator().manual_seed(0))
    count = len(order) // 5
    own = head.prior.fixed_variance
    if count < MIN_HELD_OUT:
        return Choice(own, f"the head's own: {len(order)} examples are too few to hold some out")
    held_out, rest = _rows(cached, order[:count]), _rows(cached, order[count:])
    weak = _fitted(head, rest, 1.0)
    seen, unseen = _nll(weak, rest), _nll(weak, held_out)
    if unseen < max(UNSEEN * seen, seen + MIN_GAP):
        return Choice(own, "the head's own: features seem to have been trained on these labels")
    variance, _ = _search(head, rest, held_out)
    return Choice(variance, "chosen by a held-out fifth: features have not seen its labels")


def _search(head: Head, train: Features, held_out: Features) -> tuple[float, float]:
    """Descend on a grid of variances, each fit from the last one; the best and its NLL."""
    initial = head.prior.fixed_variance
    fitted = _fitted(head, train, initial)
    best = (initial, _nll(fitted, held_out))
    for factor in (STEP, 1 / STEP):
        model, improved = fitted, best[0] == initial
        for power in range(1, MAX_STEPS + 1 if improved else 0):
            variance = initial * factor**power
            model = _fitted(model, train, variance)
            nll = _nll(model, held_out)
            if not nll < best[1] - MIN_GAIN:
                break
            best = (variance, nll)
    return best


def _fitted(head: Head, data: Features, variance: float) -> Head:
    """A copy, fitted with a variance of the prior."""
    head = copy.deepcopy(head)
    head.prior = replace(head.prior, variance=variance)
    head.num_data = len(data.features)
    head.fit_features(*data, tolerance=TOLERANCE)
    return head


@torch.no_grad()
def _nll(head: Head, data: Features) -> float:
    """Mean NLL, weighted."""
    total = count = 0.0
    weights = torch.ones(len(data.features)) if data.weight is None else data.weight
    parts = (data.features, data.target, weights)
    for features, target, weight in zip(*(part.split(4096) for part in parts), strict=True):
        device = head.mean.device
        log_prob: Tensor = head(features.to(device)).log_prob(target.to(device))
        weight = weight.to(device).double().reshape(len(weight), -1).mean(-1)
        total -= float((log_prob.double() * weight).where(weight != 0, 0.0).sum())
        count += float(weight.sum())
    return total / count


def _rows(data: Features, rows: Tensor) -> Features:
    """Some of the examples."""
    weight = None if data.weight is None else data.weight[rows]
    return Features(data.features[rows], data.target[rows], weight)
