"""BoTorch needs Python 3.11; without it there is nothing to test here."""

import importlib.util

if importlib.util.find_spec("botorch") is None:
    collect_ignore_glob = ["test_*.py"]
