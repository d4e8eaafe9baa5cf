"""A bound on memory that does not depend on the allocator: the largest tensor of a computation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class _Sizes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):  # what is stored: an expanded tensor is small
                stored = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.largest = max(self.largest, stored)
        return result


def largest_tensor(compute: Callable[[], object]) -> int:
    """Numbers in the largest tensor that the computation makes or views, backward included."""
    with _Sizes() as sizes:
        compute()
    return sizes.largest


def backpropagated(value: Tensor) -> None:
    """Differentiate, so that memory of backward counts too."""
    torch.autograd.backward(value.sum())
