"""The only training loop of the project: `fit`, `fit_many`, `crossfit` and `crossfit_many`."""

from .fit import fit, fit_many
from .history import History
from .schedules import SCHEDULES, one_cycle, warmup
from .soap import SOAP

__all__ = ["SCHEDULES", "SOAP", "History", "fit", "fit_many", "one_cycle", "warmup"]
