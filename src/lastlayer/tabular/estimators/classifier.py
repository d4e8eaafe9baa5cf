"""The classifier for tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..._checks import check_choice, check_count
from ...calibration import TemperatureScaling
from ...calibration.conformal import check_level
from ...heads import DiscriminativeClassification, GenerativeClassification
from ...predictive import ClassificationPredictive
from ...priors import Prior
from ..absence import AddedTemperature
from ..model import Units
from ..rows import Rows
from ._base import LastLayerEstimator
from ._conformal import threshold as highest_score
from ._deciding import best_threshold, check_threshold, class_weights
from ._labels import checked_labels, distinct, numbered
from ._reading import Array
from ._sampling import generator

MANY_CLASSES = 10  # above which all share one covariance but for a factor: half the time
HEADS = {
    "discriminative": DiscriminativeClassification,
    "generative": GenerativeClassification,
}


def _generative(estimator: LastLayerClassifier) -> bool:
    if estimator.head == "generative":
        return True
    raise AttributeError(
        "only head='generative' has an exact update; fit a discriminative head again on all rows"
    )


class LastLayerClassifier(ClassifierMixin, LastLayerEstimator):  # type: ignore[misc]
    """Classification with calibrated probabilities, for tables.

    A network with a variational Bayesian last layer. Number of epochs, regularisation and the
    temperature of the probabilities are chosen by cross-validation (`lastlayer.crossfit`), so that
    the defaults suit most tables.

    Args:
        head: "discriminative", a Bayesian softmax, or "generative", a Gaussian density for each
            class, which learns from more rows by `partial_fit`.
        hidden_layers: widths of the hidden layers; () is Bayesian logistic regression.
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
        class_weight: "balanced", for weights inverse to how frequent a class is, or a dict of
            weights by label; probabilities are then those of a table with classes so weighted.
        threshold: of two classes, the probability from which on the second of `classes_` is
            predicted; "f1" or "balanced_accuracy" choose it by out-of-fold predictions. None is
            the more probable class.
        false_alarm_rate: share of rows like those of training with an `ood_score` above
            `ood_threshold_`.
        interval: "predictive", sets of classes by their probabilities, or "conformal", whose
            coverage is guaranteed (see `predict_set`), for the price of a fifth of the rows, at
            most 5,000, that are held out from training.
        random_state: seed or generator; an int makes fits reproducible.
        device: device to compute on, such as "cuda"; by default the CPU.
        verbose: whether to show progress.

    Attributes:
        classes_: the labels, sorted.
        threshold_: the probability of `threshold`, chosen or given.
        columns_: kind of each column of the table, and levels of categories.
        model_: the trained `TableModel`, a torch module of codes.
        num_epochs_: chosen number of epochs.
        weight_decay_: chosen weight decay.
        hidden_layers_: chosen widths of the hidden layers.
        num_bins_: number of bins of numbers that the network is given besides the numbers, if
            these were better on held-out rows; else 0.
        search_ended_: why the search ended: "converged" if longer training was no better, or
            "max_epochs" or "time_limit" if it might have been.
        still_falling_: by how much the last lengthening of the training lowered the held-out NLL,
            if the search ended there; else 0.
        tried_: all settings tried, with the NLL of held-out data.
        held_out_scores_: `nll` and `accuracy` of out-of-fold predictions, and `most_frequent`, the
            accuracy of always the most frequent class; slightly optimistic, because epochs and
            calibration are chosen on the same data.
        ood_threshold_: `ood_score` above which a row counts as unusual.
        n_features_in_: number of columns.
        feature_names_in_: names of the columns, if X was a frame.
    """

    task = "classification"
    absence = AddedTemperature
    threshold_: float | None = None

    def __init__(
        self,
        head: str = "discriminative",
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
        class_weight: Any = None,
        threshold: float | str | None = None,
        false_alarm_rate: float = 0.01,
        interval: str = "predictive",
        random_state: Any = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.head = head
        self.class_weight = class_weight
        self.threshold = threshold
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

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The most probable class of each row, or that by `threshold`, (num_rows,)."""
        return self.labels(self.predict_proba(X))

    def labels(self, probs: Array) -> Array:
        """The predicted labels, (num_rows,), from probabilities of classes."""
        chosen = probs.argmax(-1)
        if self.threshold_ is not None:
            chosen = (probs[:, 1] >= self.threshold_).astype(int)
        labels: Array = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of each class, in the order of `classes_`, (num_rows, num_classes)."""
        probs: Array = self._predictions(X).map(lambda model, codes: model(codes).probs()).numpy()
        return probs

    def predict_set(self, X: Any, level: float = 0.9) -> Array:  # noqa: N803
        """Whether each class is in a set that holds the label, boolean, (num_rows, num_classes).

        The fewest classes whose probabilities add up to the level. With `interval="conformal"`
        those that are likely enough: if new rows and those of `fit` are exchangeable, as draws from
        one population are, then P(label in set) ≥ level, on average over tables and rows, whatever
        the model and the population (split conformal; Sadinle et al., 2019); a set may be empty.
        Kinds and category levels of columns are inferred from all rows, which is outside of the
        guarantee.
        """
        return self.sets(self._predictions(X).predictive, level)

    def sets(self, predictive: ClassificationPredictive, level: float) -> Array:
        """The sets of `predict_set`, from the predictive of rows."""
        check_level(level)
        log_probs = predictive.log_probs()
        if self.interval == "conformal":
            within: Array = (-log_probs <= highest_score(self.conformal_scores_, level)).numpy()
            return within
        probs, order = log_probs.exp().sort(dim=-1, descending=True, stable=True)
        before = probs.cumsum(-1) - probs  # of the likelier classes
        chosen: Array = torch.empty_like(before).scatter(-1, order, before).lt(level).numpy()
        return chosen

    def predict_dist(self, X: Any) -> ClassificationPredictive:  # noqa: N803
        """The predictive distribution, as tensors; classes are numbered as in `classes_`.

        It has `probs`, `log_prob`, `entropy`, `mutual_information`, `sample` and
        `distribution()`.
        """
        predictive: ClassificationPredictive = self._predictions(X).predictive
        return predictive

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:  # noqa: N803
        """Draw labels, (num_rows, n_samples), each from its row's probabilities."""
        check_is_fitted(self, "model_")
        check_count("n_samples", n_samples)
        draws = self._predictions(X).predictive.sample((n_samples,), generator(random_state))
        labels: Array = self.classes_[draws.numpy().T]
        return labels

    @available_if(_generative)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> LastLayerClassifier:
        """Condition the last layer on more rows, exactly; the hidden layers stay.

        The result depends neither on the order of the rows nor on how they are divided over calls.
        On a new estimator this is `fit`.

        Args:
            X: more rows.
            y: their labels, all of classes seen in training.
            classes: ignored except on a new estimator, where all of them must occur in y.
            sample_weight: how often each row counts.
        """
        if not hasattr(self, "model_"):
            absent = set() if classes is None else set(np.unique(classes)) - set(np.unique(y))
            if absent:
                raise ValueError(
                    f"classes {sorted(map(str, absent))} do not occur in y; the first call trains "
                    "the network, and needs examples of all of them"
                )
            fitted: LastLayerClassifier = self.fit(X, y, sample_weight)
            return fitted
        self._update(X, y, sample_weight)
        return self

    # ------------------------------------------------------------------ what a task adds

    def _read_target(self, y: Any, *, reset: bool) -> Array:
        check_choice("head", self.head, HEADS)
        labels = checked_labels(y)
        if reset:
            self.classes_ = distinct(labels, type(self).__name__)
        return numbered(labels, self.classes_)[:, None]

    @property
    def _num_targets(self) -> int:
        return 1

    def _tensor(self, target: Tensor) -> Tensor:
        return target[:, 0].long()

    def _train(self, rows: Rows) -> None:
        check_threshold(self.threshold, len(self.classes_))
        if self.class_weight is not None:
            labels = rows.target[:, 0]
            factors = class_weights(self.class_weight, self.classes_, labels, rows.weight)
            rows = rows._replace(weight=rows.weight * factors[labels.astype(int)])
        super()._train(rows)

    def _decide(self, predictive: Any, target: Tensor, weight: Tensor) -> None:
        self.threshold_ = None if isinstance(self.threshold, str) else self.threshold
        if isinstance(self.threshold, str):
            parts = (predictive.probs()[:, 1], target, weight)
            probs, labels, share = (part.double().cpu().numpy() for part in parts)
            self.threshold_ = best_threshold(self.threshold, probs, labels, share)

    def _units(self, target: Tensor, weight: Tensor) -> Units:
        return Units(1).to(target.device)  # probabilities have no units

    def _head(self, num_features: int, num_data: float) -> Any:
        # decision 31: the tilted bound, and a prior of logits of unit variance
        options: Any = {"prior": Prior()}
        if self.head == "discriminative":
            many = len(self.classes_) > MANY_CLASSES
            options = {"bias": True, "covariance": "kronecker" if many else "dense"}
        return HEADS[self.head](
            num_features,
            len(self.classes_),
            num_data=num_data,
            dtype=torch.float32,
            **options,
        )

    def _scaling(self) -> TemperatureScaling:
        return TemperatureScaling()

    def _nonconformity(self, predictive: Any, target: Tensor) -> Tensor:
        # from all classes at once, as `sets` does, so that rounding is the same
        scores: Tensor = -predictive.log_probs().gather(-1, target.long())[:, 0]
        return scores

    def _scores(
        self, predictive: Any, units: Units, target: Tensor, weight: Tensor
    ) -> dict[str, float]:
        share = weight / weight.sum()
        right = (predictive.probs().argmax(-1) == target).double()
        frequency = torch.zeros_like(share).scatter_add(0, target, share)
        scores = {
            "nll": -(share * predictive.log_prob(target)).sum(),
            "accuracy": (share * right).sum(),
            "most_frequent": frequency.max(),
        }
        return {name: float(value) for name, value in scores.items()}
