"""A function of tensors as the list of operations it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

# Views that change nothing if the shape stays.
RESHAPES = {
    torch.ops.aten.expand.default,
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
}


def trace(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Record what a function does to arguments of these shapes, without gradients.

    Calls of the record do the same without finding out again what to do, which for small tensors
    is most of the time. `vmap` and `grad` leave many views that change nothing; they are left out.
    """
    # on a copy, because tracing runs the function, which may change buffers
    copies = pytree.tree_map_only(Tensor, torch.clone, arguments)
    traced = make_fx(lambda *values: function(*values))(*copies)
    _leave_out_empty_views(traced)
    return traced


def _leave_out_empty_views(traced: GraphModule) -> None:
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or not node.args:
            continue
        source = node.args[0]
        same = node.target in RESHAPES and _shape(node) == _shape(source)
        if same or node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(source)
            traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
