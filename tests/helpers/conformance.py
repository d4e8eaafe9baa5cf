"""What every covariance must satisfy, built in or brought along.

Each check recovers S_k from `quadratic` alone and compares another product with it. A covariance
of your own passes if `check_covariance(make)` does, where `make` builds it for K outputs and N
features.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.func import functional_call

from lastlayer import Covariance
from tests.helpers.reference import (
    assert_within_standard_errors,
    dense_covariance,
    randomize,
    sampled,
)

Make = Callable[[int, int], Covariance]
K, N = 3, 5


def made(make: Make, generator: torch.Generator) -> Covariance:
    covariance = make(K, N).double()
    covariance.set_isotropic(0.3)
    randomize(covariance, generator)
    return covariance


def quadratic_is_that_of_a_covariance(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    matrices = dense_covariance(covariance)
    assert torch.linalg.eigvalsh(matrices).min() > 0
    features = torch.randn(2, 7, N, generator=generator)
    expected = torch.einsum("abi,kij,abj->abk", features, matrices, features)
    torch.testing.assert_close(covariance.quadratic(features), expected)
    assert covariance.quadratic(features[0, 0]).shape == (K,)
    assert covariance.quadratic(features[:, :0]).shape == (2, 0, K)


def matrix_products_agree_with_the_quadratic(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    matrices = dense_covariance(covariance)
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(covariance.dense(), matrices)
    torch.testing.assert_close(covariance.diagonal(), diagonal)
    torch.testing.assert_close(covariance.trace(), diagonal.sum(-1))
    torch.testing.assert_close(covariance.logdet(), torch.logdet(matrices))
    torch.testing.assert_close(covariance.precision(), torch.linalg.inv(matrices))


def observed_terms_are_those_of_one_output_each(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    features = torch.randn(2, 7, N, generator=generator)
    output = torch.randint(K - 1, (2, 7), generator=generator)  # the last is never observed
    everything = covariance.quadratic_terms(features)
    terms = covariance.observed_terms(features, output)
    expected = everything.quadratic.gather(-1, output.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(terms, everything._replace(quadratic=expected))


def bilinear_is_that_of_the_covariance(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    matrices = dense_covariance(covariance)
    left = torch.randn(2, 1, 7, N, generator=generator)
    right = torch.randn(3, 4, N, generator=generator)
    expected = torch.einsum("auqi,kij,bpj->abkqp", left, matrices, right)
    torch.testing.assert_close(covariance.bilinear(left, right), expected)
    alone = covariance.bilinear(left[0, 0], right[1])
    torch.testing.assert_close(alone, expected[0, 1])
    eye = torch.eye(N)
    torch.testing.assert_close(covariance.bilinear(eye, eye), matrices)
    pairs = covariance.bilinear(left, left)
    torch.testing.assert_close(pairs, pairs.mT)
    squares = pairs.diagonal(dim1=-2, dim2=-1).mT
    torch.testing.assert_close(squares, covariance.quadratic(left))
    assert covariance.bilinear(left[..., :0, :], right).shape == (2, 3, K, 0, 4)
    assert covariance.bilinear(left[:0], right).shape == (0, 3, K, 7, 4)


def root_products_multiply_to_the_bilinear(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    features = torch.randn(2, 7, N, generator=generator)
    roots = covariance.root_products(features)
    assert roots.shape[:-1] == (2, 7, K)
    torch.testing.assert_close(_pairs(roots), covariance.bilinear(features, features))
    assert covariance.root_products(features[0, 0]).shape == roots[0, 0].shape
    assert covariance.root_products(features[:, :0]).shape == (2, 0, *roots.shape[2:])


def bilinear_and_roots_pass_gradcheck(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    names = [name for name, _ in covariance.named_parameters()]
    left = torch.randn(2, 3, N, generator=generator, requires_grad=True)
    right = torch.randn(2, N, generator=generator, requires_grad=True)

    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.covariance = covariance

        def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            roots = self.covariance.root_products(left)  # known up to a rotation only
            pairs = self.covariance.bilinear(left, left)
            return self.covariance.bilinear(left, right), roots.square().sum(-1), pairs

    def products(left: Tensor, right: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        state = {f"covariance.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(Products(), state, (left, right))

    parameters = [value.detach().clone().requires_grad_() for value in covariance.parameters()]
    assert torch.autograd.gradcheck(products, (left, right, *parameters))


@torch.no_grad()
def half_precision_keeps_its_digits_in_pairs(make: Make, generator: torch.Generator) -> None:
    features = torch.randn(2, 7, N, generator=generator)
    for dtype in (torch.bfloat16, torch.float16):
        narrow = made(make, generator).to(dtype)
        wide = make(K, N).double()
        wide.load_state_dict(narrow.state_dict())  # the same rounded numbers
        exact = wide.bilinear(features.to(dtype).double(), features.to(dtype).double())
        for value in (
            narrow.bilinear(features.to(dtype), features.to(dtype)),
            _pairs(narrow.root_products(features.to(dtype))),
        ):
            assert value.dtype == torch.float32
            # products of entries that are each rounded a few times
            size = float(exact.abs().max())
            error = float((value.double() - exact).abs().max())
            assert error < 12 * torch.finfo(dtype).eps / 2 * size


def _pairs(roots: Tensor) -> Tensor:
    return torch.einsum("aqkm,apkm->akqp", roots, roots)


def samples_have_the_covariance(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    matrices = dense_covariance(covariance)

    def outer(count: int) -> Tensor:
        draws = covariance.sample(count, generator)
        assert draws.shape == (count, K, N)
        return draws.unsqueeze(-1) * draws.unsqueeze(-2)

    with torch.no_grad():
        assert_within_standard_errors(matrices, *sampled(outer))


def marginal_density_is_that_of_explicit_normals(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    matrices = dense_covariance(covariance)
    features, mean = torch.randn(2, 4, N, generator=generator), torch.randn(K, N)
    noise = torch.rand(N, generator=generator) + 0.1
    expected = MultivariateNormal(mean, matrices + noise.diag()).log_prob(features.unsqueeze(-2))
    torch.testing.assert_close(covariance.marginal_log_density(features, mean, noise), expected)


def terms_taken_together_agree_with_those_taken_apart(
    make: Make, generator: torch.Generator
) -> None:
    covariance = made(make, generator)
    features, mean = torch.randn(2, 4, N, generator=generator), torch.randn(K, N)
    noise = torch.rand(N, generator=generator) + 0.1
    together = covariance.quadratic_terms(features)
    torch.testing.assert_close(together.quadratic, covariance.quadratic(features))
    torch.testing.assert_close(together.trace, covariance.trace().sum())
    torch.testing.assert_close(together.logdet, covariance.logdet().sum())
    marginal = covariance.marginal_terms(features, mean, noise)
    density = covariance.marginal_log_density(features, mean, noise)
    torch.testing.assert_close(marginal.log_density, density)
    torch.testing.assert_close(marginal.scaled_trace, (covariance.diagonal() / noise).sum(-1))
    torch.testing.assert_close(marginal.trace, covariance.trace().sum())
    torch.testing.assert_close(marginal.logdet, covariance.logdet().sum())


def gradients_agree_with_the_quadratic(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    parameters = list(covariance.parameters())
    features, mean = torch.randn(4, N, generator=generator), torch.randn(K, N)
    noise = torch.rand(N, generator=generator) + 0.1
    direction = torch.randn(K, generator=generator)

    def explicit() -> list[Tensor]:
        matrices = dense_covariance(covariance)
        normals = MultivariateNormal(mean, matrices + noise.diag())
        return [
            torch.einsum("bi,kij,bj->k", features, matrices, features),
            matrices.diagonal(dim1=-2, dim2=-1).sum(-1),
            torch.logdet(matrices),
            normals.log_prob(features.unsqueeze(-2)).sum(0),
        ]

    products = [
        covariance.quadratic(features).sum(0),
        covariance.trace(),
        covariance.logdet(),
        covariance.marginal_log_density(features, mean, noise).sum(0),
    ]
    for product, expected in zip(products, explicit(), strict=True):
        got = _gradients(product @ direction, parameters)
        want = _gradients(expected @ direction, parameters)
        for left, right in zip(got, want, strict=True):
            torch.testing.assert_close(left, right)


def _gradients(scalar: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    gradients = torch.autograd.grad(scalar, parameters, retain_graph=True, allow_unused=True)
    pairs = zip(gradients, parameters, strict=True)
    return [torch.zeros_like(p) if gradient is None else gradient for gradient, p in pairs]


def projection_is_a_minimum_of_the_divergence(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    root = torch.randn(K, N, 2 * N, generator=generator)
    precision = root @ root.mT + torch.eye(N)
    covariance.project(precision)

    def divergence() -> Tensor:
        matrices = dense_covariance(covariance)
        return 0.5 * ((matrices * precision).sum() - torch.logdet(matrices).sum())

    best = divergence()
    for gradient in torch.autograd.grad(best, list(covariance.parameters())):
        assert gradient.abs().max() < 1e-5
    state = {name: value.clone() for name, value in covariance.state_dict().items()}
    for _ in range(20):  # a minimum, not a saddle
        covariance.load_state_dict(state)
        randomize(covariance, generator, 0.05)
        assert divergence() > best - 1e-9


def diagonal_projection_is_the_same_projection(make: Make, generator: torch.Generator) -> None:
    covariance = made(make, generator)
    precision = torch.rand(K, N, generator=generator) + 0.5
    covariance.project_diagonal(precision)
    direct = covariance.dense().detach()
    covariance.project(precision.diag_embed())
    torch.testing.assert_close(direct, covariance.dense(), rtol=1e-5, atol=1e-6)


CHECKS = [
    quadratic_is_that_of_a_covariance,
    matrix_products_agree_with_the_quadratic,
    observed_terms_are_those_of_one_output_each,
    bilinear_is_that_of_the_covariance,
    root_products_multiply_to_the_bilinear,
    bilinear_and_roots_pass_gradcheck,
    half_precision_keeps_its_digits_in_pairs,
    samples_have_the_covariance,
    marginal_density_is_that_of_explicit_normals,
    terms_taken_together_agree_with_those_taken_apart,
    gradients_agree_with_the_quadratic,
    projection_is_a_minimum_of_the_divergence,
    diagonal_projection_is_the_same_projection,
]


def check_covariance(make: Make) -> None:
    """Run every check, in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        for check in CHECKS:
            check(make, torch.Generator().manual_seed(0))
    finally:
        torch.set_default_dtype(before)
