"""What a head returns: predictive distributions made of tensors only.

Every predictive is a frozen dataclass of tensors with the same leading dimensions and a pytree,
so it passes through `torch.compile`, `torch.export`, `vmap` and `pickle`, can be indexed like a
tensor and moved like one. Variance due to the weights (epistemic, shrinks with data) and due to
noise (aleatoric, does not) are kept apart.
"""

from ._base import Predictive
from .classes import DiscriminativePredictive, GenerativePredictive, SoftmaxPredictive
from .classification import ClassificationPredictive, ClassMixturePredictive
from .gaussian import GaussianPredictive, MultivariateGaussianPredictive
from .gaussian_mixture import GaussianMixturePredictive
from .joint import JointPredictive
from .joint_correlated import JointMatrixNormalPredictive, JointMultivariateGaussianPredictive
from .joint_independent import JointGaussianPredictive, JointLogitPredictive
from .noisy_labels import NoisyLabelPredictive
from .plain import Plain
from .regression import RegressionMixturePredictive, RegressionPredictive
from .scale_mixture import HeteroscedasticPredictive
from .student_t import HeavyTailedPredictive, StudentTPredictive


def mix(components: Predictive) -> Predictive:
    """The equal mixture over the last batch dimension of a predictive; see `Predictive.mixture`.

    Args:
        components: a predictive of batch shape (*batch, S), S components for each example.
    """
    return components.mixture()


__all__ = [
    "ClassMixturePredictive",
    "ClassificationPredictive",
    "DiscriminativePredictive",
    "GaussianMixturePredictive",
    "GaussianPredictive",
    "GenerativePredictive",
    "HeavyTailedPredictive",
    "HeteroscedasticPredictive",
    "JointGaussianPredictive",
    "JointLogitPredictive",
    "JointMatrixNormalPredictive",
    "JointMultivariateGaussianPredictive",
    "JointPredictive",
    "MultivariateGaussianPredictive",
    "NoisyLabelPredictive",
    "Plain",
    "Predictive",
    "RegressionMixturePredictive",
    "RegressionPredictive",
    "SoftmaxPredictive",
    "StudentTPredictive",
    "mix",
]
