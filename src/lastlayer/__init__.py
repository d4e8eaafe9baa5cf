"""Calibrated uncertainty for neural networks by a Bayesian last layer."""

import importlib
from typing import TYPE_CHECKING, Any

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
from .posttrain import posttrain
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
from .variational import (
    VariationalConv1d,
    VariationalConv2d,
    VariationalConv3d,
    VariationalLinear,
    kl,
    make_variational,
)

if TYPE_CHECKING:
    from . import calibration, conformal, metrics, ood, plots
    from .crossfitting import CrossFit, crossfit, crossfit_many
    from .training import SOAP, History, fit, fit_many

__version__ = "0.1.0"

__all__ = [
    "SOAP",
    "ClassDensities",
    "ClassMixturePredictive",
    "Covariance",
    "CrossFit",
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
    "crossfit",
    "crossfit_many",
    "fit",
    "fit_many",
    "functional",
    "kl",
    "make_variational",
    "metrics",
    "ood",
    "plots",
    "posttrain",
]


# Imported when asked for: a program that only predicts need not wait for what trains, and
# metrics and plots need an extra.
_MODULES = ("calibration", "conformal", "metrics", "ood", "plots")
_FROM = {
    "crossfitting": ("CrossFit", "crossfit", "crossfit_many"),
    "training": ("SOAP", "History", "fit", "fit_many"),
}


def __getattr__(name: str) -> Any:
    """Import what is not imported yet."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    for module, names in _FROM.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, imported or not."""
    return sorted({*globals(), *__all__})
