"""A function of tensors as the list of operations it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

aten = torch.ops.aten

# Views that change nothing if the shape stays.
RESHAPES = {aten.expand.default, aten.view.default, aten._unsafe_view.default}
PRODUCTS = {aten.mul.Scalar, aten.mul.Tensor}
# Depend on the shape of their argument only.
FILLED = {aten.ones_like.default, aten.zeros_like.default}


def trace(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Record what a function does to arguments of these shapes, without gradients.

    Calls of the record do the same without finding out again what to do, which for small tensors
    is most of the time. `vmap` and `grad` leave much that changes nothing or is done twice; it is
    left out. What the record returns may share memory and must not be changed in place.
    """
    # on a copy, because tracing runs the function, which may change buffers
    copies = pytree.tree_map_only(Tensor, torch.clone, arguments)
    traced = make_fx(lambda *values: function(*values))(*copies)
    nodes = [node for node in traced.graph.nodes if isinstance(node.target, OpOverload)]
    for node in nodes:
        source = _same_as(node)
        if source is not None:
            node.replace_all_uses_with(source)
    if not any(node.target._schema.is_mutable for node in nodes):  # then all depends on arguments
        _compute_constants(traced)
        _merge_equal(traced)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _same_as(node: Node) -> Node | None:
    """The argument that an operation returns unchanged, if it does."""
    source, *others = node.args or (None,)
    if not isinstance(source, Node):
        return None
    if node.target is aten.detach.default:
        return source
    if node.target in RESHAPES and _shape(node) == _shape(source):
        return source
    if node.target in PRODUCTS and others == [1] and _dtype(node) == _dtype(source):
        return source
    twice = node.target is source.target is aten.transpose.int
    if twice and sorted(others) == sorted(source.args[1:]):  # type: ignore[type-var]
        return source.args[0] if isinstance(source.args[0], Node) else None
    return None


def _compute_constants(traced: GraphModule) -> None:
    """Compute once what no argument has an influence on."""
    values: dict[Node, Tensor] = {}
    for node in list(traced.graph.nodes):
        target = node.target
        if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
            continue
        if target in FILLED:
            like = node.meta["val"]
            fill = torch.ones if target is aten.ones_like.default else torch.zeros
            values[node] = fill(like.shape, dtype=like.dtype, device=like.device)
        elif all(source in values for source in node.all_input_nodes):
            arguments, keywords = pytree.tree_map_only(
                Node, values.__getitem__, (node.args, node.kwargs)
            )
            value = target(*arguments, **keywords)
            if isinstance(value, Tensor):
                values[node] = value
    for at, (node, value) in enumerate(values.items()):
        if all(user in values for user in node.users):
            continue
        traced.register_buffer(f"constant_{at}", value)
        with traced.graph.inserting_before(node):
            constant = traced.graph.get_attr(f"constant_{at}")
        constant.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(constant)


def _merge_equal(traced: GraphModule) -> None:
    """Do once what is done several times to the same arguments."""
    found: dict[Any, Node] = {}
    for node in list(traced.graph.nodes):
        target = node.target
        if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
            continue
        key = (target, repr(node.args), repr(node.kwargs))
        if key in found:
            node.replace_all_uses_with(found[key])
        else:
            found[key] = node


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _dtype(node: Node) -> torch.dtype:
    return node.meta["val"].dtype
