"""Sums over examples that posteriors are made of."""

import pytest
import torch
from torch.testing import assert_close

from lastlayer.functional import conjugate


@pytest.mark.parametrize("size", [1, 4, 5, 11])
@pytest.mark.parametrize("chunk", [13, 2**24])
def test_a_weighted_gram_is_the_sum_of_outer_products_and_symmetric(size, chunk, monkeypatch):
    monkeypatch.setattr(conjugate, "SYMMETRIC_BLOCK", 4)
    monkeypatch.setattr(conjugate, "GRAM_CHUNK", chunk)
    generator = torch.Generator().manual_seed(size)
    features = torch.randn(9, size, generator=generator, dtype=torch.float64)
    weights = torch.rand(9, generator=generator, dtype=torch.float64)
    found = conjugate.weighted_gram(features, weights)
    expected = sum(
        weight * torch.outer(row, row) for row, weight in zip(features, weights, strict=True)
    )
    assert_close(found, expected, rtol=1e-13, atol=1e-14)
    assert_close(found, found.mT, rtol=1e-14, atol=1e-15)
