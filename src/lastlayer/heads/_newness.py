"""Whether tensors hold exactly the values that they were initialised with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .._sharding import full

CHUNK = 2**16  # values at a time, which a processor's cache holds
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
GOLDEN, FIRST, SECOND = (  # of the SplitMix64 generator, as signed integers
    value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def digest_of_state(state: Mapping[str, Tensor], prefix: str = "") -> int | None:
    """The digest of a head's mean and covariance, from a `state_dict` of the head or around it."""
    return digest(state[name] for name in sorted(posterior_names(state, prefix)))


def posterior_names(state: Mapping[str, Tensor], prefix: str) -> list[str]:
    """Names of a head's mean and of all that its covariance is made of."""
    mean, covariance = prefix + "mean", prefix + "covariance."
    return [name for name in state if name == mean or name.startswith(covariance)]


def number(tensor: Tensor) -> int | None:
    """The value of a tensor with one element, or None if it has none."""
    return None if _has_no_values(tensor) else int(tensor)


def _has_no_values(tensor: Tensor) -> bool:
    return tensor.is_meta or isinstance(tensor, FakeTensor)


@torch.no_grad()
def digest(tensors: Iterable[Tensor]) -> int | None:
    """64 bits, never zero, that differ if any value differs, changes its sign or its place.

    Sharded tensors are gathered, so that all processes agree.

    Returns:
        The digest, or None if there are no values: on the meta device, and of fake tensors.
    """
    total = position = 0
    for tensor in tensors:
        if _has_no_values(tensor):
            return None
        values = full(tensor).detach().contiguous().flatten()
        for part in values.view(INTEGERS[values.element_size()]).split(CHUNK):
            place = torch.arange(position, position + len(part), device=part.device)
            total += int(_mixed(place.mul_(GOLDEN).add_(part)).sum())
            position += len(part)
    return (total + 2**63) % 2**64 - 2**63 or 1


def _mixed(bits: Tensor) -> Tensor:
    """A permutation of 64-bit integers in which every bit depends on all (SplitMix64), in place."""
    bits.bitwise_xor_(_shifted(bits, 30)).mul_(FIRST)
    bits.bitwise_xor_(_shifted(bits, 27)).mul_(SECOND)
    return bits.bitwise_xor_(_shifted(bits, 31))


def _shifted(bits: Tensor, count: int) -> Tensor:
    """A shift to the right that moves zeros in, not the sign."""
    return (bits >> count).bitwise_and_(2 ** (64 - count) - 1)
