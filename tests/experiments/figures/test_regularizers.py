"""Curves of the regularisers against the paper's formulas."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("matplotlib", reason="the figures are drawn; install lastlayer[plots]")

from experiments.figures import regularizers

PNG = b"\x89PNG\r\n\x1a\n"
STRENGTHS_AND_LOCATIONS = [(0.1, 10.0), (1.0, 1.0), (100.0, 0.25), (3.0, 1 / 3)]


def formula(log_scale: Tensor, a: float, b: float) -> Tensor:
    return a * (2 * log_scale).exp() - 2 * b * log_scale


@pytest.mark.parametrize(("a", "location"), STRENGTHS_AND_LOCATIONS)
def test_terms_of_noise_and_weights_are_the_regulariser_of_the_paper(a: float, location: float):
    p, b = torch.linspace(-3, 2, 41), location * a
    prior = regularizers.prior(a, location)
    expected = formula(p, a, b)
    torch.testing.assert_close(regularizers.noise_term(p, prior), expected)
    lowest = b - b * math.log(location)
    torch.testing.assert_close(regularizers.weight_term(p, prior), expected - lowest)


@pytest.mark.parametrize(("a", "location"), STRENGTHS_AND_LOCATIONS)
def test_regularisers_have_their_minimum_at_the_target(a: float, location: float):
    prior = regularizers.prior(a, location)
    p = torch.tensor([0.5 * math.log(location)], requires_grad=True)
    for term in (regularizers.noise_term, regularizers.weight_term):
        (slope,) = torch.autograd.grad(term(p, prior).sum(), p, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), p)
        assert slope.item() == pytest.approx(0, abs=1e-12 * a * location)
        assert curvature.item() == pytest.approx(4 * a * location)  # of 4a exp(2p)


def test_figures_of_regularisers_come_with_their_curves(tmp_path: Path):
    regularizers.regularizers(tmp_path / "new")
    record = json.loads((tmp_path / "new" / "regularizers.json").read_text())
    assert {"time", "torch", "lastlayer"} <= set(record["versions"])
    decay, ours = record["figures"]["regularizers"]
    location, strength = record["figures"]["locations"]
    assert decay["xlabel"] == ours["xlabel"] == "exp(p)"
    assert location["xlabel"] == strength["xlabel"] == "exp(2p)"
    x, config = np.array(ours["x"]), record["config"]
    for label, a in zip(ours["curves"], config["strengths"], strict=True):
        np.testing.assert_allclose(ours["curves"][label], a * x**2 - 2 * np.log(x), 1e-4, 1e-5)
        assert ours["minima"][label] == pytest.approx([a**-0.5, 1 + math.log(a)], rel=1e-5)
    for label, weight in zip(decay["curves"], config["weight_decays"], strict=True):
        x = np.array(decay["x"])
        expected = weight / 2 * np.log(x) ** 2
        # x has six digits, so log x has an error of up to 5e-6, which counts most near x = 1
        np.testing.assert_allclose(decay["curves"][label], expected, 1e-4, 1e-6 * weight)
        assert decay["minima"][label] == [1, 0]
    for panel, places in [(location, config["locations"]), (strength, [1.0] * 5)]:
        for label, place in zip(panel["curves"], places, strict=True):
            lowest = panel["x"][int(np.argmin(panel["curves"][label]))]
            assert lowest == pytest.approx(place, rel=0.02)  # on the grid
            assert panel["minima"][label] == pytest.approx([place, 0], abs=1e-9)
    for name in ("regularizers", "locations"):
        assert (tmp_path / "new" / f"{name}.png").read_bytes().startswith(PNG)


def test_the_page_has_the_minima_of_the_record(tmp_path: Path):
    assert regularizers.write_page(tmp_path) is None
    regularizers.regularizers(tmp_path / "regularizers")
    assert regularizers.write_page(tmp_path) is not None
    text = (tmp_path / "regularizers" / "README.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["Weight decay, λp²/2", "λ = 0.1", "1"] in lines
    assert ["Sweeping the location ŝ, a = 100", "ŝ = 4", "4"] in lines
