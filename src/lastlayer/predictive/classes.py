"""Predictives of classification: probabilities of classes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from .._checks import check_count, check_labels
from ..functional import expected_entropy_of_softmax, expected_log_softmax, expected_softmax
from ._base import Predictive, as_shape


class _Classes(Predictive):
    """What the two classification predictives share."""

    @abstractmethod
    def probs(self) -> Tensor:
        """Class probabilities, (*batch, K)."""

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of class labels, (*batch,)."""
        target = check_labels(target, self.batch_shape)
        return self.log_probs().gather(-1, target.unsqueeze(-1)).squeeze(-1)

    @abstractmethod
    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, (*batch, K)."""

    @property
    def mode(self) -> Tensor:
        """The likeliest class, (*batch,)."""
        return self.log_probs().argmax(-1)

    def entropy(self) -> Tensor:
        """Entropy of the label in nats, (*batch,)."""
        return _entropy(self.log_probs())

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the label, (*sample_shape, *batch)."""
        probs = self.probs()
        shape = (*as_shape(sample_shape), *self.batch_shape)
        if 0 in shape:
            return torch.empty(shape, dtype=torch.int64, device=probs.device)
        count = math.prod(as_shape(sample_shape))
        flat = probs.reshape(-1, probs.shape[-1])
        drawn = flat.multinomial(count, replacement=True, generator=generator)
        return drawn.mT.reshape(shape)

    def distribution(self) -> Distribution:
        """The categorical distribution of the label."""
        return Categorical(probs=self.probs())


def _entropy(log_probs: Tensor) -> Tensor:
    finite = log_probs.clamp(min=-1e4)  # impossible classes add nothing, nor to the gradient
    return -(finite.exp() * finite).sum(-1)


@dataclass(frozen=True, eq=False)
class DiscriminativePredictive(_Classes):
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

    def probs(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Class probabilities E[softmax(z)], (*batch, K); quadrature unless samples are asked."""
        if num_samples is None:
            return expected_softmax(self.logit_mean, self.logit_variance)
        check_count("num_samples", num_samples)
        logits = self.sample_logits((num_samples,), generator)
        return logits.softmax(-1).mean(0)

    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, by quadrature, (*batch, K)."""
        return expected_log_softmax(self.logit_mean, self.logit_variance)

    def mutual_information(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """What observing the label would tell about the weights, in nats, (*batch,).

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
            return (self.entropy() - conditional).clamp(min=0)
        check_count("num_samples", num_samples)
        weights_only = replace(self, noise_variance=torch.zeros_like(self.noise_variance))
        logits = weights_only.sample_logits((num_samples,), generator)
        log_probs = expected_log_softmax(logits, self.noise_variance.expand_as(logits))
        mean = log_probs.logsumexp(0) - math.log(num_samples)
        return _entropy(mean) - _entropy(log_probs).mean(0)

    def sample_logits(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the logits, (*sample_shape, *batch, K)."""
        mean = self.logit_mean
        shape = (*as_shape(sample_shape), *mean.shape)
        noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + self.logit_variance.sqrt() * noise


@dataclass(frozen=True, eq=False)
class GenerativePredictive(_Classes):
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

    def log_density(self) -> Tensor:
        """Log-density of the features, log p(φ); low means unlike the training data, (*batch,)."""
        return self.log_joint.logsumexp(-1)

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
