"""Training of estimators that is quick, and what is good enough for scikit-learn's checks."""

from typing import Any

QUICK: dict[str, Any] = {
    "hidden_layers": (20,),
    "preset": "fast",
    "max_epochs": 48,
    "early_stopping": False,
    "num_folds": 2,
    "batch_size": 128,
    "learning_rate": 0.03,
    "weight_decays": (30.0,),
    "random_state": 0,
}
# There are some 180 of them, most of which only want a fitted model.
QUICKEST = QUICK | {"max_epochs": 6, "learning_rate": 0.1}
