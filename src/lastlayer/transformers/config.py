"""The configuration of a model with a Bayesian head."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from torch import nn
from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
)

from .._checks import check_choice
from ..heads import DiscriminativeClassification, GenerativeClassification, Head, Regression
from ..priors import Prior

HEADS: dict[str, type[Head]] = {
    "discriminative": DiscriminativeClassification,
    "generative": GenerativeClassification,
    "regression": Regression,
}
POOLINGS = ("first", "last", "mean")
UNKNOWN = 1.0  # the number of training examples that nobody told


class LastLayerConfig(PretrainedConfig):
    """A backbone of any kind, and a Bayesian head on its last hidden states.

    Args:
        backbone_config: of the backbone, which `AutoModel` makes.
        head: "discriminative", "generative" or "regression".
        head_options: arguments of the head, such as {"covariance": "diagonal"}; a `Prior` too.
        num_data: the number of training examples (of tokens, where tokens have labels); the
            callback `HeadCallback` sets it. Training needs it.
        pooling: what represents a sequence: its "first" token, its "last" one, or their "mean".
            By default the last for causal models, else the mean.
        kwargs: of every configuration, such as `num_labels` or `id2label`.
    """

    model_type = "lastlayer"
    sub_configs: ClassVar[dict[str, Any]] = {"backbone_config": AutoConfig}

    def __init__(
        self,
        backbone_config: PretrainedConfig | dict[str, Any] | None = None,
        head: str = "discriminative",
        head_options: dict[str, Any] | None = None,
        num_data: float = UNKNOWN,
        pooling: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("head", head, HEADS)
        if isinstance(backbone_config, dict):
            backbone_config = AutoConfig.for_model(**backbone_config)
        if pooling is None:
            pooling = "last" if _is_causal(backbone_config) else "mean"
        check_choice("pooling", pooling, POOLINGS)
        options = dict(head_options or {})
        if isinstance(options.get("prior"), Prior):
            options["prior"] = asdict(options["prior"])
        self.backbone_config, self.head, self.head_options = backbone_config, head, options
        self.num_data, self.pooling = num_data, pooling
        super().__init__(**kwargs)

    @property
    def pad_token(self) -> int | None:
        """The token that fills sequences, if there is one."""
        return getattr(self.backbone_config, "pad_token_id", None)

    def make_head(self, num_features: int, num_outputs: int) -> Head:
        """The head, as configured."""
        options = dict(self.head_options)
        if isinstance(options.get("prior"), dict):
            options["prior"] = Prior(**options["prior"])
        return HEADS[self.head](num_features, num_outputs, num_data=self.num_data, **options)


def set_num_data(model: nn.Module, count: float) -> None:
    """Tell the heads inside a model, and its configuration, the number of training examples."""
    for module in model.modules():
        if isinstance(module, Head):
            module.num_data = count
        config = getattr(module, "config", None)
        if isinstance(config, LastLayerConfig):
            config.num_data = count


def _is_causal(config: Any) -> bool:
    causal, masked = MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING
    return type(config) in causal and type(config) not in masked
