"""Built-in covariances, and two that a user might bring, pass one conformance suite."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.covariances import COVARIANCES, make_covariance
from lastlayer.covariances._triangular import Triangular
from tests.helpers.conformance import CHECKS
from tests.helpers.memory import largest_tensor
from tests.helpers.reference import dense_covariance, randomize


class Isotropic(ll.Covariance):
    """S_k = v_k I: all a covariance must define is its quadratic."""

    def __init__(self, num_outputs: int, num_features: int) -> None:
        super().__init__(num_outputs, num_features)
        self.log_variance = nn.Parameter(torch.zeros(num_outputs))

    def quadratic(self, features: Tensor) -> Tensor:
        return features.square().sum(-1, keepdim=True) * self.log_variance.exp()


class Equicorrelated(ll.Covariance):
    """S_k = v_k I + u_k 11ᵀ, with a faster diagonal and log-determinant of its own."""

    def __init__(self, num_outputs: int, num_features: int) -> None:
        super().__init__(num_outputs, num_features)
        self.log_variance = nn.Parameter(torch.zeros(num_outputs))
        self.log_common = nn.Parameter(torch.zeros(num_outputs))

    def quadratic(self, features: Tensor) -> Tensor:
        squares = features.square().sum(-1, keepdim=True) * self.log_variance.exp()
        return squares + features.sum(-1, keepdim=True).square() * self.log_common.exp()

    def diagonal(self) -> Tensor:
        total = self.log_variance.exp() + self.log_common.exp()
        return total.unsqueeze(-1).expand(-1, self.num_features)

    def logdet(self) -> Tensor:
        ratio = (self.log_common - self.log_variance).exp()
        return self.num_features * self.log_variance + (self.num_features * ratio).log1p()


MAKES: dict[str, Callable[[int, int], ll.Covariance]] = {
    **COVARIANCES,
    "low_rank_full": partial(ll.LowRank, rank=5),
    "low_rank_one": partial(ll.LowRank, rank=1),
    "user_minimal": Isotropic,
    "user_faster": Equicorrelated,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MAKES)
def test_conformance(name: str, check: Callable[..., None], generator: torch.Generator) -> None:
    check(MAKES[name], generator)


@pytest.mark.parametrize(("num_points", "num_features"), [(64, 1000), (2000, 64)])
@pytest.mark.parametrize("name", COVARIANCES)
def test_pairs_never_take_the_square_of_the_features_per_point(
    name: str, num_points: int, num_features: int
) -> None:
    covariance = COVARIANCES[name](2, num_features, dtype=torch.float32)
    covariance.set_isotropic(1.0)
    left, right = (torch.ones(num_points, num_features, dtype=torch.float32) for _ in range(2))
    block = Triangular.BLOCK * num_features  # of rows of the triangular factors
    bound = 2 * max(num_points * num_features, num_points**2, block)
    assert largest_tensor(lambda: covariance.bilinear(left, right)) <= bound


def test_a_covariance_of_a_users_own_is_recovered_in_parts(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    covariance = Equicorrelated(3, 10)
    randomize(covariance, generator)
    whole = covariance.dense()
    monkeypatch.setattr("lastlayer.covariances._base.MOST_NUMBERS", 310)
    torch.testing.assert_close(covariance.dense(), whole)
    assert largest_tensor(covariance.dense) <= 310


@pytest.mark.parametrize("name", MAKES)
def test_autocast_rounds_pairs_no_more_than_half_precision_does(
    name: str, generator: torch.Generator
) -> None:
    covariance = MAKES[name](3, 5).float()
    covariance.set_isotropic(0.3)
    randomize(covariance, generator)
    features = torch.randn(4, 5, generator=generator).float()
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pairs = covariance.bilinear(features, features)
        exact = covariance.bilinear(features, features)
    assert pairs.dtype == torch.float32
    tolerance = 12 * torch.finfo(torch.bfloat16).eps / 2 * float(exact.abs().max())
    torch.testing.assert_close(pairs, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("size", [1, 5, 128, 130, 300])
def test_triangular_blocks_multiply_like_the_whole_matrix(
    size: int, generator: torch.Generator
) -> None:
    factor = Triangular(2, size)
    factor.set_isotropic(0.5)
    randomize(factor, generator)
    whole = factor.dense()
    torch.testing.assert_close(whole, whole.triu())
    vectors = torch.randn(3, 4, size, generator=generator)
    expected = torch.einsum("kij,abj->abki", whole, vectors)
    torch.testing.assert_close(factor.products(vectors), expected)
    quadratic, norm = factor.squares(vectors)
    torch.testing.assert_close(quadratic, expected.square().sum(-1))
    torch.testing.assert_close(norm, whole.square().sum())
    torch.testing.assert_close(factor.squared_norm(), whole.square().sum((-2, -1)))
    copy = Triangular(2, size)
    copy.assign(whole)
    torch.testing.assert_close(copy.dense(), whole)


def test_triangular_stores_little_more_than_the_triangle() -> None:
    factor = Triangular(10, 640, device="meta")
    stored = sum(parameter.numel() for parameter in factor.parameters())
    assert stored < 1.21 * 10 * 640 * 641 / 2


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_low_rank_determinant_survives_large_parallel_factors_in_single_precision(
    scale: float, generator: torch.Generator
) -> None:
    exact = ll.LowRank(2, 40, rank=3)
    exact.set_isotropic(1.0)
    direction = torch.randn(2, 1, 40, generator=generator)
    with torch.no_grad():
        spread = 1e-3 * torch.randn(2, 3, 40, generator=generator)
        exact.factor.copy_((scale * (direction + spread)).float())
    expected = torch.logdet(dense_covariance(exact))
    single = ll.LowRank(2, 40, rank=3, dtype=torch.float32)
    single.load_state_dict(exact.state_dict())
    torch.testing.assert_close(single.logdet().double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rank", [3, 9])
def test_low_rank_quadratics_are_those_of_the_matrices(
    rank: int, generator: torch.Generator
) -> None:
    covariance = ll.LowRank(4, 12, rank=rank)
    with torch.no_grad():
        covariance.factor.copy_(torch.randn(4, rank, 12, generator=generator))
        covariance.log_variance.copy_(torch.randn(4, 12, generator=generator))
    features = torch.randn(7, 12, generator=generator)
    expected = torch.einsum("bi,kij,bj->bk", features, covariance.dense(), features)
    torch.testing.assert_close(covariance.quadratic(features), expected)


def test_low_rank_holds_rank_one_precisions_exactly(generator: torch.Generator) -> None:
    direction = torch.randn(2, 1, 12, generator=generator)
    target = torch.eye(12) * 0.3 + direction.mT @ direction
    covariance = ll.LowRank(2, 12, rank=2)
    covariance.project(torch.linalg.inv(target))
    torch.testing.assert_close(covariance.dense(), target, rtol=1e-6, atol=1e-6)


def test_low_rank_projection_does_not_overshoot() -> None:
    """Of this matrix the steps grew without bound, until the variances were infinite."""
    precision = torch.tensor(
        [
            [1.2, 0.0, -0.2, 0.1, -0.1, 0.2],
            [0.0, 1.9, -0.2, 0.9, -0.1, 0.0],
            [-0.2, -0.2, 6.1, -2.0, -8.5, 0.8],
            [0.1, 0.9, -2.0, 43.9, -7.8, -4.0],
            [-0.1, -0.1, -8.5, -7.8, 101.7, -30.9],
            [0.2, 0.0, 0.8, -4.0, -30.9, 20.7],
        ]
    )
    covariance = ll.LowRank(1, 6, rank=3)
    covariance.project(precision.unsqueeze(0))
    diagonal = precision.diagonal().reciprocal().diag()

    def divergence(matrix: torch.Tensor) -> torch.Tensor:
        return (precision @ matrix).trace() - torch.logdet(matrix)

    exact = divergence(torch.linalg.inv(precision))
    best = divergence(covariance.dense().squeeze(0))
    assert exact < best < exact + 0.25 * (divergence(diagonal) - exact)


@pytest.mark.parametrize(
    ("covariance", "error", "message"),
    [
        ("densee", ValueError, "did you mean 'dense'"),
        ("spherical", ValueError, "must be one of"),
        (partial(ll.LowRank, rank=9), ValueError, "at most num_features=5"),
        (partial(ll.LowRank, rank=0), ValueError, "rank must be an integer of at least 1"),
        (lambda outputs, features: nn.Linear(features, outputs), TypeError, "Covariance"),
        (lambda outputs, features: ll.Diagonal(features, outputs), ValueError, "must be made for"),
    ],
)
def test_a_wrong_covariance_is_refused(
    covariance: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_covariance(covariance, 3, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", COVARIANCES)
def test_projection_from_examples_is_that_of_their_precisions(
    name: str, generator: torch.Generator
) -> None:
    """The same divergence, after as many steps as it takes."""
    features = torch.randn(30, 5, generator=generator) * torch.logspace(-1, 0.5, 5)
    weights, ridge = torch.rand(30, 3, generator=generator), torch.logspace(-1, 1, 5)
    grams = torch.einsum("tk,ti,tj->kij", weights, features, features)
    precision = grams + ridge.diag()
    torch.manual_seed(0)
    exact, stepwise = (make_covariance(name, 3, 5) for _ in range(2))
    exact.project(precision)
    for _ in range(100):
        stepwise.project_examples(features, weights, ridge)

    def divergence(covariance: ll.Covariance) -> Tensor:
        return 0.5 * ((covariance.dense() * precision).sum() - covariance.logdet().sum())

    torch.testing.assert_close(divergence(stepwise), divergence(exact), rtol=0, atol=1e-6)
