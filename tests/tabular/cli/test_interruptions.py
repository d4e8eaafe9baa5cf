"""Interruptions and full disks leave no partial file."""

import errno
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lastlayer.sklearn import load
from lastlayer.tabular import cli
from lastlayer.tabular.cli.running import run
from lastlayer.tabular.cli.saved import SavedModel
from lastlayer.tabular.files.writing import Writer
from tests.helpers.commands import QUICK_FIT, failed, listing


@contextmanager
def handlers_kept() -> Iterator[None]:
    """As they were before."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_nohup_is_respected(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["lastlayer", "--version"])
    with handlers_kept():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with pytest.raises(SystemExit):
            cli.main()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_terminated_is_an_interruption(folder, tmp_path, capsys, monkeypatch, number):
    """Also where a shell has Ctrl-C ignored, as for commands in the background."""
    to = tmp_path / "out.csv"
    command = ["predict", str(folder / "model"), str(folder / "train.csv"), "-o", str(to)]
    monkeypatch.setattr(sys, "argv", ["lastlayer", *command])
    monkeypatch.setattr(SavedModel, "predictions", lambda *_: signal.raise_signal(number))
    with handlers_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(number, signal.SIG_DFL)  # whatever these tests were started by
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 130
    assert "interrupted; no partial file was left" in capsys.readouterr().err
    assert listing(tmp_path) == []


def test_an_interruption_leaves_nothing_behind(folder, tmp_path, capsys, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SavedModel, "predictions", interrupted)
    to = tmp_path / "out.csv"
    table = str(folder / "train.csv")
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 130
    assert "interrupted; no partial file was left" in capsys.readouterr().err
    assert listing(tmp_path) == []


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path, capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Writer, "write", full)
    to = tmp_path / "out.csv"
    to.write_text("before")
    table = str(folder / "train.csv")
    message = failed(capsys, "predict", str(folder / "model"), table, "-o", str(to))
    assert "the disk is full; no partial file was left" in message
    assert to.read_text() == "before"
    assert listing(tmp_path) == ["out.csv"]


def test_a_file_that_may_not_be_so_large_says_what_to_do(folder, tmp_path, capsys, monkeypatch):
    def too_large(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(Writer, "write", too_large)
    command = ["predict", str(folder / "model"), str(folder / "train.csv")]
    message = failed(capsys, *command, "-o", str(tmp_path / "out.csv"))
    assert "a limit (ulimit -f) allows; write elsewhere, or raise the limit" in message
    assert listing(tmp_path) == []


@pytest.mark.slow
def test_a_full_disk_leaves_the_older_model(folder, tmp_path, capsys, monkeypatch):
    train, model = str(folder / "train.csv"), tmp_path / "model"
    shutil.copytree(folder / "model", model)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    message = failed(capsys, "fit", train, "--target", "price", "--model", str(model), *QUICK_FIT)
    assert "the disk is full" in message
    assert listing(tmp_path) == ["model"]
    load(model)
