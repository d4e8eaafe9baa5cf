"""Downloads of the UCI data sets, from small archives in the formats of the originals."""

import base64
import dataclasses
import io
import zipfile
import zlib
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from experiments.datasets import download, uci

NUM_ROWS = 2
SIZES = {n: (s.num_rows, len(s.inputs.split())) for n, s in download.SOURCES.items()}
# An Excel 97 workbook of xlwt 1.3.0: a header, and 10 i + j + 0.25 in rows i = 1, 2 and columns
# j = 0, …, 8.
XLS = (
    "eNrtWE1oE0EUfrPZ/NKmmzatJEqtwTY25mCstT3Yrgqak6XqoSKCpm1QaUklFEQvVmvwJAgeRPFSKIiXqherqKAnPQ"
    "gVPRQKQqIHD54ERQ9t1vfe7sa09tCAFivzLfPNvDfz3rzsvJns7puZQH7iQbgAS9ANDigaXnCV6QQWry1ogP2GQU27"
    "9mAxJNYUvB5cSJcTnlS/dtMa0noXQIH76gtkgA9YjsEZ6BnJpJtWEXs5hpSgGLqQBdxGjR9CHFUt8wBzHfM9HvmUeT"
    "drrjJ34di8OAozek+s08riI0qE+/xAfqfZZo41CaiHV5TFF64Jc6wT9mRPp4b/zY5GtQomAdctmc6ks6nhPARxASfh"
    "m9EE8NXeqc+bpH519QJQ/2Ox3r2M/rqiAoyBcYITPIcJOecwN+HhU+n0aGIe2vnApYLpObCNKEG0naiNaAdRO9FOog"
    "6iTh8Z8c7WFu3sas74KuRBqOF2gPNew7N7/u6Xtwf6e/XjrBnj09w885spTDDgIlmgsZ97OFIOLcYWW5kvsdf13A4z"
    "BzFbsW7prbca+8d5zGXubcF52hjv9GhZewu2c58PPmrMfdRbsT2VLJwPTs3qExDBOQfRnq5xiIu4uHWT8Fi3a2GdD+"
    "+ZQ7+dFR5Fs2I3rD+2GlgAHzcDzKZEd0eUJMW6V6bkQMlRklSU1JLkRMlZklwouUqSGyV3SfKg5LEiEksiega7WIfj"
    "NeIbAeJoHfF0kDjZQDy7jvhkiPh7mPjKBvJMPpVlfCrs885G4o5NxC8jxH2biT81E5+N8rytPG+M542Tz26lFh6SAz"
    "xjf8EHEhISEhISEhISawXCfLXgZ1mVn13NNwW39V1nAUtRfib5b3EIRvAaxRfTfZDBOgvnKsqfBnAK25dYoY39vZDQ"
    "h7NnYQj6OY6hivMX3/RE+e9ZsaH257ZQpfMXK4nzL8//E2j21o4="
)


def table(num_columns: int) -> np.ndarray:
    rows, columns = np.mgrid[1 : NUM_ROWS + 1, 0:num_columns]
    return 10.0 * rows + columns + 0.25


def archive(path: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("Readme.txt", "not this one")
        target.writestr(path, content)
    return file.getvalue()


def workbook(values: np.ndarray, *, blank: bool = False) -> bytes:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append([f"c{column}" for column in range(values.shape[1])])
    for row in values.tolist():
        book.active.append([*row[:-1], None] if blank else [*row, None])
    book.active.append([None] * values.shape[1])
    book.create_sheet("Sheet2").append(["not", "this", "sheet"])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def original(name: str) -> bytes:
    """The file at the address of a data set, with two rows."""
    if name == "boston":
        lines = [
            " The Boston house-price data of",
            " Variables in order:",
            " CRIM   1 per head",
            "",
        ]
        for row in table(14).tolist():
            lines += [" ".join(map(str, row[:11])), "  " + "  ".join(map(str, row[11:]))]
        return "\n".join(lines).encode()
    if name == "concrete":
        pytest.importorskip("xlrd")
        return archive("Concrete_Data.xls", zlib.decompress(base64.b64decode(XLS)))
    if name == "energy":
        return archive("ENB2012_data.xlsx", workbook(table(10)))
    if name == "power":
        return archive("CCPP/Folds5x2_pp.xlsx", workbook(table(5)))
    if name == "wine":
        lines = [";".join(f'"c{column}"' for column in range(12))]
        lines += [";".join(map(str, row)) for row in table(12).tolist()]
        return archive("winequality-red.csv", "\n".join(lines).encode())
    lines = ["  ".join(map(str, row)) + " " for row in table(7).tolist()]
    return archive("yacht_hydrodynamics.data", "\n".join([*lines, "", ""]).encode())


def opener(url: str) -> bytes:
    return original(next(name for name, s in download.SOURCES.items() if s.url == url))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in download.SOURCES.items():
        small = dataclasses.replace(source, num_rows=NUM_ROWS)
        monkeypatch.setitem(download.SOURCES, name, small)


@pytest.mark.parametrize("name", uci.NAMES)
def test_every_original_is_written_as_the_table_that_experiments_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_inputs = {"boston": 13, "concrete": 8, "energy": 8, "power": 4, "wine": 11, "yacht": 6}
    assert download.fetch(tmp_path, [name], opener) == [tmp_path / "uci" / f"{name}.csv"]
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path))
    inputs, target = uci.load(name)
    expected = table(num_inputs[name] + 1)
    np.testing.assert_array_equal(inputs, expected[:, :-1])
    np.testing.assert_array_equal(target, expected[:, -1])
    header = (tmp_path / "uci" / f"{name}.csv").read_text().splitlines()[0].split(",")
    assert len(set(header)) == num_inputs[name] + 1
    assert header[-1] == "y"


def test_all_digits_of_a_number_survive(tmp_path: Path) -> None:
    lines = [f"{1 / 3!r} 1e-7 2 3 4 5 79.98611076", "0 0 0 0 0 0 0"]
    content = archive("yacht_hydrodynamics.data", "\n".join(lines).encode())
    [path] = download.fetch(tmp_path, ["yacht"], lambda url: content)
    row = np.loadtxt(path, delimiter=",", skiprows=1)[0]
    np.testing.assert_array_equal(row, [1 / 3, 1e-7, 2, 3, 4, 5, 79.98611076])


def test_what_is_there_is_neither_downloaded_nor_changed(tmp_path: Path) -> None:
    kept = tmp_path / "uci" / "wine.csv"
    kept.parent.mkdir()
    kept.write_text("mine")
    urls: list[str] = []

    def note(url: str) -> bytes:
        urls.append(url)
        return opener(url)

    assert download.fetch(tmp_path, ["wine", "yacht"], note) == [tmp_path / "uci" / "yacht.csv"]
    assert urls == [download.SOURCES["yacht"].url]
    assert kept.read_text() == "mine"


def test_a_failure_is_tried_again_once(tmp_path: Path) -> None:
    attempts: list[str] = []

    def flaky(url: str) -> bytes:
        attempts.append(url)
        if len(attempts) == 1:
            raise URLError("no route")
        return opener(url)

    [path] = download.fetch(tmp_path, ["yacht"], flaky)
    np.testing.assert_array_equal(np.loadtxt(path, delimiter=",", skiprows=1), table(7))
    assert len(attempts) == 2


def test_a_failed_download_leaves_nothing_says_what_to_do_and_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    attempts: list[str] = []

    def broken(url: str) -> bytes:
        if "wine" in url:
            attempts.append(url)
            raise URLError("no route")
        return opener(url)

    with pytest.raises(RuntimeError, match=r"wine: .*no route.*take winequality-red\.csv") as error:
        download.fetch(tmp_path, ["wine", "yacht"], broken)
    assert len(attempts) == 2
    assert str(tmp_path / "uci" / "wine.csv") in str(error.value)
    assert "alcohol,y" in str(error.value)
    assert [path.name for path in (tmp_path / "uci").iterdir()] == ["yacht.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive("yacht_hydrodynamics.data", b"1 2 3 4 5 6 7"), "2 rows of 7 .*1 rows of 7"),
        (archive("yacht_hydrodynamics.data", b"1 2 3 4 5 6 7\n1 2 3"), "2 rows of 3 or 7"),
        (archive("yacht_hydrodynamics.data", b"1 2 3 4 5 6 7\n1 2 3 4 5 6 nan"), "finite"),
        (archive("yacht_hydrodynamics.data", b""), "0 rows of nothing"),
        (archive("yacht_hydrodynamics.data", b"<html>sorry</html>"), "could not convert"),
        (archive("other.data", b""), "no yacht_hydrodynamics.data in the archive"),
        (b"<html>sorry</html>", "not a zip file"),
    ],
)
def test_what_is_not_the_data_set_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=message):
        download.fetch(tmp_path, ["yacht"], lambda url: content)
    assert not list(tmp_path.rglob("*.*"))


def test_a_workbook_with_an_empty_cell_is_refused(tmp_path: Path) -> None:
    content = archive("CCPP/Folds5x2_pp.xlsx", workbook(table(5), blank=True))
    with pytest.raises(RuntimeError, match="2 rows of 5 numbers, got 2 rows of 4"):
        download.fetch(tmp_path, ["power"], lambda url: content)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        assert list(tmp_path.rglob("*.partial"))
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RuntimeError, match="disk full"):
        download.fetch(tmp_path, ["yacht"], opener)
    assert not list((tmp_path / "uci").iterdir())


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    content = original("power")
    monkeypatch.setattr(download, "import_module", absent)
    with pytest.raises(RuntimeError, match=r"openpyxl.*lastlayer\[experiments\]"):
        download.fetch(tmp_path, ["power"], lambda url: content)


def test_an_unknown_name_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'iris'.*boston"):
        download.fetch(tmp_path, ["yacht", "iris"], opener)
    assert not list(tmp_path.iterdir())


def test_sources_demand_the_known_sizes_of_all_data_sets() -> None:
    assert SIZES == {
        "boston": (506, 13),
        "concrete": (1030, 8),
        "energy": (768, 8),
        "power": (9568, 4),
        "wine": (1599, 11),
        "yacht": (308, 6),
    }
