"""`python -m experiments`: list the experiments, run them, write the pages of results."""

from __future__ import annotations

from pathlib import Path

try:
    import typer
    from rich.table import Table
except ImportError as error:
    raise SystemExit(
        f"the experiments need {error.name}; install it with: pip install -e '.[experiments]'"
    ) from error

from . import pages
from .active.run import active
from .bandits.classes import classes
from .bandits.run import bandits
from .bayesopt.run import bayesopt
from .figures.hyperparameters import hyperparameters
from .figures.regularizers import regularizers
from .figures.toy import toy
from .harness import command
from .images.run import images
from .ood.run import ood
from .text.run import text
from .uci import run as uci

app = typer.Typer(
    help="The paper's experiments: run them, and compare their results with the paper's.",
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
EXPERIMENTS = (
    uci.uci,
    images,
    text,
    ood,
    bandits,
    classes,
    bayesopt,
    active,
    toy,
    regularizers,
    hyperparameters,
)


@app.callback(invoke_without_command=True)
def listing(context: typer.Context) -> None:
    """The paper's experiments: run them, and compare their results with the paper's."""
    if context.invoked_subcommand is not None:
        return
    for title, commands in (("experiment", EXPERIMENTS), ("command", (report, methods, download))):
        table = Table(title, "what it does", box=None, padding=(0, 2, 0, 0))
        for function in commands:
            table.add_row(function.__name__, command.summary(function))
        command.console.print(table, "")
    command.console.print("More about one: [bold]python -m experiments NAME --help[/bold]")


def report(results: command.Results = Path("results")) -> None:
    """Write the pages of all results, and their index, from the records."""
    for path in pages.write(results):
        command.console.print(f"Written to {path}")


def methods() -> None:
    """List the methods of the tables."""
    command.list_methods(uci.EXPERIMENT)


download = uci.download

for function in (*EXPERIMENTS, report, methods, download):
    app.command()(function)


if __name__ == "__main__":
    app()
