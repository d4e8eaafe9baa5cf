"""The parts of the objective, recorded by the call that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn


class Elbo(NamedTuple):
    """The parts of the objective; T · bound − kl bounds the log marginal likelihood.

    So does T · bound − kl − feature_kl where features are variational.
    """

    bound: Tensor  # mean over examples, ()
    kl: Tensor  # divergence of the last layer from its prior, unweighted, ()
    log_prior: Tensor  # unnormalised log-density of the noise, ()
    feature_kl: Tensor | None = None  # that of the features, unweighted, if there is one, ()

    @classmethod
    def of(cls, parts: Mapping[str, Tensor]) -> Elbo:
        """The ELBO's own parts of what was recorded."""
        return cls(parts["bound"], parts["kl"], parts["log_prior"], parts.get("feature_kl"))


class Recorder(dict[str, Tensor]):
    """Parts by name. A copy of a module that records does not record: it has None instead."""

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()


@contextmanager
def recorded(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Let every loss that heads (and networks) inside a module compute leave its parts.

    Parts are scalars of the graph, not detached, and are summed by name if several heads are
    called. Nothing is computed twice, and nothing is computed when nothing is recorded. One module
    is to be recorded by one thread at a time.

    Args:
        module: a head, a network, or anything that has some inside: wrapped or compiled too.

    Yields:
        A dictionary, filled by calls with a target: bound, kl, log_prior, and feature_kl where
        features are variational.
    """
    parts = Recorder()
    modules: list[Any] = [part for part in module.modules() if hasattr(type(part), "_recorder")]
    before = [part._recorder for part in modules]
    for part in modules:
        part._recorder = parts
    try:
        yield parts
    finally:
        for part, recorder in zip(modules, before, strict=True):
            part._recorder = recorder


def record(module: Any, **parts: Tensor) -> None:
    """Add to the parts of a module's loss, if they are recorded."""
    recorder: Recorder | None = module._recorder
    if recorder is not None:
        for name, part in parts.items():
            recorder[name] = recorder[name] + part if name in recorder else part
