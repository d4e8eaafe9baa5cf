"""Running jobs on all cores or on a Ray cluster, with progress and the time left."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar

import joblib
from joblib.externals.loky import get_reusable_executor
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

Executor = Literal["local", "ray"]


class Job(Protocol):
    """Something to be run, which can tell how long it takes and whether it is done."""

    @property
    def cost(self) -> float:
        """How long it takes, in units that all jobs share."""

    @property
    def expected_seconds(self) -> float | None:
        """How long it takes a core, if that can be told before."""

    def is_done(self) -> bool:
        """Whether its results are there."""


AnyJob = TypeVar("AnyJob", bound=Job)


def run_all(
    run: Callable[[AnyJob], str | None],
    jobs: Sequence[AnyJob],
    *,
    executor: Executor = "local",
    num_workers: int | None = None,
    console: Console | None = None,
) -> list[str]:
    """Run all jobs and return what went wrong; one that fails does not stop the others.

    Args:
        run: runs a job, and returns an error as text, if any. Must be importable where it runs.
        jobs: the longest first, for workers to end together.
        executor: processes of this machine, or a Ray cluster: the one that RAY_ADDRESS names,
            else one of this machine. Its workers must see the same folder of results.
        num_workers: one for each core if None.
        console: where to show progress.
    """
    console = Console(stderr=True) if console is None else console
    with _backend(executor, num_workers):
        count = joblib.effective_n_jobs(num_workers or -1)
        with _shown(jobs, count, console):
            found = joblib.Parallel(n_jobs=count, batch_size=1, pre_dispatch="all")(
                joblib.delayed(run)(job) for job in jobs
            )
    return [error for error in found if error is not None]


@contextmanager
def _backend(executor: Executor, num_workers: int | None) -> Iterator[None]:
    """Let joblib run where it should."""
    if executor == "local":
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            yield
        get_reusable_executor().shutdown()  # processes would keep the environment of this call
        return
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise ImportError(
            "--executor ray needs Ray; install it with: pip install 'lastlayer[ray]'"
        ) from error
    started = not ray.is_initialized()
    if started:
        ray.init(num_cpus=num_workers, include_dashboard=False, log_to_driver=False)
    register_ray()  # type: ignore[no-untyped-call]
    try:
        with joblib.parallel_config("ray"):
            yield
    finally:
        if started:
            ray.shutdown()


@contextmanager
def _shown(jobs: Sequence[Job], num_workers: int, console: Console) -> Iterator[None]:
    """A bar that follows the results as they appear, whoever writes them."""
    bar = Progress(
        TextColumn("{task.completed}/{task.total} jobs"),
        BarColumn(),
        TimeElapsedColumn(),
        _TimeLeft(),
        console=console,
    )
    costs = [job.cost for job in jobs]
    expected = _expected([job.expected_seconds for job in jobs], num_workers)
    task = bar.add_task("jobs", total=len(jobs), share=0.0, since=0.0, expected=expected)
    finished = threading.Event()

    def look() -> None:
        done = [job.is_done() for job in jobs]
        if sum(done) > bar.tasks[task].completed:
            share = sum(itertools.compress(costs, done)) / sum(costs)
            since = bar.tasks[task].elapsed or 0.0
            bar.update(task, completed=sum(done), share=share, since=since)

    def follow() -> None:
        while not finished.wait(2.0):
            look()

    follower = threading.Thread(target=follow, daemon=True)
    with bar:
        follower.start()
        try:
            yield
        finally:
            finished.set()
            follower.join()
            look()


def _expected(seconds: list[float | None], num_workers: int) -> float | None:
    """How long workers take together, if that is known of every job."""
    known = [one for one in seconds if one is not None]
    return max(max(known), sum(known) / num_workers) if len(known) == len(seconds) else None


class _TimeLeft(ProgressColumn):
    """An estimate from the share of the work that was done when the last job ended.

    Before the first has ended, it is from what is expected.
    """

    def render(self, task: Task) -> Text:
        """The time left, counting down between the ends of jobs."""
        share, since, expected = (task.fields[name] for name in ("share", "since", "expected"))
        elapsed = task.elapsed or 0.0
        if task.finished:
            return Text("")
        if share:
            left = since * (1 - share) / share - (elapsed - since)
        elif expected is None:
            return Text("time left: known after the first job", style="dim")
        else:
            left = expected - elapsed
        text = f"about {math.ceil(left / 60)} min left" if left > 0 else "longer than expected"
        return Text(text if share else f"{text}, going by earlier records")
