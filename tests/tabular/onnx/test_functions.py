"""Functions that ONNX lacks equal those of torch."""

from typing import Any

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from lastlayer.tabular.onnx.functions import erfc, ndtri


def call(function: onnx.FunctionProto, x: torch.Tensor) -> Any:
    found: Any = ReferenceEvaluator(function).run(None, {"x": x.numpy()}, attributes={})
    return found[0]


def test_functions_that_onnx_lacks_are_those_of_torch():
    x = torch.cat([torch.linspace(-6, 25, 2001), torch.zeros(1)])
    np.testing.assert_allclose(call(erfc(), x), torch.erfc(x), rtol=1e-12)
    p = torch.cat([torch.logspace(-299, -1, 2001), torch.linspace(0.001, 0.999999, 2001)])
    np.testing.assert_allclose(call(ndtri(), p), torch.special.ndtri(p), rtol=1e-11, atol=1e-11)
