"""Tables as tensors: what kinds of columns there are, codes of their values, and models of them.

A frame becomes a matrix of codes (`Columns`), one column for each of its own. All that follows is
a module (`TableModel`): it moves, is saved and exported like any other.
"""

from .columns import Column, Columns
from .encoding import Encoding
from .model import RowDensity, TableModel, Units, described, over_rows, rows_together
from .rows import Rows

__all__ = [
    "Column",
    "Columns",
    "Encoding",
    "RowDensity",
    "Rows",
    "TableModel",
    "Units",
    "described",
    "over_rows",
    "rows_together",
]
