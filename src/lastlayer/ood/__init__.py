"""Out-of-distribution scores: how unlike the training data an input is.

Higher is further out, for every score. Some are functions of a predictive,

    ood.mutual_information(model(x))
    ood.scores(model, loader, "mutual_information")  # the same, over a whole data set

and `FeatureDensity` is fitted to the features of any backbone in one pass over its training data.
`threshold` turns the scores of held-out data into a limit with a known rate of false alarms.
"""

from .density import FeatureDensity
from .predictive_scores import (
    SCORES,
    epistemic_variance,
    feature_density,
    max_probability,
    mutual_information,
    predictive_entropy,
    scores,
    threshold,
)

__all__ = [
    "SCORES",
    "FeatureDensity",
    "epistemic_variance",
    "feature_density",
    "max_probability",
    "mutual_information",
    "predictive_entropy",
    "scores",
    "threshold",
]
