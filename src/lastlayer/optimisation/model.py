"""A network with a Bayesian last layer as a model of BoTorch."""

from __future__ import annotations

import torch
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.types import DEFAULT, _DefaultType
from torch import Tensor, nn

from .._checks import check_number
from ..priors import Prior
from .data import Data
from .posterior import Surrogate
from .training import NOISE_PRIOR, FeatureTraining, fit_last_layer, make_network, train_features


class LastLayerModel(Surrogate):
    """A surrogate for Bayesian optimisation: features of a network, and an exact last layer.

    Values at several points are jointly Gaussian, by the posterior of the weights. A new model has
    initial features and the exact posterior of the last layer given the data, as a Gaussian process
    has before its hyperparameters are fitted; `fit` trains the features.

    Args:
        train_X: inputs, (n, d).
        train_Y: outcomes, (n, m), larger is better.
        train_Yvar: variances of their noise, (n, m); None to estimate one for each output.
        backbone: from transformed inputs (n, d) to features (n, num_features); `Waves` unless
            given.
        num_features: of a backbone that is given.
        prior: of the noise of transformed outcomes, by `noise_dof` and `noise_scale`; the scale of
            the weights is learned.
        training: how `fit` trains.
        outcome_transform: of outcomes; standardised unless given, None for none.
        input_transform: of inputs; scaled to the unit cube unless given, None for none.

    Attributes:
        network: the `lastlayer.Network`, whose head is a `lastlayer.Regression`.
        outputs: indices of its outputs that this model has.
    """

    def __init__(
        self,
        train_X: Tensor,  # noqa: N803 - BoTorch's name
        train_Y: Tensor,  # noqa: N803
        train_Yvar: Tensor | None = None,  # noqa: N803
        *,
        backbone: nn.Module | None = None,
        num_features: int | None = None,
        prior: Prior | None = None,
        training: FeatureTraining | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | _DefaultType | None = DEFAULT,
    ) -> None:
        super().__init__()
        data = Data(train_X, train_Y, train_Yvar)
        data.check()
        self.training_plan = FeatureTraining() if training is None else training
        if input_transform is DEFAULT:
            input_transform = Normalize(data.num_inputs).to(train_X)
        if outcome_transform is DEFAULT:
            outcome_transform = Standardize(data.num_outputs).to(train_Y)
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        self.outputs = list(range(data.num_outputs))
        data = self._learn_transforms(data)
        self.network = make_network(
            data.inputs,
            data.num_outputs,
            backbone,
            num_features,
            NOISE_PRIOR if prior is None else prior,
        )
        fit_last_layer(self.network, data)
        self.eval()

    def _learn_transforms(self, data: Data) -> Data:
        """The data transformed, after transforms have learned what they learn from it."""
        with torch.no_grad():
            self.train()
            inputs = self.transform_inputs(data.inputs)
            outcomes, variances = data.outcomes, data.variances
            if hasattr(self, "outcome_transform"):
                outcomes, variances = self.outcome_transform(outcomes, variances, X=inputs)
            self.eval()
        self._data, self._targets = data, outcomes
        return Data(inputs, outcomes, variances)

    # --------------------------------------------------------------------------- training

    def fit(self) -> LastLayerModel:
        """Train the features on all the data, from where they are, and solve the last layer."""
        self._check_unconditioned("fit")
        data = self._learn_transforms(self._data)
        train_features(self.network, data, self.training_plan)
        fit_last_layer(self.network, data)
        return self

    @torch.no_grad()
    def surprise(self, X: Tensor, Y: Tensor) -> float:  # noqa: N803
        """How much less likely outcomes (n, m) at inputs (n, d) are than the model expects.

        In nats, mean over outcomes, each by itself: about 0 if all is well, and far above if the
        features do not suffice.
        """
        target, noise = self._transform_outcomes(X, Y), self._noise_variance()
        values = self._values(self.transform_inputs(X))
        variance = values.factor.square().sum(-1).mT + noise
        squares = (target - values.mean).square() / variance
        return float(0.5 * (squares - 1).mean())

    def observe(
        self,
        X: Tensor,  # noqa: N803
        Y: Tensor,  # noqa: N803
        Yvar: Tensor | None = None,  # noqa: N803
        *,
        tolerance: float = 1.0,
    ) -> bool:
        """Learn from new observations, in place: update the last layer, or train the features too.

        The recursive update of the last layer is exact and costs next to nothing. If the new
        outcomes are less likely than expected, features, transforms and noise are trained on all
        the data, from where they are (after Brunzema et al., 2025).

        Args:
            X: new inputs, (n, d).
            Y: new outcomes, (n, m).
            Yvar: variances of their noise, if the first observations came with theirs.
            tolerance: the largest `surprise` at which features are kept.

        Returns:
            Whether the features were trained.
        """
        check_number("tolerance", tolerance)
        self._check_unconditioned("observe")
        new = Data(X, Y, Yvar)
        new.check(like=self._data)
        surprised = not self.surprise(X, Y) <= tolerance
        target, weight = self._transform_outcomes(X, Y), None
        self._data = self._data.join(new)
        if surprised:
            self.fit()
            return True
        if Yvar is not None:
            weight = self._noise_variance() / self._transform_outcomes(X, Y, Yvar, 1)
        self.network.head.update(self.features(self.transform_inputs(X)), target, weight)
        self._targets = torch.cat([self._targets, target])
        return False

    def _check_unconditioned(self, what: str) -> None:
        if self._updates or len(self.outputs) != self.network.head.num_outputs:
            raise RuntimeError(
                f"{what} changes the network, which this model shares with the one it was "
                f"conditioned or selected from: call {what} on that one, or make a new model"
            )
