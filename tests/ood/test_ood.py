"""Scores are compared with explicit formulas, densities with torch.distributions."""

import dataclasses
import math
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.multiprocessing.spawn import spawn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer import ood
from lastlayer.ood import FeatureDensity
from lastlayer.predictive import (
    DiscriminativePredictive,
    GaussianPredictive,
    GenerativePredictive,
    Predictive,
)

NUM_CLASSES, NUM_FEATURES = 4, 3
APPENDIX_B: list[Any] = ["diagonal", "dense"]
COVARIANCES: list[Any] = ["shared", *APPENDIX_B]
PRIOR = ll.Prior(variance=2.0, noise_dof=3.0, noise_scale=0.5)


def make_data(generator: torch.Generator, count: int = 60) -> tuple[Tensor, Tensor]:
    """Correlated features in classes 0, 1 and 3, the last with a single example."""
    labels = torch.randint(2, (count,), generator=generator)
    labels[7] = 3
    mixing = torch.randn(NUM_FEATURES, NUM_FEATURES, generator=generator)
    noise = torch.randn(count, NUM_FEATURES, generator=generator)
    return noise @ mixing + 2 * labels[:, None] - 1, labels


def make_density(covariance: Any = "diagonal", normalized: bool = True) -> FeatureDensity:
    return FeatureDensity(
        NUM_FEATURES,
        NUM_CLASSES,
        covariance=covariance,
        prior=None if covariance == "shared" else PRIOR,
        normalized=normalized,
        unit_length=False,
    )


def naive_score(
    points: Tensor, features: Tensor, labels: Tensor, covariance: str, normalized: bool
) -> Tensor:
    """Appendix B, one class after the other, with inverses as printed."""
    N, s, nu, M = (
        NUM_FEATURES,
        PRIOR.fixed_variance,
        PRIOR.noise_dof,
        PRIOR.noise_scale * torch.eye(3),
    )

    def estimate(centered: Tensor) -> Tensor:
        S = (M + centered.T @ centered) / (len(centered) + nu + N + 1)
        return S if covariance == "dense" else S.diag().diag()

    present = labels.unique().tolist()
    within = torch.cat([features[labels == k] - features[labels == k].mean(0) for k in present])
    Sigma = estimate(within)
    joint = []
    for k in present:
        mine = features[labels == k]
        precision = Sigma.inverse()
        mu = (torch.eye(N) / s + len(mine) * precision).inverse() @ precision @ mine.sum(0)
        density = MultivariateNormal(mu, estimate(mine - mu)).log_prob(points)
        joint.append(density + math.log(len(mine) / len(labels)))
    score = -torch.stack(joint).logsumexp(0)
    if normalized:
        score += MultivariateNormal(torch.zeros(N), s * torch.eye(N) + Sigma).log_prob(points)
    return score


# ------------------------------------------------------------------------------------ scores


def test_max_probability_is_one_minus_the_largest_probability(generator):
    predictive = DiscriminativePredictive(
        torch.randn(5, 3, generator=generator), torch.rand(5, 3), torch.rand(5, 3)
    )
    expected = 1 - predictive.probs().amax(-1)
    assert_close(ood.max_probability(predictive), expected)


def test_max_probability_tells_inputs_apart_that_round_to_certainty():
    logits = torch.tensor([[50.0, 0.0], [60.0, 0.0]], dtype=torch.float32)
    score = ood.max_probability(GenerativePredictive(logits, logits))
    assert_close(score, torch.tensor([-50.0, -60.0], dtype=torch.float32).exp())


def test_epistemic_variance_is_summed_over_outputs():
    parts = [torch.zeros(2, 3), torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.5, 0.0]]), torch.ones(2, 3)]
    expected = torch.tensor([6.0, 0.5])
    assert_close(ood.epistemic_variance(GaussianPredictive(*parts)), expected)
    assert_close(ood.epistemic_variance(DiscriminativePredictive(*parts)), expected)


def test_feature_density_is_that_of_the_mixture_of_the_classes(generator):
    head = ll.GenerativeClassification(2, 3, num_data=10)
    features = torch.randn(4, 2, generator=generator)
    alpha = head.concentration
    density = sum(
        (alpha[k] / alpha.sum())
        * MultivariateNormal(
            head.mean[k], (head.noise.variance() + head.covariance.diagonal()[k]).diag()
        )
        .log_prob(features)
        .exp()
        for k in range(3)
    )
    assert_close(ood.feature_density(head(features)), -torch.as_tensor(density).log())


@pytest.mark.parametrize("name", ood.SCORES)
def test_scores_of_a_data_set_are_those_of_its_batches_in_order(name, generator):
    head: ll.Head = ll.DiscriminativeClassification(3, 2, num_data=10)
    if name == "feature_density":
        head = ll.GenerativeClassification(3, 2, num_data=10)
    model = ll.Network(nn.Sequential(nn.Linear(2, 3), nn.Dropout()), head)
    inputs = torch.randn(7, 2, generator=generator)
    expected = ood.SCORES[name](model.eval()(inputs)).detach()
    model.train()
    loader = DataLoader(TensorDataset(inputs, torch.zeros(7)), batch_size=3)
    for data in (inputs, (inputs,), (inputs, torch.zeros(7)), loader):
        found = ood.scores(model, data, name, batch_size=4)
        assert_close(found, expected)
        assert not found.requires_grad
    assert model.training


def test_a_mixture_over_drawn_features_can_be_scored(generator):
    components = GenerativePredictive(*torch.randn(2, 5, 8, 3, generator=generator).unbind())
    mixture: Predictive = ll.predictive.mix(components)
    assert_close(ood.max_probability(mixture), 1 - components.probs().mean(-2).amax(-1))
    assert_close(ood.feature_density(mixture), -components.log_joint.exp().sum(-1).mean(-1).log())


def test_a_score_that_a_head_does_not_offer_names_the_heads_that_do():
    gaussian = GaussianPredictive(torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1))
    with pytest.raises(TypeError, match=r"of classification, .*, got GaussianPredictive"):
        ood.max_probability(gaussian)
    with pytest.raises(TypeError, match="GenerativeClassification has"):
        ood.feature_density(gaussian)
    with pytest.raises(TypeError, match="Regression and Discriminative"):
        ood.epistemic_variance(GenerativePredictive(torch.zeros(1, 2), torch.zeros(1, 2)))


def test_unknown_scores_and_empty_data_are_refused():
    with pytest.raises(ValueError, match="did you mean 'max_probability'"):
        ood.scores(nn.Identity(), torch.zeros(2, 1), "max_probabilities")
    with pytest.raises(ValueError, match="empty"):
        ood.scores(nn.Identity(), torch.zeros(0, 1), lambda output: output)


def test_a_progress_bar_counts_examples(capsys):
    ood.scores(nn.Identity(), torch.zeros(6, 1), lambda x: x[:, 0], batch_size=4, progress=True)
    shown = capsys.readouterr().err
    assert "predictions" in shown
    assert "/6" in shown


# --------------------------------------------------------------------------------- threshold


def test_false_alarms_are_as_rare_as_asked(generator):
    rate, count, repeats = 0.1, 29, 4000
    reference = torch.rand(repeats, count, generator=generator)
    # scores are uniform: above a threshold t lies 1 − t of them
    alarms = torch.tensor([1 - ood.threshold(row, rate) for row in reference])
    # of 30 exchangeable scores the new one is among the 3 largest
    assert abs(alarms.mean() - 0.1) < 4 * alarms.std() / repeats**0.5


def test_the_threshold_is_the_exact_order_statistic():
    scores = torch.arange(1.0, 100.0).flip(0)  # 99 of them
    assert ood.threshold(scores, 0.05) == 95
    assert ood.threshold(scores, 0.58) == 42  # 1 − 0.58 is a little above 0.42
    assert ood.threshold(scores, 0.009) == math.inf
    assert ood.threshold(scores[:0], 0.5) == math.inf


def test_thresholds_of_nonsense_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        ood.threshold(torch.tensor([1.0, math.nan]), 0.5)
    with pytest.raises(ValueError, match="false_alarm_rate must lie between 0 and 1, got 5"):
        ood.threshold(torch.zeros(3), 5)


# ----------------------------------------------------------------------------------- density


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("covariance", APPENDIX_B)
def test_score_is_appendix_b_with_explicit_normals(covariance, normalized, generator):
    features, labels = make_data(generator)
    density = make_density(covariance, normalized)
    density.update(features, labels)
    points = 5 * torch.randn(2, 6, NUM_FEATURES, generator=generator)
    expected = naive_score(points, features, labels, covariance, normalized)
    assert_close(density(points), expected)
    unnormalized = naive_score(points, features, labels, covariance, False)
    assert_close(density.log_density(points), -unnormalized)


@pytest.mark.parametrize("covariance", APPENDIX_B)
def test_the_prior_variance_by_the_evidence_makes_the_class_means_likeliest(covariance, generator):
    features, labels = make_data(generator)
    counts = labels.bincount(minlength=NUM_CLASSES)
    present = counts.nonzero().flatten().tolist()
    means = torch.stack([features[labels == k].mean(0) for k in present])
    centered = features - means[torch.tensor([present.index(k) for k in labels.tolist()])]
    noise = PRIOR.noise_scale * torch.eye(NUM_FEATURES) + centered.T @ centered
    noise /= len(labels) + PRIOR.noise_dof + NUM_FEATURES + 1
    noise = noise if covariance == "dense" else noise.diag().diag()

    def loss(log_variance: float) -> float:
        own = math.exp(log_variance) * torch.eye(NUM_FEATURES)
        zero = torch.zeros(NUM_FEATURES)
        found = [
            MultivariateNormal(zero, own + noise / counts[k]).log_prob(mean)
            for k, mean in zip(present, means, strict=True)
        ]
        return -float(torch.stack(found).sum())

    best = math.exp(minimize_scalar(loss, bracket=(-3, 3), tol=1e-10).x)
    scores = []
    for variance in ("evidence", best):
        density = FeatureDensity(
            NUM_FEATURES,
            NUM_CLASSES,
            covariance=covariance,
            prior=dataclasses.replace(PRIOR, variance=variance),
            unit_length=False,
        )
        density.update(features, labels)
        scores.append(density(2 * features))
    assert_close(*scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_any_split_and_order_of_merging_equals_one_pass(covariance, generator):
    features, labels = make_data(generator)
    whole = make_density(covariance)
    whole.update(features, labels)
    parts = []
    for chosen in torch.randperm(60, generator=generator).split([1, 20, 0, 9, 30]):
        part = make_density(covariance)
        for half in chosen.chunk(2):
            part.update(features[half], labels[half])
        parts.append(part)
    merged = make_density(covariance)
    for part in reversed(parts):
        merged.merge(part)
    assert_close(merged.state_dict(), whole.state_dict(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_statistics_do_not_suffer_from_a_large_offset(covariance, generator):
    features, labels = make_data(generator)
    near, far = make_density(covariance), make_density(covariance)
    near.update(features, labels)
    for rows, classes in zip(features.split(7), labels.split(7), strict=True):
        far.update(rows + 1e6, classes)
    # raw second moments would be off by 60 · (1e6)² · 1e-16 = 6e-3; inputs are rounded at 1e-10
    assert_close(far.scatter, near.scatter, rtol=0, atol=1e-8)


@pytest.mark.parametrize("covariance", APPENDIX_B)
def test_scores_do_not_depend_on_an_offset_when_the_means_are_free(covariance, generator):
    features, labels = make_data(generator)
    free = ll.Prior(variance=1e18)  # so that class means are the empirical ones
    near, far = (
        FeatureDensity(3, 4, covariance=covariance, prior=free, normalized=False, unit_length=False)
        for _ in range(2)
    )
    near.update(features, labels)
    far.update(features + 1e6, labels)
    assert_close(far(features + 1e6), near(features), rtol=0, atol=1e-6)


def test_a_class_without_examples_changes_nothing(generator):
    features, labels = make_data(generator)
    few, many = FeatureDensity(3, 4), FeatureDensity(3, 9)
    few.update(features, labels)
    many.update(features, labels)
    assert_close(few(features), many(features))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_one_example_is_enough_for_a_finite_score(covariance):
    density = FeatureDensity(3, 2, covariance=covariance)
    density.update(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(1))
    assert density(torch.randn(5, 3)).isfinite().all()


def test_weights_count_as_repeats_and_zero_ignores(generator):
    features, labels = make_data(generator)
    weight = torch.randint(3, (60,), generator=generator)
    repeated = make_density("dense")
    repeated.update(features.repeat_interleave(weight, 0), labels.repeat_interleave(weight))
    weighted = make_density("dense")
    weighted.update(features, labels.where(weight > 0, -100), weight.double())
    assert_close(weighted.state_dict(), repeated.state_dict())


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_state_goes_through_safetensors(covariance, generator, tmp_path):
    features, labels = make_data(generator)
    density, loaded = make_density(covariance), make_density(covariance)
    density.update(features, labels)
    loaded.update(features[:9], labels[:9])
    loaded(features)  # derives what the new state must replace
    save_file(density.state_dict(), tmp_path / "density.safetensors")
    loaded.load_state_dict(load_file(tmp_path / "density.safetensors"))
    assert torch.equal(loaded(features), density(features))


def test_casting_the_module_keeps_its_statistics(generator):
    features, labels = make_data(generator)
    density = make_density()
    density.update(features, labels)
    expected = density(features)
    density.half()
    assert torch.equal(density(features), expected)
    assert density(features.float()).dtype == torch.float32
    assert_close(density(features.float()), expected.float(), rtol=1e-5, atol=1e-5)


def test_scores_follow_further_updates(generator):
    features, labels = make_data(generator)
    density, whole = make_density("dense"), make_density("dense")
    density.update(features[:30], labels[:30])
    density(features)
    density.update(features[30:], labels[30:])
    whole.update(features, labels)
    assert_close(density(features), whole(features))


def test_the_score_has_a_gradient(generator):
    features, labels = make_data(generator)
    for covariance in COVARIANCES:
        density = make_density(covariance)
        density.update(features, labels)
        point = features[:2].clone().requires_grad_()
        assert torch.autograd.gradcheck(density, point)


def test_bad_input_is_refused():
    density = FeatureDensity(3, 2)
    with pytest.raises(RuntimeError, match="seen no examples"):
        density(torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"num_features=3, got shape \(2, 4\)"):
        density.update(torch.zeros(2, 4), torch.zeros(2).long())
    with pytest.raises(ValueError, match=r"0 … 1, got values from 0 to 2"):
        density.update(torch.zeros(2, 3), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="NaN"):
        density.update(torch.full((1, 3), math.nan), torch.tensor([0]))
    with pytest.raises(ValueError, match="needs labels"):
        density.update(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="one index per example"):
        density.update(torch.zeros(2, 3), torch.tensor([0]))
    with pytest.raises(TypeError, match="floating point"):
        density.update(torch.zeros(2, 3).long(), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="can be merged"):
        density.merge(FeatureDensity(3, 2, covariance="dense"))
    with pytest.raises(ValueError, match="raise noise_dof"):
        FeatureDensity(3, 2, covariance="dense", prior=ll.Prior(noise_dof=-4))
    with pytest.raises(ValueError, match="takes its prior from the data"):
        FeatureDensity(3, 2, prior=PRIOR)
    with pytest.raises(ValueError, match="num_features, unit_length and power"):
        density.merge(FeatureDensity(3, 2, unit_length=False))
    assert not any(bool(buffer.any()) for buffer in density.buffers())


# -------------------------------------------------------------------------------- from_model


def make_network(head: ll.Head) -> ll.Network:
    backbone = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Tanh())
    return ll.Network(backbone, head)


def test_fitting_to_a_model_uses_its_features_and_leaves_it_alone(generator):
    model = make_network(ll.DiscriminativeClassification(3, 4, num_data=50))
    model.backbone[2].eval()  # type: ignore[index]
    inputs = torch.randn(50, 2, generator=generator)
    labels = torch.randint(4, (50,), generator=generator)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    data = DataLoader(TensorDataset(inputs, labels), batch_size=8)
    density = FeatureDensity.from_model(model, data, covariance="dense")
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert [module.training for module in model.modules()] == modes
    expected = FeatureDensity(3, 4, covariance="dense")
    features = model.eval().backbone(inputs).detach()
    expected.update(features, labels)
    assert_close(density.state_dict(), expected.state_dict())
    assert_close(ood.scores(model.train().backbone, data, density), expected(features))


def test_the_head_says_how_many_classes_and_which_prior(generator):
    inputs, labels = torch.randn(9, 2, generator=generator), torch.zeros(9).long()
    generative = make_network(ll.GenerativeClassification(3, 5, num_data=9, prior=PRIOR))
    density = FeatureDensity.from_model(generative, (inputs, labels), covariance="diagonal")
    assert (density.num_classes, density.prior) == (5, PRIOR)
    regression = make_network(ll.Regression(3, 2, num_data=9))
    single = FeatureDensity.from_model(regression, (inputs, torch.randn(9, 2)))
    assert (single.num_classes, single.counts.tolist()) == (1, [9])
    plain = FeatureDensity.from_model(regression.backbone, (inputs,), num_classes=1)
    assert_close(plain.state_dict(), single.state_dict())


def test_fitting_without_what_is_needed_is_refused():
    with pytest.raises(ValueError, match="num_classes is not known"):
        FeatureDensity.from_model(nn.Identity(), (torch.zeros(2, 2),))
    with pytest.raises(ValueError, match="data is empty"):
        FeatureDensity.from_model(nn.Identity(), (torch.zeros(0, 2),), num_classes=1)
    model = make_network(ll.Regression(3, 1, num_data=9))
    with pytest.raises(TypeError, match=r"pass network\.backbone"):
        ood.scores(model, torch.zeros(2, 2), FeatureDensity(3, 1))


def auroc(inside: Tensor, outside: Tensor) -> float:
    return float((outside[:, None] > inside[None, :]).double().mean())


def test_far_inputs_rank_above_near_ones_in_a_trained_network(generator):
    centers = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    labels = torch.arange(300) % 3
    inputs = centers[labels] + 0.4 * torch.randn(300, 2, generator=generator)
    fresh = centers[labels] + 0.4 * torch.randn(300, 2, generator=generator)
    far = torch.tensor([0.0, -9.0]) + 0.4 * torch.randn(300, 2, generator=generator)
    backbone = nn.Sequential(nn.Linear(2, 32), nn.ELU(), nn.Linear(32, 16))
    head = ll.GenerativeClassification(16, 3, num_data=300)
    head.observe(labels)
    model = ll.Network(backbone, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        model(inputs, labels).backward()
        optimizer.step()
    assert auroc(*(ood.scores(model, x, "feature_density") for x in (fresh, far))) > 0.99
    for covariance in COVARIANCES:
        for normalized in (False, True):
            density = FeatureDensity.from_model(
                model,
                (inputs, labels),
                covariance=covariance,
                normalized=normalized,
            )
            assert auroc(*(ood.scores(backbone, x, density) for x in (fresh, far))) > 0.99
    # and a held-out threshold flags the far ones, with few false alarms
    limit = ood.threshold(ood.scores(backbone, fresh, density), 0.05)
    assert float((ood.scores(backbone, far, density) > limit).double().mean()) > 0.99


# ------------------------------------------------------------------------------- distributed


def fit_together(features, labels, **options):
    return ood.FeatureDensity.from_model(
        torch.nn.Identity(), (features, labels), num_classes=4, progress=False, **options
    )


def reduce_parts(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    features, labels = make_data(torch.Generator().manual_seed(1))
    results = {}
    for covariance in COVARIANCES:
        part = make_density(covariance)
        mine = slice(0, 11) if rank == 0 else slice(11, None)
        part.update(features[mine] + 1e3, labels[mine])
        part.all_reduce()
        results[covariance] = part.state_dict()
    results["from_model"] = fit_together(features, labels, distributed=True).state_dict()
    neighbors = ood.NearestNeighbors(features.shape[-1])
    neighbors.update(features[mine])
    neighbors.all_reduce()
    results["neighbors"] = neighbors.state_dict()
    torch.save(results, f"{folder}/{rank}")
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_that_share_the_data_end_with_the_density_of_all(tmp_path: Path):
    processes = spawn(reduce_parts, args=(str(tmp_path),), nprocs=2, join=False)
    deadline = time.monotonic() + 60
    try:
        while not processes.join(timeout=1.0):
            assert time.monotonic() < deadline, "no result within a minute"
    finally:
        for process in processes.processes:
            process.kill()
    features, labels = make_data(torch.Generator().manual_seed(1))
    for covariance in COVARIANCES:
        whole = make_density(covariance)
        whole.update(features + 1e3, labels)
        for rank in range(2):
            found = torch.load(tmp_path / str(rank), weights_only=True)[covariance]
            assert_close(found, whole.state_dict(), rtol=1e-9, atol=1e-9)
    neighbors = ood.NearestNeighbors(features.shape[-1])
    neighbors.update(features)
    for rank in range(2):
        results = torch.load(tmp_path / str(rank), weights_only=True)
        expected = fit_together(features, labels).state_dict()
        assert_close(results["from_model"], expected, rtol=1e-9, atol=1e-9)
        assert_close(results["neighbors"], neighbors.state_dict())
