"""The table of docs/tables.md of classifiers with default settings."""

from __future__ import annotations

import itertools

from benchmarks.markdown import provenance, record, table


def nll() -> str:
    """NLL and accuracy of each classifier, bold where within a standard error of the lowest."""
    measured = record("classifiers.json")
    rows = measured["sections"]["summary"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for name, group in itertools.groupby(rows, key=lambda row: row["table"]):
        of_table = list(group)
        lowest = min(of_table, key=lambda row: row["nll"])
        cells = []
        for row in of_table:
            ours = row["method"] == methods[0]
            level = ours and lowest["ours_minus_it"] <= lowest["error"]
            text = f"{row['nll']:.3f}"
            text = f"**{text}**" if row is lowest or level else text
            cells.append(f"{text} ({100 * row['accuracy']:.0f} %)")
        mark = "" if of_table[0]["chosen_on"] else " †"
        lines.append([f"{name}{mark}, {of_table[0]['rows']:,} rows", *cells])
    about = (
        f"Means over {measured['config']['folds']} folds; † on this table no default was chosen. "
        "Bold: the lowest, and ours if the paired difference to it is within a standard error."
    )
    names = ["NLL (accuracy)", *(f"`{method}`" for method in methods)]
    return f"{table(names, lines)}\n\n{about} {provenance(measured, 'scikit-learn')}"
