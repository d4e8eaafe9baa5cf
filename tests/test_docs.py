"""The code in the documentation runs, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


def identifier(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_python_blocks_run(page: Path) -> None:
    torch.set_default_dtype(torch.float32)
    names: dict[str, object] = {}
    exec("import torch, lastlayer as ll", names)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(block, names)


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


def test_every_test_named_in_the_maths_page_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_[a-z0-9_]+)`", (ROOT / "docs" / "maths.md").read_text()):
        assert f"def {name}(" in tests, name
