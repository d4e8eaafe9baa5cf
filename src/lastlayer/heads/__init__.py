"""The three last layers, one file each."""

from ._base import Elbo, Head
from .discriminative import DiscriminativeClassification
from .generative import ClassDensities, GenerativeClassification
from .regression import Regression

__all__ = [
    "ClassDensities",
    "DiscriminativeClassification",
    "Elbo",
    "GenerativeClassification",
    "Head",
    "Regression",
]
