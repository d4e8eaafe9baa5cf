"""Which linear layer of a network is its last, found by running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from .._streaming import frozen

NUM_NAMED = 8  # layers that an error message lists


class LastLayer(NamedTuple):
    """A linear layer inside a network."""

    name: str  # dotted, "" if the network is the layer
    module: nn.Linear
    returned: bool  # whether the network returns what the layer does, and nothing else


class _Call(NamedTuple):
    name: str
    module: nn.Module
    output: Tensor


def find_last_layer(model: nn.Module, inputs: Any, layer: str | None = None) -> LastLayer:
    """Find the linear layer whose output a network returns.

    Names are not guessed from: the layer is the one whose output is in what the network returns,
    and still is when another output is put in its place. What is returned may be a tensor, a nest
    of them, or an object with them as attributes. The network is unchanged.

    Args:
        model: any network that takes the inputs as its one argument.
        inputs: of a few examples.
        layer: dotted name, if it is known; then anything may follow the layer.

    Returns:
        The layer; an error names the candidates if there is not exactly one.
    """
    lazy = [name for name, parameter in model.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise ValueError(
            f"the parameters {lazy} of lazy layers have no values yet: run the model once, train "
            "it, and then replace its last layer"
        )
    with frozen(model):
        calls, output = _calls(model, inputs)
        leaves = list(_tensors(output))
        if layer is None:
            if not leaves:
                raise ValueError(
                    f"the model returns a {type(output).__name__} in which no tensor is found; "
                    f"{_list([call.name for call in calls if isinstance(call.module, nn.Linear)])}"
                )
            layer = _search(model, inputs, calls, leaves)
        module = dict(model.named_modules(remove_duplicate=False)).get(layer)
        linear = [call.name for call in calls if isinstance(call.module, nn.Linear)]
        if not isinstance(module, nn.Linear):
            kind = "no such layer" if module is None else f"a {type(module).__name__}"
            raise ValueError(f"layer={layer!r} must name an nn.Linear, got {kind}; {_list(linear)}")
        uses = [call for call in calls if call.module is module]
        if len(uses) != 1:
            raise ValueError(
                f"the layer {layer!r} is used {len(uses)} times in a forward pass, and a head can "
                f"stand for it only if it is used once; {_list(linear)}"
            )
        marker = _marker(uses[0].output)
        changed = _substituted(model, inputs, module, marker)
        return LastLayer(layer, module, isinstance(changed, Tensor) and _same(changed, marker))


def _search(model: nn.Module, inputs: Any, calls: list[_Call], leaves: list[Tensor]) -> str:
    """The name of the one layer whose output is among the leaves, or an error."""
    last = []
    for call in calls:
        if any(_same(call.output, leaf) for leaf in leaves) and call.name not in last:
            marker = _marker(call.output)
            changed = list(_tensors(_substituted(model, inputs, call.module, marker)))
            if any(_same(marker, leaf) for leaf in changed):
                last.append(call.name)
    if len(last) == 1 and isinstance(model.get_submodule(last[0]), nn.Linear):
        return last[0]
    raise ValueError(_explain(calls, last, leaves))


def _calls(model: nn.Module, inputs: Any) -> tuple[list[_Call], Any]:
    """Every use of a linear or convolutional layer in a forward pass, in order, and its result."""
    calls: list[_Call] = []

    def record(name: str) -> Callable[..., None]:
        # a copy, because what follows may change the output in place
        return lambda module, _, output: calls.append(_Call(name, module, output.clone()))

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    named = [(name, part) for name, part in model.named_modules() if isinstance(part, kinds)]
    handles = [part.register_forward_hook(record(name)) for name, part in named]
    try:
        return calls, model(inputs)
    finally:
        for handle in handles:
            handle.remove()


def _substituted(model: nn.Module, inputs: Any, module: nn.Module, value: Tensor) -> Any:
    """The output of the model when a layer returns other values."""
    handle = module.register_forward_hook(lambda *_: value.clone())
    try:
        return model(inputs)
    finally:
        handle.remove()


def _marker(like: Tensor) -> Tensor:
    """Values of both signs that no activation, normalisation or rounding leaves as they are."""
    return torch.linspace(-2.3, 3.7, like.numel(), device=like.device).to(like).view_as(like)


def _tensors(output: Any) -> Iterator[Tensor]:
    """Tensors of a nest, of mappings in it, and of attributes of objects that it does not know."""
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, Tensor):
            yield leaf
            continue
        inside = leaf if isinstance(leaf, Mapping) else _attributes(leaf)
        parts = pytree.tree_leaves(list(inside.values()))
        yield from (part for part in parts if isinstance(part, Tensor))


def _attributes(value: Any) -> dict[str, Any]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return slots | getattr(value, "__dict__", {})


def _same(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    return torch.allclose(one, two, rtol=0, atol=0, equal_nan=True)


def _explain(calls: list[_Call], last: list[str], leaves: list[Tensor]) -> str:
    """Why there is no single last layer, and which layers it may have been."""
    if len(last) == 1:
        return (
            f"the model returns the output of the convolution {last[0]!r}; a head stands for an "
            "nn.Linear: write a 1×1 convolution as one, on features with the channels last"
        )
    if last:
        return f"the model returns the outputs of several layers; {_list(last)}"
    linear = [call for call in calls if isinstance(call.module, nn.Linear)]
    if not linear:
        return "the model uses no nn.Linear, and a head can only stand for one"
    shapes = {leaf.shape for leaf in leaves}
    alike = [call for call in linear if call.output.shape in shapes]
    return (
        "the model returns the output of no linear layer as it is: something follows, such as a "
        "softmax or a squeeze, or several layers are combined; "
        + _list([call.name for call in alike or linear])
    )


def _list(names: list[str]) -> str:
    """Candidates, the last to run first."""
    last = list(dict.fromkeys(reversed(names)))
    more = f" and {len(last) - NUM_NAMED} before them" if len(last) > NUM_NAMED else ""
    return f"name one with layer=…, of {', '.join(map(repr, last[:NUM_NAMED]))}{more}"
