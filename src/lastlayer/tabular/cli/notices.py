"""What to look at in a table before training: identifiers, levels that differ in case only."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..columns import Column, Columns
from ..files.inference import Notice

MIN_ROWS = 20  # of a counter
NAMES = re.compile(  # the last word of the name of an identifier
    r"(?:^|[\W_]|(?<=[a-z]))(?:id|ids|nr|no|number|nummer|key|code|zip|zipcode|plz|postal|postcode|"
    r"phone|telephone|isbn|ean|sku|iban|ssn|uuid|guid)$",
    re.IGNORECASE,
)


def notices(columns: Columns, rows: pa.Table) -> list[Notice]:
    """Columns that look like identifiers, and category levels that differ in case only."""
    found = []
    for column in columns.used:
        if column.kind == "number" and (why := _identifier(column.name, rows[column.name])):
            text = f"looks like an identifier: {why}; --ignore {_quoted(column.name)} leaves it out"
            found.append(Notice(column.name, text))
        elif column.kind == "category" and (pair := _same_in_lower_case(column)):
            text = f"has the levels {pair[0]!r} and {pair[1]!r}; write them alike if they are one"
            found.append(Notice(column.name, text))
    return found


def _identifier(name: str, values: Any) -> str:
    """Why numbers look like an identifier; empty if they do not."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return ""
    numbers = np.unique(np.asarray(pc.drop_null(values).to_numpy(), float))
    num_known = len(values) - values.null_count
    if not np.array_equal(numbers, np.round(numbers)):
        return ""
    distinct = len(numbers)
    if distinct == num_known >= MIN_ROWS and numbers[-1] - numbers[0] == distinct - 1:
        return f"it counts from {numbers[0]:.0f} to {numbers[-1]:.0f}"
    named = NAMES.search(re.sub(r"([a-z])([A-Z])", r"\1_\2", name.strip()))
    if named and numbers[-1] >= 1000 and 5 * distinct > num_known:
        return f"its name, and {distinct:,} different integers in {num_known:,} rows"
    return ""


def _same_in_lower_case(column: Column) -> tuple[str, str] | None:
    spellings = defaultdict(list)
    for level in column.levels:
        spellings[level.casefold()].append(level)
    several = next((levels for levels in spellings.values() if len(levels) > 1), None)
    return (several[0], several[1]) if several else None


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f'"{name}"'
