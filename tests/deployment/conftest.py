"""Small blocks of triangular factors."""

import pytest

from lastlayer.covariances._triangular import Triangular
from tests.helpers.cases import BLOCK


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Triangular, "BLOCK", BLOCK)
