"""Tables: columns, encoding, estimators, files, reports, ONNX and the command line.

A frame becomes a matrix of codes (`columns.Columns`), one column for each of its own. All that
follows is a module (`model.TableModel`): it moves, is saved and exported like any other.
"""
