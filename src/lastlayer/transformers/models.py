"""Models with a Bayesian head, for labels of sequences and of tokens."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from transformers.utils.generic import ModelOutput

from ..predictive import Predictive
from .config import UNKNOWN, LastLayerConfig

IGNORED = -100  # the label of what has none
AnyModel = TypeVar("AnyModel", bound="LastLayerModel")


@dataclass
class LastLayerOutput(ModelOutput):
    """What a model with a Bayesian head returns.

    Attributes:
        loss: the negative ELBO per example, if there are labels.
        logits: of classes the logarithms of their probabilities, whose softmax are these; of
            numbers the mean. None in training, which computes no predictions.
        variance: of the logits where they are Gaussian, of numbers the predictive one.
        hidden_states: of the backbone, if asked for.
        attentions: of the backbone, if asked for.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    variance: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class LastLayerModel(PreTrainedModel):
    """A backbone and a Bayesian head; see the models for each kind of label.

    Args:
        config: of both.
        backbone: a model to take as it is; made from the configuration unless given.
    """

    config_class = LastLayerConfig
    base_model_prefix = "backbone"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # the loss is a mean over the batch

    def __init__(self, config: LastLayerConfig, backbone: PreTrainedModel | None = None) -> None:
        if backbone is None:
            backbone = AutoModel.from_config(config.backbone_config)
        super().__init__(config)
        self.backbone = backbone
        self.head = config.make_head(backbone.config.hidden_size, self.num_outputs)
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def from_backbone(
        cls: type[AnyModel], backbone: PreTrainedModel | str, **options: Any
    ) -> AnyModel:
        """A model around a pretrained backbone.

        Args:
            backbone: a model as `AutoModel` makes it, or its name or folder.
            options: of `LastLayerConfig`, such as `num_labels=3` or `head="generative"`.
        """
        model: Any = AutoModel.from_pretrained(backbone) if isinstance(backbone, str) else backbone
        own = copy.deepcopy(model.config)  # a configuration changes those inside it
        return cls(cls.config_class(backbone_config=own, **options), model)

    @property
    def num_outputs(self) -> int:
        """How many outputs the head has."""
        return int(self.config.num_labels or 1)

    def _init_weights(self, module: Any) -> None:
        """Nothing: backbone and head initialise themselves."""

    def hidden(self, **inputs: Any) -> tuple[Tensor, Any]:
        """The last hidden states, (B, L, N), in the head's precision, and all of the output."""
        given = {name: value for name, value in inputs.items() if value is not None}
        output = self.backbone(**given)
        return output.last_hidden_state.to(self.head.mean.dtype), output

    def pooled(self, **inputs: Any) -> tuple[Tensor, Any]:
        """The features of sequences, (B, N), and all of the backbone's output."""
        hidden, output = self.hidden(**inputs)
        mask = self._mask(hidden, inputs)
        if self.config.pooling == "first":
            return hidden[:, 0], output
        if self.config.pooling == "last":
            places = torch.arange(hidden.shape[1], device=hidden.device)
            last = (places * mask).argmax(-1)  # padding may be on either side
            return hidden[torch.arange(len(hidden), device=hidden.device), last], output
        weight = mask.to(hidden.dtype).unsqueeze(-1)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1), output

    def _mask(self, hidden: Tensor, inputs: dict[str, Any]) -> Tensor:
        """Which tokens count, (B, L)."""
        mask, tokens = inputs.get("attention_mask"), inputs.get("input_ids")
        if mask is None and tokens is not None and self.config.pad_token is not None:
            mask = tokens != self.config.pad_token
        if mask is None:
            mask = torch.ones(hidden.shape[:2], device=hidden.device)
        return mask.to(hidden.device)

    def _loss(self, features: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The head's loss, or in training an error if nobody told the number of examples."""
        if self.training and self.head.num_data == UNKNOWN:
            raise ValueError(
                "the number of training examples is not known, by which the prior is weighted: "
                "pass Trainer(…, callbacks=[HeadCallback()]), or num_data=… to from_backbone"
            )
        loss: Tensor = self.head(features, target, weight)
        return loss

    def _output(self, features: Tensor, loss: Tensor | None, output: Any) -> LastLayerOutput:
        logits = variance = None
        if not self.training or loss is None:
            logits, variance = summary(self.head(features))
        return LastLayerOutput(
            loss, logits, variance, output.get("hidden_states"), output.get("attentions")
        )


class LastLayerForSequenceClassification(LastLayerModel):
    """A label, or with `head="regression"` numbers, for each sequence.

    Classes of −100 are ignored. `predict` returns the whole predictive.
    """

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> LastLayerOutput:
        """Loss, logits and variance; see `LastLayerOutput`."""
        features, output = self.pooled(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        loss = None
        if labels is not None:
            if self.config.head == "regression":
                loss = self._loss(features, labels.to(features.dtype))
            else:
                loss = self._loss(features, *averaged(labels))
        return self._output(features, loss, output)

    @torch.no_grad()
    def predict(self, **inputs: Any) -> Predictive:
        """The predictive of sequences."""
        predictive: Predictive = self.head(self.pooled(**inputs)[0])
        return predictive


class LastLayerForTokenClassification(LastLayerModel):
    """A label for each token; labels of −100 are ignored, and `num_data` counts the others."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> LastLayerOutput:
        """Loss, logits and variance; see `LastLayerOutput`."""
        features, output = self.hidden(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        loss = None if labels is None else self._loss(features, *averaged(labels))
        return self._output(features, loss, output)

    @torch.no_grad()
    def predict(self, **inputs: Any) -> Predictive:
        """The predictive of tokens, of batch shape (B, L)."""
        predictive: Predictive = self.head(self.hidden(**inputs)[0])
        return predictive


def labelled(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels, and their weights: zero for those to ignore."""
    known = labels != IGNORED
    return labels.where(known, 0), known.to(torch.get_default_dtype())


def averaged(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels, and weights by which a mean is that of those not to ignore; all zero for none."""
    labels, weight = labelled(labels)
    return labels, weight * (weight.numel() / weight.sum().clamp(min=1))


def summary(predictive: Any) -> tuple[Tensor, Tensor | None]:
    """Logits and variance, as `LastLayerOutput` has them."""
    if hasattr(predictive, "log_probs"):
        return predictive.log_probs(), getattr(predictive, "logit_variance", None)
    return predictive.mean, predictive.variance


AutoConfig.register(LastLayerConfig.model_type, LastLayerConfig)
AutoModelForSequenceClassification.register(LastLayerConfig, LastLayerForSequenceClassification)
AutoModelForTokenClassification.register(LastLayerConfig, LastLayerForTokenClassification)
