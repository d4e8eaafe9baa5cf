"""The last layers, one file each."""

from ._base import Head
from ._class_densities import ClassDensities
from ._parts import Elbo, recorded
from .discriminative import DiscriminativeClassification
from .generative import GenerativeClassification
from .heteroscedastic import HeteroscedasticRegression
from .noisy_labels import NoisyLabelClassification
from .regression import Regression
from .student_t import StudentTRegression

__all__ = [
    "ClassDensities",
    "DiscriminativeClassification",
    "Elbo",
    "GenerativeClassification",
    "Head",
    "HeteroscedasticRegression",
    "NoisyLabelClassification",
    "Regression",
    "StudentTRegression",
    "recorded",
]
