"""Tables written as CSV or Parquet, a part at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from .errors import FileError


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
                make = pa.parquet.ParquetWriter if self.parquet else CSVWriter
                self.writer = make(self.path, table.schema)
            self.writer.write_table(table)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            remedy = "leave out the column" if self.parquet else "write .parquet"
            raise FileError(f"a column cannot be written: {error}; {remedy}") from error

    def close(self) -> None:
        """Finish the file."""
        if self.writer is not None:
            self.writer.close()


class CSVWriter:
    """Writes a CSV file with quotes only where they are needed, so that text stays as it was.

    Args:
        path: where to write.
        schema: of the rows.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._add([",".join(_quoted(pa.array(schema.names)).to_pylist())])

    def write_table(self, table: pa.Table) -> None:
        """Add rows."""
        texts = [_quoted(_as_text(column)) for column in table.columns]
        nothing = {"null_handling": "replace", "null_replacement": ""}
        self._add(pc.binary_join_element_wise(*texts, ",", **nothing).to_pylist())

    def close(self) -> None:
        """Finish the file, which is closed after each part."""

    def _add(self, lines: list[str]) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.writelines(f"{line}\n" for line in lines)


def _as_text(column: Any) -> Any:
    if pa.types.is_nested(column.type):
        raise pa.ArrowNotImplementedError(f"{column.type} has no form in CSV")
    return column.cast(pa.string())


def _quoted(texts: Any) -> Any:
    """Texts in quotes where they have a delimiter, a quote or the end of a line."""
    escaped = pc.replace_substring(texts, '"', '""')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, '[,"\\r\\n]'), quoted, texts)


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
