"""What heads with a closed-form posterior share: exact fits and recursive updates."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .._checks import check_forgetting
from .._processes import merged
from .._sharding import load_whole, whole
from ..functional import at_least_float32
from ..functional.conjugate import inverse_wishart_mode
from ..noise import Noise
from ._base import Head
from ._newness import digest_of_state, number

CHUNK = 2**21  # features converted to double precision at a time

AnyConjugateHead = TypeVar("AnyConjugateHead", bound="ConjugateHead")


class ConjugateHead(Head):
    """A head whose posterior, given features and noise, is known.

    A posterior is handled by two or more tensors of natural parameters, which add up over data,
    are zero for the prior, and are relative to the prior's mean. All is computed in double
    precision, on a copy. If the head is sharded, every process must fit or update it with the
    same data.

    Attributes:
        projected: a buffer, whether an exact fit was more than the family can hold, ().
        fitted_variance: a buffer, of a head that learns its prior's variance: s of the last exact
            fit, (1,), or (2,) with that of the bias. Updates keep it.
        fitted_digest: a buffer, of mean and S_k with which that s belongs, ().
    """

    noise: Noise
    projected: Tensor
    fitted_variance: Tensor
    fitted_digest: Tensor
    by_residuals: ClassVar[bool] = False  # whether statistics are of errors of a reference

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("projected", torch.zeros_like(self.initial_digest, dtype=torch.bool))
        if self.learns_prior:
            like = at_least_float32(self.mean.detach())
            unknown = torch.ones(len(self._prior_variances), dtype=like.dtype, device=like.device)
            self.register_buffer("fitted_variance", unknown)
            self.register_buffer("fitted_digest", torch.zeros_like(self.initial_digest))

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
        `kl_weight` λ every example counts 1/λ times, as in training. With
        `Prior(variance="evidence")` s is alternated with the posterior too, until neither
        changes: where the family holds the posterior, that is type-II maximum likelihood.

        Args:
            features: of all the data, (*batch, num_features).
            target: as in `forward`.
            weight: as in `forward`.
            estimate_noise: also find Σ, by alternating its optimum with the posterior's, ending
                on a posterior; otherwise Σ stays as it is.
            max_iterations: of that alternation; it stops when Σ and s settle.
        """
        self._check_assignable()
        data = self._gather(features, target, weight)
        fit = self._in_double()
        fit._settle_variance()
        fit._set_posterior(*fit._information(data))
        if estimate_noise and self.by_residuals:  # which large targets do not drown
            data = self._gather(features, target, weight, fit.mean.clone())
        fit._alternate(data, estimate_noise, max_iterations)
        fit._count(data, forgetting=0.0)
        fit.projected.fill_(self._loses(data))
        self._take(fit)

    def _alternate(self, data: Any, estimate_noise: bool, max_iterations: int) -> None:
        """Alternate the posterior with Σ, if asked for, and with s, if that is learned."""
        for _ in range(max_iterations if estimate_noise or self.learns_prior else 0):
            before, prior = self.noise.covariance(), self.prior
            if estimate_noise:
                scatter, counts = self._optimal_scatter(data)
                self.noise.assign(
                    inverse_wishart_mode(scatter, counts, prior.noise_dof, prior.noise_scale)
                )
            settled = self._improve_variance()
            self._set_posterior(*self._information(data))
            if settled and torch.allclose(self.noise.covariance(), before, rtol=1e-8, atol=1e-14):
                break

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

        A new head is updated from its prior, any other from the posterior it has. The noise stays
        as it is, and so does a prior variance that is learned.

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
        if self.learns_prior and self.fresh:
            raise ValueError(
                "the prior's variance is learned, and nothing was learned yet: call fit_exact, or "
                "train the head, before update; or give the prior a variance"
            )
        fit = self._in_double()
        if not self._settled:
            fit._settle_variance()
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
        tolerance: float = 1e-4,
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
        found = (self._statistics(*part, reference) for part in chunks(features, target, weight))
        return merged(functools.reduce(lambda one, two: one.merge(two), found))

    @abstractmethod
    def _statistics(
        self, features: Tensor, target: Tensor, weight: Tensor | None, reference: Tensor | None
    ) -> Any:
        """Check the data and reduce it to sufficient statistics, about a mean if one is given."""

    @abstractmethod
    def _information(self, data: Any) -> tuple[Tensor, ...]:
        """The natural parameters that data adds to the prior."""

    @abstractmethod
    def _present(self) -> tuple[Tensor, ...]:
        """The natural parameters that lead to the present posterior."""

    @abstractmethod
    def _set_posterior(self, first: Tensor, second: Tensor, *others: Tensor) -> None:
        """Set mean and covariance, and what else there is, from natural parameters."""

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

    # -------------------------------------------------------------------- the prior's variance

    @property
    def _settled(self) -> bool:
        """Whether `fitted_variance` belongs with mean and S_k, which training may have changed."""
        if not self.learns_prior:
            return True
        return digest_of_state(self.state_dict()) == number(self.fitted_digest)

    def _settle_variance(self) -> None:
        """Let `fitted_variance` be the best for the present mean and S_k."""
        if self.learns_prior:
            self.fitted_variance.copy_(self._stacked(self._best(self._spread())))

    def _improve_variance(self) -> bool:
        """One step of the alternation for s; whether it was too small to matter."""
        if not self.learns_prior:
            return True
        present = self._by_feature(self.fitted_variance)
        improved = self.anticipated_variance(present)
        settled = torch.allclose(improved, present, rtol=1e-10, atol=0)
        self.fitted_variance.copy_(improved[[0, -1]][: len(self.fitted_variance)])
        return settled

    def _prior_by_feature(self) -> Tensor:
        """s of each feature, (width,), that of the last exact fit if it is learned."""
        if self.learns_prior:
            return self._by_feature(self.fitted_variance)
        return self.prior_variance

    def _in_double(self: AnyConjugateHead) -> AnyConjugateHead:
        return whole(self).double()

    def _take(self, fit: ConjugateHead) -> None:
        """Become a fitted copy, which is no longer new."""
        fit.initial_digest.zero_()
        load_whole(self, fit.state_dict())
        if self.learns_prior:
            self.fitted_digest.fill_(digest_of_state(self.state_dict()) or 0)

    def _expect(self, state: Any, prefix: str) -> None:
        super()._expect(state, prefix)
        state.setdefault(prefix + "projected", torch.zeros((), dtype=torch.bool))


def chunks(
    features: Tensor, target: Tensor, weight: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """The data in parts that fit into memory; in one, if they are not as long as each other."""
    rows = CHUNK * len(features) // max(features.numel(), 1) if features.ndim > 1 else 0
    parts = [features, target] if weight is None else [features, target, weight]
    if not 0 < rows < len(features) or len({len(part) for part in parts}) > 1:
        yield features, target, weight
        return
    for x, y, *rest in zip(*(part.split(rows) for part in parts), strict=True):
        yield x, y, rest[0] if rest else None
