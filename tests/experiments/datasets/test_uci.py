"""Reading and splitting the UCI tables."""

import numpy as np
import pytest
import torch

from experiments.datasets import uci as data
from tests.helpers.tables import write_tables


@pytest.fixture(autouse=True)
def _tables(tmp_path, monkeypatch):
    """Every data set as a small table, and torch's own default dtype, as users have."""
    write_tables(tmp_path / "data", list(data.NAMES))
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    torch.set_default_dtype(torch.float32)


def test_a_split_has_the_papers_proportions_and_every_example_once():
    split = data.split("boston", seed=3)
    sizes = [len(part[0]) for part in (split.train, split.validation, split.test)]
    assert sizes == [29, 7, 4]  # 0.72, 0.18 and 0.1 of 40
    _, target = data.load("boston")
    parts = [part[1] for part in (split.train, split.validation, split.test)]
    centred = torch.cat(parts).double().squeeze(-1).sort().values
    expected = np.sort(target) - np.sort(target)[0]
    assert np.allclose(centred - centred[0], expected, atol=1e-5)


def test_training_inputs_are_standard_and_targets_centred():
    split = data.split("yacht", seed=0)
    inputs, target = split.train
    assert torch.allclose(inputs.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(inputs.std(0, correction=0), torch.ones(3), atol=1e-5)
    assert abs(target.mean()) < 1e-5
    assert split.target_scale == 1.0


def test_scaled_targets_times_their_scale_are_the_centred_ones():
    plain, scaled = data.split("yacht", 1), data.split("yacht", 1, scale_targets=True)
    assert abs(scaled.train[1].std(correction=0) - 1) < 1e-5
    for one, two in ((plain.train, scaled.train), (plain.test, scaled.test)):
        assert torch.equal(one[0], two[0])
        assert torch.allclose(one[1], scaled.target_scale * two[1], atol=1e-5)


def test_seeds_differ_and_a_seed_repeats():
    assert torch.equal(data.split("wine", 0).test[0], data.split("wine", 0).test[0])
    assert not torch.equal(data.split("wine", 0).test[1], data.split("wine", 1).test[1])


def test_splits_do_not_depend_on_the_order_of_the_rows(tmp_path):
    path = tmp_path / "data" / "uci" / "wine.csv"
    before = data.split("wine", 0)
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert torch.equal(data.split("wine", 0).test[0], before.test[0])


def test_a_constant_column_is_zero_not_nan(tmp_path):
    path = tmp_path / "data" / "uci" / "wine.csv"
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    table[:, 1] = 7.0
    np.savetxt(path, table, delimiter=",", header="a,b,c,y", comments="")
    assert torch.equal(data.split("wine", 0).test[0][:, 1], torch.zeros(4))


def test_a_missing_table_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(
        FileNotFoundError, match=r"LASTLAYER_DATA .* python -m experiments download"
    ):
        data.load("wine")
