"""The prior variance of a head on cached features, by data that its features have not seen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_range
from .._processes import Processes
from ..heads import DiscriminativeClassification, Head
from ..heads._softmax import MAX_DENSE_WEIGHTS
from .sharing import chosen_rows
from .store import Features

STEP = 10**0.5  # between variances that are tried
MAX_STEPS = 8  # from the initial variance, up or down
TOLERANCE = 1e-3  # of fits that only compare, in nats per example
MAX_EXAMPLES = 25_000  # that priors are compared on
WEAK = 100.0  # times the variance of the head's own prior, of a layer that is to overfit
# Decision 20 has what these were set on.
MIN_EXAMPLES = 50  # below which held-out parts say too little
NUM_FOLDS = 5
MIN_HELD_OUT = 200  # examples, for which as many folds are held out as are needed
UNSEEN = 2.75  # times the NLL of data whose labels were seen,
MIN_GAP = 0.004  # nats more than that, and
SIGNIFICANT = 1.64  # standard errors more: then features do not give labels away
INTERPOLATED = 0.4  # of the labels' entropy: a training NLL below tells nothing of other data
WELL_DETERMINED = 10  # examples for each weight of a layer: then it is as good on other data,
MAX_LOSS = 0.005  # and its training NLL may rise by so many nats

ADVICE = "pass validation data to have it chosen"


class Choice(NamedTuple):
    """A prior variance, and by what it was chosen."""

    variance: float
    reason: str


class Trial(NamedTuple):
    """A head that is fitted on a part of the data, that part, and a part that is held out."""

    head: Head
    train: Features
    held_out: Features

    def again(self, variance: float) -> Trial:
        """The trial with another variance of the prior."""
        return self._replace(head=_fitted(self.head, self.train, variance))


def by_validation(
    head: Head, cached: Features, validation: Features, processes: Processes
) -> Choice:
    """The variance, about that of a head's prior, with the lowest NLL of validation data."""
    trial = Trial(_cheap(head), _some(cached, head, processes), _labelled(validation, head))
    return Choice(_best([trial]), "chosen by the validation data")


def by_folds(
    heads: Sequence[Head], folds: Sequence[tuple[Features, Features]], processes: Processes
) -> Choice:
    """The variance with the lowest NLL of out-of-fold predictions.

    Args:
        heads: one for each fold.
        folds: training and held-out features of each.
        processes: among which the data are not divided.
    """
    trials = [
        Trial(_cheap(head), _some(train, head, processes), _labelled(held_out, head))
        for head, (train, held_out) in zip(heads, folds, strict=True)
    ]
    return Choice(_best(trials), "chosen by out-of-fold predictions")


def _best(trials: list[Trial]) -> float:
    """The best variance, about that of the prior of the trials' heads."""
    return _search([trial.again(trial.head.prior.fixed_variance) for trial in trials])


def by_training_data(head: Head, cached: Features, processes: Processes) -> Choice:
    """The variance without other data, for a head at the weights of the trained layer.

    A layer is fitted without a fifth of the data, or several are where a fifth is small. If they
    predict what they have not seen much worse than the rest, the features do not give labels away,
    and the held-out data can choose, up to where the head fits the data as closely as the network
    does. Else the features were trained until they tell all labels alike, and the head keeps its
    own prior, which is cautious. Where the network did not fit its labels closely, its training NLL
    says how good it is: the variance is then wide enough to fit the training data worse by no more
    than what a layer of as many weights, fitted to them, loses on others, (K − 1) N / T nats; or,
    where the examples are many, by next to nothing.
    """
    cached = _some(cached, head, processes)
    total, trained = len(cached.features), _softmax_nll(head, cached)
    assumed = f"{total} examples are too few to hold some out"
    if total >= MIN_EXAMPLES:
        trials = list(_held_out(head, cached))
        if _is_unseen(trials):
            reason = "chosen by held-out data, whose labels the features do not give away"
            return Choice(_search(trials, trained), reason)
        assumed = "the features give the labels away, as if trained on them"
    own = head.prior.fixed_variance
    if trained > INTERPOLATED * _entropy(cached, head.num_outputs):
        loss = (head.num_outputs - 1) * head.num_features / total
        loss = loss if loss * WELL_DETERMINED > 1 else MAX_LOSS
        variance = _widened(_cheap(head), cached, trained + loss)
        if variance > own:
            return Choice(variance, f"wide for the network's training NLL: {assumed}; {ADVICE}")
    return Choice(own, f"the head's own, which is cautious: {assumed}; {ADVICE}")


def _held_out(head: Head, data: Features) -> Iterator[Trial]:
    """Layers with a weak prior, each fitted without a fold, as many as there is need of."""
    size = len(data.features) // NUM_FOLDS
    new = _cheap(head)
    with torch.no_grad():
        new.mean.zero_()  # the trained layer may have seen the labels of the fold
    for turn in range(min(NUM_FOLDS, -(-MIN_HELD_OUT // size))):
        held = torch.zeros(len(data.features), dtype=torch.bool)
        held[turn * size : (turn + 1) * size] = True
        trial = Trial(new, _rows(data, ~held), _rows(data, held))
        yield trial.again(WEAK * head.prior.fixed_variance)


def _is_unseen(trials: list[Trial]) -> bool:
    """Whether what layers have not seen is much harder for them than what they have."""
    losses = torch.cat([_losses(trial.head, trial.held_out) for trial in trials])
    seen = fmean(_nll(trial.head, trial.train) for trial in trials)
    error = float(losses.std()) / len(losses) ** 0.5
    return float(losses.mean()) > max(UNSEEN * seen, seen + MIN_GAP, seen + SIGNIFICANT * error)


def _search(trials: list[Trial], least: float = 0.0) -> float:
    """Descend on a grid of variances from that of fitted trials; the lowest of a parabola.

    Fits whose training NLL is below the least one end the way to wider priors.
    """
    initial = trials[0].head.prior.fixed_variance
    scores = {0: fmean(_nll(trial.head, trial.held_out) for trial in trials)}
    for sign in (1, -1):
        there = trials
        for power in range(sign, sign * (MAX_STEPS + 1), sign):
            if scores[power - sign] > min(scores.values()):
                break  # the other way was better
            there = [trial.again(initial * STEP**power) for trial in there]
            if sign > 0 and fmean(_nll(trial.head, trial.train) for trial in there) < least:
                break
            scores[power] = fmean(_nll(trial.head, trial.held_out) for trial in there)
            if scores[power] > scores[power - sign] - TOLERANCE:
                break
    best = min(scores, key=lambda power: scores[power])
    if best - 1 not in scores or best + 1 not in scores:
        return initial * float(STEP**best)
    below, above = scores[best - 1] - scores[best], scores[best + 1] - scores[best]
    shift = 0.5 * (below - above) / (below + above) if below + above > 0 else 0.0
    return initial * float(STEP ** (best + shift))


def _widened(head: Head, train: Features, nll: float) -> float:
    """The smallest variance, from that of a head's prior on, with at most this training NLL."""
    variance = head.prior.fixed_variance
    for _ in range(MAX_STEPS):
        head = _fitted(head, train, variance)
        if _nll(head, train) <= nll:
            break
        variance *= STEP
    return variance


def _cheap(head: Head) -> Head:
    """A copy to compare priors with: of diagonal covariance where others would be slow."""
    small = head.num_outputs * head.width <= MAX_DENSE_WEIGHTS or head.covariance.axis_aligned
    if small or type(head) is not DiscriminativeClassification:
        return copy.deepcopy(head)
    new = DiscriminativeClassification(
        head.num_features,
        head.num_outputs,
        num_data=head.num_data,
        covariance="diagonal",
        bound=head.bound,
        noise="none" if head.noise is None else "diagonal",
        prior=head.prior,
        bias=head.bias,
        device=head.mean.device,
        dtype=head.mean.dtype,
    )
    with torch.no_grad():
        new.mean.copy_(head.mean)
    new.prior_mean = head.prior_mean
    return new


def _fitted(head: Head, data: Features, variance: float) -> Head:
    """A copy, fitted with a variance of the prior from the mean of the head."""
    head = copy.deepcopy(head)
    head._initialize_covariance(1 / head.width)  # S_k of another prior is a poor initial value
    head.prior = replace(head.prior, variance=variance)
    head.num_data = len(data.features)
    head.fit_features(*data, tolerance=TOLERANCE)
    return head


def _nll(head: Head, data: Features) -> float:
    """Mean NLL of a head's predictions, weighted."""
    return float(_losses(head, data).mean())


def _softmax_nll(head: Head, data: Features) -> float:
    """Mean NLL of the softmax of a layer with the head's mean, weighted."""

    def log_prob(features: Tensor, target: Tensor) -> Tensor:
        logits = F.linear(head._inputs(features), head.mean)
        return -F.cross_entropy(logits, target, reduction="none")

    return float(_losses(head, data, log_prob).mean())


@torch.no_grad()
def _losses(
    head: Head, data: Features, log_prob: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Tensor:
    """The NLL of each example, (T,), by weights of mean one."""
    log_prob = log_prob or (lambda features, target: head(features).log_prob(target))
    weights = torch.ones(len(data.features)) if data.weight is None else data.weight
    weights = weights.double().reshape(len(weights), -1).mean(-1)
    device, parts = head.mean.device, []
    for features, target in zip(data.features.split(4096), data.target.split(4096), strict=True):
        parts.append(-log_prob(features.to(device), target.to(device)).double().cpu())
    return (torch.cat(parts) * weights).where(weights != 0, 0.0) / weights.mean()


def _entropy(data: Features, num_classes: int) -> float:
    """Entropy of the labels' frequencies."""
    shares = data.target.flatten().bincount(minlength=num_classes).double()
    return float(torch.special.entr(shares / shares.sum()).sum())


def _some(data: Features, head: Head, processes: Processes) -> Features:
    """As many examples of all processes as priors are compared on, in random order."""
    generator = torch.Generator().manual_seed(0)
    total = sum(processes.each(len(data.features)))
    order = torch.randperm(total, generator=generator)[:MAX_EXAMPLES]
    return _labelled(chosen_rows(data, order, processes), head)


def _labelled(data: Features, head: Head) -> Features:
    """The data, with labels that are classes even where their weight is zero."""
    target = data.target
    if target.is_floating_point():
        return data
    if data.weight is not None:
        target = target.where(data.weight != 0, 0)
    check_range(target, head.num_outputs)
    return data._replace(target=target)


def _rows(data: Features, rows: Tensor | slice) -> Features:
    """Some of the examples."""
    weight = None if data.weight is None else data.weight[rows]
    return Features(data.features[rows], data.target[rows], weight)
