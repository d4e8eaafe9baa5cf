"""CSV and Parquet files: delimiters, compression, headers and kinds of values."""

import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastlayer.tabular.files import csv_files
from lastlayer.tabular.files.errors import FileError
from lastlayer.tabular.files.parsing import Format
from lastlayer.tabular.files.tables import TableFile
from tests.helpers.commands import failed, houses


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_inferred(tmp_path, delimiter):
    path = tmp_path / "x.csv"
    houses().to_csv(path, index=False, sep=delimiter)
    table = TableFile(path).read().rows
    assert table.column_names == ["town", "size", "price", "cheap"]
    np.testing.assert_array_equal(table["price"], houses()["price"])


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.bz2", "x.csv.xz"])
def test_compressed_files_are_read_whatever_they_are_called(tmp_path, name):
    plain = b"a;b\n1,5;x\n-2,25;y\n"
    path = tmp_path / name
    for content in (plain, gzip.compress(plain), bz2.compress(plain), pa.compress(plain, "zstd")):
        path.write_bytes(bytes(content))
        assert TableFile(path).read().rows.to_pylist() == [
            {"a": 1.5, "b": "x"},
            {"a": -2.25, "b": "y"},
        ]


def test_text_may_begin_as_other_files_do(tmp_path):
    path = tmp_path / "x.csv"
    for name in ("PK", "BZh9", "PAR"):
        path.write_text(f"{name},b\n1,2\n")
        assert TableFile(path).columns == [name, "b"]


def test_a_first_line_for_excel_names_the_delimiter(tmp_path):
    path = tmp_path / "x.csv"
    for first, delimiter in (("sep=;", ";"), ("\ufeffsep=:", ":"), ('"sep=\t"', "\t")):
        path.write_text(f"{first}\na{delimiter}b\n1{delimiter}2,5\n", encoding="utf-8")
        assert TableFile(path).read().rows.to_pylist() == [{"a": 1, "b": 2.5}]


def test_decimal_commas_are_numbers_where_commas_do_not_separate(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a;b\n1,5;x\n-2,25;y\n")
    assert TableFile(path).read().rows["a"].to_pylist() == [1.5, -2.25]
    path.write_text('a,b\n"0,500",x\n"2,250",y\n')  # not thousands
    assert TableFile(path).read().rows["a"].to_pylist() == [0.5, 2.25]


def test_values_are_numbers_booleans_dates_text_or_missing(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        '\ufeffn,t,d,s,e\n1e3, true,2020-01-02,a b,\n?,FALSE,,"c,\nd",NA\n', encoding="utf-8"
    )
    table = TableFile(path).read().rows
    assert table["n"].to_pylist() == [1000.0, None]
    assert table["t"].to_pylist() == [True, False]
    assert str(table["d"][0]) == "2020-01-02 00:00:00"
    assert table["s"].to_pylist() == ["a b", "c,\nd"]
    assert table["e"].null_count == 2


def test_commas_may_separate_thousands(tmp_path, capsys):
    """Where commas separate columns, one within quotes cannot be a decimal comma."""
    path = tmp_path / "x.csv"
    path.write_text('price,code\n"1,234.5",1\n"-12,345,678",2\n99,"1,2,3"\n,"12,34,5"\n')
    table = TableFile(path).read().rows
    assert table["price"].to_pylist() == [1234.5, -12345678, 99, None]
    assert table["code"].to_pylist() == ["1", "2", "1,2,3", "12,34,5"]
    path.write_text("price;code\n1,234;1\n5,6;2\n7;3\n")
    assert TableFile(path).read().rows["price"].to_pylist() == [1.234, 5.6, 7]
    path.write_text("price;code\n1,234;1\n5,678;2\n")  # three decimals throughout
    assert TableFile(path).read().rows["price"].to_pylist() == [1.234, 5.678]
    path.write_text("price;code\n990;1\n1,000;2\n")
    message = failed(capsys, "fit", str(path), "--target", "code")
    assert "column 'price' has '1,000' beside '990'; write thousands without a comma" in message


def test_parts_without_a_boolean_have_the_type_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "MAX_ROWS", 10)
    path = tmp_path / "x.csv"
    path.write_text("new,a\n" + "true,1\nfalse,2\n" * 5 + ",3\n" * 10)
    parts = list(TableFile(path).parts({"new": Format("number"), "a": Format("number")}))
    whole = pa.concat_tables(part.rows for part in parts)
    assert len(parts) == 2
    assert whole["new"].to_pylist() == [1.0, 0.0] * 5 + [None] * 10


def test_an_index_of_pandas_is_no_column(tmp_path):
    houses(20).sample(frac=1, random_state=0).to_parquet(tmp_path / "x.parquet")
    file = TableFile(tmp_path / "x.parquet")
    assert file.columns == ["town", "size", "price", "cheap"]
    assert file.read().rows.column_names == file.columns


def test_headers_are_long_span_lines_and_follow_empty_ones(tmp_path):
    names = [f"a_long_name_of_a_column_{at:06d}" for at in range(4000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * 4000) + "\n")
    assert TableFile(path).columns == names
    path.write_text('\n"x\nfeet",y\n1,2\n')
    assert TableFile(path).columns == ["x\nfeet", "y"]
    assert TableFile(path).read().rows.to_pylist() == [{"x\nfeet": 1.0, "y": 2.0}]


def test_a_name_that_is_nearly_right_is_found_among_many(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(",".join([*(f"column {at}" for at in range(40)), "Net Income"]) + "\n")
    file = TableFile(path)
    for name in ("net income", "Net  Income", "net_income"):
        with pytest.raises(FileError, match=r"and 29 more; is 'Net Income' meant\?$"):
            file.require([name])
    with pytest.raises(FileError, match=r"and 29 more$"):
        file.require(["price"])
