"""Classification heads away from their start, and data for them."""

import torch
from torch import Tensor

import lastlayer as ll
from tests.helpers.reference import randomize

N, K, T = 4, 5, 30
COVARIANCES = ["dense", "diagonal", "low_rank", "shared", "kronecker"]
PRIOR = ll.Prior(variance=1.7, noise_dof=2.0, noise_scale=0.6)


def data(generator: torch.Generator, count: int = T) -> tuple[Tensor, Tensor]:
    target = torch.randint(0, K, (count,), generator=generator)
    means = 2 * torch.randn(K, N, generator=generator)
    return means[target] + torch.randn(count, N, generator=generator), target


def discriminative(
    generator: torch.Generator, **options: object
) -> ll.DiscriminativeClassification:
    options = {"prior": PRIOR, "num_data": T, **options}
    head = ll.DiscriminativeClassification(N, K, **options)  # type: ignore[arg-type]
    randomize(head, generator)
    return head


def generative(generator: torch.Generator, **options: object) -> ll.GenerativeClassification:
    options = {"prior": PRIOR, "num_data": T, **options}
    head = ll.GenerativeClassification(N, K, **options)  # type: ignore[arg-type]
    randomize(head, generator)
    head.concentration.copy_(1 + 5 * torch.rand(K, generator=generator))
    return head
