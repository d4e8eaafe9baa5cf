"""Functions that ONNX lacks, and operations that torch would write with too few digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxscript
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

Array = NDArray[np.float64]

OPSET = 18  # of ONNX: the oldest that torch writes
DOMAIN = "lastlayer"  # of the functions, while a file is made


def translations() -> dict[Any, Callable[..., Any]]:
    """Translations of operations that torch translates not at all, or not exactly.

    Torch writes numbers as float32 and casts them. Types are for onnxscript: what has none is a
    tensor.
    """
    operators: Any = onnxscript.opset18

    def number(value: float) -> Any:
        return operators.Constant(value=onnxscript.ir.tensor(np.array(value, np.float64)))

    def scalar_tensor(  # type: ignore[no-untyped-def]
        s: float, dtype: int = 11, layout: str = "", device: str = "", pin_memory: bool = False
    ):
        return operators.Cast(number(s), to=dtype)

    def clamp(x, min: float | None = None, max: float | None = None):  # type: ignore[no-untyped-def]
        x = x if min is None else operators.Max(x, operators.CastLike(number(min), x))
        return x if max is None else operators.Min(x, operators.CastLike(number(max), x))

    def clamp_min(x, min: float):  # type: ignore[no-untyped-def]
        return clamp(x, min)

    aten = torch.ops.aten
    return {
        aten.erfc.default: _call("Erfc"),
        aten.special_ndtri.default: _call("Ndtri"),
        aten.scalar_tensor.default: scalar_tensor,
        aten.clamp.default: clamp,
        aten.clamp_min.default: clamp_min,
    }


def _call(name: str) -> Callable[..., Any]:
    """A call of a function of this module, which is inlined afterwards."""
    parameter = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[parameter("x", "T")],
        outputs=[parameter("y", "T")],
        type_constraints=[("T", ["tensor(double)"], "")],
    )
    operator: Any = onnxscript.values.Op(onnxscript.values.Opset(DOMAIN, 1), name, schema)

    def call(x):  # type: ignore[no-untyped-def]
        return operator(x)

    return call


class _Function:
    """The nodes of a function of x, one after the other; numbers become constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def __call__(self, operator: str, *inputs: str | float, **attributes: Any) -> str:
        names = [self._constant(x) if isinstance(x, float) else x for x in inputs]
        output = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(operator, names, [output], **attributes))
        return output

    def _constant(self, number: float) -> str:
        return self("Constant", value=onnx.numpy_helper.from_array(np.array(number, np.float64)))

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        """A polynomial by Horner's rule, lowest coefficient first."""
        total = self._constant(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            total = self("Add", self("Mul", total, x), coefficient)
        return total

    def called(self, name: str) -> onnx.FunctionProto:
        """The function, which returns the output of the last node."""
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        outputs = list(self.nodes[-1].output)
        return onnx.helper.make_function(DOMAIN, name, ["x"], outputs, self.nodes, opsets)


def _coefficients(function: Callable[..., Any], degree: int) -> list[float]:
    """Coefficients of the polynomial that interpolates a function at the Chebyshev points of ±1."""
    series: Any = chebyshev.chebinterpolate(function, degree)
    coefficients: list[float] = chebyshev.cheb2poly(series).tolist()
    return coefficients


def erfc() -> onnx.FunctionProto:
    """The complementary error function to twelve digits (after Shepherd & Laframboise, 1981)."""
    middle = 3.75

    def scaled(position: Array) -> Array:
        """(1 + 2x) exp(x²) erfc(x), for x ≥ 0, of (x − c)/(x + c)."""
        size = middle * (1 + position) / (1 - position)
        values: Array = (1 + 2 * size) * torch.special.erfcx(torch.from_numpy(size)).numpy()
        return values

    do = _Function()
    size = do("Abs", "x")
    position = do("Div", do("Sub", size, middle), do("Add", size, middle))
    numerator = do.polynomial(position, _coefficients(scaled, 18))
    ratio = do("Div", numerator, do("Add", do("Mul", size, 2.0), 1.0))
    right = do("Mul", ratio, do("Exp", do("Neg", do("Mul", size, size))))
    do("Where", do("Less", "x", 0.0), do("Sub", 2.0, right), right)
    return do.called("Erfc")


def ndtri() -> onnx.FunctionProto:
    """Quantiles of the normal distribution to eleven digits, for p from 1e-300."""
    nearest, farthest = math.sqrt(2 * math.log(2)), math.sqrt(2 * math.log(1e300))
    reach = (farthest - nearest) / (farthest + 4)

    def scaled(position: Array) -> Array:
        """Quantiles over r = √(−2 log p), for p ≤ ½, of (r − r₀)/(r + 4) brought to ±1."""
        share = reach * (position + 1) / 2
        radius = (nearest + 4 * share) / (1 - share)
        quantile: Array = torch.special.ndtri(torch.from_numpy(np.exp(-(radius**2) / 2))).numpy()
        return quantile / radius

    do = _Function()
    tail = do("Min", "x", do("Sub", 1.0, "x"))
    radius = do("Sqrt", do("Mul", do("Log", tail), -2.0))
    share = do("Div", do("Sub", radius, nearest), do("Add", radius, 4.0))
    position = do("Sub", do("Mul", share, 2 / reach), 1.0)
    left = do("Mul", radius, do.polynomial(position, _coefficients(scaled, 28)))
    do("Where", do("Less", "x", 0.5), left, do("Neg", left))
    return do.called("Ndtri")
