"""Models whose parameters are spread over processes (FSDP2), in training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from .._sharding import full, like_sharded


def is_shard(tensor: Any) -> bool:
    """Whether a tensor is spread over processes."""
    return hasattr(tensor, "full_tensor")


def replicated(objective: nn.Module) -> nn.Module:
    """Let processes average the gradients of what FSDP2 does not shard, and so not average."""
    named = dict(objective.named_parameters())
    sharded = [name for name, parameter in named.items() if is_shard(parameter)]
    if all(is_shard(p) or not p.requires_grad for p in named.values()):
        return objective
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(objective, sharded)
    return DistributedDataParallel(objective)


def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Clip gradients as `torch.nn.utils.clip_grad_norm_` does, also of sharded parameters."""
    parameters = list(parameters)
    gradients = [p.grad for p in parameters if p.grad is not None]
    sharded, plain = ([g for g in gradients if is_shard(g) == kind] for kind in (True, False))
    if not sharded:
        return nn.utils.clip_grad_norm_(parameters, limit)
    groups = [group for group in (sharded, plain) if group]
    norm = torch.stack([full(nn.utils.get_total_norm(group)) for group in groups]).norm()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)  # as torch does
    for gradient in gradients:
        local: Any = gradient.to_local() if is_shard(gradient) else gradient  # type: ignore[attr-defined]
        local.mul_(factor)
    return norm


def gathered(state: Any, keep: bool) -> Any:
    """Whole tensors in the place of sharded ones; all processes must ask, and some may keep them.

    Args:
        state: any nest of dicts, lists and tensors.
        keep: whether this process needs the values; the others get None in their place.
    """

    def gather(tensor: Tensor) -> Tensor | None:
        whole = full(tensor.detach())
        return whole if keep else None

    return pytree.tree_map_only(Tensor, gather, state)


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a state of whole tensors into an optimiser whose parameters may be sharded."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    values = {
        at: {
            name: like_sharded(value, parameters[at])
            if isinstance(value, Tensor) and value.shape == parameters[at].shape
            else value
            for name, value in entries.items()
        }
        for at, entries in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": values})
