"""Shrinkage and temperature of a generative head's noise, by how well it predicts labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.conjugate import ClassStatistics
from ..functional.discriminant import (
    LabelledClasses,
    Sharpness,
    best_sharpness,
    left_out_distances,
    left_out_log_prior,
    shrunk,
    squared_distances,
)

SHRINKAGES = [1 / (1 + math.exp(-0.5 * step)) for step in range(-8, 9)]  # 0.018 … 0.982
LOGIT_VARIANCE = 0.1  # that the prior expects at least, of features that were trained on labels
MIN_GAIN, MIN_RATIO = 0.05, 1.4  # of leave-one-out losses against losses in sample; see `_unseen`
MAX_CORRELATED = 1024  # features whose correlations say whether they have seen the labels
BYTES_PER_NUMBER = 32  # double precision, and a few copies

Labelled = tuple[Tensor, Tensor, Tensor]  # features (T, N), target (T,), weight (T,)


class ShrunkNoise(NamedTuple):
    """A covariance within classes, and how it was found."""

    covariance: Tensor  # Σ_ρ, (N, N)
    temperature: float  # τ
    reason: str


class _Candidate(NamedTuple):
    loss: float  # in nats, of all the data, with the prior of the shrinkage
    shrinkage: float
    inverse_temperature: float


class _Search(NamedTuple):
    """Examples by which shrinkage and temperature are chosen."""

    classes: LabelledClasses
    log_prior: Tensor  # (T, K) or (K,)
    weight: Tensor  # (T,)
    left_out: bool  # whether an example is no part of the classes that it is compared with
    correlated: bool

    def sharpness(self, shrinkage: float, penalty: float = 0.0, initial: float = 1.0) -> Sharpness:
        """The best temperature with a shrinkage."""
        classes = self.classes
        if self.left_out:
            distances = left_out_distances(classes, shrinkage, correlated=self.correlated)
        else:
            spread = shrunk(classes.variance, shrinkage)
            distances = squared_distances(classes.features, classes.mean, spread)
        return best_sharpness(
            distances, self.log_prior, classes.target, self.weight, penalty, initial
        )

    def best(self, prior_variance: float | None = None) -> _Candidate:
        """The shrinkage with the lowest loss under its prior, Beta(2, 2).

        With a prior variance s, weights W of logits Wφ add ‖W‖²/2s.
        """
        mean = self.classes.mean[self.classes.counts > 0]
        candidates, inverse = [], 1.0
        for shrinkage in SHRINKAGES:
            penalty = 0.0
            if prior_variance is not None:
                weights = (mean - mean.mean(0)) / shrunk(self.classes.variance, shrinkage)
                penalty = float(weights.square().sum()) / prior_variance
            inverse, loss = self.sharpness(shrinkage, penalty, inverse)
            loss -= math.log(shrinkage * (1 - shrinkage))
            candidates.append(_Candidate(loss, shrinkage, inverse))
        return min(candidates)


def shrink_noise(
    data: ClassStatistics,
    examples: Labelled,
    *,
    held_out: bool,
    correlated: bool,
    concentration: float,
    kl_weight: float,
    replaced_loss: float | None,
) -> ShrunkNoise | None:
    """Find shrinkage and temperature; None if there is nothing to find them by.

    Args:
        data: statistics of all the data.
        examples: by which to choose, in double precision: some of the data, which are left out one
            at a time, or held-out data.
        held_out: whether they are held-out data.
        correlated: whether the noise may have off-diagonal elements.
        concentration: of the Dirichlet prior over classes.
        kl_weight: λ, by which examples count less.
        replaced_loss: mean loss of the examples under the layer that the head replaces, if known.
    """
    known, full = data.counts > 0, (data.counts + concentration).log()
    full = full.masked_fill(data.counts == 0, -torch.inf)
    if held_out:
        log_prior, weight = full, examples[2].where(known[examples[1]], 0.0)
    else:
        log_prior, weight = left_out_log_prior(*examples[1:], data.counts, concentration)
    if not (float(data.within.diagonal().sum()) > 0 and float(weight.sum()) > 0):
        return None
    own, basis = _classes(data, examples, correlated)
    search = _Search(own, log_prior, weight, not held_out, correlated)
    chosen = search.best()
    reason = "chosen by the validation data"
    if not held_out:
        reason = "chosen by leave-one-out predictions"
        trusted, test = search, chosen
        if not correlated:  # independent features are too sure, whether they have seen labels
            some, _ = _classes(*_some_features(data, examples), correlated=True)
            trusted = search._replace(classes=some, correlated=True)
            test = trusted.best()
        if not _unseen(trusted, test, full, replaced_loss):
            square = float(examples[0].square().mean())
            variance = max(1.0, LOGIT_VARIANCE / square) / examples[0].shape[-1]
            share = float(weight.sum() / data.counts.sum())  # of all the data
            chosen = search.best(variance / (kl_weight * share))
            reason += (
                " under a prior of the logits: features seem to have been trained on these "
                "labels; pass validation data to choose by them"
            )
    spread = shrunk(own.variance, chosen.shrinkage)
    covariance = spread.diag_embed() if basis is None else (basis * spread) @ basis.mT
    return ShrunkNoise(covariance, 1 / chosen.inverse_temperature, reason)


def _unseen(
    search: _Search, best: _Candidate, log_prior: Tensor, replaced_loss: float | None
) -> bool:
    """Whether features have not been trained on the labels.

    If they have, leaving an example out is no loss: its label is still in its features. So they
    have not, if leave-one-out predictions are clearly worse than the same classes are in sample,
    or than the replaced layer, which was trained on these labels too.
    """
    count = float(search.weight.sum())
    left_out = search.sharpness(best.shrinkage).loss / count
    inside = search._replace(log_prior=log_prior, left_out=False)
    in_sample = inside.sharpness(best.shrinkage).loss / count
    if left_out > max(MIN_RATIO * in_sample, in_sample + MIN_GAIN):
        return True
    return replaced_loss is not None and left_out > MIN_RATIO * replaced_loss


def _classes(
    data: ClassStatistics, examples: Labelled, correlated: bool
) -> tuple[LabelledClasses, Tensor | None]:
    """Examples and classes about their common mean, and the basis in which they are, (N, N).

    If correlated, that is the eigenbasis of the scatter within classes, else the given one.
    """
    counts, total = data.counts, data.counts.sum()
    center = data.total.sum(0) / total
    mean = (data.total / counts.where(counts > 0, 1.0)[:, None]) - center
    mean = mean.where(counts[:, None] > 0, 0.0)
    features, target, weight = examples
    features, scatter, basis = features - center, data.within.diagonal(), None
    if correlated:
        scatter, basis = torch.linalg.eigh(data.within)
        features, mean = features @ basis, mean @ basis
    variance = scatter.clamp(min=0) / total
    return LabelledClasses(features, target, weight, mean, counts, variance), basis


def _some_features(data: ClassStatistics, examples: Labelled) -> tuple[ClassStatistics, Labelled]:
    """The same of a random part of the features, if there are many."""
    count = examples[0].shape[-1]
    if count <= MAX_CORRELATED:
        return data, examples
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    some = order[:MAX_CORRELATED].sort().values.to(data.total.device)
    part = ClassStatistics(data.counts, data.total[:, some], data.within[some][:, some])
    return part, (examples[0][:, some], *examples[1:])


def num_rows(num_features: int, num_classes: int, max_memory_bytes: int) -> int:
    """How many examples to choose by fit into memory."""
    return max(1, max_memory_bytes // (BYTES_PER_NUMBER * (num_features + 2 * num_classes)))
