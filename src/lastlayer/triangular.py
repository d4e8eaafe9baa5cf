"""Triangular factors of covariance and precision matrices, stored and multiplied once."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .functional import at_least_float32


class Triangular(nn.Module):
    """K upper-triangular matrices R_k (N, N) with a positive diagonal, R = strict + diag(exp).

    Only the upper triangle is stored, in row blocks: a triangle on the diagonal and the
    rectangle to its right. Half the memory of a square and half the multiplications, each
    block one matrix product for all K. `BLOCK` is part of the state-dict format.
    """

    BLOCK = 128

    def __init__(
        self,
        num_matrices: int,
        size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_matrices, self.size = num_matrices, size
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.log_diagonal = nn.Parameter(torch.empty(num_matrices, size, **factory))
        triangles, rectangles = [], []
        for start, stop in self._spans():
            width, rest = stop - start, size - stop
            triangles.append(nn.Parameter(torch.zeros(num_matrices, width, width, **factory)))
            if rest:
                rectangles.append(nn.Parameter(torch.zeros(num_matrices, width, rest, **factory)))
        self.triangles = nn.ParameterList(triangles)
        self.rectangles = nn.ParameterList(rectangles)

    def _spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.size, self.BLOCK):
            yield start, min(start + self.BLOCK, self.size)

    @torch.no_grad()
    def reset_parameters(self, scale: float) -> None:
        """Set every R_k to scale · I."""
        self.log_diagonal.fill_(scale).log_()
        for block in (*self.triangles, *self.rectangles):
            block.zero_()

    def products(self, vectors: Tensor) -> Iterator[Tensor]:
        """Yield the row blocks of R_k x, each (*batch, K, width), for x (*batch, N)."""
        flat = vectors.reshape(-1, self.size)
        scales = self.log_diagonal.exp()
        for index, (start, stop) in enumerate(self._spans()):
            here, scale = flat, scales
            if self.size > self.BLOCK:  # even the slice of a whole costs a copy in backward
                here, scale = flat[:, start:stop], scales[:, start:stop]
            product = F.linear(here, self.triangles[index].triu(1).flatten(0, 1))
            if stop < self.size:
                right = self.rectangles[index].flatten(0, 1)
                product = torch.addmm(product, flat[:, stop:], right.mT)
            product = product.unflatten(-1, (self.num_matrices, stop - start))
            product = torch.addcmul(product, here.unsqueeze(1), scale)
            yield product.reshape(*vectors.shape[:-1], *product.shape[1:])

    def squared_norm(self) -> Tensor:
        """Squared Frobenius norms ‖R_k‖², (K,)."""
        norm = (2 * at_least_float32(self.log_diagonal)).exp().sum(-1)
        for triangle in self.triangles:
            norm = norm + at_least_float32(triangle).triu(1).square().sum((-2, -1))
        for rectangle in self.rectangles:
            norm = norm + at_least_float32(rectangle).square().sum((-2, -1))
        return norm

    def dense(self) -> Tensor:
        """The matrices R_k, (K, N, N)."""
        rows = []
        for index, (start, stop) in enumerate(self._spans()):
            blocks = [self.triangles[index].triu(1)]
            if start:
                blocks.insert(0, blocks[0].new_zeros(self.num_matrices, stop - start, start))
            if stop < self.size:
                blocks.append(self.rectangles[index])
            rows.append(torch.cat(blocks, -1))
        return torch.cat(rows, -2) + torch.diag_embed(self.log_diagonal.exp())

    @torch.no_grad()
    def assign(self, dense: Tensor) -> None:
        """Set R_k to upper-triangular matrices with a positive diagonal, (K, N, N)."""
        self.log_diagonal.copy_(dense.diagonal(dim1=-2, dim2=-1).log())
        for index, (start, stop) in enumerate(self._spans()):
            self.triangles[index].copy_(dense[:, start:stop, start:stop].triu(1))
            if stop < self.size:
                self.rectangles[index].copy_(dense[:, start:stop, stop:])
