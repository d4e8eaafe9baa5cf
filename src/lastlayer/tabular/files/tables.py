"""Tables in CSV or Parquet files, read whole or a part at a time."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from . import parsing
from .csv_files import CsvFile, first_bytes
from .errors import FileError
from .inference import Contents, Findings, infer, listed_rows, misfits, without_total
from .parquet_files import ParquetFile
from .parsing import Format

OTHER_FORMATS = {  # by the first bytes: what it is, and what to do
    b"\xfd7zXZ": ("compressed by xz", "decompress it first"),
    b"7z\xbc\xaf": ("a compressed archive", "extract the table first"),
    b"PK\x03\x04": ("a spreadsheet or an archive", "save its table as CSV"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet", "save its table as CSV"),
    b"%PDF": ("a PDF document", "save its table as CSV"),
    **dict.fromkeys([b"<!", b"<?xml", b"<html"], ("a web page or XML", "save its table as CSV")),
    **dict.fromkeys([b'{"', b"[{"], ("JSON", "save its table as CSV")),
}


class Part(NamedTuple):
    """Some rows of a file."""

    written: pa.Table  # as in the file, those of a CSV file as text
    rows: pa.Table


@dataclass(frozen=True)
class TableFile:
    """A CSV or Parquet file.

    Args:
        path: of the file.
        delimiter: between the values of a CSV file; inferred if None.
    """

    path: Path
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.path.is_dir():
            raise FileError(f"{self.path} is a folder; name a CSV or Parquet file")
        if not self.path.exists():
            raise FileError(f"there is no file {self.path}")
        if not self.path.stat().st_size:
            raise FileError(f"{self.path} is empty")
        for mark, (what, remedy) in OTHER_FORMATS.items():
            if first_bytes(self.path).startswith(mark):
                raise FileError(f"{self.path} is {what}; {remedy}")

    @cached_property
    def csv(self) -> CsvFile | None:
        """The file as CSV; None if it is a Parquet file, by its first bytes."""
        parquet = first_bytes(self.path).startswith(b"PAR1")
        return None if parquet else CsvFile(self.path, self.delimiter)

    @property
    def _source(self) -> CsvFile | ParquetFile:
        return self.csv or ParquetFile(self.path)

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns, without an unnamed index of pandas."""
        header = self._source.names
        for name, count in Counter(header).items():
            if count > 1:
                raise FileError(f"{self.path} has {count} columns named {name!r}; rename them")
        return header

    def require(self, names: list[str]) -> None:
        """Raise if the file lacks one of these columns."""
        for name in names:
            if name in self.columns:
                continue
            hint = meant(name, self.columns)
            if len(self.columns) == 1 and self.csv:
                hint = f"; is {self.csv.separator!r} its delimiter? Give another by --delimiter"
            raise FileError(
                f"{self.path} has no column {name!r}; it has {listed(self.columns)}{hint}"
            )

    def read(self, month_first: bool | None = None) -> Contents:
        """All rows; whether a column of a CSV file holds numbers or dates is inferred.

        Args:
            month_first: how to read dates such as 01/02/2020; None if unknown.
        """
        table = pa.concat_tables(self._tables())
        if self.csv is None:
            return Contents(table, {}, [])
        columns = [parsing.trim(column) for column in table.columns]
        try:
            texts = pa.table(columns, table.column_names)
            return infer(texts, self.csv.separator, month_first)
        except FileError as error:
            raise FileError(f"{self.path}: {error}") from error

    def parts(
        self, formats: dict[str, Format], findings: Findings | None = None, *, totals: bool = True
    ) -> Iterator[Part]:
        """Some rows at a time, so that the file may be larger than memory.

        Args:
            formats: how each column is written; other columns are text.
            findings: takes the rows whose values do not fit the format, which count as missing if
                they are few, and notices.
            totals: whether to keep a last row of totals.
        """
        start, findings = 1, findings or Findings()
        for table, last in with_last(self._tables()):
            if self.csv is None:
                yield Part(table, table)
                continue
            kept, notices = without_total(table, start) if last and not totals else (table, [])
            findings.notices += notices
            columns = {}
            for name, written in zip(kept.column_names, kept.columns, strict=True):
                texts, form = parsing.trim(written), formats.get(name, Format("text"))
                columns[name] = parsing.convert(texts, form, self.csv.separator)
                rows = misfits(texts, columns[name], start)
                if rows:
                    unread = findings.unread.setdefault(name, [])
                    unread += rows
                    self._check_few(name, form, unread, start + len(texts) - 1)
            yield Part(kept, pa.table(columns))
            start += table.num_rows

    def _check_few(self, name: str, form: Format, rows: list[tuple[int, str]], num: int) -> None:
        """Raise if many values of a column do not fit its format."""
        if not parsing.is_rare(len(rows), num):
            unit = f" in {form.unit}" if form.unit else ""
            raise FileError(
                f"{self.path}: column {name!r} must hold {form.kind}s{unit}, as in training, but "
                f"{listed_rows(rows)}; correct it or leave it empty"
            )

    def _tables(self) -> Iterator[pa.Table]:
        """The rows as they are written, those of a CSV file as text; at least one."""
        batch = None
        for batch in self._source.batches(self.columns):
            yield pa.Table.from_batches([batch])
        if batch is None:
            raise FileError(f"{self.path} has a header but no rows")


def with_last(tables: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    """Each table, and whether it is the last."""
    previous = next(tables)
    for table in tables:
        yield previous, False
        previous = table
    yield previous, True


def meant(name: str, names: list[str]) -> str:
    """A question after the name that is most like another; empty if none is."""
    lower = {other.casefold().strip(): other for other in names}
    close = difflib.get_close_matches(name.casefold().strip(), lower, 1, 0.8)
    return f"; is {lower[close[0]]!r} meant?" if close else ""


def listed(names: list[str], most: int = 12) -> str:
    """Names for a message, the first of them if there are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
