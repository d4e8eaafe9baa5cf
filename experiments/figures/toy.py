"""Both panels of the paper's figure 1: a cubic with a gap, and two half-moons."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from ..harness.tables import table
from . import record
from .cubic import Cubic, run_cubic
from .moons import Moons, run_moons

BANDS = "mean, 95 % bands and draws of the weights, with "
FIGURES: dict[str, tuple[str, Any, Cubic | Moons]] = {
    "cubic-variational.png": (BANDS + "variational features", run_cubic, Cubic()),
    "cubic.png": (BANDS + "a plain network", run_cubic, Cubic(variational=False)),
    "moons.png": ("difference of the class densities, with the data", run_moons, Moons()),
}

READING = """\
In the gap it is the last layer that widens: draws of the features agree there. Far beyond the data
the truth leaves the band: ReLU features go on in straight lines."""


def toy(
    output: Annotated[Path, typer.Option(help="Folder for figures and record.")] = Path(
        "demo-output"
    ),
    epochs_scale: Annotated[
        float, typer.Option(min=0.0, help="Multiplies the paper's numbers of epochs.")
    ] = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the epochs.")] = False,
) -> None:
    """The paper's figure 1: a cubic with a gap, and two half-moons.

    Trains a regression head on the cubic, with variational features as in the paper and with a
    plain network, and a generative head on the moons; draws them and prints what they show. About
    a minute on one core. Settings, each with its source, are the first lines of cubic.py and
    moons.py in experiments/figures.
    """
    torch.set_num_threads(1)  # the tensors are small: threads would wait for each other
    output.mkdir(parents=True, exist_ok=True)
    figures = []
    for name, (shows, run, config) in FIGURES.items():
        path, start = output / name, time.perf_counter()
        epochs = max(1, round(config.epochs * epochs_scale * (0.1 if quick else 1)))
        numbers = run(path, epochs, config)
        seconds = time.perf_counter() - start
        settings = asdict(config) | {"epochs": epochs}
        figures.append({"figure": name, "config": settings, "metrics": numbers, "seconds": seconds})
        print(f"\n{path} ({seconds:.0f} s): {shows}")
        print(*(f"  {fact:49} {value:9.3f}" for fact, value in numbers.items()), sep="\n")
    record.write(output, "toy", {"figures": figures})
    print(f"\n{READING}")


def write_page(results: Path) -> str | None:
    """Write the page; a line for the index, or None without a record."""
    found = record.read(results, "toy")
    if found is None:
        return None
    parts = []
    for figure in found["figures"]:
        name = figure["figure"]
        rows = [  # a bar would end the cell
            [fact.replace("|", "\\|"), f"{value:.3f}"] for fact, value in figure["metrics"].items()
        ]
        shows = FIGURES[name][0]
        heading = f"## {shows[0].upper()}{shows[1:]}"
        parts += [heading, f"![{shows}]({name})", table(["", "value"], rows)]
    record.write_page(results, "toy", "Figure 1: toy problems", READING, *parts)
    return "The paper's figure 1: uncertain in the gap of a cubic, and away from two half-moons."
