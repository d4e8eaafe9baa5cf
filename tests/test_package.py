"""Importing the package, and all its public names."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import lastlayer as ll


def output_of(program: str) -> str:
    """What a new Python prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_importing_is_quick_and_needs_only_torch() -> None:
    program = """
import sys, time
import torch, numpy
before = set(sys.modules)
start = time.process_time()  # not that of other processes
import lastlayer as ll
ll.Network, ll.Regression, ll.GenerativeClassification, ll.DiscriminativeClassification
seconds = time.process_time() - start
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(seconds, *sorted(new - set(sys.stdlib_module_names)))
"""
    seconds, *modules = output_of(program).split()
    assert set(modules) <= {"lastlayer", "torch"}
    assert float(seconds) < 0.15


@pytest.mark.slow
def test_torch_is_imported_when_it_is_needed() -> None:
    program = """
import sys
import lastlayer as ll
print("torch" in sys.modules, ll.Prior.__name__, "torch" in sys.modules)
"""
    assert output_of(program).split() == ["False", "Prior", "True"]


def test_every_public_name_is_there_and_nothing_else() -> None:
    """The names for readers and type checkers are those that a program gets."""
    for name in ll.__all__:
        value = getattr(ll, name)
        assert isinstance(value, ModuleType) or value.__module__.startswith("lastlayer.")
    assert {*ll.__all__, "metrics", "plots"} <= set(dir(ll))
    tree = ast.parse(inspect.getsource(ll))
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    public = [*ll.__all__, "metrics", "plots"]
    assert sorted(alias.name for node in imports for alias in node.names) == sorted(public)
    names = {node.module: {alias.name for alias in node.names} for node in imports if node.module}
    assert names == {module: set(names) for module, names in ll._NAMES_OF.items()}


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import lastlayer.posttraining", "import lastlayer.training"])
def test_functions_are_not_hidden_by_modules(first: str) -> None:
    program = f"{first}; import lastlayer as ll; print(callable(ll.posttrain), callable(ll.fit))"
    assert output_of(program).split() == ["True", "True"]


@pytest.mark.slow
def test_modules_are_attributes_too() -> None:
    program = "import lastlayer as ll; print(ll.sklearn.__name__, ll.predictive.mix.__name__)"
    assert output_of(program).split() == ["lastlayer.sklearn", "mix"]


@pytest.mark.parametrize("name", ["Regresion", "_hidden", "cli.app"])
def test_a_name_that_is_not_there(name: str) -> None:
    assert not hasattr(ll, name)
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(ll, name)


@pytest.mark.slow
def test_without_extras_everything_else_is_there() -> None:
    program = """
import sys
sys.modules.update({name: None for name in ("torchmetrics", "matplotlib", "sklearn", "onnx")})
from lastlayer import *
import inspect
import lastlayer
members = dict(inspect.getmembers(lastlayer))
print("Regression" in members, *(hasattr(lastlayer, n) for n in ("metrics", "plots", "onnx")))
try:
    lastlayer.plots
except AttributeError as error:
    print(error)
try:
    from lastlayer import plots
except ImportError as error:
    print(error)
"""
    *known, first, second = output_of(program).splitlines()
    assert known == ["True False False False"]
    assert first == second
    assert first.endswith("pip install 'lastlayer[plots]'")
