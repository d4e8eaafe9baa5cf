"""Priors of the last layer and of its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._checks import check_choice, check_number, check_positive
from .functional import inverse_wishart_exponent


@dataclass(frozen=True)
class Prior:
    r"""The prior: weights N(0, s I), noise inverse-Wishart(ν, m I).

    A head whose `prior_mean` M is set has weights N(M, s I) instead.

    Attributes:
        variance: s, prior variance of each weight (of each class mean if generative); a
            variance of 1 is 1, whatever the width. "evidence" learns s with the ELBO: it is
            always the s at which the ELBO is highest, see `head.prior_variance`.
        bias_variance: prior variance of a bias; None is that of the weights, and with
            "evidence" a variance of its own, learned too.
        noise_dof: ν, degrees of freedom of the noise prior. The exponent is ν + N + 1, where N
            is the dimension of Σ, and may be used as a plain number: nothing requires ν > N − 1.
        noise_scale: m, of the scale matrix mI; the noise prior has its mode at variance
            m / (ν + N + 1).
        kl_weight: λ, weight of the divergence in the objective; 1 is Bayes, less is tempered.
    """

    variance: float | Literal["evidence"] = 1.0
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    kl_weight: float = 1.0
    bias_variance: float | Literal["evidence"] | None = None

    def __post_init__(self) -> None:
        for name, value in (("variance", self.variance), ("bias_variance", self.bias_variance)):
            if isinstance(value, str):
                check_choice(f"prior.{name}", value, ["evidence"])
            elif value is not None or name == "variance":
                check_positive(f"prior.{name}", value)  # type: ignore[arg-type]
        check_positive("prior.noise_scale", self.noise_scale)
        check_positive("prior.kl_weight", self.kl_weight)
        check_number("prior.noise_dof", self.noise_dof)

    @property
    def fixed_variance(self) -> float:
        """s as a number; an error if it is learned."""
        if isinstance(self.variance, str):
            raise ValueError(
                f"a prior with variance={self.variance!r} has no variance before there is a head: "
                "give it a number, or take head.prior_variance"
            )
        return self.variance

    def variances(self, *, bias: bool) -> tuple[float | Literal["evidence"], ...]:
        """Variances of the weights and, where the bias has one of its own, of the bias."""
        own = self.variance if self.bias_variance is None else self.bias_variance
        if bias and (own != self.variance or own == "evidence"):
            return self.variance, own
        return (self.variance,)

    @classmethod
    def from_targets(
        cls,
        *,
        num_data: float,
        num_outputs: int,
        weight_variance: float = 1.0,
        noise_precision: float = 1.0,
        weight_strength: float | None = None,
        noise_strength: float = 1.0,
        noise_dimension: int | None = None,
    ) -> Prior:
        r"""A prior from targets and strengths of its regularisers (paper, appendix C).

        $$s = \hat p,\quad m = \alpha_\Sigma,\quad \nu + N + 1 = \hat l\,\alpha_\Sigma,\quad
          \lambda = \hat p\,T\,\alpha_S / N_y$$

        Args:
            num_data: T, the size of the training set.
            num_outputs: N_y, outputs or classes.
            weight_variance: p̂, the diagonal of S at which its regulariser is smallest.
            noise_precision: l̂, the diagonal of Σ⁻¹ at which its regulariser is smallest.
            weight_strength: α_S, how strongly S is pulled; None is λ = 1, plain Bayes.
            noise_strength: α_Σ, how strongly Σ is pulled.
            noise_dimension: N, the dimension of Σ; None is `num_outputs`. For a generative
                head pass `num_features`.

        Returns:
            The prior with these minima and curvatures.
        """
        check_positive("num_data", num_data)
        check_positive("num_outputs", num_outputs)
        check_positive("weight_variance", weight_variance)
        check_positive("noise_precision", noise_precision)
        check_positive("noise_strength", noise_strength)
        dimension = num_outputs if noise_dimension is None else noise_dimension
        kl_weight = 1.0
        if weight_strength is not None:
            check_positive("weight_strength", weight_strength)
            kl_weight = weight_variance * num_data * weight_strength / num_outputs
        return cls(
            variance=weight_variance,
            noise_dof=noise_precision * noise_strength - inverse_wishart_exponent(0, dimension),
            noise_scale=noise_strength,
            kl_weight=kl_weight,
        )
