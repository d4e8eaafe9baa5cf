"""The command `python -m experiments`, and the pages that it writes."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments import pages
from experiments.__main__ import app
from experiments.harness import command
from experiments.uci.methods import METHODS

RECORDED = Path(__file__).parents[2] / "results"


def lines(*arguments: str) -> dict[str, str]:
    """What a command prints, by the first word of each line."""
    shown = CliRunner().invoke(app, list(arguments))
    assert shown.exit_code == 0, shown.output
    return {line.split()[0]: line for line in shown.output.splitlines() if line[:1].strip()}


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "console", Console(width=200))


def test_the_bare_command_lists_experiments_and_commands_with_a_line_each() -> None:
    shown = lines()
    assert "VBLL and every baseline" in shown["uci"]
    for name in ("text", "toy", "regularizers", "hyperparameters", "report", "methods", "download"):
        assert len(shown[name].split()) > 3


def test_methods_are_listed_with_what_they_are() -> None:
    shown = lines("methods")
    assert set(METHODS) <= set(shown)
    assert "Exact Gaussian process regression" in shown["gp"]
    assert "Ours with one change: constant learning rate." in shown["ours-constant"]


@pytest.mark.slow
def test_report_writes_a_page_for_each_experiment_with_records_and_an_index(tmp_path: Path) -> None:
    for name in ("toy", "regularizers", "hyperparameters"):
        (tmp_path / name).mkdir()
        shutil.copy(RECORDED / name / f"{name}.json", tmp_path / name)
    (tmp_path / "uci").mkdir()
    shutil.copy(RECORDED / "uci" / "boston-vbll.jsonl", tmp_path / "uci")
    (tmp_path / "text").mkdir()
    shutil.copy(RECORDED / "text" / "minilm-mlp.jsonl", tmp_path / "text")
    (tmp_path / "images").mkdir()
    shutil.copy(RECORDED / "images" / "cifar10-dnn.jsonl", tmp_path / "images")
    (tmp_path / "bandits").mkdir()
    shutil.copy(RECORDED / "bandits" / "wheel-uniform.jsonl", tmp_path / "bandits")
    (tmp_path / "classes").mkdir()
    shutil.copy(RECORDED / "classes" / "digits-uniform.jsonl", tmp_path / "classes")
    (tmp_path / "bayesopt").mkdir()
    shutil.copy(RECORDED / "bayesopt" / "branin-random.jsonl", tmp_path / "bayesopt")
    (tmp_path / "active").mkdir()
    shutil.copy(RECORDED / "active" / "energy-lcmd.jsonl", tmp_path / "active")
    (tmp_path / "ood").mkdir()
    shutil.copy(RECORDED / "ood" / "texts.jsonl", tmp_path / "ood")
    written = lines("report", "--results", str(tmp_path))
    assert written
    index = (tmp_path / "README.md").read_text()
    assert len(index.splitlines()) < 40  # one screen
    for name in pages.PAGES:
        assert f"[{name}]({name}/README.md)" in index
        assert (tmp_path / name / "README.md").is_file()
    shutil.rmtree(tmp_path / "toy")
    lines("report", "--results", str(tmp_path))
    assert "[toy]" not in (tmp_path / "README.md").read_text()


@pytest.mark.slow
def test_the_pages_of_this_repository_are_those_of_its_records(tmp_path: Path) -> None:
    """Every number: tables, and text around them."""
    results = tmp_path / "results"
    ignored = shutil.ignore_patterns("*.png", ".checkpoints")
    shutil.copytree(RECORDED, results, ignore=ignored)
    for path in pages.write(results):
        kept = RECORDED / path.relative_to(results)
        assert path.read_text() == kept.read_text(), f"run python -m experiments report: {kept}"
