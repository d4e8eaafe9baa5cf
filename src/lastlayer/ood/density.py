"""Densities of features, class by class (paper, appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .._checks import (
    check_choice,
    check_count,
    check_features,
    check_finite,
    check_labels,
    check_range,
    check_weight,
    check_weights,
)
from .._data import Data
from .._streaming import predictions
from ..functional import at_least_float32, inverse_wishart_exponent
from ..network import Network
from ..priors import Prior
from .gaussians import Gaussians, map_mean, outer


class _Densities(NamedTuple):
    """Quantities for scoring, derived from the statistics once."""

    log_class: Tensor  # log p(y), (K,)
    classes: Gaussians
    prior: Gaussians  # one, what a new class would look like


class FeatureDensity(nn.Module):
    r"""Gaussian densities of the features of each class, a score for any backbone and head.

    Per-class MAP estimates after training (paper, appendix B), from counts T_y, means and
    scatters that are gathered in one pass. With Σ the MAP covariance within classes pooled over
    them, the inverse-Wishart(ν, M = mI) prior of noise and the prior N(0, sI) of class means,

    $$\hat\mu_y = (I/s + T_y\Sigma^{-1})^{-1}\,\Sigma^{-1}\textstyle\sum_t\phi_t,\quad
      \hat\Sigma_y = \frac{M + \sum_t(\phi_t-\hat\mu_y)(\phi_t-\hat\mu_y)^\top}{T_y+\nu+N+1}$$

    and the score is $\log p_0(\phi) - \log\sum_y p(\phi|y)\,T_y/T$. A class without examples has
    no part in it. $p_0 = N(0, sI + \Sigma)$ is the prior density of the features of a class yet
    unknown; not normalised, $p_0 = 1$.

    The plain density always falls away from all classes. Normalised, the score comes down again
    in directions in which a class is wider than p_0: keep s above the variances within classes.

    Priors are in the units of the features: with features far from unit scale, pass a `Prior`
    whose variance exceeds their mean square and whose noise_scale is below their variance, or
    standardise them. Statistics are kept in float64, also when the module is cast.

    Args:
        num_features: N.
        num_classes: K; one class needs no labels.
        covariance: of each class, "diagonal" (as the paper) or "dense", with K·N² numbers.
        prior: of class means and noise.
        normalized: whether the score is relative to the prior density; may be changed any time.
        device: of the statistics.

    Attributes:
        counts: T_y, (K,), a buffer, as are the next two.
        mean: mean of the features of each class, (K, N).
        scatter: Σ_t(φ_t − φ̄_y)², (K, N), or Σ_t(φ_t − φ̄_y)(φ_t − φ̄_y)ᵀ, (K, N, N).
    """

    counts: Tensor
    mean: Tensor
    scatter: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        covariance: Literal["diagonal", "dense"] = "diagonal",
        prior: Prior | None = None,
        normalized: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_count("num_features", num_features)
        check_count("num_classes", num_classes)
        check_choice("covariance", covariance, ("diagonal", "dense"))
        self.num_features, self.num_classes = num_features, num_classes
        self.dense = covariance == "dense"
        self.prior = Prior() if prior is None else prior
        self.normalized = normalized
        self._exponent = inverse_wishart_exponent(self.prior.noise_dof, num_features)
        if self._exponent <= 0:
            raise ValueError(
                f"prior.noise_dof + num_features + 1 must be above zero, got {self._exponent}; "
                "raise noise_dof"
            )
        shape = (num_classes, num_features)
        shapes = {"counts": shape[:1], "mean": shape, "scatter": (*shape, *shape[1:] * self.dense)}
        for name, size in shapes.items():
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64, device=device))
        self._densities: _Densities | None = None

    @classmethod
    def from_model(
        cls,
        model: Callable[[Any], Any],
        data: Data,
        *,
        num_classes: int | None = None,
        covariance: Literal["diagonal", "dense"] = "diagonal",
        prior: Prior | None = None,
        normalized: bool = True,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> FeatureDensity:
        """Fit to the features of a model in one pass over its training data.

        Args:
            model: a `Network`, of which the backbone is used, or any callable from inputs to
                features. Variational features are drawn once per example.
            data: inputs and labels, and weights if any; no labels are needed for one class.
            num_classes: None is that of the network's head, and one for regression.
            covariance: "diagonal" or "dense".
            prior: None is that of a generative head, else `Prior()`.
            normalized: whether the score is relative to the prior density.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            The fitted density. Score with it by `ood.scores(network.backbone, data, density)`.
        """
        if isinstance(model, Network):
            head, model = model.head, model.backbone
            num_classes = head.num_densities if num_classes is None else num_classes
            prior = head.density_prior if prior is None else prior
        if num_classes is None:
            raise ValueError("num_classes is not known without a head; pass it, or 1 for no labels")
        density = None
        for features, batch in predictions(model, data, batch_size=batch_size, progress=progress):
            _check_tensor(features)
            if density is None:
                density = cls(
                    features.shape[-1],
                    num_classes,
                    covariance=covariance,
                    prior=prior,
                    normalized=normalized,
                    device=features.device,
                )
            density.update(features, None if num_classes == 1 else batch.target, batch.weight)
        if density is None:
            raise ValueError("there is no example to fit to: data is empty")
        return density

    # ---------------------------------------------------------------------------- fitting

    @torch.no_grad()
    def update(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """Add a batch of examples; any split into batches gives the same.

        Args:
            features: (*batch, N).
            target: class indices, (*batch,); none is needed for one class.
            weight: (*batch,); examples of weight zero are ignored, whatever their label.
        """
        flat = self._wide(features).reshape(-1, self.num_features)
        check_finite("features", flat)
        labels = self._labels(features, target, weight)
        weights = flat.new_ones(len(flat))
        if weight is not None:
            weights = check_weight(weight, features.shape[:-1], None).to(flat).flatten()
            check_weights(weights)
        counts = torch.zeros_like(self.counts).index_add(0, labels, weights)
        total = torch.zeros_like(self.mean).index_add(0, labels, weights[:, None] * flat)
        mean = total / counts.where(counts > 0, 1)[:, None]
        error = flat - mean[labels]
        if self.dense:
            for label in labels.unique().tolist():
                chosen = labels == label
                self.scatter[label].addmm_(error[chosen].mT, weights[chosen, None] * error[chosen])
        else:
            self.scatter.index_add_(0, labels, weights[:, None] * error.square())
        self._absorb(counts, mean)

    def _labels(self, features: Tensor, target: Tensor | None, weight: Tensor | None) -> Tensor:
        if target is None:
            if self.num_classes > 1:
                raise ValueError(
                    f"densities of num_classes={self.num_classes} need labels; pass them as "
                    "target, or fit a single class without any"
                )
            target = features.new_zeros(features.shape[:-1], dtype=torch.int64)
        labels = check_labels(target, features.shape[:-1])
        if weight is not None:
            labels = labels.where(check_weight(weight, labels.shape, None) != 0, 0)
        check_range(labels, self.num_classes)
        return labels.flatten()

    @torch.no_grad()
    def merge(self, other: FeatureDensity) -> None:
        """Add all examples that another density has seen, in place."""
        if self.scatter.shape != other.scatter.shape:
            raise ValueError(
                "only densities of the same features, classes and kind of covariance can be "
                f"merged, got scatters of shape {tuple(self.scatter.shape)} and "
                f"{tuple(other.scatter.shape)}"
            )
        self.scatter += other.scatter.to(self.scatter)
        self._absorb(other.counts.to(self.counts), other.mean.to(self.mean))

    def _absorb(self, counts: Tensor, mean: Tensor) -> None:
        """Add examples whose scatter about their own mean is in (Chan et al., 1979)."""
        total = self.counts + counts
        share = (counts / total.where(total > 0, 1))[:, None]
        shift = mean - self.mean
        weighted = share * self.counts[:, None] * shift
        if self.dense:  # class by class: a batch has few, and the scatters may be large
            for label in counts.nonzero().flatten().tolist():
                self.scatter[label].addr_(weighted[label], shift[label])
        else:
            self.scatter += weighted * shift
        self.mean += share * shift
        self.counts.copy_(total)
        self._densities = None

    @torch.no_grad()
    def all_reduce(self, group: Any = None) -> None:
        """Merge the densities of all processes of a `torch.distributed` group, in place."""
        total, mean = self.counts.clone(), self.counts[:, None] * self.mean
        torch.distributed.all_reduce(total, group=group)
        torch.distributed.all_reduce(mean, group=group)
        mean = mean / total.where(total > 0, 1)[:, None]
        self.scatter += outer(self.mean - mean, self.counts, self.dense)
        torch.distributed.all_reduce(self.scatter, group=group)
        self.counts.copy_(total)
        self.mean.copy_(mean)
        self._densities = None

    # ---------------------------------------------------------------------------- scoring

    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), normalised as set, (*batch,)."""
        wide = self._wide(features)
        score = -self._log_density(wide)
        if self.normalized:
            score = score + self._derived().prior.log_densities(wide).squeeze(-1)
        return score.to(at_least_float32(features).dtype)

    def log_density(self, features: Tensor) -> Tensor:
        """log Σ_y p(φ | y) p(y), not normalised, (*batch,)."""
        return self._log_density(self._wide(features)).to(at_least_float32(features).dtype)

    def _log_density(self, wide: Tensor) -> Tensor:
        derived = self._derived()
        return (derived.classes.log_densities(wide) + derived.log_class).logsumexp(-1)

    def gaussians(self) -> Gaussians:
        """The Gaussian densities of the features of each class."""
        return self._derived().classes

    @torch.no_grad()
    def _derived(self) -> _Densities:
        if self._densities is not None:
            return self._densities
        total = self.counts.sum(0, keepdim=True)
        if not bool(total > 0):
            raise RuntimeError("this density has seen no examples; call update or from_model first")
        prior, ones = self.prior, self.mean.new_ones(self.num_features)
        identity = ones.diag() if self.dense else ones

        def covariance(scatter: Tensor, counts: Tensor) -> Tensor:
            denominator = (counts + self._exponent).reshape(-1, *[1] * (scatter.ndim - 1))
            return (prior.noise_scale * identity + scatter) / denominator

        pooled = covariance(self.scatter.sum(0, keepdim=True), total)  # Σ, (1, …)
        mean = map_mean(self.mean, self.counts, pooled[0], prior.fixed_variance)
        scatter = self.scatter + outer(self.mean - mean, self.counts, self.dense)
        self._densities = _Densities(
            (self.counts / total).log(),
            Gaussians.of(mean, covariance(scatter, self.counts)),
            Gaussians.of(torch.zeros_like(mean[:1]), pooled + prior.fixed_variance * identity),
        )
        return self._densities

    # ------------------------------------------------------------------------ housekeeping

    def _wide(self, features: Tensor) -> Tensor:
        """Checked features in the dtype of the statistics."""
        _check_tensor(features)
        wide = features.double() if features.is_floating_point() else features
        check_features(wide, self.num_features, self.mean)
        return wide

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the statistics; they stay float64 when the module is cast."""
        before = dict(self.named_buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in list(self.named_buffers()):
            if buffer.dtype != torch.float64:
                setattr(self, name, before[name].to(buffer.device))
        self._densities = None
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._densities = None

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return (
            f"num_features={self.num_features}, num_classes={self.num_classes}, "
            f"covariance={'dense' if self.dense else 'diagonal'!r}, "
            f"normalized={self.normalized}, prior={self.prior}"
        )


def _check_tensor(features: object) -> None:
    if not isinstance(features, Tensor):
        raise TypeError(
            f"a feature density takes a tensor of features, got {type(features).__name__}; pass "
            "network.backbone rather than the network"
        )
