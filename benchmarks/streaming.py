"""Peak memory of work on data sets of growing size: it must not grow with them.

A Parquet file of float32 numbers is post-trained on, scored by its density, and predicted by the
command line, here and on a Ray cluster of two workers; each in a process of its own. Memory is what
the process holds for itself alone, sampled while it works, less what it held before: pages of files
that are mapped can be dropped, and do not count. Of Ray it is that of the process that asks, and
beside it the most that any of its workers holds in all.

A file that exists already keeps its other rows. The first number of rows is also the warm-up.

    python benchmarks/streaming.py --json results/streaming.json
    python benchmarks/streaming.py --json FILE --work posttrain --rows 100000,6400000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Whoever starts this file, `python benchmarks/streaming.py` or `python -m benchmarks.streaming`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import nn

import lastlayer as ll
from benchmarks.memory import status
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer import ood
from lastlayer.streams import ParquetStream
from lastlayer.tabular.cli.running import run

WIDTH = 32
GROUP = 50_000  # rows
FEATURES_IN_MEMORY = 2**24  # bytes
NAMES = [f"x{at}" for at in range(WIDTH)]


def write(path: Path, rows: int) -> None:
    """A table of numbers, a row group at a time."""
    random = np.random.default_rng(0)
    weights = random.normal(size=WIDTH).astype(np.float32)
    writer = None
    for _ in range(0, rows, GROUP):
        x = random.standard_normal((min(GROUP, rows), WIDTH), dtype=np.float32)
        y = x @ weights + random.standard_normal(len(x), dtype=np.float32)
        part = pa.table({**dict(zip(NAMES, x.T, strict=True)), "y": y})
        writer = writer or pa.parquet.ParquetWriter(path, part.schema)
        writer.write_table(part, row_group_size=GROUP)
    assert writer is not None
    writer.close()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1))


def posttrained(path: Path, _: Path) -> None:
    stream = ParquetStream(path, NAMES, "y", batch_size=4096)
    options = {"max_memory_bytes": FEATURES_IN_MEMORY, "progress": False}
    ll.posttrain(network(), stream, "regression", **options)  # type: ignore[arg-type]


def density(path: Path, _: Path) -> None:
    stream = ParquetStream(path, NAMES, batch_size=4096)
    ood.FeatureDensity.from_model(network()[:2], stream, num_classes=1, progress=False)


def predicted(path: Path, model: Path, executor: str = "local") -> None:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "predictions.parquet"
        command = ["predict", str(model), str(path), "-o", str(to), "--executor", executor]
        if run(command):
            raise SystemExit("the command failed")


def predicted_by_ray(path: Path, model: Path) -> None:
    predicted(path, model, "ray")


WORK: dict[str, Callable[[Path, Path], None]] = {
    "posttrain": posttrained,
    "FeatureDensity": density,
    "lastlayer predict": predicted,
    "lastlayer predict --executor ray": predicted_by_ray,
}


def held_by_workers() -> int:
    """The most bytes that a Ray worker among the descendants of this process holds for itself."""
    own, most = psutil.Process(), 0
    for process in own.children(recursive=True):
        with contextlib.suppress(psutil.Error, LookupError, OSError):
            if process.name().startswith("ray::"):
                most = max(most, status("RssAnon", process.pid))
    return most


def measure(name: str, small: Path, large: Path, model: Path) -> tuple[float, float, float]:
    """Peak bytes beyond those before, of a Ray worker, and seconds; after a warm-up."""
    torch.set_num_threads(1)
    if WORK[name] is predicted_by_ray:
        import ray

        root = str(Path(__file__).resolve().parents[1] / "src")
        path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}},
        )
    WORK[name](small, model)
    before, peak, workers = status("RssAnon"), 0, 0
    by_ray = WORK[name] is predicted_by_ray
    finished = threading.Event()

    def look() -> None:
        nonlocal peak, workers
        while not finished.wait(0.1 if by_ray else 0.01):
            peak = max(peak, status("RssAnon"))
            workers = max(workers, held_by_workers()) if by_ray else 0

    watcher = threading.Thread(target=look)
    watcher.start()
    start = time.perf_counter()
    try:
        WORK[name](large, model)
    finally:
        finished.set()
        watcher.join()
    return max(peak - before, 0), workers, time.perf_counter() - start


def rows_of(name: str, sizes: list[int], folder: Path) -> list[Row]:
    context = multiprocessing.get_context("spawn")
    found = []
    for size in sizes:
        progress(f"{name}: {size:,} rows")
        small, large = folder / f"{sizes[0]}.parquet", folder / f"{size}.parquet"
        with context.Pool(1) as pool:
            peak, workers, seconds = pool.apply(measure, (name, small, large, folder / "model"))
        found.append(
            {
                "work": name,
                "rows": size,
                "data_MB": size * 4 * (WIDTH + 1) / 1e6,
                "peak_MB": peak / 1e6,
                "worker_MB": workers / 1e6 if workers else math.nan,
                "seconds": seconds,
            }
        )
    return found


def kept_rows(path: Path | None) -> list[Row]:
    """The rows of a file, if it has any."""
    if path is None or not path.exists():
        return []
    rows: list[Row] = json.loads(path.read_text())["sections"]["streaming"]
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--rows", default="100000,400000,1600000", help="of the tables")
    parser.add_argument("--work", default=",".join(WORK), help="what to measure")
    options = parser.parse_args(arguments)
    sizes = [int(size) for size in options.rows.split(",")]
    rows: list[Row] = []
    kept = kept_rows(options.json)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sizes:
            write(folder / f"{size}.parquet", size)
        if "predict" in options.work:
            table = pa.parquet.ParquetFile(folder / f"{sizes[0]}.parquet").read_row_group(0)
            pa.parquet.write_table(table.slice(0, 500), folder / "train.parquet")
            fit = ["fit", str(folder / "train.parquet"), "--target", "y", "--max-epochs", "8"]
            if run([*fit, "--quiet", "--model", str(folder / "model")]):
                raise SystemExit("there is no model to predict with")
        config: dict[str, Any] = {"width": WIDTH, "row_group": GROUP}
        for work in options.work.split(","):
            rows += rows_of(work, sizes, folder)
            if options.json:  # what is measured is kept, whatever happens next
                new = {(row["work"], row["rows"]) for row in rows}
                others = [row for row in kept if (row["work"], row["rows"]) not in new]
                ordered = sorted(
                    others + rows, key=lambda row: ([*WORK].index(row["work"]), row["rows"])
                )
                write_json(options.json, config, environment(), {"streaming": ordered})
    print_table("Peak memory of work on streams", rows)


if __name__ == "__main__":
    main()
