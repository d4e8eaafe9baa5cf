"""Variants: our configuration, and those of the paper, with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from .ours import Ours
from .vbll import VBLL, LastLayer
from .vbll_bbb import VBLLBBB


@dataclass(frozen=True, kw_only=True)
class Variant(Ours):
    """On the three data sets that take the least time, and a quarter of the seeds."""

    num_seeds: ClassVar[int] = 5
    datasets: ClassVar[tuple[str, ...]] = ("boston", "wine", "yacht")


@dataclass(frozen=True, kw_only=True)
class CentredTargets(Variant):
    """Targets in their units, with the paper's noise prior for them."""

    label = "targets centred, not scaled"
    scale_targets: bool = False
    noise_scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PaperNoisePrior(Variant):
    """A noise prior for targets of order one."""

    label = "noise scale 1"
    noise_scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Adam(Variant):
    """The paper's optimiser."""

    label = "AdamW"
    optimizer: str = "adamw"


@dataclass(frozen=True, kw_only=True)
class NoBias(Variant):
    """No constant feature."""

    label = "no bias"
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class ConstantRate(Variant):
    """The learning rate does not decay."""

    label = "constant learning rate"
    schedule: str = "constant"


@dataclass(frozen=True, kw_only=True)
class LargerStart(Variant, VBLL):
    """The first weights of the last layer are as large as those of VBLL."""

    label = "first weights at the scale of the targets"


@dataclass(frozen=True, kw_only=True)
class Conjugate(Variant):
    """The posterior of the weights shares the noise covariance."""

    label = "conjugate rows"

    def make(self, split: Split) -> ll.Network:
        """The network with a conjugate head."""
        head = self.head(split, row_covariance="noise")
        return ll.Network(mlp.features(split.num_inputs), head)


@dataclass(frozen=True, kw_only=True)
class WidePrior(Variant):
    """Weights may be ten times as far from zero."""

    label = "prior variance 100"
    prior_variance: float = 100.0


@dataclass(frozen=True, kw_only=True)
class NoDecay(Variant):
    """Weights of the features may grow as they like."""

    label = "no weight decay"
    weight_decay: Any = (0.0,)


@dataclass(frozen=True, kw_only=True)
class OneFold(Variant):
    """One fifth of the data is held out, and the others never are."""

    label = "no cross-validation"
    turns: ClassVar[int | None] = 1


@dataclass(frozen=True, kw_only=True)
class SmallerStart(LastLayer):
    """The first weights of the last layer are small, as `Regression.initialize` has them."""

    label = "VBLL, smaller first weights"


@dataclass(frozen=True, kw_only=True)
class Deeper(VBLL):
    """One hidden layer more than the paper says.

    The example network of the authors' package has one before those that it counts.
    """

    label = "VBLL, three hidden layers"
    relative_cost = 1.2
    datasets: ClassVar[tuple[str, ...]] = ("concrete", "power", "yacht")

    depth: int = 3

    def make(self, split: Split) -> ll.Network:
        """The deeper network with the same head."""
        return ll.Network(mlp.features(split.num_inputs, depth=self.depth), self.head(split))


@dataclass(frozen=True, kw_only=True)
class LighterFeatures(VBLLBBB):
    """The divergence of the features from their prior counts a tenth."""

    label = "VBLL BBB, a tenth of the features' divergence"
    datasets: ClassVar[tuple[str, ...]] = ("yacht",)  # takes the least time

    feature_kl_weight: float = 0.1
