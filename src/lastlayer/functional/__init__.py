r"""The mathematics of the last layers: pure functions of tensors.

Shapes are written as in `(*batch, K)`: any leading dimensions, K outputs or classes, N features.
Nothing here owns a parameter or inspects a value; modules call these functions and name the rest.
"""

from .bounds import generative_bound, jensen_bound, tilted_bound
from .crps import gaussian_crps, gaussian_mixture_crps
from .densities import (
    GaussianPrecision,
    class_log_densities,
    class_log_density,
    gaussian_log_densities,
)
from .evidence import covariance_evidence, mean_evidence, prior_variance_evidence
from .gaussian import (
    best_prior_variance,
    expected_gaussian_log_density,
    gaussian_kl,
    grouped_gaussian_kl,
    inverse_wishart_exponent,
    inverse_wishart_log_density,
)
from .heteroscedastic import (
    expected_heteroscedastic_log_density,
    expected_log_noise_prior,
    expected_root_precision,
)
from .low_rank import (
    low_rank_condition,
    low_rank_entropy,
    low_rank_information,
    low_rank_log_density,
    low_rank_root,
)
from .marginal import log_marginal_likelihood
from .numerics import (
    LOG_2PI,
    at_least_float32,
    exponential,
    full_precision,
    of_output,
    squared_sum,
    widest,
)
from .softmax import (
    expected_entropy_of_softmax,
    expected_log_softmax,
    expected_softmax,
    tilted_coefficients,
)
from .wrong_labels import softplus_bound, wrong_label_bound

__all__ = [
    "LOG_2PI",
    "GaussianPrecision",
    "at_least_float32",
    "best_prior_variance",
    "class_log_densities",
    "class_log_density",
    "covariance_evidence",
    "expected_entropy_of_softmax",
    "expected_gaussian_log_density",
    "expected_heteroscedastic_log_density",
    "expected_log_noise_prior",
    "expected_log_softmax",
    "expected_root_precision",
    "expected_softmax",
    "exponential",
    "full_precision",
    "gaussian_crps",
    "gaussian_kl",
    "gaussian_log_densities",
    "gaussian_mixture_crps",
    "generative_bound",
    "grouped_gaussian_kl",
    "inverse_wishart_exponent",
    "inverse_wishart_log_density",
    "jensen_bound",
    "log_marginal_likelihood",
    "low_rank_condition",
    "low_rank_entropy",
    "low_rank_information",
    "low_rank_log_density",
    "low_rank_root",
    "mean_evidence",
    "of_output",
    "prior_variance_evidence",
    "softplus_bound",
    "squared_sum",
    "tilted_bound",
    "tilted_coefficients",
    "widest",
    "wrong_label_bound",
]
