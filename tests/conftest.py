"""Everything in double precision, from a seeded generator, and warnings are errors."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    """Forget what was compiled: heads of all kinds share `forward`, and recompile it too often."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20_240_507)  # not the seed of the parameters
