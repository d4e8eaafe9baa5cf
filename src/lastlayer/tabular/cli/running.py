"""Running a command: exit codes, and errors as one line."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from . import EXTRA
from .app import console
from .commands import app

Misuse: Any = typer.BadParameter.__base__  # the base class of errors in arguments
INTERRUPTED = 130  # the exit code of shells
NOTHING_LEFT = "no partial file was left"
DISK_ERRORS = {
    errno.ENOSPC: f"the disk is full; {NOTHING_LEFT}",
    errno.EDQUOT: f"the disk quota is exceeded; {NOTHING_LEFT}",
    errno.EFBIG: "the file is larger than the disk or a limit (ulimit -f) allows; write elsewhere, "
    "or raise the limit",
    errno.EIO: "the disk fails to read or write; check it, or use another",
}


def run(arguments: Sequence[str]) -> int:
    """Run a command; the exit code is 0, 1 if it failed, 2 if misused, 130 if interrupted."""
    console.quiet = False
    try:
        code = app(list(arguments or ["--help"]), prog_name="lastlayer", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Misuse as error:
        return _fail(error.format_message(), 2)
    except Exception as error:
        if os.environ.get("LASTLAYER_DEBUG"):
            raise
        return _fail(_explain(error), 1)
    if code == INTERRUPTED:
        return _fail(f"interrupted; {NOTHING_LEFT}", INTERRUPTED)
    return int(code or 0)


def _explain(error: Exception) -> str:
    """What went wrong, for users."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return DISK_ERRORS.get(error.errno or 0) or (error.strerror or str(error)) + where
    if isinstance(error, MemoryError):
        return "there is not enough memory; use fewer rows or columns"
    if isinstance(error, ModuleNotFoundError):
        return f"this command needs {error.name}; install it with: {EXTRA}"
    if isinstance(error, ValueError | FloatingPointError | ImportError | RuntimeError):
        return str(error)
    if isinstance(error, AttributeError) and hasattr(error.obj, "columns_"):
        return (
            f"the model lacks {error.name!r}: another version of lastlayer wrote it, or it was "
            "changed; train it again"
        )
    where = "LASTLAYER_DEBUG=1 shows where; please report it"
    return f"this is a bug in lastlayer: {type(error).__name__} {error}; {where}"


def _fail(message: str, code: int) -> int:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 10_000
    text = f"[red]lastlayer:[/red] {escape(' '.join(message.split()))}"
    Console(stderr=True, highlight=False, width=width).print(text, soft_wrap=True)
    return code
