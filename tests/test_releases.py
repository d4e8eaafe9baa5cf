"""What is said of a release in several places is the same."""

import re
from pathlib import Path

from lastlayer import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_hosted_tests_run_the_oldest_and_the_newest_python_that_are_promised() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    for version in (promised[0], promised[-1]):
        assert f'"{version}"' in workflow
    assert ".ci/run" in workflow
