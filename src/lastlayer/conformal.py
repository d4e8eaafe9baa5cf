"""Split-conformal intervals and sets; see `lastlayer.calibration.conformal`."""

from .calibration.conformal import ConformalIntervals, ConformalSets, upper_quantile

__all__ = ["ConformalIntervals", "ConformalSets", "upper_quantile"]
