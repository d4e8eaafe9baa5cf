"""Tables whose targets follow from known columns, with names that are hard to show."""

import numpy as np
import pandas as pd

EVIL, QUOTED = "<script>alert(1)</script>", 'a & "b" $x$'


def flats(rows: int, seed: int) -> pd.DataFrame:
    """Rents that depend on size and town, and neither on luck nor on the date."""
    generator = np.random.default_rng(seed)
    town = generator.choice(["Ulm", "Bonn", EVIL], rows, p=[0.5, 0.3, 0.2])
    size = generator.uniform(20, 200, rows)
    rent = 400 + 9 * size + 300 * (town == "Bonn") + 60 * generator.standard_normal(rows)
    return pd.DataFrame(
        {
            "town": pd.Series(town, dtype=object).mask(generator.random(rows) < 0.1),
            "size": np.where(generator.random(rows) < 0.1, np.nan, size),
            QUOTED: generator.standard_normal(rows),
            "since": pd.Timestamp("2001-01-01")
            + pd.to_timedelta(generator.integers(0, 4000, rows), unit="D"),
            "id": [f"no {seed} {at}" for at in range(rows)],
            "country": "D",
            "rent": rent,
        }
    )


def flowers(rows: int, seed: int, classes: int = 3) -> pd.DataFrame:
    """Kinds that follow from two lengths, and not from a third."""
    generator = np.random.default_rng(seed)
    kind = generator.integers(0, classes, rows)
    frame = pd.DataFrame(
        {
            "long": kind + 0.6 * generator.standard_normal(rows),
            "wide": (kind % 2) + 0.4 * generator.standard_normal(rows),
            "noise": generator.standard_normal(rows),
            "colour": np.array(["red", "blue"])[(kind + generator.integers(0, 2, rows)) % 2],
        }
    )
    frame["kind"] = np.array(["iris", "rose", EVIL])[kind] if classes > 2 else kind
    return frame


def wide_table(rows: int) -> pd.DataFrame:
    """Fifty columns with long names, of which one matters."""
    generator = np.random.default_rng(rows)
    names = [f"{'a long name ' * 20}{at}" for at in range(49)] + ["x" * 300]
    frame = pd.DataFrame(generator.standard_normal((rows, 50)), columns=names)
    return frame.assign(y=5 * frame["x" * 300] + 0.1 * generator.standard_normal(rows))


def crowded_table(rows: int) -> pd.DataFrame:
    """Many levels in letters of many scripts, and many classes."""
    generator = np.random.default_rng(rows)
    names = np.array(["東京", "🙂", "long " * 30, *(f"level {at}" for at in range(20))])
    label = np.arange(rows) % 20
    level = np.where(generator.random(rows) < 0.5, label % 3, generator.integers(0, 23, rows))
    size = label + 0.1 * generator.standard_normal(rows)
    return pd.DataFrame({"città": names[level], "size": size, "label": label})
