"""A head whose parameters are spread over two processes is fitted like one that is whole."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.testing import assert_close

from lastlayer.covariances._triangular import Triangular
from tests.helpers.cases import BLOCK, CASES, make_examples
from tests.helpers.processes import NUM_PROCESSES, made_once, run_together

NAMES = [
    "regression-shared-diagonal-identity",
    "regression-dense-dense-identity",
    "regression-low_rank-diagonal-noise",
    "regression-shared-dense-noise",
    "discriminative-dense-jensen-diagonal",
    "discriminative-diagonal-tilted-none",
    "generative-diagonal-diagonal",
    "generative-diagonal-dense",
]


def fit_features(head: Any, features: Tensor, target: Tensor) -> None:
    head.fit_features(features, target, max_passes=5)


def fit_exact(head: Any, features: Tensor, target: Tensor) -> None:
    head.fit_exact(features, target)


def update(head: Any, features: Tensor, target: Tensor) -> None:
    head.update(features[:5], target[:5])
    head.update(features[5:], target[5:], forgetting=0.9)


def prepare(head: Any, features: Tensor, target: Tensor) -> None:
    head.prepare([(100 * target if target.is_floating_point() else target, None)], **PREPARE)


PREPARE: dict[str, Any] = {"new": True, "total": torch.clone}
WAYS: list[Callable[..., None]] = [fit_features, fit_exact, update, prepare]


def applies(way: Callable[..., None], name: str) -> bool:
    if way in (fit_exact, update) and name.startswith("discriminative"):
        return False
    return way is not update or "low_rank" not in name


def run(name: str, way: Callable[..., None], sharding: str) -> dict[str, Any]:
    """Fit a head, sharded by itself, as part of a network, or not at all."""
    torch.manual_seed(0)
    head: Any = CASES[name]()
    network = nn.Sequential(nn.Identity(), head)
    if sharding != "none":
        mesh = init_device_mesh("cpu", (NUM_PROCESSES,))
        fully_shard(head if sharding == "head" else network, mesh=mesh)
    features, target = make_examples(head, 12)
    fresh = [head.fresh]
    network(features)  # which may leave parameters gathered
    fresh.append(head.fresh)
    torch.manual_seed(1)
    way(head, features, target)
    fresh.append(head.fresh)
    prediction = torch.cat([part.detach().flatten() for part in vars(network(features)).values()])
    state = {
        key: value.full_tensor() if isinstance(value, DTensor) else value
        for key, value in head.state_dict().items()
    }
    return {"fresh": fresh, "prediction": prediction, "state": state}


def work(rank: int, folder: Path) -> None:
    """Run every case on every process, and save what each has."""
    Triangular.BLOCK = BLOCK
    results = {
        f"{name} {way.__name__} {sharding}": run(name, way, sharding)
        for name in NAMES
        for way in WAYS
        for sharding in ("head", "network")
        if applies(way, name)
    }
    torch.save(results, folder / f"results{rank}")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes has, launched once for all cases."""
    folder = made_once(tmp_path_factory, "sharded_heads", partial(run_together, work))
    return [torch.load(folder / f"results{rank}", weights_only=True) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["head", "network"])
@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name in NAMES for way in WAYS if applies(way, name)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_sharded_head_is_fitted_like_a_whole_one_and_all_processes_agree(
    name: str,
    way: Callable[..., None],
    sharding: str,
    results: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Triangular, "BLOCK", BLOCK)
    expected = run(name, way, "none")
    first, second = (result[f"{name} {way.__name__} {sharding}"] for result in results)
    assert first["fresh"] == second["fresh"] == expected["fresh"]
    assert_close(first["state"], expected["state"])
    assert_close(second["state"], expected["state"])
    assert_close(first["prediction"], expected["prediction"])
