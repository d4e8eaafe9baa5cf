"""The paper's numbers for the wheel bandit, in percent of the regret of an arm at random.

Facts copied from "Variational Bayesian Last Layers" (ICLR 2024), mean ± standard error, in the
printed digits. Baselines are those of Riquelme, Tucker & Snoek (2018).
"""

from __future__ import annotations

from ..harness.statistics import Cell, Estimate, Published

COLUMNS = ("0.5", "0.7", "0.9", "0.95", "0.99")  # δ

_CUMULATIVE = {
    "vbll": ((0.46, 0.01), (0.89, 0.01), (2.54, 0.02), (4.82, 0.03), (24.44, 0.71)),
    "neural-linear": ((1.10, 0.02), (1.77, 0.03), (4.32, 0.11), (11.42, 0.97), (52.64, 2.04)),
    "neural-linear-mr": ((0.95, 0.02), (1.60, 0.03), (4.65, 0.18), (9.56, 0.36), (49.63, 2.41)),
    "lin-diag-post": ((1.12, 0.03), (1.80, 0.08), (5.06, 0.14), (8.99, 0.33), (37.77, 2.18)),
}
_SIMPLE = {
    "vbll": ((0.27, 0.03), (0.69, 0.06), (2.28, 0.14), (4.16, 0.17), (21.05, 1.59)),
    "neural-linear": ((0.31, 0.03), (0.68, 0.07), (2.18, 0.13), (5.44, 0.73), (46.42, 3.45)),
    "neural-linear-mr": ((0.33, 0.04), (0.79, 0.07), (2.17, 0.14), (4.08, 0.20), (35.89, 2.98)),
    "lin-post-mr": ((0.70, 0.06), (0.99, 0.10), (3.08, 0.22), (4.85, 0.27), (25.42, 1.81)),
}

_CELLS: dict[Cell, Estimate] = {
    (method, delta, metric): Estimate(*cell)
    for metric, rows in (("cumulative_regret", _CUMULATIVE), ("simple_regret", _SIMPLE))
    for method, row in rows.items()
    for delta, cell in zip(COLUMNS, row, strict=True)
}

PUBLISHED = Published(_CELLS)
