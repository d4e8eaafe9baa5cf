"""Every example runs, and its numbers are those of a model that has learnt."""

import importlib
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples"
# The lowest and the highest value of each number; chance would be outside.
BOUNDS = {
    "training_loop": {
        "rmse": (0.19, 0.22),  # the noise is 0.2
        "coverage of 90 % intervals": (0.85, 0.98),
        "epistemic stddev at the data": (0.0, 0.07),
        "epistemic stddev in the gap": (0.08, 1.0),
    },
    "out_of_distribution": {
        "accuracy": (0.96, 1.0),
        "expected calibration error": (0.0, 0.05),
        "AUROC of the entropy": (0.9, 1.0),
        "AUROC of the feature density": (0.85, 1.0),
    },
    "pretrained": {
        "accuracy": (0.88, 1.0),
        "accuracy, post-trained": (0.88, 1.0),
        "NLL": (0.35, 0.6),
        "NLL, post-trained": (0.2, 0.34),  # below that of the softmax
    },
    "deciding": {
        "regret by chance": (0.22, 0.24),
        "regret, Thompson": (0.0, 0.06),
    },
    "labelling_activeml": {"rmse": (0.0, 0.2)},  # 0.5 for the mean
    "labelling_baal": {"labels": (140, 140), "accuracy": (0.85, 1.0)},
    "table": {
        "R²": (0.35, 0.6),
        "coverage of 90 % intervals": (0.85, 0.97),
        "rows above the threshold": (0.0, 0.05),
        "score over threshold of an odd row": (2.0, float("inf")),
    },
}

NEEDS = {"labelling_activeml": "skactiveml", "labelling_baal": "baal"}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_an_example_learns(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    numbers = importlib.import_module(f"examples.{name}").main()
    assert list(numbers) == list(BOUNDS[name])
    for key, (low, high) in BOUNDS[name].items():
        assert low <= numbers[key] <= high, key


def test_examples_are_short_and_none_is_untested() -> None:
    paths = list(FOLDER.glob("*.py"))
    assert {path.stem for path in paths} == set(BOUNDS)
    assert all(len(path.read_text().splitlines()) <= 50 for path in paths)
