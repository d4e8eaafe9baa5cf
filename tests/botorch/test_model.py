"""Models of BoTorch: trained on the evidence, seeded, through every acquisition, errors."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, UpperConfidenceBound
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.generation.sampling import MaxPosteriorSampling
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor, nn
from torch.testing import assert_close

from lastlayer import Prior
from lastlayer.botorch import FeatureTraining, LastLayerModel, Waves
from lastlayer.optimisation.data import Data
from lastlayer.optimisation.training import log_evidence

BEST = torch.tensor([0.3, 0.7], dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def data(count: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """A smooth bump, and its opposite distance from a corner."""
    generator = torch.Generator().manual_seed(4)
    x = torch.rand(count, 2, generator=generator)
    y = torch.stack([-(x - BEST).square().sum(-1), -x.square().sum(-1)], -1)
    return x.to(dtype), y.to(dtype)


def fitted(num_outputs: int = 1, **options: Any) -> LastLayerModel:
    torch.manual_seed(0)
    x, y = data()
    options = {"backbone": Waves(2, 48), "num_features": 48, **options}
    plan = FeatureTraining(steps=40)
    return LastLayerModel(x, y[:, :num_outputs], training=plan, **options).fit()


def optimised(acquisition: AcquisitionFunction, **options: Any) -> tuple[Tensor, Tensor]:
    found: Any = optimize_acqf(acquisition, BOUNDS, num_restarts=2, raw_samples=16, **options)
    return found


Acquisition = Callable[[LastLayerModel], AcquisitionFunction]
ACQUISITIONS: dict[str, tuple[Acquisition, int]] = {
    "LogEI": (lambda model: LogExpectedImprovement(model, best_f=-0.1), 1),
    "UCB": (lambda model: UpperConfidenceBound(model, beta=1.0), 1),
    "qLogEI": (lambda model: qLogExpectedImprovement(model, best_f=-0.1), 2),
    "qLogNEI": (lambda m: qLogNoisyExpectedImprovement(m, data()[0]), 2),
    "qKG": (lambda model: qKnowledgeGradient(model, num_fantasies=4), 1),
    "qMES": (lambda model: qMaxValueEntropy(model, torch.rand(50, 2)), 1),
    "TS": (PathwiseThompsonSampling, 2),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisitions_are_optimised(name: str) -> None:
    make, size = ACQUISITIONS[name]
    acquisition = make(fitted())
    where, value = optimised(acquisition, q=size, options={"maxiter": 20})
    assert where.shape == (size, 2)
    if name not in ("qKG", "qMES"):  # which look for what there is to learn
        assert (where - BEST).norm(dim=-1).min() < 0.25
    extra = 4 if name == "qKG" else 0  # its argument holds a point for each fantasy too
    with torch.no_grad():
        assert acquisition(torch.rand(64, size + extra, 2)).max() <= value + 0.05


def test_hypervolume_improvement_takes_several_outputs() -> None:
    acquisition = qLogNoisyExpectedHypervolumeImprovement(
        fitted(2),
        ref_point=[-1.0, -2.0],
        X_baseline=data()[0],
        sampler=SobolQMCNormalSampler(torch.Size([16]), seed=0),
    )
    where, value = optimised(acquisition, q=2, options={"maxiter": 10})
    assert where.shape == (2, 2)
    with torch.no_grad():
        assert acquisition(torch.rand(32, 2, 2)).max() <= value + 0.05


def test_max_posterior_sampling_picks_good_candidates() -> None:
    candidates = torch.rand(300, 2)
    chosen = MaxPosteriorSampling(fitted(), replacement=False)(candidates, num_samples=5)
    assert (chosen - BEST).norm(dim=-1).mean() < 0.2 < (candidates - BEST).norm(dim=-1).mean()


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_the_objective_of_training_is_the_elbo_at_the_exact_posterior(num_outputs: int) -> None:
    model = fitted(num_outputs)
    x, y = data()
    low, high = x.amin(0), x.amax(0)
    y = (y - y.mean(0)) / y.std(0)
    scaled = Data((x - low) / (high - low), y[:, :num_outputs])
    features = model.features(scaled.inputs)
    elbo = model.network.head.elbo(features, scaled.outcomes)
    total = 12 * elbo.bound - elbo.kl + elbo.log_prior
    assert_close(log_evidence(model.network.head, features, scaled), total)


def test_training_finds_what_the_outcomes_depend_on() -> None:
    """The second input has no influence, so that its length grows."""
    x, _ = data(30)
    torch.manual_seed(0)
    model = LastLayerModel(x, (6 * x[:, :1]).sin())
    before = model.posterior(x[:, None]).variance.mean()
    model.fit()
    scale = model.network.backbone.backbone.log_input_scale
    assert scale[0] - scale[1] > 0.5
    assert model.posterior(x[:, None]).variance.mean() < before / 2
    fresh = torch.rand(200, 2)
    assert_close(model.posterior(fresh).mean, (6 * fresh[:, :1]).sin(), rtol=0, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_precisions_work(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = data(dtype=dtype)
    model = LastLayerModel(x, y, training=FeatureTraining(steps=20)).fit()
    sampled = model.condition_on_observations(x[:1], y[:1]).posterior(x[:4])
    assert sampled.rsample(torch.Size([3])).dtype == sampled.mean.dtype == dtype
    assert_close(model.posterior(x).mean, y, rtol=0, atol=0.3)
    assert {p.dtype for p in model.network.parameters()} == {dtype}


def test_models_are_cast_with_their_observations() -> None:
    model, (x, y) = fitted(2), data()
    narrow = copy.deepcopy(model).condition_on_observations(x[:2], y[:2] + 1).float()
    wide = model.condition_on_observations(x[:2], y[:2] + 1).posterior(x)
    found = narrow.posterior(x.float())
    assert_close(found.mean.double(), wide.mean, rtol=1e-3, atol=1e-3)
    assert narrow.train_inputs[0].dtype == narrow.train_targets.dtype == torch.float32


def test_results_follow_from_the_seed_of_torch_alone() -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002 - the generator that must not be used
    x = torch.rand(5, 1, 2)
    first, second = fitted(), fitted()
    assert torch.equal(first.posterior(x).mean, second.posterior(x).mean)
    torch.manual_seed(7)
    weights = first.sample_weights(torch.Size([2]))
    torch.manual_seed(7)
    assert torch.equal(weights, second.sample_weights(torch.Size([2])))
    assert (before == np.random.get_state(legacy=False)["state"]["key"]).all()  # noqa: NPY002


def test_a_state_carries_a_model_over() -> None:
    model, x = fitted(2), torch.rand(4, 2)
    y = model.posterior(x).mean.detach() + 0.1
    torch.manual_seed(9)
    other = LastLayerModel(*data(), backbone=Waves(2, 48), num_features=48)
    other.load_state_dict(model.state_dict())
    for one in (model, other):
        one.observe(x, y, tolerance=1e9)
    assert_close(other.posterior(x).mean, model.posterior(x).mean)
    assert torch.equal(copy.deepcopy(model).posterior(x).mean, model.posterior(x).mean)


def test_surprising_outcomes_train_the_features_and_others_do_not() -> None:
    model = fitted()
    x = torch.rand(4, 2)
    weights = model.network.backbone.log_scale.clone()
    assert not model.observe(x, model.posterior(x).mean)
    assert torch.equal(model.network.backbone.log_scale, weights)
    assert model.surprise(x, model.posterior(x).mean) < 0
    assert model.observe(x, model.posterior(x).mean + 1.0)
    assert not torch.equal(model.network.backbone.log_scale, weights)
    assert len(model.train_inputs[0]) == len(model.train_targets) == 20


def test_what_botorch_asks_for_is_there() -> None:
    x, y = data()
    inputs: Any = LastLayerModel.construct_inputs(
        SupervisedDataset(x, y, feature_names=["a", "b"], outcome_names=["c", "d"])
    )
    model = LastLayerModel(**inputs)
    assert (model.num_outputs, model.batch_shape) == (2, ())
    assert torch.equal(model.train_inputs[0], x)
    assert_close(model.train_targets, ((y - y.mean(0)) / y.std(0)).mT)
    noise = model.network.head.noise.variance()
    assert_close(model.likelihood.noise.squeeze(-1), noise)
    assert_close(model.subset_output([1]).likelihood.noise, noise[1:])
    assert model.subset_output([1]).train_targets.shape == (12,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x, y: LastLayerModel(x, y[:, 0]), r"outcomes of one output have shape \(n, 1\)"),
        (lambda x, y: LastLayerModel(x[None], y[None]), "need a model each"),
        (lambda x, y: LastLayerModel(x[:0], y[:0]), "at least one observation"),
        (lambda x, y: LastLayerModel(x, y.float()), "all of one dtype"),
        (lambda x, y: LastLayerModel(x.half(), y.half()), "must be float32 or float64"),
        (lambda x, y: LastLayerModel(x, y / 0), "outcomes must be finite"),
        (lambda x, y: LastLayerModel(x, 1e200 * y), "squares overflow"),
        (lambda x, y: LastLayerModel(x, y).posterior(x[:0]), "at least one point"),
        (lambda x, y: LastLayerModel(x, y, y[:, :1].exp()), "shape of the outcomes"),
        (lambda x, y: LastLayerModel(x, y, 0 * y), "above zero"),
        (lambda x, y: LastLayerModel(x, y, backbone=nn.Identity()), "together, or neither"),
        (lambda x, y: LastLayerModel(x, y).posterior(x[0]), r"expected inputs \(\*batch, q, 2\)"),
        (lambda x, y: LastLayerModel(x, y).posterior(x.float()), "expected inputs of torch.float"),
        (lambda x, y: LastLayerModel(x, y).observe(x, y, y.exp()), "the first came without"),
        (lambda x, y: LastLayerModel(x, y).observe(x, y[:, :1]), r"expected \(d, m\) = \(2, 2\)"),
        (lambda x, y: LastLayerModel(x, y).subset_output([0]).fit(), "shares with the one"),
        (lambda x, y: LastLayerModel(x, y, prior=Prior(variance=2.0)), "is learned with the feat"),
        (lambda x, y: FeatureTraining(strength=-1.0), "strength must not be negative"),
    ],
)
def test_errors_say_what_to_do(make: Callable[[Tensor, Tensor], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        make(*data())
