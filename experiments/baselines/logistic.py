"""Logistic regression on the inputs, by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lastlayer as ll

from ..harness.method import Method, Solved
from ..harness.task import Supervised


@dataclass(frozen=True, kw_only=True)
class Logistic(Method):
    """Logistic regression on the inputs, whose penalty is chosen by cross-validation."""

    label = "logistic regression"

    num_folds: int = 5  # or as many as the rarest class has examples
    min_grouped: int = 100  # examples; of fewer, groups may leave a fold without a class
    penalties: tuple[float, ...] = tuple(10.0**power for power in range(-2, 5))  # C

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Fit each task by itself."""
        return [self._fit(task) for task in tasks]

    def _fit(self, task: Supervised) -> tuple[nn.Module, dict[str, Any]]:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold

        inputs, target = (part.numpy() for part in task.train)
        folds = min(self.num_folds, int(np.bincount(target).min()))
        model = LogisticRegression(max_iter=1000)
        notes: dict[str, Any] = {}
        if folds > 1:
            groups = np.arange(len(target))
            if task.groups is not None and len(target) >= self.min_grouped:
                groups = task.groups.numpy()
            splits = StratifiedGroupKFold(folds, shuffle=True, random_state=task.seed)
            search = GridSearchCV(
                model, {"C": list(self.penalties)}, scoring="neg_log_loss", cv=splits
            )
            model = search.fit(inputs, target, groups=groups).best_estimator_
            notes = {"validation_nll": -float(search.best_score_)}
        else:
            model.fit(inputs, target)
        return LogisticNetwork(model), notes | {"penalty": float(model.C)}


class LogisticNetwork(nn.Module):
    """Predictives of a fitted model of scikit-learn.

    Args:
        model: of two classes or more, 0, 1 and so on.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> ll.SoftmaxPredictive:
        """Class probabilities."""
        return ll.SoftmaxPredictive(torch.from_numpy(self.model.predict_log_proba(inputs.numpy())))
