"""What heads with a closed-form posterior share: exact fits and recursive updates."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .._checks import check_forgetting
from .._sharding import load_whole, whole
from ..functional.conjugate import inverse_wishart_mode
from ..noise import Noise
from ._base import Head

CHUNK = 2**24  # features converted to double precision at a time

AnyConjugateHead = TypeVar("AnyConjugateHead", bound="ConjugateHead")


class ConjugateHead(Head):
    """A head whose posterior, given features and noise, is known.

    A posterior is handled by two tensors of natural parameters, which add up over data, are zero
    for the prior, and are relative to the prior's mean. All is computed in double precision, on a
    copy. If the head is sharded, every process must fit or update it with the same data.

    Attributes:
        projected: a buffer, whether an exact fit was more than the family can hold, ().
    """

    noise: Noise
    projected: Tensor
    by_residuals: ClassVar[bool] = False  # whether statistics are of errors of a reference

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("projected", torch.zeros_like(self.initial_digest, dtype=torch.bool))

    def reset_parameters(self) -> None:
        """Initialise; no fit was made."""
        super().reset_parameters()
        self.projected.fill_(False)

    @torch.no_grad()
    def fit_exact(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        estimate_noise: bool = False,
        max_iterations: int = 200,
    ) -> None:
        """Set the posterior given all the data, in closed form; see the class for the formula.

        S_k is projected on the family of the covariance, if that cannot hold it. With
        `kl_weight` λ every example counts 1/λ times, as in training.

        Args:
            features: of all the data, (*batch, num_features).
            target: as in `forward`.
            weight: as in `forward`.
            estimate_noise: also find Σ, by alternating its optimum with the posterior's, ending
                on a posterior; otherwise Σ stays as it is.
            max_iterations: of that alternation; it stops when Σ settles.
        """
        self._check_assignable()
        data = self._gather(features, target, weight)
        fit = self._in_double()
        fit._set_posterior(*fit._information(data))
        if estimate_noise and self.by_residuals:  # which large targets do not drown
            data = self._gather(features, target, weight, fit.mean.clone())
        for _ in range(max_iterations if estimate_noise else 0):
            before = fit.noise.covariance()
            prior = fit.prior
            scatter, counts = fit._optimal_scatter(data)
            fit.noise.assign(
                inverse_wishart_mode(scatter, counts, prior.noise_dof, prior.noise_scale)
            )
            fit._set_posterior(*fit._information(data))
            if torch.allclose(fit.noise.covariance(), before, rtol=1e-8, atol=1e-14):
                break
        fit._count(data, forgetting=0.0)
        fit.projected.fill_(self._loses(data))
        self._take(fit)

    @torch.no_grad()
    def update(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        forgetting: float = 1.0,
    ) -> None:
        """Condition the posterior on new data: the same as fitting on old and new together.

        A new head is updated from its prior, any other from the posterior it has.

        Args:
            features: of the new data, (*batch, num_features); one example is (num_features,).
            target: as in `forward`.
            weight: as in `forward`.
            forgetting: factor on all that earlier data said, 1 for none; below 1 the posterior
                follows drifting data and falls back to its prior where nothing comes.
        """
        check_forgetting(forgetting)
        self._check_assignable()
        data = self._gather(features, target, weight)
        self._check_update(data)
        if bool(self.projected) or self._loses(data):
            raise ValueError(
                "weights per output give every output its own posterior, which one shared S "
                "cannot carry on; use covariance='dense'"
            )
        fit = self._in_double()
        pairs = zip(fit._present(), fit._information(data), strict=True)
        fit._set_posterior(*(forgetting * old + new for old, new in pairs))
        fit._count(data, forgetting)
        self._take(fit)

    def fit_features(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        max_passes: int = 50,
        tolerance: float = 1e-5,
        max_memory_bytes: int = 2**31,
        report: Callable[[float], None] | None = None,
    ) -> None:
        """Fit posterior and noise in closed form, where the features are: they may be large."""
        device = self.mean.device
        self.to(features.device)
        self.fit_exact(features, target, weight, estimate_noise=True)
        self.to(device)

    def _gather(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None,
        reference: Tensor | None = None,
    ) -> Any:
        """Statistics of all the data, a chunk at a time: it may be large, mapped from a file."""
        rows = CHUNK * len(features) // max(features.numel(), 1) if features.ndim > 1 else 0
        parts = [features, target] if weight is None else [features, target, weight]
        if not 0 < rows < len(features) or len({len(part) for part in parts}) > 1:
            return self._statistics(features, target, weight, reference)  # at once, or raise
        chunks = zip(*(part.split(rows) for part in parts), strict=True)
        found = (self._statistics(x, y, w[0] if w else None, reference) for x, y, *w in chunks)
        return functools.reduce(lambda one, two: one.merge(two), found)

    @abstractmethod
    def _statistics(
        self, features: Tensor, target: Tensor, weight: Tensor | None, reference: Tensor | None
    ) -> Any:
        """Check the data and reduce it to sufficient statistics, about a mean if one is given."""

    @abstractmethod
    def _information(self, data: Any) -> tuple[Tensor, Tensor]:
        """The natural parameters that data adds to the prior."""

    @abstractmethod
    def _present(self) -> tuple[Tensor, Tensor]:
        """The natural parameters that lead to the present posterior."""

    @abstractmethod
    def _set_posterior(self, first: Tensor, second: Tensor) -> None:
        """Set mean and covariance from natural parameters."""

    @abstractmethod
    def _optimal_scatter(self, data: Any) -> tuple[Tensor, Tensor]:
        """What the noise must explain under the present posterior, and how many examples of it."""

    @abstractmethod
    def _check_update(self, data: Any) -> None:
        """Raise if the family cannot carry the posterior on."""

    def _loses(self, data: Any) -> bool:
        """Whether the exact posterior of data is more than the family can hold."""
        return False

    def _count(self, data: Any, forgetting: float) -> None:
        """Count what is counted, after discounting what was; nothing, unless overridden."""

    def _in_double(self: AnyConjugateHead) -> AnyConjugateHead:
        return whole(self).double()

    def _take(self, fit: ConjugateHead) -> None:
        """Become a fitted copy, which is no longer new."""
        fit.initial_digest.zero_()
        load_whole(self, fit.state_dict())

    def _expect(self, state: Any, prefix: str) -> None:
        super()._expect(state, prefix)
        state.setdefault(prefix + "projected", torch.zeros((), dtype=torch.bool))
