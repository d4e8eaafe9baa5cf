"""Predictives of classification heads and of a plain softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._checks import check_count, check_labels
from ..functional import expected_entropy_of_softmax, expected_log_softmax, expected_softmax
from ..functional.softmax_entropy import quick_entropy_of_mean_softmax
from ._base import as_shape, log_mean_exp
from .classification import ClassificationPredictive, entropy


@dataclass(frozen=True, eq=False, repr=False)
class DiscriminativePredictive(ClassificationPredictive):
    """Softmax of independent Gaussian logits.

    Attributes:
        logit_mean: (*batch, K).
        epistemic_variance: variance of the logits due to the weights, (*batch, K).
        noise_variance: variance of the logits due to label noise, (*batch, K).
    """

    logit_mean: Tensor
    epistemic_variance: Tensor
    noise_variance: Tensor

    @property
    def logit_variance(self) -> Tensor:
        """Variance of the logits, weights and noise together, (*batch, K)."""
        return self.epistemic_variance + self.noise_variance

    def mean_logits(self) -> Tensor:
        """The means of the logits, (*batch, K)."""
        return self.logit_mean

    def probs(
        self,
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
        *,
        num_nodes: int | None = None,
    ) -> Tensor:
        """Class probabilities E[softmax(z)], (*batch, K); quadrature unless samples are asked.

        Args:
            num_samples: the mean softmax of so many draws of the logits instead.
            generator: of the draws.
            num_nodes: of an accurate quadrature, 32 for instance; see
                `lastlayer.functional.expected_softmax`.
        """
        if num_samples is None:
            return expected_softmax(self.logit_mean, self.logit_variance, num_nodes)
        check_count("num_samples", num_samples)
        logits = self.sample_logits((num_samples,), generator)
        return logits.softmax(-1).mean(0)

    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, by quadrature, (*batch, K)."""
        return expected_log_softmax(self.logit_mean, self.logit_variance)

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of class labels, (*batch,)."""
        target = check_labels(target, self.batch_shape).unsqueeze(-1)
        found = expected_log_softmax(self.logit_mean, self.logit_variance, classes=target)
        return found.squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropy of the label in nats, (*batch,)."""
        probs = self.probs().clamp_min(1e-30)  # a class that cannot be adds nothing
        return -(probs * probs.log()).sum(-1)

    def mutual_information(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Mutual information of the label and the weights in nats, (*batch,).

        H(E p(y|W)) − E H(p(y|W)), where p(y|W) includes the label noise. Without samples both
        expectations are quadratures, and the label noise shrinks the logits of given weights as
        in probit regression. For σ² up to 0.3 that was good to 0.03 nats of up to ten classes and
        to 0.1 of a hundred; without label noise to 0.04 of a hundred, and to 0.12 of a thousand.
        """
        if num_samples is None:
            num_classes = self.logit_mean.shape[-1]
            against_others = num_classes / (num_classes - 1) * self.noise_variance
            shrinkage = (1 + math.pi / 8 * against_others).rsqrt()
            conditional = expected_entropy_of_softmax(
                shrinkage * self.logit_mean, shrinkage.square() * self.epistemic_variance
            )
            marginal = quick_entropy_of_mean_softmax(self.logit_mean, self.logit_variance)
            return (marginal - conditional).clamp(min=0)
        check_count("num_samples", num_samples)
        weights_only = replace(self, noise_variance=torch.zeros_like(self.noise_variance))
        logits = weights_only.sample_logits((num_samples,), generator)
        log_probs = expected_log_softmax(logits, self.noise_variance.expand_as(logits))
        mean = log_probs.logsumexp(0) - math.log(num_samples)
        return entropy(mean) - entropy(log_probs).mean(0)

    def total_epistemic_variance(self) -> Tensor:
        """Variance of the logits due to the weights, summed over classes, (*batch,)."""
        return self.epistemic_variance.sum(-1)

    def temper(self, temperature: Tensor) -> DiscriminativePredictive:
        """The predictive with logits over τ, (): their mean over τ, their variances over τ²."""
        return DiscriminativePredictive(
            self.logit_mean / temperature,
            self.epistemic_variance / temperature.square(),
            self.noise_variance / temperature.square(),
        )

    def pooled(self) -> DiscriminativePredictive:
        """Gaussian logits with the mean and variance over the last dimension of the batch.

        The spread of the means counts as epistemic. A constant added to all logits of a component
        changes no probability and is no spread.
        """
        mean = self.logit_mean
        spread = (mean - mean.mean(-1, keepdim=True)).var(-2, correction=0)
        return DiscriminativePredictive(
            mean.mean(-2),
            self.epistemic_variance.mean(-2) + spread,
            self.noise_variance.mean(-2),
        )

    def sample_logits(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the logits, (*sample_shape, *batch, K)."""
        mean = self.logit_mean
        shape = (*as_shape(sample_shape), *mean.shape)
        noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + self.logit_variance.sqrt() * noise


@dataclass(frozen=True, eq=False, repr=False)
class GenerativePredictive(ClassificationPredictive):
    """Bayes' rule over Gaussian class densities.

    Attributes:
        log_joint: log E p(φ, y = k | μ, ρ) over class means and probabilities, (*batch, K).
        expected_log_joint: E log p(φ, y = k | μ, ρ), (*batch, K). The difference is what the
            parameters leave uncertain.
    """

    log_joint: Tensor
    expected_log_joint: Tensor

    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, (*batch, K)."""
        return self.log_joint.log_softmax(-1)

    def probs(self) -> Tensor:
        """Class probabilities, exact, (*batch, K)."""
        return self.log_joint.softmax(-1)

    def mean_logits(self) -> Tensor:
        """Logarithms of the joint density of features and class, (*batch, K)."""
        return self.log_joint

    def log_density(self) -> Tensor:
        """Log-density of the features, log p(φ); low means unlike the training data, (*batch,)."""
        return self.log_joint.logsumexp(-1)

    def with_log_density(self, log_density: Tensor) -> GenerativePredictive:
        """The same probabilities of labels with another log p(φ), (*batch,)."""
        shift = (log_density.to(self.log_joint.dtype) - self.log_density()).unsqueeze(-1)
        return GenerativePredictive(self.log_joint + shift, self.expected_log_joint + shift)

    def mutual_information(self) -> Tensor:
        """What observing the label would tell about class means and probabilities, (*batch,).

        H(E p(y|φ, μ)) − E H(p(y|φ, μ)) in nats, under the posterior given φ too. The class
        log-densities given μ are taken as Gaussian, with the two moments that are known, and of
        the classes that φ may have come from only the likeliest are followed: good to 0.02 nats
        with thirty examples per class, and to 0.1 with six.
        """
        # a class that cannot be (α = 0) has both at minus infinity
        variance = 2 * (self.log_joint - self.expected_log_joint).nan_to_num(0, 0, 0).clamp(min=0)
        expected = self.expected_log_joint
        expected = expected.maximum(expected.amax(-1, keepdim=True) - 1e4)
        weight, origin = self.probs().topk(min(8, variance.shape[-1]), -1)  # (*batch, origins)
        # φ came from class c with its probability, and then favours means of class c near φ
        favoured = torch.zeros_like(variance).unsqueeze(-2).expand(*origin.shape, -1)
        favoured = favoured.scatter(-1, origin.unsqueeze(-1), 1.0)
        mean = expected.unsqueeze(-2) + favoured * variance.unsqueeze(-2)
        conditional = expected_entropy_of_softmax(mean, variance.unsqueeze(-2).expand_as(mean))
        conditional = (weight * conditional).sum(-1) / weight.sum(-1)
        return (self.entropy() - conditional).clamp(min=0)

    def temper(self, temperature: Tensor) -> GenerativePredictive:
        """The predictive with probabilities softmax(log p(φ, y)/τ); the density log p(φ) stays."""
        log_probs = (self.log_joint / temperature).log_softmax(-1)
        log_joint = self.log_density().unsqueeze(-1) + log_probs
        # half the variance of the log-densities; a class that cannot be has both at −∞
        spread = (self.log_joint - self.expected_log_joint).nan_to_num(0, 0, 0)
        return GenerativePredictive(log_joint, log_joint - spread / temperature.square())

    def pooled(self) -> GenerativePredictive:
        """The mean joint densities over the last dimension of the batch."""
        return GenerativePredictive(
            log_mean_exp(self.log_joint, -2), self.expected_log_joint.mean(-2)
        )


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxPredictive(ClassificationPredictive):
    """The softmax of plain logits, as any classifier has them; its weights are certain.

    Attributes:
        logits: (*batch, K).
    """

    logits: Tensor

    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, (*batch, K)."""
        return self.logits.log_softmax(-1)

    def probs(self) -> Tensor:
        """Class probabilities, (*batch, K)."""
        return self.logits.softmax(-1)

    def mean_logits(self) -> Tensor:
        """The logits, (*batch, K)."""
        return self.logits

    def has_certain_weights(self) -> bool:
        """Always: there is one set of weights."""
        return True

    def mutual_information(self) -> Tensor:
        """Zero: there is no distribution over weights, unless in a mixture, (*batch,)."""
        return self.logits.new_zeros(self.batch_shape)

    def total_epistemic_variance(self) -> Tensor:
        """Zero: there is no distribution over weights, unless in a mixture, (*batch,)."""
        return self.logits.new_zeros(self.batch_shape)

    def temper(self, temperature: Tensor) -> SoftmaxPredictive:
        """The softmax of logits over τ, ()."""
        return SoftmaxPredictive(self.logits / temperature)

    def pooled(self) -> DiscriminativePredictive:
        """Gaussian logits with the mean and variance over the last dimension of the batch."""
        zero = torch.zeros_like(self.logits)
        return DiscriminativePredictive(self.logits, zero, zero).pooled()
