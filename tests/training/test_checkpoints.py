"""An interrupted run goes on as if nothing had happened."""

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
from tests.helpers.networks import curve, regression


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

    expected, history = run(None)
    begin = time.monotonic()
    os.waitpid(started(tmp_path / "rehearsal"), 0)
    duration = time.monotonic() - begin
    points = random.Random(0)
    kills = 0
    for attempt in range(20):
        path = tmp_path / f"run{attempt // 5}"  # five kills, one after another, in each of four
        child = started(path)
        time.sleep(points.uniform(0, 0.4 * duration))
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, "learning_rate was 0.001 and is 0.5"),
        ({"epochs": 4}, "epochs was 3 and is 4"),
        ({"schedule": "cosine"}, "schedule was 'constant' and is 'cosine'"),
    ],
)
def test_another_run_is_not_taken_up(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "checkpoint": tmp_path, "progress": False}
    ll.fit(regression(), curve(), **options)
    with pytest.raises(ValueError, match=message):
        ll.fit(regression(), curve(), **{**options, **change})


def test_other_data_are_not_taken_up_either(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "checkpoint": tmp_path, "progress": False}
    x, y = curve()
    ll.fit(regression(), (x, y), **options)
    ll.fit(regression(), (x.clone(), y), **options)
    with pytest.raises(ValueError, match=r"digest of the data was '\w+' and is"):
        ll.fit(regression(), (x, y.roll(1, 0)), **options)


def test_a_damaged_checkpoint_says_so(tmp_path: Path) -> None:
    ll.fit(regression(), curve(), epochs=1, checkpoint=tmp_path, progress=False)
    next(tmp_path.rglob("state.safetensors")).write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"cannot be read: .*; delete .* to start anew"):
        ll.fit(regression(), curve(), epochs=1, checkpoint=tmp_path, progress=False)


def test_a_file_in_the_place_of_the_folder_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(NotADirectoryError, match="must be a folder, or not exist"):
        ll.fit(regression(), curve(), epochs=1, checkpoint=path, progress=False)
    assert path.read_text() == "mine"
