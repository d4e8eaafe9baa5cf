r"""Variational features: layers whose weights are Gaussian (Bayes by backprop).

Every weight has a posterior of its own, $q(\theta_i) = N(\bar\theta_i, \sigma_i^2)$, and a prior
$N(0, s)$. Every call of such a layer draws from the posterior, in training and in evaluation mode
alike: `train()` and `eval()` mean to it what they mean to a linear layer, nothing.

Draws come in two kinds. `"weights"` draws weights, once for all examples of a call. `"local"`
draws what the weights lead to, the outputs, which are Gaussian for given inputs (local
reparameterisation). It is just as exact if a layer is called on one vector per example, less noisy
in its gradients, and independent between examples, so that several draws are one call on a
repeated batch. Where one example has many outputs of the same weights (positions of a
convolution, tokens of a sequence), `"local"` gives each the right mean and variance, but draws
them apart: noise that they should have in common averages out when they are pooled.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._checks import check_choice, check_positive
from ._sharding import full_with_gradient
from .functional import at_least_float32, full_precision, gaussian_kl, squared_sum

PriorVariance = float | Literal["fan_in"]
Sampling = Literal["local", "weights"]


class _Draws(threading.local):
    """Where a thread's draws come from; None is torch's global generator."""

    generator: torch.Generator | None = None


_draws = _Draws()


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let the variational layers that this thread calls draw from a generator."""
    before, _draws.generator = _draws.generator, generator
    try:
        yield
    finally:
        _draws.generator = before


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers of a tensor's shape, from a generator of any device."""
    device = like.device if generator is None else generator.device
    noise = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=device)
    return noise.to(like.device)


class VariationalLayer(nn.Module):
    """What the variational layers share; `weight` and `bias` are the means of the posterior.

    Args:
        args: as for torch's layer of that name, as are further keywords.
        prior_variance: s, of every weight and bias; "fan_in" is the paper's 4/√n_in.
        initial_stddev: of every weight and bias; by default 0.1/√n_in, so that inputs of order
            one give outputs with a standard deviation of 0.1 at any width.
        sampling: "local" or "weights"; by default "local" for linear layers, where it is exact,
            and "weights" for convolutions, where it is not.
    """

    has_prior: ClassVar[bool] = True  # so that its parameters need no weight decay
    plain: ClassVar[type[nn.Module]]  # torch's layer of that name
    default_sampling: ClassVar[Sampling] = "weights"

    weight: Tensor
    bias: Any  # a tensor or None
    weight_log_stddev: Tensor
    bias_log_stddev: Tensor | None

    def __init__(
        self,
        *args: Any,
        prior_variance: PriorVariance = "fan_in",
        initial_stddev: float | None = None,
        sampling: Sampling | None = None,
        **kwargs: Any,
    ) -> None:
        _check_options(prior_variance, initial_stddev, sampling)
        super().__init__(*args, **kwargs)
        self._become_variational(prior_variance, initial_stddev, sampling)

    def _become_variational(
        self,
        prior_variance: PriorVariance,
        initial_stddev: float | None,
        sampling: Sampling | None,
    ) -> None:
        """Add standard deviations and a prior to a layer of torch."""
        fan_in = max(self.weight.shape[1:].numel(), 1)
        self.sampling: Sampling = self.default_sampling if sampling is None else sampling
        self.prior_variance = 4 / fan_in**0.5 if prior_variance == "fan_in" else prior_variance
        self.initial_stddev = 0.1 / fan_in**0.5 if initial_stddev is None else initial_stddev
        for name in ("weight", "bias"):
            mean: Tensor | None = getattr(self, name)
            log_stddev = None
            if mean is not None:
                log_stddev = nn.Parameter(torch.empty_like(mean), requires_grad=mean.requires_grad)
            self.register_parameter(f"{name}_log_stddev", log_stddev)
        self._reset_stddev()

    def reset_parameters(self) -> None:
        """Initialise: means as in torch's layer, standard deviations at `initial_stddev`."""
        self.plain.reset_parameters(self)  # type: ignore[attr-defined]
        if "weight_log_stddev" in self._parameters:  # torch's constructor calls this too
            self._reset_stddev()

    @torch.no_grad()
    def _reset_stddev(self) -> None:
        for _, log_stddev in self._posterior():
            log_stddev.fill_(self.initial_stddev).log_()

    def _posterior(self) -> list[tuple[Tensor, Tensor]]:
        """Means and log standard deviations of the weights and, if there is one, the bias."""
        pairs = [(self.weight, self.weight_log_stddev)]
        if self.bias_log_stddev is not None:
            pairs.append((self.bias, self.bias_log_stddev))
        return pairs

    def forward(self, input: Tensor) -> Tensor:
        """The output of torch's layer with weights drawn from the posterior."""
        if self.sampling == "weights":
            return self._transform(input, *self._draw(_draws.generator))
        mean = self._transform(input, self.weight, self.bias)
        with full_precision(input):  # squares of small numbers
            variances = [(2 * at_least_float32(log)).exp() for _, log in self._posterior()]
            variance = self._transform(at_least_float32(input).square(), *variances)
        # the root has no slope at zero, where inputs are all zero
        stddev = variance.clamp(min=torch.finfo(variance.dtype).tiny).sqrt()
        generator = _draws.generator
        noise = torch.randn_like(stddev) if generator is None else _normal(stddev, generator)
        return mean + (stddev * noise).to(mean.dtype)

    def _draw(self, generator: torch.Generator | None) -> list[Tensor]:
        """A draw of the weights and, if there is one, the bias."""
        return [
            mean + log_stddev.exp() * _normal(mean, generator)
            for mean, log_stddev in self._posterior()
        ]

    def _transform(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """What torch's layer does with weights and bias; here as a convolution does it."""
        return self._conv_forward(input, weight, bias)  # type: ignore[operator]

    def kl(self) -> Tensor:
        """Divergence of the posterior of the weights and bias from their prior, ()."""
        means, log_stddevs = zip(*self._posterior(), strict=True)
        mean, log_stddev = (
            torch.cat(
                [at_least_float32(full_with_gradient(tensor)).flatten() for tensor in tensors]
            )
            for tensors in (means, log_stddevs)
        )
        trace, logdet = squared_sum(log_stddev.exp()), 2 * log_stddev.sum()
        return gaussian_kl(squared_sum(mean), trace, logdet, len(mean), self.prior_variance)

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        options = f"prior_variance={self.prior_variance:.4g}, sampling={self.sampling!r}"
        return f"{super().extra_repr()}, {options}"


class VariationalLinear(VariationalLayer, nn.Linear):
    """A linear layer with Gaussian weights; see `VariationalLayer` and `torch.nn.Linear`."""

    plain = nn.Linear
    default_sampling = "local"

    def _transform(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(input, weight, bias)


class VariationalConv1d(VariationalLayer, nn.Conv1d):
    """A convolution with Gaussian weights; see `VariationalLayer` and `torch.nn.Conv1d`."""

    plain = nn.Conv1d


class VariationalConv2d(VariationalLayer, nn.Conv2d):
    """A convolution with Gaussian weights; see `VariationalLayer` and `torch.nn.Conv2d`."""

    plain = nn.Conv2d


class VariationalConv3d(VariationalLayer, nn.Conv3d):
    """A convolution with Gaussian weights; see `VariationalLayer` and `torch.nn.Conv3d`."""

    plain = nn.Conv3d


LAYERS: dict[type[nn.Module], type[VariationalLayer]] = {
    layer.plain: layer
    for layer in (VariationalLinear, VariationalConv1d, VariationalConv2d, VariationalConv3d)
}


def _check_options(
    prior_variance: PriorVariance, initial_stddev: float | None, sampling: Sampling | None
) -> None:
    if isinstance(prior_variance, str):
        check_choice("prior_variance", prior_variance, ["fan_in"])
    else:
        check_positive("prior_variance", prior_variance)
    if initial_stddev is not None:
        check_positive("initial_stddev", initial_stddev)
    if sampling is not None:
        check_choice("sampling", sampling, ["local", "weights"])


# ------------------------------------------------------------------------------- whole networks


def variational_layers(module: nn.Module) -> list[VariationalLayer]:
    """The variational layers of a network, each once however often it is used."""
    return [layer for layer in module.modules() if isinstance(layer, VariationalLayer)]


def kl(module: nn.Module) -> Tensor:
    """Divergence of all variational layers from their priors; zero if there are none, ()."""
    floating = (p for p in module.parameters() if p.is_floating_point())
    first = next(floating, torch.empty(0))
    zero = at_least_float32(torch.zeros((), dtype=first.dtype, device=first.device))
    return sum((layer.kl().to(zero.device) for layer in variational_layers(module)), zero)


def make_variational(
    module: nn.Module,
    *,
    layers: Literal["all", "last"] | Iterable[str] = "all",
    prior_variance: PriorVariance = "fan_in",
    initial_stddev: float | None = None,
    sampling: Sampling | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Turn linear layers and convolutions into variational ones, their weights into means.

    The names of the means in the state dict stay the same. A layer that is used in several
    places stays one layer (but every call of it is a draw of its own).

    Args:
        module: a network, or a `Network`, whose head is left as it is.
        layers: "all"; "last", the one registered last; or names of layers, or of blocks of them,
            as in `module.named_modules()`. Layers of torch's own types, not subclasses: what
            those do with their weights is not known.
        prior_variance: s, of every weight and bias; "fan_in" is the paper's 4/√n_in.
        initial_stddev: of every weight and bias; by default 0.1/√n_in.
        sampling: "local" or "weights"; see `lastlayer.variational`.
        inplace: whether to convert the network itself instead of a copy.
    """
    _check_options(prior_variance, initial_stddev, sampling)
    module = module if inplace else copy.deepcopy(module)
    chosen = _choose(module, layers)
    _check_untied(chosen)
    for layer in chosen.values():
        layer.__class__ = LAYERS[type(layer)]  # keeps parameters, hooks and places
        assert isinstance(layer, VariationalLayer)
        layer._become_variational(prior_variance, initial_stddev, sampling)
    for parent in module.modules():  # would read the weights without calling the layers
        if isinstance(parent, nn.TransformerEncoderLayer) and variational_layers(parent):
            parent.activation_relu_or_gelu = 0
        if isinstance(parent, nn.TransformerEncoder) and variational_layers(parent):
            parent.use_nested_tensor = False
    return module


def _choose(
    module: nn.Module, layers: Literal["all", "last"] | Iterable[str]
) -> dict[str, nn.Module]:
    """The layers to convert, each once, by name."""
    plain = {name: layer for name, layer in module.named_modules() if type(layer) in LAYERS}
    if not plain:
        raise ValueError(
            f"{type(module).__name__} has nothing to convert: no layer is exactly one of "
            f"{[layer.__name__ for layer in LAYERS]} (those already variational are left as they "
            "are; lazy layers need a first call)"
        )
    if layers == "all":
        return plain
    if layers == "last":
        return dict([plain.popitem()])
    chosen: dict[str, nn.Module] = {}
    blocks = dict(module.named_modules(remove_duplicate=False))
    for name in [layers] if isinstance(layers, str) else layers:
        inside = {id(layer) for layer in blocks[name].modules()} if name in blocks else set()
        matching = {key: layer for key, layer in plain.items() if id(layer) in inside}
        if not matching:
            why = "there is none of that name" if name not in blocks else "it holds none"
            raise ValueError(
                f"layers must name what to convert, got {name!r}, but {why}; there are "
                f"{', '.join(map(repr, plain))}"
            )
        chosen |= matching
    if not chosen:
        raise ValueError(f"layers names nothing to convert; there are {list(plain)}")
    return chosen


def _check_untied(chosen: dict[str, nn.Module]) -> None:
    """Raise if two layers share a parameter: their draws of one weight would differ."""
    uses = Counter(id(parameter) for layer in chosen.values() for parameter in layer.parameters())
    tied = [
        name
        for name, layer in chosen.items()
        if any(uses[id(parameter)] > 1 for parameter in layer.parameters())
    ]
    if tied:
        raise ValueError(
            f"layers {tied} share a parameter, of which each would make draws of its own; "
            "leave out all but one of them by naming the layers to convert"
        )


def sample_weights(module: nn.Module, generator: torch.Generator | None = None) -> nn.Module:
    """One draw of all weights, as a copy of the network without variational layers.

    A function in the mathematical sense: every call of it uses the same weights. They need no
    gradient.
    """
    module = copy.deepcopy(module)
    for layer in variational_layers(module):
        with torch.no_grad():
            for (mean, _), drawn in zip(layer._posterior(), layer._draw(generator), strict=True):
                mean.copy_(drawn)
        del layer.weight_log_stddev, layer.bias_log_stddev
        del layer.prior_variance, layer.initial_stddev, layer.sampling
        layer.__class__ = layer.plain  # type: ignore[assignment]
    return module.requires_grad_(False)
