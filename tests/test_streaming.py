"""Models that several threads use at once are evaluated as by one, and left as they were."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer import ood
from lastlayer._streaming import frozen


class Rendezvous(nn.Module):
    """Lets every other thread come this far, or leave, in the middle of a forward pass."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(count)

    def forward(self, inputs: Tensor) -> Tensor:
        self.barrier.wait(timeout=60)
        return inputs


def network(*layers: nn.Module) -> ll.Network:
    head = ll.DiscriminativeClassification(4, 3, num_data=10)
    return ll.Network(nn.Sequential(*layers), head)


def test_scores_in_several_threads_are_those_of_one_and_leave_the_model_in_training_mode(
    generator: torch.Generator,
) -> None:
    count = 4
    first, norm, last = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 4).eval()
    plain = network(first, norm, nn.Dropout(0.5), last)
    meet = [Rendezvous(count), Rendezvous(count)]
    threaded = network(first, meet[0], norm, nn.Dropout(0.5), meet[1], last)
    threaded.head = plain.head
    inputs = torch.randn(count, 50, 2, generator=generator)
    expected = torch.stack([ood.scores(plain, part, progress=False) for part in inputs])
    before = {name: buffer.clone() for name, buffer in plain.named_buffers()}
    modes = {name: module.training for name, module in threaded.named_modules()}
    with ThreadPoolExecutor(count) as threads:
        for batch_size in (50, 25):  # in steps and one after the other
            found = threads.map(
                lambda part, size=batch_size: ood.scores(
                    threaded, part, batch_size=size, progress=False
                ),
                inputs,
            )
            assert_close(torch.stack(list(found)), expected)
    assert {name: module.training for name, module in threaded.named_modules()} == modes
    for name, buffer in plain.named_buffers():
        assert_close(buffer, before[name], rtol=0, atol=0)


def test_a_model_is_put_back_when_the_last_thread_leaves_and_not_before() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with frozen(model):
            inside.set()
            leave.wait(timeout=60)

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(hold)
        inside.wait(timeout=60)
        with frozen(model):
            assert [module.training for module in model.modules()] == [False, False, False]
        assert [module.training for module in model.modules()] == [False, False, False]
        leave.set()
        other.result(timeout=60)
    assert [module.training for module in model.modules()] == [True, True, False]


def test_a_part_shared_with_another_model_is_put_back_too() -> None:
    shared = nn.Dropout()
    first, second = nn.Sequential(shared), nn.Sequential(shared, nn.Dropout())
    with frozen(first):
        with pytest.raises(RuntimeError, match="stop"), frozen(second):
            raise RuntimeError("stop")
        assert not shared.training
        assert second[1].training
    assert shared.training
