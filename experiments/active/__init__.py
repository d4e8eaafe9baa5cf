"""Active learning: test error and NLL by the number of labels."""
