"""An HTML page about a trained model of a table; see `lastlayer.tabular.report`."""

from .tabular.report import write_report

__all__ = ["write_report"]
