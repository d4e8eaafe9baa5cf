"""A backbone with a Bayesian last layer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ._checks import check_count, check_number
from .heads import Elbo, Head
from .heads._parts import Recorder, record, recorded
from .predictive import Predictive, mix
from .variational import drawing_from, kl, sample_weights, variational_layers


class Network(nn.Module):
    r"""A network whose last layer is a head: `model(x)` predicts, `model(x, y)` is the loss.

    If the backbone has variational layers (`make_variational`), the last layer is still integrated
    out, and only features are drawn: the loss is an estimate of
    $-E_{q(\theta)}[\mathrm{ELBO}]/T + \lambda_\theta\,KL(q(\theta)\|p(\theta))/T$ without bias,
    the prediction a mixture over draws. Both draw in training and in evaluation mode.

    Args:
        backbone: any module from inputs to features, (*batch, num_features). What a (nested)
            `nn.Sequential` does before its first variational layer is done once for all draws.
        head: the last layer; its `prior.kl_weight` is the weight of its own divergence.
        num_samples: draws of variational features per training step.
        num_prediction_samples: draws of variational features per prediction.
        feature_kl_weight: λ_θ, the weight of the divergence of variational features.

    Attributes:
        posttraining: what `posttrain` says of its fit, if that made the network.
    """

    posttraining: Any = None

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        *,
        num_samples: int = 1,
        num_prediction_samples: int = 10,
        feature_kl_weight: float = 1.0,
    ) -> None:
        super().__init__()
        check_count("num_samples", num_samples)
        check_count("num_prediction_samples", num_prediction_samples)
        check_number("feature_kl_weight", feature_kl_weight)
        if feature_kl_weight < 0:
            raise ValueError(f"feature_kl_weight must not be negative, got {feature_kl_weight!r}")
        self.backbone, self.head = backbone, head
        self.num_samples, self.num_prediction_samples = num_samples, num_prediction_samples
        self.feature_kl_weight = feature_kl_weight

    _recorder: ClassVar[Recorder | None] = None  # of the parts of the loss, if they are asked for

    def forward(
        self,
        inputs: Any,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        output: Tensor | None = None,
    ) -> Any:
        """Return the predictive, or with a target the training loss; see `Head.forward`."""
        if target is None and weight is None and output is None:
            return self.predict(inputs)
        observed = (target, weight) if output is None else (target, weight, output)
        if not variational_layers(self.backbone):
            return self.head(self.backbone(inputs), *observed)
        loss = self.head(*self._draws(inputs, *observed))
        feature_kl = kl(self.backbone)
        record(self, feature_kl=feature_kl)
        return torch.add(loss, feature_kl, alpha=self.feature_kl_weight / self.head.num_data)

    def predict(
        self,
        inputs: Any,
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Predictive:
        """The predictive: the head's, or the mixture of it over draws of variational features.

        Args:
            inputs: for the backbone.
            num_samples: number of draws; `num_prediction_samples` unless given.
            generator: of the draws of variational layers; torch's global one unless given.
        """
        if num_samples is None:
            num_samples = self.num_prediction_samples
        check_count("num_samples", num_samples)
        if not variational_layers(self.backbone):
            return self.head(self.backbone(inputs))
        features = sample_features(self.backbone, inputs, num_samples, generator)
        return mix(self.head(features.movedim(0, -2)))

    def elbo(
        self,
        inputs: Any,
        target: Tensor,
        weight: Tensor | None = None,
        output: Tensor | None = None,
    ) -> Elbo:
        """The parts of the objective, for logging; arguments as in `forward`."""
        with recorded(self) as parts:
            self(inputs, target, weight, output)
        return Elbo.of(parts)

    def _draws(self, inputs: Any, *others: Tensor | None) -> tuple[Any, ...]:
        """Features of each draw, and targets and weights as often."""
        if self.num_samples == 1:
            return self.backbone(inputs), *others
        features = sample_features(self.backbone, inputs, self.num_samples)
        return features, *(
            None if tensor is None else tensor.expand(self.num_samples, *tensor.shape)
            for tensor in others
        )

    def sample_function(self, generator: torch.Generator | None = None) -> nn.Sequential:
        """One draw of all weights, as a module on inputs: Thompson sampling."""
        head: Any = self.head
        return nn.Sequential(
            sample_weights(self.backbone, generator), head.sample_function(generator)
        )

    def extra_repr(self) -> str:
        """Options, for printing."""
        return (
            f"num_samples={self.num_samples}, "
            f"num_prediction_samples={self.num_prediction_samples}, "
            f"feature_kl_weight={self.feature_kl_weight}"
        )


def sample_features(
    backbone: nn.Module,
    inputs: Any,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw the output of a network with variational layers several times.

    What comes before the first variational layer is computed once, as far as it can be told apart:
    in a (nested) `nn.Sequential`. The rest is computed for all draws in one call, on a batch
    repeated along its first dimension, if all its layers sample locally, and otherwise in one call
    per draw. In training mode a batch norm after a variational layer has the statistics of the
    whole repeated batch in the first case and of each draw in the second.

    Args:
        backbone: the network.
        inputs: a tensor, or any nest of tensors, with examples along the first dimension.
        num_samples: S, the number of draws.
        generator: of the draws; torch's global one unless given.

    Returns:
        (S, *batch, num_features).
    """
    once, rest = _split(backbone)
    inputs = _chain(once, inputs)
    layers = [layer for module in rest for layer in variational_layers(module)]
    with drawing_from(generator):
        if any(layer.sampling == "weights" for layer in layers):
            return torch.stack([_chain(rest, inputs) for _ in range(num_samples)])
        _check_examples(inputs)
        repeated = pytree.tree_map_only(
            Tensor, lambda tensor: tensor.expand(num_samples, *tensor.shape).flatten(0, 1), inputs
        )
        return _chain(rest, repeated).unflatten(0, (num_samples, -1))


def _chain(modules: list[nn.Module], inputs: Any) -> Any:
    for module in modules:
        inputs = module(inputs)
    return inputs


def _split(module: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """The modules that a sequence calls before its first variational layer, and the others."""
    plain_sequence = type(module).forward is nn.Sequential.forward
    if not plain_sequence or module._forward_hooks or module._forward_pre_hooks:
        return [], [module]
    children = list(module)  # type: ignore[call-overload]
    first = next(i for i, child in enumerate(children) if variational_layers(child))
    once, rest = _split(children[first])
    return children[:first] + once, rest + children[first + 1 :]


def _check_examples(inputs: Any) -> None:
    """Raise unless every tensor has as many examples along its first dimension."""
    shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    if not shapes or len({shape[:1] for shape in shapes}) > 1 or () in shapes:
        raise ValueError(
            "several draws in one call repeat the batch, and need examples along the first "
            f"dimension of every tensor, got shapes {shapes}; variational layers with "
            "sampling='weights' need not"
        )
