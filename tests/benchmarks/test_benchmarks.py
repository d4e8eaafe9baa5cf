"""A short run of every benchmark, on real sizes where that is quick, and the generated tables."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lastlayer as ll
from benchmarks import (
    allocation,
    estimators,
    generative,
    heads,
    labels,
    noise,
    observed,
    posttrain,
    posttrain_times,
    posttrained,
    priors,
    reviews,
    seeds,
    small_network,
    softmax,
    streaming,
    tables,
    temperatures,
    tracing,
)
from benchmarks.markdown import ROOT
from benchmarks.wide_resnet import WideResNet
from experiments.datasets import images
from lastlayer.training import many
from tests.helpers.pictures import made


@pytest.fixture(autouse=True)
def _single_precision() -> None:
    torch.set_default_dtype(torch.float32)


# Not of these: minutes of compilation and of a large network, which other tests run a step of, and
# sections that time the same heads at more sizes.
LONG_SECTIONS = {"backbone", "compiled", "grid", "predict", "profile", "scaling"}


@pytest.mark.slow
def test_head_benchmark_measures_its_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "heads.json"
    sections = set(heads.SECTIONS) - LONG_SECTIONS
    arguments = ["heads.py", "--quick", "--without-vbll", "--sections", ",".join(sections)]
    monkeypatch.setattr("sys.argv", [*arguments, "--json", str(record)])
    heads.main()
    written = json.loads(record.read_text())
    assert set(written["sections"]) == sections
    assert all(written["sections"].values())
    for row in written["sections"]["targets"]:
        assert row["ours_ms"] > 0
        assert row["ratio"] > 0
    assert "targets" in capsys.readouterr().out


@pytest.mark.slow
def test_seed_benchmark_compares_the_same_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "seeds.json"
    monkeypatch.setattr("sys.argv", ["seeds.py", "--quick", "--json", str(record)])
    seeds.main()
    (row,) = json.loads(record.read_text())["sections"]["seeds"]
    assert row["together_s"] > 0
    assert row["difference"] < 1e-4


def test_benchmark_of_observed_outputs_times_both_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "observed.json"
    monkeypatch.setattr("sys.argv", ["observed.py", "--quick", "--json", str(record)])
    observed.main()
    (row,) = json.loads(record.read_text())["sections"]["observed"]
    assert row["ratio"] == pytest.approx(row["all outputs, ms"] / row["observed, ms"])


@pytest.mark.slow
def test_generative_benchmark_scores_every_fit_on_held_out_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "generative.json"
    arguments = ["generative.py", "--quick", "--seeds", "1", "--json", str(record)]
    monkeypatch.setattr("sys.argv", arguments)
    generative.main()
    rows = json.loads(record.read_text())["sections"]["posttrain"]
    assert [row["fit"] for row in rows] == ["softmax", *generative.CANDIDATES]
    assert all(0 <= row["ece"] <= 1 and row["nll"] > 0 for row in rows)


@pytest.mark.slow
def test_prior_benchmark_scores_every_candidate_on_held_out_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "priors.json"
    monkeypatch.setattr("sys.argv", ["priors.py", "--quick", "--json", str(record)])
    priors.main()
    rows = json.loads(record.read_text())["sections"]["fit"]
    assert [row["candidate"] for row in rows] == [one.name for one in priors.CANDIDATES]
    assert all(0 < row["nll"] < 2 and 0 <= row["ece"] <= 1 for row in rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*link_approx:UserWarning")  # laplace-torch's own
@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_post_trained_networks_are_scored_beside_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "posttrained.json"
    monkeypatch.setattr("sys.argv", ["posttrained.py", "--quick", "--json", str(record)])
    posttrained.main()
    rows = json.loads(record.read_text())["sections"]["posttrained"]
    methods = [row["method"] for row in rows]
    scaled = posttrained.SCALED.format("network")
    assert methods[:6] == ["network", scaled, *posttrained.OPTIONS, posttrained.VALIDATED]
    nll = {row["method"]: row["nll"] for row in rows}
    assert nll[posttrained.VALIDATED] < nll["network"]  # two epochs leave much to be learned


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*link_approx:UserWarning")  # laplace-torch's own
@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_times_of_post_training_are_those_of_fits_that_converged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "times.json"
    monkeypatch.setattr("sys.argv", ["posttrain_times.py", "--quick", "--json", str(record)])
    posttrain_times.main()
    rows = {row["what"]: row for row in json.loads(record.read_text())["sections"]["times"]}
    for name in (*posttrain_times.COVARIANCES, posttrain_times.WITH_PRIOR):
        assert rows[name]["converged"]
        assert rows[name]["seconds"] > 0
    assert rows["training the layer"]["seconds"] > 0


@pytest.mark.slow
def test_a_prior_of_the_temperature_saves_what_few_examples_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "temperatures.json"
    monkeypatch.setattr("sys.argv", ["temperatures.py", "--quick", "--json", str(record)])
    temperatures.main()
    rows = json.loads(record.read_text())["sections"]["temperatures"]
    excess = {(row["examples"], row["stddev"]): row["excess"] for row in rows}
    assert min(excess.values()) > -0.1
    assert excess[10, "0.7"] < excess[10, "inf"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*link_approx:UserWarning")  # laplace-torch's own
def test_reviews_are_scored_by_every_method_on_test_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(240) % 2
    embeddings = generator.normal(size=(240, 4)) + 2 * labels[:, None]
    arrays: Any = {"embeddings": embeddings.astype(np.float16), "labels": labels}
    (tmp_path / "imdb").mkdir()
    file = tmp_path / "imdb" / "minilm_embeddings.npz"
    np.savez(file, is_train=np.arange(240) < 40, **arrays)
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path))
    record = tmp_path / "reviews.json"
    arguments = ["--sizes", "20", "--seeds", "1", "--epochs", "20", "--json", str(record)]
    monkeypatch.setattr("sys.argv", ["reviews.py", *arguments])
    reviews.main()
    rows = json.loads(record.read_text())["sections"]["reviews"]
    nll = {row["method"]: row["nll"] for row in rows}
    assert {"logistic regression", "`fit`, discriminative", "`vbll`, discriminative"} < set(nll)
    assert all(value < math.log(2) for value in nll.values()), nll


@pytest.mark.slow
def test_allocation_benchmark_takes_a_step_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "allocation.json"
    step = "generative head, B128 N640 K1000"
    arguments = ["allocation.py", "--steps", step, "--rounds", "1", "--json", str(record)]
    monkeypatch.setattr("sys.argv", arguments)
    for setting in allocation.SETTINGS:
        monkeypatch.setenv(setting, "")  # to have it restored
    allocation.main()
    (row,) = json.loads(record.read_text())["sections"]["allocation"]
    assert row["step"] == step
    assert row["usual_s"] > 0 < row["kept_s"]


@pytest.mark.slow
def test_small_network_benchmark_trains_on_held_out_images_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "load", made)
    row = small_network.measure("dnn", 1, 0, tmp_path)
    assert row["images"] == len(made("cifar10/train")[0])
    assert 0 <= row["accuracy"] <= 1
    assert row["processor_minutes"] > 0


@pytest.mark.slow
def test_tracing_benchmark_trains_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "tracing.json"
    monkeypatch.setattr("sys.argv", ["tracing.py", "--quick", "--json", str(record)])
    before = many.UNTRACED
    tracing.main()
    assert before == many.UNTRACED
    rows = json.loads(record.read_text())["sections"]["tracing"]
    assert [row["models"] for row in rows] == [5, 5]
    assert all(row["traced_s"] > 0 < row["untraced_s"] for row in rows)


@pytest.mark.slow
def test_posttraining_benchmark_counts_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "posttrain.json"
    arguments = ["posttrain.py", "--quick", "--covariances", "diagonal", "--bounds", "jensen"]
    monkeypatch.setattr("sys.argv", [*arguments, "--json", str(record)])
    posttrain.main()
    rows = json.loads(record.read_text())["sections"]["passes"]
    assert all(1 <= row["passes, ours"] <= 50 for row in rows)


@pytest.mark.slow
def test_estimator_benchmark_measures_all_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "estimators.json"
    methods = ["LastLayerRegressor", "GaussianProcessRegressor", "BayesianRidge"]
    arguments = ["--quick", "--tables", "Diabetes", "--splits", "1", "--json", str(record)]
    monkeypatch.setattr("sys.argv", ["estimators.py", "--methods", ",".join(methods), *arguments])
    estimators.main()
    rows = json.loads(record.read_text())["sections"]["summary"]
    assert [row["method"] for row in rows] == methods
    for row in rows:  # without any inputs NLL is 5.75 and RMSE 77
        assert 5 < row["nll"] < 5.7
        assert 0.8 < row["coverage"] <= 1
        assert row["crps"] < row["rmse"] < 70


@pytest.mark.slow
def test_wide_resnet_28_10_takes_a_step_with_a_head() -> None:
    backbone = WideResNet(28, 10)
    assert sum(parameter.numel() for parameter in backbone.parameters()) > 36_000_000
    head = ll.DiscriminativeClassification(backbone.num_features, 10, num_data=50_000)
    images, target = torch.randn(2, 3, 32, 32), torch.tensor([3, 7])
    before = head(backbone(images), target)
    before.backward()
    gradients = [parameter.grad for parameter in (*backbone.parameters(), *head.parameters())]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.slow
def test_softmax_benchmark_ranks_the_quadrature_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "softmax.json"
    monkeypatch.setattr("sys.argv", ["softmax.py", "--quick", "--json", str(record)])
    softmax.main()
    rows = json.loads(record.read_text())["rows"]
    errors = {row["approximation"]: row["mean error"] for row in rows}
    others = [error for name, error in errors.items() if not name.endswith("nodes")]
    assert errors["lastlayer"] == min(others)
    assert "lastlayer" in capsys.readouterr().out


@pytest.mark.slow
def test_streaming_benchmark_measures_memory(tmp_path: Path) -> None:
    record = tmp_path / "streaming.json"
    streaming.main(["--rows", "500,2000", "--work", "FeatureDensity", "--json", str(record)])
    rows = json.loads(record.read_text())["sections"]["streaming"]
    assert [row["rows"] for row in rows] == [500, 2000]
    assert all(row["data_MB"] > 0 and row["peak_MB"] >= 0 for row in rows)


@pytest.mark.parametrize("page", tables.TABLES)
def test_tables_are_what_their_records_say(page: str) -> None:
    assert tables.rendered(page) == (ROOT / page).read_text()


@pytest.mark.slow
def test_noise_benchmark_compares_heads_on_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--quick", "--without-vbll", "--sections", "noise", "--records", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["noise.py", *options])
    noise.main()
    rows = json.loads((tmp_path / "noise-noise.json").read_text())["sections"]["noise"]
    nll = {row["model"]: row["nll"] for row in rows}
    assert nll["the truth"] < min(value for name, value in nll.items() if name != "the truth")


def test_wrong_labels_are_in_the_regions_and_right_ones_the_same_whatever_is_wrong() -> None:
    parts = {wrong: labels.Problem(3, wrong).rows(20_000) for wrong in labels.SHARES}
    for wrong, share in labels.SHARES.items():
        data = parts[wrong]
        assert torch.equal(data.right, parts["none"].right)
        changed = data.given != data.right
        assert not changed[~data.region].any()
        assert abs(changed[data.region].double().mean() - share) < 0.03
        assert abs(data.region.double().mean() - 0.296) < 0.02
    shift = (parts["one other class"].given - parts["none"].given) % labels.NUM_CLASSES
    assert set(shift.tolist()) == {0, 1}


@pytest.mark.slow
def test_labels_benchmark_scores_right_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--quick", "--sections", "priors", "--records", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["labels.py", *options])
    labels.main()
    rows = json.loads((tmp_path / "labels-priors.json").read_text())["sections"]["priors"]
    assert {row["prior"] for row in rows} == {*labels.NOISE_PRIORS, "DiscriminativeClassification"}
    for row in rows:
        assert row["NLL"] < 2
        assert math.isnan(row["AUROC"]) == (row["wrong"] == "none")
