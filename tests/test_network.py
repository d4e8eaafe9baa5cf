"""A backbone and a head together, with plain and with variational features."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributions import Normal
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import lastlayer as ll
from lastlayer.network import sample_features
from lastlayer.predictive import ClassMixturePredictive, GaussianMixturePredictive
from lastlayer.variational import VariationalLinear, kl, make_variational, variational_layers
from tests.helpers.reference import assert_within_standard_errors

B, D, N, K, T = 6, 3, 5, 2, 40
HEADS: dict[str, Callable[[], ll.Head]] = {
    "regression": lambda: ll.Regression(N, K, num_data=T, prior=ll.Prior(kl_weight=0.7)),
    "correlated": lambda: ll.Regression(N, K, num_data=T, noise="dense"),
    "discriminative": lambda: ll.DiscriminativeClassification(N, K, num_data=T),
    "generative": lambda: ll.GenerativeClassification(N, K, num_data=T),
}
every_head = pytest.mark.parametrize("name", HEADS)
both_samplings = pytest.mark.parametrize("sampling", ["local", "weights"])


def make_backbone() -> nn.Sequential:
    return nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, N), nn.Tanh())


def make_network(
    name: str = "regression", sampling: Any = "local", seed: int = 0, **options: Any
) -> ll.Network:
    torch.manual_seed(seed)
    network = ll.Network(make_backbone(), HEADS[name](), **options)
    made = make_variational(network, sampling=sampling, initial_stddev=0.2)
    assert isinstance(made, ll.Network)
    return made


def make_data(name: str = "regression", seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(B, D, generator=generator)
    if name in ("regression", "correlated"):
        return inputs, torch.randn(B, K, generator=generator)
    return inputs, torch.randint(K, (B,), generator=generator)


def seeded(module: Any, *inputs: Any) -> Any:
    torch.manual_seed(7)
    return module(*inputs)


def silence(module: nn.Module) -> None:
    """Take the variance from all variational layers."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("log_stddev"):
                parameter.fill_(-80.0)


# ------------------------------------------------------------------------------ plain features


@every_head
def test_a_plain_network_is_its_head_on_its_features(name: str) -> None:
    network = ll.Network(make_backbone(), HEADS[name]())
    inputs, target = make_data(name)
    features, weight = network.backbone(inputs), torch.rand(B)
    expected = network.head(features)
    for predictive in (network(inputs), network.predict(inputs, num_samples=3)):
        assert type(predictive) is type(expected)
        assert_close(pytree.tree_leaves(predictive), pytree.tree_leaves(expected))
    assert_close(network(inputs, target), network.head(features, target))
    assert_close(network(inputs, target, weight), network.head(features, target, weight))
    assert_close(network.elbo(inputs, target), network.head.elbo(features, target))


def test_options_that_make_no_sense_are_refused() -> None:
    backbone, head = make_backbone(), HEADS["regression"]()
    with pytest.raises(ValueError, match="num_samples must be an integer of at least 1"):
        ll.Network(backbone, head, num_samples=0)
    with pytest.raises(ValueError, match="num_prediction_samples must be an integer"):
        ll.Network(backbone, head, num_prediction_samples=0)
    with pytest.raises(ValueError, match="feature_kl_weight must be a finite number"):
        ll.Network(backbone, head, feature_kl_weight=float("nan"))
    with pytest.raises(ValueError, match="feature_kl_weight must not be negative"):
        ll.Network(backbone, head, feature_kl_weight=-1.0)
    for network in (ll.Network(backbone, head), make_network()):
        with pytest.raises(ValueError, match="num_samples must be an integer of at least 1"):
            network.predict(torch.zeros(B, D), num_samples=0)
        with pytest.raises(ValueError, match="weight is for the loss"):
            network(torch.zeros(B, D), None, torch.ones(B))


# --------------------------------------------------------------------------- the objective


def make_linear(num_samples: int = 1, **options: Any) -> tuple[ll.Network, Tensor, Tensor]:
    """One variational layer without nonlinearity, whose expected loss has a closed form."""
    torch.manual_seed(2)
    head = ll.Regression(N, 1, num_data=T, covariance="diagonal")
    backbone = VariationalLinear(D, N, initial_stddev=0.3)
    inputs, target = torch.randn(B, D), torch.randn(B, 1)
    return ll.Network(backbone, head, num_samples=num_samples, **options), inputs, target


def expected_loss(network: ll.Network, inputs: Tensor, target: Tensor) -> Tensor:
    """E over both layers, by hand: φ ~ N(m, diag v), w ~ N(w̄, diag S)."""
    layer, head = network.backbone, network.head
    assert isinstance(layer, VariationalLinear)
    mean = inputs @ layer.weight.mT + layer.bias
    variance = inputs.square() @ (2 * layer.weight_log_stddev).exp().mT
    assert layer.bias_log_stddev is not None
    variance = variance + (2 * layer.bias_log_stddev).exp()
    weights, spread = head.mean, head.covariance.diagonal()  # (1, N)
    squares = (target - mean @ weights.mT).square() + variance @ weights.mT.square()
    squares = squares + (mean.square() + variance) @ spread.mT
    noise: Any = head.noise
    sigma = noise.variance()
    bound = (Normal(0.0, sigma.sqrt()).log_prob(torch.zeros(1)) - squares / (2 * sigma)).mean()
    parts = head.elbo(mean.detach(), target)
    divergence = network.feature_kl_weight * kl(layer) + head.prior.kl_weight * parts.kl
    return -bound + (divergence - parts.log_prior) / T


class Objective(nn.Module):
    """A loss of a network, as a module."""

    def __init__(self, network: ll.Network, loss: Callable[[ll.Network], Tensor]) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self) -> Tensor:
        return self.loss(self.network)


def slopes(network: ll.Network, loss: Callable[[ll.Network], Tensor], count: int) -> Tensor:
    """Gradients of many draws of a loss, (count, number of parameters)."""
    objective = Objective(network, loss)
    parameters = {name: tensor.detach() for name, tensor in objective.named_parameters()}

    def call(parameters: dict[str, Tensor], draw: Tensor) -> Tensor:
        return functional_call(objective, parameters, ())

    drawn = vmap(grad(call), in_dims=(None, 0), randomness="different")(
        parameters, torch.arange(count)
    )
    return torch.cat([drawn[name].flatten(1) for name in parameters], -1)


@pytest.mark.parametrize("num_samples", [1, 4])
@both_samplings
def test_the_loss_and_its_gradient_estimate_the_collapsed_objective_without_bias(
    sampling: Any, num_samples: int
) -> None:
    network, inputs, target = make_linear(num_samples, feature_kl_weight=0.4)
    network.backbone.sampling = sampling
    count = 4_000
    exact = expected_loss(network, inputs, target)
    with torch.no_grad():
        losses = torch.stack([network(inputs, target) for _ in range(500)])
    assert_within_standard_errors(exact, losses.mean(), losses.std() / 500**0.5)
    gradients = torch.autograd.grad(exact, list(network.parameters()))
    expected = torch.cat([gradient.flatten() for gradient in gradients])
    drawn = slopes(network, lambda model: model(inputs, target), count)
    # rounding for those that do not depend on the draw
    error = drawn.std(0) / count**0.5 + 1e-12
    assert_within_standard_errors(expected, drawn.mean(0), error)


def test_gradients_vary_less_than_if_the_last_layer_were_drawn_too() -> None:
    network, inputs, target = make_linear()

    def drawn_throughout(model: ll.Network) -> Tensor:
        head: Any = model.head
        features = model.backbone(inputs)
        noise = torch.randn(B, 1, N)  # an own draw for each example, the least noisy
        weights = head.mean + head.covariance.diagonal().sqrt() * noise
        mean = (weights * features.unsqueeze(1)).sum(-1)
        bound = Normal(mean, head.noise.variance().sqrt()).log_prob(target).mean()
        parts = head.elbo(features.detach(), target)
        return -bound + (head.prior.kl_weight * parts.kl - parts.log_prior + kl(model)) / T

    count = 10_000
    collapsed = slopes(network, lambda model: model(inputs, target), count)
    sampled = slopes(network, drawn_throughout, count)
    error = ((collapsed.var(0) + sampled.var(0)) / count).sqrt() + 1e-12
    assert_within_standard_errors(collapsed.mean(0), sampled.mean(0), error)  # the same objective
    sizes = [parameter.numel() for parameter in network.parameters()]
    for one, both in zip(collapsed.var(0).split(sizes), sampled.var(0).split(sizes), strict=True):
        assert one.sum() < both.sum()
    assert collapsed.var(0).sum() < 0.8 * sampled.var(0).sum()


@both_samplings
def test_more_samples_make_the_loss_vary_less(sampling: Any) -> None:
    inputs, target = make_data()
    variances = []
    for num_samples in (1, 8):
        network = make_network(sampling=sampling, num_samples=num_samples)
        with torch.no_grad():
            variances.append(torch.stack([network(inputs, target) for _ in range(400)]).var())
    # a ratio of 8 in expectation, of variances known to 7 percent each
    assert 8 / 1.6 < variances[0] / variances[1] < 8 * 1.6


@every_head
def test_each_divergence_has_its_own_weight(name: str) -> None:
    network, (inputs, target) = make_network(name, num_samples=3), make_data(name)
    network.head.prior = ll.Prior(kl_weight=0.7)
    weight = torch.rand(B)
    parts = seeded(network.elbo, inputs, target, weight)
    features = seeded(sample_features, network.backbone, inputs, 3)
    assert features.shape == (3, B, N)
    alone = [network.head.elbo(phi, target, weight) for phi in features]
    assert_close(parts.bound, torch.stack([part.bound for part in alone]).mean())
    assert_close(parts.kl, alone[0].kl)
    assert_close(parts.feature_kl, kl(network.backbone))
    assert_close(parts.log_prior, alone[0].log_prior)
    for feature_weight in (0.0, 0.3, 1.0):
        network.feature_kl_weight = feature_weight
        divergence = 0.7 * alone[0].kl + feature_weight * kl(network.backbone)
        expected = -parts.bound + (divergence - parts.log_prior) / T
        assert_close(seeded(network, inputs, target, weight), expected)


def test_a_target_of_another_shape_is_an_error_also_with_several_samples() -> None:
    network = make_network(num_samples=3)
    for shape in [(B,), (1, K), (3, B, K)]:
        with pytest.raises(ValueError, match="nothing is broadcast"):
            network(torch.zeros(B, D), torch.zeros(shape))
    single = ll.Network(make_variational(make_backbone()), ll.Regression(N, num_data=T))
    single.num_samples = 3
    target = torch.randn(B)
    alike = [seeded(single, torch.ones(B, D), y) for y in (target, target.unsqueeze(-1))]
    assert_close(alike[0], alike[1])


# ------------------------------------------------------------------------------- prediction


@every_head
@both_samplings
def test_a_prediction_mixes_the_heads_predictives_of_drawn_features(
    name: str, sampling: Any
) -> None:
    network, (inputs, target) = make_network(name, sampling), make_data(name)
    predictive = seeded(network.predict, inputs, 4)
    features = seeded(sample_features, network.backbone, inputs, 4)
    log_probs = torch.stack([network.head(phi).log_prob(target) for phi in features])
    assert_close(predictive.log_prob(target), log_probs.exp().mean(0).log())
    assert predictive.batch_shape == (B,)
    classes = name in ("discriminative", "generative")
    expected = ClassMixturePredictive if classes else GaussianMixturePredictive
    assert type(predictive) is expected
    network.num_prediction_samples = 4
    again = seeded(network, inputs)
    assert_close(pytree.tree_leaves(again), pytree.tree_leaves(predictive), rtol=0, atol=0)
    assert network.predict(inputs[:0]).batch_shape == (0,)


@both_samplings
def test_features_are_drawn_from_the_posterior_and_apart(sampling: Any) -> None:
    network, (inputs, _) = make_network(sampling=sampling), make_data()
    with torch.no_grad():
        drawn = sample_features(network.backbone, inputs, 1_000)
        alone = torch.stack([network.backbone(inputs) for _ in range(1_000)])
    error = ((drawn.var(0) + alone.var(0)) / 1_000).sqrt()
    assert_within_standard_errors(drawn.mean(0), alone.mean(0), error)
    first, second = (draws - draws.mean(0) for draws in (drawn, alone))
    error = ((first.square().var(0) + second.square().var(0)) / 1_000).sqrt()
    assert_within_standard_errors(first.square().mean(0), second.square().mean(0), error)
    product = first[:-1] * first[1:]  # of one draw and the next
    error = product.std(0) / 1_000**0.5
    assert_within_standard_errors(torch.zeros(B, N), product.mean(0), error)


@every_head
@both_samplings
def test_without_variance_everything_is_the_deterministic_network(name: str, sampling: Any) -> None:
    network, (inputs, target) = make_network(name, sampling, num_samples=3), make_data(name)
    silence(network)
    weights, biases = (
        [getattr(layer, key).detach() for layer in variational_layers(network)]
        for key in ("weight", "bias")
    )
    features = inputs
    for weight, bias in zip(weights, biases, strict=True):
        features = torch.tanh(features @ weight.mT + bias)
    plain = network.head(features)
    predictive = network(inputs)
    assert_close(predictive.log_prob(target), plain.log_prob(target))
    components = predictive.components
    for leaf, expected in zip(
        pytree.tree_leaves(components), pytree.tree_leaves(plain), strict=True
    ):
        assert_close(leaf, expected.unsqueeze(1).expand_as(leaf))
    divergence = kl(network.backbone) / T
    assert_close(network(inputs, target), network.head(features, target) + divergence)


def test_without_any_variance_only_noise_is_left(generator: torch.Generator) -> None:
    network, (inputs, _) = make_network(), make_data()
    silence(network)
    with torch.no_grad():
        network.head.covariance.set_isotropic(1e-30)
    predictive = network(inputs)
    point = network.sample_function(generator)(inputs)  # every draw is the mean
    assert_close(predictive.mean, point)
    assert predictive.epistemic_variance.max() < 1e-25
    assert_close(predictive.variance, predictive.noise_variance)
    assert predictive.mutual_information().abs().max() < 1e-12


def test_predictions_follow_from_a_generator_and_leave_the_global_one_alone() -> None:
    network, (inputs, _) = make_network(), make_data()
    before = torch.get_rng_state()
    means = [
        network.predict(inputs, 5, torch.Generator().manual_seed(seed)).mean  # type: ignore[attr-defined]
        for seed in (1, 1, 2)
    ]
    assert_close(torch.get_rng_state(), before)
    assert_close(means[0], means[1], rtol=0, atol=0)
    assert (means[0] - means[2]).abs().max() > 1e-3
    generator = torch.Generator().manual_seed(1)
    first, second = (network.predict(inputs, 5, generator) for _ in range(2))
    assert (first.mean - second.mean).abs().max() > 1e-3  # type: ignore[attr-defined]


@both_samplings
def test_predictions_in_threads_follow_from_their_own_generators(sampling: Any) -> None:
    network, inputs = make_network(sampling=sampling), make_data("regression")[0]

    def predict(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        draws: list[Any] = [network.predict(inputs, 3, generator) for _ in range(20)]
        return torch.stack([draw.mean for draw in draws]).detach()

    expected = [predict(seed) for seed in range(8)]
    torch.manual_seed(5)
    untouched = torch.rand(2)
    torch.manual_seed(5)
    with ThreadPoolExecutor(4) as pool:
        for actual, alone in zip(pool.map(predict, range(8)), expected, strict=True):
            assert_close(actual, alone, rtol=0, atol=0)
    assert_close(torch.rand(2), untouched, rtol=0, atol=0)


def test_drawn_functions_have_the_moments_of_the_prediction(generator: torch.Generator) -> None:
    network, (inputs, _) = make_network(), make_data()
    count = 300
    with torch.no_grad():
        values = torch.stack([network.sample_function(generator)(inputs) for _ in range(count)])
        exact: Any = network.predict(inputs, 20_000, generator)
        error = values.std(0) / count**0.5
        assert_within_standard_errors(exact.mean, values.mean(0), error * 1.01)
        squares = (values - exact.mean).square()
        error = squares.std(0) / count**0.5
        assert_within_standard_errors(exact.epistemic_variance, squares.mean(0), error * 1.01)


# ------------------------------------------------------------- what comes before is done once


class Counted(nn.Module):
    """The identity; remembers how often it was called, and on how many examples."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.batches.append(len(inputs))
        return inputs


class Residual(nn.Module):
    """Not a sequence."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.inner(inputs)


@both_samplings
@pytest.mark.parametrize("nested", [False, True])
def test_features_before_the_first_variational_layer_are_computed_once(
    sampling: Any, nested: bool
) -> None:
    before, after = Counted(), Counted()
    first, second = VariationalLinear(D, 8, sampling=sampling), nn.Linear(8, N)
    backbone = nn.Sequential(nn.Linear(D, D), before, first, after, second)
    if nested:
        inner = nn.Sequential(nn.Tanh(), before, nn.Sequential(first, after))
        backbone = nn.Sequential(nn.Sequential(nn.Linear(D, D)), inner, second)
    network = ll.Network(backbone, HEADS["regression"](), num_samples=3)
    inputs, target = make_data()
    for call in (lambda: network(inputs, target), lambda: network.predict(inputs, 3)):
        before.batches.clear()
        after.batches.clear()
        call()
        assert before.batches == [B]
        assert after.batches == ([3 * B] if sampling == "local" else [B] * 3)


def test_a_sequence_with_hooks_is_called_as_a_whole() -> None:
    backbone = make_variational(make_backbone(), layers="last")
    expected = seeded(sample_features, backbone, torch.ones(B, D), 3)
    calls: list[int] = []
    backbone.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    assert_close(seeded(sample_features, backbone, torch.ones(B, D), 3), expected)
    assert calls == [3 * B]


@both_samplings
def test_any_module_and_any_nest_of_inputs_will_do(sampling: Any) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = VariationalLinear(D, N, sampling=sampling)
            self.rest = Residual(nn.Linear(N, N))

        def forward(self, inputs: dict[str, Any]) -> Tensor:
            return self.rest(self.layer(inputs["left"]) * inputs["scale"] + inputs["right"])

    network = ll.Network(Two(), HEADS["regression"](), num_samples=4)
    left, target = make_data()
    inputs = {"left": left, "right": torch.randn(B, 1), "scale": 2.0}
    assert network(inputs, target).shape == ()
    assert network(inputs).mean.shape == (B, K)
    silence(network)
    expected = network.head(network.backbone(inputs)).mean
    assert_close(network(inputs).mean, expected)
    inputs["right"] = torch.zeros(N)  # no examples along its first dimension
    if sampling == "local":
        with pytest.raises(ValueError, match="need examples along the first dimension"):
            network(inputs)
    else:
        assert network(inputs).mean.shape == (B, K)


@both_samplings
def test_sequences_keep_their_leading_dimensions(sampling: Any) -> None:
    network = make_network(sampling=sampling, num_samples=3)
    inputs, target = torch.randn(2, 4, D), torch.randn(2, 4, K)
    assert network(inputs).batch_shape == (2, 4)
    assert network(inputs)[1, 2].mean.shape == (K,)
    assert network(inputs, target).shape == ()


def test_batch_norm_sees_all_draws_together_if_they_are_local_and_each_if_not() -> None:
    updates: dict[Any, int] = {"local": 1, "weights": 3}
    for sampling, count in updates.items():
        norm = nn.BatchNorm1d(N)
        layer = VariationalLinear(D, N, sampling=sampling, initial_stddev=1.0)
        network = ll.Network(nn.Sequential(layer, norm), HEADS["regression"](), num_samples=3)
        network(*make_data())
        assert int(norm.num_batches_tracked or 0) == count
        state = copy.deepcopy(norm.state_dict())
        network.eval()(make_data()[0])
        assert_close(norm.state_dict(), state, rtol=0, atol=0)


# ------------------------------------------------------------------------------- deployment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampling"),
    [("regression", "local"), ("generative", "weights")],
)
@pytest.mark.usefixtures("_fresh_compiler")
def test_a_compiled_network_equals_eager_in_both_calls(name: str, sampling: Any) -> None:
    network, data = make_network(name, sampling, num_samples=2), make_data(name)
    network.num_prediction_samples = 2
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    results = []
    for model in (network, compiled):
        network.zero_grad()
        loss = seeded(model, *data)
        loss.backward()
        results.append((loss.detach(), [copy.copy(p.grad) for p in network.parameters()]))
    assert_close(results[1], results[0])
    with torch.no_grad():
        eager, traced = (seeded(model, data[0]) for model in (network, compiled))
    assert type(traced) is type(eager)
    assert_close(pytree.tree_leaves(traced), pytree.tree_leaves(eager))


@both_samplings
def test_stacked_networks_train_and_predict_as_a_loop_over_them(sampling: Any) -> None:
    networks = [make_network(sampling=sampling, seed=seed, num_samples=2) for seed in range(3)]
    for network in networks[1:]:
        silence(network)  # so that there is something to compare with
    inputs, target = make_data()
    state = stack_module_state(networks)
    template = copy.deepcopy(networks[0]).to("meta")

    def call(params: dict[str, Tensor], buffers: dict[str, Tensor], *batch: Tensor) -> Any:
        return functional_call(template, (params, buffers), batch)

    losses = vmap(call, in_dims=(0, 0, None, None), randomness="different")(*state, inputs, target)
    predictive = vmap(call, in_dims=(0, 0, None), randomness="different")(*state, inputs)
    gradients = vmap(grad(call), in_dims=(0, 0, None, None), randomness="different")(
        *state, inputs, target
    )
    assert predictive.batch_shape == (3, B)
    assert predictive[0].components.mean.std(1).min() > 1e-4
    for index in (1, 2):
        alone = networks[index](inputs, target)
        assert_close(losses[index], alone)
        assert_close(predictive[index].mean, networks[index](inputs).mean)
        alone.backward()
        for key, parameter in networks[index].named_parameters():
            assert_close(gradients[key][index], parameter.grad)
    # other draws in other networks: the same weights, stacked twice, have different losses
    twins = stack_module_state([networks[0], networks[0]])
    first, second = vmap(call, in_dims=(0, 0, None, None), randomness="different")(
        *twins, inputs, target
    )
    assert (first - second).abs() > 1e-6


@both_samplings
def test_every_parameter_learns_through_ddp(sampling: Any, tmp_path: Path) -> None:
    network, data = make_network(sampling=sampling, num_samples=2), make_data()
    loss = seeded(network, *data)
    loss.backward()
    expected = [copy.copy(parameter.grad) for parameter in network.parameters()]
    network.zero_grad()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(network)
        seeded(wrapped, *data).backward()
    finally:
        dist.destroy_process_group()
    assert_close([parameter.grad for parameter in network.parameters()], expected)


def test_copies_and_files_predict_the_same(tmp_path: Path) -> None:
    network, (inputs, _) = make_network(), make_data()
    expected = pytree.tree_leaves(seeded(network, inputs))
    twin = copy.deepcopy(network)
    assert_close(pytree.tree_leaves(seeded(twin, inputs)), expected, rtol=0, atol=0)
    save_file(network.state_dict(), tmp_path / "network.safetensors")
    other = make_network(seed=1)
    other.load_state_dict(load_file(tmp_path / "network.safetensors"))
    assert_close(pytree.tree_leaves(seeded(other, inputs)), expected, rtol=0, atol=0)
