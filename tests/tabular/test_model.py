"""Units of targets."""

from typing import Any

import pytest
import torch

from lastlayer.predictive import GaussianPredictive, mix
from lastlayer.tabular.encoding import Encoding
from lastlayer.tabular.model import Units
from tests.helpers.toys import LaplacePredictive


@pytest.mark.parametrize("size", [1e-300, 1e-15, 1.0, 1e15, 1e300])
def test_units_do_not_matter(size):
    values = torch.tensor([[1.0], [4.0], [2.0]], dtype=torch.float64)
    weight = torch.ones(3, dtype=torch.float64)
    expected = (values - values.mean()) / values.std(correction=0)
    torch.testing.assert_close(Encoding.fit(size * values, [0], weight)(size * values), expected)
    units = Units.fit(size * values, weight)
    torch.testing.assert_close(units.remove(size * values), expected)
    torch.testing.assert_close(units.restore(expected) / size, values)


def test_densities_change_with_units_as_they_must():
    target = torch.tensor([[1.0], [3.0], [8.0]], dtype=torch.float64)
    units = Units.fit(target, torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64))
    small = units.remove(target)
    tensors = torch.rand(3, 3, 4, 1, dtype=torch.float64) + 0.1
    plains: list[Any] = [
        GaussianPredictive(*tensors[:, :, 0]),
        mix(GaussianPredictive(*tensors)),
        LaplacePredictive(*tensors[:, :, 0]),  # which the package does not know
        mix(LaplacePredictive(*tensors)),
    ]
    for plain in plains:
        predictive = units(plain)
        expected = plain.log_prob(small) - units.scale.log()
        torch.testing.assert_close(predictive.log_prob(target), expected)
        torch.testing.assert_close(units.remove(predictive.mean), plain.mean)
        torch.testing.assert_close(
            predictive.epistemic_variance, units.scale**2 * plain.epistemic_variance
        )


def test_what_cannot_change_units_is_refused():
    normal = torch.distributions.Normal(torch.zeros(3, 1), torch.ones(3, 1))
    with pytest.raises(TypeError, match="Normal"):
        Units(1)(normal)
