"""Tables in files: read whole or a part at a time, written in one step."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

DELIMITERS = ",;\t|"
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "?", "-"]
ROWS_TOGETHER = 50_000
BYTES_TOGETHER = 1 << 24
BEGINNING = 1 << 16  # bytes, to find out the delimiter
COMPRESSIONS = {  # of files that begin so
    rb"\x1f\x8b\x08": "gzip",
    rb"BZh[1-9]1AY&SY": "bz2",
    rb"\x28\xb5\x2f\xfd": "zstd",
}
OTHERS = {
    b"\xfd7zXZ": ("compressed by xz", "unpack it first"),
    b"7z\xbc\xaf": ("a compressed archive", "unpack it first"),
    b"PK\x03\x04": ("a spreadsheet or an archive", "save its table as CSV"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
DECLARED = re.compile(r'"?sep=([ -~\t])"?')  # the delimiter, in a first line for Excel
RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$"
INDEX = re.compile(r"__index_level_\d+__")  # how pandas calls an index without a name


class FileError(ValueError):
    """A file that cannot be used, with what to do about it."""


@dataclass(frozen=True)
class TableFile:
    """A CSV or Parquet file.

    Args:
        path: of the file.
        delimiter: between the values of a CSV file; found out if None.
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
        for mark, (what, then) in OTHERS.items():
            if self._beginning.startswith(mark):
                raise FileError(f"{self.path} is {what}; {then}")

    @property
    def parquet(self) -> bool:
        """Whether it is a Parquet file, by how it begins."""
        return self._beginning.startswith(b"PAR1")

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns, but for a nameless index of pandas."""
        if self.parquet:
            names = self._parquet_file().schema_arrow.names
            header = [name for name in names if not INDEX.fullmatch(name)]
        else:
            header = [name.strip() for name in self._header]
        for name, count in Counter(header).items():
            if count > 1:
                which = f"columns named {name!r}; rename them"
                if not name:
                    which = "columns without a name; name them, or remove them if they are empty"
                raise FileError(f"{self.path} has {count} {which}")
        return header

    @cached_property
    def separator(self) -> str:
        """The delimiter that is given, or that splits the first lines alike."""
        if self.delimiter is not None:
            return self.delimiter
        if self._declared is not None:
            return self._declared
        lines = self._first_lines[:20]

        def regular(delimiter: str) -> tuple[bool, int]:
            """Whether all lines have as many values, more than one; how many the header has."""
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
                hint = f"; is {self.separator!r} its delimiter? Name another by --delimiter"
            raise FileError(
                f"{self.path} has no column {name!r}; it has {listed(self.columns)}{hint}"
            )

    def read(self) -> pa.Table:
        """All of it; whether a column of a CSV file holds numbers or dates is found out."""
        table = pa.concat_tables(self._tables())
        if self.parquet:
            return table
        named = zip(table.column_names, table.columns, strict=True)
        return pa.table({name: self._found_out(name, column) for name, column in named})

    def parts(self, kinds: dict[str, str]) -> Iterator[pa.Table]:
        """Some rows at a time, so that the file may be larger than memory.

        Args:
            kinds: of columns, as of `lastlayer.tables.Column`; others are text.
        """
        start = 1
        for table in self._tables():
            if self.parquet:
                yield table
                continue
            columns = {
                name: self._as_kind(column, name, kinds.get(name, "category"), start)
                for name, column in zip(table.column_names, table.columns, strict=True)
            }
            yield pa.table(columns)
            start += table.num_rows

    def _found_out(self, name: str, texts: Any) -> Any:
        """A column as numbers, truth values or dates if all its values are, else as it is."""
        if texts.null_count == len(texts):
            return texts
        if self._commas and (pair := _doubtful(texts)):
            raise FileError(
                f"{self.path}: column {name!r} has {pair[0]!r} beside {pair[1]!r}; if that is a "
                "thousand, write it without a comma, and else with a point"
            )
        values = _numbers(texts, self._commas)
        if values is None:
            values = _truths(texts)
        if values is None:
            values = _dates(texts)
        return texts if values is None else values

    def _as_kind(self, texts: Any, name: str, kind: str, start: int) -> Any:
        """A column of a kind, or an error that names the first value that is not."""
        values = _converted(texts, kind, self._commas)
        if values is not None:
            return values
        for at, text in enumerate(texts):
            one = pa.chunked_array([[text.as_py()]], pa.string())
            if _converted(one, kind, self._commas) is None:
                raise FileError(
                    f"{self.path}: column {name!r} must hold {kind}s, as in training, but row "
                    f"{start + at} has {text.as_py()!r}; correct it or leave it empty"
                )
        raise FileError(f"{self.path}: column {name!r} holds {kind}s of several sorts; use one")

    # ---------------------------------------------------------------------------- formats

    @property
    def _commas(self) -> bool:
        """Whether 1,5 is a number."""
        return self.separator != ","

    def _tables(self) -> Iterator[pa.Table]:
        """The rows as they are written, of a CSV file as text; at least one."""
        batch = None
        for batch in self._batches():
            yield pa.Table.from_batches([batch])
        if batch is None:
            raise FileError(f"{self.path} has a header, but no rows")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self.parquet:
            try:
                yield from self._parquet_file().iter_batches(ROWS_TOGETHER, columns=self.columns)
            except (pa.ArrowException, OSError) as error:
                raise self._damaged(error) from error
            return
        with self._explaining():
            for batch in self._open(dict.fromkeys(self._header, pa.string())):
                for start in range(0, batch.num_rows, ROWS_TOGETHER):
                    part = batch.slice(start, ROWS_TOGETHER)
                    columns = [_trimmed(column) for column in part.columns]
                    yield pa.RecordBatch.from_arrays(columns, self.columns)

    @cached_property
    def _header(self) -> list[str]:
        """Names of the columns of a CSV file as they are written."""
        with self._explaining():
            return list(self._open({}).schema.names)

    def _open(self, types: dict[str, pa.DataType]) -> Any:
        """A CSV file, a block of rows at a time, with types of columns."""
        return pa.csv.open_csv(
            self._stream(),
            pa.csv.ReadOptions(
                use_threads=False,  # which is as quick, and counts rows
                block_size=BYTES_TOGETHER,
                skip_rows=int(self._declared is not None),
            ),
            pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=types),
        )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise what goes wrong with a CSV file as what to do about it."""
        try:
            yield
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise FileError(self._explained(str(error))) from error
        except OSError as error:
            if self._compression is None:
                raise
            raise FileError(f"{self.path} is damaged: {error}; compress it anew") from error

    def _explained(self, error: str) -> str:
        if "UTF8" in error or "UTF-8" in error or "utf-8" in error:
            return f"{self.path} is not UTF-8 text; save it as UTF-8"
        if "Empty CSV" in error:
            return f"{self.path} has no rows"
        if "straddling" in error:
            return (
                f"{self.path} has a value of many megabytes; is there a quote that is not closed?"
            )
        if ragged := RAGGED.search(error):
            return f"{self.path}: {self._ragged(*ragged.groups())}"
        hint = f"the delimiter is taken to be {self.separator!r}; name another by --delimiter"
        return f"{self.path} cannot be read: {error.splitlines()[0]}; {hint}"

    def _ragged(self, number: str, expected: str, found: str, text: str) -> str:
        """About a row that has not as many values as the header."""
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
        """By how the file begins, whatever its name is."""
        kinds = (kind for mark, kind in COMPRESSIONS.items() if re.match(mark, self._beginning))
        return next(kinds, None)

    def _stream(self) -> Any:
        """The bytes of a CSV file, unpacked."""
        return pa.input_stream(self.path, compression=self._compression)

    @property
    def _declared(self) -> str | None:
        """The delimiter by a first line such as sep=; which is no row."""
        found = DECLARED.fullmatch(self._first_lines[0])
        return found and found[1]

    @cached_property
    def _first_lines(self) -> list[str]:
        with self._explaining(), self._stream() as file:
            start = file.read(BEGINNING)
        lines = start.decode("utf-8-sig", errors="replace").splitlines()
        lines = lines[:-1] if len(start) == BEGINNING and len(lines) > 1 else lines
        if not "".join(lines).strip():
            raise FileError(f"{self.path} holds nothing but white space")
        return lines

    def _parquet_file(self) -> Any:
        try:
            return pa.parquet.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> FileError:
        message = str(error).splitlines()[0]
        return FileError(f"{self.path} is a damaged Parquet file: {message}; write it anew")


def _converted(texts: Any, kind: str, commas: bool) -> Any:
    """Texts as a kind of values, or None if some are not; truth values are numbers as well."""
    if kind == "number":
        values = _numbers(texts, commas)
        truths = _truths(texts) if values is None else None
        return values if truths is None else truths.cast(pa.float64())
    if kind == "truth value":
        return _truths(texts)
    return _dates(texts) if kind == "date" else texts


def _trimmed(texts: Any) -> Any:
    """Texts without white space around them, null where they say that a value is missing."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(texts, pa.array(MISSING)), pa.scalar(None, pa.string()), texts)


def _cast(texts: Any, kind: pa.DataType) -> Any:
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None


def _numbers(texts: Any, commas: bool) -> Any:
    """With 1,5 as one and a half, or else with commas between thousands."""
    values = _cast(texts, pa.float64())
    if values is not None:
        return values
    if commas:
        return _cast(pc.replace_substring(texts, ",", "."), pa.float64())
    grouped = pc.match_substring_regex(texts, THOUSANDS)
    return _cast(pc.if_else(grouped, pc.replace_substring(texts, ",", ""), texts), pa.float64())


def _doubtful(texts: Any) -> tuple[str, str] | None:
    """A value with a comma and one without, if all with one may be thousands."""
    known = pc.drop_null(texts)
    with_comma = pc.match_substring(known, ",")
    some, others = known.filter(with_comma), known.filter(pc.invert(with_comma))
    if not len(some) or not len(others) or _cast(others, pa.float64()) is None:
        return None
    thousands = pc.all(pc.match_substring_regex(some, THOUSANDS)).as_py()
    return (some[0].as_py(), others[0].as_py()) if thousands else None


def _truths(texts: Any) -> Any:
    lower = pc.utf8_lower(texts)
    words = set(pc.unique(lower).to_pylist()) - {None}
    return pc.equal(lower, "true") if words <= {"true", "false"} else None


def _dates(texts: Any) -> Any:
    """Moments without a zone, or in that of Greenwich."""
    values = _cast(texts, pa.timestamp("us"))
    if values is None:
        values = _cast(texts, pa.timestamp("us", "UTC"))
    return values if values is None else values.cast(pa.timestamp("us"))


def beside(inputs: pa.Table, found: pa.Table) -> pa.Table:
    """Columns of both; an input that is called as what was found is `name_input`."""
    taken, names = {*found.column_names, *inputs.column_names}, []
    for name in inputs.column_names:
        new = name
        while new in found.column_names or (new != name and new in taken):
            new += "_input"
        taken.add(new)
        names.append(new)
    return pa.table([*inputs.columns, *found.columns], [*names, *found.column_names])


def listed(names: list[str], most: int = 12) -> str:
    """Names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


class Writer:
    """Rows to a CSV or Parquet file, by its name."""

    def __init__(self, path: Path, final: Path) -> None:
        suffix = final.suffix.lower()
        if suffix not in (".csv", ".txt", ".parquet", ".pq"):
            raise FileError(f"{final} must end in .csv or .parquet, which says what to write")
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
            then = "leave out the column" if self.parquet else "write .parquet"
            raise FileError(f"a column cannot be written: {error}; {then}") from error

    def close(self) -> None:
        """Finish the file."""
        if self.writer is not None:
            self.writer.close()
