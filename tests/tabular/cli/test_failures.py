"""Errors are one line, say what to do, and leave files as they were."""

import errno
import gzip
import lzma
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastlayer.sklearn import LastLayerRegressor
from lastlayer.tabular.cli.running import run
from lastlayer.tabular.cli.saved import SavedModel
from lastlayer.tabular.files.tables import TableFile
from tests.helpers.commands import failed, listing, misused


def test_a_missing_target_names_what_there_is(folder, capsys, tmp_path):
    model = str(tmp_path / "model")
    train = str(folder / "train.csv")
    message = failed(capsys, "fit", train, "--target", "prize", "--model", model)
    assert "no column 'prize'; it has 'town', 'size', 'price'" in message
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,price\n", "has a header but no rows"),
        ("a,price\n1,2\n4,5,6\n", "row 2 has 3 values instead of 2: '4,5,6'; correct it"),
        ("sep=;\na;price\n1;2\n4\n", "row 2 has 1 value instead of 2: '4'; correct it"),
        ('a,b,price\n1,"2,3\n4,5,6\n', "a quote in row 1 is not closed: '1,\"2,3'"),
        ("a,price\n1,2,3\n4,5,6\n", "first line must hold the names of all columns, but 'a,price'"),
        ("# new\na;price\n1,5;2\n", "first line must hold the names of all columns, but '# new'"),
        ("a,price\n1,\n2,\n", "no row has a value of 'price'"),
        ("a,a,price\n1,2,3\n", "2 columns named 'a'"),
        ("a,price\n1,5\n1,6\n", "no column to learn from: 'a' is always the same"),
        ("a,price\n1,2\n", "just one row has a target"),
        ("a,price\n1,2\n2,2\n", "the target is always 2: there is nothing to predict"),
        (" \n\n", "only white space"),
        ("a,price\n1,inf\n2,inf\n", "no row has a value of 'price'"),
        ("a,price\ninf,1\n2,3\n3,4\n", "'a' holds infinity"),
    ],
)
def test_files_that_cannot_be_learnt_from_say_why(tmp_path, capsys, text, message):
    path = tmp_path / "train.csv"
    path.write_text(text)
    options = ("--target", "price", "--model", str(tmp_path / "model"), "--quiet")
    assert message in failed(capsys, "fit", str(path), *options)
    assert listing(tmp_path) == ["train.csv"]


def test_a_wrong_delimiter_is_suspected(tmp_path, capsys):
    path = tmp_path / "train.csv"
    path.write_text("a:price\n1:2\n3:4\n")
    message = failed(capsys, "fit", str(path), "--target", "price")
    assert "is ',' its delimiter? Give another by --delimiter" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lzma.compress(b"a,price\n1,2\n"), "is compressed by xz; decompress it"),
        (gzip.compress(b"a,price\n1,2\n", mtime=0)[:-9], "is damaged: Truncated compressed stream"),
        (b"a,price\n1,\0\n", "is not text; save its table as CSV"),
        (b"PK\x03\x04", "is a spreadsheet or an archive; save its table as CSV"),
        (b"<!doctype html>\n<p>a,price", "is a web page or XML; save its table as CSV"),
        (b'{"price": [1, 2]}', "is JSON; save its table as CSV"),
    ],
)
def test_files_of_other_kinds_say_what_they_are(tmp_path, capsys, content, message):
    path = tmp_path / "train.csv"
    path.write_bytes(content)
    assert message in failed(capsys, "fit", str(path), "--target", "price")


def test_no_file_a_folder_and_a_damaged_one(tmp_path, capsys):
    assert "no file" in failed(capsys, "fit", str(tmp_path / "none.csv"), "--target", "x")
    assert "is a folder" in failed(capsys, "fit", str(tmp_path), "--target", "x")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    message = failed(capsys, "fit", str(tmp_path / "x.parquet"), "--target", "x")
    assert "damaged Parquet" in message


def test_parquet_files_that_cannot_be_read(tmp_path, capsys):
    path = tmp_path / "x.parquet"
    twice = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"])
    pa.parquet.write_table(twice, path)
    assert "2 columns named 'a'; rename them" in failed(capsys, "fit", str(path), "--target", "a")
    pa.parquet.write_table(pa.table({"a": np.random.default_rng(0).random(1000)}), path)
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36  # the header of the page
    path.write_bytes(data)
    message = failed(capsys, "fit", str(path), "--target", "a")
    assert "is a damaged Parquet file" in message
    assert "write it again" in message


def test_small_and_ragged_files_say_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("a,y\n1,2\n")
    assert "just one row has a target" in failed(capsys, "fit", str(path), "--target", "y")
    path.write_text("a,y,,\n1,2,,\n2,3,,7\n")
    message = failed(capsys, "fit", str(path), "--target", "y")
    assert "column 4 has no name, but values ('7'); name it" in message
    path.write_text("a,y,,\n1,2,,\n2,3,,\n")
    assert TableFile(path).read().rows.column_names == ["a", "y"]
    path.write_text("a,y\n1.5,2\n#N/A,3\n<NA>,4\n")
    assert TableFile(path).read().rows["a"].to_pylist() == [1.5, None, None]


def test_a_column_has_one_role(folder, capsys):
    train = str(folder / "train.csv")
    assert run(["fit", train, "--target", "price", "--ignore", "price"]) == 2
    assert run(["fit", train, "--target", "price", "--weight", "price"]) == 2
    assert run(["fit", train, "--target", "price", "--weight", "town"]) == 2
    assert "weights must be numbers, but 'town' holds others" in capsys.readouterr().err


def test_where_a_model_cannot_be_written_nothing_is_trained(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LastLayerRegressor, "read", None)
    train = [str(folder / "train.csv"), "--target", "price"]
    (tmp_path / "model.json").write_text('{"some": "other model"}')
    assert "holds more than a model" in failed(capsys, "fit", *train, "--model", str(tmp_path))
    file = str(tmp_path / "model.json")
    assert "holds more than a model" in failed(capsys, "fit", *train, "--model", file)
    assert "cannot write into" in failed(capsys, "fit", *train, "--model", f"{file}/model")

    def read_only(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", read_only)
    message = failed(capsys, "fit", *train, "--model", str(tmp_path / "new"))
    assert "Permission denied; choose another folder" in message


def test_misuse_has_its_own_exit_code(folder, capsys):
    model, table = str(folder / "model"), str(folder / "train.csv")
    assert run(["fit", table]) == 2
    assert "--target" in capsys.readouterr().err
    assert run(["predict", model, table, "--level", "90"]) == 2
    assert run(["fit", table, "--target", "price", "--hidden-layers", "a"]) == 2
    assert run(["export", model]) == 2
    capsys.readouterr()
    seed = misused(capsys, "fit", "none.csv", "--target", "price", "--seed", str(2**32))
    assert "--seed" in seed
    for text in ("é", "::", '"', "\n"):
        message = misused(capsys, "predict", model, table, "--delimiter", text)
        assert "--delimiter must be one ASCII character" in message


def test_a_bug_is_one_line_too(folder, capsys, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(SavedModel, "evaluate", broken)
    table = str(folder / "train.csv")
    message = failed(capsys, "evaluate", str(folder / "model"), table)
    assert "this is a bug in lastlayer: KeyError 'surprise'" in message
    monkeypatch.setenv("LASTLAYER_DEBUG", "1")
    with pytest.raises(KeyError):
        run(["evaluate", str(folder / "model"), table])
    with pytest.raises(FileNotFoundError):
        run(["evaluate", str(folder / "none"), table])
