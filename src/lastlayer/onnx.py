"""Trained estimators as ONNX files; see `lastlayer.tabular.onnx`."""

from .tabular.onnx import export_onnx

__all__ = ["export_onnx"]
