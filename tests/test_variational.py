"""Variational layers against torch.distributions and against drawing their weights."""

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.testing import assert_close

from lastlayer.variational import (
    LAYERS,
    VariationalConv1d,
    VariationalConv2d,
    VariationalConv3d,
    VariationalLayer,
    VariationalLinear,
    kl,
    make_variational,
    sample_weights,
    variational_layers,
)
from tests.helpers.reference import assert_within_standard_errors, randomize

CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = {
    "linear": (VariationalLinear, (4, 3), {}, (2, 4)),
    "linear-no-bias": (VariationalLinear, (4, 3), {"bias": False}, (2, 4)),
    "conv1d": (VariationalConv1d, (2, 4, 3), {"padding": 2, "dilation": 2}, (2, 2, 7)),
    "conv2d": (
        VariationalConv2d,
        (4, 6, (3, 2)),
        {"stride": 2, "padding": 1, "dilation": (1, 2), "groups": 2},
        (2, 4, 6, 5),
    ),
    "conv2d-circular": (
        VariationalConv2d,
        (2, 3, 3),
        {"padding": 1, "padding_mode": "circular", "bias": False},
        (2, 2, 4, 4),
    ),
    "conv3d": (VariationalConv3d, (2, 2, (3, 1, 3)), {"padding": "same"}, (1, 2, 3, 3, 2)),
}
every_layer = pytest.mark.parametrize("name", CASES)
TYPES = [VariationalLinear, VariationalConv1d, VariationalConv2d, VariationalConv3d]


def make_layer(name: str, generator: torch.Generator, **options: Any) -> VariationalLayer:
    make, args, kwargs, _ = CASES[name]
    layer: VariationalLayer = make(*args, **kwargs, **options)
    randomize(layer, generator)
    return layer


def make_inputs(name: str, generator: torch.Generator) -> Tensor:
    return torch.randn(CASES[name][3], generator=generator)


def draws(module: Any, inputs: Tensor, count: int) -> Tensor:
    """Outputs of many calls, (count, …)."""
    with torch.no_grad():
        return torch.stack([module(inputs) for _ in range(count)])


# --------------------------------------------------------------------------------------- layers


@every_layer
def test_kl_is_that_of_torch(name: str, generator: torch.Generator) -> None:
    layer = make_layer(name, generator, prior_variance=0.3)
    expected = torch.zeros(())
    for key in ("weight", "bias"):
        if (mean := getattr(layer, key)) is not None:
            posterior = Normal(mean, getattr(layer, f"{key}_log_stddev").exp())
            expected = expected + kl_divergence(posterior, Normal(0.0, 0.3**0.5)).sum()
    assert_close(layer.kl(), expected)
    assert_close(kl(layer), expected)


@every_layer
def test_the_prior_by_the_papers_rule_has_variance_four_over_the_root_of_the_inputs(
    name: str, generator: torch.Generator
) -> None:
    layer = make_layer(name, generator)
    inputs = layer.weight.numel() // layer.weight.shape[0]
    assert layer.prior_variance == 4 / math.sqrt(inputs)
    assert f"prior_variance={layer.prior_variance:.4g}" in repr(layer)


@every_layer
@pytest.mark.parametrize("sampling", ["local", "weights"])
def test_outputs_have_the_moments_of_drawn_weights(
    name: str, sampling: Any, generator: torch.Generator
) -> None:
    layer = make_layer(name, generator, sampling=sampling, initial_stddev=0.4)
    inputs = make_inputs(name, generator)
    # the layer is linear in independent weights: probe it weight by weight
    mean = sum_of_squares = torch.zeros(())
    plain = layer.plain.forward
    twin = sample_weights(layer)
    for key in ("weight", "bias"):
        if getattr(layer, key) is None:
            continue
        stddev = getattr(layer, f"{key}_log_stddev").exp().detach().flatten()
        for index, centre in enumerate(getattr(layer, key).detach().flatten()):
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter.zero_()
                getattr(twin, key).view(-1)[index] = 1.0
            slope = plain(twin, inputs)
            mean = mean + slope * centre
            sum_of_squares = sum_of_squares + (slope * stddev[index]).square()
    count = 2_000
    outputs = draws(layer, inputs, count)
    assert_within_standard_errors(mean, outputs.mean(0), outputs.std(0) / count**0.5)
    squares = (outputs - mean).square()
    assert_within_standard_errors(sum_of_squares, squares.mean(0), squares.std(0) / count**0.5)


def test_weights_are_common_to_examples_and_local_draws_are_not(
    generator: torch.Generator,
) -> None:
    inputs = torch.randn(1, 4, generator=generator).expand(2, 4)
    together = make_layer("linear", generator, sampling="weights")(inputs)
    apart = make_layer("linear", generator, sampling="local")(inputs)
    assert_close(together[0], together[1], rtol=0, atol=0)
    assert (apart[0] - apart[1]).abs().min() > 1e-4
    image = torch.ones(1, 2, 4, 4)
    pixels = make_layer("conv2d-circular", generator, sampling="weights")(image)
    assert_close(pixels, pixels[..., :1, :1].expand_as(pixels))
    pixels = make_layer("conv2d-circular", generator, sampling="local")(image)
    assert (pixels - pixels[..., :1, :1]).abs().max() > 1e-2  # as documented


def test_by_default_draws_are_local_only_where_that_is_exact() -> None:
    assert VariationalLinear(2, 2).sampling == "local"
    assert VariationalConv1d(2, 2, 1).sampling == "weights"
    assert VariationalConv2d(2, 2, 1).sampling == "weights"
    assert VariationalConv3d(2, 2, 1).sampling == "weights"


@every_layer
@pytest.mark.parametrize("sampling", ["local", "weights"])
def test_without_variance_a_layer_is_that_of_torch(
    name: str, sampling: Any, generator: torch.Generator
) -> None:
    layer = make_layer(name, generator, sampling=sampling)
    with torch.no_grad():
        for key, parameter in layer.named_parameters():
            if key.endswith("log_stddev"):
                parameter.fill_(-80.0)
    inputs = make_inputs(name, generator)
    assert_close(layer(inputs), layer.plain.forward(layer, inputs), rtol=1e-14, atol=1e-14)


def test_draws_are_made_in_training_and_in_evaluation() -> None:
    layer = VariationalLinear(4, 3)
    for mode in (True, False):
        layer.train(mode)
        first, second = draws(layer, torch.ones(4), 2)
        assert (first - second).abs().min() > 0


def test_an_input_of_zeros_has_finite_gradients() -> None:
    layer = VariationalLinear(4, 3, bias=False)
    inputs = torch.zeros(2, 4, requires_grad=True)
    layer(inputs).square().sum().backward()
    for tensor in (inputs, *layer.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_gradients_of_the_expected_output_are_those_of_its_closed_form(
    generator: torch.Generator,
) -> None:
    layer = make_layer("linear", generator)
    inputs = make_inputs("linear", generator)
    mean = nn.functional.linear(inputs, layer.weight, layer.bias)
    stddevs = [layer.weight_log_stddev.exp(), layer.bias_log_stddev.exp()]  # type: ignore[union-attr]
    variance = nn.functional.linear(inputs.square(), stddevs[0].square(), stddevs[1].square())
    parameters = list(layer.parameters())
    exact = torch.autograd.grad((mean.square() + variance).sum(), parameters)
    for sampling in ("local", "weights"):
        layer.sampling = sampling
        count = 1_000
        slopes = [
            torch.autograd.grad(layer(inputs).square().sum(), parameters) for _ in range(count)
        ]
        for value, drawn in zip(exact, zip(*slopes, strict=True), strict=True):
            stacked = torch.stack(drawn)
            error = stacked.std(0) / count**0.5
            assert_within_standard_errors(value, stacked.mean(0), error)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_standard_deviations_survive_half_precision(dtype: torch.dtype) -> None:
    # 1e-4 squared is less than the least positive number of float16
    layer = VariationalLinear(16, 2000, bias=False, initial_stddev=1e-4, dtype=torch.float32)
    nn.init.zeros_(layer.weight)
    inputs = torch.ones(1, 16, dtype=torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        cast = layer(inputs)
    for output in (cast, layer.to(dtype)(inputs.to(dtype))):
        assert output.dtype == dtype
        assert_close(output.double().std().item(), 4e-4, rtol=0.1, atol=0)


@every_layer
def test_a_meta_layer_starts_as_a_real_one(name: str) -> None:
    make, args, kwargs, _ = CASES[name]
    torch.manual_seed(3)
    real = make(*args, **kwargs)
    layer = make(*args, **kwargs, device="meta")
    assert all(parameter.is_meta for parameter in layer.parameters())
    assert layer(torch.empty(CASES[name][3], device="meta")).is_meta
    layer.to_empty(device="cpu")
    torch.manual_seed(3)
    layer.reset_parameters()
    assert_close(layer.state_dict(), real.state_dict())


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="prior_variance must be a finite number above zero"):
        VariationalLinear(2, 2, prior_variance=0.0)
    with pytest.raises(ValueError, match="did you mean 'fan_in'"):
        VariationalLinear(2, 2, prior_variance="fan-in")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="initial_stddev must be a finite number above zero"):
        VariationalConv1d(2, 2, 1, initial_stddev=-1.0)
    with pytest.raises(ValueError, match="did you mean 'local'"):
        VariationalLinear(2, 2, sampling="locals")  # type: ignore[arg-type]
    network = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="sampling must be one of"):
        make_variational(network, sampling="x", inplace=True)  # type: ignore[arg-type]
    assert type(network[0]) is nn.Linear  # not half converted


# ----------------------------------------------------------------------------- whole networks


def make_network() -> nn.Sequential:
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        block,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3, bias=False),
    )


def kinds(module: nn.Module) -> dict[str, type[nn.Module]]:
    return {name: type(layer) for name, layer in module.named_modules()}


def test_conversion_keeps_weights_as_means_and_leaves_the_original_alone() -> None:
    network = make_network()
    before, state = kinds(network), copy.deepcopy(network.state_dict())
    converted = make_variational(network, initial_stddev=0.01, prior_variance=0.5)
    assert kinds(network) == before
    after = converted.state_dict()
    assert {key for key in after if "log_stddev" not in key} == set(state)
    assert_close({key: after[key] for key in state}, state, rtol=0, atol=0)
    for key in after.keys() - state.keys():
        assert_close(after[key], torch.full_like(after[key], math.log(0.01)))
    assert {layer.prior_variance for layer in variational_layers(converted)} == {0.5}
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.add_(1.0)
    assert_close(network.state_dict(), state, rtol=0, atol=0)


def test_conversion_in_place_keeps_the_parameters_themselves() -> None:
    network = make_network()
    parameters = dict(network.named_parameters())
    assert make_variational(network, inplace=True) is network
    after = dict(network.named_parameters())
    assert all(after[name] is parameter for name, parameter in parameters.items())
    layer = nn.Linear(2, 2)
    assert type(make_variational(layer)) is VariationalLinear  # a network of one layer
    assert type(layer) is nn.Linear


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("all", {"0", "2.0", "5"}),
        ("last", {"5"}),
        (["0", "5"], {"0", "5"}),
        (["2"], {"2.0"}),  # a block
        ("2.0", {"2.0"}),
        ([""], {"0", "2.0", "5"}),
    ],
)
def test_the_layers_that_are_named_are_converted(layers: Any, expected: set[str]) -> None:
    converted = make_variational(make_network(), layers=layers)
    found = {n for n, kind in kinds(converted).items() if issubclass(kind, VariationalLayer)}
    assert found == expected


def test_what_cannot_be_converted_is_said() -> None:
    network = make_network()
    with pytest.raises(ValueError, match=r"got '7', but there is none of that name; there are '0'"):
        make_variational(network, layers=["0", "7"], inplace=True)
    with pytest.raises(ValueError, match="got '1', but it holds none"):
        make_variational(network, layers=["1"])
    with pytest.raises(ValueError, match="names nothing to convert"):
        make_variational(network, layers=[])
    with pytest.raises(ValueError, match="nothing to convert"):
        make_variational(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match="already variational"):
        make_variational(make_variational(network))
    assert not variational_layers(network)


def test_a_layer_used_twice_stays_one_layer_and_counts_once() -> None:
    shared = nn.Linear(3, 3)
    network = make_variational(nn.Sequential(shared, nn.Tanh(), shared))
    assert isinstance(network, nn.Sequential)
    assert network[0] is network[2]
    (layer,) = variational_layers(network)
    assert_close(kl(network), layer.kl())


def test_layers_that_share_a_parameter_are_refused() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    network = nn.Sequential(first, second)
    with pytest.raises(ValueError, match=r"layers \['0', '1'\] share a parameter"):
        make_variational(network)
    converted = make_variational(network, layers=["0"])
    assert isinstance(converted, nn.Sequential)
    assert converted[0].weight is converted[1].weight


def test_what_is_frozen_stays_frozen() -> None:
    network = make_variational(make_network().requires_grad_(False))
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_hooks_stay_on_converted_layers() -> None:
    calls: list[Tensor] = []
    network = make_network()
    network[5].register_forward_hook(lambda module, inputs, output: calls.append(output))
    converted = make_variational(network, inplace=True)
    output = converted(torch.randn(2, 2, 4, 4))
    assert calls[0] is output


def test_kl_of_a_network_is_the_sum_over_its_layers_and_zero_without_any() -> None:
    network = make_network()
    converted = make_variational(network)
    assert_close(kl(converted), sum(layer.kl() for layer in variational_layers(converted)))
    assert_close(kl(network), torch.zeros(()), rtol=0, atol=0)
    assert kl(network.to(torch.float32)).dtype == torch.float32
    assert kl(network.to("meta")).is_meta
    assert kl(nn.ReLU()).shape == ()


def test_a_transformer_draws_in_evaluation_too() -> None:
    # torch's fast path would use the weights without calling the layers
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    inputs, padding = torch.randn(2, 3, 8), torch.tensor([[False] * 3, [False, True, True]])
    converted = make_variational(encoder).eval()
    attention = [m for m in converted.modules() if isinstance(m, nn.MultiheadAttention)]
    assert not any(variational_layers(module) for module in attention)  # reads its weights
    with torch.no_grad():
        first = converted(inputs, src_key_padding_mask=padding)
        second = converted(inputs, src_key_padding_mask=padding)
        for log_stddev in (p for n, p in converted.named_parameters() if "log_stddev" in n):
            log_stddev.fill_(-80.0)
        mean = converted(inputs, src_key_padding_mask=padding)
        expected = encoder.train()(inputs, src_key_padding_mask=padding)
    assert (first - second)[~padding].abs().max() > 1e-3
    assert_close(mean[~padding], expected[~padding])


def test_drawn_weights_are_a_plain_network_with_the_posteriors_moments(
    generator: torch.Generator,
) -> None:
    network = make_variational(make_network(), initial_stddev=0.3)
    state = copy.deepcopy(network.state_dict())
    count = 300
    drawn = [sample_weights(network, generator) for _ in range(count)]
    assert kinds(drawn[0]) == kinds(make_network())
    assert not any(parameter.requires_grad for parameter in drawn[0].parameters())
    assert drawn[0].state_dict().keys() == make_network().state_dict().keys()
    inputs = torch.randn(2, 2, 4, 4, generator=generator)
    assert_close(drawn[0](inputs), drawn[0](inputs), rtol=0, atol=0)
    for key in ("0.weight", "2.0.bias", "5.weight"):
        values = torch.stack([module.state_dict()[key] for module in drawn])
        error = values.std(0) / count**0.5
        assert_within_standard_errors(state[key], values.mean(0), error)
        squares = (values - state[key]).square()
        variance = torch.full_like(state[key], 0.09)
        assert_within_standard_errors(variance, squares.mean(0), squares.std(0) / count**0.5)
    assert_close(network.state_dict(), state, rtol=0, atol=0)
    again = sample_weights(network, torch.Generator().manual_seed(5))
    same = sample_weights(network, torch.Generator().manual_seed(5))
    assert_close(again.state_dict(), same.state_dict(), rtol=0, atol=0)


# ------------------------------------------------------------------------ copies, files, graphs


def seeded(module: Any, *inputs: Tensor) -> Tensor:
    torch.manual_seed(7)
    return module(*inputs)


def test_copies_and_files_draw_the_same(tmp_path: Path) -> None:
    network = make_variational(make_network())
    inputs = torch.randn(2, 2, 4, 4)
    network.eval()
    expected = seeded(network, inputs)
    assert_close(seeded(copy.deepcopy(network), inputs), expected, rtol=0, atol=0)
    assert_close(seeded(pickle.loads(pickle.dumps(network)), inputs), expected, rtol=0, atol=0)
    save_file(network.state_dict(), tmp_path / "network.safetensors")
    other = make_variational(make_network()).eval()
    other.load_state_dict(load_file(tmp_path / "network.safetensors"))
    assert_close(seeded(other, inputs), expected, rtol=0, atol=0)
    other.load_state_dict(make_network().state_dict(), strict=False)  # means of a plain network


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["local", "weights"])
@pytest.mark.usefixtures("_fresh_compiler")
def test_a_compiled_network_draws_the_same(sampling: Any) -> None:
    network = make_variational(make_network(), sampling=sampling).eval()
    inputs = torch.randn(2, 2, 4, 4)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    assert_close(seeded(compiled, inputs), seeded(network, inputs))


def test_every_layer_that_is_converted_has_its_own_type() -> None:
    assert list(LAYERS.values()) == TYPES
    for plain, layer in LAYERS.items():
        assert issubclass(layer, plain)
