"""Calibrated uncertainty for neural networks by a Bayesian last layer."""

from . import functional
from .covariances import Covariance, Dense, Diagonal, Kronecker, LowRank, Shared
from .heads import (
    ClassDensities,
    DiscriminativeClassification,
    Elbo,
    GenerativeClassification,
    Head,
    Regression,
)
from .network import Network
from .predictive import (
    DiscriminativePredictive,
    GaussianPredictive,
    GenerativePredictive,
    MultivariateGaussianPredictive,
    Predictive,
)
from .priors import Prior

__version__ = "0.1.0"

__all__ = [
    "ClassDensities",
    "Covariance",
    "Dense",
    "Diagonal",
    "DiscriminativeClassification",
    "DiscriminativePredictive",
    "Elbo",
    "GaussianPredictive",
    "GenerativeClassification",
    "GenerativePredictive",
    "Head",
    "Kronecker",
    "LowRank",
    "MultivariateGaussianPredictive",
    "Network",
    "Predictive",
    "Prior",
    "Regression",
    "Shared",
    "functional",
]
