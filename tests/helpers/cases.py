"""Every head with every option, as named constructors, and examples to feed them."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.covariances import COVARIANCES
from tests.helpers.reference import randomize

NUM_FEATURES, NUM_OUTPUTS, NUM_DATA = 6, 3, 40

# Small enough that six features take two blocks of `Triangular`, so that rectangles are tested too.
BLOCK = 4


def _cases() -> dict[str, Callable[..., ll.Head]]:
    cases: dict[str, Callable[..., ll.Head]] = {}
    sizes = (NUM_FEATURES, NUM_OUTPUTS)
    for covariance in COVARIANCES:
        make: Callable[..., ll.Head]
        noise: Any
        for noise in ("diagonal", "dense"):
            for row in ("identity", "noise"):
                if (row, noise) == ("noise", "dense") and covariance != "shared":
                    continue  # refused: it needs one S for all outputs
                make = partial(ll.Regression, noise=noise, row_covariance=row, bias=row == "noise")
                name = f"regression-{covariance}-{noise}-{row}"
                cases[name] = partial(make, *sizes, num_data=NUM_DATA, covariance=covariance)
        for bound in ("jensen", "tilted"):
            for noise in ("diagonal", "none"):
                make = partial(
                    ll.DiscriminativeClassification, bound=bound, noise=noise, bias=noise == "none"
                )
                name = f"discriminative-{covariance}-{bound}-{noise}"
                cases[name] = partial(make, *sizes, num_data=NUM_DATA, covariance=covariance)
        for noise in ("diagonal", "dense"):
            make = partial(ll.GenerativeClassification, noise=noise)
            name = f"generative-{covariance}-{noise}"
            cases[name] = partial(make, *sizes, num_data=NUM_DATA, covariance=covariance)
    make = partial(ll.HeteroscedasticRegression, *sizes, num_data=NUM_DATA)
    cases["heteroscedastic-shared-diagonal"] = partial(make, noise_covariance="diagonal", bias=True)
    cases["heteroscedastic-dense-low_rank"] = partial(
        make, covariance="dense", noise_covariance="low_rank", num_noise_features=4
    )
    make = partial(ll.NoisyLabelClassification, *sizes, num_data=NUM_DATA)
    cases["noisy_labels-dense-dense"] = partial(make, bias=True)
    cases["noisy_labels-diagonal-low_rank"] = partial(
        make, covariance="diagonal", noise_covariance="low_rank", num_noise_features=4
    )
    make = partial(ll.StudentTRegression, *sizes, num_data=NUM_DATA)
    cases["student_t-shared-learned"] = partial(make, bias=True)
    cases["student_t-dense-exact"] = partial(make, covariance="dense", degrees_of_freedom=math.inf)
    return cases


CASES = _cases()


def _covering() -> Iterator[str]:
    """Every covariance of each head, and between them all of its other options."""
    for kind in ("regression", "discriminative", "generative"):
        for at, covariance in enumerate(COVARIANCES):
            names = [name for name in CASES if name.startswith(f"{kind}-{covariance}-")]
            yield names[at % len(names)]
    yield "heteroscedastic-dense-low_rank"
    yield "student_t-shared-learned"
    yield "noisy_labels-dense-dense"


COVERING = list(_covering())  # for what takes seconds per case

# One case for every type of predictive.
PREDICTIVES = [
    "regression-shared-diagonal-identity",
    "regression-shared-dense-noise",
    "heteroscedastic-shared-diagonal",
    "student_t-shared-learned",
    "discriminative-dense-tilted-diagonal",
    "generative-low_rank-dense",
    "noisy_labels-dense-dense",
]
REAL_TARGETS = (ll.Regression, ll.HeteroscedasticRegression, ll.StudentTRegression)

# One case for every type of joint predictive, and of what it depends on.
JOINTS = [
    "regression-dense-diagonal-identity",
    "regression-low_rank-diagonal-noise",
    "regression-kronecker-dense-identity",
    "regression-shared-dense-noise",
    "discriminative-dense-jensen-diagonal",
    "discriminative-diagonal-jensen-none",
]


def make_head(name: str, seed: int = 0, **factory: object) -> ll.Head:
    """The head of a case, with every parameter and count away from its start."""
    torch.manual_seed(seed)  # the same start in every process
    head = CASES[name](**factory)
    generator = torch.Generator().manual_seed(seed)
    randomize(head, generator)
    if isinstance(head, ll.GenerativeClassification):
        head.observe(torch.randint(NUM_OUTPUTS, (20,), generator=generator))
    return head


def make_examples(
    head: ll.Head, *batch: int, seed: int = 1, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Features (*batch, N) and a target for them."""
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    features = torch.randn(*batch, NUM_FEATURES, generator=generator, dtype=torch.float64)
    if isinstance(head, REAL_TARGETS):
        target = torch.randn(*batch, NUM_OUTPUTS, generator=generator, dtype=torch.float64)
        return features.to(dtype), target.to(dtype)
    return features.to(dtype), torch.randint(NUM_OUTPUTS, batch, generator=generator)


def derived(predictive: Any, target: Tensor) -> dict[str, Tensor]:
    """What a predictive computes from its tensors without drawing samples."""
    values = {"log_prob": predictive.log_prob(target), "entropy": predictive.entropy()}
    if hasattr(predictive, "interval"):
        values["lower"], values["upper"] = predictive.interval(0.9)
        values["variance"], values["covariance"] = predictive.variance, predictive.covariance
        values["mutual_information"] = predictive.mutual_information()
    else:
        values["probs"], values["mode"] = predictive.probs(), predictive.mode
    return values


def gradients(head: torch.nn.Module) -> dict[str, Tensor]:
    """Gradients by parameter name; every parameter must have one."""
    found = {name: parameter.grad for name, parameter in head.named_parameters()}
    missing = [name for name, gradient in found.items() if gradient is None]
    assert not missing, f"no gradient for {missing}"
    return {name: gradient.clone() for name, gradient in found.items() if gradient is not None}
