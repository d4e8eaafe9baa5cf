"""A comparison of scores has what each score gives on its own."""

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer import ood
from lastlayer.ood.comparison import DENSITY_WITH_LENGTHS, PLAIN_DENSITY

CENTERS = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
FITTED = {
    "DecisionBoundaryDistance",
    "FeatureDensity",
    DENSITY_WITH_LENGTHS,
    PLAIN_DENSITY,
    "NearestNeighbors",
    "RelativeMahalanobis",
    "VirtualLogitMatching",
}


@pytest.fixture
def sets(generator: torch.Generator) -> dict[str, tuple[Tensor, Tensor]]:
    found = {}
    for name in ("train", "test"):
        labels = torch.arange(60) % 3
        noise = torch.randn(60, 2, generator=generator)
        found[name] = CENTERS.double()[labels] + noise, labels
    for name, shift in (("near", -4.0), ("far", -20.0)):
        inputs = torch.randn(40, 2, generator=generator) + torch.tensor([0.0, shift])
        found[name] = inputs, torch.zeros(40)
    return found


def make_backbone() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout())


def test_a_network_has_the_scores_of_its_predictive_and_of_its_features(sets):
    model = ll.Network(make_backbone(), ll.DiscriminativeClassification(8, 3, num_data=60))
    others = {name: sets[name] for name in ("near", "far")}
    loader = DataLoader(TensorDataset(*sets["train"]), batch_size=7)
    found = ood.compare(model, loader, sets["test"], others, batch_size=13)
    assert model.training
    assert set(found.fitted) == FITTED
    assert set(found.metrics) == FITTED | set(ood.SCORES) - {"feature_density"}
    for name in ("energy", "epistemic_variance"):
        assert_close(found.in_scores[name], ood.scores(model, sets["test"], name))
        assert_close(found.out_scores[name]["near"], ood.scores(model, sets["near"], name))
    density = ood.FeatureDensity.from_model(model, sets["train"])
    assert density.power == 0.5  # after a ReLU
    expected = ood.scores(model.backbone, sets["far"], density)
    assert_close(found.out_scores["FeatureDensity"]["far"], expected)
    density.normalized = False
    expected = ood.scores(model.backbone, sets["far"], density)
    assert_close(found.out_scores[PLAIN_DENSITY]["far"], expected)
    assert found.metrics["energy"]["near"] == ood.detection(
        found.in_scores["energy"], found.out_scores["energy"]["near"]
    )


def test_a_plain_classifier_is_read_at_its_last_layer(sets):
    network = nn.Sequential(*make_backbone(), nn.Linear(8, 3))
    for model in (network, ll.Plain(network, "classification")):
        found = ood.compare(model, sets["train"], sets["test"][0], {"far": sets["far"][0]})
        assert set(found.fitted) == FITTED
        assert "mutual_information" not in found.metrics  # which would be zero
        neighbors = ood.NearestNeighbors(8)
        network.eval()
        neighbors.update(network[:3](sets["train"][0]).detach())
        expected = neighbors(network[:3](sets["far"][0]).detach())
        assert_close(found.out_scores["NearestNeighbors"]["far"], expected)
        assert_close(found.in_scores["energy"], -network(sets["test"][0]).logsumexp(-1).detach())


def test_a_regression_has_scores_without_classes(sets):
    model = ll.Network(make_backbone(), ll.Regression(8, num_data=60))
    train = (sets["train"][0], torch.randn(60, 1))
    found = ood.compare(model, train, sets["test"][0], {"far": sets["far"][0]})
    assert set(found.fitted) == {"FeatureDensity", DENSITY_WITH_LENGTHS, "NearestNeighbors"}
    assert {"epistemic_variance", "predictive_entropy"} <= set(found.metrics)
    assert "energy" not in found.metrics


def test_the_table_has_a_row_for_each_score_the_best_first(sets):
    model = ll.Network(make_backbone(), ll.DiscriminativeClassification(8, 3, num_data=60))
    others = {name: sets[name] for name in ("near", "far")}
    found = ood.compare(model, sets["train"], sets["test"], others)
    lines = str(found).splitlines()
    assert lines[0].split()[:4] == ["score", "near", "auroc", "near"]
    assert [line.split()[0] for line in lines[1:]] == found.ranking()
    means = [found.mean(score) for score in found.ranking()]
    assert means == sorted(means, reverse=True)
    best = found.ranking()[0]
    assert f"{found.metrics[best]['far']['fpr95']:.3f}" == lines[1].split()[-1]


def test_nothing_to_compare_is_refused(sets):
    model = ll.Network(make_backbone(), ll.DiscriminativeClassification(8, 3, num_data=60))
    with pytest.raises(ValueError, match="nothing to detect"):
        ood.compare(model, sets["train"], sets["test"], {})
    with pytest.raises(ValueError, match="in a dict"):
        ood.compare(model, sets["train"], sets["test"], sets["far"][0])
    one = nn.Sequential(make_backbone(), nn.Linear(8, 1))
    with pytest.raises(ValueError, match="a logit for each class"):
        ood.compare(one, sets["train"], sets["test"], {"far": sets["far"]})
    empty = (torch.zeros(0, 2), torch.zeros(0).long())
    with pytest.raises(ValueError, match="data is empty"):
        ood.compare(model, empty, sets["test"], {"far": sets["far"]})
    with pytest.raises(ValueError, match="data is empty"):
        ood.compare(model.backbone, empty, sets["test"], {"far": sets["far"]})


def test_detection_is_that_of_scikit_learn_with_ties(generator):
    inside = torch.randn(200, generator=generator).round(decimals=1)
    outside = (1 + torch.randn(77, generator=generator)).round(decimals=1)
    label = torch.cat([torch.zeros(200), torch.ones(77)]).numpy()
    scores = torch.cat([inside, outside]).numpy()
    found = ood.detection(inside, outside)
    assert found["auroc"] == pytest.approx(roc_auc_score(label, scores), abs=1e-12)
    assert found["aupr"] == pytest.approx(average_precision_score(label, scores), abs=1e-12)
    false, true, _ = roc_curve(label, scores, drop_intermediate=False)
    assert found["fpr95"] == pytest.approx(false[(true >= 0.95).argmax()], abs=1e-12)
