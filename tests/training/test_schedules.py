"""Schedules of the learning rate."""

import numpy as np
import pytest

from lastlayer.training import SCHEDULES, one_cycle, warmup

DONE = np.linspace(0, 1, 101)


def test_one_cycle_is_a_triangle_with_its_peak_where_it_is_asked_for() -> None:
    factor = one_cycle(peak=0.23, start=0.2, end=0.07)
    expected = np.interp(DONE, [0, 0.23, 1], [0.2, 1, 0.07])
    assert [factor(done) for done in DONE] == pytest.approx(expected)


def test_warmup_rises_and_then_follows_the_other_schedule() -> None:
    factor = warmup(0.2, then=lambda done: 1 - done)
    expected = np.interp(DONE, [0, 0.2, 1], [0, 1, 0])
    assert [factor(done) for done in DONE] == pytest.approx(expected)


def test_the_default_warmup_is_a_cosine_after_a_twentieth() -> None:
    after = 0.5 * (1 + np.cos(np.pi * (DONE - 0.05) / 0.95))
    expected = np.where(DONE < 0.05, 20 * DONE, after)
    for factor in (SCHEDULES["warmup_cosine"], warmup()):
        assert [factor(done) for done in DONE] == pytest.approx(expected)


@pytest.mark.parametrize(
    "make", [lambda: one_cycle(1.0), lambda: one_cycle(end=2), lambda: warmup(0)]
)
def test_what_is_no_fraction_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        make()  # type: ignore[operator]


def test_a_schedule_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'cosine'"):
        warmup(then="cosin")
