"""Predictions beside inputs, as CSV or Parquet."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from lastlayer.tabular.files.errors import FileError
from lastlayer.tabular.files.writing import Writer, side_by_side


def test_lists_are_not_written_as_csv(tmp_path):
    writer = Writer(tmp_path / "x", Path("out.csv"))
    with pytest.raises(FileError, match=r"cannot be written: .*; write \.parquet"):
        writer.write(pa.table({"list": [[1], [2]]}))


def test_inputs_beside_predictions_all_stay():
    inputs = pa.table({"mean": [1], "mean_input": [2], "stddev": [3]})
    both = side_by_side(inputs, pa.table({"mean": [4], "stddev": [5]}))
    assert both.to_pylist() == [
        {"mean_input_input": 1, "mean_input": 2, "stddev_input": 3, "mean": 4, "stddev": 5}
    ]
