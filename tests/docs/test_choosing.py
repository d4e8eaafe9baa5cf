"""A short run of the programs behind docs/choosing.md, and what that page says in words."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torchmetrics", reason="they measure; install lastlayer[metrics]")
pytest.importorskip("matplotlib", reason="they draw; install lastlayer[plots]")

from docs.figures.choosing import main
from docs.figures.classification import BOUNDS, SCORES, TITLES
from docs.figures.regression import FAMILIES, priors
from docs.figures.runs import Config

ROOT = Path(__file__).parents[2]
FIGURES = ("bound", "covariance", "heads", "prior", "training")
Rows = dict[Any, dict[str, Any]]


def by(section: list[dict[str, Any]], *keys: str) -> Rows:
    rows = {tuple(row[key] for key in keys): row for row in section}
    return {key[0] if len(key) == 1 else key: row for key, row in rows.items()}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """The record that the page is made from."""
    sections: dict[str, Any] = json.loads((ROOT / "results/choosing.json").read_text())["sections"]
    return sections


@pytest.mark.slow
def test_the_program_draws_and_measures_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_default_dtype(torch.float32)
    folder, path = tmp_path / "new" / "folder", tmp_path / "record.json"
    main(["--quick", "--output", str(folder), "--json", str(path)])
    for name in FIGURES:
        assert (folder / f"choosing-{name}.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads(path.read_text())
    assert record["config"]["num_seeds"] == 2
    assert {"time", "cpu", "torch", "lastlayer"} <= set(record["environment"])
    sections = record["sections"]
    assert [row["choice"] for row in sections["prior"]] == list(priors(40))
    for name in ("covariance", "together"):
        assert [row["choice"] for row in sections[name]] == list(FAMILIES)
    for row in (*sections["prior"], *sections["covariance"], *sections["together"]):
        assert 0 <= row["coverage_0.9"] <= 1
        assert 0 < row["noise_stddev"] < 2
    # on the same features, the family that holds the posterior has the lowest −ELBO
    losses = [row["loss"] for row in sections["covariance"]]
    assert losses == sorted(losses)
    losses_of_bounds = [row for row in sections["bound"] if row["metric"] == "loss"]
    assert losses_of_bounds
    assert all(row["tilted"] < row["jensen"] for row in losses_of_bounds)
    tried = [(kind, score) for kind, scores in SCORES.items() for score in scores]
    assert list(by(sections["scores"], "head", "score")) == tried
    assert all(0 <= row["auroc"] <= 1 for row in sections["scores"])
    assert all(row["accuracy"] > 0.8 for row in sections["heads"])
    printed = capsys.readouterr().out
    assert all(section in printed for section in (*sections, str(folder), str(path)))


# What the page says in words must be in the numbers it shows: a new record may need new words.


def test_page_is_right_about_heads(recorded: dict[str, Any]) -> None:
    heads = by(recorded["heads"], "head")
    for metric in ("accuracy", "nll", "brier", "ece"):  # much alike
        values = [heads[kind][metric] for kind in SCORES]
        assert abs(values[0] - values[1]) < 0.01
    auroc = {key: row["auroc"] for key, row in by(recorded["scores"], "head", "score").items()}
    assert auroc["generative", "feature_density"] > 0.999
    assert auroc["discriminative", "epistemic_variance"] > 0.99
    assert all(auroc[kind, "predictive_entropy"] < 0.2 for kind in SCORES)
    assert 0.4 < auroc["discriminative", "mutual_information"] < 0.5


def test_page_is_right_about_covariances(recorded: dict[str, Any]) -> None:
    solved, together = (by(recorded[name], "choice") for name in ("covariance", "together"))
    noise = Config().wave_noise
    for name in FAMILIES[1:]:  # on given features they are worse, and call noise what is not
        assert solved[name]["nll_difference"] > 5 * solved[name]["nll_difference_error"]
        assert solved[name]["noise_stddev"] > 1.4 * noise
        assert solved[name]["loss"] > 2 * solved["dense"]["loss"]
        # trained together they predict no worse, with a lower ELBO
        assert together[name]["nll_difference"] < together[name]["nll_difference_error"]
        assert together[name]["loss"] > together["dense"]["loss"]
    assert solved["low_rank"]["nll"] < solved["diagonal"]["nll"]  # a few ranks help a little
    assert 0.85 < solved["dense"]["coverage_0.9"] < 0.9


def test_page_is_right_about_bounds(recorded: dict[str, Any]) -> None:
    rows = by(recorded["bound"], "metric", "num_data")
    assert set(rows) == {(name, size) for name in TITLES for size in Config().bound_sizes}
    assert set(BOUNDS) <= set(recorded["bound"][0])
    *little, most = Config().bound_sizes
    gains = [-rows["loss", size]["difference"] for size in (*little, most)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
    for size in (*little, most):  # a little higher
        row = rows["nll", size]
        assert 2 * row["difference_error"] < row["difference"] < 0.1 * row["jensen"]
    for size in little:
        assert abs(rows["ece", size]["difference"]) < rows["ece", size]["difference_error"]
    assert rows["ece", most]["difference"] < -2 * rows["ece", most]["difference_error"]


def test_page_is_right_about_priors(recorded: dict[str, Any]) -> None:
    rows = by(recorded["prior"], "choice")
    small, usual, large = (rows[f"variance = {value}"] for value in (0.01, 1, 100))
    assert small["noise_stddev"] > 1.3 * Config().wave_noise
    assert small["nll_difference"] > 5 * small["nll_difference_error"]
    assert abs(large["nll_difference"]) < 2 * large["nll_difference_error"]
    assert large["gap_stddev"] > 3 * usual["gap_stddev"]
    assert usual["loss"] < large["loss"] < small["loss"]
    cold, bayes, warm = (rows[f"kl_weight = {value}"] for value in (0.1, 1, 10))
    for key in ("coverage_0.9", "gap_stddev"):
        assert cold[key] < bayes[key] < warm[key]
    weak, strong, low = (
        rows[f"noise stddev {end}"]
        for end in ("1, strength 1", "1, strength 30", "0.1, strength 1")
    )
    assert abs(weak["nll_difference"]) < 0.01
    assert strong["noise_stddev"] > 2 * Config().wave_noise
    assert low["noise_stddev"] < 0.6 * Config().wave_noise
