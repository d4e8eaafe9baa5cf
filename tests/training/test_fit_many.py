"""Many models trained as one come out as they would one by one."""

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.training.options import Options
from lastlayer.training.run import run
from tests.helpers.networks import classes, classification, curve, regression

COUNT = 5
# Rounding, after tens of steps in double precision.
close = functools.partial(assert_close, atol=1e-9, rtol=1e-9)


@pytest.fixture(autouse=True)
def _soon_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most steps as most are in long training, the first ones as they are in short."""
    monkeypatch.setattr("lastlayer.training.many.UNTRACED", 3)


def splits(data: tuple[Tensor, Tensor]) -> tuple[list[Any], list[Any]]:
    """Training and validation data, split differently for every model."""
    train, validation = [], []
    for seed in range(COUNT):
        order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(seed))
        train.append(tuple(part[order[:-9]] for part in data))
        validation.append(tuple(part[order[-9:]] for part in data))
    return train, validation


def compare(
    models: list[ll.Network], train: Any, validation: Any = None, **options: Any
) -> list[ll.History]:
    """Train copies one by one and together; all must agree."""
    options = {"progress": False, **options}
    singles = copy.deepcopy(models)
    expected = [
        ll.fit(
            model,
            train[seed] if isinstance(train, list) else train,
            validation[seed] if isinstance(validation, list) else validation,
            seed=seed,
            **options,
        )
        for seed, model in enumerate(singles)
    ]
    actual = ll.fit_many(models, train, validation, **options)
    for single, model, one, many in zip(singles, models, expected, actual, strict=True):
        close(model.state_dict(), single.state_dict())
        assert one.best_epoch == many.best_epoch
        assert model.head.num_data == single.head.num_data
        for rows, others in ((one, many), (one.selection, many.selection)):
            assert [list(row) for row in rows] == [list(row) for row in others]
            for row, other in zip(rows, others, strict=True):
                assert other == pytest.approx(row, abs=1e-7, rel=1e-7)
    return actual


@pytest.mark.slow
def test_each_model_has_its_own_weights_data_order_and_end() -> None:
    train, validation = splits(curve())
    histories = compare(
        [regression(seed) for seed in range(COUNT)],
        train,
        validation,
        epochs=60,
        batch_size=8,
        learning_rate=0.03,
        patience=10,
    )
    assert len({len(history) for history in histories}) > 2, "the ends must differ"


def test_a_parameter_may_be_a_single_number() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.scale * inputs

    models = []
    for seed in range(COUNT):
        network = regression(seed)
        models.append(ll.Network(nn.Sequential(Scaled(), network.backbone), network.head))
    compare(models, curve(), epochs=3, batch_size=8, clip=0.1)


@pytest.mark.slow
def test_an_optimizer_to_which_shapes_matter_is_told_of_the_stack() -> None:
    """Without `eps`, a gradient that is only rounding would be scaled up like any other."""
    train, _ = splits(curve())
    soap = functools.partial(ll.SOAP, eps=1e-6)
    models = [regression(seed) for seed in range(COUNT)]
    compare(models, train, epochs=5, batch_size=8, learning_rate=0.03, optimizer=soap)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_each_model_is_retrained_for_its_own_number_of_epochs(schedule: str) -> None:
    train, validation = splits(curve())
    histories = compare(
        [regression(seed) for seed in range(COUNT)],
        train,
        validation,
        epochs=12,
        batch_size=8,
        learning_rate=0.1,
        validate_every=2,
        retrain=True,
        schedule=schedule,
    )
    assert len({len(history) for history in histories}) > 1, "the numbers must differ"


@pytest.mark.slow
@pytest.mark.parametrize("generative", [False, True])
def test_classifiers_train_together_on_one_data_set(generative: bool) -> None:
    models = [classification(seed, generative=generative) for seed in range(COUNT)]
    compare(models, classes(), classes(1), epochs=5, learning_rate=0.01)


def test_buffers_such_as_batch_statistics_follow() -> None:
    models = [regression(seed, nn.BatchNorm1d(6)) for seed in range(COUNT)]
    before = models[0].backbone[2].running_mean.clone()  # type: ignore[index]
    compare(models, curve(), curve(1), epochs=3, batch_size=8)
    assert not torch.equal(models[0].backbone[2].running_mean, before)  # type: ignore[index]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(2, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.third.weight = self.second.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.third(self.second(self.first(inputs)).tanh())


def test_tied_weights_stay_tied() -> None:
    models = [ll.Network(Tied(), ll.Regression(6, 1, num_data=37)) for _ in range(COUNT)]
    compare(models, curve(), epochs=3)


def test_weights_momentum_and_frozen_parameters_follow() -> None:
    models = [regression(seed) for seed in range(COUNT)]
    for model in models:
        model.backbone[0].requires_grad_(False)  # type: ignore[index]
    inputs, target = curve()
    weight = torch.linspace(0, 2, len(inputs))
    compare(
        models,
        (inputs, target, weight),
        epochs=3,
        optimizer=lambda groups, lr: torch.optim.SGD(groups, lr=lr, momentum=0.9),
        clip=None,
    )


def test_random_layers_differ_between_models() -> None:
    first = regression(0, nn.Dropout(0.5))
    models = [first, copy.deepcopy(first)]
    ll.fit_many(models, curve(), seeds=[0, 0], epochs=2, progress=False)
    assert not torch.equal(models[0].head.mean, models[1].head.mean)


def test_a_model_that_diverges_does_not_stop_the_others() -> None:
    train, validation = splits(curve())
    train[1][0][0, 0] = torch.nan
    models = [regression(seed) for seed in range(COUNT)]
    with pytest.warns(UserWarning, match="model 1 stopped: the loss became nan in epoch 1"):
        histories = ll.fit_many(
            models, train, validation, epochs=3, initialize=False, progress=False
        )
    assert [len(history) for history in histories] == [3, 1, 3, 3, 3]
    assert [history.failed for history in histories] == [False, True, False, False, False]
    assert_close(models[1].state_dict(), regression(1).state_dict(), atol=0, rtol=0)
    twin = regression(2)
    ll.fit(twin, train[2], validation[2], seed=2, epochs=3, initialize=False, progress=False)
    close(models[2].state_dict(), twin.state_dict())


@pytest.mark.parametrize("validated", [False, True])
def test_a_model_that_diverges_late_has_the_weights_that_fit_leaves(validated: bool) -> None:
    train, validation = splits(curve())
    held_out = validation if validated else None
    models, twin = [regression(seed) for seed in range(COUNT)], regression(1)
    for model in (*models, twin):
        model.head.register_buffer("steps", torch.zeros(()))
        model.head.register_forward_pre_hook(fail_late)
    train[1][1][0] = 1e3  # what the hook takes for a bad example
    options: dict[str, Any] = {"epochs": 4, "batch_size": 40, "progress": False}
    options |= {"initialize": False, "validate_every": 2}
    kept = "best weights so far, those of epoch 2" if validated else "weights of epoch 2, the last"
    with pytest.warns(UserWarning, match=f"model 1 stopped: .* in epoch 3; .*{kept}"):
        histories = ll.fit_many(models, train, held_out, **options)
    assert [len(history) for history in histories] == [4, 3, 4, 4, 4]
    with pytest.raises(FloatingPointError, match=kept):
        ll.fit(twin, train[1], validation[1] if validated else None, seed=1, **options)
    for model in (models[1], twin):
        assert all(value.isfinite().all() for value in model.state_dict().values())
    close(dict(models[1].named_parameters()), dict(twin.named_parameters()))


def fail_late(head: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make features NaN in the third step on data with a large target."""
    features, *targets = arguments
    if not targets:
        return arguments
    head.steps.add_(1)  # type: ignore[operator]
    bad = (head.steps > 2) & (targets[0].abs() > 100).any()  # type: ignore[operator]
    return (features.where(~bad, torch.nan), *targets)


def test_a_model_that_diverges_does_not_stop_the_others_from_retraining() -> None:
    train, validation = splits(curve())
    train[1][0][0, 0] = torch.nan
    models = [regression(seed) for seed in range(COUNT)]
    with pytest.warns(UserWarning, match="model 1 stopped"):
        histories = ll.fit_many(
            models, train, validation, epochs=3, initialize=False, retrain=True, progress=False
        )
    assert [len(history) for history in histories] == [3, 1, 3, 3, 3]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([], curve()), {}, ValueError, "no models"),
        (([regression(), classification()], curve()), {}, ValueError, "must be alike"),
        (([regression()], [curve(), curve()]), {}, ValueError, "1 models, but a list of 2"),
        (([regression(), regression()], [curve(), curve(count=8)]), {}, ValueError, "same shapes"),
        (([regression()] * 2, curve()), {}, ValueError, "one is there twice"),
        (([regression()], curve(count=0)), {}, ValueError, "and not empty"),
        (([regression()], [[curve()]]), {}, TypeError, "one by one with fit"),
        (([regression()], curve()), {"epoch": 3}, TypeError, "unexpected keyword argument 'epoch'"),
        (([regression()], curve()), {"seed": 3}, TypeError, "unexpected keyword argument 'seed'"),
        (([regression()], curve()), {"precision": "float16"}, ValueError, "not in float16"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        ll.fit_many(*arguments, **{"progress": False, **options})


@pytest.mark.slow
def test_traces_are_kept_for_models_alike_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tuple(part[:20] for part in curve())

    def trained(seed: int, **traces: Any) -> list[Any]:
        models = [regression(10 * seed + at) for at in range(2)]
        options = Options(epochs=3, batch_size=8, progress=False)
        run(models, [data, data], [None, None], options, [0, 1], **traces)
        return [model.state_dict() for model in models]

    plain = [trained(seed) for seed in (0, 1)]  # too few steps to be worth a trace
    monkeypatch.setattr("lastlayer.training.many.UNTRACED", 1)
    traces: dict[Any, Any] = {}
    kept = [trained(seed, traces=traces) for seed in (0, 1)]
    assert len(traces) == 2  # of batches of eight and of four, for both calls
    assert all(callable(one) for one in traces.values())
    assert_close(kept, plain, rtol=0, atol=0)
