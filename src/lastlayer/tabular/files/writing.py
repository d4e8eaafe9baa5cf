"""Tables written as CSV or Parquet, a part at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from .tables import FileError


class Writer:
    """Writes rows to a CSV or Parquet file.

    Args:
        path: where to write.
        final: the name that the file will have, whose suffix says the format.
    """

    def __init__(self, path: Path, final: Path) -> None:
        suffix = final.suffix.lower()
        if suffix not in (".csv", ".txt", ".parquet", ".pq"):
            raise FileError(f"{final} must end in .csv or .parquet, which says the format to write")
        self.path, self.parquet = path, suffix in (".parquet", ".pq")
        self.writer: Any = None

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        try:
            if self.writer is None:
                make = pa.parquet.ParquetWriter if self.parquet else pa.csv.CSVWriter
                self.writer = make(self.path, table.schema)
            self.writer.write_table(table)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            remedy = "leave out the column" if self.parquet else "write .parquet"
            raise FileError(f"a column cannot be written: {error}; {remedy}") from error

    def close(self) -> None:
        """Finish the file."""
        if self.writer is not None:
            self.writer.close()


def side_by_side(inputs: pa.Table, outputs: pa.Table) -> pa.Table:
    """Columns of both tables; an input with the name of an output becomes `name_input`."""
    taken, names = {*outputs.column_names, *inputs.column_names}, []
    for name in inputs.column_names:
        new = name
        while new in outputs.column_names or (new != name and new in taken):
            new += "_input"
        taken.add(new)
        names.append(new)
    return pa.table([*inputs.columns, *outputs.columns], [*names, *outputs.column_names])
