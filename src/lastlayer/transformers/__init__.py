"""Bayesian heads for models of Hugging Face: classification, regression, rewards."""

try:
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.transformers needs transformers: pip install 'lastlayer[transformers]'"
    ) from error

from .config import LastLayerConfig
from .models import (
    LastLayerForSequenceClassification,
    LastLayerForTokenClassification,
    LastLayerOutput,
)
from .posttraining import posttrain
from .rewards import Comparison, LastLayerForPairwiseReward
from .training import HeadCallback

__all__ = [
    "Comparison",
    "HeadCallback",
    "LastLayerConfig",
    "LastLayerForPairwiseReward",
    "LastLayerForSequenceClassification",
    "LastLayerForTokenClassification",
    "LastLayerOutput",
    "posttrain",
]
