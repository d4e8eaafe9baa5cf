"""The target of a table in a file: which task it asks for, and its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..files.errors import FileError
from ..files.inference import Notice
from ..values import as_text, cut

MAX_UNREPEATED = 20  # classes of a text that is rarely the same in two rows
MAX_SIZE = 1e150  # of a number to predict
MAX_COUNTS = 20  # different integers that may be classes


def infer_task(target: Any) -> tuple[str, str]:
    """Regression or classification, and why, from the values of a target."""
    known = pc.drop_null(finite(target))
    _check_type(known.type)
    if not len(known):
        return "regression", "no values"  # which `split_target` refuses
    if len(known) == 1:
        raise FileError("just one row has a target: there is nothing to learn from")
    count = len(pc.unique(known))
    if count == 1:
        raise FileError(
            f"the target is always {as_text(known[0].as_py())}: there is nothing to predict"
        )
    if not _is_number(known.type):
        if count > MAX_UNREPEATED and 2 * count > len(known):
            raise FileError(
                f"the target holds text such as {known[0].as_py()!r}, with {count} different "
                f"values in {len(known)} rows; are they numbers with units or signs? Write them "
                "as 1234.5, or choose --task classification"
            )
        return "classification", f"{count} classes, {_frequencies(known)}"
    if count == 2:
        return "classification", f"two values, {_frequencies(known)}"
    values = known.to_numpy()
    if count <= MAX_COUNTS and np.array_equal(values, np.round(values)):
        return "regression", f"{count} integers; --task classification makes them classes"
    return "regression", f"{count:,} different values from {values.min():g} to {values.max():g}"


def _frequencies(values: Any) -> str:
    """How many rows the most and the least frequent class have."""
    counts = [
        (entry["counts"], as_text(entry["values"])) for entry in values.value_counts().to_pylist()
    ]
    (most, frequent), (fewest, rare) = max(counts), min(counts)
    rows = "row" if fewest == 1 else "rows"
    return f"from {cut(frequent)!r} in {most:,} to {cut(rare)!r} in {fewest:,} {rows}"


def check_numbers(target: str, notices: list[Notice]) -> None:
    """Raise if the target holds numbers but for some values."""
    for notice in notices:
        if notice.column == target and notice.lost:
            raise FileError(
                f"of the target {target!r}, {notice.text.partition(',')[0]}; or choose --task "
                "classification"
            )


def split_target(table: pa.Table, target: str, task: str) -> tuple[pa.Table, Any, int]:
    """The other columns, the targets, and the number of rows dropped for lack of a target."""
    values = finite(table[target].combine_chunks())
    _check_type(values.type)
    known = pc.is_valid(values)
    rows, values = table.drop_columns([target]).filter(known), values.filter(known)
    if not rows.num_rows:
        raise FileError(f"no row has a value of {target!r}")
    dropped = table.num_rows - rows.num_rows
    if task == "classification":
        return rows, labels(values), dropped
    if not _is_number(values.type):
        raise FileError(
            f"regression needs numbers, but {target!r} holds values such as "
            f"{values[0].as_py()!r}; choose --task classification"
        )
    numbers = values.cast(pa.float64(), safe=False).to_numpy()
    size = np.abs(numbers)
    if size.max() > MAX_SIZE:
        row = np.flatnonzero(known.to_numpy(zero_copy_only=False))[size.argmax()] + 1
        raise FileError(
            f"{target!r} has values up to {size.max():.3g}, in row {row}, whose square no computer "
            "number can hold; correct it, or choose other units, or predict the logarithm"
        )
    return rows, numbers, dropped


def labels(values: Any) -> Any:
    """Class labels as text; integers without a decimal point, booleans as true and false."""
    texts = [as_text(value) for value in values.to_pylist()]
    return np.array([text.lower() if pa.types.is_boolean(values.type) else text for text in texts])


def with_labels(table: pa.Table, target: str, task: str) -> pa.Table:
    """The table with targets as in training: classes as text, numbers that are not finite null."""
    values = finite(table[target].combine_chunks())
    if task == "classification":
        texts = np.full(len(values), None, object)
        texts[pc.is_valid(values).to_numpy(zero_copy_only=False)] = labels(values.drop_null())
        values = pa.array(texts, pa.string())
    return table.set_column(table.column_names.index(target), target, values)


def kind_of(values: Any) -> str:
    """What the labels of a CSV file must be read as, to be equal to labels of these values."""
    kind = finite(values).type
    return "number" if _is_number(kind) else "boolean" if pa.types.is_boolean(kind) else "text"


def finite(values: Any) -> Any:
    """Decimals as floats, and null for floats that are not finite."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))


def _check_type(kind: pa.DataType) -> None:
    """Raise if values of a type cannot be predicted."""
    if pa.types.is_temporal(kind):
        raise FileError(
            "the target holds dates or times, which cannot be predicted; make them numbers, such "
            "as days since the first, or text, if they are classes"
        )
    if pa.types.is_nested(kind):
        raise FileError(f"the target holds {kind}, which cannot be predicted; name another column")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
