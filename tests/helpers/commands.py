"""A table of houses, and commands that succeed quickly or fail with one line."""

from pathlib import Path

import numpy as np
import pandas as pd

from lastlayer.tabular.cli.running import run

QUICK_FIT = ["--max-epochs", "64", "--hidden-layers", "8", "--quiet"]


def houses(rows: int = 120) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    town = generator.choice(["Ulm", "Bonn"], rows)
    size = generator.uniform(20, 200, rows).round(1)
    price = (3 * size + 100 * (town == "Bonn") + 5 * generator.standard_normal(rows)).round(2)
    frame = pd.DataFrame({"town": town, "size": size, "price": price})
    frame.loc[::17, "size"] = np.nan
    frame["cheap"] = np.where(price < np.median(price), "yes", "no")
    return frame


def listing(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def new_rows(tmp_path: Path, text: str) -> str:
    path = tmp_path / "new.csv"
    path.write_text(text)
    return str(path)


def failed(capsys, *arguments: str) -> str:
    """One line of error, and nothing of Python's."""
    code = run(list(arguments))
    message = capsys.readouterr().err.strip()
    assert code == 1
    assert message.startswith("lastlayer: ")
    assert "\n" not in message
    assert "Traceback" not in message
    return str(message)


def misused(capsys, *arguments: str) -> str:
    assert run(list(arguments)) == 2
    return str(capsys.readouterr().err)
