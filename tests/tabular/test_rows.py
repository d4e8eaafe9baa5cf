"""Distinct rows, with weights."""

import numpy as np
import pytest

from lastlayer.tabular import rows
from lastlayer.tabular.rows import Rows, share_in

NAN = np.nan


def test_repetitions_and_weights_order_and_zeros_make_no_difference():
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 3, (30, 2)).astype(float)
    codes[codes == 2] = NAN
    target = generator.integers(0, 2, (30, 1)).astype(float)
    weight = generator.integers(0, 4, 30).astype(float)
    at = generator.permutation(np.repeat(np.arange(30), weight.astype(int)))
    for one, two in zip(
        Rows.of(codes, target, weight), Rows.of(codes[at], target[at], None), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_rows_keep_what_they_stand_for():
    rows = Rows.of(np.array([[1.0], [0.0], [1.0], [-0.0]]), np.array([[2.0], [3], [2], [3]]), None)
    np.testing.assert_array_equal(rows.codes, [[0], [1]])
    np.testing.assert_array_equal(rows.target, [[3], [2]])
    np.testing.assert_array_equal(rows.weight, [2, 2])


def test_no_rows_are_no_rows():
    rows = Rows.of(np.zeros((2, 3)), np.zeros((2, 1)), np.zeros(2))
    assert rows.codes.shape == (0, 3)
    assert rows.weight.shape == (0,)


def test_rows_are_recognised_by_their_fingerprint(monkeypatch):
    generator = np.random.default_rng(0)
    codes, target = generator.normal(size=(500, 3)), generator.normal(size=(500, 1))
    codes[3, 1] = np.nan
    fingerprint = Rows.of(codes[:300], target[:300], None).fingerprint()
    assert share_in(fingerprint, codes, target) == (300, 500)
    assert share_in(fingerprint, codes[:300], target[:300] + 1) == (0, 300)
    assert share_in("", codes, target) == (0, 500)
    monkeypatch.setattr(rows, "MAX_DIGESTS", 100)
    fingerprint = Rows.of(codes[:300], target[:300], None).fingerprint()
    known, told = share_in(fingerprint, codes, target)
    assert known == 100
    assert told == pytest.approx(100 * 5 / 3, abs=25)
