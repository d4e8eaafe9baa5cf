"""Scores of features against scikit-learn and NumPy, in one pass, in parts and from files."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.covariance import EmpiricalCovariance
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestNeighbors as Neighbors
from torch import Tensor
from torch.testing import assert_close

import lastlayer as ll
from lastlayer import ood
from lastlayer.ood import FeatureScore
from lastlayer.ood._rough import RoughReferences

SIZE, CLASSES = 6, 3


@pytest.fixture
def data(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.arange(50) % CLASSES
    mixing = torch.randn(SIZE, SIZE, generator=generator)
    means = 2 * torch.randn(CLASSES, SIZE, generator=generator)
    return torch.randn(50, SIZE, generator=generator) @ mixing + means[labels], labels


@pytest.fixture
def points(generator: torch.Generator) -> Tensor:
    return 3 * torch.randn(11, SIZE, generator=generator)


@pytest.fixture
def layer(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(CLASSES, SIZE, generator=generator), torch.randn(
        CLASSES, generator=generator
    )


MAKERS: dict[str, Callable[[tuple[Tensor, Tensor]], FeatureScore]] = {
    "shared": lambda _: ood.FeatureDensity(SIZE, CLASSES, power=0.5),
    "dense": lambda _: ood.FeatureDensity(
        SIZE, CLASSES, covariance="dense", prior=ll.Prior(noise_dof=3.0), normalized=False
    ),
    "neighbors": lambda _: ood.NearestNeighbors(SIZE, num_neighbors=3),
    "mixed": lambda _: ood.NearestNeighbors(SIZE, precision="mixed"),
    "rounded": lambda _: ood.NearestNeighbors(SIZE, precision="bfloat16"),
    "relative": lambda _: ood.RelativeMahalanobis(SIZE, CLASSES),
    "vim": lambda layer: ood.VirtualLogitMatching(*layer, num_directions=2),
    "fdbd": lambda layer: ood.DecisionBoundaryDistance(*layer),
}


@pytest.mark.parametrize("name", MAKERS)
def test_parts_merged_are_one_pass(name, data, points, layer, generator):
    features, labels = data
    whole = MAKERS[name](layer)
    whole.update(features, labels)
    merged = MAKERS[name](layer)
    for chosen in torch.randperm(50, generator=generator).split([1, 0, 29, 20]):
        part = MAKERS[name](layer)
        for half in chosen.chunk(2):
            part.update(features[half], labels[half])
        merged.merge(part)  # type: ignore[operator]
    assert_close(merged(points), whole(points), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_score_is_the_same_when_loaded(name, data, points, layer, tmp_path):
    score = MAKERS[name](layer)
    score.update(*data)
    ood.save(score, tmp_path / "score.safetensors")
    loaded = ood.load(tmp_path / "score.safetensors")
    assert type(loaded) is type(score)
    assert str(loaded) == str(score)
    assert torch.equal(loaded(points), score(points))
    loaded.update(*data)  # and goes on


@pytest.mark.parametrize("name", MAKERS)
def test_examples_of_weight_zero_are_ignored_and_nan_is_refused(name, data, points, layer):
    features, labels = data
    weight = (torch.arange(50) < 30).double()
    weighted, few = MAKERS[name](layer), MAKERS[name](layer)
    weighted.update(features, labels.where(weight > 0, -100), weight)
    few.update(features[:30], labels[:30])
    assert_close(weighted(points), few(points))
    with pytest.raises(ValueError, match="NaN"):
        few.update(torch.full((1, SIZE), math.nan), torch.tensor([0]))
    assert_close(weighted(points), few(points))


@pytest.mark.parametrize("name", MAKERS)
def test_a_score_without_examples_says_so_and_shapes_are_kept(name, data, points, layer):
    score = MAKERS[name](layer)
    with pytest.raises(RuntimeError, match=r"call update or from_model"):
        score(points)
    score.update(*data)
    assert score(points.reshape(1, 11, SIZE)).shape == (1, 11)
    assert_close(score(points[3]), score(points)[3])
    assert score(points[:0]).shape == (0,)
    assert score(points.half()).dtype == torch.float32
    assert_close(score.half()(points), score(points), rtol=0, atol=0)  # statistics stay as they are
    with pytest.raises(ValueError, match=f"num_features={SIZE}"):
        score(torch.zeros(2, SIZE + 1))
    other = next(make(layer) for make in MAKERS.values() if type(make(layer)) is not type(score))
    with pytest.raises(ValueError, match="of the same class"):
        score.merge(other)  # type: ignore[operator]
    with pytest.raises(TypeError, match="takes a tensor of features"):
        score([1.0])


# ------------------------------------------------------------------------------- neighbours


@pytest.mark.parametrize("unit_length", [True, False])
@pytest.mark.parametrize("count", [1, 4, 50])
def test_neighbours_are_those_of_scikit_learn(count, unit_length, data, points):
    features, _ = data
    score = ood.NearestNeighbors(SIZE, num_neighbors=count, unit_length=unit_length)
    score.update(features)

    def form(rows: Tensor) -> np.ndarray:
        rows = rows / rows.norm(dim=-1, keepdim=True) if unit_length else rows
        return rows.numpy()

    search = Neighbors(n_neighbors=count, algorithm="brute").fit(form(features))
    expected = torch.from_numpy(search.kneighbors(form(points))[0][:, -1])
    assert_close(score(points), expected, rtol=1e-5, atol=1e-6)  # in single precision


def test_more_neighbours_than_references_take_the_furthest(data, points):
    features, _ = data
    score = ood.NearestNeighbors(SIZE, num_neighbors=1000, unit_length=False)
    score.update(features)
    assert_close(score(points), torch.cdist(points, features).amax(-1), rtol=1e-5, atol=1e-5)


def test_rounded_references_keep_distances_to_their_rounding(data, points, generator):
    exact = ood.NearestNeighbors(SIZE)
    rounded = ood.NearestNeighbors(SIZE, precision="bfloat16")
    many = torch.randn(3000, SIZE, generator=generator)
    for score in (exact, rounded):
        score.update(many)
    assert rounded.state_dict()["references"].dtype == torch.bfloat16
    assert float((exact(points) - rounded(points)).abs().max()) < 2**-7
    assert ood.NearestNeighbors(SIZE).to(torch.bfloat16).references.dtype == torch.float32


@pytest.mark.parametrize(
    ("spread", "offset"),
    [(1.0, 0.0), (1.0, 300.0), (0.01, 0.0)],  # the last are alike in bfloat16
)
def test_mixed_precision_finds_the_neighbours_of_double_precision(spread, offset, generator):
    centers = torch.randn(5, 1, SIZE, generator=generator)
    many = centers + spread * torch.randn(5, 400, SIZE, generator=generator)
    many, queries = (offset + many.flatten(0, 1)).split([1990, 10])
    queries = torch.cat([queries, torch.randn(20, SIZE, generator=generator)])
    score = ood.NearestNeighbors(SIZE, precision="mixed", unit_length=False)
    score.update(many)
    expected = torch.cdist(queries.double(), many.double()).sort(-1).values[:, 4]
    rough = RoughReferences.of(many)
    found, sure = rough.nearest(queries, many, 5)
    # in single precision ‖r‖²/2 − qᵀr, of about 10 here, orders distances of 0.01 to 1e-6/0.01
    margin = {"rtol": 1e-5, "atol": 1e-4 * (1 + offset / 100)}
    assert_close(found[sure].double(), expected[sure], **margin)
    assert bool(sure.any())
    assert bool(sure.all()) == (spread == 1)
    assert_close(score(queries).double(), expected, **margin)
    exact = ood.NearestNeighbors(SIZE, unit_length=False)
    exact.update(many)
    assert_close(exact(queries).double(), expected, **margin)


def test_rounded_orders_are_as_far_off_as_their_bound_at_most(generator):
    references, rows = torch.randn(2, 500, SIZE, generator=generator).unbind()
    references = 3 + references * torch.rand(500, 1, generator=generator)
    rough = RoughReferences.of(references)
    points = rows - rough.center
    columns = F.pad(
        F.pad(points.bfloat16(), (0, 2), value=1.0), (0, rough.columns.shape[1] - SIZE - 2)
    )
    order = (columns @ rough.columns.mT).double()
    centered = references.double() - rough.center.double()
    exact = centered.square().sum(-1) / 2 - rough.shift.double() - points.double() @ centered.mT
    bound = rough._order_error(points[:, None], points.bfloat16().float()[:, None], order.float())
    assert bool(((order - exact).abs() <= bound).all())
    assert float(((order - exact).abs() / bound).max()) > 0.05  # not for being vacuous


def test_a_query_of_nan_has_a_score_of_nan(data):
    score = ood.NearestNeighbors(SIZE)
    score.update(data[0])
    queries = data[0][:3].clone()
    queries[1, 2] = math.nan
    assert score(queries).isnan().tolist() == [False, True, False]


# ---------------------------------------------------------------- the others, as published


def test_relative_mahalanobis_is_that_of_empirical_covariances(data, points):
    features, labels = (part.numpy() for part in data)
    within = np.concatenate(
        [features[labels == k] - features[labels == k].mean(0) for k in range(CLASSES)]
    )
    inner = EmpiricalCovariance(assume_centered=True).fit(within)
    outer = EmpiricalCovariance().fit(features)
    nearest = np.min(
        [inner.mahalanobis(points.numpy() - features[labels == k].mean(0)) for k in range(CLASSES)],
        axis=0,
    )
    score = ood.RelativeMahalanobis(SIZE, CLASSES)
    score.update(*data)
    assert_close(score(points), torch.from_numpy(nearest - outer.mahalanobis(points.numpy())))


def test_shared_classes_without_shrinkage_decide_like_discriminant_analysis(data, points):
    features, labels = data
    repeated = (features.repeat(4000, 1), labels.repeat(4000))  # so that priors have no say
    density = ood.FeatureDensity(SIZE, CLASSES, unit_length=False)
    density.update(*repeated)
    mean, factor = density.gaussians()
    normals = torch.distributions.MultivariateNormal(mean, scale_tril=factor)
    joint = normals.log_prob(points[:, None]) + (density.counts / density.counts.sum()).log()
    analysis = LinearDiscriminantAnalysis(solver="lsqr").fit(*(part.numpy() for part in data))
    expected = torch.from_numpy(analysis.predict_proba(points.numpy()))
    assert_close(joint.softmax(-1), expected, rtol=1e-2, atol=1e-3)


def test_virtual_logit_matching_is_the_published_formula_with_mean_squares(data, points, layer):
    features, (weight, bias) = data[0].numpy(), (part.numpy() for part in layer)
    origin = -np.linalg.pinv(weight) @ bias
    shifted = features - origin
    _, vectors = np.linalg.eigh(shifted.T @ shifted)
    outside = vectors[:, : SIZE - 2]
    norm = np.sqrt(np.mean(np.sum((shifted @ outside) ** 2, -1)))
    alpha = np.mean((features @ weight.T + bias).max(-1)) / norm
    virtual = alpha * np.linalg.norm((points.numpy() - origin) @ outside, axis=-1)
    energy = np.log(np.exp(points.numpy() @ weight.T + bias).sum(-1))
    score = ood.VirtualLogitMatching(*layer, num_directions=2)
    for rows in data[0].split(7):
        score.update(rows)
    assert_close(score(points), torch.from_numpy(virtual - energy))


def test_decision_boundaries_are_as_far_as_the_nearest_point_on_them(data, points, layer):
    weight, bias = layer
    logits = points @ weight.T + bias
    score = ood.DecisionBoundaryDistance(weight, bias)
    score.update(data[0])
    for point, row, found in zip(points, logits, score(points), strict=True):
        chosen = int(row.argmax())
        distances = []
        for other in {*range(CLASSES)} - {chosen}:
            normal = weight[chosen] - weight[other]
            # the foot of the perpendicular, where both logits are equal
            foot = point - normal * (row[chosen] - row[other]) / normal.square().sum()
            assert_close((foot @ weight.T + bias)[chosen], (foot @ weight.T + bias)[other])
            distances.append((point - foot).norm())
        expected = -torch.stack(distances).mean() / (point - data[0].mean(0)).norm()
        assert_close(found, expected)


def test_scores_of_logits_are_their_formulas(generator):
    logits = torch.randn(9, 4, generator=generator)
    predictive = ll.SoftmaxPredictive(logits)
    assert_close(ood.energy(predictive), -logits.exp().sum(-1).log())
    assert_close(ood.max_logit(predictive), -logits.amax(-1))
    probs = logits.softmax(-1)
    expected = (probs**0.1 * (1 - probs) ** 0.1).sum(-1)
    assert_close(ood.generalized_entropy(predictive), expected)
    wide = ll.SoftmaxPredictive(torch.randn(3, 150, generator=generator))
    top = wide.probs().sort(-1, descending=True).values[:, :100]
    assert_close(ood.generalized_entropy(wide), (top**0.1 * (1 - top) ** 0.1).sum(-1))


def test_every_classification_head_has_an_energy(generator):
    features = torch.randn(5, SIZE, generator=generator)
    discriminative = ll.DiscriminativeClassification(SIZE, CLASSES, num_data=9, bias=True)
    weight, bias = discriminative.logit_layer
    expected = (features @ weight.T + bias).logsumexp(-1)
    assert_close(ood.energy(discriminative(features)).detach(), -expected)
    generative = ll.GenerativeClassification(SIZE, CLASSES, num_data=9)
    assert_close(
        ood.energy(generative(features)).detach(),
        ood.feature_density(generative(features)).detach(),
    )
    with pytest.raises(TypeError, match="choose another score"):
        ood.energy(ll.Regression(SIZE, num_data=9)(features))


def test_files_of_something_else_are_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ood.load(tmp_path / "none.safetensors")
    (tmp_path / "text").write_text("no tensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    for name in ("text", "other.safetensors"):
        with pytest.raises(ValueError, match=r"no file of lastlayer\.ood\.save"):
            ood.load(tmp_path / name)
    with pytest.raises(TypeError, match="must be one of"):
        ood.save(torch.nn.Linear(2, 2), tmp_path / "layer")  # type: ignore[arg-type]


def test_layers_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="at least two classes"):
        ood.VirtualLogitMatching(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="num_neighbors"):
        ood.NearestNeighbors(3, num_neighbors=0)
    with pytest.raises(ValueError, match="power"):
        ood.NearestNeighbors(3, power=0.0)
