"""The baselines' models against explicit formulas and plain loops."""

import copy
import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence
from torch.testing import assert_close

import lastlayer as ll
from experiments.backbones import mlp
from experiments.baselines.bbb import BBB
from experiments.baselines.dropout import Dropout
from experiments.baselines.ensemble import Ensemble
from experiments.baselines.map import MAP
from experiments.baselines.ours import Ours
from experiments.baselines.swag import SWAG, WeightDraws, draws
from experiments.baselines.variants import Deeper, LargerStart, SmallerStart
from experiments.baselines.vbll import VBLL
from experiments.baselines.vbll_bbb import VBLLBBB
from experiments.baselines.vbll_package import VBLLPackage
from experiments.datasets.uci import Split
from experiments.method import EPOCHS, OPTIONS


@pytest.fixture
def split(generator) -> Split:
    """Data of a smooth function with noise, in double precision."""

    def pair(count: int):
        inputs = torch.randn(count, 3, generator=generator)
        noise = 0.3 * torch.randn(count, 1, generator=generator)
        return inputs, inputs[:, :1].sin() + noise

    return Split(0, pair(24), pair(8), pair(8))


def test_settings_of_vbll_are_those_of_appendix_d():
    power = VBLL.for_dataset("power")
    assert (power.epochs, power.batch_size) == (3000, 256)
    assert VBLL.for_dataset("wine").batch_size == 32
    assert {VBLLBBB.for_dataset(name).epochs for name in EPOCHS} == {10_000}
    assert [VBLLBBB.for_dataset(name).batch_size for name in ("wine", "power")] == [32, 256]
    assert (VBLLBBB.num_seeds, VBLL.num_seeds) == (10, 20)
    assert EPOCHS["boston"] == VBLL.for_dataset("boston").epochs == 3000


def test_vbll_starts_at_the_scale_of_the_targets_with_noise_at_their_variance(split):
    """A mean square of n Gaussian weights has a relative standard error of √(2/n)."""
    inputs, target = split.train
    scaled = replace(split, train=(inputs, 30 * target))
    method = VBLL.for_dataset("yacht", start_scale=0.5)
    models: list[Any] = method.new([replace(scaled, seed=seed) for seed in range(40)])
    for seed, model in enumerate(models):
        ll.fit(model, scaled.train, epochs=1, learning_rate=1e-12, seed=seed, progress=False)
    means = torch.stack([model.head.mean for model in models])
    power = (30 * target).square().mean()
    standard_error = (2 / means.numel()) ** 0.5
    ratio = means.square().mean() / (0.5**2 * power / mlp.WIDTH)
    assert abs(ratio - 1) < 4 * standard_error
    noise = (24 * power + 1) / (24 + 1 + 1 + 1)  # the mode under the inverse-Wishart(1, 1)
    for model in models:
        assert_close(model.head.noise.variance(), noise.reshape(1))


def test_variants_of_the_start_differ_by_the_start_alone():
    scaled = {"start_scale": 1.0}
    ours, larger = (asdict(kind.for_dataset("wine")) for kind in (Ours, LargerStart))
    smaller, vbll = (asdict(kind.for_dataset("wine")) for kind in (SmallerStart, VBLL))
    assert (larger, vbll) == (ours | scaled, smaller | scaled)


def test_the_deeper_variant_of_vbll_has_one_layer_more(split):
    models: list[Any] = [method.for_dataset("power").make(split) for method in (VBLL, Deeper)]
    widths = [
        [len(p) for n, p in model.backbone.named_parameters() if "weight" in n] for model in models
    ]
    assert widths == [[50, 50], [50, 50, 50]]


def test_the_authors_package_has_the_loss_and_the_predictive_of_vbll(split):
    """Up to the constant of the divergence, which it leaves out; also when retrained."""
    knobs = {"prior_variance": 2.0, "noise_dof": 3.0, "noise_scale": 0.5}
    theirs: Any = VBLLPackage.for_dataset("yacht", **knobs).make(split)
    ours: Any = VBLL.for_dataset("yacht", **knobs).make(split)
    ours.backbone.load_state_dict(theirs.backbone.state_dict())
    with torch.no_grad():
        theirs.head.noise_logdiag.fill_(0.4)
        ours.head.mean.copy_(theirs.head.W_mean)
        ours.head.covariance.project(theirs.head.W().covariance.inverse())
        ours.head.noise.assign((2 * theirs.head.noise_logdiag).exp().diag())
    for num_data in (24, 32):
        theirs.num_data = ours.head.num_data = num_data
        constant = mlp.WIDTH / (2 * num_data)
        assert_close(theirs(*split.train), ours(*split.train) + constant)
    inputs, target = split.test
    assert_close(theirs(inputs).log_prob(target), ours(inputs).log_prob(target))


@pytest.mark.slow
def test_the_authors_package_trains_in_batches_of_seeds_as_one_by_one(split):
    train, validation, test = ((x, -y) for x, y in (split.train, split.validation, split.test))
    other = Split(1, train, validation, test)
    method = VBLLPackage.for_dataset("yacht", epochs=100, validate_every=50)
    splits = [split, other]
    together, alone = method.new(splits), method.new(splits)
    method.fit(together, splits, None)
    options = {name: getattr(method, name) for name in OPTIONS}
    for one, model, batched in zip(splits, alone, together, strict=True):
        ll.fit(
            model,
            one.train,
            one.validation,
            seed=one.seed,
            validate_every=50,
            retrain=True,
            progress=False,
            **options,
        )
        assert model.num_data == 32
        assert_close(batched.state_dict(), model.state_dict())


def test_gaussian_network_is_a_normal_with_one_learned_variance(split, generator):
    network = mlp.GaussianNetwork(mlp.regressor(3))
    with torch.no_grad():
        network.log_stddev.fill_(0.3)
    inputs, target = split.train
    expected = Normal(network.network(inputs), torch.tensor(0.3).exp())
    assert_close(network(inputs).log_prob(target), expected.log_prob(target).squeeze(-1))
    assert_close(network(inputs, target), -expected.log_prob(target).mean())


def test_dropout_at_rate_zero_is_the_plain_network_and_else_draws_differ(split):
    inputs, target = split.test
    plain = Dropout.for_dataset("yacht", rate=0.0).make(split)
    expected = mlp.GaussianNetwork(plain.network)
    assert_close(plain(inputs).log_prob(target), expected(inputs).log_prob(target))
    dropped = Dropout.for_dataset("yacht", rate=0.5, num_prediction_samples=7).make(split).eval()
    means = dropped(inputs).components.mean
    assert means.shape == (len(inputs), 7, 1)
    assert (means.std(1) > 0).all()


def test_dropout_keeps_the_mean_of_a_linear_last_layer(split):
    """Units are dropped or scaled up, so the mean over draws of the last product stays."""
    model: Any = Dropout.for_dataset("yacht", rate=0.2, num_prediction_samples=20_000).make(split)
    model.network[2].rate = 0.0  # the first dropout comes before a nonlinearity
    plain = [layer for layer in model.network if not hasattr(layer, "rate")]
    inputs = split.test[0][:3]
    components = model(inputs).components.mean
    standard_error = components.std(1) / 20_000**0.5
    assert ((components.mean(1) - nn.Sequential(*plain)(inputs)).abs() < 4 * standard_error).all()


def test_an_ensemble_is_the_equal_mixture_of_separate_networks(split):
    inputs, target = split.test
    torch.manual_seed(0)
    model = Ensemble.for_dataset("yacht", num_members=3).make(split)
    torch.manual_seed(0)
    members = [mlp.regressor(3, num_outputs=2) for _ in range(3)]  # the same start
    outputs = torch.stack([member(inputs) for member in members], 1)  # (B, 3, 2)
    normal = Normal(outputs[..., 0], (nn.functional.softplus(outputs[..., 1]) + 1e-6).sqrt())
    mixture = MixtureSameFamily(Categorical(torch.ones(len(inputs), 3)), normal)
    assert_close(model(inputs).log_prob(target), mixture.log_prob(target.squeeze(-1)))
    assert_close(model(inputs, target), -normal.log_prob(target).sum(1).mean())


def test_bbb_pays_the_divergence_of_all_its_weights(split):
    model: Any = BBB.for_dataset("yacht").make(split)
    inputs, target = split.train
    weights: Any = [layer for layer in model.network if isinstance(layer, ll.VariationalLinear)]
    assert len(weights) == 3
    divergence = torch.zeros(())
    for layer in weights:
        prior = Normal(0.0, (4 / layer.in_features**0.5) ** 0.5)
        for mean, log_stddev in (
            (layer.weight, layer.weight_log_stddev),
            (layer.bias, layer.bias_log_stddev),
        ):
            divergence = divergence + kl_divergence(Normal(mean, log_stddev.exp()), prior).sum()
    torch.manual_seed(1)
    loss = model(inputs, target)
    torch.manual_seed(1)
    nll = -model.predictive(model.network(inputs)).log_prob(target).mean()
    assert_close(loss, nll + divergence / len(inputs))


def test_bbb_weighs_its_divergence_by_all_the_data_it_is_retrained_on(split):
    method = BBB.for_dataset("yacht", epochs=2)
    (model,) = method.new([split])
    assert model.num_data == 24
    method.fit([model], [split], None)
    assert model.num_data == 32


def test_vbll_bbb_integrates_the_last_layer_and_draws_the_features(split):
    model = VBLLBBB.for_dataset("yacht").make(split)
    assert isinstance(model.head, ll.Regression)
    assert len(ll.variational.variational_layers(model)) == 2
    assert model(split.test[0]).components.batch_shape == (len(split.test[0]), 10)
    assert model.head.prior == ll.Prior()


def test_map_is_bayesian_regression_on_the_trained_features_at_the_trained_noise(split):
    method = MAP.for_dataset("yacht", epochs=20)
    model: Any = method.new([split])[0]
    method.fit([model], [split], None)
    finished: Any = method.finish(model, split)

    def features(inputs):
        return nn.functional.pad(model.network[:-1](inputs), (0, 1), value=1.0).detach()

    noise, s = (2 * model.log_stddev).exp().item(), model.network[-1].weight.square().mean().item()
    inputs, target = split.development
    phi, new = features(inputs), features(split.test[0])
    covariance = (phi.T @ phi / noise + torch.eye(51) / s).inverse()
    found = finished(split.test[0])
    assert_close(found.mean, new @ covariance @ phi.T @ target / noise)
    assert_close(found.epistemic_variance, (new @ covariance * new).sum(-1, keepdim=True))
    assert_close(found.noise_variance, torch.full_like(found.mean, noise))


def test_swag_draws_have_the_mean_and_covariance_of_its_gaussian(generator):
    path = {
        "a": torch.randn(6, 2, generator=generator),
        "b": torch.randn(6, 1, generator=generator),
    }
    count = 200_000
    found = draws(path, count, generator)
    drawn = torch.cat([found["a"], found["b"]], -1)
    snapshots = torch.cat([path["a"], path["b"]], -1)
    centred = snapshots - snapshots.mean(0)
    expected = 0.5 * centred.square().mean(0).diag() + centred.T @ centred / (2 * 5)
    scale = expected.diagonal().sqrt()
    assert ((drawn.mean(0) - snapshots.mean(0)).abs() < 5 * scale / count**0.5).all()
    error = (drawn.T.cov() - expected).abs() / scale.outer(scale)
    assert (error < 5 * 2**0.5 / count**0.5).all()


def test_swag_predicts_the_mixture_over_its_draws(split):
    network = mlp.GaussianNetwork(mlp.regressor(3))
    weights = {name: torch.stack([w, 2 * w]).detach() for name, w in network.named_parameters()}
    inputs, target = split.test
    other = copy.deepcopy(network)
    other.load_state_dict({name: w[1] for name, w in weights.items()})
    one, two = network(inputs).log_prob(target), other(inputs).log_prob(target)
    expected = torch.stack([one, two]).logsumexp(0) - torch.tensor(2.0).log()
    assert_close(WeightDraws(network, weights)(inputs).log_prob(target), expected)


def test_swag_collects_weights_that_differ(split):
    method = SWAG.for_dataset("yacht", epochs=5, num_snapshots=3)
    ((model, notes),) = method.train([split])
    assert notes["epochs"] <= 5
    assert model(split.test[0]).components.mean.std(1).min() > 0


def test_ours_keeps_its_calibration_and_notes_what_else_there_is(split):
    trained: Any = Ours.for_dataset("yacht", epochs=32).train([split])
    ((model, notes),) = trained
    assert {one["epochs"] for one in notes["tried"]} <= {16, 32}
    assert {one["weight_decay"] for one in notes["tried"]} == {30.0, 300.0}
    assert notes["validation_nll"] == min(one["validation_nll"] for one in notes["tried"])
    assert model.model.head.num_data == len(split.development[0])
    others = notes["alternatives"]
    inputs = split.test[0]
    for name, alternative in others.items():
        same = torch.equal(alternative(inputs).mean, model(inputs).mean)
        assert same == (name != "exact")
        assert math.isfinite(notes[f"validation_nll_{name}"])
    plain = others["uncalibrated"](inputs)
    assert_close(plain.variance, model.model(inputs).variance)
    assert not torch.equal(others["gaussian"](inputs).variance, plain.variance)
    noise = [each.model.head.noise.variance() for each in (model, others["exact"])]
    assert noise[0] != noise[1]
