"""The inverse-Wishart prior of the noise is that of SciPy."""

import pytest
import torch
from scipy import stats
from torch import Tensor

import lastlayer as ll
from lastlayer import functional
from lastlayer.functional.conjugate import inverse_wishart_mode

DOFS = [2.5, 4.0, 11.0]  # ν > N − 1, where SciPy has the density
N = 3


def noises(generator: torch.Generator) -> Tensor:
    roots = torch.randn(4, N, 2 * N, generator=generator)
    return roots @ roots.mT / N


@pytest.mark.parametrize("dof", DOFS)
def test_log_density_is_that_of_scipy_up_to_a_constant(
    dof: float, generator: torch.Generator
) -> None:
    scale, matrices = 0.7, noises(generator)
    reference = stats.invwishart(df=dof, scale=scale * torch.eye(N).numpy())
    expected = torch.tensor([reference.logpdf(matrix.numpy()) for matrix in matrices])
    values = []
    for matrix in matrices:
        precision = torch.linalg.inv(matrix)
        diagonal = torch.linalg.cholesky(precision).diagonal()
        values.append(
            functional.inverse_wishart_log_density(diagonal.log(), precision.trace(), dof, scale)
        )
    torch.testing.assert_close(torch.stack(values).diff(), expected.diff())


@pytest.mark.parametrize("dof", DOFS)
def test_mode_is_the_parameter_of_scipy_over_the_exponent(
    dof: float, generator: torch.Generator
) -> None:
    """The posterior after T observations is the inverse-Wishart with ν + T and M + scatter."""
    scatter, count, scale = noises(generator)[0], 17.0, 0.7
    mode = inverse_wishart_mode(scatter, torch.tensor(count), dof, scale)
    posterior = scatter + scale * torch.eye(N)
    exponent = functional.inverse_wishart_exponent(dof + count, N)
    torch.testing.assert_close(mode, posterior / exponent)
    reference = stats.invwishart(df=dof + count, scale=posterior.numpy())
    best = reference.logpdf(mode.numpy())
    for _ in range(20):
        root = torch.randn(N, N, generator=generator)
        near = mode + 1e-3 * (root + root.mT) * mode.trace()
        assert reference.logpdf(near.numpy()) < best


@pytest.mark.parametrize("dof", DOFS)
def test_log_density_is_flat_at_the_mode(dof: float) -> None:
    scale = 0.7
    mode = scale / functional.inverse_wishart_exponent(dof, N)
    log_scale = torch.full((N,), -0.5).mul(torch.tensor(mode).log()).requires_grad_()
    value = functional.inverse_wishart_log_density(
        log_scale, (2 * log_scale).exp().sum(), dof, scale
    )
    (gradient,) = torch.autograd.grad(value, log_scale)
    torch.testing.assert_close(gradient, torch.zeros(N))


def test_label_noise_is_initialised_at_the_mode_of_its_prior() -> None:
    prior = ll.Prior(noise_dof=2.0, noise_scale=0.6)
    head = ll.DiscriminativeClassification(4, N, num_data=10, prior=prior)
    assert head.noise is not None
    torch.testing.assert_close(head.noise.variance(), torch.full((N,), 0.6 / (2 + N + 1)))


def test_too_few_degrees_of_freedom_say_how_many_are_needed() -> None:
    with pytest.raises(ValueError, match=r"must exceed -14\.0"):
        inverse_wishart_mode(torch.eye(N), torch.tensor(10.0), -20.0, 1.0)
