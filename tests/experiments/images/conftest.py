"""Torch's own default dtype, as users of the experiments have."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _single_precision() -> None:
    torch.set_default_dtype(torch.float32)
