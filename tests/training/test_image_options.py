"""Options of `fit` for images: random augmentation, groups of parameters, a monitor."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from tests.helpers.networks import classes, curve, regression
from tests.training.test_checkpoints import Interrupting, InterruptionError, exactly

OPTIONS: dict[str, Any] = {"epochs": 3, "batch_size": 8, "progress": False}


class Linear(nn.Module):
    """A linear map with the loss ½(y − xᵀw − b)², averaged, whose gradient is easy to write."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1, dtype=torch.float64)

    def forward(self, inputs: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (target - self.layer(inputs)).square().mean()


def line() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(16, 3, generator=generator, dtype=torch.float64)
    return inputs, inputs.sum(-1, keepdim=True) + 1


def shifted(inputs: Tensor) -> Tensor:
    return inputs + 0.25


def jittered(inputs: Tensor) -> Tensor:
    return inputs + 0.1 * torch.randn_like(inputs)


# --------------------------------------------------------------------------------- groups


def test_a_group_has_its_multiple_of_the_learning_rate_and_of_the_weight_decay() -> None:
    model, (inputs, target) = Linear(), line()
    weight, bias = (p.detach().clone() for p in (model.layer.weight, model.layer.bias))
    error = inputs @ weight.T + bias - target
    ll.fit(
        model,
        (inputs, target),
        epochs=1,
        batch_size=16,
        learning_rate=0.1,
        weight_decay=0.5,
        clip=None,
        optimizer=torch.optim.SGD,
        groups={"layer.bias": {"learning_rate": 3.0, "weight_decay": 0.25}},
        progress=False,
    )
    assert_close(model.layer.weight, weight - 0.1 * ((error * inputs).mean(0) + 0.5 * weight))
    assert_close(model.layer.bias, bias - 0.3 * (error.mean(0) + 0.125 * bias))


@pytest.mark.parametrize("pattern", ["backbone", "backbone.*", "*"])
def test_patterns_name_modules_or_parameters_and_the_first_counts(pattern: str) -> None:
    model = regression()
    before = [parameter.detach().clone() for parameter in model.backbone.parameters()]
    groups = {pattern: {"learning_rate": 0.0}, "head": {"learning_rate": 1.0}}
    if pattern == "*":  # which leaves nothing to the second
        with pytest.raises(ValueError, match=r"\['head'\]"):
            ll.fit(model, curve(), groups=groups, **OPTIONS)
        return
    mean = model.head.mean.detach().clone()
    ll.fit(model, curve(), groups=groups, weight_decay=0.0, **OPTIONS)
    exactly(list(model.backbone.parameters()), before)
    assert not torch.equal(model.head.mean, mean)


def test_the_history_has_the_learning_rate_without_factors() -> None:
    groups = {"backbone": {"learning_rate": 0.1}}
    rows = ll.fit(regression(), curve(), groups=groups, learning_rate=0.02, **OPTIONS)
    assert [row["learning_rate"] for row in rows] == [0.02] * 3


@pytest.mark.parametrize("group", [{"momentum": 1.0}, {"learning_rate": -1.0}])
def test_groups_have_multiples_of_two_settings(group: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="groups"):
        ll.fit(regression(), curve(), groups={"head": group}, **OPTIONS)


def test_many_models_may_still_be_trained_with_weight_decay_of_the_backbone_alone() -> None:
    models = [regression(), regression()]
    ll.fit_many(models, curve(), weight_decay=0.1, seeds=[0, 0], **OPTIONS)
    alone = regression()
    ll.fit(alone, curve(), weight_decay=0.1, **OPTIONS)
    assert_close(models[1].state_dict(), alone.state_dict(), atol=1e-5, rtol=1e-4)


# ------------------------------------------------------------------------------- augmentation


def test_augmented_training_is_training_on_augmented_inputs_and_validation_is_not() -> None:
    inputs, target = curve()
    model, other = regression(), regression()
    history = ll.fit(model, (inputs, target), curve(1), augment=shifted, **OPTIONS)
    expected = ll.fit(other, (shifted(inputs), target), curve(1), **OPTIONS)
    exactly(model.state_dict(), other.state_dict())
    assert history == expected


def test_a_run_with_random_augmentation_resumes_exactly(tmp_path: Path) -> None:
    def run(calls: float, path: Path | None) -> tuple[dict[str, Any], ll.History]:
        model = regression()
        model.backbone.append(Interrupting(calls))  # type: ignore[operator]
        history = ll.fit(model, curve(), augment=jittered, checkpoint=path, **OPTIONS)
        return model.state_dict(), history

    expected, history = run(float("inf"), None)
    with pytest.raises(InterruptionError):
        run(10, tmp_path)
    actual, resumed = run(float("inf"), tmp_path)
    exactly(actual, expected)
    assert resumed == history
    plain = regression()
    plain.backbone.append(nn.Identity())  # type: ignore[operator]
    ll.fit(plain, curve(), **OPTIONS)
    assert not torch.equal(plain.head.mean, expected["head.mean"])  # augmentation was on


def test_another_augmentation_is_another_run(tmp_path: Path) -> None:
    ll.fit(regression(), curve(), augment=jittered, checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match="augment was 'jittered' and is 'shifted'"):
        ll.fit(regression(), curve(), augment=shifted, checkpoint=tmp_path, **OPTIONS)


# ------------------------------------------------------------------------------------ monitor


def test_a_monitor_adds_numbers_and_changes_nothing_else() -> None:
    unlabelled, modes = torch.randn(5, 2, generator=torch.Generator().manual_seed(3)), []

    def entropy(model: nn.Module) -> dict[str, Any]:
        modes.append(model.training)
        torch.rand(7)  # it may draw
        return {"entropy": model(unlabelled).entropy().mean()}

    def network() -> ll.Network:
        torch.manual_seed(0)
        head = ll.DiscriminativeClassification(2, 3, num_data=60)
        return ll.Network(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.3)), head)

    model, other = network(), network()
    history = ll.fit(model, classes(), monitor=entropy, validate_every=2, **OPTIONS)
    expected = ll.fit(other, classes(), **OPTIONS)
    exactly(model.state_dict(), other.state_dict())
    found = [row.pop("entropy", None) for row in history]
    assert [value is None for value in found] == [True, False, False]
    with torch.no_grad():
        last = model.eval()(unlabelled).entropy().mean()
    assert found[-1] == pytest.approx(float(last))
    assert history == expected
    assert not any(modes)


def test_the_bar_shows_throughput_time_left_and_what_is_monitored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = OPTIONS | {"progress": True}
    ll.fit(regression(), curve(), monitor=lambda model: {"auroc": 0.875}, **options)
    shown = capsys.readouterr().err
    assert "auroc=0.875" in shown
    assert "ex/s" in shown
    assert "left" in shown


def test_a_monitor_may_not_take_a_name_of_the_history() -> None:
    with pytest.raises(ValueError, match=r"other names than those of the history: \['loss'\]"):
        ll.fit(regression(), curve(), monitor=lambda model: {"loss": 0.0}, **OPTIONS)
