"""Post-training: the layer found, the backbone left alone, the head solved."""

import copy
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer.posttraining import Features, posttrain
from lastlayer.posttraining.last_layer import find_last_layer

T, K = 40, 3


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.convolution(x)))


class ResNet(nn.Module):
    def __init__(self, channels: int = 6, num_outputs: int = K) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, channels, 3, padding=1)
        self.blocks = nn.Sequential(Block(channels), Block(channels))
        self.drop = nn.Dropout(0.3)
        self.classifier = nn.Linear(channels, num_outputs)

    def features(self, x: Tensor) -> Tensor:
        return self.drop(self.blocks(self.stem(x)).mean((-2, -1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class Transformer(nn.Module):
    """Pools over the sequence, or keeps it; takes a dictionary, as many do."""

    def __init__(self, pool: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool = pool
        self.heads = nn.ModuleDict({"unused": nn.Linear(8, K), "task": nn.Linear(8, K)})

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        encoded = self.encoder(self.embedding(batch["tokens"]))
        return self.heads["task"](encoded.mean(1) if self.pool else encoded)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = nn.ModuleList([nn.Sequential(nn.Linear(4, 5), nn.ReLU()), nn.Linear(5, K)])
        self.parts = nn.ModuleDict({"deep": nn.ModuleList([inner])})

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts["deep"][0]:  # type: ignore[index]
            x = part(x)
        return x


class Wrapped(nn.Module):
    """A network of which `after` says what it returns."""

    def __init__(self, after: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh())
        self.first, self.second = nn.Linear(5, K), nn.Linear(5, K)
        self.after = after

    def forward(self, x: Tensor) -> Any:
        return self.after(self, self.body(x))


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(T, 2, 5, 5, generator=generator),
        torch.randint(K, (T,), generator=generator),
    )


def vectors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(T, 4, generator=generator), torch.randint(K, (T,), generator=generator)


def snapshot(model: nn.Module) -> tuple[Any, ...]:
    return (
        {name: value.clone() for name, value in model.state_dict().items()},
        [part.training for part in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()],
    )


def assert_unchanged(model: nn.Module, before: tuple[Any, ...]) -> None:
    after = snapshot(model)
    assert before[1:] == after[1:]
    assert before[0].keys() == after[0].keys()
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])


# ------------------------------------------------------------------------------ the backbone


@pytest.mark.parametrize("head", ["regression", "discriminative", "generative"])
def test_the_original_and_the_statistics_of_the_backbone_stay_bit_identical(
    head: str, generator: torch.Generator
) -> None:
    model = ResNet().train()
    model.stem.requires_grad_(False)
    model.blocks[1].eval()
    model.blocks.register_forward_hook(lambda *_: None)
    inputs, labels = images(generator)
    model(inputs)  # batch-norm statistics away from their start
    target = F.one_hot(labels, K).double() if head == "regression" else labels
    before = snapshot(model)
    network = posttrain(model, (inputs, target), head, batch_size=7)
    assert_unchanged(model, before)
    assert isinstance(model.classifier, nn.Linear)
    state = network.backbone.state_dict()
    assert all(torch.equal(state[name], before[0][name]) for name in state)
    assert "stem.weight" in state
    assert "classifier.weight" not in state
    parts = [part.training for part in network.backbone.modules()]
    assert parts == before[1]
    mine = {value.data_ptr() for value in model.parameters()}
    assert mine.isdisjoint(value.data_ptr() for value in network.parameters())


def test_in_place_takes_the_layer_out_of_the_model_and_puts_it_back_on_failure(
    generator: torch.Generator,
) -> None:
    model, (inputs, labels) = ResNet(), images(generator)
    before = snapshot(model)
    with pytest.raises(ValueError, match="NaN or infinite"):
        posttrain(model, (inputs * float("nan"), labels), "generative", inplace=True)
    assert_unchanged(model, before)
    network = posttrain(model, (inputs, labels), "generative", inplace=True)
    assert network.backbone is model
    assert isinstance(model.classifier, nn.Identity)


# --------------------------------------------------------------------------------- oracles


def test_regression_is_ridge_regression_on_the_features(generator: torch.Generator) -> None:
    model = ResNet(num_outputs=2).eval()
    inputs = images(generator)[0]
    target = torch.randn(T, 2, generator=generator)
    prior = ll.Prior(variance=2.5)
    network = posttrain(model, (inputs, target), "regression", prior=prior, batch_size=9)
    with torch.no_grad():
        phi = torch.cat([model.features(inputs), torch.ones(T, 1)], -1)
    assert isinstance(network.head, ll.Regression)
    noise = network.head.noise.variance().detach()
    for k in range(2):
        precision = torch.eye(7) / 2.5 + phi.mT @ phi / noise[k]
        mean = torch.linalg.solve(precision, phi.mT @ target[:, k] / noise[k])
        torch.testing.assert_close(network.head.mean[k].detach(), mean, rtol=1e-6, atol=1e-8)
    shared = torch.eye(7) / 2.5 + (1 / noise).mean() * phi.mT @ phi
    quadratic = (phi @ torch.linalg.inv(shared) * phi).sum(-1)
    predictive = network.eval()(inputs)
    torch.testing.assert_close(predictive.mean, phi @ network.head.mean.mT)
    epistemic = predictive.epistemic_variance[:, 0]
    torch.testing.assert_close(epistemic, quadratic, rtol=1e-6, atol=1e-10)
    # the noise is at the mode of its inverse-Wishart posterior
    error = target - phi @ network.head.mean.mT.detach()
    scatter = error.square().sum(0) + quadratic.sum() + prior.noise_scale
    torch.testing.assert_close(noise, scatter / (T + prior.noise_dof + 3), rtol=1e-6, atol=0)
    assert network.head.num_data == T


def test_generative_is_the_posterior_of_class_means_and_counts(generator: torch.Generator) -> None:
    model, (inputs, labels) = ResNet().eval(), images(generator)
    network = posttrain(model, (inputs, labels), "generative")
    with torch.no_grad():
        phi = model.features(inputs)
    head = network.head
    assert isinstance(head, ll.GenerativeClassification)
    counts = labels.bincount(minlength=K)
    torch.testing.assert_close(head.concentration, 1.0 + counts)
    for k in range(K):  # the prior weighs as much as one observation at the origin
        mean = phi[labels == k].sum(0) / (counts[k] + 1)
        torch.testing.assert_close(head.mean[k].detach(), mean)
    about: Any = network.posttraining
    assert "leave-one-out" in about.reason
    assert about.loss is None
    by_hand = ll.GenerativeClassification(phi.shape[-1], K, num_data=T, noise="dense")
    by_hand.start_from(model.classifier)
    by_hand.fit_features(phi, labels)
    torch.testing.assert_close(head.noise.covariance(), by_hand.noise.covariance())
    chosen: Any = posttrain(model, (inputs, labels), "generative", validation=(inputs, labels))
    assert chosen.posttraining.reason == "chosen by the validation data"


def test_discriminative_on_a_transformer_reaches_the_optimum_of_an_independent_optimiser(
    generator: torch.Generator,
) -> None:
    model = Transformer()
    tokens = torch.randint(11, (T, 6), generator=generator)
    labels = torch.randint(K, (T,), generator=generator)
    data = ({"tokens": tokens}, labels)
    network = posttrain(model, data, "discriminative", tolerance=1e-9, max_passes=200)
    assert find_last_layer(model, {"tokens": tokens[:2]}).name == "heads.task"
    oracle = copy.deepcopy(network).eval()
    with torch.no_grad():
        phi = oracle.backbone({"tokens": tokens})
    oracle.head.reset_parameters()
    optimizer = torch.optim.LBFGS(
        oracle.head.parameters(), max_iter=2000, history_size=50, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = oracle.head(phi, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    ours, theirs = network.head(phi, labels), oracle.head(phi, labels)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
    gradients = torch.autograd.grad(ours, list(network.head.parameters()))
    assert max(gradient.abs().max().item() for gradient in gradients) < 1e-3


def test_without_uncertainty_the_start_predicts_what_the_original_does(
    generator: torch.Generator,
) -> None:
    model, (inputs, labels) = ResNet().eval(), images(generator)
    factory = partial(ll.DiscriminativeClassification, noise="none", bias=True)
    network = posttrain(model, (inputs, labels), factory, max_passes=1)  # looks, does not move
    network.head.covariance.set_isotropic(1e-20)
    probs = network.eval()(inputs).probs()
    torch.testing.assert_close(probs, model(inputs).softmax(-1), rtol=1e-6, atol=1e-9)


def test_a_single_logit_becomes_two_classes(generator: torch.Generator) -> None:
    model, inputs = ResNet(num_outputs=1).eval(), images(generator)[0]
    data = (inputs, torch.randint(2, (T,), generator=generator))
    network = posttrain(model, data, "discriminative", noise="none", max_passes=1)
    network.head.covariance.set_isotropic(1e-20)
    probs = network.eval()(inputs).probs()[:, 1]
    torch.testing.assert_close(probs, model(inputs).squeeze(-1).sigmoid(), rtol=1e-6, atol=1e-9)


def test_positions_of_a_sequence_are_examples(generator: torch.Generator) -> None:
    model = Transformer(pool=False)
    inputs = {"tokens": torch.randint(11, (T, 6), generator=generator)}
    labels = torch.randint(K, (T, 6), generator=generator)
    network = posttrain(model, (inputs, labels), "generative", batch_size=16)
    assert network.head.num_data == 6 * T
    concentration = network.head.concentration
    assert isinstance(concentration, Tensor)
    torch.testing.assert_close(concentration, 1.0 + labels.flatten().bincount(minlength=K))
    assert network(inputs).probs().shape == (T, 6, K)


def test_loaders_datasets_and_generators_give_what_tensors_give(generator: torch.Generator) -> None:
    model, data = Nested(), vectors(generator)
    whole = posttrain(model, data, "generative").head.state_dict()
    dataset = TensorDataset(*data)
    loader: Any = DataLoader(dataset, batch_size=7)
    for other in (dataset, loader, iter(list(loader))):
        state = posttrain(model, other, "generative", batch_size=11).head.state_dict()
        for name, value in whole.items():
            torch.testing.assert_close(state[name], value)


def test_a_given_head_is_fitted_in_place_and_keeps_its_options(generator: torch.Generator) -> None:
    head = ll.DiscriminativeClassification(5, K, num_data=1, covariance="diagonal", bound="tilted")
    data = vectors(generator)
    network = posttrain(Nested(), data, head)
    assert network.head is head
    assert head.num_data == T
    start = copy.deepcopy(head)
    start.reset_parameters()
    phi = network.backbone(data[0])
    assert head(phi, data[1]) < start(phi, data[1])
    with pytest.raises(TypeError, match="covariance"):
        posttrain(Nested(), data, head, covariance="dense")
    wide = ll.Regression(9, K, num_data=1)
    with pytest.raises(ValueError, match="num_features=9"):
        posttrain(Nested(), data, wide)
    few = ll.DiscriminativeClassification(5, 2, num_data=1)
    with pytest.raises(ValueError, match="2 outputs"):
        posttrain(Nested(), data, few)


# ------------------------------------------------------------------------------- the last layer


def test_a_deeply_nested_layer_is_found(generator: torch.Generator) -> None:
    inputs = vectors(generator)[0]
    assert find_last_layer(Nested(), inputs)[::2] == ("parts.deep.0.1", True)
    assert find_last_layer(nn.Linear(4, 2), inputs)[::2] == ("", True)


RETURNED: dict[str, Callable[[Any, Tensor], Any]] = {
    "as it is": lambda m, x: m.first(x),
    "after dropout in evaluation": lambda m, x: F.dropout(m.first(x), 0.5, m.training),
    "beside another": lambda m, x: (m.second(x).sum(), m.first(x))[1],
}
AMBIGUOUS: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "softmax": (lambda m, x: m.first(x).softmax(-1), "'first'"),
    "relu in place": (lambda m, x: m.first(x).relu_(), "'first'"),
    "relu of what is positive": (lambda m, x: (m.first(x) * 0 + 1).relu(), "'first'"),
    "both": (lambda m, x: (m.first(x), m.second(x)), "several layers.*'second', 'first'"),
    "sum of both": (lambda m, x: m.first(x) + m.second(x), "'second', 'first'"),
    "squeezed": (lambda m, x: m.first(x).unsqueeze(0), "'second'|'first'"),
    "used twice": (lambda m, x: m.first(m.body(m.first(x) @ torch.ones(K, 4))), "used 2 times"),
}


@pytest.mark.parametrize("case", RETURNED)
def test_the_layer_whose_output_is_returned_is_found(case: str, generator: torch.Generator) -> None:
    inputs = vectors(generator)[0]
    assert find_last_layer(Wrapped(RETURNED[case]), inputs)[::2] == ("first", True)


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_ambiguous_last_layer_is_an_error_that_names_the_candidates(
    case: str, generator: torch.Generator
) -> None:
    after, message = AMBIGUOUS[case]
    with pytest.raises(ValueError, match=message):
        posttrain(Wrapped(after), vectors(generator))


def test_an_activation_that_happens_to_change_nothing_is_noticed(
    generator: torch.Generator,
) -> None:
    model = Wrapped(lambda m, x: m.first(x).relu())
    nn.init.constant_(model.first.bias, 100.0)  # relu is the identity on these outputs
    with pytest.raises(ValueError, match=r"as it is.*'first'"):
        find_last_layer(model, vectors(generator)[0])


def test_what_cannot_be_replaced_is_a_clear_error(generator: torch.Generator) -> None:
    inputs, labels = images(generator)
    convolution = nn.Sequential(nn.Conv2d(2, K, 1))
    with pytest.raises(ValueError, match="convolution '0'"):
        posttrain(convolution, (inputs, labels))
    with pytest.raises(ValueError, match=r"no nn\.Linear"):
        posttrain(nn.Flatten(), (inputs, labels))
    with pytest.raises(ValueError, match=r"no such layer.*'classifier'"):
        posttrain(ResNet(), (inputs, labels), layer="clasifier")
    with pytest.raises(ValueError, match="a Conv2d"):
        posttrain(ResNet(), (inputs, labels), layer="stem")
    with pytest.raises(ValueError, match="no examples"):
        posttrain(ResNet(), (inputs[:0], labels[:0]))
    with pytest.raises(ValueError, match="hold targets"):
        posttrain(ResNet(), (inputs,))
    with pytest.raises(ValueError, match="did you mean"):
        posttrain(ResNet(), (inputs, labels), "discriminativ")
    with pytest.raises(ValueError, match="used 0 times"):
        find_last_layer(Transformer(), {"tokens": torch.zeros(2, 3).long()}, "heads.unused")


def test_what_follows_a_named_layer_does_not_matter(
    generator: torch.Generator, tmp_path: Path
) -> None:
    data = vectors(generator)
    plain, followed = Wrapped(RETURNED["as it is"]), Wrapped(AMBIGUOUS["softmax"][0])
    followed.load_state_dict(plain.state_dict())
    expected = posttrain(plain, data)
    network = posttrain(followed, data, layer="first")
    torch.testing.assert_close(network(data[0]).probs(), expected(data[0]).probs())
    # copies and checkpoints
    copied = copy.deepcopy(network)
    save_model(network, str(tmp_path / "network.safetensors"))
    for parameter in copied.parameters():
        nn.init.zeros_(parameter)
    load_model(copied, str(tmp_path / "network.safetensors"))
    torch.testing.assert_close(copied(data[0]).probs(), expected(data[0]).probs())


def test_a_dictionary_with_one_linear_output_needs_no_name(generator: torch.Generator) -> None:
    data = vectors(generator)
    plain = Wrapped(RETURNED["as it is"])
    wrapped = Wrapped(lambda m, x: {"logits": m.first(x), "features": x})
    wrapped.load_state_dict(plain.state_dict())
    expected, network = posttrain(plain, data), posttrain(wrapped, data)
    torch.testing.assert_close(network(data[0]).probs(), expected(data[0]).probs())


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


class Slotted:
    __slots__ = ("logits",)

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class ModelOutput(OrderedDict[str, Tensor]):
    """A dictionary with attributes, of a class that torch does not know."""


OBJECTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "dataclass": lambda logits, x: Output(logits, (x, x)),
    "attributes": lambda logits, x: SimpleNamespace(logits=logits, features=[x]),
    "slots": lambda logits, x: Slotted(logits),
    "mapping": lambda logits, x: ModelOutput(logits=logits, features=x),
    "nest": lambda logits, x: {"output": Output(logits), "more": 3},
}


@pytest.mark.parametrize("case", OBJECTS)
def test_an_object_with_one_linear_output_needs_no_name(
    case: str, generator: torch.Generator
) -> None:
    data = vectors(generator)
    plain = Wrapped(RETURNED["as it is"])
    wrapped = Wrapped(lambda m, x: OBJECTS[case](m.first(x), x))
    wrapped.load_state_dict(plain.state_dict())
    expected, network = posttrain(plain, data), posttrain(wrapped, data)
    assert_close(network(data[0]).probs(), expected(data[0]).probs())


def test_an_output_that_hides_its_tensors_asks_for_the_name_of_the_layer(
    generator: torch.Generator,
) -> None:
    data = vectors(generator)
    hidden = Wrapped(lambda m, x: SimpleNamespace(inner=Output(m.first(x))))
    message = r"a SimpleNamespace in which no tensor is found; name one with layer=….*'first'"
    with pytest.raises(ValueError, match=message):
        posttrain(hidden, data)
    assert posttrain(hidden, data, layer="first")(data[0]).probs().shape == (T, K)


def test_a_lazy_layer_is_refused_and_left_as_it_was(generator: torch.Generator) -> None:
    inputs, labels = vectors(generator)
    model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(K))
    with pytest.raises(ValueError, match=r"'0\.weight'.*lazy layers.*run the model once, train"):
        posttrain(model, (inputs, labels), inplace=True)
    assert isinstance(model[0], nn.LazyLinear)
    model(inputs)
    posttrain(model, (inputs, labels))


def test_single_precision_stays_single_and_half_precision_is_solved(
    generator: torch.Generator,
) -> None:
    inputs, labels = vectors(generator)
    for dtype, error in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        model = Nested()
        expected = posttrain(model, (inputs, labels))(inputs).probs()
        data = (inputs.to(dtype), labels)
        network = posttrain(model.to(dtype), data)
        assert network.head.mean.dtype == dtype
        probs = network(data[0]).probs().double()
        assert (probs - expected).abs().max() < error


@pytest.mark.parametrize("row_covariance", ["identity", "noise"])
def test_regression_finds_the_noise_wherever_the_scale_of_the_weights_is_meant(
    row_covariance: str, generator: torch.Generator
) -> None:
    layer, noise = nn.Linear(6, 1), 0.01  # weights of order one, many times the noise
    with torch.no_grad():
        layer.weight.copy_(torch.randn(1, 6, generator=generator))
    inputs = torch.randn(400, 6, generator=generator)
    target = layer(inputs).detach() + noise * torch.randn(400, 1, generator=generator)
    network = ll.posttrain(layer, (inputs, target), "regression", row_covariance=row_covariance)
    stddev = network(inputs).noise_variance.sqrt()
    standard_error = noise / (2 * 400) ** 0.5
    assert (stddev - noise).abs().max() < 4 * standard_error
    torch.testing.assert_close(network.head.mean[:, :-1], layer.weight, rtol=0, atol=4 * noise / 20)


@pytest.mark.parametrize(("scale", "offset"), [(1e-3, 0.0), (1.0, 500.0), (1e3, 0.0)])
def test_regression_does_not_depend_on_the_units_of_the_targets(
    scale: float, offset: float, generator: torch.Generator
) -> None:
    inputs = torch.randn(60, 2, generator=generator)
    target = inputs.sin().sum(-1, keepdim=True) + 0.1 * torch.randn(60, 1, generator=generator)
    last = nn.Linear(8, 1)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), last)
    other_last = copy.deepcopy(last)
    with torch.no_grad():
        other_last.weight.mul_(scale)
        other_last.bias.mul_(scale).add_(offset)
    other = nn.Sequential(network[0], network[1], other_last)
    expected = ll.posttrain(network, (inputs, target), "regression")(inputs)
    actual = ll.posttrain(other, (inputs, scale * target + offset), "regression")(inputs)
    assert_close(actual.mean, scale * expected.mean + offset, rtol=1e-6, atol=1e-6 * scale)
    assert_close(actual.variance, scale**2 * expected.variance, rtol=1e-5, atol=0)


def test_labels_out_of_range_are_named() -> None:
    network = nn.Sequential(nn.Linear(2, 3))
    for head in ("discriminative", "generative"):
        with pytest.raises(ValueError, match="class labels must lie in 0 … 2"):
            ll.posttrain(network, (torch.randn(9, 2), torch.arange(9) % 4), head)


@pytest.mark.parametrize("head", ["discriminative", "generative"])
def test_numbers_for_a_classifier_say_which_head_takes_them(head: str) -> None:
    data = (torch.randn(20, 3), torch.randn(20, 1))
    with pytest.raises(TypeError, match="for numbers pass head='regression'"):
        ll.posttrain(nn.Linear(3, 2), data, head, progress=False)


def test_large_features_come_to_an_end() -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).float()
    inputs = 1e4 * torch.randn(60, 4, dtype=torch.float32)
    data = (inputs, torch.arange(60) % 3)
    for covariance in ("dense", "diagonal", "shared"):
        ll.posttrain(network, data, covariance=covariance, bound="jensen")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimum was not reached
            found = ll.posttrain(
                network, data, covariance=covariance, bound="tilted", max_passes=10
            )
        assert found.head.mean.isfinite().all()


def test_validation_chooses_the_variance_with_the_lowest_nll_there(
    generator: torch.Generator,
) -> None:
    """Against fits with every variance of a grid about the default."""
    weights = 2 * torch.randn(6, 3, generator=generator)
    x = torch.randn(400, 6, generator=generator)
    y = torch.multinomial((x @ weights).softmax(-1), 1, generator=generator).squeeze(-1)
    train, unseen = (x[:60], y[:60]), (x[60:], y[60:])
    network = nn.Sequential(nn.Linear(6, 3))
    chosen = ll.posttrain(network, train, validation=unseen, progress=False)

    def nll(power: int) -> float:
        prior = ll.Prior(variance=10 ** (power / 2) / 6, bias_variance=1.0)
        model = ll.posttrain(network, train, prior=prior, progress=False)
        return -float(model(unseen[0]).log_prob(unseen[1]).mean().detach())

    scores = {power: nll(power) for power in range(-3, 6)}
    best = min(scores, key=lambda power: scores[power])
    assert -3 < best < 5
    about: Any = chosen.posttraining
    # the lowest point of a parabola through the best and its neighbours
    assert abs(2 * math.log10(6 * about.prior_variance) - best) <= 0.5 + 1e-9
    reached = -float(chosen(unseen[0]).log_prob(unseen[1]).mean().detach())
    assert reached < scores[best] + 1e-3
    assert about.reason == "chosen by the validation data"
    assert about.converged
    assert about.loss == pytest.approx(float(chosen(*train).detach()), abs=1e-9)
    evidence = ll.Prior(variance="evidence")
    with pytest.raises(ValueError, match="leave out one"):
        ll.posttrain(network, train, validation=unseen, prior=evidence, progress=False)


def test_without_validation_it_tells_features_that_give_labels_away(
    generator: torch.Generator,
) -> None:
    x = torch.randn(200, 60, generator=generator)
    weights = torch.randn(60, generator=generator)
    y = (x @ weights + 4 * torch.randn(200, generator=generator) > 0).long()
    layer = nn.Sequential(nn.Linear(60, 2))
    unseen = ll.posttrain(layer, (x, y), progress=False).posttraining
    assert "held-out data, whose labels the features do not give away" in unseen.reason
    labels = nn.functional.one_hot(y, 60) + 0.1 * torch.randn(200, 60, generator=generator)
    seen = ll.posttrain(layer, (labels, y), progress=False).posttraining
    assert "give the labels away" in seen.reason
    assert "pass validation data" in seen.reason
    assert seen.prior_variance == pytest.approx(1 / 60)
    few = ll.posttrain(layer, (x[:30], y[:30]), progress=False).posttraining
    assert "too few" in few.reason


def test_a_network_that_half_memorised_its_labels_is_made_cautious(
    generator: torch.Generator,
) -> None:
    """Labels are pure chance, and the features tell half of them: nothing is known of others."""
    x = torch.randn(300, 60, generator=generator)
    y = torch.randint(4, (300,), generator=generator)
    told = torch.rand(300, 1, generator=generator) < 0.5
    features = x + 4 * told * nn.functional.one_hot(y, 60)
    others = torch.randn(2000, 60, generator=generator)
    layer = nn.Linear(60, 4)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=100)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(layer(features), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    labels = torch.randint(4, (2000,), generator=generator)
    model = ll.posttrain(nn.Sequential(layer), (features, y), progress=False)
    found = -model(others).log_prob(labels).mean().item()
    assert found < F.cross_entropy(layer(others), labels).item() - 0.5
    assert found < 1.5 * math.log(4)


def test_a_calibrated_network_of_small_features_keeps_its_nll(generator: torch.Generator) -> None:
    """Its weights are far larger than the head's own prior expects."""
    x = 0.02 * torch.randn(3000, 4, generator=generator)
    weights = 60 * torch.randn(4, 3, generator=generator)
    y = torch.multinomial((x @ weights).softmax(-1), 1, generator=generator).squeeze(-1)
    network = nn.Linear(4, 3)
    optimizer = torch.optim.LBFGS(network.parameters(), max_iter=200)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x[:1500]), y[:1500])
        loss.backward()
        return loss

    optimizer.step(closure)
    train, others = (x[:1500], y[:1500]), (x[1500:], y[1500:])
    own = F.cross_entropy(network(others[0]), others[1]).item()

    def nll(**options: Any) -> float:
        model = ll.posttrain(nn.Sequential(network), train, progress=False, **options)
        return -float(model(others[0]).log_prob(others[1]).mean().detach())

    assert nll() < own + 0.005
    assert nll(prior=ll.Prior(variance=1 / 4, bias_variance=1.0)) > own + 0.05


def test_the_bias_has_no_wider_prior_than_small_features_give_the_logits(
    generator: torch.Generator,
) -> None:
    """Seven labels of ten are alike: the bias alone should not explain them."""
    x, y = 0.1 * torch.randn(10, 8, generator=generator), (torch.arange(10) < 7).long()
    model = ll.posttrain(nn.Linear(8, 2), (x, y), progress=False)
    variance = float(x.square().sum(-1).mean()) / 8  # of logits, by weights of variance 1/8
    assert model.head.prior.bias_variance == pytest.approx(variance)
    larger = ll.posttrain(nn.Linear(8, 2), (20 * x, y), progress=False)
    assert larger.head.prior.bias_variance == 1.0
    nothing = ll.posttrain(nn.Linear(8, 2), (0 * x, y), progress=False)
    assert abs(nothing(x).probs()[0, 1].item() - 0.5) < 0.01
    given = ll.Prior(variance=0.1, bias_variance=2.0)
    assert ll.posttrain(nn.Linear(8, 2), (x, y), prior=given, progress=False).head.prior == given


def test_labels_of_weight_zero_need_not_be_classes(generator: torch.Generator) -> None:
    x, y = torch.randn(120, 5, generator=generator), torch.arange(120) % 2
    weight = torch.ones(120)
    weight[100:] = 0
    layer = nn.Sequential(nn.Linear(5, 2))
    ignored = y.clone()
    ignored[100:] = -100
    expected = ll.posttrain(layer, (x, y, weight), progress=False)
    found = ll.posttrain(layer, (x, ignored, weight), progress=False)
    torch.testing.assert_close(found.head.mean, expected.head.mean)


def test_it_warns_where_the_optimum_was_not_reached(generator: torch.Generator) -> None:
    x = torch.randn(30, 4, generator=generator)
    with pytest.warns(UserWarning, match="allow more with max_passes"):
        ll.posttrain(nn.Sequential(nn.Linear(4, 2)), (x, torch.arange(30) % 2), max_passes=2)


@pytest.mark.parametrize(("num_features", "covariance"), [(30, "Dense"), (60, "Diagonal")])
def test_a_layer_of_many_weights_gets_diagonal_covariances(num_features, covariance):
    layer = nn.Linear(num_features, 100)
    cached = Features(torch.randn(8, num_features), torch.arange(8), None)
    made = ll.DiscriminativeClassification.from_linear(layer, cached, num_data=8)
    assert type(made.covariance).__name__.startswith(covariance)
    named = ll.DiscriminativeClassification.from_linear(
        layer, cached, num_data=8, covariance="dense"
    )
    assert type(named.covariance).__name__.startswith("Dense")
