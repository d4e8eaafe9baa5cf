"""Places of values among quantiles."""

import numpy as np
import torch

from lastlayer.tabular.bins import MANY_ROWS, Bins


def test_a_bin_is_how_far_a_value_has_come_from_its_quantile_to_the_next(generator):
    inputs = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    bins = Bins.fit(inputs)
    assert bins.num_outputs == 2 + 2 * 8
    grid = torch.linspace(-5, 5, 101, dtype=torch.float64).unsqueeze(-1).expand(-1, 2)
    actual = bins(grid)
    torch.testing.assert_close(actual[:, :2], grid)
    for column in range(2):
        ends = np.quantile(inputs[:, column], np.linspace(0, 1, 9))
        for at in range(8):
            expected = np.interp(grid[:, column], ends[at : at + 2], [0, 1])
            place = actual[:, 2 + 8 * column + at]
            torch.testing.assert_close(place, torch.from_numpy(expected))


def test_inputs_of_few_values_have_no_bins_and_equal_quantiles_one(generator):
    few = torch.randint(3, (300, 1), generator=generator).double()
    skewed = torch.where(torch.arange(300) < 200, 0.0, torch.arange(300).double()).unsqueeze(-1)
    assert Bins.fit(few).num_outputs == 1
    assert Bins.fit(skewed).size.min() > 0
    assert Bins.fit(torch.randn(MANY_ROWS, 1, generator=generator)).num_outputs == 1 + 16


def test_they_are_loaded_into_bins_of_as_many(generator):
    inputs = torch.randn(50, 3, generator=generator)
    bins = Bins.fit(inputs)
    loaded = Bins(3, len(bins.source))
    loaded.load_state_dict(bins.state_dict())
    torch.testing.assert_close(loaded(inputs), bins(inputs))
