"""Noise covariances Σ, parameterised by their precision Σ⁻¹ = LLᵀ (paper, appendix C)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .covariances._triangular import Triangular
from .functional import at_least_float32, inverse_wishart_log_density
from .functional.student_t import gamma_correction, gamma_kl
from .priors import Prior


class Noise(nn.Module, ABC):
    """A Gaussian noise covariance Σ of a given size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def set_isotropic(self, variance: float) -> None:
        """Set Σ to variance · I."""

    @property
    @abstractmethod
    def log_precision_scale(self) -> Tensor:
        """log L_kk, (size,); their sum is half of log|Σ⁻¹|."""

    @abstractmethod
    def whiten(self, vectors: Tensor) -> Tensor:
        """Lᵀx, of unit covariance if x has covariance Σ, (*batch, size)."""

    @abstractmethod
    def color(self, vectors: Tensor) -> Tensor:
        """L⁻ᵀx, the inverse of `whiten`: of covariance Σ if x has unit covariance."""

    def covariance_root(self) -> Tensor:
        """L⁻ᵀ, upper-triangular: its product with its transpose is Σ, (size, size)."""
        like = at_least_float32(self.log_precision_scale)
        return self.color(torch.eye(self.size, dtype=like.dtype, device=like.device)).mT

    @abstractmethod
    def squares(self, error: Tensor, quadratic: Tensor) -> tuple[Tensor, Tensor]:
        """Terms of eᵀΣ⁻¹e + tr(Σ⁻¹ diag(q)), (*batch, size), and tr Σ⁻¹, ()."""

    @abstractmethod
    def precision_diagonal(self) -> Tensor:
        """Diagonal of Σ⁻¹, (size,)."""

    @abstractmethod
    def precision_trace(self) -> Tensor:
        """tr Σ⁻¹, ()."""

    @abstractmethod
    def precision(self) -> Tensor:
        """Σ⁻¹, (size, size)."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Σ, (size, size)."""

    def variance(self) -> Tensor:
        """Diagonal of Σ, (size,)."""
        return self.covariance().diagonal()

    @abstractmethod
    def assign(self, covariance: Tensor) -> None:
        """Set Σ, or its diagonal, from a matrix (size, size)."""

    def log_prior(self, prior: Prior, precision_trace: Tensor | None = None) -> Tensor:
        """Unnormalised log-density of Σ under its inverse-Wishart prior, ()."""
        trace = self.precision_trace() if precision_trace is None else precision_trace
        return inverse_wishart_log_density(
            self.log_precision_scale, trace, prior.noise_dof, prior.noise_scale
        )

    # A basis in which the noise is diagonal: the given one, unless a subclass has a better one.

    def to_basis(self, vectors: Tensor) -> Tensor:
        """Vectors in a basis in which Σ is diagonal, (*batch, size), at least float32."""
        return at_least_float32(vectors)

    def from_basis(self, vectors: Tensor) -> Tensor:
        """The inverse of `to_basis`."""
        return vectors

    def basis_log_precision_scale(self) -> Tensor:
        """`log_precision_scale` in that basis, (size,)."""
        return at_least_float32(self.log_precision_scale)

    def basis_log_volume(self) -> Tensor:
        """Log-volume to add to a log-density in that basis for one in the given basis, ()."""
        return torch.zeros_like(self.basis_log_precision_scale().sum())


class DiagonalNoise(Noise):
    """Σ = diag(σ²), with the parameter l = −log σ."""

    def __init__(self, size: int, **factory: Any) -> None:
        super().__init__(size)
        self.negative_log_stddev = nn.Parameter(torch.zeros(size, **factory))

    @torch.no_grad()
    def set_isotropic(self, variance: float) -> None:
        """Set Σ to variance · I."""
        self.negative_log_stddev.fill_(variance).log_().mul_(-0.5)

    @property
    def log_precision_scale(self) -> Tensor:
        """−log σ, (size,)."""
        return self.negative_log_stddev

    def variance(self) -> Tensor:
        """σ², (size,)."""
        return (-2 * at_least_float32(self.negative_log_stddev)).exp()

    def whiten(self, vectors: Tensor) -> Tensor:
        """x / σ."""
        return vectors * at_least_float32(self.negative_log_stddev).exp()

    def color(self, vectors: Tensor) -> Tensor:
        """x σ."""
        return vectors * (-at_least_float32(self.negative_log_stddev)).exp()

    def squares(self, error: Tensor, quadratic: Tensor) -> tuple[Tensor, Tensor]:
        """(e² + q) / σ² and Σ 1/σ²."""
        precision = self.precision_diagonal()
        return torch.addcmul(quadratic, error, error) * precision, precision.sum()

    def precision_diagonal(self) -> Tensor:
        """1 / σ², (size,)."""
        scale = at_least_float32(self.negative_log_stddev)
        return (scale + scale).exp()  # half the overhead of 2 * scale

    def precision_trace(self) -> Tensor:
        """Σ 1/σ², ()."""
        return self.precision_diagonal().sum()

    def precision(self) -> Tensor:
        """Σ⁻¹, (size, size)."""
        return torch.diag_embed(self.precision_diagonal())

    def covariance(self) -> Tensor:
        """Σ, (size, size)."""
        return torch.diag_embed(self.variance())

    @torch.no_grad()
    def assign(self, covariance: Tensor) -> None:
        """Set σ² to the diagonal of a covariance."""
        self.negative_log_stddev.copy_(covariance.diagonal().log().mul(-0.5))


class GammaNoise(DiagonalNoise):
    """Σ = diag(σ²) with uncertain precisions 1/σ_k² ~ Gamma(a_k, b_k), of mean a_k/b_k = e^{2l}."""

    def __init__(self, size: int, **factory: Any) -> None:
        super().__init__(size, **factory)
        self.log_concentration = nn.Parameter(torch.zeros(size, **factory))

    def concentration(self) -> Tensor:
        """a, (size,)."""
        return at_least_float32(self.log_concentration).exp()

    def expected_log_precision_scale(self) -> Tensor:
        """−E log σ, (size,)."""
        own = at_least_float32(self.negative_log_stddev)
        return own + gamma_correction(self.concentration())

    def divergence(self, prior: Prior) -> Tensor:
        """Divergence of the precisions from Gamma(ν/2, m/2), their prior, ()."""
        sizes = 0.5 * prior.noise_dof, 0.5 * prior.noise_scale
        return gamma_kl(self.concentration(), self.precision_diagonal(), *sizes).sum()

    @torch.no_grad()
    def assign_gamma(self, concentration: Tensor, rate: Tensor) -> None:
        """Set a and b, (size,) each."""
        self.log_concentration.copy_(concentration.log())
        self.negative_log_stddev.copy_(0.5 * (concentration.log() - rate.log()))


class DenseNoise(Noise):
    """Any Σ, through the triangular factor of its inverse: Σ⁻¹ = RᵀR with R = Lᵀ."""

    def __init__(self, size: int, **factory: Any) -> None:
        super().__init__(size)
        self.factor = Triangular(1, size, **factory)

    def set_isotropic(self, variance: float) -> None:
        """Set Σ to variance · I."""
        self.factor.set_isotropic(variance**-0.5)

    @property
    def log_precision_scale(self) -> Tensor:
        """Logarithm of the diagonal of L, (size,)."""
        return self.factor.log_diagonal.squeeze(0)

    def whiten(self, vectors: Tensor) -> Tensor:
        """R x."""
        vectors = vectors.to(self.factor.log_diagonal.dtype)
        return self.factor.products(vectors).squeeze(-2)

    def color(self, vectors: Tensor) -> Tensor:
        """R⁻¹ x."""
        upper = self._upper()
        right = vectors.to(upper.dtype).unsqueeze(-1)
        return torch.linalg.solve_triangular(upper, right, upper=True).squeeze(-1)

    def to_basis(self, vectors: Tensor) -> Tensor:
        """The whitened vectors."""
        return at_least_float32(self.whiten(vectors))

    def from_basis(self, vectors: Tensor) -> Tensor:
        """The inverse of `to_basis`."""
        return self.color(vectors)

    def basis_log_precision_scale(self) -> Tensor:
        """Zero: the white noise has unit variance."""
        return torch.zeros_like(at_least_float32(self.log_precision_scale))

    def basis_log_volume(self) -> Tensor:
        """log|R|."""
        return at_least_float32(self.log_precision_scale).sum()

    def _upper(self) -> Tensor:
        return at_least_float32(self.factor.dense().squeeze(0))

    def squares(self, error: Tensor, quadratic: Tensor) -> tuple[Tensor, Tensor]:
        """(Re)² + q (RᵀR)_kk and ‖R‖²."""
        white, precision = self.whiten(error), self.precision_diagonal()
        return torch.addcmul(quadratic * precision, white, white), precision.sum()

    def precision_diagonal(self) -> Tensor:
        """Diagonal of RᵀR, (size,)."""
        return self._upper().square().sum(0)

    def precision_trace(self) -> Tensor:
        """‖R‖², ()."""
        return self.factor.squared_norm().squeeze(0)

    def precision(self) -> Tensor:
        """Σ⁻¹, (size, size)."""
        upper = self._upper()
        return upper.mT @ upper

    def covariance(self) -> Tensor:
        """Σ, (size, size)."""
        # not a matrix product, which autocast would round
        return torch.cholesky_inverse(self._upper(), upper=True).contiguous()

    def assign(self, covariance: Tensor) -> None:
        """Set Σ."""
        precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        self.factor.assign(torch.linalg.cholesky(precision, upper=True).unsqueeze(0))


NOISES: dict[str, Callable[..., Noise]] = {"diagonal": DiagonalNoise, "dense": DenseNoise}
