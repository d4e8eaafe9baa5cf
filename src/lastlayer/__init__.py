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
from .training import History, fit, fit_many
from .variational import kl, make_variational

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
    "History",
    "Kronecker",
    "LowRank",
    "MultivariateGaussianPredictive",
    "Network",
    "Predictive",
    "Prior",
    "Regression",
    "Shared",
    "fit",
    "fit_many",
    "functional",
    "kl",
    "make_variational",
]
