"""CSV files: delimiter, encoding and compression, and what is wrong with a file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from . import parsing
from .encodings import detect
from .errors import FileError

DELIMITERS = ",;\t|"
MAX_ROWS = 50_000  # of a part
MAX_BYTES = 1 << 24  # of a part of a CSV file
BEGINNING = 1 << 16  # bytes, to infer the delimiter
COMPRESSIONS = {  # by the first bytes
    rb"\x1f\x8b\x08": "gzip",
    rb"BZh[1-9]1AY&SY": "bz2",
    rb"\x28\xb5\x2f\xfd": "zstd",
}
DECLARED = re.compile(r'"?sep=([ -~\t])"?')  # the delimiter, in a first line for Excel
RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class CsvFile:
    """A CSV file.

    Args:
        path: of the file.
        delimiter: between its values; inferred if None.
    """

    path: Path
    delimiter: str | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [self._header[at].strip() for at in self._named]

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

    def batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows as they are written, as text; `names` are those of the property."""
        with self._explaining():
            for batch in self._open(dict.fromkeys(self._header, pa.string())):
                for start in range(0, batch.num_rows, MAX_ROWS):
                    columns = batch.slice(start, MAX_ROWS).columns
                    self._check_named(columns)
                    kept = [columns[at] for at in self._named]
                    yield pa.RecordBatch.from_arrays(kept, names)

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

    @property
    def _compression(self) -> str | None:
        """The compression, by the first bytes and not by the name."""
        kinds = (
            kind for mark, kind in COMPRESSIONS.items() if re.match(mark, first_bytes(self.path))
        )
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


def first_bytes(path: Path) -> bytes:
    """What tells the format of a file."""
    with path.open("rb") as file:
        return file.read(10)
