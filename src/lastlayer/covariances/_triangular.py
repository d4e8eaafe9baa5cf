"""Triangular factors of covariance and precision matrices, stored and multiplied once."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional import at_least_float32, squared_sum


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
    def set_isotropic(self, scale: float) -> None:
        """Set every R_k to scale · I."""
        self.log_diagonal.fill_(scale).log_()
        for block in (*self.triangles, *self.rectangles):
            block.zero_()

    def _rows(self) -> Iterator[tuple[int, int, Tensor, Tensor | None]]:
        """Row blocks of R_k: where each starts and stops, its triangle, the rectangle if any."""
        scales = self.log_diagonal.exp()
        for index, (start, stop) in enumerate(self._spans()):
            # slicing costs a copy in backward, even if it takes everything
            scale = scales if self.size <= self.BLOCK else scales[:, start:stop]
            triangle = self.triangles[index].triu(1) + scale.diag_embed()
            yield start, stop, triangle, self.rectangles[index] if stop < self.size else None

    def _multiply(
        self, flat: Tensor, start: int, stop: int, triangle: Tensor, rectangle: Tensor | None
    ) -> Tensor:
        """The block of R_k x, (batch, K, width), for x (batch, N)."""
        here = flat if self.size <= self.BLOCK else flat[:, start:stop]
        product = F.linear(here, triangle.flatten(0, 1))
        if rectangle is not None:
            product = torch.addmm(product, flat[:, stop:], rectangle.flatten(0, 1).mT)
        return product.unflatten(-1, (self.num_matrices, stop - start))

    def products(self, vectors: Tensor) -> Tensor:
        """R_k x, (*batch, K, N), for x (*batch, N)."""
        flat = vectors.reshape(-1, self.size)
        product = torch.cat([self._multiply(flat, *row) for row in self._rows()], -1)
        return product.reshape(*vectors.shape[:-1], self.num_matrices, self.size)

    def squares(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """‖R_k x‖², (*batch, K), and Σ_k ‖R_k‖², (), reading the parameters once."""
        flat = vectors.reshape(-1, self.size)
        quadratics, norms = [], []
        for start, stop, triangle, rectangle in self._rows():
            product = self._multiply(flat, start, stop, triangle, rectangle)
            product = at_least_float32(product)
            quadratics.append((product * product).sum(-1))
            norms.append(squared_sum(triangle))
            if rectangle is not None:
                norms.append(squared_sum(rectangle))
        quadratic = sum(quadratics[1:], quadratics[0])
        return quadratic.reshape(*vectors.shape[:-1], self.num_matrices), sum(norms[1:], norms[0])

    def squares_of(self, vectors: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """‖R_k x‖² with one k for each vector, (*batch,), and Σ_k ‖R_k‖², ().

        Vectors are sorted by k, and every R_k is multiplied with its own alone.
        """
        order = index.flatten().argsort(stable=True)
        flat = vectors.reshape(-1, self.size).index_select(0, order)
        counts = index.flatten().bincount(minlength=self.num_matrices).tolist()
        quadratics, norms = [], []
        for start, stop, triangle, rectangle in self._rows():
            here = flat if self.size <= self.BLOCK else flat[:, start:stop]
            products = _linear_in_groups(here, triangle, counts)
            norms.append(squared_sum(triangle))
            if rectangle is not None:
                products = products + _linear_in_groups(flat[:, stop:], rectangle, counts)
                norms.append(squared_sum(rectangle))
            products = at_least_float32(products)
            quadratics.append((products * products).sum(-1))
        quadratic = sum(quadratics[1:], quadratics[0]).index_select(0, order.argsort())
        return quadratic.reshape(index.shape), sum(norms[1:], norms[0])

    def squared_norm(self) -> Tensor:
        """Squared Frobenius norms ‖R_k‖², (K,)."""
        return at_least_float32(self.dense()).square().sum((-2, -1))

    def dense(self) -> Tensor:
        """The matrices R_k, (K, N, N)."""
        rows = []
        for start, stop, triangle, rectangle in self._rows():
            left = triangle.new_zeros(self.num_matrices, stop - start, start)
            blocks = [left, triangle] if rectangle is None else [left, triangle, rectangle]
            rows.append(torch.cat(blocks, -1))
        return torch.cat(rows, -2)

    @torch.no_grad()
    def assign(self, dense: Tensor) -> None:
        """Set R_k to upper-triangular matrices with a positive diagonal, (K, N, N)."""
        self.log_diagonal.copy_(dense.diagonal(dim1=-2, dim2=-1).log())
        for index, (start, stop) in enumerate(self._spans()):
            self.triangles[index].copy_(dense[:, start:stop, start:stop].triu(1))
            if stop < self.size:
                self.rectangles[index].copy_(dense[:, start:stop, stop:])


def _linear_in_groups(vectors: Tensor, matrices: Tensor, counts: list[int]) -> Tensor:
    """A_k x, (batch, M), for x (batch, N) of which the first counts[0] take A_0, and so on."""
    groups = zip(vectors.split(counts), matrices.unbind(), strict=True)
    return torch.cat([F.linear(group, matrix) for group, matrix in groups if len(group)])
