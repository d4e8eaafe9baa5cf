"""Modules whose parameters are spread over processes (FSDP2): whole copies of them, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)
STATE_OF_FSDP = ("__composable_api", "_fsdp", "_is_fsdp")  # attributes of a module it shards


def full(tensor: Tensor) -> Tensor:
    """A tensor, gathered from all processes if it is sharded."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def full_with_gradient(tensor: Tensor) -> Tensor:
    """The whole tensor, with gradients averaged over processes as in FSDP2's call of a module."""
    if not hasattr(tensor, "full_tensor"):
        return tensor
    from torch.distributed.tensor import Partial

    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    whole: Tensor = tensor.full_tensor(grad_placements=[Partial()] * mesh.ndim)
    if whole.requires_grad:
        whole.register_hook(lambda gradient: gradient / mesh.size())
    return whole


def is_sharded(module: nn.Module) -> bool:
    """Whether parameters of a module are spread over processes, even if gathered for now."""
    state = module.state_dict()  # which returns gathered parameters to their shards
    return any(hasattr(value, "full_tensor") for value in state.values())


def whole(module: AnyModule) -> AnyModule:
    """A copy with whole parameters; all processes must ask for it if they are sharded."""
    return _gathered(module) if is_sharded(module) else copy.deepcopy(module)


def _gathered(module: AnyModule) -> AnyModule:
    """A copy without the hooks and the class by which FSDP2 shards, which cannot be copied."""
    kind = type(module)
    kind = kind.__mro__[getattr(kind, "_orig_cls_mro_index", 0)]
    twin = kind.__new__(kind)
    nn.Module.__init__(twin)
    own = vars(twin)
    for name, value in vars(module).items():
        if name not in own and not name.startswith(STATE_OF_FSDP):
            own[name] = value
    twin.training = module.training
    for name, value in module._parameters.items():
        if value is not None:
            values = full(value.detach()).clone()
            twin.register_parameter(name, nn.Parameter(values, value.requires_grad))
    for name, buffer in module._buffers.items():
        persistent = name not in module._non_persistent_buffers_set
        twin.register_buffer(name, None if buffer is None else full(buffer).clone(), persistent)
    for name, child in module._modules.items():
        twin.register_module(name, None if child is None else _gathered(child))
    return twin


def load_whole(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state of whole tensors; those of the first process, where they are sharded."""
    own = module.state_dict()
    module.load_state_dict(
        {name: like_sharded(value, own.get(name)) for name, value in state.items()}
    )


def like_sharded(value: Tensor, sharded: Any) -> Tensor:
    """A whole tensor, that of the first process, sharded as another is; itself if that is not."""
    if not hasattr(sharded, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    value = value.to(sharded.device, sharded.dtype)
    return distribute_tensor(value, sharded.device_mesh, sharded.placements)


@contextmanager
def assignable(module: AnyModule) -> Iterator[AnyModule]:
    """A module whose parameters may be set: itself, or a whole copy that it then takes over."""
    if not is_sharded(module):
        yield module
        return
    twin = whole(module)
    yield twin
    load_whole(module, twin.state_dict())
