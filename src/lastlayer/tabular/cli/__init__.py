"""The command line for tables: fit, predict, evaluate, report, export, demo; and doctor."""

from __future__ import annotations

import signal
import sys

EXTRA = "pip install 'lastlayer[cli]'"
LEVEL = 0.9  # of intervals


def main() -> None:
    """Run the command line; an error is one line on standard error, and an exit code."""
    for name in ("SIGTERM", "SIGHUP"):  # the latter when a terminal closes; not on Windows
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)  # cleans up as after Ctrl-C
    try:
        from .running import run
    except KeyboardInterrupt:
        print("lastlayer: interrupted", file=sys.stderr)
        sys.exit(130)
    except ImportError as error:
        if sys.argv[1:] == ["doctor"]:  # which is there for this
            print_doctor()
        sys.exit(f"lastlayer: the command line needs {error.name}; install it with: {EXTRA}")
    sys.exit(run(sys.argv[1:]))


def print_doctor() -> None:
    """Print versions, threads, devices, and what is missing for which extra."""
    from ...doctor import lines

    for line in lines():
        print(line)
