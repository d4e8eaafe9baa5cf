"""BBB: Gaussian posteriors of all weights, by Bayes by backprop (Blundell et al., 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

import lastlayer as ll

from ..harness.task import Supervised
from .fitted import Fitted
from .plain import RandomNetwork


@dataclass(frozen=True, kw_only=True)
class Variational(Fitted):
    """What BBB and VBLL BBB have in common."""

    single_pass: ClassVar[bool] = False

    num_prediction_samples: int = 10  # paper, appendix D
    validate_every: int = 100  # paper, appendix D
    weight_decay: float = 0.0  # weights have priors: N(0, 4/√n_in), paper, appendix D


@dataclass(frozen=True, kw_only=True)
class BBB(Variational):
    """Gaussian posteriors of all weights, with the prior N(0, 4/√n_in) for each.

    The paper took its figures for tables from elsewhere: prior and samples are of its own BBB
    features. Validation NLL has two minima, an early one, where the posterior is still narrow, and
    one after thousands of epochs, when the fit has recovered from its widening.
    """

    label = "BBB"

    learning_rate: float = 5e-3
    validate_every: int = 20
    scale_targets: bool = True  # the prior is for outputs of order one

    def make(self, task: Supervised) -> BayesianNetwork:
        """The network with all its layers variational."""
        model = BayesianNetwork.of(
            task, num_prediction_samples=self.num_prediction_samples, num_data=task.num_data
        )
        ll.make_variational(model.network, inplace=True)
        return model


class BayesianNetwork(RandomNetwork):
    """Predicts an equal mixture over draws of the weights.

    Args:
        arguments: of `RandomNetwork`, as are further keywords.
        num_data: T, by which the divergence is divided; less for more weight on it.
    """

    def __init__(self, *arguments: Any, num_data: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.num_data = num_data

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
        """The predictive, or with a target the negative ELBO per example, from one draw."""
        found = super().forward(inputs, target)
        return found if target is None else found + ll.variational.kl(self) / self.num_data

    def passes(self, inputs: Tensor) -> Tensor:
        """Outputs of all draws, (B, S, num_outputs): one call, if draws can differ within one."""
        layers = ll.variational.variational_layers(self)
        if all(layer.sampling == "local" for layer in layers):
            return super().passes(inputs)
        return torch.stack([self.network(inputs) for _ in range(self.num_prediction_samples)], 1)
