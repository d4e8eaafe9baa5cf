"""Metrics of predictions: likelihood, error, calibration, and out-of-distribution detection.

`evaluate(model, data)` is all most need. It streams: memory does not grow with the data, and under
`torch.distributed` every process gets the numbers of all data. Its parts are here too, as pure
functions of tensors and as two `torchmetrics.Metric`s.

Conventions:

- Everything but accuracy, coverage and OOD detection is better when smaller.
- Negative log-likelihoods are in nats, joint over the outputs of an example and averaged over
  examples. All other quantities of regression are averaged over outputs too.
- Weights weigh means. What has weight zero is ignored, even if it is NaN or no label at all.
- The Brier score sums over classes: 0 is perfect, 2 is certain and wrong.
- Calibration errors are those of the likeliest class, averaged over examples (ℓ₁).
- OOD scores are higher further out, and out is the positive class.
"""

try:
    import torchmetrics as _torchmetrics  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.metrics needs torchmetrics; install it with: pip install 'lastlayer[metrics]'"
    ) from error

from ..ood import detection as ood
from .detection import evaluate_ood
from .evaluation import evaluate
from .reliability import (
    CalibrationBins,
    CoverageCurve,
    adaptive_calibration_error,
    calibration_bins,
    coverage_curve,
    expected_calibration_error,
)
from .scores import brier_score, crps, gaussian_crps, gaussian_mixture_crps, sample_crps
from .streaming import ClassificationMetrics, RegressionMetrics

__all__ = [
    "CalibrationBins",
    "ClassificationMetrics",
    "CoverageCurve",
    "RegressionMetrics",
    "adaptive_calibration_error",
    "brier_score",
    "calibration_bins",
    "coverage_curve",
    "crps",
    "evaluate",
    "evaluate_ood",
    "expected_calibration_error",
    "gaussian_crps",
    "gaussian_mixture_crps",
    "ood",
    "sample_crps",
]
