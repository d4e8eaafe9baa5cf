"""Calibrated uncertainty for neural networks by a Bayesian last layer."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import acquisition, bandits, calibration, conformal, functional, ood
    from . import metrics as metrics  # not in __all__: they need an extra
    from . import plots as plots
    from .covariances import Covariance, Dense, Diagonal, Kronecker, LowRank, Shared
    from .heads import (
        ClassDensities,
        DiscriminativeClassification,
        Elbo,
        GenerativeClassification,
        Head,
        HeteroscedasticRegression,
        NoisyLabelClassification,
        Regression,
        StudentTRegression,
    )
    from .network import Network
    from .posttraining import posttrain
    from .predictive import (
        ClassificationPredictive,
        ClassMixturePredictive,
        DiscriminativePredictive,
        GaussianMixturePredictive,
        GaussianPredictive,
        GenerativePredictive,
        HeavyTailedPredictive,
        HeteroscedasticPredictive,
        JointGaussianPredictive,
        JointLogitPredictive,
        JointMatrixNormalPredictive,
        JointMultivariateGaussianPredictive,
        JointPredictive,
        MultivariateGaussianPredictive,
        NoisyLabelPredictive,
        Plain,
        Predictive,
        RegressionMixturePredictive,
        RegressionPredictive,
        SoftmaxPredictive,
        StudentTPredictive,
    )
    from .priors import Prior
    from .training import SOAP, History, fit, fit_many
    from .training.crossfitting import CrossFit, crossfit, crossfit_many
    from .variational import (
        VariationalConv1d,
        VariationalConv2d,
        VariationalConv3d,
        VariationalLinear,
        kl,
        make_variational,
    )

__version__ = "0.2.0"

__all__ = [
    "SOAP",
    "ClassDensities",
    "ClassMixturePredictive",
    "ClassificationPredictive",
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
    "HeavyTailedPredictive",
    "HeteroscedasticPredictive",
    "HeteroscedasticRegression",
    "History",
    "JointGaussianPredictive",
    "JointLogitPredictive",
    "JointMatrixNormalPredictive",
    "JointMultivariateGaussianPredictive",
    "JointPredictive",
    "Kronecker",
    "LowRank",
    "MultivariateGaussianPredictive",
    "Network",
    "NoisyLabelClassification",
    "NoisyLabelPredictive",
    "Plain",
    "Predictive",
    "Prior",
    "Regression",
    "RegressionMixturePredictive",
    "RegressionPredictive",
    "Shared",
    "SoftmaxPredictive",
    "StudentTPredictive",
    "StudentTRegression",
    "VariationalConv1d",
    "VariationalConv2d",
    "VariationalConv3d",
    "VariationalLinear",
    "acquisition",
    "bandits",
    "calibration",
    "conformal",
    "crossfit",
    "crossfit_many",
    "fit",
    "fit_many",
    "functional",
    "kl",
    "make_variational",
    "ood",
    "posttrain",
]


# Imported when first asked for, because torch takes seconds: help, a mistake in the arguments of
# the command line and Ctrl-C do not wait for it.
_NAMES_OF = {
    "covariances": ("Covariance", "Dense", "Diagonal", "Kronecker", "LowRank", "Shared"),
    "training.crossfitting": ("CrossFit", "crossfit", "crossfit_many"),
    "heads": (
        "ClassDensities",
        "DiscriminativeClassification",
        "Elbo",
        "GenerativeClassification",
        "Head",
        "HeteroscedasticRegression",
        "NoisyLabelClassification",
        "Regression",
        "StudentTRegression",
    ),
    "network": ("Network",),
    "posttraining": ("posttrain",),
    "predictive": (
        "ClassMixturePredictive",
        "ClassificationPredictive",
        "DiscriminativePredictive",
        "GaussianMixturePredictive",
        "GaussianPredictive",
        "GenerativePredictive",
        "HeavyTailedPredictive",
        "HeteroscedasticPredictive",
        "JointGaussianPredictive",
        "JointLogitPredictive",
        "JointMatrixNormalPredictive",
        "JointMultivariateGaussianPredictive",
        "JointPredictive",
        "MultivariateGaussianPredictive",
        "NoisyLabelPredictive",
        "Plain",
        "Predictive",
        "RegressionMixturePredictive",
        "RegressionPredictive",
        "SoftmaxPredictive",
        "StudentTPredictive",
    ),
    "priors": ("Prior",),
    "training": ("SOAP", "History", "fit", "fit_many"),
    "variational": (
        "VariationalConv1d",
        "VariationalConv2d",
        "VariationalConv3d",
        "VariationalLinear",
        "kl",
        "make_variational",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the name, or the module of this name."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    module = name.isidentifier() and not name.startswith("_")
    if module and importlib.util.find_spec(f"{__name__}.{name}"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ImportError as error:  # its extra is missing: as an attribute, it is not there
            raise AttributeError(str(error)) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, imported or not."""
    return sorted({*globals(), *__all__, "metrics", "plots"})
