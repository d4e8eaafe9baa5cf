"""Small tables in the place of the UCI data sets, for tests of the experiments."""

from pathlib import Path

import numpy as np


def write_tables(folder: Path, names: list[str], rows: int = 40, columns: int = 3) -> None:
    """Tables of a smooth function with noise, whose inputs have different units."""
    random = np.random.default_rng(0)
    (folder / "uci").mkdir(parents=True, exist_ok=True)
    for name in names:
        inputs = random.normal(size=(rows, columns)) * 10.0 ** np.arange(columns)
        target = 5 + 3 * np.sin(inputs[:, 0]) + random.normal(size=rows)
        header = ",".join([*(f"x{i}" for i in range(columns)), "y"])
        table = np.column_stack([inputs, target])
        path = folder / "uci" / f"{name}.csv"
        np.savetxt(path, table, delimiter=",", header=header, comments="")
