"""A network with a Bayesian last layer as a model of BoTorch; see `lastlayer.optimisation`."""

from .optimisation import FeatureTraining, LastLayerModel, Waves

__all__ = ["FeatureTraining", "LastLayerModel", "Waves"]
