"""Two processes with half a batch each train exactly like one process with the whole batch."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

import lastlayer as ll
from lastlayer.covariances._triangular import Triangular
from tests.helpers.cases import (
    BLOCK,
    CASES,
    NUM_FEATURES,
    PREDICTIVES,
    gradients,
    make_examples,
    make_head,
)
from tests.helpers.processes import NUM_PROCESSES, made_once, run_together

BATCH = 8


class Model(nn.Module):
    """A backbone and a head, with the head's two calls."""

    def __init__(self, head: ll.Head) -> None:
        super().__init__()
        self.backbone = nn.Linear(NUM_FEATURES, NUM_FEATURES)
        nn.init.eye_(self.backbone.weight)
        nn.init.zeros_(self.backbone.bias)
        self.head = head

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
        return self.head(self.backbone(inputs), target)


def replicated(model: Model, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model)


def replicated_finding_unused(model: Model, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model, find_unused_parameters=True)


def sharded(model: Model, mesh: DeviceMesh) -> nn.Module:
    fully_shard(model.backbone, mesh=mesh)
    fully_shard(model.head, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train_on_loss(model: nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
    return model(inputs, target)


def train_on_predictive(model: nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
    return -model(inputs).log_prob(target).mean()


WAYS = [replicated, replicated_finding_unused, sharded]
OBJECTIVES: dict[Callable[..., Tensor], list[str]] = {
    train_on_loss: list(CASES),
    train_on_predictive: PREDICTIVES,
}


def train(
    model: nn.Module, objective: Callable[..., Tensor], data: list[Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Take two steps; the second loss, and the parameters after them, whole."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = objective(model, *data)
        loss.backward()
        optimizer.step()
    return loss.detach(), {
        name.removeprefix("module."): value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }


def work(rank: int, folder: Path) -> None:
    """Train every case on one process's part of the batch; the first process saves the results."""
    Triangular.BLOCK = BLOCK
    mesh = init_device_mesh("cpu", (NUM_PROCESSES,))
    results: dict[tuple[str, str, str], Any] = {}
    for objective, names in OBJECTIVES.items():
        for name in names:
            for way in WAYS:
                model = Model(make_head(name))
                data = [
                    part.chunk(NUM_PROCESSES)[rank] for part in make_examples(model.head, BATCH)
                ]
                parallel = way(model, mesh)
                loss, state = train(parallel, objective, data)
                dist.all_reduce(loss)
                slopes = {} if way is sharded else gradients(model)
                key = (objective.__name__, name, way.__name__)
                results[key] = (loss / NUM_PROCESSES, slopes, state)
    if rank == 0:
        torch.save(results, folder / "results")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Any]:
    """What two processes compute, launched once for all cases."""
    folder = made_once(tmp_path_factory, "distributed", partial(run_together, work))
    return torch.load(folder / "results", weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("objective", "name"),
    [(objective, name) for objective, names in OBJECTIVES.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_two_processes_train_like_one_on_the_whole_batch(
    objective: Callable[..., Tensor],
    name: str,
    way: Callable[..., nn.Module],
    results: dict[tuple[str, str, str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Triangular, "BLOCK", BLOCK)
    model = Model(make_head(name))
    loss, state = train(model, objective, list(make_examples(model.head, BATCH)))
    actual_loss, actual_gradients, actual_state = results[objective.__name__, name, way.__name__]
    assert_close(actual_loss, loss)
    assert_close(actual_state, state)
    if way is not sharded:  # sharded gradients show in the step alone
        assert_close(actual_gradients, gradients(model))
