"""The paper's numbers for images: its tables of CIFAR-10 and CIFAR-100, KL weights and run times.

Facts copied from "Variational Bayesian Last Layers" (ICLR 2024), mean ± standard error over three
seeds, in the printed digits; with WRN-28-10.
"""

from __future__ import annotations

from ..harness.statistics import Cell, Estimate, Published
from .task import METRICS

Row = tuple[tuple[float, float] | None, ...]

# Columns as in METRICS; accuracy in percent.
_CIFAR10: dict[str, Row] = {
    "dnn": ((95.8, 0.19), (0.028, 0.028), (0.183, 0.007), (0.946, 0.005), (0.893, 0.001)),
    "sngp": ((95.7, 0.14), (0.017, 0.003), (0.149, 0.005), (0.96, 0.004), (0.902, 0.003)),
    "d_vbll": ((96.4, 0.12), (0.022, 0.001), (0.16, 0.001), (0.969, 0.004), (0.9, 0.004)),
    "g_vbll": ((96.3, 0.06), (0.021, 0.001), (0.174, 0.002), (0.925, 0.015), (0.804, 0.006)),
    "dnn_laplace": ((96.3, 0.03), (0.01, 0.001), (0.133, 0.003), (0.965, 0.01), (0.898, 0.001)),
    "dnn_d_vbll": ((96.4, 0.01), (0.024, 0.0), (0.176, 0.0), (0.943, 0.002), (0.895, 0.0)),
    "dnn_g_vbll": ((96.4, 0.01), (0.035, 0.0), (0.533, 0.003), (0.729, 0.004), (0.661, 0.004)),
    "g_vbll_map": (None, None, None, (0.95, 0.006), (0.893, 0.003)),
    "dropout": ((95.7, 0.13), (0.013, 0.002), (0.145, 0.004), (0.934, 0.004), (0.903, 0.001)),
    "ensemble": ((96.4, 0.09), (0.011, 0.092), (0.124, 0.001), (0.947, 0.002), (0.914, 0.0)),
    "bbb": ((96.0, 0.08), (0.033, 0.001), (0.333, 0.014), (0.957, 0.004), (0.844, 0.013)),
    "d_vbll_bbb": ((95.9, 0.15), (0.058, 0.019), (0.238, 0.036), (0.832, 0.026), (0.744, 0.01)),
    "g_vbll_bbb": ((95.9, 0.16), (0.009, 0.001), (0.229, 0.01), (0.917, 0.005), (0.779, 0.009)),
}  # fmt: skip
_CIFAR100: dict[str, Row] = {
    "dnn": ((80.4, 0.29), (0.107, 0.004), (0.941, 0.016), (0.799, 0.02), (0.795, 0.001)),
    "sngp": ((80.3, 0.23), (0.03, 0.004), (0.761, 0.007), (0.846, 0.019), (0.798, 0.001)),
    "d_vbll": ((80.7, 0.03), (0.04, 0.002), (0.913, 0.011), (0.849, 0.006), (0.791, 0.003)),
    "g_vbll": ((80.4, 0.1), (0.051, 0.003), (0.945, 0.009), (0.767, 0.055), (0.752, 0.015)),
    "dnn_laplace": ((80.4, 0.29), (0.21, 0.018), (1.048, 0.014), (0.834, 0.014), (0.811, 0.002)),
    "dnn_d_vbll": ((80.7, 0.02), (0.063, 0.0), (0.831, 0.005), (0.843, 0.001), (0.804, 0.001)),
    "dnn_g_vbll": ((80.6, 0.02), (0.186, 0.003), (3.026, 0.155), (0.638, 0.021), (0.652, 0.025)),
    "g_vbll_map": (None, None, None, (0.793, 0.032), (0.765, 0.008)),
    "dropout": ((80.2, 0.22), (0.031, 0.002), (0.762, 0.008), (0.8, 0.014), (0.797, 0.002)),
    "ensemble": ((82.5, 0.19), (0.041, 0.002), (0.674, 0.004), (0.812, 0.007), (0.814, 0.001)),
    "bbb": ((79.6, 0.04), (0.127, 0.002), (1.611, 0.006), (0.809, 0.06), (0.777, 0.008)),
    "d_vbll_bbb": ((77.6, 0.17), (0.041, 0.003), (1.169, 0.018), (0.785, 0.022), (0.756, 0.002)),
    "g_vbll_bbb": ((78.1, 0.18), (0.046, 0.002), (1.156, 0.008), (0.832, 0.023), (0.742, 0.004)),
}  # fmt: skip

_CELLS: dict[Cell, Estimate] = {
    (method, dataset, metric.name): Estimate(*cell)
    for dataset, rows in (("cifar10", _CIFAR10), ("cifar100", _CIFAR100))
    for method, row in rows.items()
    for metric, cell in zip(METRICS, row, strict=True)
    if cell is not None
}

_SUSPECT = {
    ("dnn", "cifar10", "ece"): "its standard error is as large as the mean",
    ("ensemble", "cifar10", "ece"): "its standard error is larger than the mean",
}

PUBLISHED = Published(_CELLS, _SUSPECT)

# NLL of D-VBLL on CIFAR-10 by the weight of the last layer's divergence (rows) and by that of the
# features' (columns; "map" has none, its features are not variational).
KL_WEIGHTS = ("1", "0.1", "0.01", "0.001")
FEATURES = ("map", "50", "5", "0.5")
_ABLATION = (
    (0.16, 0.162, 0.168, 0.16),
    (0.266, 0.266, 0.268, 0.267),
    (0.281, 0.286, 0.268, 0.272),
    (0.282, 0.272, 0.28, 0.276),
)  # a row for each of FEATURES
ABLATION: dict[tuple[str, str], float] = {
    (weight, features): value
    for features, row in zip(FEATURES, _ABLATION, strict=True)
    for weight, value in zip(KL_WEIGHTS, row, strict=True)
}

# Seconds per batch of training on CIFAR-10, on a T4.
SECONDS = {"dnn": 0.321, "d_vbll": 0.338, "g_vbll": 0.364}
