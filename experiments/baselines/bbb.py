"""BBB: Gaussian posteriors of all weights, by Bayes by backprop (Blundell et al., 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import AnyMethod, Method

LONGEST = 10_000  # epochs, for variational features (paper, appendix D, table of maximum epochs)
BATCHES = {"boston": 64, "concrete": 256, "energy": 128, "power": 256, "wine": 256, "yacht": 64}


@dataclass(frozen=True, kw_only=True)
class Variational(Method):
    """What BBB and VBLL BBB have in common."""

    single_pass: ClassVar[bool] = False
    num_seeds: ClassVar[int] = 10  # paper, appendix D

    num_prediction_samples: int = 10  # paper, appendix D
    validate_every: int = 100  # paper, appendix D
    weight_decay: float = 0.0  # weights have priors: N(0, 4/√n_in), paper, appendix D

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """The paper's number of epochs."""
        return super().for_dataset(dataset, **{"epochs": LONGEST} | changes)


@dataclass(frozen=True, kw_only=True)
class BBB(Variational):
    """The prior N(0, 4/√n_in) for every weight; the noise variance is learned.

    The paper took these figures from elsewhere: prior, epochs and samples are of its own BBB
    features. Validation NLL has two minima, an early one, where the posterior is still narrow, and
    one after thousands of epochs, when the fit has recovered from its widening. By four seeds each,
    these knobs show the first on Boston and Concrete, and reach the second on Yacht.
    """

    label = "BBB"

    learning_rate: float = 5e-3
    validate_every: int = 20
    scale_targets: bool = True  # the prior is for outputs of order one

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """In about five batches; on the largest data in more, and for as long as time allows."""
        knobs = {"batch_size": BATCHES[dataset], "epochs": 1000 if dataset == "power" else LONGEST}
        return super().for_dataset(dataset, **knobs | changes)

    def make(self, split: Split) -> BayesianNetwork:
        """The network with all its layers variational."""
        return BayesianNetwork(split.num_inputs, split.num_data, self.num_prediction_samples)


class BayesianNetwork(mlp.GaussianNetwork):
    """Predicts an equal mixture over draws of the weights."""

    def __init__(self, num_inputs: int, num_data: int, num_prediction_samples: int) -> None:
        network = mlp.regressor(num_inputs)
        ll.make_variational(network, inplace=True)
        super().__init__(network)
        self.num_data, self.num_prediction_samples = num_data, num_prediction_samples

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the negative ELBO per example, from one draw."""
        if target is not None:
            nll = super().forward(inputs, target)
            assert isinstance(nll, Tensor)
            return nll + ll.variational.kl(self) / self.num_data
        return self.mixture(inputs, self.num_prediction_samples)
