"""The only training loop of the project: `fit`, `fit_many`, `crossfit` and `crossfit_many`."""

from .fit import fit, fit_many
from .history import History
from .options import SCHEDULES
from .soap import SOAP

__all__ = ["SCHEDULES", "SOAP", "History", "fit", "fit_many"]
