"""Small blocks of triangular factors, and a compiler without memory."""

from collections.abc import Iterator

import pytest
import torch

from lastlayer.covariances._triangular import Triangular
from tests.helpers.cases import (
    BLOCK,
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Triangular, "BLOCK", BLOCK)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
