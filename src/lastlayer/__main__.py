"""`python -m lastlayer` is the command line."""

from .cli import main

main()
