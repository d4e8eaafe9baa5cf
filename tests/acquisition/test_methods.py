"""Every method against a brute-force oracle on small data."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import lastlayer as ll
from lastlayer import acquisition
from lastlayer.acquisition.candidates import observe
from lastlayer.acquisition.selecting import METHODS

NUM_FEATURES, SIZE, BATCH = 6, 24, 5


def features(size: int = SIZE, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, NUM_FEATURES, generator=generator, dtype=torch.float64)


def regression(num_outputs: int = 1, **options: object) -> ll.Regression:
    """A head that has seen ten examples, so that its posterior is not the prior."""
    torch.manual_seed(1)
    head = ll.Regression(NUM_FEATURES, num_outputs, num_data=10, dtype=torch.float64, **options)  # type: ignore[arg-type]
    seen = features(10, seed=5)
    head.fit_exact(seen, torch.randn(10, num_outputs, dtype=torch.float64), estimate_noise=True)
    return head.requires_grad_(False)


def classifier(num_classes: int = 3, **options: object) -> ll.DiscriminativeClassification:
    torch.manual_seed(1)
    head = ll.DiscriminativeClassification(
        NUM_FEATURES,
        num_classes,
        num_data=30,
        prior=ll.Prior(variance=2.0),
        dtype=torch.float64,
        **options,  # type: ignore[arg-type]
    )
    head.fit_features(features(30, seed=5), torch.arange(30) % num_classes)
    return head.requires_grad_(False)


def choose(head: ll.Head, method: object, pool: Tensor, count: int = BATCH) -> list[int]:
    labelled = features(10, seed=5)
    found = acquisition.select(head, labelled, pool, count, method, progress=False)  # type: ignore[arg-type]
    assert len(set(found.tolist())) == count
    return found.tolist()


def kernels(head: ll.Regression, points: Tensor) -> Tensor:
    """Covariance between points in units of noise, of each output, (K, n, n)."""
    joint = head.joint(points)
    return joint.epistemic_covariance / joint.noise_variance.mT.unsqueeze(-1)


HEADS = {
    "one output": lambda: regression(),
    "bias": lambda: regression(bias=True),
    "several outputs": lambda: regression(3, covariance="dense"),
    "shared": lambda: regression(3),
    "conjugate": lambda: regression(2, row_covariance="noise", noise="dense"),
}


@pytest.mark.parametrize("name", HEADS)
def test_batchbald_increases_the_mutual_information_most_in_every_step(name):
    head, pool = HEADS[name](), features()
    chosen: list[int] = []
    for _ in range(BATCH):
        left = [row for row in range(len(pool)) if row not in chosen]
        gains = [head.joint(pool[[*chosen, row]]).mutual_information() for row in left]
        chosen.append(left[int(torch.stack(gains).argmax())])
    assert choose(head, "batchbald", pool) == chosen


def test_two_points_by_batchbald_have_nearly_the_largest_determinant_of_all_pairs():
    head, pool = regression(), features(12)
    information = {
        pair: float(head.joint(pool[list(pair)]).mutual_information())
        for pair in itertools.combinations(range(12), 2)
    }
    first, second = sorted(choose(head, "batchbald", pool, 2))
    assert information[first, second] >= (1 - math.exp(-1)) * max(information.values())


@pytest.mark.parametrize("name", HEADS)
def test_bait_leaves_the_least_variance_of_all_predictions_in_every_step(name):
    head, pool = HEADS[name](), features()
    covariance = kernels(head, pool)
    chosen: list[int] = []
    for _ in range(BATCH):
        left = [row for row in range(len(pool)) if row not in chosen]
        remaining = []
        for row in left:
            rows = [*chosen, row]
            cross = covariance[:, :, rows]  # (K, n, t)
            inside = covariance[:, rows][:, :, rows] + torch.eye(len(rows), dtype=torch.float64)
            explained = cross @ torch.linalg.solve(inside, cross.mT)
            remaining.append((covariance - explained).diagonal(dim1=-2, dim2=-1).sum())
        chosen.append(left[int(torch.stack(remaining).argmin())])
    assert choose(head, "bait", pool) == chosen


def test_bait_is_forward_selection_by_the_trace_of_covariance_times_fisher_information():
    """Ash et al. 2021 in NumPy: M grows by xxᵀ/σ² of what is chosen, tr(M⁻¹F) shrinks most."""
    head, pool = regression(), features()
    precision, noise = head.covariance.precision()[0].numpy(), float(head.noise.variance())
    points = pool.numpy() / noise**0.5
    fisher = points.T @ points
    chosen: list[int] = []
    for _ in range(BATCH):
        left = [row for row in range(SIZE) if row not in chosen]
        after = [precision + np.outer(points[row], points[row]) for row in left]
        best = int(np.argmin([np.trace(np.linalg.inv(matrix) @ fisher) for matrix in after]))
        precision = after[best]
        chosen.append(left[best])
    assert choose(head, "bait", pool) == chosen


@pytest.mark.parametrize("name", HEADS)
def test_epig_is_the_mean_gaussian_mutual_information_with_targets(name):
    head, pool = HEADS[name](), features(10)
    covariance = kernels(head, pool)
    chosen: list[int] = []
    for _ in range(3):
        left = [row for row in range(10) if row not in chosen]
        scores = [sum(_information(c, chosen, row) for c in covariance) for row in left]
        chosen.append(left[max(range(len(left)), key=scores.__getitem__)])
    assert choose(head, acquisition.EPIG(num_targets=10), pool, 3) == chosen


def _information(covariance: Tensor, chosen: list[int], row: int) -> float:
    """Σ_* I(y_row; y_*) given the targets of the chosen: differences of joint entropies."""

    def entropy(rows: list[int]) -> Tensor:
        inside = covariance[rows][:, rows] + torch.eye(len(rows), dtype=torch.float64)
        return 0.5 * torch.linalg.slogdet(inside).logabsdet

    # a target is another observation than that of the same point: its row is there twice
    size = len(covariance)
    twice = torch.cat([torch.arange(size), torch.arange(size)])
    covariance = covariance[twice][:, twice]
    total = 0.0
    for target in range(size, 2 * size):
        parts = entropy([*chosen, row]) + entropy([*chosen, target])
        total += float(parts - entropy(chosen) - entropy([*chosen, row, target]))
    return total


@pytest.mark.parametrize("make", [*HEADS.values(), classifier])
def test_lcmd_is_its_plain_loop(make):
    head, pool, labelled = make(), features(), features(10, seed=5)
    candidates = observe(head, None, torch.cat([labelled, pool]), 1024, 2**30, False)
    covariance = torch.stack([channel.between(channel) for channel in candidates.pool]).sum(0)
    square = covariance.diagonal()[:, None] + covariance.diagonal() - 2 * covariance
    centres, chosen = list(range(10)), []
    for _ in range(BATCH):
        nearest = {
            row: min(centres, key=lambda centre: float(square[row, centre]))
            for row in range(10, 10 + SIZE)
        }
        sizes = {
            centre: sum(float(square[row, centre]) for row in nearest if nearest[row] == centre)
            for centre in centres
        }
        largest = max(sizes, key=sizes.__getitem__)
        inside = [row for row in nearest if nearest[row] == largest]
        row = max(inside, key=lambda row: float(square[row, largest]))
        centres.append(row)
        chosen.append(row - 10)
    assert choose(head, "lcmd", pool) == chosen


def test_lcmd_follows_its_published_algorithm_in_the_space_of_the_posterior():
    """Holzmüller et al. 2023 in NumPy, on S^(1/2)φ/σ, with training points as first centres."""
    head, pool, labelled = regression(bias=True), features(), features(10, seed=5)
    root = np.linalg.cholesky(head.covariance.dense()[0].numpy())
    inputs = np.pad(torch.cat([labelled, pool]).numpy(), ((0, 0), (0, 1)), constant_values=1.0)
    points = inputs @ root / float(head.noise.variance()) ** 0.5
    centres, chosen = list(range(10)), []
    for _ in range(BATCH):
        square = ((points[10:, None] - points[centres]) ** 2).sum(-1)  # (n, centres)
        cluster, distance = square.argmin(-1), square.min(-1)
        sizes = np.bincount(cluster, distance, len(centres))
        row = int(np.where(cluster == sizes.argmax(), distance, -1.0).argmax())
        centres.append(row + 10)
        chosen.append(row)
    assert choose(head, "lcmd", pool) == chosen


@pytest.mark.parametrize("method", ["bald", "max_variance", "entropy"])
@pytest.mark.parametrize("make", [*HEADS.values(), classifier])
def test_scores_of_single_points_are_those_of_the_predictive(make, method):
    head, pool = make(), features()
    predictive = head(pool)
    scores = {
        "bald": predictive.mutual_information(),
        "max_variance": predictive.total_epistemic_variance(),
        "entropy": predictive.distribution().entropy().reshape(SIZE, -1).sum(-1),
    }
    assert choose(head, method, pool) == scores[method].topk(BATCH).indices.tolist()


def test_the_margin_is_that_between_the_two_most_probable_classes():
    pool = features()
    ordered = classifier(3)(pool).probs().sort(-1).values
    closest = (ordered[:, -1] - ordered[:, -2]).argsort()[:BATCH]
    assert choose(classifier(3), "margin", pool) == closest.tolist()
    assert choose(classifier(3), "entropy", pool) != closest.tolist()
    assert choose(classifier(2), "margin", pool) == choose(classifier(2), "entropy", pool)


@pytest.mark.parametrize("num_classes", [2, 5])
def test_bald_of_labels_is_the_numerical_mutual_information(num_classes):
    head, pool = classifier(num_classes, noise="none"), features()
    generator = torch.Generator().manual_seed(0)
    draws = head.joint(pool).sample(20_000, generator, noise=False).log_softmax(-1)  # (S, n, K)
    mean = draws.exp().mean(0)
    expected = -(mean * mean.log()).sum(-1) + (draws.exp() * draws).sum(-1).mean(0)
    found = observe(head, None, pool, 1024, 2**30, False).information
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.0)


def test_two_classes_correlate_as_the_difference_of_their_logits():
    head, pool = classifier(2, noise="none"), features()
    (channel,) = observe(head, None, pool, 1024, 2**30, False).pool
    covariance = head.joint(pool).epistemic_covariance.sum(0)  # of z_1 − z_0
    found, expected = (
        matrix / matrix.diagonal().sqrt() / matrix.diagonal().sqrt()[:, None]
        for matrix in (channel.between(channel), covariance)
    )
    torch.testing.assert_close(found, expected)


def test_labels_overlap_as_their_fisher_information():
    head, pool = classifier(4, covariance="shared"), features()
    (channel,) = observe(head, None, pool, 1024, 2**30, False).pool
    probs = head(pool).probs()
    fisher = probs.diag_embed() - probs.unsqueeze(-1) * probs.unsqueeze(-2)
    flat = torch.nn.functional.normalize(fisher.flatten(1), dim=-1)
    correlation = head.joint(pool).epistemic_covariance[0]
    scale = correlation.diagonal().sqrt()
    expected = flat @ flat.mT * correlation / scale / scale[:, None]
    length = channel.length
    torch.testing.assert_close(channel.between(channel) / length / length[:, None], expected)
    torch.testing.assert_close(channel.column(3), channel.between(channel)[:, 3])


def test_a_batch_of_labels_tells_about_what_its_joint_mutual_information_is():
    """Of two labels, the Gaussian that stands for them against sums over all pairs of labels."""
    head, pool = classifier(2, noise="none"), features(16)
    (channel,) = observe(head, None, pool, 1024, 2**30, False).pool
    covariance = channel.between(channel)
    generator = torch.Generator().manual_seed(0)
    draws = head.joint(pool).sample(4_000, generator, noise=False).softmax(-1)
    first, second = [], []
    for pair in itertools.combinations(range(16), 2):
        one, two = (draws[:, row] for row in pair)
        both = (one.unsqueeze(-1) * two.unsqueeze(-2)).flatten(1)
        first.append(float(_entropy(both.mean(0)) - _entropy(both).mean()))
        inside = covariance[list(pair)][:, list(pair)] + torch.eye(2, dtype=torch.float64)
        second.append(0.5 * float(torch.linalg.slogdet(inside).logabsdet))
    assert torch.corrcoef(torch.tensor([first, second]))[0, 1] > 0.98
    assert abs(sum(first) / sum(second) - 1) < 0.1


def _entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs).sum(-1)


@pytest.mark.parametrize("method", ["lcmd", "bait", "batchbald", "epig"])
def test_of_copies_of_a_point_batches_take_one(method):
    head, pool = regression(), features()
    head.noise.set_isotropic(1e-6)  # so that a second label of a point tells nothing
    pool[12:] = 1.5 * pool[0]
    assert len([row for row in choose(head, method, pool, 6) if row >= 12]) <= 1


def test_the_most_uncertain_points_may_all_be_copies():
    head, pool = regression(), features()
    pool[12:] = 9 * pool[0]
    for method in ("bald", "max_variance"):
        assert all(row == 0 or row >= 12 for row in choose(head, method, pool, 6))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "margin"])
def test_a_pool_can_be_chosen_whole_even_if_it_is_one_point_many_times(method):
    head = regression()
    for pool in (features(9), features(1).expand(9, -1), torch.zeros(9, NUM_FEATURES).double()):
        assert sorted(choose(head, method, pool, 9)) == list(range(9))


def test_representatives_of_labels_are_drawn_by_the_seed():
    head, pool = classifier(4), features(300)
    method = acquisition.BAIT(num_targets=20)
    first, again, other = (
        acquisition.select(head, None, pool, 5, method, seed=seed, progress=False).tolist()
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
