"""The doors `lastlayer.sklearn`, `.report`, `.onnx` and the command line name their extra."""

import subprocess
import sys

import pytest

DOORS = {
    "sklearn": ["narwhals", "sklearn"],
    "report": ["jinja2", "matplotlib", "narwhals", "sklearn", "torchmetrics"],
    "onnx": ["narwhals", "onnx", "onnxruntime", "onnxscript", "sklearn"],
}


def run_without(missing: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python without a library."""
    code = f"import sys; sys.modules[{missing!r}] = None\n{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "missing"), [(door, name) for door, names in DOORS.items() for name in names]
)
def test_importing_a_door_without_a_library_names_the_extra(door, missing):
    result = run_without(missing, f"import lastlayer.{door}")
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: lastlayer.{door} needs ")
    assert f"pip install 'lastlayer[{door}]'" in last


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["typer", "rich", "pyarrow", "narwhals", "sklearn"])
def test_the_command_line_without_a_library_names_an_extra(missing, tmp_path):
    table = tmp_path / "x.csv"
    table.write_text("a,y\n1,2\n2,3.5\n3,5\n")
    program = (
        f"sys.argv = ['lastlayer', 'fit', {str(table)!r}, '--target', 'y']\n"
        "from lastlayer.tabular.cli import main\nmain()"
    )
    result = run_without(missing, program)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "pip install 'lastlayer[" in result.stderr
