"""Several processes post-train as one that has all the data."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer._processes import Processes
from lastlayer.posttraining import choosing
from tests.helpers.processes import NUM_PROCESSES, made_once, run_together

COUNT = 61  # odd: parts are not equal
WIDTH = 5


def network(num_outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, WIDTH), nn.Tanh(), nn.Linear(WIDTH, num_outputs))


def examples(num_classes: int | None, count: int = COUNT, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 3, generator=generator)
    noise = 0.3 * torch.randn(count, 2, generator=generator)
    target = inputs[:, :2].sin() + noise
    if num_classes is None:
        return inputs, target + 100
    return inputs, (target.sum(-1) * 2).long().abs() % num_classes


def posttrained(head: Any, data: Any, **options: Any) -> ll.Network:
    outputs = 2 if head in ("regression", "heteroscedastic", "student_t") else 3
    return ll.posttrain(network(outputs), data, head, progress=False, **options)


def data_of(head: str, **options: Any) -> tuple[Tensor, Tensor]:
    real = head in ("regression", "heteroscedastic", "student_t")
    return examples(None if real else 3, **options)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "regression": ("regression", {}),
    "regression, dense noise": ("regression", {"noise": "dense", "row_covariance": "noise"}),
    "discriminative": ("discriminative", {}),
    "discriminative, given prior": ("discriminative", {"prior": ll.Prior(), "bound": "jensen"}),
    "discriminative, descent": ("discriminative", {"prior": ll.Prior(), "max_memory_bytes": 1000}),
    "generative": ("generative", {}),
    "heteroscedastic": ("heteroscedastic", {}),
    "student_t": ("student_t", {}),
}


def work(rank: int, folder: Path) -> None:
    choosing.MAX_EXAMPLES = 50  # so that some are left out
    found: dict[str, Any] = {}
    for name, (head, options) in CASES.items():
        model = posttrained(head, data_of(head), distributed=True, **options)
        found[name] = (model.head.state_dict(), model.head.num_data)
    data = data_of("discriminative")
    own = DataLoader(TensorDataset(*(part[rank::NUM_PROCESSES] for part in data)), batch_size=7)
    found["loader"] = posttrained("discriminative", own, distributed=True).head.state_dict()
    unseen = data_of("discriminative", count=31, seed=2)
    model = posttrained("discriminative", data, validation=unseen, distributed=True)
    found["validation"] = model.head.state_dict()
    torch.save(found, folder / str(rank))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = made_once(tmp_path_factory, "posttrained", partial(run_together, work))
    return [torch.load(folder / str(rank), weights_only=True) for rank in range(NUM_PROCESSES)]


@pytest.fixture(autouse=True)
def _some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MAX_EXAMPLES", 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_processes_with_parts_end_with_the_head_of_one_with_all(name: str, together: Any) -> None:
    head, options = CASES[name]
    expected = posttrained(head, data_of(head), **options)
    for found in together:
        state, num_data = found[name]
        assert num_data == COUNT
        assert_close(state, expected.head.state_dict(), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_loaders_are_parts_and_validation_data_are_shared_too(together: Any) -> None:
    data = data_of("discriminative")
    unseen = data_of("discriminative", count=31, seed=2)
    expected = {
        "loader": posttrained("discriminative", data),
        "validation": posttrained("discriminative", data, validation=unseen),
    }
    for found in together:
        for name, model in expected.items():
            state = model.head.state_dict()
            for values in (state, found[name]):
                values.pop("initial_digest", None)  # of random numbers, of which loaders take some
            assert_close(found[name], state, rtol=1e-6, atol=1e-8)


def test_positions_are_those_of_rows_dealt_out_in_turn() -> None:
    counts = [3, 1, 4]
    dealt = [(row, rank) for row in range(4) for rank in range(3) if row < counts[rank]]
    for rank, count in enumerate(counts):
        processes = Processes.of(False, None)
        processes.rank = rank
        vars(processes)["each"] = lambda _: counts
        expected = [at for at, (_, owner) in enumerate(dealt) if owner == rank]
        assert processes.positions(count).tolist() == expected


def test_one_process_is_told_how_to_be_several() -> None:
    with pytest.raises(ValueError, match="start the program with torchrun"):
        posttrained("regression", data_of("regression"), distributed=True)
