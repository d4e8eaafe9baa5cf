"""The harness knows no data set, metric or method by name."""

import re
from pathlib import Path

from experiments.uci.methods import METHODS
from experiments.uci.run import EXPERIMENT
from experiments.uci.task import COVERAGE, CRPS, NLL, RMSE

HARNESS = Path(__file__).parents[3] / "experiments" / "harness"
WORDS = {"lastlayer", "map", "ours"}  # that mean something else too


def test_no_name_of_an_experiment_stands_in_the_harness():
    metrics = {metric.name for metric in (NLL, RMSE, CRPS, COVERAGE)}
    classes = {entry.method.__name__.lower() for entry in METHODS.values()}
    names = {*EXPERIMENT.columns, *METHODS, *classes, *metrics, EXPERIMENT.name} - WORDS
    for path in HARNESS.glob("*.py"):
        found = set(re.findall(r"[a-z_]+", path.read_text().lower())) & names
        assert not found, f"{path.name} names {sorted(found)}"
