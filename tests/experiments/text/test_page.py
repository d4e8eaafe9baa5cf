"""The page of the sentiment experiment, from records made up so that every number is known."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.harness.statistics import Runs
from experiments.text import claims, figure, page
from experiments.text.methods import METHODS, SIZES
from experiments.text.run import EXPERIMENT
from experiments.text.task import NLL

NOISE = (-0.01, 0.0, 0.01)  # of three seeds: a standard error of 0.0058


def add(results: Path, method: str, size: str, nll: float, ece: float = 0.1, accuracy: float = 0.8):
    """Three seeds; those of different methods vary against each other."""
    path = EXPERIMENT.path(results, size, method)
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = NOISE if method == "mlp" else NOISE[::-1]  # changes have twice its spread
    with path.open("a") as file:
        for seed, extra in enumerate(noise):
            config = {"method": method, "dataset": "minilm", "n": SIZES[size], "seed": seed}
            metrics = {"nll": nll + extra, "ece": ece + extra, "accuracy": accuracy + extra}
            record = {
                "config": config,
                "metrics": metrics,
                "seconds": 2.0,
                "processor_seconds": 1.0,
                "seeds_together": 3,
                "versions": {"torch": "2.13.0"},
                "time": "2026-01-01T12:00:00+00:00",
            }
            file.write(json.dumps(record) + "\n")


@pytest.fixture
def runs(tmp_path):
    """D-VBLL better than MLP by much, by little and not at all; ours best but at 1,000."""
    for size, gain in (("10", 0.2), ("100", 0.05), ("1000", 0.01), ("25000", 0.0)):
        add(tmp_path, "mlp", size, 0.7, 0.2)
        add(tmp_path, "d-vbll", size, 0.7 - gain, 0.2 - gain)
        add(tmp_path, "fit", size, 0.72 if size == "1000" else 0.4, 0.01)
    return Runs.load(EXPERIMENT, tmp_path)


def test_a_change_beyond_two_standard_errors_counts_and_a_smaller_one_does_not(runs):
    # the standard error of the change is 2 * 0.01 / sqrt(3) = 0.0115
    assert claims.lower(runs, "d-vbll", NLL) == {
        "10": True,
        "100": True,
        "1000": False,
    }
    assert "D-VBLL in 4 of 6 cells (not NLL at 1,000, ECE at 1,000)" in claims.paper(runs)[0]


def test_accuracy_that_is_lower_is_named(tmp_path):
    add(tmp_path, "mlp", "10", 0.7, accuracy=0.8)
    add(tmp_path, "g-vbll", "10", 0.7, accuracy=0.7)
    second = claims.paper(Runs.load(EXPERIMENT, tmp_path))[1]
    assert "does not hold for G-VBLL at 10." in second


def test_ours_is_compared_with_every_other_row(runs):
    assert claims.behind(runs, "fit") == {
        "10": [],
        "100": [],
        "1000": ["d-vbll", "mlp"],
        "25000": [],
    }
    _, second = claims.targets(runs)
    assert second.endswith("not against D-VBLL, MLP at 1,000.")


def test_cells_that_are_not_measured_are_counted(tmp_path):
    add(tmp_path, "mlp", "10", 0.7)
    add(tmp_path, "d-vbll", "10", 0.5)
    text = claims.counted(Runs.load(EXPERIMENT, tmp_path), "d-vbll")
    assert text == "D-VBLL in 1 of 6 cells (not ECE at 10; 4 are not measured)"


def test_the_page_has_tables_claims_and_the_commands_of_what_is_missing(runs):
    text = page.page(runs)
    assert "0.500\u00a0±\u00a00.006" in text  # D-VBLL's NLL at 10
    assert "**−0.200\u00a0±\u00a00.012**" in text  # and its change
    assert "--sizes 10,100,1000,25000 --methods posttrain" in text
    for method in METHODS:
        assert METHODS[method].title in text


def test_bands_are_one_standard_deviation_over_seeds(runs):
    drawn = figure.draw(runs)
    panel = drawn.subfigs[0].axes[1]  # NLL of the paper's methods: d-vbll first
    line, band = panel.lines[0], panel.collections[0]
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [0.5, 0.65, 0.69, 0.7], atol=1e-12)
    corners = np.asarray(band.get_paths()[0].vertices)
    at_ten = corners[np.isclose(corners[:, 0], 10), 1]
    np.testing.assert_allclose([at_ten.min(), at_ten.max()], [0.49, 0.51], atol=1e-12)


def test_without_records_there_is_no_page(tmp_path):
    assert page.write(tmp_path) is None
