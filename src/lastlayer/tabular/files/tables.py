"""Tables in CSV or Parquet files, read whole or a part at a time."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from . import parsing
from .encodings import detect
from .errors import FileError
from .inference import Contents, Findings, infer, listed_rows, misfits, without_total
from .parsing import Format

DELIMITERS = ",;\t|"
MAX_ROWS = 50_000  # of a part
MAX_BYTES = 1 << 24  # of a part of a CSV file
BEGINNING = 1 << 16  # bytes, to infer the delimiter
COMPRESSIONS = {  # by the first bytes
    rb"\x1f\x8b\x08": "gzip",
    rb"BZh[1-9]1AY&SY": "bz2",
    rb"\x28\xb5\x2f\xfd": "zstd",
}
OTHER_FORMATS = {  # by the first bytes: what it is, and what to do
    b"\xfd7zXZ": ("compressed by xz", "decompress it first"),
    b"7z\xbc\xaf": ("a compressed archive", "extract the table first"),
    b"PK\x03\x04": ("a spreadsheet or an archive", "save its table as CSV"),
}
DECLARED = re.compile(r'"?sep=([ -~\t])"?')  # the delimiter, in a first line for Excel
RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives an unnamed index


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
            if self._beginning.startswith(mark):
                raise FileError(f"{self.path} is {what}; {remedy}")

    @property
    def parquet(self) -> bool:
        """Whether it is a Parquet file, by its first bytes."""
        return self._beginning.startswith(b"PAR1")

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns, without an unnamed index of pandas."""
        if self.parquet:
            names = self._parquet_file().schema_arrow.names
            header = [name for name in names if not INDEX.fullmatch(name)]
        else:
            header = [self._header[at].strip() for at in self._named]
        for name, count in Counter(header).items():
            if count > 1:
                raise FileError(f"{self.path} has {count} columns named {name!r}; rename them")
        return header

    @cached_property
    def separator(self) -> str:
        """The delimiter that is given, or that splits the first lines into equally many values."""
        if self.delimiter is not None:
            return self.delimiter
        if self._declared is not None:
            return self._declared
        lines = self._first_lines[:20]

        def regular(delimiter: str) -> tuple[bool, int]:
            """Whether all lines have equally many values, at least two; values of the header."""
            counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
            return counts[0] > 1 and len(set(counts)) == 1, counts[0]

        return max(DELIMITERS, key=regular)

    def require(self, names: list[str]) -> None:
        """Raise if the file lacks one of these columns."""
        for name in names:
            if name in self.columns:
                continue
            hint = ""
            if len(self.columns) == 1 and not self.parquet:
                hint = f"; is {self.separator!r} its delimiter? Give another by --delimiter"
            raise FileError(
                f"{self.path} has no column {name!r}; it has {listed(self.columns)}{hint}"
            )

    def read(self, month_first: bool | None = None) -> Contents:
        """All rows; whether a column of a CSV file holds numbers or dates is inferred.

        Args:
            month_first: how to read dates such as 01/02/2020; None if unknown.
        """
        table = pa.concat_tables(self._tables())
        if self.parquet:
            return Contents(table, {}, [])
        columns = [parsing.trim(column) for column in table.columns]
        try:
            texts = pa.table(columns, table.column_names)
            return infer(texts, self.separator, month_first)
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
            if self.parquet:
                yield Part(table, table)
                continue
            kept, notices = without_total(table, start) if last and not totals else (table, [])
            findings.notices += notices
            columns = {}
            for name, written in zip(kept.column_names, kept.columns, strict=True):
                texts, form = parsing.trim(written), formats.get(name, Format("text"))
                columns[name] = parsing.convert(texts, form, self.separator)
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

    # ---------------------------------------------------------------------------- formats

    def _tables(self) -> Iterator[pa.Table]:
        """The rows as they are written, those of a CSV file as text; at least one."""
        batch = None
        for batch in self._batches():
            yield pa.Table.from_batches([batch])
        if batch is None:
            raise FileError(f"{self.path} has a header but no rows")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self.parquet:
            try:
                yield from self._parquet_file().iter_batches(MAX_ROWS, columns=self.columns)
            except (pa.ArrowException, OSError) as error:
                raise self._damaged(error) from error
            return
        with self._explaining():
            for batch in self._open(dict.fromkeys(self._header, pa.string())):
                for start in range(0, batch.num_rows, MAX_ROWS):
                    columns = batch.slice(start, MAX_ROWS).columns
                    self._check_named(columns)
                    kept = [columns[at] for at in self._named]
                    yield pa.RecordBatch.from_arrays(kept, self.columns)

    @property
    def _named(self) -> list[int]:
        """Positions of the columns of a CSV file with a name, and of the first."""
        return [at for at, name in enumerate(self._header) if name.strip() or not at]

    def _check_named(self, columns: list[Any]) -> None:
        """Raise if a column without a name, as after a delimiter too many, has values."""
        for at in set(range(len(columns))) - set(self._named):
            texts = parsing.trim(columns[at])
            if texts.null_count < len(texts):
                value = pc.drop_null(texts)[0].as_py()
                raise FileError(
                    f"{self.path}: column {at + 1} has no name, but values ({value!r}); name it"
                )

    @cached_property
    def _header(self) -> list[str]:
        """Names of the columns of a CSV file as they are written."""
        with self._explaining():
            return list(self._open({}).schema.names)

    def _open(self, types: dict[str, pa.DataType]) -> Any:
        """A reader of a CSV file, a block of rows at a time, with types of columns."""
        return pa.csv.open_csv(
            self._stream(),
            pa.csv.ReadOptions(
                use_threads=False,  # as fast, and errors then have row numbers
                block_size=MAX_BYTES,
                skip_rows=int(self._declared is not None),
                encoding=self.encoding,
            ),
            pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=types),
        )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise errors of a CSV file with what to do about them."""
        try:
            yield
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise FileError(self._explained(str(error))) from error
        except OSError as error:
            if self._compression is None:
                raise
            raise FileError(f"{self.path} is damaged: {error}; compress it again") from error

    def _explained(self, error: str) -> str:
        if "codec can't decode" in error:
            return f"{self.path} is not text; save its table as CSV"
        if "Empty CSV" in error:
            return f"{self.path} has no rows"
        if "straddling" in error:
            return f"{self.path} has a value of many megabytes; is there an unclosed quote?"
        if ragged := RAGGED.search(error):
            return f"{self.path}: {self._ragged(*ragged.groups())}"
        hint = f"the delimiter is taken to be {self.separator!r}; give another by --delimiter"
        return f"{self.path} cannot be read: {error.splitlines()[0]}; {hint}"

    def _ragged(self, number: str, expected: str, found: str, text: str) -> str:
        """What is wrong with a row that has more or fewer values than the header."""
        row = int(number) - (1 if self._declared is None else 2)
        shown = repr(text.partition("\n")[0][:60])
        if text.count('"') % 2:
            return f"a quote in row {row} is not closed: {shown}; close it, or remove it"
        many = f"{found} {'value' if found == '1' else 'values'}"
        if int(found) > int(expected) and (row == 1 or expected == "1"):
            first = next(line for line in self._first_lines if line.strip())[:60]
            return (
                f"the first line must hold the names of all columns, but {first!r} has {expected} "
                f"between {self.separator!r}, and row {row} has {many}; remove what is above the "
                "names, or complete them"
            )
        return f"row {row} has {many} instead of {expected}: {shown}; correct it"

    @cached_property
    def _beginning(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(10)

    @property
    def _compression(self) -> str | None:
        """The compression, by the first bytes and not by the name."""
        kinds = (kind for mark, kind in COMPRESSIONS.items() if re.match(mark, self._beginning))
        return next(kinds, None)

    @cached_property
    def encoding(self) -> str:
        """The encoding of a CSV file."""
        with self._explaining(), self._stream() as file:
            encoding = detect(file)
        if encoding is None:
            raise FileError(f"{self.path} is not text; save its table as CSV")
        return encoding

    def _stream(self) -> Any:
        """The bytes of a CSV file, decompressed."""
        return pa.input_stream(self.path, compression=self._compression)

    @property
    def _declared(self) -> str | None:
        """The delimiter by a first line such as sep=; which is not a row."""
        match = DECLARED.fullmatch(self._first_lines[0])
        return match and match[1]

    @cached_property
    def _first_lines(self) -> list[str]:
        with self._explaining(), self._stream() as file:
            start = file.read(BEGINNING)
        encoding = {"utf-8": "utf-8-sig"}.get(self.encoding, self.encoding)
        lines = start.decode(encoding, errors="replace").splitlines()
        lines = lines[:-1] if len(start) == BEGINNING and len(lines) > 1 else lines
        if not "".join(lines).strip():
            raise FileError(f"{self.path} holds only white space")
        return lines

    def _parquet_file(self) -> Any:
        try:
            # not buffered ahead, which would end with the whole file in memory
            return pa.parquet.ParquetFile(self.path, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> FileError:
        message = str(error).splitlines()[0]
        return FileError(f"{self.path} is a damaged Parquet file: {message}; write it again")


def with_last(tables: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    """Each table, and whether it is the last."""
    previous = next(tables)
    for table in tables:
        yield previous, False
        previous = table
    yield previous, True


def listed(names: list[str], most: int = 12) -> str:
    """Names for a message, the first of them if there are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
