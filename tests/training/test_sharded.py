"""A network sharded by FSDP2 over two processes trains, predicts and is saved as if it were not."""

import functools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lastlayer as ll
from tests.helpers.networks import classes, classification, curve, regression
from tests.helpers.processes import NUM_PROCESSES, made_once, run_together

pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 7,
    "learning_rate": 0.01,
    "schedule": "cosine",
    "clip": 0.5,
    "progress": False,
}


def variational() -> ll.Network:
    """Features that are variational, with next to no variance, so that their draws are known."""
    model = ll.make_variational(regression(), initial_stddev=1e-12)
    assert isinstance(model, ll.Network)
    model.num_prediction_samples = 2
    return model


NETWORKS: dict[str, Callable[[], ll.Network]] = {
    "regression": regression,
    "discriminative": classification,
    "generative": functools.partial(classification, generative=True),
    "variational": variational,
}
WAYS = {
    "head": lambda network: [network.head],
    "backbone": lambda network: [network.backbone],
    "whole": lambda network: [network],
    "all": lambda network: [network.backbone, network.head, network],
}


def data(name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    return curve(seed) if name in ("regression", "variational") else classes(seed)


class Interrupting(nn.Module):
    """Raises at a step, on all processes."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def forward(self, inputs: Tensor) -> Tensor:
        self.left -= self.training
        if self.left < 0:
            raise InterruptedError
        return inputs


def results(model: ll.Network, name: str, checkpoint: Path, rank: int, size: int) -> Any:
    """The loss, the history, predictions and the saved state; checkpoints are taken up."""
    inputs, target = data(name)
    batch = (inputs[:36], target[:36])
    model.eval()
    with torch.no_grad():
        loss = model(*(part.chunk(size)[rank] for part in batch)) / size
    if size > 1:
        dist.all_reduce(loss)
    history = ll.fit(model, (inputs, target), data(name, 1), checkpoint=checkpoint, **OPTIONS)
    again = ll.fit(model, (inputs, target), data(name, 1), checkpoint=checkpoint, **OPTIONS)
    assert again == history
    with torch.no_grad():
        log_prob = model.eval()(inputs).log_prob(target)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return loss, list(history), log_prob, get_model_state_dict(model, options=options)


def interrupted(model: ll.Network, checkpoint: Path) -> Any:
    """Training that is interrupted, and goes on with another model of the same sharding."""
    options = OPTIONS | {"checkpoint": checkpoint}
    history = ll.fit(model, curve(), curve(1), **options)
    options_of_state = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return list(history), get_model_state_dict(model, options=options_of_state)


def stopped(steps: int) -> ll.Network:
    model = regression()
    model.backbone.append(Interrupting(steps))  # type: ignore[operator]
    return model


class Stream(IterableDataset[Any]):
    """Examples whose number is not known."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        return zip(*curve(count=self.count), strict=True)


def message(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    try:
        function(*arguments, **options)
    except (ValueError, TypeError) as error:
        return str(error)
    return "no error"


def refusals(rank: int, shard: Callable[[ll.Network], ll.Network]) -> dict[str, str]:
    """What every process says of what cannot be trained."""
    count = 16 + 16 * rank
    options = OPTIONS | {"batch_size": 8}
    forms = {
        "tensors": curve(count=count),
        "dataset": TensorDataset(*curve(count=count)),
        "batches": [curve(count=8)] * (2 + rank),
        "stream": DataLoader(Stream(count), batch_size=8),
    }
    said = {name: message(ll.fit, regression(), form, **options) for name, form in forms.items()}
    held_out = [curve(count=8)] * (2 + rank)
    said["validation"] = message(ll.fit, shard(regression()), curve(), held_out, **options)
    stream = DataLoader(Stream(count), batch_size=8)
    said["held-out stream"] = message(ll.fit, shard(regression()), curve(), stream, **options)
    said["soap"] = message(ll.fit, shard(regression()), curve(), optimizer=ll.SOAP, **options)
    said["float16"] = message(ll.fit, shard(regression()), curve(), precision="float16", **options)
    said["many"] = message(ll.fit_many, [shard(regression())], curve(), **options)
    return said


def work(rank: int, folder: Path) -> None:
    """Train every case on one process; the first saves the results, and each what it refused."""
    mesh = init_device_mesh("cpu", (NUM_PROCESSES,))

    def sharded(model: ll.Network, way: str = "whole") -> ll.Network:
        for module in WAYS[way](model):
            fully_shard(module, mesh=mesh)
        return model

    found: dict[Any, Any] = {"refused": refusals(rank, sharded)}
    torch.save(found["refused"], folder / f"refused{rank}")
    for way in WAYS:
        for name, make in NETWORKS.items():
            checkpoint = folder / f"{way}-{name}"
            model = sharded(make(), way)
            found[way, name] = results(model, name, checkpoint, rank, NUM_PROCESSES)
    checkpoint = folder / "interrupted"
    try:
        interrupted(sharded(stopped(15)), checkpoint)
    except InterruptedError:
        found["interrupted"] = interrupted(sharded(stopped(1000)), checkpoint)
    if rank == 0:
        torch.save(found, folder / "results")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[Any, Any], list[Any]]:
    """What two processes compute, launched once for all cases."""
    folder = made_once(tmp_path_factory, "sharded_training", partial(run_together, work))
    refused = [torch.load(folder / f"refused{rank}") for rank in range(NUM_PROCESSES)]
    return torch.load(folder / "results", weights_only=True), refused


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_sharded_network_equals_one_process(
    name: str, way: str, together: Any, tmp_path: Path
) -> None:
    loss, rows, log_prob, state = results(NETWORKS[name](), name, tmp_path, 0, 1)
    actual_loss, actual_rows, actual_log_prob, actual_state = together[0][way, name]
    assert_close(actual_loss, loss)
    for row, expected in zip(actual_rows, rows, strict=True):
        assert row == pytest.approx(expected, rel=1e-7, abs=1e-9)
    assert_close(actual_log_prob, log_prob)
    assert_close(actual_state, state)


def test_a_sharded_network_goes_on_from_a_checkpoint(together: Any, tmp_path: Path) -> None:
    rows, state = interrupted(stopped(1000), tmp_path)
    actual_rows, actual_state = together[0]["interrupted"]
    assert len(actual_rows) == len(rows)
    assert_close(actual_state, state)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("tensors", "as many training examples each, got [16, 32]"),
        ("dataset", "as many training examples each, got [16, 32]"),
        ("batches", "as many training batches each, got [2, 3]"),
        ("stream", "after 2 batches the data of processes [0] ended"),
        ("validation", "as many validation batches each, got [2, 3]"),
        ("held-out stream", "after 2 batches the data of processes [0] ended"),
        ("soap", "SOAP needs whole parameters"),
        ("float16", "not in float16"),
        ("many", "train a sharded one with fit"),
    ],
)
def test_what_cannot_be_trained_together_is_refused_by_every_process(
    case: str, expected: str, together: Any
) -> None:
    for refused in together[1]:
        assert expected in refused[case]
