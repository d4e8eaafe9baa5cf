"""The six UCI data sets from their origins, as `<folder>/uci/<name>.csv`.

    python -m experiments download

Five come from the UCI repository (CC BY 4.0), Boston from StatLib. Values are written as they are
there, in the order of their rows. Copies found elsewhere may hold the rows of Power in another
order (its workbook has five sheets with the same rows shuffled) and rounded values of Concrete; a
seed then splits other rows or slightly different numbers.
"""

from __future__ import annotations

import csv
import io
import math
import os
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

UCI = "https://archive.ics.uci.edu/static/public"
TIMEOUT = 60.0  # seconds without an answer

Rows = list[list[float]]
Opener = Callable[[str], bytes]


def parse_text(content: bytes) -> Rows:
    """Numbers between white space, a row on each line; blank lines are skipped."""
    lines = content.decode("latin-1").splitlines()
    return [[float(word) for word in line.split()] for line in lines if line.strip()]


def parse_boston(content: bytes) -> Rows:
    """Fourteen numbers on two lines, eleven and three, below a description in words."""
    lines = [line.split() for line in content.decode("latin-1").splitlines() if line.strip()]
    start = 1 + max((i for i, line in enumerate(lines) if not _numbers(line)), default=-1)
    pairs = zip_longest(lines[start::2], lines[start + 1 :: 2], fillvalue=())
    return [[float(word) for word in (*first, *second)] for first, second in pairs]


def _numbers(words: Sequence[str]) -> bool:
    try:
        return bool([float(word) for word in words])
    except ValueError:
        return False


def parse_csv(content: bytes) -> Rows:
    """Semicolons between numbers, below a header."""
    lines = list(csv.reader(io.StringIO(content.decode("utf-8")), delimiter=";"))
    return [[float(word) for word in line] for line in lines[1:] if line]


def parse_xls(content: bytes) -> Rows:
    """The first sheet of an Excel workbook of the old format."""
    sheet = _library("xlrd").open_workbook(file_contents=content).sheet_by_index(0)
    return _below_header([sheet.row_values(row) for row in range(sheet.nrows)])


def parse_xlsx(content: bytes) -> Rows:
    """The first sheet of an Excel workbook of the new format."""
    book = _library("openpyxl").load_workbook(io.BytesIO(content), data_only=True)
    return _below_header(list(book.worksheets[0].iter_rows(values_only=True)))


def _below_header(cells: Sequence[Sequence[Any]]) -> Rows:
    """Numbers, without empty cells: a missing one makes its row too short, which is noticed."""
    rows = [[float(cell) for cell in row if cell not in (None, "")] for row in cells[1:]]
    return [row for row in rows if row]


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"reading Excel workbooks needs {name}; install it with: "
            "pip install 'lastlayer[experiments]'"
        ) from error


@dataclass(frozen=True)
class Source:
    """Where a data set is, and what it must hold."""

    url: str
    parse: Callable[[bytes], Rows]
    inputs: str  # names of the columns, in order
    num_rows: int
    member: str = ""  # of the archive; empty if the file is no archive
    num_dropped: int = 0  # columns after the target


SOURCES = {
    "boston": Source(
        "http://lib.stat.cmu.edu/datasets/boston",
        parse_boston,
        "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT",
        506,
    ),
    "concrete": Source(
        f"{UCI}/165/concrete+compressive+strength.zip",
        parse_xls,
        "cement blast_furnace_slag fly_ash water superplasticizer coarse_aggregate fine_aggregate "
        "age_days",
        1030,
        "Concrete_Data.xls",
    ),
    "energy": Source(
        f"{UCI}/242/energy+efficiency.zip",
        parse_xlsx,
        "X1_relative_compactness X2_surface_area X3_wall_area X4_roof_area X5_overall_height "
        "X6_orientation X7_glazing_area X8_glazing_area_distribution",
        768,
        "ENB2012_data.xlsx",
        num_dropped=1,  # Y2, the cooling load; the target is Y1, the heating load
    ),
    "power": Source(
        f"{UCI}/294/combined+cycle+power+plant.zip",
        parse_xlsx,
        "AT V AP RH",
        9568,
        "Folds5x2_pp.xlsx",
    ),
    "wine": Source(
        f"{UCI}/186/wine+quality.zip",
        parse_csv,
        "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides free_sulfur_dioxide "
        "total_sulfur_dioxide density pH sulphates alcohol",
        1599,
        "winequality-red.csv",
    ),
    "yacht": Source(
        f"{UCI}/243/yacht+hydrodynamics.zip",
        parse_text,
        "longitudinal_position prismatic_coefficient length_displacement_ratio beam_draught_ratio "
        "length_beam_ratio froude_number",
        308,
        "yacht_hydrodynamics.data",
    ),
}


def open_url(url: str) -> bytes:
    """All bytes at an address."""
    # Some servers refuse the name that Python gives itself.
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        content: bytes = answer.read()
    return content


def fetch(
    folder: Path, names: Iterable[str] = tuple(SOURCES), opener: Opener = open_url
) -> list[Path]:
    """Download data sets that are not there yet; the paths of those that were written.

    Args:
        folder: what LASTLAYER_DATA names.
        names: of data sets.
        opener: from an address to its bytes.
    """
    names = list(names)
    if unknown := sorted(set(names) - set(SOURCES)):
        raise ValueError(f"unknown data sets {unknown}; there are {', '.join(SOURCES)}")
    paths = {name: folder / "uci" / f"{name}.csv" for name in names}
    absent = {name: path for name, path in paths.items() if not path.exists()}
    problems: list[str] = []
    for name, path in (bar := tqdm(absent.items(), unit="data set")):
        bar.set_description(name)
        try:
            _write(path, SOURCES[name], _get(SOURCES[name], opener))
        except Exception as error:  # the others are fetched all the same
            problems.append(f"{name}: {error}; {_by_hand(SOURCES[name], path)}")
    if problems:
        raise RuntimeError("could not fetch all data sets\n" + "\n".join(problems))
    return list(absent.values())


def _get(source: Source, opener: Opener) -> Rows:
    """Download, unpack, parse and check one data set."""
    try:
        content = opener(source.url)
    except (OSError, HTTPException):  # among them all of urllib's; once more, for it may pass
        content = opener(source.url)
    rows = source.parse(_unpack(content, source.member) if source.member else content)
    width = len(source.inputs.split()) + 1
    expected, widths = width + source.num_dropped, sorted({len(row) for row in rows})
    if len(rows) != source.num_rows or widths != [expected]:
        raise ValueError(
            f"expected {source.num_rows} rows of {expected} numbers, got {len(rows)} rows of "
            f"{' or '.join(map(str, widths)) or 'nothing'}"
        )
    if not all(math.isfinite(value) for row in rows for value in row):
        raise ValueError("expected finite numbers, got NaN or infinity")
    return [row[:width] for row in rows]


def _unpack(content: bytes, member: str) -> bytes:
    """A file of an archive, in whatever folder of it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path in archive.namelist():
            if path.split("/")[-1] == member:
                return archive.read(path)
        raise KeyError(f"there is no {member} in the archive, only {archive.namelist()}")


def _by_hand(source: Source, path: Path) -> str:
    """What to do when the download fails."""
    what = f"take {source.member} from {source.url}" if source.member else f"get {source.url}"
    columns = source.inputs.replace(" ", ",")
    return f"try again later, or {what} and save it as {path}, comma-separated: {columns},y"


def _write(path: Path, source: Source, rows: Rows) -> None:
    """A CSV file, complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*source.inputs.split(), "y"])
            writer.writerows(rows)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
