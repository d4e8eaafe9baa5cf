r"""What the targets of points would tell, as Gaussian observations of the weights.

The target of a point is one or several independent observations of unit noise. Of each, a *channel*
has the covariance between points that is due to the weights,

$$k(i, j) = \ell_i\,\ell_j\,u_i^\top u_j\,t_{ij},$$

with unit vectors u, lengths ℓ, and for labels the overlap t of what two labels are about. So
$\tfrac12\log(1 + k(i, i))$ is the mutual information of a target and the weights, and
$\tfrac12\log|I + (k(i, j))_{ij}|$ that of several targets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TINY = 1e-12  # lengths and overlaps below are taken for zero


class Channel:
    """An output of regression: observations that are linear in the weights.

    Args:
        direction: u, (n, M), of unit length each.
        length: ℓ, (n,).
    """

    def __init__(self, direction: Tensor, length: Tensor) -> None:
        self.direction, self.length = direction, length

    def __len__(self) -> int:
        return len(self.length)

    @property
    def variance(self) -> Tensor:
        """k(i, i), (n,)."""
        return self.length.square()

    def take(self, rows: Tensor) -> Channel:
        """Some of the points."""
        return Channel(self.direction[rows], self.length[rows])

    def between(self, others: Channel) -> Tensor:
        """k(i, j) for the points i of this channel and j of another, (n, m)."""
        pairs = self.direction @ (others.direction * others.length[:, None]).mT
        return pairs.mul_(self.length[:, None])

    def column(self, row: int) -> Tensor:
        """k(i, j) for one j, (n,): a product of a matrix with a vector."""
        return self.length * (self.direction @ (self.direction[row] * self.length[row]))

    def representatives(self, count: int, generator: torch.Generator) -> Channel:
        """Few points or directions j with the same Σ_j k(i, j)² as all points, up to a factor.

        Exact, by a root of the second moment, unless there are fewer points than that has rows.

        Args:
            count: of points to draw, where the sum can only be estimated.
            generator: of the draw.
        """
        if len(self) <= self.direction.shape[-1]:
            return self
        moment = second_moment(self.direction, self.length)
        values, vectors = torch.linalg.eigh(moment)
        return Channel(vectors.mT.to(self.direction), values.clamp(min=0).sqrt().to(self.length))

    def against(self, others: Channel) -> Callable[[Tensor], Tensor]:
        """The function from weights w, (m,), to Σ_j k(i, j) w_j, (n,)."""
        weighted = others.direction * others.length[:, None]
        return lambda weight: self.length * (self.direction @ (weight @ weighted))


class LabelChannel(Channel):
    r"""Class labels, each as one observation with the label's own mutual information.

    A label of probabilities p tells about the logits what its Fisher information says,
    $H = \mathrm{diag}(p) - pp^\top$. The overlap of two labels is the cosine of H_i and H_j: 1 for
    two classes, 0 for two points that are each between two classes if these are four. So
    correlations are those of the linearised model, while the information of each label by itself
    is its own.

    Args:
        direction: u, (n, M), of unit length each.
        length: ℓ, (n,).
        probs: p, (n, K).
    """

    def __init__(self, direction: Tensor, length: Tensor, probs: Tensor) -> None:
        super().__init__(direction, length)
        probs = probs.double()  # H is small where a class is nearly certain
        self.probs, self.squares, self.diagonal = probs, probs.square(), probs * (1 - probs)
        sums = self.squares.sum(-1)
        norm = self.diagonal.square().sum(-1) + sums.square() - self.squares.square().sum(-1)
        self.scale = norm.clamp(min=TINY**2).rsqrt()

    def take(self, rows: Tensor) -> LabelChannel:
        """Some of the points."""
        return LabelChannel(self.direction[rows], self.length[rows], self.probs[rows])

    def _overlap(self, others: LabelChannel) -> Tensor:
        """⟨H_i, H_j⟩ / (‖H_i‖ ‖H_j‖), (n, m), without the matrices."""
        products = (self.probs @ others.probs.mT).square_()
        products -= self.squares @ others.squares.mT  # what is left is off the diagonal
        products += self.diagonal @ others.diagonal.mT
        products *= self.scale[:, None]
        return products.mul_(others.scale).clamp_(0, 1).to(self.length)

    def between(self, others: Channel) -> Tensor:
        """k(i, j) for the points i of this channel and j of another, (n, m)."""
        assert isinstance(others, LabelChannel)
        return super().between(others).mul_(self._overlap(others))

    def column(self, row: int) -> Tensor:
        """k(i, j) for one j, (n,)."""
        other = self.take(torch.tensor([row]))
        return super().column(row).mul_(self._overlap(other).squeeze(-1))

    def representatives(self, count: int, generator: torch.Generator) -> Channel:
        """Points at random, or all if there are no more."""
        if len(self) <= count:
            return self
        return self.take(torch.randperm(len(self), generator=generator)[:count])

    def against(self, others: Channel) -> Callable[[Tensor], Tensor]:
        """The function from weights w, (m,), to Σ_j k(i, j) w_j, (n,)."""
        return self.between(others).mv


def second_moment(direction: Tensor, length: Tensor, rows: int = 65536) -> Tensor:
    """Σ_i ℓ_i² u_i u_iᵀ in double precision, (M, M)."""
    total = torch.zeros(direction.shape[-1], direction.shape[-1], dtype=torch.float64)
    for part, size in zip(direction.split(rows), length.split(rows), strict=True):
        scaled = part * size[:, None]
        total += (scaled.mT @ scaled).double()
    return total
