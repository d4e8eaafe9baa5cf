"""Calibrated uncertainty for neural networks by a Bayesian last layer."""

import importlib
from types import ModuleType

from . import calibration, conformal, functional, ood
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
    ClassMixturePredictive,
    DiscriminativePredictive,
    GaussianMixturePredictive,
    GaussianPredictive,
    GenerativePredictive,
    MultivariateGaussianPredictive,
    Predictive,
)
from .priors import Prior
from .training import History, fit, fit_many
from .variational import (
    VariationalConv1d,
    VariationalConv2d,
    VariationalConv3d,
    VariationalLinear,
    kl,
    make_variational,
)

__version__ = "0.1.0"

__all__ = [
    "ClassDensities",
    "ClassMixturePredictive",
    "Covariance",
    "Dense",
    "Diagonal",
    "DiscriminativeClassification",
    "DiscriminativePredictive",
    "Elbo",
    "GaussianMixturePredictive",
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
    "VariationalConv1d",
    "VariationalConv2d",
    "VariationalConv3d",
    "VariationalLinear",
    "calibration",
    "conformal",
    "fit",
    "fit_many",
    "functional",
    "kl",
    "make_variational",
    "ood",
]


def __getattr__(name: str) -> ModuleType:
    """Import what needs an extra only when it is asked for."""
    if name in ("metrics", "plots"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
