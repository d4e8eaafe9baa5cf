"""What `lastlayer doctor` says."""

import importlib.metadata
import subprocess
import sys

import pytest
import torch

from lastlayer import __version__, doctor
from lastlayer.tabular.cli.running import run


def test_it_names_versions_threads_and_every_extra_for_users(capsys):
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"lastlayer {__version__}" in shown
    assert f"torch {torch.__version__}" in shown
    assert f"{torch.get_num_threads()} thread" in shown
    extras = set(importlib.metadata.metadata("lastlayer").get_all("Provides-Extra") or [])
    for extra in extras - set(doctor.DEVELOPERS):
        assert f"extra {extra} " in shown
    assert "extra lint" not in shown


def test_a_package_that_is_missing_is_named_with_the_extra_that_has_it(monkeypatch):
    installed = doctor.version
    absent = {"matplotlib", "safetensors"}
    monkeypatch.setattr(doctor, "version", lambda name: None if name in absent else installed(name))
    found = list(doctor.lines())
    assert "base install: without safetensors: pip install 'lastlayer'" in found
    (plots,) = (line for line in found if line.startswith("extra plots"))
    assert plots.endswith("without matplotlib: pip install 'lastlayer[plots]'")
    (metrics,) = (line for line in found if line.startswith("extra metrics"))
    assert metrics.endswith("complete")


@pytest.mark.slow
def test_it_works_without_the_library_of_the_command_line():
    code = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['lastlayer', 'doctor']\n"
        "from lastlayer.tabular.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "extra plots" in done.stdout
    assert "the command line needs typer" in done.stderr
