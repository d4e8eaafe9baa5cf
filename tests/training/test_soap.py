"""The optimiser that turns gradients before it scales them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll

Loss = Callable[[Tensor], Tensor]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def minimise(optimizer: Any, start: Tensor, loss: Loss, steps: int = 60, **options: Any) -> Tensor:
    """Where the optimiser is after so many steps."""
    parameter = nn.Parameter(start.clone())
    made = optimizer([parameter], lr=0.01, weight_decay=0.1, **options)
    for _ in range(steps):
        made.zero_grad()
        loss(parameter).backward()
        made.step()
    return parameter.detach()


def valley(rows: int, columns: int) -> Loss:
    """A quartic of a matrix that is far steeper in some directions, none of them an axis."""
    left, right = (torch.linalg.qr(randn(n, n, seed=n)).Q for n in (rows, columns))
    scale = torch.logspace(-1.5, 0.0, rows, dtype=torch.float64)

    def loss(matrix: Tensor) -> Tensor:
        error = scale.unsqueeze(1) * (left @ (matrix - 1) @ right)
        return (error.square() + error.pow(4) / 4).sum()

    return loss


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 7), (7, 1), (7, 1, 1)])
def test_vectors_are_trained_as_adamw_does(shape: tuple[int, ...]) -> None:
    target = randn(*shape, seed=1)

    def loss(vector: Tensor) -> Tensor:
        return (vector - target).square().sum().add(1).log()

    betas = (0.9, 0.95)
    actual = minimise(ll.SOAP, randn(*shape), loss, betas=betas)
    expected = minimise(torch.optim.AdamW, randn(*shape), loss, betas=betas)
    assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_the_first_step_is_orthogonal() -> None:
    """Without means over steps, GGᵀ and GᵀG turn G = USVᵀ into S, whose signs are UVᵀ."""
    start, options = randn(5, 3), {"betas": (0.0, 0.0), "memory": 0.0}
    slope = randn(5, 3, seed=1)
    after = minimise(ll.SOAP, start, lambda w: (w * slope).sum(), steps=1, every=1, **options)
    u, _, v = torch.linalg.svd(slope, full_matrices=False)
    turned = ((1 - 0.01 * 0.1) * start - after) / 0.01
    assert_close(u.mT @ turned @ v.mT, torch.eye(3).double(), rtol=1e-7, atol=1e-7)


def test_it_does_not_matter_how_the_space_is_turned() -> None:
    """Adam is bound to the axes; here, turned weights are the weights turned."""
    start, loss = randn(5, 5), valley(5, 5)
    left, right = (torch.linalg.qr(randn(5, 5, seed=seed)).Q for seed in (3, 4))

    def elsewhere(matrix: Tensor) -> Tensor:
        return loss(left.mT @ matrix @ right.mT)

    def difference(optimizer: Any, **options: Any) -> float:
        here = minimise(optimizer, start, loss, **options)
        there = minimise(optimizer, left @ start @ right, elsewhere, **options)
        return (left.mT @ there @ right.mT - here).abs().max().item()

    assert difference(ll.SOAP, every=1, eps=1e-3) < 1e-6
    assert difference(torch.optim.AdamW) > 1e-2


def test_every_step_is_that_of_a_plain_loop() -> None:
    """Written out once more for one matrix, over several bases, with options of its own."""
    start, loss = randn(3, 5), valley(3, 5)
    options = {"betas": (0.8, 0.9), "memory": 0.7, "every": 4, "eps": 1e-6}
    weight = start.clone().requires_grad_()
    mean = square = torch.zeros(3, 5, dtype=torch.float64)
    rows, columns = torch.zeros(3, 3).double(), torch.zeros(5, 5).double()
    left, right = torch.eye(3).double(), torch.eye(5).double()
    for step in range(1, 15):
        (gradient,) = torch.autograd.grad(loss(weight), weight)
        with torch.no_grad():
            mean = 0.8 * mean + 0.2 * gradient
            rows = 0.7 * rows + 0.3 * gradient @ gradient.T
            columns = 0.7 * columns + 0.3 * gradient.T @ gradient
            if step in (4, 8, 12):
                turned = torch.linalg.eigh(rows)[1], torch.linalg.eigh(columns)[1]
                variances = torch.kron(left, right) @ square.flatten().diag()
                variances = variances @ torch.kron(left, right).T  # as if uncorrelated before
                left, right = turned
                basis = torch.kron(left, right)
                square = (basis.T @ variances @ basis).diagonal().reshape(3, 5)
            square = 0.9 * square + 0.1 * (left.T @ gradient @ right) ** 2
            ratio = (left.T @ mean @ right) / (1 - 0.8**step)
            ratio = ratio / ((square / (1 - 0.9**step)).sqrt() + 1e-6)
            weight = (1 - 0.01 * 0.1) * weight - 0.01 * left @ ratio @ right.T
        weight.requires_grad_()
    found = minimise(ll.SOAP, start, loss, steps=14, **options)
    assert_close(found, weight.detach(), rtol=1e-8, atol=1e-8)


def test_no_step_is_longer_than_adams_may_be() -> None:
    """A new basis finds entries that were zero in the old one, as units come to life."""
    weight = nn.Parameter(torch.zeros(4, 6).double())
    optimizer = ll.SOAP([weight], lr=1.0, weight_decay=0.0)
    for step in range(1, 61):
        before = weight.detach().clone()
        dead = step % 20 == 0
        weight.grad = randn(4, 6, seed=step) + 1
        weight.grad[:, 5 if not dead else slice(None)] = 0.0
        optimizer.step()
        assert (weight - before).norm() < 2 * 24**0.5


def test_a_valley_takes_fewer_steps() -> None:
    loss = valley(8, 8)
    left = {
        optimizer: loss(minimise(optimizer, randn(8, 8), loss, steps=1500))
        for optimizer in (ll.SOAP, torch.optim.AdamW)
    }
    assert left[ll.SOAP] < 0.3 * left[torch.optim.AdamW], left


def test_stacked_models_share_nothing_not_even_failures() -> None:
    starts, loss = randn(3, 4, 6), valley(4, 6)
    apart = torch.stack([minimise(ll.SOAP, start, loss) for start in starts])

    def all_of_them(stack: Tensor) -> Tensor:
        return torch.stack([loss(matrix) for matrix in stack]).sum()

    def together(starts: Tensor) -> Tensor:
        stack = nn.Parameter(starts.clone())
        optimizer = ll.SOAP([{"params": [stack], "stacked": True}], lr=0.01, weight_decay=0.1)
        for _ in range(60):
            optimizer.zero_grad()
            all_of_them(stack).backward()
            optimizer.step()
        return stack.detach()

    assert_close(together(starts), apart, rtol=1e-9, atol=1e-9)
    starts[1, 2, 3] = float("nan")
    found = together(starts)
    assert found[1].isnan().any()
    assert_close(found[::2], apart[::2], rtol=1e-9, atol=1e-9)


def test_it_goes_on_from_a_saved_state() -> None:
    loss = valley(4, 6)
    expected = minimise(ll.SOAP, randn(4, 6), loss)
    parameter = nn.Parameter(randn(4, 6))
    optimizer = ll.SOAP([parameter], lr=0.01, weight_decay=0.1)
    for _ in range(4):
        for _ in range(15):
            optimizer.zero_grad()
            assert optimizer.step(lambda: _backward(loss(parameter))) > 0
        state = copy.deepcopy(optimizer.state_dict())
        optimizer = ll.SOAP([parameter])
        optimizer.load_state_dict(state)
    assert_close(parameter.detach(), expected, rtol=0.0, atol=0.0)


def _backward(loss: Tensor) -> Tensor:
    loss.backward()
    return loss


def test_large_sides_keep_their_basis() -> None:
    kernel = nn.Parameter(randn(4, 3, 3, 3))
    empty = nn.Parameter(randn(0, 3))
    optimizer = ll.SOAP([kernel, empty], max_size=10)
    (kernel.square().sum() + empty.sum()).backward()
    optimizer.step()
    assert optimizer.state[kernel]["left"].shape == (1, 4, 4)
    assert "right" not in optimizer.state[kernel]
    assert kernel.isfinite().all()


def test_sparse_and_complex_parameters_are_refused() -> None:
    sparse = nn.Embedding(3, 2, sparse=True)
    sparse(torch.tensor([1])).sum().backward()
    number = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
    number.abs().sum().backward()
    for parameter in (sparse.weight, number):
        with pytest.raises(TypeError, match="dense gradients of real parameters"):
            ll.SOAP([parameter]).step()


@pytest.mark.parametrize(
    "options",
    [{"lr": 0.0}, {"lr": float("nan")}, {"every": 0}, {"max_size": 0}, {"betas": (1.0, 0.9)},
     {"betas": (0.9, -0.1)}, {"memory": float("nan")}, {"eps": 0.0}, {"weight_decay": -1.0}],
)  # fmt: skip
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ll.SOAP([nn.Parameter(randn(2))], **options)
