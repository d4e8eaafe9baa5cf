"""`python -m lastlayer` is the command line."""

from .tabular.cli import main

main()
