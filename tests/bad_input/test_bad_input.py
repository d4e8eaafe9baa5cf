"""Bad input gives a clear error or a documented result, never a silently wrong number.

Every case is a row of the table in docs/bad-input.md, which a test below keeps in step.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bad_input import of_inputs, of_options, of_use
from tests.bad_input.results import RESULTS

TESTS = Path(__file__).parents[1]
TABLE = TESTS.parent / "docs" / "bad-input.md"
ERRORS = [*of_inputs.ERRORS, *of_options.ERRORS, *of_use.ERRORS]


@pytest.mark.parametrize(
    ("calls", "error", "message"),
    [case[1:] for case in ERRORS],
    ids=[case[0].replace(" ", "_") for case in ERRORS],
)
def test_bad_input_raises_an_error_that_says_what_to_do(
    calls: list[Callable[[], object]], error: type[Exception], message: str
) -> None:
    for call in calls:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("check", [case[1] for case in RESULTS], ids=lambda check: check.__name__)
def test_unusual_input_has_its_documented_result(check: Callable[[], None]) -> None:
    check()


def test_every_case_is_a_row_of_the_documented_table_and_no_row_is_untested() -> None:
    rows = [line.split("|")[1].strip() for line in TABLE.read_text().splitlines() if "|" in line]
    situations = [*(case[0] for case in ERRORS), *(case[0] for case in RESULTS), *of_use.ELSEWHERE]
    assert sorted(rows[2:]) == sorted(situations)


def test_what_is_tested_elsewhere_is_tested() -> None:
    tests = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    assert all(f"def {name}(" in tests for name in of_use.ELSEWHERE.values())
