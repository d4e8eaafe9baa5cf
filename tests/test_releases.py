"""What is said of a release in several places is the same, and its wheel is complete and typed."""

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from lastlayer import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_and_the_changelog_have_the_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    releases = [heading for heading in headings if heading != "Unreleased"]
    assert re.fullmatch(rf"{re.escape(__version__)} – \d{{4}}-\d\d-\d\d", releases[0])


def test_hosted_tests_run_the_oldest_and_the_newest_python_that_are_promised() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    for version in (promised[0], promised[-1]):
        assert f'"{version}"' in workflow
    assert ".ci/run" in workflow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="it builds the wheel")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    command += ["--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"lastlayer", f"lastlayer-{__version__}.dist-info"}
    files = {"py.typed", "tabular/report/page.html", "tabular/cli/penguins.csv"}
    assert {f"lastlayer/{name}" for name in files} <= set(names)
    source = ROOT / "src" / "lastlayer"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert {f"lastlayer/{name}" for name in modules} <= set(names)


OUTSIDE = """
import lastlayer as ll
from lastlayer.streams import ParquetStream

head = ll.Regression(8, 1, num_data=100)
reveal_type(head.prior)
reveal_type(head.num_data)
reveal_type(ll.fit)
reveal_type(ll.posttrain)
reveal_type(ll.ood.FeatureDensity.from_model)
reveal_type(ParquetStream("a", "x").num_rows)
ll.Regression("8", 1, num_data=100)
"""


@pytest.mark.slow
def test_types_of_the_installed_wheel_are_known_outside(wheel: Path, tmp_path: Path) -> None:
    """Other packages are not read: torch takes a minute, and is not what is tested."""
    pytest.importorskip("mypy", reason="it checks types; install lastlayer[lint]")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "outside.py").write_text(OUTSIDE)
    only = "follow_imports = skip\n[mypy-lastlayer.*]\nfollow_imports = normal\n"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\n{only}")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", ".cache"]
    command += ["--python-executable", str(environment / "bin" / "python"), "outside.py"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    revealed = re.findall(r'Revealed type is "(.*)"', shown)
    plain = [text.removeprefix("builtins.") for text in revealed]
    assert [plain[0], plain[1], plain[5]] == ["lastlayer.priors.Prior", "float", "int"], shown
    for found, result in zip(plain[2:5], ("History", "Network", "FeatureDensity"), strict=True):
        assert re.search(rf"-> lastlayer\.[\w.]+\.{result}$", found), found
    (error,) = re.findall(r"error: (.*)", shown)
    assert 'incompatible type "str"; expected "int"' in error
