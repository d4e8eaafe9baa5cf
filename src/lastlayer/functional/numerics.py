"""Casts and sums that avoid rounding errors."""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

LOG_2PI = math.log(2 * math.pi)
LOG2_E = math.log2(math.e)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Cast half precision up, so that sums, squares and logarithms keep their digits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def exponential(tensor: Tensor) -> Tensor:
    """exp(x) by powers of two: in half the time on processors, and off by x roundings at most."""
    return torch.exp2(tensor * LOG2_E)


def widest(tensor: Tensor) -> Tensor:
    """Cast to double precision, where the device has it."""
    has_double = tensor.device.type != "mps"
    return tensor.double() if has_double and tensor.dtype != torch.float64 else tensor


def full_precision(like: Tensor) -> AbstractContextManager[None]:
    """Without autocast, where half precision would cancel or underflow."""
    if like.is_meta:  # has no autocast to disable
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)


def of_output(values: Tensor, output: Tensor) -> Tensor:
    """The value of one output of each example, (*batch,), by indices (*batch,) into (*batch, K)."""
    return values.gather(-1, output.unsqueeze(-1)).squeeze(-1)


def squared_sum(tensor: Tensor) -> Tensor:
    """Sum of squares of all entries, ()."""
    tensor = at_least_float32(tensor)
    if tensor.numel() < 2**16:
        return (tensor * tensor).sum()
    # the same, but backward is one pass over the data instead of three
    return F.mse_loss(tensor, tensor.new_zeros(()).expand_as(tensor), reduction="sum")


def is_traced(*tensors: Tensor) -> bool:
    """Whether what the tensors hold cannot be looked at, nor written to."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return True
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(type(t) not in (Tensor, Parameter) or wrapped(t) for t in tensors)
