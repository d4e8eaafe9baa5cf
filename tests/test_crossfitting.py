"""The length of training and the calibration come from data that were held out."""

import copy
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.crossfitting import Fold, lengths

OPTIONS: dict[str, Any] = {"epochs": 8, "shortest": 2, "batch_size": 8, "progress": False}


def line(seed: int, count: int = 43) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, dtype=torch.float64, generator=generator)
    noise = torch.randn(count, 1, dtype=torch.float64, generator=generator)
    return x, x.sum(-1, keepdim=True).sin() + 0.1 * noise


def network(train: tuple[Tensor, ...]) -> ll.Network:
    backbone = nn.Sequential(nn.Linear(2, 6), nn.Tanh())
    return ll.Network(backbone, ll.Regression(6, num_data=len(train[0])))


def labelled(seed: int) -> tuple[Tensor, Tensor]:
    x, y = line(seed)
    return x, (y > 0).long().squeeze(-1)


def classifier(train: tuple[Tensor, ...]) -> ll.Network:
    return ll.Network(nn.Identity(), ll.DiscriminativeClassification(2, 2, num_data=len(train[0])))


def test_lengths_double_up_to_the_longest() -> None:
    assert lengths(16, 2048) == [16, 32, 64, 128, 256, 512, 1024, 2048]
    assert lengths(3, 50) == [3, 6, 12, 25, 50]
    assert lengths(16, 5) == [5]


def test_every_part_is_held_out_once_and_what_is_left_over_never() -> None:
    data = torch.arange(13), torch.arange(13) + 100
    folds = Fold.of(data, 4, 4)
    assert [fold.held_out[0].tolist() for fold in folds] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]
    ]  # fmt: skip
    for fold in folds:
        assert sorted([*fold.train[0].tolist(), *fold.held_out[0].tolist()]) == list(range(13))
        assert_close(fold.train[1], fold.train[0] + 100)
    assert len(Fold.of(data, 4, 2)) == 2


def test_each_step_is_what_fit_and_calibration_would_do() -> None:
    data = [line(0), line(1)]
    found = ll.crossfit([network, network], data, seeds=[5, 6], num_folds=3, **OPTIONS)
    for one, (x, y), seed in zip(found, data, (5, 6), strict=True):

        def trained(train: tuple[Tensor, ...], epochs: int, seed: int = seed) -> ll.Network:
            torch.manual_seed(seed)
            model = network(train)
            ll.fit(
                model,
                train,
                optimizer=ll.SOAP,
                learning_rate=3e-3,
                schedule="cosine",
                weight_decay=30 / len(train[0]),
                epochs=epochs,
                batch_size=8,
                seed=seed,
                progress=False,
            )
            return model

        nlls = []
        for tried in one.tried:
            epochs = int(tried["epochs"])
            predictives = []
            for part in range(3):
                held = torch.arange(43) // 14 == part
                model = trained((x[~held], y[~held]), epochs)
                predictives.append(model(x[held]))
            mean, epistemic, noise = (
                torch.cat([getattr(p, name) for p in predictives]).detach()
                for name in ("mean", "epistemic_variance", "noise_variance")
            )
            predictive = ll.GaussianPredictive(mean, epistemic, noise)
            scaling = ll.calibration.TailScaling().fit(
                predictive.__getitem__,
                (torch.arange(42), y[:42]),
                progress=False,
            )
            nlls.append(-scaling(predictive).log_prob(y[:42]).mean().item())
            assert tried["nll"] == pytest.approx(nlls[-1], abs=1e-6)
            if epochs == one.epochs:
                assert_close(one.scaling.state_dict(), scaling.state_dict(), atol=1e-5, rtol=1e-5)
                assert_close(one.held_out()[0].mean, mean, atol=1e-6, rtol=1e-6)
        assert nlls.index(min(nlls)) >= len(nlls) - 2, "it stops after the first that is worse"
        assert one.epochs == one.tried[nlls.index(min(nlls))]["epochs"]
        expected = trained((x, y), one.epochs)
        assert one.model.head.num_data == 43  # type: ignore[union-attr]
        assert_close(one.model(x).mean, expected(x).mean, atol=1e-6, rtol=1e-6)


def test_it_goes_on_as_long_as_that_helps_and_no_longer() -> None:
    (one,) = ll.crossfit([network], [line(0)], num_folds=2, **OPTIONS | {"learning_rate": 1e-4})
    assert [tried["epochs"] for tried in one.tried] == [2, 4, 8]
    assert one.epochs == 8
    (one,) = ll.crossfit([network], [line(0)], num_folds=2, turns=1, **OPTIONS | {"epochs": 2})
    assert one.epochs == 2
    assert len(one.folds) == 1
    assert len(one.held_out()[1][0]) == 21


def test_classes_are_calibrated_by_a_temperature() -> None:
    kind = ll.calibration.TemperatureScaling
    (one,) = ll.crossfit([classifier], [labelled(0)], scaling=kind, **OPTIONS)
    assert isinstance(one.scaling, kind)
    predictive, data = one.held_out()
    scaled = one.scaling(predictive).log_prob(data[1]).mean().item()
    assert -scaled == pytest.approx(min(tried["nll"] for tried in one.tried))
    assert predictive.probs().shape == (40, 2)


def test_examples_without_weight_do_not_matter() -> None:
    x, y = line(0, 40)
    spoilt, weight = y.clone(), torch.ones(40, dtype=torch.float64)
    spoilt[::4], weight[::4] = 1e3, 0.0
    options = OPTIONS | {"initialize": False, "num_folds": 2}
    (clean,) = ll.crossfit([network], [(x, y, weight)], **options)
    (other,) = ll.crossfit([network], [(x, spoilt, weight)], **options)
    assert other.tried == clean.tried
    assert_close(other.scaling.state_dict(), clean.scaling.state_dict())
    assert_close(other.model(x).mean, clean.model(x).mean)


def test_the_callers_random_numbers_stay() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    ll.crossfit([network], [line(0)], num_folds=2, **OPTIONS | {"epochs": 2})
    assert_close(torch.rand(2), expected)


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    class InterruptionError(Exception):
        pass

    count = 0

    def counting(train: tuple[Tensor, ...], limit: float = math.inf) -> ll.Network:
        nonlocal count
        count += 1
        if count > limit:
            raise InterruptionError
        return network(train)

    options = OPTIONS | {"num_folds": 2, "checkpoint": tmp_path}
    (expected,) = ll.crossfit([network], [line(0)], **options | {"checkpoint": None})
    with pytest.raises(InterruptionError):
        ll.crossfit([partial(counting, limit=3)], [line(0)], **options)
    assert (tmp_path / "try-2").is_dir()
    for _ in range(2):
        (actual,) = ll.crossfit([network], [line(0)], **options)
        assert actual.tried == expected.tried
        assert_close(actual.model.state_dict(), copy.deepcopy(expected.model.state_dict()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_folds": 1}, "num_folds must be an integer of at least 2"),
        ({"num_folds": 50}, "43 examples cannot be held out in 50 parts; lower num_folds"),
        ({"num_folds": 3, "turns": 4}, "turns=4, but there are only num_folds=3"),
        ({"turns": 0}, "turns must be an integer"),
        ({"shortest": 0}, "shortest must be an integer"),
        ({"epochs": 0}, "epochs must be an integer"),
        ({"patience": 3}, "patience is about the validation NLL"),
        ({"epoch": 3}, "option must be one of"),
    ],
)
def test_bad_arguments_say_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ll.crossfit([network], [line(0)], **OPTIONS | change)


def test_one_function_for_each_problem() -> None:
    with pytest.raises(ValueError, match="1 functions that make models, and 2 data"):
        ll.crossfit([network], [line(0), line(1)], **OPTIONS)
