"""Values as people write them, and values that are in the way."""

import datetime as dt

import pyarrow as pa
import pytest

from lastlayer.tabular.files.encodings import detect
from lastlayer.tabular.files.errors import FileError
from lastlayer.tabular.files.inference import infer
from lastlayer.tabular.files.parsing import Format, convert
from lastlayer.tabular.files.tables import TableFile


def texts(*values):
    return pa.chunked_array([list(values)], pa.string())


def column(values, separator=",", **options):
    """One column of texts as it is inferred."""
    contents = infer(pa.table({"x": texts(*values)}), separator, **options)
    return contents.rows["x"].to_pylist(), contents.formats["x"], contents.notices


@pytest.mark.parametrize(
    ("written", "numbers", "unit"),
    [
        (["$1,234.50", "$3.00", "-$5", "($7.25)"], [1234.5, 3, -5, -7.25], "$"),
        (["12.5 €", "7 €", None], [12.5, 7, None], "€"),
        (["1.234,56", "7,1", "12"], [1234.56, 7.1, 12], ""),
        (["12.5%", "63 %", "n.a."], [12.5, 63, None], "%"),
        (["3 kg", "4.5kg", "100"], [3, 4.5, 100], "kg"),
        (["1 234,5", "12\u202f345", "7"], [1234.5, 12345, 7], ""),
        (["1'234.5", "12\u2019345", "7"], [1234.5, 12345, 7], ""),
        (["12,34,567.5", "\u22127", "1,000"], [1234567.5, -7, 1000], ""),
        (["5-", "6.5", "1e3"], [-5, 6.5, 1000], ""),
        (["32 m²", "7 m²", "--"], [32, 7, None], "m²"),
    ],
)
def test_numbers_are_read_as_people_write_them(written, numbers, unit):
    values, form, notices = column(written)
    assert (values, form.kind, form.unit, notices) == (numbers, "number", unit, [])
    assert convert(texts(*written), form, ",").to_pylist() == numbers


@pytest.mark.parametrize(
    ("written", "pattern", "last"),
    [
        (["31.12.2020", "1.2.2021"], "%d.%m.%Y", dt.datetime(2021, 2, 1)),
        (["12/31/2020", "01/02/2021"], "%m/%d/%Y", dt.datetime(2021, 1, 2)),
        (["31/12/20", "01/02/21"], "%d/%m/%y", dt.datetime(2021, 2, 1)),
        (["31-Dec-2020", "1-Jan-2021"], "%d-%b-%Y", dt.datetime(2021, 1, 1)),
        (["Dec 31, 2020", "January 1, 2021"], "%b %d, %Y", dt.datetime(2021, 1, 1)),
        (
            ["1/31/2020 5:06 PM", "1/2/2020 9:10 AM"],
            "%m/%d/%Y %I:%M %p",
            dt.datetime(2020, 1, 2, 9, 10),
        ),
        (["2020-12-31", "2021-01-01T10:30Z"], "ISO", dt.datetime(2021, 1, 1, 10, 30)),
    ],
)
def test_dates_are_read_as_people_write_them(written, pattern, last):
    values, form, notices = column(written)
    assert (values[-1], form, notices) == (last, Format("date", pattern=pattern), [])
    assert convert(texts(written[-1]), form, ",").to_pylist() == [last]


def test_days_and_months_that_cannot_be_told_apart_are_asked_for():
    written = ["01/02/2020", "03/04/2020"]
    with pytest.raises(
        FileError, match="'01/02/2020', which may be DD/MM/YYYY or MM/DD/YYYY; give"
    ):
        column(written)
    assert column(written, month_first=True)[0][0] == dt.datetime(2020, 1, 2)
    assert column(written, month_first=False)[0][0] == dt.datetime(2020, 2, 1)


def test_few_values_in_the_way_are_missing_and_named():
    numbers = [f"{at}.5" for at in range(299)]
    numbers[77] = "12..3"
    values, form, notices = column(numbers)
    assert form.kind == "number"
    assert values[76:79] == [76.5, None, 78.5]
    assert notices[0].text.startswith("298 of 299 values are numbers; row 78 has '12..3'")


def test_many_values_in_the_way_leave_text_and_are_named():
    written = ["3 kg", "500 g", "2 kg", "7 kg"] + [f"{at} kg" for at in range(20)]
    written[10:13] = ["1 g", "2 g", "3 g"]
    values, form, notices = column(written)
    assert (values, form.kind) == (written, "text")
    assert "20 of 24 values are numbers in kg; row 2 has '500 g', row 11 has" in notices[0].text
    assert "and 1 more: correct them" in notices[0].text


def test_codes_that_repeat_stay_categories():
    written = ["1", "2", "3"] * 20 + ["A", "A"]
    assert column(written) == (written, Format("text"), [])


def test_a_last_row_of_totals_is_left_out_and_named():
    table = pa.table({"town": texts("Ulm", "Bonn", "Total"), "price": texts("1", "2", "3")})
    contents = infer(table, ",")
    assert contents.rows["price"].to_pylist() == [1, 2]
    assert "the last row, 3, has 'Total'" in contents.notices[0].text
    assert infer(table.slice(0, 2), ",").notices == []


def test_the_decimal_mark_of_other_columns_decides():
    table = pa.table({"a": texts("990", "1.500"), "b": texts("0,5", "1,25")})
    assert infer(table, ";").rows["a"].to_pylist() == [990, 1500]
    assert infer(table.set_column(1, "b", texts("0.5", "2")), ";").rows["a"].to_pylist() == [
        990,
        1.5,
    ]
    with pytest.raises(FileError, match=r"'1.500' beside '990'; write thousands without a point"):
        infer(table.select(["a"]), ";")


def test_other_marks_are_read_where_those_of_training_do_not_fit():
    german = Format("number", ",")
    assert convert(texts("1.500,5", "7"), german, ";").to_pylist() == [1500.5, 7]
    assert convert(texts("1.5", "2.250"), german, ",").to_pylist() == [1.5, 2.25]
    assert convert(texts("1.500", "7,5"), german, ";").to_pylist() == [1500, 7.5]
    percent = Format("number", ".", unit="%")
    assert convert(texts("63%", "0.63"), percent, ",").to_pylist() == [63, None]
    assert convert(texts("2020-12-31"), Format("date", pattern="%d.%m.%Y"), ",").to_pylist() == [
        dt.datetime(2020, 12, 31)
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16"])
def test_text_is_read_in_its_encoding(tmp_path, encoding):
    path = tmp_path / "x.csv"
    path.write_bytes("Größe;Ort\n1,5;Köln\n2,5;Ulm\n".encode(encoding))
    file = TableFile(path)
    assert file.read().rows.to_pylist()[0] == {"Größe": 1.5, "Ort": "Köln"}
    path.write_bytes(b"\x89PNG\0\1")
    with path.open("rb") as stream:
        assert detect(stream) is None
