"""The family of classification predictives: probabilities of classes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from .._checks import check_labels
from ._base import Predictive, as_shape, log_mean_exp


class ClassificationPredictive(Predictive):
    """A predictive of one of K classes.

    One of your own needs `log_probs` and `temper`, and has the rest from here; `pooled` if the
    average over draws may be taken before the softmax, `mean_logits` for the OOD scores of logits,
    and `mutual_information` and `log_density` for those of these names.
    """

    task = "classification"
    scalings: ClassVar[tuple[str, ...]] = ("TemperatureScaling",)
    plain = (
        "wrap plain logits by lastlayer.SoftmaxPredictive(logits), or their model by "
        "lastlayer.Plain(model, 'classification')"
    )

    @property
    def num_classes(self) -> int:
        """The number of outputs or classes, K."""
        return self._tensors()[0].shape[-1]

    def probs(self) -> Tensor:
        """Class probabilities, (*batch, K)."""
        return self.log_probs().exp()

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of class labels, (*batch,)."""
        target = check_labels(target, self.batch_shape)
        return self.log_probs().gather(-1, target.unsqueeze(-1)).squeeze(-1)

    @abstractmethod
    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, (*batch, K)."""

    def mean_logits(self) -> Tensor:
        """Logits, or their mean over weights, not normalised, (*batch, K)."""
        raise self._lacks("logits", "that of lastlayer's heads and SoftmaxPredictive have")

    @property
    def mode(self) -> Tensor:
        """The likeliest class, (*batch,)."""
        return self.probs().argmax(-1)

    def entropy(self) -> Tensor:
        """Entropy of the label in nats, (*batch,)."""
        return entropy(self.log_probs())

    @abstractmethod
    def temper(self, temperature: Tensor) -> ClassificationPredictive:
        """The predictive at a temperature τ, (), softmax(z/τ); τ > 1 is less confident."""

    def affine(self, location: Tensor, scale: Tensor) -> ClassificationPredictive:
        """Itself: labels have no units."""
        return self

    def pooled(self) -> ClassificationPredictive:
        """The average over the last dimension of the batch, (*batch, S), before the softmax."""
        raise self._lacks("an average before the softmax", "those of lastlayer's heads have")

    def _mixed(self) -> ClassificationPredictive:
        return ClassMixturePredictive(self)

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


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy of class probabilities from their logarithms, (*batch,)."""
    finite = log_probs.clamp(min=-1e4)  # impossible classes add nothing, nor to the gradient
    return -(finite.exp() * finite).sum(-1)


@dataclass(frozen=True, eq=False, repr=False)
class ClassMixturePredictive(ClassificationPredictive):
    """The mean of S class probabilities: features are averaged over after the softmax.

    Attributes:
        components: of batch shape (*batch, S).
    """

    components: ClassificationPredictive

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions, without that of the components."""
        return self.components.batch_shape[:-1]

    @property
    def num_classes(self) -> int:
        """The number of outputs or classes, K."""
        return self.components.num_classes

    def probs(self) -> Tensor:
        """Class probabilities, (*batch, K)."""
        return self.components.probs().mean(-2)

    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, (*batch, K)."""
        return log_mean_exp(self.components.log_probs(), -2)

    def mutual_information(self) -> Tensor:
        """Mutual information of the label and all weights, those of features too, (*batch,).

        H(E p(y|W, θ)) − E H(p(y|W, θ)) in nats; what is approximate about it is what is about
        the `mutual_information` of the components.
        """
        given_weights = self.components.entropy() - self.components.mutual_information()
        return (self.entropy() - given_weights.mean(-1)).clamp(min=0)

    def mean_logits(self) -> Tensor:
        """Logits of the components, averaged, (*batch, K)."""
        return self.components.mean_logits().mean(-2)

    def log_density(self) -> Tensor:
        """Log-density of the features, log E p(φ); of generative components, (*batch,)."""
        return log_mean_exp(self.components.log_density())

    def total_epistemic_variance(self) -> Tensor:
        """Variance of the logits due to all weights, summed over classes, (*batch,)."""
        return self.before_softmax().total_epistemic_variance()

    @property
    def epistemic_variance(self) -> Tensor:
        """Variance of the logits due to all weights, of discriminative components, (*batch, K)."""
        logits: Any = self.before_softmax()
        return logits.epistemic_variance

    def before_softmax(self) -> ClassificationPredictive:
        """Average over features before the softmax instead (paper, appendix B).

        Of generative components the joint densities are averaged, and draws that find an input
        likelier count for more. Of discriminative ones the logits are: a Gaussian with their mean
        and variance, in which the spread of the components' means counts as epistemic.
        """
        return self.components.pooled()

    def temper(self, temperature: Tensor) -> ClassMixturePredictive:
        """The mixture of the components at a temperature τ, ()."""
        return ClassMixturePredictive(self.components.temper(temperature))

    def _mixed(self) -> ClassificationPredictive:
        """The mixture of mixtures is one over all their components."""
        at = len(self.batch_shape) - 1
        components = self.components.map(lambda tensor: tensor.flatten(at, at + 1))
        return ClassMixturePredictive(components)
