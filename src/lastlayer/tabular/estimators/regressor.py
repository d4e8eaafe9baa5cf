"""The regressor for tables."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from ..._checks import check_choice, check_count
from ...calibration import TailScaling
from ...heads import Head, HeteroscedasticRegression, Regression
from ...predictive import RegressionPredictive
from ...priors import Prior
from ..absence import AddedVariance
from ..model import Units
from ..scores import explained_variance
from ..screening import screening_helps
from ._base import LastLayerEstimator
from ._conformal import intervals
from ._networks import MakeHead
from ._reading import Array
from ._sampling import draws, generator

MIN_SCALE, MAX_SCALE = 1e-150, 1e150  # of targets, whose variance must not underflow or overflow


class LastLayerRegressor(RegressorMixin, LastLayerEstimator):  # type: ignore[misc]
    """Regression with calibrated uncertainty, for tables.

    A network with a variational Bayesian last layer. Number of epochs, regularisation, whether the
    noise depends on the row, and the tails of the errors are chosen by cross-validation
    (`lastlayer.crossfit`), so that the defaults suit most tables.

    Args:
        hidden_layers: widths of the hidden layers; () is Bayesian linear regression.
        noise: "constant" for all rows, "varying" with the row, or "auto": cross-validation chooses.
        preset: "fast", "default" or "best": how long to train, on how many held-out rows to choose,
            and what to choose from (docs/tables.md).
        time_limit: seconds of training, after which the best so far is kept.
        max_epochs: maximum number of epochs; "auto" depends on the preset and the number of rows.
        early_stopping: whether to try few epochs first, and twice as many while that helps.
        num_folds: folds of the cross-validation, of which as many are held out as it takes to have
            1000 held-out rows, or 500 or 5000 by the preset.
        batch_size: rows per step; "auto" is 128, and up to 512 with many rows.
        learning_rate: initial learning rate of SOAP, with a cosine schedule.
        weight_decays: candidates for the weight decay of the hidden layers, divided by the number
            of rows; cross-validation chooses. "auto" depends on the preset.
        false_alarm_rate: share of rows like those of training with an `ood_score` above
            `ood_threshold_`.
        interval: "predictive", the central interval of the predictive distribution, or "conformal",
            whose coverage is guaranteed (see `predict_interval`), for the price of a fifth of the
            rows, at most 5,000, that are held out from training.
        random_state: seed or generator; an int makes fits reproducible.
        device: device to compute on, such as "cuda"; by default the CPU.
        verbose: whether to show progress.

    Attributes:
        columns_: kind of each column of the table, and levels of categories.
        model_: the trained `TableModel`, a torch module of codes.
        num_epochs_: chosen number of epochs.
        weight_decay_: chosen weight decay.
        head_: chosen noise, "constant" or "varying".
        screened_: whether inputs that have nothing to do with the target are left out: if there are
            20 or more, and ridge regression is better without on held-out rows.
        hidden_layers_: chosen widths of the hidden layers.
        num_bins_: number of bins of numbers that the network is given besides the numbers, if
            these were better on held-out rows; else 0.
        search_ended_: why the search ended: "converged" if longer training was no better, or
            "max_epochs" or "time_limit" if it might have been.
        still_falling_: by how much the last lengthening of the training lowered the held-out NLL,
            if the search ended there; else 0.
        tried_: all settings tried, with the NLL of held-out data, whose targets have unit variance.
        held_out_scores_: `nll`, `rmse`, `r2` and `coverage_0.9` of out-of-fold predictions, in the
            units of the target; slightly optimistic, because epochs and calibration are chosen on
            the same data.
        ood_threshold_: `ood_score` above which a row counts as unusual.
        n_features_in_: number of columns.
        feature_names_in_: names of the columns, if X was a frame.
    """

    task = "regression"
    absence = AddedVariance

    def __init__(
        self,
        hidden_layers: tuple[int, ...] = (50, 50),
        *,
        noise: str = "auto",
        preset: str = "default",
        time_limit: float | None = None,
        max_epochs: int | str = "auto",
        early_stopping: bool = True,
        num_folds: int = 5,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-2,
        weight_decays: tuple[float, ...] | str = "auto",
        false_alarm_rate: float = 0.01,
        interval: str = "predictive",
        random_state: Any = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.noise = noise
        super().__init__(
            hidden_layers,
            preset=preset,
            time_limit=time_limit,
            max_epochs=max_epochs,
            early_stopping=early_stopping,
            num_folds=num_folds,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decays=weight_decays,
            false_alarm_rate=false_alarm_rate,
            interval=interval,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )

    def _check(self) -> None:
        check_choice("noise", self.noise, ["auto", "constant", "varying"])
        super()._check()

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """The mean of each target, (num_rows,), and with `return_std` its standard deviation too.

        With several targets both are (num_rows, num_targets).
        """
        predictive = self._predictions(X).predictive
        mean = self._shaped(predictive.mean)
        return (mean, self._shaped(predictive.stddev)) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> Array:  # noqa: N803
        """Lower and upper end of a prediction interval of each target.

        With `interval="conformal"`: if new rows and those of `fit` are exchangeable, as draws from
        one population are, then P(lower ≤ target ≤ upper) ≥ level for each target, whatever the
        model and the population, on average over tables and rows (split conformal; Lei et al.,
        2018). It is not a promise for each kind of row. Kinds and category levels of columns are
        inferred from all rows, which is outside of the guarantee. With fewer than about
        5 level/(1 − level) rows, 45 for 0.9, intervals are infinite.

        Returns:
            (num_rows, 2), or (num_rows, num_targets, 2) with several targets.
        """
        ends = self.ends(self._predictions(X).predictive, level)
        return np.stack([self._shaped(end) for end in ends], -1)

    def ends(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Ends of the intervals of `predict_interval`, from the predictive of rows."""
        if self.interval == "conformal":
            lower, upper = intervals(self.conformal_scores_, level)(predictive)
            return lower, upper
        return predictive.interval(level)

    def predict_dist(self, X: Any) -> RegressionPredictive:  # noqa: N803
        """The predictive distribution, in the units of the target, as tensors.

        It has `mean`, `stddev`, `epistemic_variance`, `noise_variance`, `interval`, `log_prob`,
        `cdf`, `sample` and `distribution()`; targets are (num_rows, num_targets).
        """
        predictive: RegressionPredictive = self._predictions(X).predictive
        return predictive

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:  # noqa: N803
        """Draw targets, (num_rows, n_samples), or (num_rows, num_targets, n_samples).

        In a draw all rows share one last layer, as in a draw of a Gaussian process: errors of
        similar rows are correlated. Each row by itself has the distribution of `predict_dist`.
        """
        check_is_fitted(self, "model_")
        check_count("n_samples", n_samples)
        source = generator(random_state)
        head: Any = self.model_.network.head
        with torch.no_grad():
            weights = head.sample_weights(n_samples, source)  # (S, num_targets, num_features)

        drawn = self._predictions(X).map(partial(draws, weights=weights, source=source))
        return self._shaped(drawn)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> LastLayerRegressor:  # noqa: N803
        """Condition the last layer on more rows, exactly; hidden layers and noise stay.

        The result depends neither on the order of the rows nor on how they are divided over calls.
        On a new estimator this is `fit`.
        """
        if not hasattr(self, "model_"):
            fitted: LastLayerRegressor = self.fit(X, y, sample_weight)
            return fitted
        self._update(X, y, sample_weight)
        return self

    # ------------------------------------------------------------------ what a task adds

    def _read_target(self, y: Any, *, reset: bool) -> Array:
        target: Array = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        if reset:
            self.target_shape_ = target.shape[1:]
        if target.ndim > 2 or target.shape[1:] != self.target_shape_:
            expected = "" if reset else f" as in training, {('num_rows', *self.target_shape_)}"
            raise ValueError(
                f"y must be of shape (num_rows,) or (num_rows, num_targets){expected}, got "
                f"{target.shape}"
            )
        return target.reshape(len(target), -1)

    @property
    def _num_targets(self) -> int:
        return math.prod(self.target_shape_)

    def _tensor(self, target: Tensor) -> Tensor:
        return target

    def _units(self, target: Tensor, weight: Tensor) -> Units:
        units = Units.fit(target, weight)
        for scale in units.scale.tolist():
            if not MIN_SCALE < scale < MAX_SCALE:
                raise ValueError(
                    f"y has a standard deviation of {scale:.3g}, whose square float64 cannot "
                    "hold; choose other units for y"
                )
        return units

    def _screens(self, data: tuple[Tensor, ...], seed: int) -> bool:
        return screening_helps(seed, *data)

    def _heads(self) -> dict[str, MakeHead]:
        heads: dict[str, MakeHead] = {"constant": self._head, "varying": self._varying_head}
        return heads if self.noise == "auto" else {self.noise: heads[self.noise]}

    def _head(self, num_features: int, num_data: float) -> Head:
        return Regression(num_features, covariance="shared", **self._options(num_data))

    def _varying_head(self, num_features: int, num_data: float) -> Head:
        # each output has its own posterior, which `partial_fit` carries on
        covariance = "shared" if self._num_targets == 1 else "dense"
        return HeteroscedasticRegression(
            num_features, covariance=covariance, **self._options(num_data)
        )

    def _options(self, num_data: float) -> dict[str, Any]:
        return {
            "num_outputs": self._num_targets,
            "num_data": num_data,
            "bias": True,
            "prior": Prior(noise_scale=0.01),
            "dtype": torch.float32,
        }

    def _scaling(self) -> TailScaling:
        return TailScaling(self._num_targets)

    def _scores(
        self, predictive: Any, units: Units, target: Tensor, weight: Tensor
    ) -> dict[str, float]:
        target = units.restore(target)
        share = (weight / weight.sum()).unsqueeze(-1)
        lower, upper = predictive.interval(0.9)
        square = (share * (target - predictive.mean).square()).sum(0)
        scores = {
            "nll": -(share[:, 0] * predictive.log_prob(target)).sum(),
            "rmse": square.mean().sqrt(),
            "r2": explained_variance(predictive.mean, target, weight),
            "coverage_0.9": (share * ((lower <= target) & (target <= upper))).sum(0).mean(),
        }
        return {name: float(value) for name, value in scores.items()}

    def _nonconformity(self, predictive: Any, target: Tensor) -> Tensor:
        scores: Tensor = (target - predictive.mean).abs() / predictive.stddev
        return scores

    def _shaped(self, values: Tensor) -> Array:
        """Values as a NumPy array, without the dimension of targets if y had none."""
        array: Array = values.numpy()
        return array if self.target_shape_ else array[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
