"""What a head returns: predictive distributions made of tensors only.

Every predictive is a frozen dataclass of tensors with the same leading dimensions and a pytree,
so it passes through `torch.compile`, `torch.export`, `vmap` and `pickle`, can be indexed like a
tensor and moved like one. Variance due to the weights (epistemic, shrinks with data) and due to
noise (aleatoric, does not) are kept apart.
"""

from ._base import Predictive
from .classes import DiscriminativePredictive, GenerativePredictive
from .gaussian import GaussianPredictive, MultivariateGaussianPredictive
from .joint import JointGaussianPredictive, JointLogitPredictive, JointPredictive
from .joint_correlated import JointMatrixNormalPredictive, JointMultivariateGaussianPredictive
from .mixture import ClassMixturePredictive, GaussianMixturePredictive, mix

__all__ = [
    "ClassMixturePredictive",
    "DiscriminativePredictive",
    "GaussianMixturePredictive",
    "GaussianPredictive",
    "GenerativePredictive",
    "JointGaussianPredictive",
    "JointLogitPredictive",
    "JointMatrixNormalPredictive",
    "JointMultivariateGaussianPredictive",
    "JointPredictive",
    "MultivariateGaussianPredictive",
    "Predictive",
    "mix",
]
