"""The code in the documentation runs from top to bottom, and its links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import torch

import lastlayer as ll
from lastlayer.tabular.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
)
NEEDS = {"docs/deciding.md": "botorch"}  # which Python 3.10 does not have
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Their code trains for a second or longer.
SLOW = {
    "README.md",
    *(f"docs/{name}.md" for name in ("calibrating", "deciding", "detecting", "frameworks")),
    *(f"docs/{name}.md" for name in ("network", "noise", "tables", "training")),
}


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of what can be run, in order."""
    return BLOCK.findall((ROOT / page).read_text())


def pages_with_code() -> list[object]:
    return [
        pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [])
        for page in PAGES
        if any(language == "python" for language, _ in blocks(page))
    ]


# Lightning's advice, and what torch has deprecated since.
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning")
@pytest.mark.parametrize("page", pages_with_code())
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one namespace and an empty folder; of shell blocks, the commands of `lastlayer`."""
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # commands install handlers
    names: dict[str, object] = {"__name__": "page"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), names)
        else:
            for line in text.splitlines():
                command = shlex.split(line, comments=True)
                if command[:1] == ["lastlayer"]:
                    monkeypatch.setattr("sys.argv", command)
                    with pytest.raises(SystemExit) as exit_:
                        main()
                    assert exit_.value.code == 0, line


def anchors(page: Path) -> set[str]:
    """What headings are called in links, as GitHub does it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    path = ROOT / page
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_test_named_in_the_maths_page_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_[a-z0-9_]+)`", (ROOT / "docs" / "maths.md").read_text()):
        assert f"def {name}(" in tests, name


def test_every_function_named_in_the_maths_page_exists() -> None:
    text = (ROOT / "docs" / "maths.md").read_text()
    for name in re.findall(r"`((?!torch)[A-Za-z]\w*(?:\.\w+)+)`", text):
        assert find(name) is not None, name


def find(name: str) -> object:
    """What a dotted name means within the package, or None."""
    value: object = ll
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def test_the_readme_names_the_commands_to_start_with() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
