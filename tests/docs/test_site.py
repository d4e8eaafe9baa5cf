"""The site of documentation, built strictly: a broken link or docstring is an error."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import lastlayer as ll
from tests.helpers.processes import made_once

pytest.importorskip("mkdocs", reason="it builds the site; install lastlayer[docs]")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(folder)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "site", build)


def documented(site: Path) -> set[str]:
    """The names in the inventory, which other projects link to."""
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[-1]
    return {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    names = documented(site)
    for name in ll.__all__:
        assert f"lastlayer.{name}" in names or (site / "reference" / f"{name}.html").exists()
    for info in pkgutil.iter_modules(ll.__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"lastlayer.{info.name}")
            for name in getattr(module, "__all__", ()):
                own = getattr(ll, name, None) is getattr(module, name)
                path = f"lastlayer.{name}" if own else f"{module.__name__}.{name}"
                assert path in names, path


def test_methods_of_private_bases_are_in_the_reference(site: Path) -> None:
    names = documented(site)
    assert {"lastlayer.Regression.fit_exact", "lastlayer.Regression.update"} <= names


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        found = re.findall(
            r'<(?:link|script|img)\b[^>]*(?:src|href)="(https?:[^"]*)', page.read_text()
        )
        assert not found, page


def test_every_formula_is_drawn(site: Path) -> None:
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    assert pages[site / "maths.html"].count("<math") > 20
    for page, text in pages.items():
        assert "arithmatex" not in text, page
        assert not re.findall(r"<m[ion]>\\\w+", text), page  # commands that are not known


def test_code_is_not_on_the_site(site: Path) -> None:
    assert not list(site.rglob("*.py"))
    assert (site / "results" / "uci" / "index.html").exists()


def test_every_page_begins_with_what_its_reader_can_do() -> None:
    for page in [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        _, first, *_ = page.read_text().split("\n\n")
        assert first.startswith("After this page you"), page
