"""The image experiment: a short run of every method, its records, networks and command."""

import dataclasses
import importlib.util
import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

import lastlayer as ll
from experiments.__main__ import app
from experiments.baselines.calibrated_generative import linear_logits
from experiments.baselines.calibrated_posttrained import helpful_temperature
from experiments.baselines.scored import NormalizedDensity
from experiments.baselines.sngp import MeanField, SpectralBound
from experiments.datasets import images
from experiments.harness import command, jobs, networks, records
from experiments.images import ablation, page, timing
from experiments.images.estimate import estimate
from experiments.images.methods import PAPER, SMALL, WIDE, methods_of
from experiments.images.published import ABLATION, PUBLISHED
from experiments.images.run import EXPERIMENT
from experiments.images.task import CLASSES, METRICS, task
from lastlayer.posttraining import Features
from tests.helpers.pictures import made

METHODS = methods_of("small")
SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 32}


@pytest.fixture(autouse=True)
def _images(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "load", made)
    monkeypatch.setenv("LASTLAYER_NETWORKS", str(tmp_path / "networks"))


def parameter(name):
    absent = name == "dnn_laplace" and importlib.util.find_spec("laplace") is None
    reason = "needs laplace-torch: pip install -e '.[laplace]'"
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=reason))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*link_approx:UserWarning")  # laplace-torch's own
@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@pytest.mark.parametrize("name", [parameter(name) for name in METHODS])
def test_every_method_trains_tests_and_records(name, tmp_path):
    fewer = {"dropout": {"num_prediction_samples": 2}, "ensemble": {"num_members": 2}}
    short = SHORT | fewer.get(name, {})
    for job in jobs.plan(EXPERIMENT, ["cifar10"], [name], tmp_path, 1, **short):
        assert jobs.run(job) is None
    (record,) = records.read(tmp_path / "images" / f"cifar10-{name}.jsonl", EXPERIMENT.identity)
    assert record["config"]["method"] == name
    assert record["config"]["backbone"] == "small"
    found = record["metrics"]
    assert all(math.isfinite(found[metric.name]) for metric in METRICS)
    assert all(0 <= found[name] <= 1 for name in ("accuracy", "ece", "auroc_svhn", "auroc_near"))
    assert jobs.plan(EXPERIMENT, ["cifar10"], [name], tmp_path, 1, **short) == []


def trained(name, folder, seed=0, **changes):
    method = METHODS[name].configured("cifar10", **SHORT | changes)
    problem = task("cifar10", "small", seed, folder)
    return problem, method.train([problem])[0]


@pytest.mark.slow
def test_a_network_that_is_kept_is_not_trained_again_and_others_begin_with_it(
    tmp_path, monkeypatch
):
    problem, (model, notes) = trained("dnn", tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("cifar10-small-deterministic-0-")
    monkeypatch.setattr(ll, "fit", lambda *args, **kwargs: pytest.fail("it was trained again"))
    _, (again, noted) = trained("dnn", tmp_path)
    assert_close(again.state_dict(), model.state_dict(), atol=0, rtol=0)
    assert noted == notes
    _, (scaled, remarks) = trained("temperature", tmp_path)
    inputs = problem.test[0]
    logits = model.eval()(inputs).logits
    assert_close(scaled(inputs).probs(), (logits / remarks["temperature"]).softmax(-1))
    with pytest.raises(BaseException, match="trained again"):
        trained("dnn", tmp_path, weight_decay=0.1)


@pytest.mark.slow
def test_an_ensemble_is_the_mean_of_the_networks_of_consecutive_seeds(tmp_path):
    members = [trained("dnn", tmp_path, seed)[1][0] for seed in (1, 2)]
    problem, (ensemble, _) = trained("ensemble", tmp_path, 1, num_members=2)
    assert len(list(tmp_path.iterdir())) == 2
    inputs = problem.test[0]
    expected = torch.stack([member(inputs).probs() for member in members]).mean(0)
    assert_close(ensemble(inputs).probs(), expected)


@pytest.mark.slow
def test_a_kept_network_is_posttrained_with_held_out_images(tmp_path, monkeypatch):
    problem, (plain, _) = trained("dnn", tmp_path)
    monkeypatch.setattr(ll, "fit", lambda *args, **kwargs: pytest.fail("it was trained again"))
    _, (ours, remarks) = trained("dnn_posttrain", tmp_path)
    expected = ll.posttrain(plain.network, problem.train, validation=problem.held_out)
    inputs = problem.test[0]
    with torch.no_grad():
        predictive, score = ours.scored(inputs)
        features = expected.backbone(inputs)
        own = expected.head(features)
        tempered = own.temper(torch.tensor(remarks["temperature"]))
        assert_close(predictive.probs(), tempered.probs())
        assert_close(score, (own.probs() * (1 - own.probs())).pow(0.1).sum(-1))
    assert remarks["head"] == expected.head.extra_repr()


@pytest.mark.slow
def test_ours_is_of_both_kept_networks_the_one_that_held_out_images_prefer(tmp_path, monkeypatch):
    problem, (generative, _) = trained("g_vbll", tmp_path)
    trained("dnn", tmp_path)
    monkeypatch.setattr(ll, "fit", lambda *args, **kwargs: pytest.fail("it was trained again"))
    candidates = [trained(name, tmp_path)[1] for name in ("dnn_posttrain", "g_vbll_posttrain")]
    inputs = problem.test[0]
    with torch.no_grad():
        features = candidates[1][0].network.backbone(inputs)
        assert_close(features, generative.network.backbone(inputs))
        nll = [
            -model(problem.held_out[0]).log_prob(problem.held_out[1]).mean().item()
            for model, _ in candidates
        ]
        _, (ours, remarks) = trained("ours", tmp_path)
        best = min(range(2), key=nll.__getitem__)
        assert list(remarks["held_out_nll"].values()) == pytest.approx(nll, rel=1e-5)
        assert_close(ours(inputs).probs(), candidates[best][0](inputs).probs())
    assert remarks["head"] == candidates[best][1]["head"]


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_the_last_layer_of_sngp_is_stable_at_the_largest_learning_rate(dataset):
    method = METHODS["sngp"].configured(dataset)
    square = method.num_random_features / 2 * method.logit_scale**2  # of the features' length
    curvature = square / CLASSES[dataset]  # at most, of equal probabilities
    momentum = method.momentum
    assert method.learning_rate * curvature < (2 + 2 * momentum) / (1 + 2 * momentum)  # Nesterov's


@pytest.mark.parametrize("noise", ["diagonal", "dense"])
def test_linear_logits_are_those_of_a_generative_head_whose_means_are_certain(noise):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator)
    head = ll.GenerativeClassification(
        5, 3, num_data=60, noise=noise, prior=ll.Prior(kl_weight=1e-6)
    )
    head.fit_exact(features, torch.arange(60) % 3, estimate_noise=True)
    probs = linear_logits(head)(features).softmax(-1)
    assert_close(probs, head(features).probs(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_temperature_is_taken_where_each_half_of_the_data_wants_it(factor):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 4, generator=generator)
    label = logits.softmax(-1).multinomial(1, generator=generator).squeeze(-1)
    data = Features(factor * logits, label, None)
    found = helpful_temperature(ll.SoftmaxPredictive, data).temperature.item()
    if factor == 1:
        assert found == 1
    else:
        assert found == pytest.approx(factor, rel=0.1)


def test_training_and_held_out_images_are_apart_and_the_same_for_all_seeds():
    first, second = (task("cifar100", "small", seed) for seed in (0, 1))
    assert torch.equal(first.held_out[0], second.held_out[0])
    assert len(first.held_out[1]) == 5
    rows = {image.numpy().tobytes() for image in first.train[0]}
    assert len(rows) == 95
    assert not rows & {image.numpy().tobytes() for image in first.held_out[0]}


def test_the_normalised_density_is_the_prior_density_over_that_of_the_classes():
    torch.manual_seed(0)
    prior = ll.Prior(variance=2.0)
    head = ll.GenerativeClassification(3, 2, num_data=8, prior=prior).double()
    head.observe(torch.tensor([0, 0, 1]))
    head.noise.assign(torch.tensor([0.5, 1.0, 2.0]).double().diag())
    features = torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad():
        found = NormalizedDensity(head)(features, head(features))
        variance = torch.tensor([0.5, 1.0, 2.0]).double()
        own = torch.stack([head.covariance.diagonal()[k] for k in range(2)])
        densities = torch.distributions.Normal(
            head.mean.double()[:, None], (own + variance).sqrt()[:, None]
        )
        classes = densities.log_prob(features).sum(-1) + head.concentration.log()[:, None]
        mixture = classes.logsumexp(0) - head.concentration.sum().log()
        unknown = torch.distributions.Normal(0.0, (2 + variance).sqrt()).log_prob(features).sum(-1)
    assert_close(found, unknown - mixture, atol=1e-5, rtol=1e-5)


def test_a_convolution_above_the_bound_is_scaled_to_it_and_others_are_left_alone():
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(2, 3, 3, padding=1, bias=False)
    bound = SpectralBound(layer, 0.5).train()
    for _ in range(200):
        weight = bound(layer.weight)
    with torch.no_grad():
        basis = torch.eye(2 * 64).reshape(-1, 2, 8, 8)
        matrix = torch.nn.functional.conv2d(basis, weight, padding=1).flatten(1)
        assert torch.linalg.matrix_norm(matrix, 2).item() == pytest.approx(0.5, rel=1e-3)
        assert torch.equal(SpectralBound(layer, 1e3)(layer.weight), layer.weight)


def test_the_mean_field_divides_logits_and_its_factor_is_the_best_of_a_grid():
    torch.manual_seed(0)
    linear = torch.nn.Linear(3, 2)
    network = MeanField(torch.nn.Identity(), linear, torch.eye(3).double(), 1.0)
    inputs, target = 3 * torch.randn(50, 3), torch.randint(2, (50,))
    with torch.no_grad():
        variance = inputs.square().sum(-1, keepdim=True)
        network.factor.fill_(0.5)
        assert_close(network(inputs).logits, linear(inputs) / (1 + 0.5 * variance).sqrt())
        factor = network.best_factor((inputs, target))
        losses = []
        for value in (factor, 0.7 * factor, 1.3 * factor + 0.01):
            network.factor.fill_(value)
            losses.append(-network(inputs).log_prob(target).mean().item())
    assert losses[0] == pytest.approx(min(losses), abs=1e-3)


def test_every_method_has_the_training_of_its_backbone():
    for name in command.installed(EXPERIMENT):
        method = METHODS[name].configured("cifar10")
        assert (method.epochs, method.precision) == (SMALL["epochs"]["cifar10"], "bfloat16"), name
    wide = methods_of("wrn-28-10")
    assert list(wide) == list(METHODS)
    assert wide["dnn"].configured("cifar10").learning_rate == WIDE["learning_rate"] == 0.1
    assert wide["d_vbll_bbb"].configured("cifar100").epochs == 400
    assert set(PAPER) <= set(METHODS)


def test_published_figures_are_those_of_the_tables():
    assert PUBLISHED.cells["d_vbll", "cifar10", "auroc_svhn"] == (0.969, 0.004)
    assert PUBLISHED.cells["ensemble", "cifar100", "nll"] == (0.674, 0.004)
    assert ("g_vbll_map", "cifar10", "nll") not in PUBLISHED.cells
    assert len(PUBLISHED.cells) == 2 * (12 * 5 + 2)
    assert ABLATION["0.01", "5"] == 0.268
    assert ABLATION["1", "map"] == 0.160


@pytest.mark.slow
def test_the_table_of_kl_weights_runs_each_cell_once(tmp_path, monkeypatch):
    experiment = ablation.experiment()
    planned = jobs.plan(experiment, list(experiment.columns), list(experiment.entries), tmp_path)
    assert len(planned) == 16
    job = next(job for job in planned if (job.entry, job.column) == ("d_vbll_bbb_0.1", "5"))
    method: Any = job.method
    assert (method.kl_weight, method.feature_kl_weight) == (0.1, 5.0)
    short = dataclasses.replace(job, changes=tuple(SHORT.items()))
    assert jobs.run(short) is None
    shown = ablation.section(tmp_path)
    assert "| 0.286" in shown
    assert sum("– \\|" not in cell for cell in shown.split(" | ") if "\\|" in cell) == 1


@pytest.mark.slow
def test_steps_are_timed_beside_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "ROUNDS", {"small": 1})
    monkeypatch.setattr(timing, "BATCH", {"small": 8, "wrn-28-10": 8})
    timing.measure("small", tmp_path)
    found = records.read(timing.path(tmp_path), timing.IDENTITY)
    assert len(found) == 11
    assert found[[r["config"]["method"] for r in found].index("dnn")]["metrics"]["above_dnn"] == 0
    assert "D-VBLL" in timing.section(tmp_path)


@pytest.mark.slow
def test_an_estimate_tells_time_and_memory():
    found = estimate("small", num_images=2)
    assert found.steps == SMALL["epochs"]["cifar10"] * math.ceil(47_500 / 512)
    weights = 12 * found.num_parameters / 1e9
    assert weights < found.gigabytes < 10
    assert "hours" in str(found)


def test_the_page_has_tables_claims_and_what_is_missing(tmp_path):
    for number, (method, seed) in enumerate([("dnn", 0), ("dnn", 1), ("d_vbll", 0), ("d_vbll", 1)]):
        shift = 0.1 if method == "d_vbll" else 0.0
        metrics = {"accuracy": 0.92, "ece": 0.03 - shift / 10, "nll": 0.3 - shift + number / 1e3}
        metrics |= {"auroc_svhn": 0.9 + shift / 2, "auroc_near": 0.85}
        about = {"method": method, "dataset": "cifar10", "backbone": "small", "seed": seed}
        record = {"config": about, "metrics": metrics, "processor_seconds": 60.0}
        record |= {"versions": {"torch": "2"}, "time": "2030-01-01T00:00:00", "seeds_together": 1}
        records.append(tmp_path / "images" / f"cifar10-{method}.jsonl", [record])
    line = page.write(tmp_path)
    text = (tmp_path / "images" / "README.md").read_text()
    assert line is not None
    assert line.startswith("CIFAR-10 and CIFAR-100 with a small network: 4 of 4 comparisons")
    assert "| D-VBLL has a lower NLL than DNN" in text
    assert "holds, beyond two (+0.098" in text
    assert "**0.202" in text
    assert "2 \\| 2" in text  # DNN's place by NLL, of two
    assert "- DNN: Cifar10 (seeds 2), Cifar100\n" in text
    assert "--datasets cifar10,cifar100 --methods dnn,temperature,sngp" in text
    assert "square window, edge replication" in text


def test_the_command_runs_what_has_no_record(tmp_path):
    options = ["--datasets", "cifar10", "--methods", "dnn", "--seeds", "1", "--epochs", "1"]
    arguments = ["images", *options, "--workers", "1", "--results", str(tmp_path)]
    path = tmp_path / "images" / "cifar10-dnn.jsonl"
    about = METHODS["dnn"].configured("cifar10", epochs=1)
    config = {"method": "dnn", "dataset": "cifar10", "backbone": "small", "seed": 0}
    config |= dataclasses.asdict(about)
    records.append(path, [{"config": config, "metrics": {}, "time": "2030"}])
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    assert "0 runs to do" in shown.output
    assert CliRunner().invoke(app, ["images", "--backbone", "resnet"]).exit_code == 2


@pytest.mark.slow
def test_of_the_processes_of_torchrun_the_first_alone_writes(tmp_path, monkeypatch):
    (job,) = jobs.plan(EXPERIMENT, ["cifar10"], ["dnn"], tmp_path, 1, **SHORT)
    for rank, count in (("1", 0), ("0", 1)):
        monkeypatch.setenv("RANK", rank)
        assert jobs.run(job) is None
        assert len(job.records()) == count
        assert len(list(networks.folder().glob("*"))) == count
