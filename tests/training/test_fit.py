"""The training loop: what it optimises, when it stops and what it leaves behind."""

import copy
import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lastlayer as ll
from tests.helpers.networks import NUM_DATA, backbone, classes, classification, curve, regression

WHOLE = 64  # a batch size above the number of examples: the order does not matter
SGD = functools.partial(torch.optim.SGD, momentum=0.9)


def nll(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    model.eval()
    with torch.no_grad():
        return -model(data[0]).log_prob(data[1]).mean().item()


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


# ------------------------------------------------------------------------- what is optimised


@pytest.mark.slow
def test_training_a_head_on_features_comes_to_the_exact_posterior(
    generator: torch.Generator,
) -> None:
    features = torch.randn(50, 3, generator=generator)
    target = features @ torch.tensor([[1.0], [-2.0], [0.5]])
    head = ll.Regression(3, 1, num_data=50)
    best = copy.deepcopy(head)
    best.fit_exact(features, target, estimate_noise=True)
    history = ll.fit(
        head,
        (features, target),
        epochs=500,
        batch_size=WHOLE,
        learning_rate=0.05,
        schedule="cosine",
        clip=None,
        progress=False,
    )
    assert history[-1]["loss"] == pytest.approx(best(features, target).item(), abs=1e-5)
    assert_close(head.mean, best.mean, atol=1e-3, rtol=0)


def test_a_step_is_that_of_the_optimiser_on_the_clipped_gradient_of_the_loss() -> None:
    data, model = curve(), regression()
    twin = copy.deepcopy(model)
    ll.fit(
        model,
        data,
        epochs=1,
        batch_size=WHOLE,
        learning_rate=0.1,
        weight_decay=0.3,
        clip=0.5,
        optimizer=torch.optim.SGD,
        initialize=False,
        progress=False,
    )
    twin(*data).backward()
    norm = torch.stack([p.grad.norm() for p in twin.parameters()]).norm()  # type: ignore[union-attr]
    assert norm > 0.5
    for (name, mine), before in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        decay = 0.3 * before if name.startswith("backbone") else 0
        expected = before - 0.1 * (before.grad * 0.5 / (norm + 1e-6) + decay)
        assert_close(mine, expected)


def test_weight_decay_spares_heads_and_variational_layers() -> None:
    from lastlayer.training.options import decays

    variational = ll.make_variational(nn.Linear(6, 6))
    model = ll.Network(nn.Sequential(backbone(), variational), ll.Regression(6, 1, num_data=1))
    decayed = {name for name, decay in decays(model) if decay}
    assert decayed == {name for name in dict(model.named_parameters()) if "backbone.0." in name}


def test_frozen_parameters_stay() -> None:
    model = regression()
    model.backbone[0].requires_grad_(False)  # type: ignore[index]
    before = state(model)
    ll.fit(model, curve(), epochs=2, progress=False)
    after = model.state_dict()
    assert_close(after["backbone.0.weight"], before["backbone.0.weight"], atol=0, rtol=0)
    assert not torch.equal(after["backbone.2.weight"], before["backbone.2.weight"])


def test_history_has_the_loss_and_the_parts_it_is_made_of() -> None:
    model = regression(prior=ll.Prior(kl_weight=0.5))
    history = ll.fit(model, curve(), curve(1), epochs=3, validate_every=2, progress=False)
    assert [row["epoch"] for row in history] == [1, 2, 3]
    for row in history:
        parts = -row["bound"] + (0.5 * row["kl"] - row["log_prior"]) / NUM_DATA
        assert row["loss"] == pytest.approx(parts, rel=1e-12)
        assert row["gradient_norm"] > 0
    assert ["validation_nll" in row for row in history] == [False, True, True]  # and at the end


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        ("constant", lambda done: 1.0),
        ("cosine", lambda done: 0.5 + 0.5 * math.cos(math.pi * done)),
        (lambda done: 1 - done, lambda done: 1 - done),
    ],
)
def test_learning_rate_follows_its_schedule_through_the_steps(schedule: Any, factor: Any) -> None:
    rates: list[float] = []

    class Recording(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    data = curve(count=32)
    ll.fit(
        regression(),
        data,
        epochs=2,
        batch_size=8,
        learning_rate=0.01,
        schedule=schedule,
        optimizer=Recording,
        progress=False,
    )
    assert rates == pytest.approx([0.01 * factor((step + 0.5) / 8) for step in range(8)])


def test_every_example_is_seen_once_per_epoch_in_an_order_of_the_seed() -> None:
    seen: list[list[Tensor]] = []

    class Spy(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            seen[-1].append(inputs)
            return inputs

    inputs = torch.arange(float(NUM_DATA)).unsqueeze(-1)
    for seed in (0, 0, 1):
        seen.append([])
        model = ll.Network(Spy(), ll.Regression(1, 1, num_data=NUM_DATA))
        ll.fit(model, (inputs, inputs), epochs=2, initialize=False, seed=seed, progress=False)
    orders = [torch.cat(batches).flatten() for batches in seen]
    first, second = orders[0].split(NUM_DATA)
    assert_close(first.sort().values, inputs.flatten())
    assert_close(second.sort().values, inputs.flatten())
    assert not torch.equal(first, second)
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


def test_tensors_datasets_and_loaders_train_alike() -> None:
    data = curve()
    dataset = TensorDataset(*data)
    results = []
    for form in (data, dataset, DataLoader(dataset, batch_size=WHOLE), [data]):
        model = regression()
        ll.fit(model, form, epochs=3, batch_size=WHOLE, progress=False)
        results.append(state(model))
    for result in results[1:]:
        assert_close(result, results[0])


def test_weights_of_examples_reach_the_loss_and_the_validation() -> None:
    inputs, target = curve()
    weight = (torch.arange(NUM_DATA) % 2).double()
    target = target.where(weight[:, None] != 0, torch.nan)  # ignored
    model = regression()
    weighted = (inputs, target, weight)
    history = ll.fit(model, weighted, weighted, epochs=5, progress=False)
    kept = weight != 0
    assert history.best_nll == pytest.approx(nll(model, (inputs[kept], target[kept])))


def test_a_generative_head_counts_the_classes_of_the_training_data() -> None:
    data = classes()
    model = classification(generative=True)
    for _ in range(2):  # anew each time
        ll.fit(model, TensorDataset(*data), epochs=1, progress=False)
        counts = torch.bincount(data[1], minlength=3)
        assert_close(model.head.concentration, 1 + counts.double())


def test_weights_count_in_the_classes_too() -> None:
    model = classification(generative=True)
    target, weight = torch.tensor([0, 1, 2, 2]), torch.tensor([10, 0.1, 1, 0])
    inputs = torch.randn(4, 2)
    ll.fit(model, (inputs, target, weight), epochs=1, progress=False)
    assert_close(model.head.concentration, torch.tensor([11, 1.1, 2]))


def test_a_new_regression_head_starts_at_the_scale_of_the_targets() -> None:
    inputs, target = curve()
    for scale in (1e-4, 1.0, 1e4):
        history = ll.fit(
            regression(), (inputs, scale * target), epochs=1, learning_rate=1e-9, progress=False
        )
        power = (scale * target).square().mean()
        variance = (NUM_DATA * power + 1) / (NUM_DATA + 3)  # what the prior makes of it
        expected = 0.5 * (2 * math.pi * variance).log() + 0.5 * power / variance
        assert -history[0]["bound"] == pytest.approx(expected.item(), abs=0.2)
        assert history[0]["kl"] / NUM_DATA < 10


def test_training_goes_on_with_a_trained_head_as_it_is() -> None:
    model = regression()
    ll.fit(model, curve(), epochs=20, learning_rate=0.01, progress=False)
    before = state(model)
    ll.fit(model, curve(), epochs=1, learning_rate=1e-12, progress=False)
    assert_close(state(model), before, atol=1e-9, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains_to_a_similar_loss(precision: str) -> None:
    data = tuple(tensor.float() for tensor in curve())
    options: dict[str, Any] = {"epochs": 60, "learning_rate": 0.01, "progress": False}
    full, mixed = regression().float(), regression().float()
    expected = [row["loss"] for row in ll.fit(full, data, **options)]
    actual = [row["loss"] for row in ll.fit(mixed, data, precision=precision, **options)]
    assert actual == pytest.approx(expected, abs=0.1)
    assert expected[-1] < expected[0] - 0.3
    assert all(parameter.dtype == torch.float32 for parameter in mixed.parameters())


# ----------------------------------------------------------------------- validation and stopping


@pytest.mark.slow
def test_the_best_epoch_is_restored_from_a_copy() -> None:
    model = regression()
    validation = curve(1)
    history = ll.fit(
        model, curve(count=8), validation, epochs=300, learning_rate=0.03, progress=False
    )
    values = [row["validation_nll"] for row in history]
    assert history.best_nll == min(values)
    assert history.best_epoch == 1 + values.index(min(values))
    assert history.best_epoch < 300, "the case must overfit, or there is nothing to restore"
    assert nll(model, validation) == pytest.approx(min(values))


@pytest.mark.slow
def test_patience_counts_epochs_without_a_better_validation() -> None:
    options: dict[str, Any] = {"epochs": 300, "learning_rate": 0.03, "progress": False}
    data, validation = curve(count=8), curve(1)
    patient = ll.fit(regression(), data, validation, patience=10, **options)
    assert patient.best_epoch is not None
    assert len(patient) == patient.best_epoch + 10
    longer = ll.fit(regression(), data, validation, **options)
    assert list(longer)[: len(patient)] == list(patient)


def test_patience_ends_training_only_at_a_validation() -> None:
    history = ll.fit(
        regression(), curve(), curve(1), epochs=40, validate_every=10, patience=5, progress=False
    )
    assert len(history) == 40, "the NLL falls here at every validation"


def test_retraining_again_is_for_as_much_data_as_before(tmp_path: Any) -> None:
    for _ in range(2):  # the second time there is nothing left to do
        model = regression()
        model.head.num_data = 8
        ll.fit(
            model,
            curve(count=8),
            curve(1, count=4),
            epochs=2,
            retrain=True,
            checkpoint=tmp_path,
            progress=False,
        )
        assert model.head.num_data == 12


@pytest.mark.slow
def test_retraining_is_training_on_everything_for_the_best_number_of_epochs() -> None:
    data, validation = curve(count=8), curve(1, count=4)
    options: dict[str, Any] = {"batch_size": WHOLE, "learning_rate": 0.03, "progress": False}
    model = regression()
    model.head.num_data = 8
    twin = copy.deepcopy(model)
    history = ll.fit(model, data, validation, epochs=200, initialize=False, retrain=True, **options)
    assert history.best_epoch is not None
    assert 1 < history.best_epoch < 200
    assert len(history) == history.best_epoch
    assert len(history.selection) == 200
    twin.head.num_data = 12
    everything = tuple(torch.cat(pair) for pair in zip(data, validation, strict=True))
    ll.fit(twin, everything, epochs=history.best_epoch, initialize=False, **options)
    assert_close(state(model), state(twin))
    assert model.head.num_data == 12


def test_validation_is_the_nll_of_the_predictive_in_evaluation_mode() -> None:
    model = regression(0, nn.BatchNorm1d(6), nn.Dropout(0.5))
    validation = curve(1)
    history = ll.fit(model, curve(), validation, epochs=3, progress=False)
    assert nll(model, validation) == pytest.approx(history.best_nll)


# ------------------------------------------------------------------------------- good manners


def test_random_numbers_and_modes_of_the_caller_are_left_alone() -> None:
    model = regression(0, nn.Dropout(0.5))
    model.train()
    model.backbone[2].eval()  # type: ignore[index]
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    ll.fit(model, curve(), curve(1), epochs=2, progress=False)
    assert_close(torch.rand(3), expected, atol=0, rtol=0)
    assert model.training
    assert not model.backbone[2].training  # type: ignore[index]


def test_progress_shows_throughput_and_the_parts_of_the_loss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ll.fit(regression(), curve(), curve(1), epochs=2, progress=True)
    shown = capsys.readouterr().err
    for part in ("epoch 2/2", "ex/s", "loss=", "bound=", "kl=", "nll="):
        assert part in shown
    ll.fit(regression(), curve(), epochs=2, progress=False)
    assert capsys.readouterr().err == ""


def test_any_module_with_the_two_calls_can_be_trained() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))

        def forward(self, inputs: Tensor, target: Tensor) -> Tensor:
            return (inputs @ self.weight - target).square().mean()

    inputs = curve()[0]
    truth = torch.tensor([1.0, -2.0])
    model = Plain()
    ll.fit(
        model,
        (inputs, inputs @ truth),
        epochs=200,
        learning_rate=0.05,
        schedule="cosine",
        weight_decay=0.0,
        progress=False,
    )
    assert_close(model.weight.detach(), truth, atol=1e-3, rtol=0)


@pytest.mark.slow
def test_compiled_steps_are_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    options: dict[str, Any] = {"epochs": 2, "batch_size": WHOLE, "progress": False}
    plain, fast = regression(), regression()
    ll.fit(plain, curve(), **options)
    monkeypatch.setattr(torch, "compile", compiled)
    ll.fit(fast, curve(), compile=True, **options)
    assert_close(state(fast), state(plain))


# ------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, ValueError, "epochs must be an integer of at least 1"),
        ({"batch_size": 2.5}, ValueError, "batch_size must be an integer"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate must be a finite number"),
        ({"clip": 0.0}, ValueError, "clip must be a finite number above zero"),
        ({"schedule": "cosin"}, ValueError, "did you mean 'cosine'?"),
        ({"precision": "bf16"}, ValueError, "precision must be one of"),
        ({"patience": 3}, ValueError, "pass validation data"),
        ({"retrain": True}, ValueError, "validation data; pass some"),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        ll.fit(regression(), curve(), **{"epochs": 1, "progress": False, **options})


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (curve(count=0), ValueError, "and not empty"),
        ((curve()[0], curve()[1][:5]), ValueError, "as many examples each"),
        (curve()[0], TypeError, "got a Tensor"),
        ((curve()[0],), ValueError, r"\(inputs, target\)"),
        (3, TypeError, "got a int"),
        ((1, 2, 3, 4), TypeError, "4 values"),
    ],
)
def test_wrong_data_are_explained(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ll.fit(regression(), data, epochs=1, progress=False)


def test_a_loss_that_is_not_a_number_stops_training_with_advice() -> None:
    inputs, target = curve()
    inputs = inputs.clone()
    inputs[3, 0] = torch.nan
    model = regression()
    with pytest.raises(FloatingPointError, match=r"became nan in epoch 1; check the data for NaN"):
        ll.fit(model, (inputs, target), epochs=3, initialize=False, progress=False)
    assert_close(model.state_dict(), regression().state_dict(), atol=0, rtol=0)


def test_a_bad_batch_late_in_training_leaves_the_weights_of_the_last_good_epoch() -> None:
    inputs, target = curve()

    class Late(TensorDataset):
        reads = 0

        def __getitem__(self, index: int) -> Any:
            self.reads += 1
            late = self.reads > NUM_DATA * 3 + 20 + NUM_DATA  # the head reads the data once
            return (inputs[index] * torch.nan if late else inputs[index]), target[index]

    options: dict[str, Any] = {"batch_size": 8, "learning_rate": 0.01, "progress": False}
    model, twin = regression(), regression()
    kept = "The model has the weights of epoch 3, the last with a finite loss"
    with pytest.raises(FloatingPointError, match=f"became nan in epoch 4; .*{kept}"):
        ll.fit(model, Late(inputs, target), epochs=9, **options)
    ll.fit(twin, TensorDataset(inputs, target), epochs=3, **options)
    assert_close(model.state_dict(), twin.state_dict(), atol=0, rtol=0)


def test_lazy_layers_need_a_call_first() -> None:
    model = ll.Network(nn.LazyLinear(6), ll.Regression(6, 1, num_data=NUM_DATA))
    with pytest.raises(ValueError, match=r"backbone.weight.*; call the model on one batch"):
        ll.fit(model, curve(), epochs=1, progress=False)
    model(curve()[0])
    assert len(ll.fit(model, curve(), epochs=1, progress=False)) == 1


def test_an_iterable_dataset_comes_in_batches_of_the_given_size() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return zip(*curve(), strict=True)

    sizes: list[int] = []
    model = regression()
    model.register_forward_pre_hook(lambda _, arguments: sizes.append(len(arguments[0])))
    ll.fit(model, Stream(), epochs=1, batch_size=16, progress=False)
    assert sizes == [16, 16, 5]


def test_a_late_divergence_leaves_the_best_weights() -> None:
    model, validation = regression(), curve(1)
    with pytest.raises(FloatingPointError, match="has its best weights so far"):
        ll.fit(
            model,
            curve(),
            validation,
            epochs=60,
            learning_rate=0.02,
            schedule=lambda done: 1.0 if done < 0.5 else 1e300,
            clip=None,
            progress=False,
        )
    assert nll(model, validation) < nll(regression(), validation)


def test_data_that_can_be_read_only_once_are_refused() -> None:
    with pytest.raises(TypeError, match="can be read only once"):
        ll.fit(regression(), (curve() for _ in range(3)), epochs=1, progress=False)


def test_weights_of_another_shape_are_not_broadcast_in_validation() -> None:
    inputs, target = torch.randn(4, 4, 2), torch.randn(4, 4, 1)
    data = (inputs, target, torch.tensor([1.0, 0, 0, 0]))
    with pytest.raises(ValueError, match=r"one weight per example, \(4, 4\)"):
        ll.fit(regression(), (inputs, target), data, epochs=1, progress=False)


@pytest.mark.usefixtures("_fresh_compiler")
def test_a_wrapped_model_is_initialised_too_or_refused() -> None:
    inputs, target = curve()
    data = (inputs, 1e4 * target)
    plain = regression()
    compiled: Any = torch.compile(regression(), backend="eager")
    options: dict[str, Any] = {"epochs": 1, "batch_size": WHOLE, "progress": False}
    expected = ll.fit(plain, data, **options)[0]["loss"]
    assert ll.fit(compiled, data, **options)[0]["loss"] == pytest.approx(expected)


def test_what_a_seed_gives_does_not_depend_on_other_random_numbers() -> None:
    results = []
    for seed in (1, 2):
        model = regression()
        torch.manual_seed(seed)
        loader = DataLoader(TensorDataset(*curve()), batch_size=8, shuffle=True)
        ll.fit(model, loader, epochs=2, progress=False)
        results.append(state(model))
    assert_close(results[0], results[1], atol=0, rtol=0)


def test_retraining_needs_data_that_can_be_joined() -> None:
    loader = DataLoader(TensorDataset(*curve()), batch_size=8)
    with pytest.raises(TypeError, match="both as tensors, or both as Datasets"):
        ll.fit(regression(), loader, loader, epochs=1, retrain=True, progress=False)


def test_training_with_momentum_is_reproducible() -> None:
    results = []
    for _ in range(2):
        model = classification()
        ll.fit(model, classes(), epochs=3, optimizer=SGD, progress=False)
        results.append(state(model))
    assert_close(results[0], results[1], atol=0, rtol=0)
