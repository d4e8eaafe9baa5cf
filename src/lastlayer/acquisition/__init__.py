"""Active learning: which points of a pool to label next."""

from ._base import Method
from .bait import BAIT
from .bald import BALD, BatchBALD
from .epig import EPIG
from .lcmd import LCMD
from .selecting import select
from .simple import Entropy, Margin, MaxVariance, Random

__all__ = [
    "BAIT",
    "BALD",
    "EPIG",
    "LCMD",
    "BatchBALD",
    "Entropy",
    "Margin",
    "MaxVariance",
    "Method",
    "Random",
    "select",
]
