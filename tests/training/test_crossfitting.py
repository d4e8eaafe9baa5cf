"""The length of training and the calibration come from data that were held out."""

import copy
import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.calibration import TemperatureScaling
from lastlayer.training import bar
from lastlayer.training.folds import Fold
from lastlayer.training.search import Problem, Try, lengths, race

OPTIONS: dict[str, Any] = {
    "epochs": 8,
    "shortest": 2,
    "weight_decays": (30.0,),
    "batch_size": 8,
    "progress": False,
}


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


def classifier(head: Any, train: tuple[Tensor, ...]) -> ll.Network:
    return ll.Network(nn.Identity(), head(2, 2, num_data=len(train[0])))


def test_lengths_double_up_to_the_longest() -> None:
    assert lengths(16, 2048) == [16, 32, 64, 128, 256, 512, 1024, 2048]
    assert lengths(3, 50) == [3, 6, 12, 25, 50]
    assert lengths(16, 5) == [5]


def test_every_part_is_held_out_once_and_what_is_left_over_never() -> None:
    data = torch.arange(13), torch.arange(13) + 100
    folds = Fold.of(data, 4, 4, seed=0)
    held = [row for fold in folds for row in fold.held_out[0].tolist()]
    assert len(held) == len(set(held)) == 12
    assert held != sorted(held), "parts are random"
    for fold in folds:
        assert len(fold.held_out[0]) == 3
        assert sorted([*fold.train[0].tolist(), *fold.held_out[0].tolist()]) == list(range(13))
        assert_close(fold.train[1], fold.train[0] + 100)
    again, other = (Fold.of(data, 4, 2, seed)[1].held_out[0].tolist() for seed in (0, 1))
    assert again == folds[1].held_out[0].tolist() != other


def test_examples_of_a_group_are_held_out_together_and_all_folds_train_on_as_many() -> None:
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(40, (203,), generator=generator) * 7 - 3
    rows = torch.arange(203)
    folds = Fold.of((rows, rows), 5, 5, seed=1, groups=groups)
    held = torch.cat([fold.held_out[0] for fold in folds])
    assert len(held.unique()) == len(held) > 0.9 * 203
    largest = int(groups.unique(return_counts=True)[1].max())
    for fold in folds:
        names = set(groups[fold.held_out[0]].tolist())
        assert not names & set(groups[fold.train[0]].tolist())
        assert len(fold.train[0]) == 203 - 203 // 5
        assert 203 // 5 - largest < len(fold.held_out[0]) <= 203 // 5
    again, other = (
        Fold.of((rows, rows), 5, 1, seed, groups)[0].held_out[0].tolist() for seed in (1, 2)
    )
    assert again == folds[0].held_out[0].tolist() != other


def test_groups_of_one_example_are_held_out_like_examples() -> None:
    rows = torch.arange(13)
    folds = Fold.of((rows, rows), 4, 4, seed=0, groups=rows.flip(0))
    held = [row for fold in folds for row in fold.held_out[0].tolist()]
    assert len(held) == len(set(held)) == 12
    assert held != sorted(held)
    assert {len(fold.held_out[0]) for fold in folds} == {3}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.arange(11), "one number for each of 12 examples"),
        (torch.zeros(12, dtype=torch.long), "1 groups cannot be divided into 3 folds"),
        (torch.tensor([0] * 10 + [1, 2]), "largest group has 10 of 12"),
    ],
)
def test_groups_that_cannot_be_divided_are_refused(groups: Tensor, message: str) -> None:
    rows = torch.arange(12)
    with pytest.raises(ValueError, match=message):
        Fold.of((rows, rows), 3, 3, seed=0, groups=groups)


def test_the_search_sees_through_groups_that_repeat_their_examples() -> None:
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.randint(2, (20,), generator=torch.Generator().manual_seed(1))
    data = (x.repeat(4, 1), y.repeat(4))
    make = partial(classifier, ll.DiscriminativeClassification)
    alone = ll.crossfit(make, data, **OPTIONS)
    together = ll.crossfit(make, data, example_groups=torch.arange(20).repeat(4), **OPTIONS)
    for found, groups in ((alone, False), (together, True)):
        seen = [
            bool((fold.held_out[0][:, None] == fold.train[0]).all(-1).any())
            for _, fold in found.folds
        ]
        assert not any(seen) if groups else all(seen)
    assert min(one["nll"] for one in together.tried) > min(one["nll"] for one in alone.tried)


@pytest.mark.slow
def test_each_step_is_what_fit_and_calibration_would_do() -> None:
    data = [line(0), line(1)]
    found = ll.crossfit_many(
        [network, network],
        data,
        seeds=[5, 6],
        num_folds=3,
        **OPTIONS | {"weight_decays": (30.0, 3.0)},
    )
    for one, (x, y), seed in zip(found, data, (5, 6), strict=True):

        def trained(
            train: tuple[Tensor, ...], decay: float, epochs: int, seed: int = seed
        ) -> ll.Network:
            torch.manual_seed(seed)
            model = network(train)
            ll.fit(
                model,
                train,
                optimizer=ll.SOAP,
                learning_rate=3e-3,
                schedule="cosine",
                weight_decay=decay / len(train[0]),
                epochs=epochs,
                batch_size=8,
                seed=seed,
                progress=False,
            )
            return model

        nlls = []
        for tried in one.tried:
            setting = tried["weight_decay"], int(tried["epochs"])
            folds = [fold for _, fold in one.folds]
            held_y = torch.cat([fold.held_out[1] for fold in folds])
            predictives = [trained(fold.train, *setting)(fold.held_out[0]) for fold in folds]
            mean, epistemic, noise = (
                torch.cat([getattr(p, name) for p in predictives]).detach()
                for name in ("mean", "epistemic_variance", "noise_variance")
            )
            predictive = ll.GaussianPredictive(mean, epistemic, noise)
            scaling = ll.calibration.TailScaling().fit(
                predictive.__getitem__,
                (torch.arange(42), held_y),
                progress=False,
            )
            nlls.append(-scaling(predictive).log_prob(held_y).mean().item())
            assert tried["nll"] == pytest.approx(nlls[-1], abs=1e-6)
            if setting == (one.weight_decay, one.epochs):
                assert_close(one.scaling.state_dict(), scaling.state_dict(), atol=1e-5, rtol=1e-5)
                assert_close(one.held_out()[0].mean, mean, atol=1e-6, rtol=1e-6)
        best = one.tried[nlls.index(min(nlls))]
        assert (one.weight_decay, one.epochs) == (best["weight_decay"], best["epochs"])
        expected = trained((x, y), one.weight_decay, one.epochs)
        assert one.model.head.num_data == 43  # type: ignore[union-attr]
        assert_close(one.model(x).mean, expected(x).mean, atol=1e-6, rtol=1e-6)


def settings(found: ll.CrossFit) -> list[tuple[float, float]]:
    return [(tried["weight_decay"], tried["epochs"]) for tried in found.tried]


def test_it_goes_on_as_long_as_that_helps_and_no_longer() -> None:
    """The NLL of a model is here a given function of how it was trained."""

    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
            return self.weight.square() if target is not None else self

    def search(
        values: dict[tuple[float, int], float], alternatives: tuple[float, ...] = ()
    ) -> list[tuple[float, float]]:
        """Which settings are tried, in their order, where each has this NLL."""

        def calibrate(problem: Any, *_: Any) -> tuple[float, nn.Module]:
            *setting, alternative = problem.settings[problem.wants]
            return values[tuple(setting)] + (0.0, *alternatives)[alternative], nn.Identity()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Problem, "_calibrate", calibrate)
            found = ll.crossfit(
                lambda train: Told(),
                line(0),
                alternatives=[lambda train: Told()] * len(alternatives),
                **OPTIONS | {"weight_decays": (1.0, 9.0)},
            )
        assert found.alternative == min(
            range(1 + len(alternatives)), key=(0.0, *alternatives).__getitem__
        )
        lowest = min(settings(found), key=lambda setting: values[setting[0], int(setting[1])])
        assert (found.weight_decay, found.epochs) == lowest
        return settings(found)

    flat = {(decay, length): 0.0 for decay in (1.0, 9.0) for length in (2, 4, 8)}
    assert search(flat) == [(1.0, 2), (1.0, 4), (9.0, 2)]
    assert search(flat | {(1.0, 4): -1.0}) == [(1.0, 2), (1.0, 4), (1.0, 8), (9.0, 4)]
    better = {(1.0, 4): -1.0, (9.0, 4): -2.0, (9.0, 8): -3.0}
    assert search(flat | better) == [(1.0, 2), (1.0, 4), (1.0, 8), (9.0, 4), (9.0, 8)]
    longer = {(1.0, 4): -1.0, (1.0, 8): -2.0}
    assert search(flat | longer) == [(1.0, 2), (1.0, 4), (1.0, 8), (9.0, 8)]
    one = flat | {(1.0, 4): -1.0}
    # two race with two epochs; the better one with four and eight, and with the other decay
    begin = [(1.0, 2), (1.0, 2), (1.0, 4), (1.0, 8), (9.0, 4)]
    assert search(one, (5.0,)) == begin
    assert search(one, (-5.0,)) == begin
    # of four, two are left, and then one
    begin = [*[(1.0, 2)] * 4, *[(1.0, 4)] * 2, (1.0, 8), (9.0, 4)]
    assert search(one, (-5.0, -9.0, 5.0)) == begin
    assert search(flat, (5.0,)) == [(1.0, 2), (1.0, 2), (1.0, 4), (9.0, 2)]


def test_a_race_without_longer_training_is_won_by_the_best_and_decays_are_tried_with_it() -> None:
    problem = Problem([lambda train: nn.Identity()] * 3, line(0), 0, [], race((1.0, 9.0), [4], 3))
    tried = []
    for nll in (0.3, 0.1, 0.2, 0.4):
        tried.append(problem.settings[problem.wants or 0])
        problem.tries.append(Try(tried[-1], nll, [], None))
        problem.wants = problem._next(problem.wants or 0)
    assert tried == [(1.0, 4, 0), (1.0, 4, 1), (1.0, 4, 2), (9.0, 4, 1)]
    assert problem.wants is None
    assert problem.falling() == 0.0


def test_it_says_whether_longer_training_could_have_helped() -> None:
    problem = Problem([lambda train: nn.Identity()], line(0), 0, [], race((1.0,), [2, 4, 8], 1))
    for setting, nll in zip(problem.settings, (0.5, 0.25, 0.125), strict=True):
        problem.tries.append(Try(setting, nll, [], None))
    assert problem.falling() == 0.125
    problem.tries[-1] = problem.tries[-1]._replace(nll=0.3)
    assert problem.falling() == 0.0


def test_the_best_so_far_is_returned_when_time_is_over() -> None:
    options = OPTIONS | {"epochs": 10**6, "shortest": 10**6}
    found = ll.crossfit(network, line(0), time_limit=0.5, **options)
    assert found.out_of_time
    assert len(found.tried) == 1
    assert found.model is found.folds[0][0]  # there was no time to train on all the data
    assert math.isfinite(found.tried[0]["nll"])
    unlimited = ll.crossfit(network, line(0), **OPTIONS)
    found = ll.crossfit(network, line(0), time_limit=1e6, **OPTIONS)
    assert found.tried == unlimited.tried
    assert not found.out_of_time


def test_progress_says_how_far_the_search_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = ll.crossfit(network, line(0), **OPTIONS | {"shortest": 4, "progress": True})
    assert not capsys.readouterr().err  # soon done
    best = f"try 2 (held-out NLL so far {found.tried[0]['nll']:.4g})"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bar, "SECONDS_PER_LINE", 0.0)
        ll.crossfit(network, line(0), **OPTIONS | {"shortest": 4, "progress": True})
        lines = capsys.readouterr().err
        patch.setattr("sys.stderr.isatty", lambda: True)
        ll.crossfit(network, line(0), **OPTIONS | {"shortest": 4, "progress": True})
    for shown in (lines, capsys.readouterr().err):
        for part in ("try 1", best, "training on all data"):
            assert part in shown
        assert "loss" not in shown


def test_fewer_turns_hold_out_less() -> None:
    one = ll.crossfit(network, line(0), num_folds=2, turns=1, **OPTIONS | {"epochs": 2})
    assert settings(one) == [(30.0, 2)]
    assert len(one.folds) == 1
    assert len(one.held_out()[1][0]) == 21


@pytest.mark.slow
@pytest.mark.parametrize("head", [ll.DiscriminativeClassification, ll.GenerativeClassification])
def test_classes_are_calibrated_by_a_temperature(head: Any) -> None:
    one = ll.crossfit(partial(classifier, head), labelled(0), **OPTIONS)
    assert isinstance(one.scaling, ll.calibration.TemperatureScaling)
    predictive, data = one.held_out()
    scaled = one.scaling(predictive).log_prob(data[1]).mean().item()
    assert -scaled == pytest.approx(min(tried["nll"] for tried in one.tried))
    assert predictive.probs().shape == (40, 2)


@pytest.mark.slow
def test_several_outputs_have_scales_of_their_own() -> None:
    x, y = line(0)
    for noise, kind in (("diagonal", "TailScaling"), ("dense", "VarianceScaling")):

        def make(train: tuple[Tensor, ...], noise: Any = noise) -> ll.Network:
            return ll.Network(
                nn.Identity(), ll.Regression(2, 2, num_data=len(train[0]), noise=noise)
            )

        one = ll.crossfit(make, (x, torch.cat([y, 100 * y], 1)), **OPTIONS)
        assert type(one.scaling).__name__ == kind
        assert one.scaling.variance_scale.shape == (2,)
    chosen = ll.crossfit(network, (x, y), scaling=ll.calibration.VarianceScaling, **OPTIONS)
    assert isinstance(chosen.scaling, ll.calibration.VarianceScaling)


@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_examples_without_weight_do_not_matter(shape: tuple[int, ...]) -> None:
    x, y = line(0, 40)
    spoilt, weight = y.clone(), torch.ones(40, dtype=torch.float64)
    spoilt[::4], weight[::4] = float("nan"), 0.0
    options = OPTIONS | {"num_folds": 2, "scaling": ll.calibration.VarianceScaling}
    clean = ll.crossfit(network, (x, y, weight), **options)
    other = ll.crossfit(network, (x, spoilt, weight.reshape(shape)), **options)
    assert other.tried == clean.tried
    assert math.isfinite(clean.tried[0]["nll"])
    assert_close(other.scaling.state_dict(), clean.scaling.state_dict())
    assert_close(other.model(x).mean, clean.model(x).mean)


@pytest.mark.slow
def test_what_fails_is_not_chosen_and_spoils_nothing_else() -> None:
    x, y = line(0)
    options = OPTIONS | {"epochs": 200, "shortest": 100, "weight_decays": (3.0, 1e6)}
    with pytest.warns(UserWarning, match="the loss became"):
        one = ll.crossfit(network, (x, y), **options)
    assert one.weight_decay == 3.0
    assert math.isinf(one.tried[-1]["nll"])
    spoilt = y.clone()
    spoilt[3] = float("nan")
    message = "problem with seed 1 had finite predictions"
    warns = pytest.warns(UserWarning, match="the loss became")
    with warns, pytest.raises(FloatingPointError, match=message):
        ll.crossfit_many([network] * 2, [(x, y), (x, spoilt)], **OPTIONS)


def test_random_numbers_are_those_of_the_seed_and_the_callers_stay() -> None:
    def random(train: tuple[Tensor, ...]) -> ll.Network:
        return ll.Network(ll.make_variational(network(train).backbone), network(train).head)

    torch.manual_seed(3)
    expected = torch.rand(2)
    found = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        found.append(ll.crossfit(random, line(0), num_folds=2, **OPTIONS | {"epochs": 2}))
        if seed == 3:
            assert_close(torch.rand(2), expected)
    assert found[0].tried == found[1].tried


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
    expected = ll.crossfit(network, line(0), **options | {"checkpoint": None})
    with pytest.raises(InterruptionError):
        ll.crossfit(partial(counting, limit=3), line(0), **options)
    assert (tmp_path / "try-30-2").is_dir()
    for _ in range(2):
        actual = ll.crossfit(network, line(0), **options)
        assert actual.tried == expected.tried
        assert_close(actual.model.state_dict(), copy.deepcopy(expected.model.state_dict()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_folds": 1}, "num_folds must be an integer of at least 2"),
        ({"num_folds": 50}, "43 examples cannot be divided into 50 folds; lower num_folds"),
        ({"num_folds": 3, "turns": 4}, "turns=4, but there are only num_folds=3"),
        ({"turns": 0}, "turns must be an integer"),
        ({"shortest": 0}, "shortest must be an integer"),
        ({"weight_decays": ()}, r"at least zero, got \(\); pass \(0.0,\) for none"),
        ({"weight_decays": (1.0, -1.0)}, "at least zero, got"),
        ({"epochs": 0}, "epochs must be an integer"),
        ({"growth": 1}, "growth must be an integer of at least 2"),
        ({"time_limit": 0}, "time_limit must be a positive number of seconds"),
    ],
)
def test_bad_arguments_say_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ll.crossfit(network, line(0), **OPTIONS | change)


def test_each_problem_has_its_function_and_holds_out_by_itself() -> None:
    for makes, data in (([network], [line(0), line(1)]), ([], [])):
        with pytest.raises(ValueError, match=f"got {len(makes)} functions and {len(data)} data"):
            ll.crossfit_many(makes, data, **OPTIONS)
    for option in ("validation", "patience", "weight_decay", "retrain"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
            ll.crossfit(network, line(0), **OPTIONS | {option: 1})
    arrays: Any = tuple(part.numpy() for part in line(0))
    with pytest.raises(TypeError, match="must be tensors, got NumPy arrays"):
        ll.crossfit(network, arrays, **OPTIONS)
    with pytest.raises(ValueError, match=r"as many examples each, got \[42, 43\]"):
        ll.crossfit(network, (line(0)[0], line(0)[1][1:]), **OPTIONS)


@pytest.fixture(scope="module")
def found_and_solved() -> tuple[ll.CrossFit, ll.CrossFit, tuple[Tensor, Tensor]]:
    data = labelled(3)
    head = partial(ll.DiscriminativeClassification, bias=True, dtype=torch.float64)
    make = partial(classifier, head)
    found = ll.crossfit(make, data, num_folds=4, **OPTIONS)
    return found, found.solve(data), data


def out_of_fold_nll(found: ll.CrossFit, variance: float) -> float:
    """By brute force: each fold's head at the optimum of its loss, its held-out NLL."""
    losses = []
    for model, fold in found.folds:
        head: Any = copy.deepcopy(model.head)
        head.prior = dataclasses.replace(head.prior, variance=variance)
        head.fit_features(*fold.train, tolerance=1e-8, max_passes=500)
        losses.append(-head(fold.held_out[0]).log_prob(fold.held_out[1]).mean().item())
    return sum(losses) / len(losses)


def test_a_solved_last_layer_has_the_prior_of_the_lowest_out_of_fold_nll(
    found_and_solved: Any,
) -> None:
    found, solved, _ = found_and_solved
    chosen = solved.model.head.prior.fixed_variance
    assert chosen != found.model.head.prior.fixed_variance
    with torch.no_grad():
        best = out_of_fold_nll(found, chosen)
        assert best < out_of_fold_nll(found, found.model.head.prior.fixed_variance)
        for factor in (0.1, 10.0):
            assert best < out_of_fold_nll(found, factor * chosen) + 1e-3  # of the search


def test_a_solved_last_layer_is_at_the_optimum_of_its_loss_and_calibrated_out_of_fold(
    found_and_solved: Any,
) -> None:
    found, solved, data = found_and_solved
    before = [copy.deepcopy(model.state_dict()) for model, _ in found.folds]
    loss = solved.model(*data)
    gradient = torch.autograd.grad(loss, solved.model.head.mean)[0]
    assert gradient.abs().max() < 1e-2
    assert loss < found.model.head(*data)
    predictive, held_out = solved.held_out()
    scaling = TemperatureScaling().fit(
        predictive.__getitem__, (torch.arange(len(held_out[1])), held_out[1]), progress=False
    )
    assert_close(
        solved.scaling.temperature.double(), scaling.temperature.double(), rtol=1e-5, atol=0
    )
    assert_close([model.state_dict() for model, _ in found.folds], before)


def test_a_last_layer_whose_prior_is_learned_is_not_solved_again() -> None:
    data = labelled(3)
    prior = ll.Prior(variance="evidence")
    make = partial(classifier, partial(ll.DiscriminativeClassification, prior=prior))
    found = ll.crossfit(make, data, num_folds=2, **OPTIONS)
    with pytest.raises(ValueError, match="learned by the ELBO"):
        found.solve(data)
    with pytest.raises(TypeError, match=r"lastlayer\.Network"):
        dataclasses.replace(found, folds=[(nn.Identity(), found.folds[0][1])]).solve(data)
