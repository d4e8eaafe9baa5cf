"""Training goes through the calls of the model and of the head, as prediction does."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from tests.helpers.networks import NUM_DATA, backbone, classes, curve

HEADS: dict[str, tuple[Any, int]] = {
    "regression": (ll.Regression, 1),
    "discriminative": (ll.DiscriminativeClassification, 3),
    "generative": (ll.GenerativeClassification, 3),
}
OPTIONS: dict[str, Any] = {"epochs": 4, "batch_size": 8, "learning_rate": 0.01, "progress": False}


class Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * inputs


class DoublingNetwork(ll.Network):
    def forward(self, inputs: Tensor, *rest: Any) -> Any:
        return super().forward(2 * inputs, *rest)


def doubling(head: Any) -> Any:
    class DoublingHead(head):
        def forward(self, features: Tensor, *rest: Any) -> Any:
            return super().forward(2 * features, *rest)

    return DoublingHead


def double_first(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return (2 * arguments[0], *arguments[1:])


def network(
    name: str,
    before: nn.Module,
    after: nn.Module,
    *,
    kind: type[ll.Network] = ll.Network,
    change: Callable[[Any], Any] = lambda head: head,
    seed: int = 0,
) -> ll.Network:
    torch.manual_seed(seed)
    head, outputs = HEADS[name]
    layers = nn.Sequential(before, backbone(), after)
    return kind(layers, change(head)(6, outputs, num_data=NUM_DATA))


def overridden_network(name: str, seed: int) -> ll.Network:
    return network(name, nn.Identity(), nn.Identity(), kind=DoublingNetwork, seed=seed)


def hooked_network(name: str, seed: int) -> ll.Network:
    model = network(name, nn.Identity(), nn.Identity(), seed=seed)
    model.register_forward_pre_hook(double_first)
    return model


def overridden_head(name: str, seed: int) -> ll.Network:
    return network(name, nn.Identity(), nn.Identity(), change=doubling, seed=seed)


def hooked_head(name: str, seed: int) -> ll.Network:
    model = network(name, nn.Identity(), nn.Identity(), seed=seed)
    model.head.register_forward_pre_hook(double_first)
    return model


def plain(name: str, seed: int, at: str) -> ll.Network:
    """The same function of inputs, with nothing overridden."""
    parts = (Doubled(), nn.Identity()) if at == "inputs" else (nn.Identity(), Doubled())
    return network(name, *parts, seed=seed)


CASES: dict[Callable[[str, int], ll.Network], str] = {
    overridden_network: "inputs",
    hooked_network: "inputs",
    overridden_head: "features",
    hooked_head: "features",
}


def data(name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    return curve(seed) if name == "regression" else classes(seed)


def one(make: Callable[[int], nn.Module], name: str) -> Any:
    model = make(0)
    history = ll.fit(model, data(name), data(name, 1), **OPTIONS)
    return [model], list(history)


def many(make: Callable[[int], nn.Module], name: str) -> Any:
    models = [make(seed) for seed in range(2)]
    histories = ll.fit_many(models, data(name), data(name, 1), **OPTIONS)
    return models, [row for history in histories for row in history]


def crossfitted(make: Callable[[int], nn.Module], name: str) -> Any:
    found = ll.crossfit(lambda _: make(0), data(name), num_folds=2, shortest=2, **OPTIONS)
    return [found.model, found.scaling, *(model for model, _ in found.folds)], found.tried


@pytest.mark.slow
@pytest.mark.parametrize("train", [one, many, crossfitted])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", HEADS)
def test_what_is_changed_in_a_call_is_changed_in_training_and_validation(
    name: str, case: Callable[[str, int], ll.Network], train: Callable[..., Any]
) -> None:
    changed, rows = train(lambda seed: case(name, seed), name)
    expected, expected_rows = train(lambda seed: plain(name, seed, CASES[case]), name)
    for model, twin in zip(changed, expected, strict=True):
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert_close(mine, other)
    for row, other_row in zip(rows, expected_rows, strict=True):
        assert row == pytest.approx(other_row)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_parts_for_logging_come_out_of_the_call(case: Callable[[str, int], ll.Network]) -> None:
    inputs, target = curve()
    model = case("regression", 0)
    elbo = model.elbo(inputs, target)
    twin = plain("regression", 0, CASES[case])
    assert_close(tuple(elbo[:3]), tuple(twin.elbo(inputs, target)[:3]))
    loss = -elbo.bound + (elbo.kl - elbo.log_prior) / NUM_DATA
    assert_close(model(inputs, target), loss)


def test_a_loss_that_a_hook_returns_is_the_one_that_is_trained() -> None:
    model = plain("regression", 0, "inputs")
    twin = copy.deepcopy(model)
    model.head.register_forward_hook(
        lambda head, arguments, output: 3 * output if isinstance(output, Tensor) else output
    )
    options: dict[str, Any] = {"clip": None, "optimizer": torch.optim.SGD, "progress": False}
    options |= {"epochs": 1, "batch_size": NUM_DATA, "weight_decay": 0.0}
    tripled = ll.fit(model, curve(), learning_rate=0.01, **options)
    single = ll.fit(twin, curve(), learning_rate=0.03, **options)
    assert_close(model.state_dict(), twin.state_dict())
    assert tripled[0]["loss"] == pytest.approx(3 * single[0]["loss"])
    assert tripled[0]["bound"] == pytest.approx(single[0]["bound"])


def test_any_module_that_calls_a_head_is_logged_by_its_parts() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.last = backbone(), ll.Regression(6, 1, num_data=NUM_DATA)

        def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
            return self.last(self.layers(inputs), target)

    history = ll.fit(Own(), curve(), curve(1), epochs=1, progress=False)
    row = history[0]
    parts = -row["bound"] + (row["kl"] - row["log_prior"]) / NUM_DATA
    assert row["loss"] == pytest.approx(parts)
