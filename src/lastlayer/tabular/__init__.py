"""Tables: columns, encoding, estimators, files, reports, ONNX and the command line.

A frame becomes a matrix of codes (`columns`). Everything from codes to predictives is a torch
module (`model.TableModel`), which is moved, saved and exported like any other. Estimators, reports,
files and ONNX all predict through `predictions.Predictions`.
"""
