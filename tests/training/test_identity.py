"""A checkpoint is resumed only by the run that it was saved by."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from tests.helpers.networks import NUM_DATA, curve, regression


class Activated(nn.Module):
    """An activation that is a function, which `repr` does not show."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        return self.activation(inputs)


def activated(activation: Callable[[Tensor], Tensor]) -> ll.Network:
    model = regression()
    model.backbone.append(Activated(activation))  # type: ignore[operator]
    return model


def about(value: float) -> ll.Network:
    model: Any = regression()
    model.head.prior_mean = torch.full_like(model.head.mean, value)
    return model


def frozen() -> ll.Network:
    model = regression()
    next(model.backbone.parameters()).requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            lambda: activated(torch.tanh),
            lambda: activated(torch.relu),
            r"tanh' and is '.*relu'",
        ),
        (lambda: about(1.0), lambda: about(2.0), "means of priors was"),
        (regression, frozen, r"weights was .* and is '.* frozen'"),
    ],
    ids=["function", "prior mean", "frozen"],
)
def test_a_model_that_differs_in_what_its_repr_hides_is_not_resumed(
    first: Any, second: Any, message: str, tmp_path: Path
) -> None:
    ll.fit(first(), curve(), epochs=1, checkpoint=tmp_path, progress=False)
    with pytest.raises(ValueError, match=message):
        ll.fit(second(), curve(), epochs=1, checkpoint=tmp_path, progress=False)


def test_a_loader_with_batches_of_another_size_is_not_resumed(tmp_path: Path) -> None:
    def run(batch_size: int) -> None:
        loader = DataLoader(TensorDataset(*curve()), batch_size=batch_size)
        ll.fit(regression(), loader, epochs=1, checkpoint=tmp_path, progress=False)

    run(8)
    with pytest.raises(ValueError, match="training batches was"):
        run(4)


def test_of_a_changed_head_only_what_differs_is_named(tmp_path: Path) -> None:
    ll.fit(regression(), curve(), epochs=1, checkpoint=tmp_path, progress=False)
    model: Any = regression()
    model.head.num_data = NUM_DATA + 1
    expected = f"model was 'num_data={NUM_DATA}' and is 'num_data={NUM_DATA + 1}'. "
    with pytest.raises(ValueError, match=expected):
        ll.fit(model, curve(), epochs=1, checkpoint=tmp_path, progress=False)


def test_a_function_is_the_same_whatever_address_its_arguments_have(tmp_path: Path) -> None:
    for _ in range(2):
        model = activated(functools.partial(lambda _, inputs: inputs, object()))
        history = ll.fit(model, curve(), epochs=1, checkpoint=tmp_path, progress=False)
    assert len(history) == 1


class InterruptionError(Exception):
    """Whatever may happen."""


def test_the_same_model_resumes_a_run_that_was_interrupted_while_retraining(
    tmp_path: Path,
) -> None:
    model: Any = regression()
    num_data = model.head.num_data
    options: dict[str, Any] = {"epochs": 3, "retrain": True, "progress": False}

    def interrupt(*_: Any) -> None:
        if model.head.num_data > num_data:  # retraining
            raise InterruptionError

    handle = model.register_forward_pre_hook(interrupt)
    with pytest.raises(InterruptionError):
        ll.fit(model, curve(), curve(1), checkpoint=tmp_path, **options)
    assert model.head.num_data == num_data
    handle.remove()
    history = ll.fit(model, curve(), curve(1), checkpoint=tmp_path, **options)
    expected: Any = regression()
    assert history == ll.fit(expected, curve(), curve(1), **options)
    assert model.head.num_data == expected.head.num_data > num_data
