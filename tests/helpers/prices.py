"""A table with a category, missing values and an identifier, and prices."""

import numpy as np


def table(rows=150):
    generator = np.random.default_rng(0)
    town = generator.choice(["Ulm", "Bonn", "Köln"], rows)
    size = generator.uniform(20, 200, rows)
    price = 3 * size + 100 * (town == "Bonn") + 5 * generator.standard_normal(rows)
    size[generator.random(rows) < 0.1] = np.nan
    return {"town": town.tolist(), "size": size, "id": [f"no {at}" for at in range(rows)]}, price
