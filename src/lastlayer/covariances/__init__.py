"""Posterior covariances of the last layer, one file each."""

from collections.abc import Callable
from typing import Any

from .._checks import check_choice
from ._base import Covariance
from .dense import Dense
from .diagonal import Diagonal
from .kronecker import Kronecker
from .low_rank import LowRank
from .shared import Shared

CovarianceLike = str | Callable[[int, int], Covariance]

COVARIANCES: dict[str, Callable[..., Covariance]] = {
    "dense": Dense,
    "diagonal": Diagonal,
    "low_rank": LowRank,
    "shared": Shared,
    "kronecker": Kronecker,
}


def make_covariance(
    covariance: CovarianceLike, num_outputs: int, num_features: int, **factory: Any
) -> Covariance:
    """Build a covariance from its name, or from a callable `(num_outputs, num_features)`."""
    if isinstance(covariance, Covariance):
        raise TypeError(
            "covariance must be a name or a callable (num_outputs, num_features) that makes one, "
            f"got a {type(covariance).__name__}; pass its class, such as lastlayer.Dense"
        )
    if not callable(covariance):
        check_choice("covariance", covariance, COVARIANCES)
        return COVARIANCES[covariance](num_outputs, num_features, **factory)
    made = covariance(num_outputs, num_features)
    if not isinstance(made, Covariance):
        raise TypeError(
            f"covariance must return a lastlayer.Covariance, got {type(made).__name__}; subclass "
            "Covariance and define quadratic(features)"
        )
    if (made.num_outputs, made.num_features) != (num_outputs, num_features):
        raise ValueError(
            f"covariance must be made for (num_outputs, num_features)={num_outputs, num_features}, "
            f"got {made.num_outputs, made.num_features}"
        )
    return made.to(**factory)


__all__ = ["Covariance", "Dense", "Diagonal", "Kronecker", "LowRank", "Shared", "make_covariance"]
