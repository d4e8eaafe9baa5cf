"""Sweeps of targets: the head that is swept, and where strong priors draw it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="the figures are drawn; install lastlayer[plots]")

import lastlayer as ll
from experiments.figures import hyperparameters
from experiments.figures.swept import SweptRegression
from lastlayer.heads._parts import recorded

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    "targets",
    [
        {},
        {"noise_precision": 0.3, "noise_strength": 50.0},
        {"weight_variance": 0.2, "weight_strength": 3.0, "noise_precision": 3.0},
    ],
)
def test_swept_head_has_the_gradient_of_a_head_with_that_prior(
    targets: dict, generator: torch.Generator
):
    prior = ll.Prior.from_targets(num_data=40, num_outputs=1, **targets)
    swept = SweptRegression(4, num_data=40, prior=prior)
    plain = ll.Regression(4, num_data=40, prior=prior)
    features, target = torch.randn(7, 4, generator=generator), torch.randn(7, generator=generator)
    for parameter in swept.parameters():
        parameter.data.normal_(std=0.5, generator=generator)
    parameters = {name: p.data for name, p in swept.named_parameters()}
    plain.load_state_dict(plain.state_dict() | parameters)
    swept(features, target).backward()
    plain(features, target).backward()
    for one, other in zip(swept.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_tracked_values_are_those_of_the_head(generator: torch.Generator):
    head = SweptRegression(3, num_data=10, prior=ll.Prior())
    for parameter in head.parameters():
        parameter.data.normal_(std=0.5, generator=generator)
    with recorded(head) as tracked:
        head(torch.randn(5, 3), torch.randn(5))
    S = torch.stack([head.covariance.quadratic(v) for v in torch.eye(3)]).squeeze(-1)
    assert tracked["noise_precision"].item() == pytest.approx(1 / head.noise.variance().item())
    assert tracked["covariance_diagonal"].item() == pytest.approx(S.mean().item())
    singular = torch.linalg.svdvals(head.covariance.dense().squeeze(0))
    assert tracked["covariance_norm"].item() == pytest.approx(singular.square().sum().sqrt().item())


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables like those of energy and wine, with 44 rows: 32 to train on, one batch."""
    torch.set_default_dtype(torch.float32)  # that of the experiments
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "uci"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, spread in [("energy", 5.0), ("wine", 0.5)]:
        x = random.normal(size=(44, 3))
        y = spread * (np.sin(x[:, 0]) + 0.3 * random.normal(size=44))
        table = np.column_stack([x, y])
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header="a,b,c,y")


@pytest.mark.slow
@pytest.mark.usefixtures("small_data")
def test_strong_regularisers_bring_noise_and_covariance_to_their_targets(tmp_path: Path):
    config = hyperparameters.Config(
        noise_locations=(0.2, 5.0),
        weight_locations=(0.01, 0.1),
        weight_location_strength=10.0,
        noise_strengths=(1.0, 1e4),
        epochs=120,
        learning_rate=2e-2,
        record_every=20,
    )
    runs = hyperparameters.run(config, tmp_path / "new")
    record = json.loads((tmp_path / "new" / "hyperparameters.json").read_text())
    assert record["runs"] == json.loads(json.dumps(runs))
    assert len(runs) == 12
    found = {
        (run["config"]["dataset"], run["config"]["sweep"], run["config"]["value"]): run["metrics"]
        for run in runs
    }
    for (dataset, sweep, value), metrics in found.items():
        if sweep == "noise location":
            assert metrics["noise_precision"] == pytest.approx(value, rel=0.02)
        if sweep == "weight location":
            assert metrics["covariance_diagonal"] == pytest.approx(value, rel=0.1)
            assert metrics["covariance_norm"] == pytest.approx(value * math.sqrt(50), rel=0.1)
        if sweep == "noise strength" and value == 1:
            strong = found[dataset, sweep, 1e4]["noise_precision"]
            assert abs(strong - 1) < 0.1 * abs(metrics["noise_precision"] - 1)
    for run in runs:
        assert run["history"]["epoch"] == [1, 20, 40, 60, 80, 100, 120]
        last = run["history"]["noise_precision"][-1]
        assert last == pytest.approx(run["metrics"]["noise_precision"], rel=1e-4)
    for name in ("noise-location", "weight-location", "noise-strength"):
        assert (tmp_path / "new" / f"{name}.png").read_bytes().startswith(PNG)


@pytest.mark.slow
@pytest.mark.usefixtures("small_data")
def test_sweeps_run_and_have_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    hyperparameters.hyperparameters(tmp_path / "hyperparameters", epochs=2)
    folder = tmp_path / "hyperparameters"
    assert str(folder / "noise-strength.png") in capsys.readouterr().out
    record = json.loads((folder / "hyperparameters.json").read_text())
    assert record["config"]["epochs"] == 2
    assert len(record["runs"]) == 30
    for run in record["runs"]:  # a step of Adam changes log-scales by at most its learning rate
        assert run["metrics"]["noise_precision"] == pytest.approx(1, abs=0.02)
        assert run["metrics"]["covariance_diagonal"] == pytest.approx(1 / 50, rel=0.02)
    assert hyperparameters.write_page(tmp_path) is not None
    text = (folder / "README.md").read_text()
    assert text.count("| Energy") == text.count("| Wine") == 15
