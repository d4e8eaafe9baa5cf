"""Trained estimators as ONNX files, which predict without Python and torch."""

from .export import export_onnx

__all__ = ["export_onnx"]
