"""Trained estimators as ONNX files, which predict without Python and torch.

    export_onnx(LastLayerRegressor().fit(X, y), "model.onnx")

A file takes `codes`, float64 of shape (num_rows, num_columns), one for each column of the table
that is not ignored. It returns what the estimator does, in float64 and in the units of the target:

- regression: `mean`, `variance`, and `lower` and `upper`, the ends of the central interval, of
  shape (num_rows,), or (num_rows, num_targets) if y had columns;
- classification: `probabilities`, (num_rows, num_classes);
- both: `ood_score`, (num_rows,).

Codes are float64 because the seven digits of float32 are too few for a time, or for any number
whose mean is large compared with its standard deviation. How to encode a row is in the metadata of
the file, each entry as JSON: `columns` in the order of the table, with their kinds and levels;
`codes`, the rule for each kind; `kind`, "regression" or "classification"; `target_shape` and
`interval_level`, or `classes`; `ood_threshold`, null if no row counts as unusual; `format` and
`lastlayer`, the versions.
"""

import torch

try:
    import narwhals  # noqa: F401
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401 - torch translates by it
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.onnx needs narwhals, onnx, onnxruntime, onnxscript and scikit-learn: "
        "pip install 'lastlayer[onnx]'"
    ) from error
if torch.__version__ < "2.6":  # no extra asks for another torch
    raise ImportError(f"lastlayer.onnx needs torch 2.6 or newer, got {torch.__version__}")

from .export import export_onnx

__all__ = ["export_onnx"]
