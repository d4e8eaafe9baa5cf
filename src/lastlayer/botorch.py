"""A network with a Bayesian last layer as a model of BoTorch; see `lastlayer.optimisation`."""

from .optimisation import paths as _paths  # noqa: F401 - registers draws of functions
from .optimisation.backbone import Waves
from .optimisation.model import LastLayerModel
from .optimisation.training import FeatureTraining

__all__ = ["FeatureTraining", "LastLayerModel", "Waves"]
