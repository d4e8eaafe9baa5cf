"""The command line itself: its help, its version, and where it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from ... import __version__

app = typer.Typer(
    help="Predictions from tables, with calibrated uncertainty.",
    epilog="Start with: **lastlayer demo**, or **lastlayer fit train.csv --target price**.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console(stderr=True, highlight=False)  # standard output is for results
output = Console(highlight=False)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"lastlayer {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options without a command."""


def bold(name: str | Path) -> str:
    """A name in bold, its brackets as they are."""
    return f"[bold]{escape(str(name))}[/bold]"
