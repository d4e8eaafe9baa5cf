"""Rewards from comparisons of pairs, with their uncertainty (Bradley–Terry)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .models import LastLayerModel, LastLayerOutput


class Comparison(NamedTuple):
    """What is known of whether the first of two is preferred, (B,) each."""

    log_prob: Tensor  # log-probability that it is
    mutual_information: Tensor  # of the answer and the weights, in nats: what asking would teach


class LastLayerForPairwiseReward(LastLayerModel):
    r"""A reward for each sequence, learned from which of two is preferred.

    $P(A \succ B) = E\,\sigma(r_A - r_B)$ with $r = w^\top\phi$ and a Gaussian posterior of $w$:
    a discriminative head with two classes and without a bias, on differences of features. With a
    pair, `forward` returns the loss and, out of training, the log-probability that the chosen one
    is preferred and the variance of the difference of rewards. With sequences alone it returns the
    rewards' means and variances.
    """

    @property
    def num_outputs(self) -> int:
        """Two classes: the first is preferred, or the second."""
        return 2

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        input_ids_chosen: Tensor | None = None,
        attention_mask_chosen: Tensor | None = None,
        input_ids_rejected: Tensor | None = None,
        attention_mask_rejected: Tensor | None = None,
        return_loss: bool = True,
    ) -> LastLayerOutput:
        """Rewards of sequences, or loss and log-probability of pairs."""
        if input_ids is not None:
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            mean, variance = self._moments(self.pooled(**inputs)[0])
            return LastLayerOutput(None, mean.unsqueeze(-1), variance.unsqueeze(-1))
        if input_ids_chosen is None or input_ids_rejected is None:
            raise ValueError("pass input_ids, or input_ids_chosen and input_ids_rejected")
        difference = self._difference(
            {"input_ids": input_ids_chosen, "attention_mask": attention_mask_chosen},
            {"input_ids": input_ids_rejected, "attention_mask": attention_mask_rejected},
        )
        preferred = torch.ones(len(difference), dtype=torch.long, device=difference.device)
        loss = self._loss(difference, preferred) if return_loss else None
        if self.training:
            return LastLayerOutput(loss)
        log_prob = self.head(difference).log_prob(preferred)
        return LastLayerOutput(loss, log_prob, self._moments(difference)[1])

    @torch.no_grad()
    def reward(self, caution: float = 0.0, **inputs: Any) -> Tensor:
        """Mean of the rewards of sequences less `caution` standard deviations, (B,)."""
        mean, variance = self._moments(self.pooled(**inputs)[0])
        return mean - caution * variance.sqrt()

    @torch.no_grad()
    def compare(self, first: dict[str, Any], second: dict[str, Any]) -> Comparison:
        """Whether the first of each pair is preferred, and what asking would teach."""
        predictive = self.head(self._difference(first, second))
        preferred = torch.ones(predictive.batch_shape, dtype=torch.long, device=self.device)
        return Comparison(predictive.log_prob(preferred), predictive.mutual_information())

    def _difference(self, first: dict[str, Any], second: dict[str, Any]) -> Tensor:
        return self.pooled(**first)[0] - self.pooled(**second)[0]

    def _moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of rewards, (B,) each: the weights of one class less the other's."""
        predictive: Any = self.head(features)
        mean = predictive.logit_mean[..., 1] - predictive.logit_mean[..., 0]
        return mean, predictive.epistemic_variance.sum(-1)
