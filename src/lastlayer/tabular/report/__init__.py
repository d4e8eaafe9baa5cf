"""An HTML page about a trained model of a table: scores, calibration, importance and effects.

    write_report(model, test_rows, "price", "report.html")

The page is one self-contained file, without scripts; it may be sent by mail.
"""

try:
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
    import narwhals  # noqa: F401
    import sklearn  # noqa: F401
    import torchmetrics  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.report needs jinja2, matplotlib, narwhals, scikit-learn and torchmetrics: "
        "pip install 'lastlayer[report]'"
    ) from error

from .page import write_report

__all__ = ["write_report"]
