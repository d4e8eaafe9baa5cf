"""The Gaussian posterior of the weights, and what a head remembers of it in its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from .._checks import check_count
from ..covariances import CovarianceLike, make_covariance
from ..functional import (
    at_least_float32,
    best_prior_variance,
    gaussian_kl,
    grouped_gaussian_kl,
    squared_sum,
)
from ..priors import Prior
from ._newness import digest_of_state, number, posterior_names


class GaussianWeights(nn.Module):
    """The posterior q(w_k) = N(w̄_k, S_k) of the weights of K outputs, and its prior.

    Attributes:
        mean: W̄, the posterior mean, (K, width).
        covariance: the posterior covariances S_k.
        prior: of weights and noise.
        prior_mean: a buffer, the mean of the prior of W, (K, width), or None for zero.
        initial_digest: a buffer, of mean and S_k as they were initialised, (); zero for never.
    """

    prior_mean: Tensor | None
    initial_digest: Tensor

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        *,
        covariance: CovarianceLike,
        prior: Prior | None,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_count("num_features", num_features)
        self.num_features, self.num_outputs, self.bias = num_features, num_outputs, bias
        self.prior = self.default_prior(num_features) if prior is None else prior
        if not isinstance(self.prior, Prior):
            raise TypeError(f"prior must be a lastlayer.Prior, got {type(prior).__name__}")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.mean = nn.Parameter(torch.empty(num_outputs, self.width, **factory))
        self.covariance = make_covariance(covariance, num_outputs, self.width, **factory)
        self.register_buffer("prior_mean", None)
        never = torch.zeros((), dtype=torch.int64, device=device)
        self.register_buffer("initial_digest", never)

    @classmethod
    def default_prior(cls, num_features: int) -> Prior:
        """The prior of a head that is given none."""
        return Prior()

    @property
    def width(self) -> int:
        """Features that have a weight: `num_features`, and one more for a bias."""
        return self.num_features + int(self.bias)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a mean of the prior must have the shape of the mean."""
        if name == "prior_mean" and value is not None:
            if value.shape != self.mean.shape:
                raise ValueError(
                    f"prior_mean must have the shape of the mean, {tuple(self.mean.shape)}, got "
                    f"{tuple(value.shape)}; with a bias its last column is the bias"
                )
            value = value.detach().to(self.mean.device, self.mean.dtype).contiguous().clone()
        super().__setattr__(name, value)

    def _deviation(self) -> Tensor:
        """W̄ less the mean of its prior, (K, width)."""
        return self.mean if self.prior_mean is None else self.mean - self.prior_mean

    def _prior_deviation(self) -> Tensor:
        """W̄ less the mean of its prior, in the units of its prior variance, (K, width)."""
        return self._deviation()

    def _divergence(self, deviation: Tensor, trace: Tensor, logdet: Tensor) -> Tensor:
        """Divergence of q from its prior, from deviations (K, width) and sums over outputs, ()."""
        variances = self._prior_variances
        if len(variances) == 1 and not isinstance(variances[0], str):
            weights = self.num_outputs * self.width
            return gaussian_kl(squared_sum(deviation), trace, logdet, weights, variances[0])
        squares = self._squares(deviation, trace)
        return grouped_gaussian_kl(squares, logdet, self._num_weights, self._best(squares))

    # ---------------------------------------------------------------- the prior's variance

    @property
    def prior_variance(self) -> Tensor:
        """s, the prior variance of the weights of each feature, (width,); the bias comes last.

        With `Prior(variance="evidence")` it is where the ELBO is highest, given mean and S_k.
        """
        with torch.no_grad():
            return self._by_feature(self._stacked(self._best(self._spread())))

    @property
    def _prior_variances(self) -> tuple[float | Literal["evidence"], ...]:
        """What the prior says of the groups of weights that have a variance of their own."""
        return self.prior.variances(bias=self.bias)

    @property
    def learns_prior(self) -> bool:
        """Whether a variance of the prior is learned."""
        return "evidence" in self._prior_variances

    @property
    def _num_weights(self) -> tuple[int, ...]:
        """How many weights each group has."""
        if len(self._prior_variances) == 1:
            return (self.num_outputs * self.width,)
        return self.num_outputs * self.num_features, self.num_outputs

    def _squares(self, deviation: Tensor, trace: Tensor) -> tuple[Tensor, ...]:
        """The expected sum of squares of each group's weights about their prior mean, () each."""
        if len(self._prior_variances) == 1:
            return (squared_sum(deviation) + trace,)
        last = F.pad(self.mean.new_zeros(1, self.num_features), (0, 1), value=1.0)
        own = at_least_float32(self.covariance.quadratic(last)).sum()  # tr of the bias's own S_k
        return (
            squared_sum(deviation[..., :-1]) + (trace - own),
            squared_sum(deviation[..., -1]) + own,
        )

    def _spread(self) -> tuple[Tensor, ...]:
        """`_squares` at the present mean and S_k."""
        trace = at_least_float32(self.covariance.trace()).sum()
        return self._squares(self._prior_deviation(), trace)

    def _best(self, squares: tuple[Tensor, ...]) -> list[Tensor | float]:
        """The variance of each group: a number that is given, or the best for the ELBO."""
        groups = zip(self._prior_variances, squares, self._num_weights, strict=True)
        return [
            best_prior_variance(square, count) if isinstance(given, str) else given
            for given, square, count in groups
        ]

    @torch.no_grad()
    def anticipated_variance(self, present: Tensor) -> Tensor:
        r"""A step for learned variances s, beyond the best for mean and S_k as they are, (width,).

        At the optimum $s = q/n$ with $q = \|\bar W\|^2 + \operatorname{tr}S$. The step solves that
        with $\operatorname{tr}S/s$ fixed, $s = \|\bar W\|^2/(n - \operatorname{tr}S/s)$ (MacKay),
        because S follows s: it takes far fewer steps than setting s = q/n.

        Args:
            present: s from which mean and S_k were found, (width,).
        """
        trace = at_least_float32(self.covariance.trace()).sum()
        kept, spread = self._squares(torch.zeros_like(self.mean), trace), self._spread()
        best = self._best(spread)
        for index, given in enumerate(self._prior_variances):
            if isinstance(given, str):
                count = self._num_weights[index]
                learned = count - kept[index] / present[-index]  # weights that data determine
                step = best_prior_variance((spread[index] - kept[index]) / learned, 1)
                best[index] = torch.where(learned > 1e-9 * count, step, best[index])
        return self._by_feature(self._stacked(best)).to(present.dtype)

    def _stacked(self, variances: Sequence[Tensor | float]) -> Tensor:
        """The variances of groups, (1,) or (2,)."""
        like = at_least_float32(self.mean.detach())
        return torch.stack(
            [torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in variances]
        )

    def _by_feature(self, variances: Tensor) -> Tensor:
        """One variance for each feature, (width,), from those of groups."""
        if len(variances) == 1:
            return variances.expand(self.width)
        return torch.cat([variances[:1].expand(self.num_features), variances[1:]])

    # ---------------------------------------------------------------------- initial values

    def reset_parameters(self) -> None:
        """Initialise: weights as in a linear layer, logits and errors of order one at any width.

        With features of order one, W̄φ and φᵀS_kφ are of order one too, and S_k is initially no
        wider than its prior. W̄ is drawn about the mean of its prior.
        """
        nn.init.normal_(self.mean, std=self.width**-0.5)
        if self.prior_mean is not None:
            with torch.no_grad():
                self.mean.add_(self.prior_mean)
        self._initialize_covariance(1 / self.width)

    def _initialize_covariance(self, variance: float) -> None:
        """Set S_k to variance · I, or to its prior if that is narrower; the head is new then."""
        given = self.prior.variance
        self.covariance.set_isotropic(variance if isinstance(given, str) else min(given, variance))
        self._note_initial()

    def _note_initial(self) -> None:
        """Remember mean and S_k as initial."""
        digest = digest_of_state(self.state_dict())
        if digest is not None:
            self.initial_digest.fill_(digest)

    @property
    def fresh(self) -> bool:
        """Whether mean and S_k hold exactly the values they were initialised with.

        If the head is sharded, all processes must ask.
        """
        initial = number(self.initial_digest)
        return bool(initial) and digest_of_state(self.state_dict()) == initial

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or cast the head; a new one stays new."""
        fresh = self.fresh
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if fresh:
            self._note_initial()
        return self

    def _check_assignable(self) -> None:
        """Raise if a parameter is computed from others, so that setting it has no effect."""
        for name, module in self.named_modules():
            # the older weight_norm, spectral_norm and pruning leave a plain tensor under the name
            # of the parameter, computed from one with a longer name
            computed = {own.removesuffix("_orig").removesuffix("_v") for own in module._parameters}
            computed -= module._parameters.keys()
            if is_parametrized(module) or not computed.isdisjoint(vars(module)):
                raise TypeError(
                    f"a parameter of {name or 'the head'} is parametrised, so that setting it has "
                    "no effect; remove the parametrisation (torch.nn.utils.parametrize."
                    "remove_parametrizations) before an exact fit, or train with lastlayer.fit"
                )

    # --------------------------------------------------------------------------- loading

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        """Take over a prior mean or its absence, and whether the other head is new."""
        if prefix + "mean" in state_dict:
            self._expect(state_dict, prefix)
            if not local_metadata.get("assign_to_params_buffers", False):
                self._carry_newness(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _expect(self, state: Any, prefix: str) -> None:
        """Prepare for a state with or without what not every head has, or had."""
        if prefix + "prior_mean" not in state:
            self._buffers["prior_mean"] = None
        elif self.prior_mean is None:
            mean = self.mean
            zero = torch.zeros(mean.shape, dtype=mean.dtype, device=mean.device)  # as None is
            self._buffers["prior_mean"] = zero
        state.setdefault(prefix + "initial_digest", torch.zeros((), dtype=torch.int64))

    def _carry_newness(self, state: Any, prefix: str) -> None:
        """Rewrite the digest of a new head for values that are rounded to another dtype."""
        key, dtype = prefix + "initial_digest", self.mean.dtype
        initial = number(state[key])
        if not initial or state[prefix + "mean"].dtype == dtype:
            return
        if digest_of_state(state, prefix) == initial:
            parts = {name: state[name] for name in posterior_names(state, prefix)}
            rounded = {
                name: v.to(dtype) if v.is_floating_point() else v for name, v in parts.items()
            }
            state[key] = torch.tensor(digest_of_state(rounded, prefix))
