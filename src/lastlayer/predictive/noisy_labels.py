"""The predictive of classes whose labels are wrong with a probability of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_labels
from ..functional import scale_mixtures
from .classes import DiscriminativePredictive
from .classification import ClassificationPredictive


@dataclass(frozen=True, eq=False, repr=False)
class NoisyLabelPredictive(ClassificationPredictive):
    r"""Labels that are drawn from all classes alike with an uncertain probability π.

    `probs`, `log_prob` and all that follows from them are of labels as they are observed,
    $(1 - E\pi)\,E\,\mathrm{softmax}(z) + E\pi/K$; `right` is the predictive of the right labels.

    Attributes:
        logit_mean: of the right label, (*batch, K).
        epistemic_variance: variance of the logits due to the weights, (*batch, K).
        log_odds_mean: mean of logit π, (*batch, 1).
        log_odds_variance: its variance, (*batch, 1).
    """

    logit_mean: Tensor
    epistemic_variance: Tensor
    log_odds_mean: Tensor
    log_odds_variance: Tensor

    @property
    def right(self) -> DiscriminativePredictive:
        """The predictive of the right label."""
        nothing = torch.zeros_like(self.logit_mean)
        return DiscriminativePredictive(self.logit_mean, self.epistemic_variance, nothing)

    @property
    def random_label_probability(self) -> Tensor:
        """Eπ, the probability that the label is drawn at random, (*batch,)."""
        return self._log_odds()[..., 1].exp()

    def _log_odds(self) -> Tensor:
        """log E(1 − π) and log Eπ, by quadrature, (*batch, 2)."""
        nodes, log_probs = scale_mixtures.normal_nodes(self.log_odds_mean)
        log_odds = self.log_odds_mean + self.log_odds_variance.sqrt() * nodes
        both = torch.stack([-log_odds, log_odds], -2)
        return (F.logsigmoid(both) + log_probs).logsumexp(-1)

    def _observed(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of observed labels from those of right ones, (*batch, M)."""
        keep, random = self._log_odds().split(1, -1)
        return torch.logaddexp(keep + log_probs, random - math.log(self.num_classes))

    def probs(self) -> Tensor:
        """Probabilities of labels as they are observed, (*batch, K)."""
        keep, random = self._log_odds().exp().split(1, -1)
        return keep * self.right.probs() + random / self.num_classes

    def entropy(self) -> Tensor:
        """Entropy of the label as it is observed in nats, (*batch,)."""
        probs = self.probs().clamp_min(1e-30)  # a class that cannot be adds nothing
        return -(probs * probs.log()).sum(-1)

    def log_probs(self) -> Tensor:
        """Logarithms of the probabilities of labels as they are observed, (*batch, K)."""
        return self._observed(self.right.log_probs())

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of labels as they are observed, (*batch,)."""
        return self._observed(self.right.log_prob(target).unsqueeze(-1)).squeeze(-1)

    def right_probs(self, target: Tensor) -> Tensor:
        r"""Probabilities of the right class, given the label that was observed, (*batch, K).

        Bayes' rule: $p_k\,((1 - E\pi)\,[k = y] + E\pi/K)$, normalised.

        Args:
            target: the given labels, class indices, (*batch,).
        """
        target = check_labels(target, self.batch_shape).unsqueeze(-1)
        keep, random = self._log_odds().split(1, -1)
        random = random - math.log(self.num_classes)
        log_likelihood = random.expand_as(self.logit_mean).scatter(
            -1, target, torch.logaddexp(keep, random)
        )
        return (self.right.log_probs() + log_likelihood).softmax(-1)

    def wrong_label_probability(self, target: Tensor) -> Tensor:
        """Probability that a given label is not the right one: which labels to check, (*batch,).

        Args:
            target: the given labels, class indices, (*batch,).
        """
        others = self.right_probs(target).scatter(-1, target.unsqueeze(-1), 0.0)
        return others.sum(-1)

    def mean_logits(self) -> Tensor:
        """The means of the logits of the right label, (*batch, K)."""
        return self.logit_mean

    def mutual_information(self) -> Tensor:
        """Most that the observed label can tell of the weights of the classes, nats, (*batch,).

        That of the right label times 1 − Eπ: what is left if it were known which labels are drawn
        at random.
        """
        return self.right.mutual_information() * self._log_odds()[..., 0].exp()

    def total_epistemic_variance(self) -> Tensor:
        """Variance of the logits due to the weights, summed over classes, (*batch,)."""
        return self.epistemic_variance.sum(-1)

    def temper(self, temperature: Tensor) -> NoisyLabelPredictive:
        """The predictive with the logits of the right label over τ, (); π stays."""
        return self._of(self.right.temper(temperature), self.log_odds_mean, self.log_odds_variance)

    def pooled(self) -> NoisyLabelPredictive:
        """Gaussian logits and log-odds with the moments over the last dimension of the batch."""
        mean, variance = self.log_odds_mean, self.log_odds_variance
        spread = mean.var(-2, correction=0)
        return self._of(self.right.pooled(), mean.mean(-2), variance.mean(-2) + spread)

    @classmethod
    def _of(
        cls, right: DiscriminativePredictive, mean: Tensor, variance: Tensor
    ) -> NoisyLabelPredictive:
        return cls(right.logit_mean, right.epistemic_variance, mean, variance)
