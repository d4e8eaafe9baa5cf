"""The paper's figure 1, which is the demonstration, with few epochs."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the demo draws; install lastlayer[plots]")

from experiments.figures import toy
from experiments.figures.cubic import Cubic, run_cubic
from experiments.figures.moons import Moons, run_moons


def size_of_png(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


@pytest.mark.slow
@pytest.mark.parametrize("variational", [True, False])
def test_cubic_is_least_certain_in_the_gap_and_the_same_when_run_again(
    tmp_path: Path, variational: bool
):
    config = Cubic(variational=variational)
    numbers = run_cubic(tmp_path / "cubic.png", 10, config)
    assert size_of_png(tmp_path / "cubic.png") == (1152, 704)
    assert all(math.isfinite(value) for value in numbers.values())
    assert numbers["loss, last epoch"] < numbers["loss, first epoch"]
    # the closed form is the optimum of the loss given features and noise
    by_sgd = numbers["loss without KL of features, by SGD"]
    assert numbers["loss without KL of features, solved"] < by_sgd
    at_data = numbers["epistemic stddev solved, 2 < |x| < 4"]
    assert numbers["epistemic stddev solved, |x| < 1"] > 2 * at_data
    assert numbers["epistemic stddev solved, 5 < |x| < 6"] > 2 * at_data
    assert run_cubic(tmp_path / "again.png", 10, config) == numbers


def test_variational_features_without_variance_and_divergence_are_the_plain_network(
    tmp_path: Path,
):
    still = Cubic(initial_stddev=1e-12, feature_kl_weight=0.0)
    numbers = run_cubic(tmp_path / "cubic.png", 3, still)
    plain = run_cubic(tmp_path / "plain.png", 3, Cubic(variational=False))
    assert {name: numbers[name] for name in plain} == pytest.approx(plain, rel=1e-6)
    assert numbers["epistemic stddev solved, |x| < 1, features alone"] < 1e-9


@pytest.mark.slow
def test_moons_are_told_apart_and_far_points_are_unlikely(tmp_path: Path):
    numbers = run_moons(tmp_path / "moons.png", 5, Moons())
    assert size_of_png(tmp_path / "moons.png") == (900, 675)
    assert all(math.isfinite(value) for value in numbers.values())
    assert numbers["loss, last epoch"] < numbers["loss, first epoch"]
    assert numbers["test accuracy"] > 0.8
    far = numbers["mean log-density 4 away from their centre"]
    assert numbers["mean log-density of test points"] > far + 10


@pytest.mark.slow
def test_command_prints_where_the_figures_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "toy"
    toy.toy(folder, epochs_scale=0.002)
    printed = capsys.readouterr().out
    for name in ("cubic-variational.png", "cubic.png", "moons.png"):
        assert str(folder / name) in printed
        assert (folder / name).stat().st_size > 10_000
    record = json.loads((folder / "toy.json").read_text())
    figures = {figure["figure"]: figure for figure in record["figures"]}
    assert list(figures) == ["cubic-variational.png", "cubic.png", "moons.png"]
    assert figures["cubic.png"]["config"]["epochs"] == 2
    assert not figures["cubic.png"]["config"]["variational"]
    accuracy = figures["moons.png"]["metrics"]["test accuracy"]
    assert f"{accuracy:9.3f}" in printed
    assert {"time", "torch", "lastlayer"} <= set(record["versions"])
    assert toy.write_page(tmp_path) is not None
    assert (
        f"| test accuracy                             | {accuracy:.3f}"
        in (folder / "README.md").read_text()
    )
