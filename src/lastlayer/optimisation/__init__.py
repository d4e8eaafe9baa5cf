"""Bayesian optimisation: a network with a Bayesian last layer as a model of BoTorch."""

try:
    import botorch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.botorch needs botorch: pip install 'lastlayer[botorch]'"
    ) from error
