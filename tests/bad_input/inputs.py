"""Small heads, and inputs that are right."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import lastlayer as ll

# A row of the table in docs/bad-input.md: situation, calls, the error, a part of its message.
Case = tuple[str, list[Callable[[], object]], type[Exception], str]

B, N, K = 6, 4, 3


def features(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(-1, 1, B * N, dtype=dtype).reshape(B, N).expand(*(shape or (B, N)))


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
TARGET = torch.linspace(-1, 1, B * K, dtype=torch.float64).reshape(B, K)

regression: Any = partial(ll.Regression, N, K, num_data=100)
single: Any = partial(ll.Regression, N, 1, num_data=100)
discriminative: Any = partial(ll.DiscriminativeClassification, N, K, num_data=100)
generative: Any = partial(ll.GenerativeClassification, N, K, num_data=100)
HEADS: list[tuple[Any, Tensor]] = [
    (regression, TARGET),
    (discriminative, LABELS),
    (generative, LABELS),
]
