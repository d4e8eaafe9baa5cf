"""Arguments of the commands: their types, and checks with messages for users."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer


class Task(str, Enum):
    """What to predict."""

    auto = "auto"
    regression = "regression"
    classification = "classification"


class Head(str, Enum):
    """The last layer of a classifier."""

    discriminative = "discriminative"
    generative = "generative"


class Interval(str, Enum):
    """What intervals and sets of classes come from."""

    predictive = "predictive"
    conformal = "conformal"


class Effort(str, Enum):
    """How much a search tries."""

    fast = "fast"
    default = "default"
    best = "best"


class Executor(str, Enum):
    """Who predicts."""

    local = "local"
    ray = "ray"


ModelFolder = Annotated[Path, typer.Argument(help="Folder that `lastlayer fit` wrote.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Between the values of a CSV file; inferred by default. A tab is \\t."),
]


def check_roles(target: str, ignore: list[str], weight: str | None) -> list[str]:
    """Names of the columns with a role of their own; each may have one."""
    roles = [target, *ignore, *([weight] if weight else [])]
    for name in roles:
        if roles.count(name) > 1:
            raise typer.BadParameter(
                f"column {name!r} cannot have two of the roles target, weight and ignored"
            )
    return roles


def check_level(level: float) -> None:
    """Raise unless the level of intervals is a probability."""
    if not 0 < level < 1:
        raise typer.BadParameter(f"--level must lie between 0 and 1, such as 0.9, not {level}")


def check_apart(table: Path, to: Path) -> None:
    """Raise if the output would replace the table."""
    if to.exists() and to.samefile(table):
        raise typer.BadParameter(f"{to} is the table itself; name another file by --output")


def read_delimiter(text: str | None) -> str | None:
    """A delimiter as one character."""
    if text is None:
        return None
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1 or not text.isascii() or text in '"\r\n':
        raise typer.BadParameter(
            "--delimiter must be one ASCII character, such as ;, and neither a quote nor the end "
            f"of a line, not {text!r}"
        )
    return text


def read_weights(values: Any, name: str) -> Any:
    """A column of weights as floats."""
    try:
        weights = values.cast("float64", safe=False).to_numpy()  # large integers are rounded
    except (ValueError, NotImplementedError):
        raise typer.BadParameter(f"weights must be numbers, but {name!r} holds others") from None
    if not (weights >= 0).all() or not weights.any():  # not NaN either
        raise typer.BadParameter(
            f"weights in {name!r} must not be missing or negative, nor all be 0"
        )
    return weights


def read_widths(text: str) -> tuple[int, ...]:
    """Widths of hidden layers from text such as 50,50."""
    try:
        widths = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        widths = (0,)
    if any(width < 1 for width in widths):
        raise typer.BadParameter(f"--hidden-layers must be widths such as 50,50, not {text!r}")
    return widths
