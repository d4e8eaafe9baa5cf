"""A Bayesian last layer for a network that is already trained (paper, appendix B)."""

from .features import FeatureExtractor, cache_features
from .last_layer import LastLayer, find_last_layer
from .posttrain import PostTraining, posttrain
from .solvers import fit_discriminative
from .store import Features

__all__ = [
    "FeatureExtractor",
    "Features",
    "LastLayer",
    "PostTraining",
    "cache_features",
    "find_last_layer",
    "fit_discriminative",
    "posttrain",
]
