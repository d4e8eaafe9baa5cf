"""Out-of-distribution scores: how unlike the training data an input is.

Higher is further out, for every score. Some are functions of a predictive,

    ood.energy(model(x))
    ood.scores(model, loader, "energy")  # the same, over a whole data set

and others are fitted to the features of any backbone in one pass over its training data:
`FeatureDensity`, `NearestNeighbors`, `RelativeMahalanobis`, `VirtualLogitMatching` and
`DecisionBoundaryDistance`. `compare` has all of them side by side, on data that you consider out of
distribution. `threshold` turns the scores of held-out data into a limit with a known rate of false
alarms. `save` and `load` keep a fitted score in one file.
"""

from ._base import FeatureScore
from .comparison import Comparison, compare
from .density import FeatureDensity
from .detection import detection
from .files import load, save
from .logits import DecisionBoundaryDistance, VirtualLogitMatching
from .mahalanobis import RelativeMahalanobis
from .neighbors import NearestNeighbors
from .predictive_scores import (
    SCORES,
    energy,
    epistemic_variance,
    feature_density,
    generalized_entropy,
    max_logit,
    max_probability,
    mutual_information,
    predictive_entropy,
    scores,
    threshold,
)

__all__ = [
    "SCORES",
    "Comparison",
    "DecisionBoundaryDistance",
    "FeatureDensity",
    "FeatureScore",
    "NearestNeighbors",
    "RelativeMahalanobis",
    "VirtualLogitMatching",
    "compare",
    "detection",
    "energy",
    "epistemic_variance",
    "feature_density",
    "generalized_entropy",
    "load",
    "max_logit",
    "max_probability",
    "mutual_information",
    "predictive_entropy",
    "save",
    "scores",
    "threshold",
]
