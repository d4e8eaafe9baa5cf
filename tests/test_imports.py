"""Imports point one way: a module imports only what stands before it in LAYERS.

Imports inside functions count; those for type checkers alone do not.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "lastlayer"

# Modules of one line do not import each other. A new module must be given a place.
LAYERS = [
    ("_checks", "_processes", "_sharding", "doctor"),
    ("functional",),
    ("covariances", "predictive", "priors", "variational"),
    ("noise",),
    ("heads",),
    ("network",),
    ("_data", "_disk"),
    ("_streaming",),
    ("calibration", "posttraining"),  # conformal prediction is a calibration
    ("ood", "training"),  # OOD thresholds are conformal quantiles; crossfit calibrates
    ("metrics",),
    ("acquisition", "bandits", "optimisation", "plots"),
    ("tabular",),
    (
        "__main__",
        "botorch",
        "conformal",
        "lightning",
        "onnx",
        "report",
        "sklearn",
        "streams",
        "transformers",
    ),  # public doors
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
CORE = [name for names in LAYERS[: LEVEL["network"] + 1] for name in names]


def imports(source: str, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Dotted names that a module of this package imports, as tuples."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = (*above, *(node.module.split(".") if node.module else ()))
            yield from ((*base, alias.name) for alias in node.names)


def modules(names: list[str] | None = None) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """The unit of LAYERS a file belongs to, the file, and what it imports."""
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE).with_suffix("")
        unit = relative.parts[0]
        if unit != "__init__" and (names is None or unit in names):
            package = ("lastlayer", *relative.parts[:-1])
            for imported in imports(path.read_text(), package):
                yield unit, path, imported


def test_every_module_has_its_place() -> None:
    units = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in PACKAGE.rglob("*.py")}
    assert units - {"__init__"} == set(LEVEL)


def test_modules_import_only_from_earlier_layers() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {'.'.join(imported)}"
        for unit, path, imported in modules()
        if imported[0] == "lastlayer"
        and imported[1] not in (unit, "__version__")
        and LEVEL[imported[1]] >= LEVEL[unit]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_imports_torch_and_the_standard_library_alone() -> None:
    allowed = {"lastlayer", "torch", *sys.stdlib_module_names}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {imported[0]}"
        for _, path, imported in modules(CORE)
        if imported[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_that_is_installed_imports_what_is_not() -> None:
    outside = {"benchmarks", "examples", "experiments", "tests"}
    assert not {imported[0] for _, _, imported in modules()} & outside


def test_importing_the_package_imports_none_of_its_modules() -> None:
    source = (PACKAGE / "__init__.py").read_text()
    assert {imported[0] for imported in imports(source, ("lastlayer",))} <= {"importlib", "typing"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from ..heads import Head", ("lastlayer", "heads", "Head")),
        ("from .. import ood", ("lastlayer", "ood")),
        ("import lastlayer.plots", ("lastlayer", "plots")),
        ("def f():\n    from ..network import Network", ("lastlayer", "network", "Network")),
        ("if TYPE_CHECKING:\n    from ..ood import scores", None),
    ],
)
def test_lazy_imports_count_and_those_for_type_checkers_do_not(
    source: str, expected: tuple[str, ...] | None
) -> None:
    found = list(imports(source, ("lastlayer", "functional")))
    assert found == ([] if expected is None else [expected])
