"""The base class of estimators for tables: training and predicting."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ..._checks import check_choice
from ...heads import Head
from ...ood import threshold
from ...training.crossfitting import CrossFit, crossfit
from ..absence import Absence
from ..bins import Bins
from ..density import RowDensity, densities, learns
from ..encoding import Encoding
from ..model import TableModel, Units
from ..predictions import Predictions
from ..rows import Rows
from ._conformal import INTERVALS, hold_out, repeated
from ._networks import MakeHead, Networks
from ._reading import Array, TableReader
from ._settings import Candidate, Plan, check_settings, ended_early

AnyEstimator = TypeVar("AnyEstimator", bound="LastLayerEstimator")


class LastLayerEstimator(TableReader):
    """A network with a Bayesian last layer for the rows of a table."""

    task: ClassVar[str]  # "regression" or "classification"
    absence: ClassVar[type[Absence]]  # what is made of absent values

    # set by fit
    head_: str
    hidden_layers_: tuple[int, ...]
    num_bins_: int
    screened_: bool
    model_: TableModel

    def __init__(
        self,
        hidden_layers: tuple[int, ...] = (50, 50),
        *,
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
        self.hidden_layers = hidden_layers
        self.preset = preset
        self.time_limit = time_limit
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.num_folds = num_folds
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decays = weight_decays
        self.false_alarm_rate = false_alarm_rate
        self.interval = interval
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # ------------------------------------------------------------------ what a task adds

    @abstractmethod
    def _tensor(self, target: Tensor) -> Tensor:
        """Targets as the head takes them, from numbers, (T, K)."""

    @property
    @abstractmethod
    def _num_targets(self) -> int:
        """The number of targets, K."""

    @abstractmethod
    def _units(self, target: Tensor, weight: Tensor) -> Units:
        """The units of the targets."""

    @abstractmethod
    def _head(self, num_features: int, num_data: float) -> Head:
        """A new head."""

    def _heads(self) -> dict[str, MakeHead]:
        """Functions that make new heads, by name, of which cross-validation chooses one."""
        return {self.task: self._head}

    @abstractmethod
    def _scaling(self) -> nn.Module:
        """A new calibration."""

    @abstractmethod
    def _scores(
        self, predictive: Any, units: Units, target: Tensor, weight: Tensor
    ) -> dict[str, float]:
        """Scores of predictions for targets as the head takes them, with weights (T,)."""

    def _decide(self, predictive: Any, target: Tensor, weight: Tensor) -> None:
        """Choose by out-of-fold predictions what depends on decisions."""

    @abstractmethod
    def _nonconformity(self, predictive: Any, target: Tensor) -> Tensor:
        """How far targets as numbers, (T, K), are from what is predicted, (T, …)."""

    # ---------------------------------------------------------------------------- fitting

    def fit(self: AnyEstimator, X: Any, y: Any, sample_weight: Any = None) -> AnyEstimator:  # noqa: N803
        """Train on a table.

        The order of the rows does not matter, and a row of weight 2 is the same as the row twice.

        Args:
            X: array or frame, (num_rows, num_columns); missing values are NaN or null.
            y: targets, (num_rows,), or for regression (num_rows, num_targets).
            sample_weight: how often each row counts, (num_rows,).
        """
        self.train(self.read(X, y, sample_weight))
        return self

    def _check(self) -> None:
        for name in ("model_", "conformal_scores_"):  # of an earlier fit, which had other columns
            self.__dict__.pop(name, None)
        check_settings(self.preset, self.hidden_layers, self.weight_decays, self.time_limit)
        check_choice("interval", self.interval, INTERVALS)

    def train(self, rows: Rows) -> None:
        """Train on rows of `read`: the second half of `fit`."""
        if self.interval != "conformal":
            self._train(rows)
            return
        rows, held_out = hold_out(rows, self._seed())
        self._train(rows)
        predictive = Predictions(self.model_, held_out.codes).predictive
        scores = self._nonconformity(predictive, torch.from_numpy(held_out.target))
        self.conformal_scores_ = repeated(scores, held_out)

    def _train(self, rows: Rows) -> None:
        device = self.device or "cpu"
        codes, target, weight = (torch.from_numpy(part.copy()).to(device) for part in rows)
        self.num_data_ = float(weight.sum())
        self.trained_rows_ = rows.fingerprint()
        encoding = Encoding.fit(codes, self.columns_.num_levels, weight)
        units = self._units(target, weight)
        inputs = encoding(codes)
        data = (
            inputs.float(),
            self._tensor(units.remove(target).float()),
            (weight / weight.mean()).float(),
        )
        seed = self._seed()
        self.screened_ = self._screens(data, seed)
        result = self._crossfit(data, seed)
        density, held_out = densities(result, encoding, data[0], weight)
        self.ood_threshold_ = threshold(held_out, self.false_alarm_rate)
        network: Any = result.model
        absence = self.absence.fit(result, encoding, self._num_targets)
        model = TableModel(encoding, network, result.scaling, units, density, absence)
        self._note(result)
        predictive, (_, known, share) = result.held_out()
        predictive = units(result.scaling(predictive.to(torch.float64)))
        self.held_out_scores_ = self._scores(predictive, units, known, share.double())
        self._decide(predictive, known, share)
        self.model_ = model.double().eval()

    def _screens(self, data: tuple[Tensor, ...], seed: int) -> bool:
        """Whether to leave out inputs that have nothing to do with the target."""
        return False

    def _crossfit(self, data: tuple[Tensor, ...], seed: int) -> CrossFit:
        """The network, its calibration and the settings that were tried, by cross-validation."""
        count = len(data[0])
        settings = (self.preset, self.num_folds, self.batch_size, self.max_epochs)
        plan = Plan.of(count, *settings, self.weight_decays)
        bins = Bins.fit(data[0])
        networks = Networks(self._heads(), self.num_data_, self.screened_, bins)
        candidates = networks.candidates(self.preset, self.hidden_layers, count)
        first, *others = (partial(networks.made, each, count) for each in candidates)
        result = crossfit(
            first,
            data,
            alternatives=others,
            seed=seed,
            num_folds=plan.num_folds,
            turns=plan.num_held_out,
            epochs=plan.max_epochs,
            shortest=plan.min_epochs if self.early_stopping else plan.max_epochs,
            growth=plan.growth,
            time_limit=self.time_limit,
            scaling=self._scaling,
            weight_decays=plan.weight_decays,
            batch_size=plan.batch_size,
            learning_rate=self.learning_rate,
            progress=bool(self.verbose),
        )
        chosen = candidates[result.alternative]
        self.head_, self.hidden_layers_ = chosen.head, chosen.widths
        self.num_bins_ = bins.num_bins if chosen.binned else 0
        return result

    def _note(self, result: CrossFit) -> None:
        """Keep what was chosen, and warn if the search ended too soon."""
        self.tried_, self.num_epochs_ = result.tried, result.epochs
        self.weight_decay_ = result.weight_decay
        ends = {True: "time_limit", False: "max_epochs" if result.falling > 0 else "converged"}
        self.search_ended_ = ends[result.out_of_time]
        self.still_falling_ = result.falling
        if text := ended_early(self):
            warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def _seed(self) -> int:
        """A seed from the random state."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def blank_model(self, width: int) -> TableModel:
        """An untrained model for encoded rows, to load a saved one into."""
        chosen = Candidate(self.head_, tuple(self.hidden_layers_), self.num_bins_ > 0)
        bins = Bins(width, self.num_bins_)
        networks = Networks(self._heads(), self.num_data_, self.screened_, bins)
        network = networks.network(chosen, width)
        scaling = self._scaling()
        size = width + (network.head.num_features if learns(network) else 0)
        units, density = Units(self._num_targets), RowDensity(size)
        encoding = Encoding(len(self.columns_.used), width)
        absence = self.absence(len(self.columns_.used), self._num_targets)
        return TableModel(encoding, network, scaling, units, density, absence).double().eval()

    @torch.no_grad()
    def _update(self, X: Any, y: Any, sample_weight: Any) -> None:  # noqa: N803
        """Condition the last layer on more rows."""
        if self.interval == "conformal":
            raise ValueError(
                "the guarantee of interval='conformal' is for the model that was fitted, and an "
                "update changes it; fit again on all rows, or pass interval='predictive'"
            )
        codes, target, weight = self._read(X, y, sample_weight, reset=False)
        features = self.model_.features(self._to_tensor(codes))
        known = self._tensor(self.model_.units.remove(self._to_tensor(target)))
        head: Any = self.model_.network.head
        head.update(features, known, None if weight is None else self._to_tensor(weight))

    # -------------------------------------------------------------------------- predicting

    def _predictions(self, X: Any) -> Predictions:  # noqa: N803
        """The predictions for all rows."""
        check_is_fitted(self, "model_")
        return Predictions(self.model_, self._codes(X))

    def ood_score(self, X: Any) -> Array:  # noqa: N803
        """How unusual each row is compared with those of training, (num_rows,); more is farther.

        Above `ood_threshold_` lies one in a hundred rows like those of training, or the share that
        `false_alarm_rate` says.
        """
        return self._predictions(X).ood_score

    def _to_tensor(self, array: Array) -> Tensor:
        """A copy on the device of the model."""
        return torch.from_numpy(array.copy()).to(self.model_.units.scale.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
