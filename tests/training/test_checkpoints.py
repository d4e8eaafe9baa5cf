"""An interrupted run goes on as if nothing had happened."""

import errno
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer.training.checkpoint import Checkpoint
from tests.helpers.networks import NUM_DATA, classes, curve, regression


class InterruptionError(Exception):
    """Whatever may happen."""


class Interrupting(nn.Module):
    """An identity that raises at the n-th call."""

    def __init__(self, calls: float) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls -= 1
        if self.calls < 0:
            raise InterruptionError
        return inputs


def loader(seed: int) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    dataset = TensorDataset(*curve())
    return DataLoader(dataset, batch_size=8, shuffle=True, generator=generator)


def exactly(actual: Any, expected: Any) -> None:
    assert_close(actual, expected, atol=0, rtol=0)


@pytest.mark.parametrize("case", ["tensors", "loader", "retrain"])
def test_a_run_stopped_anywhere_ends_with_the_same_weights_and_history(
    case: str, tmp_path: Path
) -> None:
    def run(seed: int, calls: float, path: Path | None) -> tuple[dict[str, Any], ll.History]:
        model = regression(seed)
        model.backbone.extend([Interrupting(calls), nn.Dropout(0.2)])  # type: ignore[operator]
        history = ll.fit(
            model,
            loader(seed) if case == "loader" else curve(),
            curve(1),
            epochs=6,
            batch_size=8,
            schedule="cosine",
            learning_rate=0.01,
            retrain=case == "retrain",
            checkpoint=path,
            progress=False,
        )
        return model.state_dict(), history

    expected, history = run(0, float("inf"), None)
    for seed, calls in enumerate([1, 7, 8, 9]):  # the weights come from the checkpoint
        with pytest.raises(InterruptionError):
            run(seed, calls, tmp_path)
    actual, resumed = run(99, float("inf"), tmp_path)
    exactly(actual, expected)
    assert resumed == history
    again, finished = run(99, 0, tmp_path)  # nothing left to do
    exactly(again, expected)
    assert finished == history


@pytest.mark.parametrize("optimizer", [None, ll.SOAP])
def test_many_models_go_on_too(optimizer: Any, tmp_path: Path) -> None:
    def run(path: Path | None, seeds: list[int]) -> tuple[Any, list[ll.History]]:
        models = [regression(seed) for seed in seeds]
        histories = ll.fit_many(
            models,
            curve(count=16),
            curve(1),
            epochs=20,
            patience=4,
            retrain=True,
            learning_rate=0.1,
            optimizer=optimizer,
            checkpoint=path,
            progress=False,
        )
        return [model.state_dict() for model in models], histories

    expected, histories = run(None, [0, 1, 2, 3])
    assert len({len(history.selection) for history in histories}) > 1

    saves = 0
    save = Checkpoint.save

    def interrupted(self: Checkpoint, state: dict[str, Any]) -> None:
        nonlocal saves
        save(self, state)
        saves += 1
        if saves % 5 == 0:
            raise InterruptionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        for attempt in range(3):  # the weights come from the checkpoint, not from the seeds
            with pytest.raises(InterruptionError):
                run(tmp_path, [attempt] * 4 if attempt else [0, 1, 2, 3])
    actual, resumed = run(tmp_path, [9] * 4)
    exactly(actual, expected)
    assert resumed == histories


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_run_killed_at_twenty_random_points_ends_the_same(tmp_path: Path) -> None:
    def run(path: Path | None) -> tuple[dict[str, Any], ll.History]:
        model = regression(0, nn.Dropout(0.2))
        history = ll.fit(
            model,
            curve(),
            curve(1),
            epochs=40,
            batch_size=8,
            learning_rate=0.01,
            checkpoint=path,
            progress=False,
        )
        return model.state_dict(), history

    def started(path: Path) -> int:
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                torch.set_num_threads(1)
                run(path)
            finally:
                os._exit(0)
        return child

    def saved(path: Path) -> int:
        names = [entry.name for entry in path.iterdir()] if path.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=0)

    expected, history = run(None)
    points = random.Random(0)
    kills = 0
    for attempt in range(20):
        path = tmp_path / f"run{attempt // 5}"  # five kills, one after another, in each of four
        number = saved(path) + points.randrange(6)  # of the state after which to kill it
        child, ended = started(path), 0
        while saved(path) < number and not ended:
            ended, _ = os.waitpid(child, os.WNOHANG)
            time.sleep(0.001)
        if not ended:
            time.sleep(points.uniform(0, 0.01))  # between two states, or while one is written
            os.kill(child, signal.SIGKILL)
            kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if attempt % 5 == 4:
            actual, resumed = run(path)
            exactly(actual, expected)
            assert resumed == history
    assert kills > 10, "most must be killed before they end"


def test_a_checkpoint_is_safetensors_and_json_alone(tmp_path: Path) -> None:
    ll.fit(regression(), curve(), epochs=3, checkpoint=tmp_path, progress=False)
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["state.json", "state.safetensors"]
    json.loads(next(tmp_path.rglob("state.json")).read_text())


def test_a_partly_written_state_is_ignored(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "progress": False}
    expected = regression()
    ll.fit(expected, curve(), **options)
    partial = tmp_path / "00000009.partial"
    partial.mkdir()
    (partial / "state.json").write_text("{")
    model = regression()
    ll.fit(model, curve(), checkpoint=tmp_path, **options)
    exactly(model.state_dict(), expected.state_dict())


OPTIONS: dict[str, Any] = {"epochs": 3, "progress": False}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, "learning_rate was 0.001 and is 0.5"),
        ({"epochs": 4}, "epochs was 3 and is 4"),
        ({"schedule": "cosine"}, "schedule was 'constant' and is 'cosine'"),
        ({"seed": 1}, "seeds was 0 and is 1"),
        ({"optimizer": torch.optim.SGD}, "optimizer was None and is 'SGD'"),
    ],
)
def test_a_run_with_other_options_is_not_resumed(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    options = OPTIONS | {"checkpoint": tmp_path}
    ll.fit(regression(), curve(), **options)
    with pytest.raises(ValueError, match=message):
        ll.fit(regression(), curve(), **options | change)


def test_a_schedule_is_known_by_its_values(tmp_path: Path) -> None:
    def decay(power: int) -> Any:
        return lambda done: (1 - done) ** power

    options = OPTIONS | {"checkpoint": tmp_path}
    ll.fit(regression(), curve(), schedule=decay(1), **options)
    ll.fit(regression(), curve(), schedule=decay(1), **options)
    with pytest.raises(ValueError, match=r"learning rates was .* and is"):
        ll.fit(regression(), curve(), schedule=decay(2), **options)


def network(activation: nn.Module, head: ll.Head, **options: Any) -> ll.Network:
    return ll.Network(nn.Sequential(nn.Linear(2, 6), activation), head, **options)


def labelled(**options: Any) -> ll.Head:
    return ll.DiscriminativeClassification(6, 3, **{"num_data": NUM_DATA, **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_data": 99}, "num_data=37.*num_data=99"),
        ({"prior": ll.Prior(variance=2.0)}, "variance=1.*variance=2"),
        ({"prior": ll.Prior(kl_weight=0.5)}, "kl_weight=1.*kl_weight=0.5"),
        ({"bound": "jensen"}, "bound='tilted'.*bound='jensen'"),
        ({"noise": "none"}, "DiagonalNoise"),
        ({"activation": nn.Tanh()}, r"ReLU\(\).*Tanh\(\)"),
        ({"num_samples": 3}, "num_samples=1.*num_samples=3"),
        ({"feature_kl_weight": 0.5}, "feature_kl_weight=1.0.*feature_kl_weight=0.5"),
    ],
)
def test_another_objective_is_not_resumed(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def run(activation: nn.Module | None = None, **options: Any) -> None:
        names = ("num_samples", "feature_kl_weight")
        about = {name: options.pop(name) for name in names if name in options}
        model = network(nn.ReLU() if activation is None else activation, labelled(**options))
        for name, value in about.items():
            setattr(model, name, value)
        ll.fit(model, classes(), checkpoint=tmp_path, **OPTIONS)

    run()
    run()
    with pytest.raises(ValueError, match=f"is of another run: .*model was .*{message}"):
        run(**change)


def test_another_row_covariance_is_not_resumed(tmp_path: Path) -> None:
    ll.fit(regression(), curve(), checkpoint=tmp_path, **OPTIONS)
    with pytest.raises(ValueError, match=r"row_covariance='identity'.*row_covariance='noise'"):
        ll.fit(regression(row_covariance="noise"), curve(), checkpoint=tmp_path, **OPTIONS)


@pytest.mark.parametrize("form", ["tensors", "dataset", "loader", "batches"])
def test_other_data_are_not_resumed_with(form: str, tmp_path: Path) -> None:
    def given(x: torch.Tensor, y: torch.Tensor) -> Any:
        dataset = TensorDataset(x, y)
        forms = {"tensors": (x, y), "dataset": dataset, "batches": [(x, y)]}
        return forms.get(form, DataLoader(dataset, batch_size=8))

    options = OPTIONS | {"checkpoint": tmp_path}
    x, y = curve()
    ll.fit(regression(), given(x, y), **options)
    ll.fit(regression(), given(x.clone(), y), **options)
    with pytest.raises(ValueError, match=r"digest of the data was '\w+' and is"):
        ll.fit(regression(), given(x, y.roll(1, 0)), **options)


def test_random_augmentation_is_not_taken_for_other_data(tmp_path: Path) -> None:
    x, y = curve()

    class Augmented(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return x[index] * random.choice([-1.0, 1.0]), self.tensors[1][index]

    options = OPTIONS | {"checkpoint": tmp_path}
    for _ in range(3):
        ll.fit(regression(), Augmented(x, y), **options)
    with pytest.raises(ValueError, match="digest of the data"):
        ll.fit(regression(), Augmented(x, y.roll(1, 0)), **options)


def test_missing_values_in_the_data_are_data_like_others(tmp_path: Path) -> None:
    x, y = curve()
    y[3] = torch.nan
    weight = y.isfinite().double().squeeze(-1)
    options = OPTIONS | {"checkpoint": tmp_path}
    first, again = regression(), regression()
    history = ll.fit(first, (x, y, weight), **options)
    assert ll.fit(again, (x.clone(), y.clone(), weight), **options) == history
    exactly(again.state_dict(), first.state_dict())


def damage_tensors(folder: Path) -> None:
    (folder / "state.safetensors").write_bytes(b"nonsense")


def damage_a_bit(folder: Path) -> None:
    file = folder / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 64
    file.write_bytes(bytes(content))


def damage_json(folder: Path) -> None:
    (folder / "state.json").write_text("{")


def leave_out_the_engine(folder: Path) -> None:
    file = folder / "state.json"
    saved = json.loads(file.read_text())
    saved["state"]["items"] = [item for item in saved["state"]["items"] if item[0] != "engine"]
    file.write_text(json.dumps(saved))


def leave_out_everything(folder: Path) -> None:
    (folder / "state.json").write_text("{}")


@pytest.mark.parametrize(
    "damage",
    [damage_tensors, damage_a_bit, damage_json, leave_out_the_engine, leave_out_everything],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_checkpoint_says_so(damage: Any, tmp_path: Path) -> None:
    ll.fit(regression(), curve(), epochs=1, checkpoint=tmp_path, progress=False)
    damage(next(tmp_path.rglob("state.json")).parent)
    with pytest.raises(ValueError, match=r"cannot be read: .*; delete .* to train from the begin"):
        ll.fit(regression(), curve(), epochs=1, checkpoint=tmp_path, progress=False)


def test_a_full_disk_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = regression()
    history = ll.fit(expected, curve(), **OPTIONS)
    saves = 0

    def full(path: Path) -> None:
        nonlocal saves
        saves += path.name == "state.json"
        if saves > 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lastlayer.training.checkpoint.to_disk", full)
        with pytest.raises(OSError, match=r"cannot save a checkpoint .*No space left") as caught:
            ll.fit(regression(), curve(), checkpoint=tmp_path, **OPTIONS)
    assert caught.value.errno == errno.ENOSPC
    assert "the state before it is kept in" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["00000002"]
    model = regression()
    assert ll.fit(model, curve(), checkpoint=tmp_path, **OPTIONS) == history
    exactly(model.state_dict(), expected.state_dict())


def test_a_file_in_the_place_of_the_folder_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(NotADirectoryError, match="must be a folder, or not exist"):
        ll.fit(regression(), curve(), epochs=1, checkpoint=path, progress=False)
    assert path.read_text() == "mine"
