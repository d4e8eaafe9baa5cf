"""Columns as the command line shows them."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from rich.console import Console

from lastlayer.tabular.cli.display import columns_table
from lastlayer.tabular.columns import Columns


def test_durations_are_shown_too(capsys):
    waits = pa.array([1, 2, None], pa.duration("s"))
    days = pa.array(np.array(["2024-01-01", "2024-01-02", "2024-01-03T12"], "datetime64[us]"))
    rows = pa.table({"wait": waits, "size": [1.5, math.nan, 4.0], "day": days})
    Console().print(columns_table(Columns.of(rows), rows))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        ["wait", "date", "1"],
        ["size", "number", "1", "1.5", "to", "4"],
        ["day", "date", "2024-01-01", "to", "2024-01-03", "12:00:00"],
    ]


def test_long_levels_are_cut(capsys):
    frame = {"note": ["a" * 50, "b" * 40] * 3}
    rows = pa.table(frame)
    Console(width=120).print(columns_table(Columns.of(rows), rows))
    line = capsys.readouterr().out.splitlines()[1].split(maxsplit=2)
    assert line[2].strip() == f"{'a' * 39}…, {'b' * 40}"


def test_of_many_columns_the_first_are_shown(capsys):
    frame = {f"column {at}": [1.0, 2.0] for at in range(50)} | {"same": [1, 1]}
    rows = pa.table(frame)
    Console().print(columns_table(Columns.of(rows), rows))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 42
    assert lines[40].startswith("column 39 ")
    assert lines[41].split() == ["and", "11", "more", "10", "number,", "1", "ignored"]
