"""Bayesian optimisation: surrogates on published tasks."""
