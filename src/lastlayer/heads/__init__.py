"""The three last layers, one file each."""

from ._base import Elbo, Head
from .discriminative import DiscriminativeClassification
from .generative import GenerativeClassification
from .regression import Regression

__all__ = [
    "DiscriminativeClassification",
    "Elbo",
    "GenerativeClassification",
    "Head",
    "Regression",
]
