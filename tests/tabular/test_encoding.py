"""Codes as standardised network inputs."""

import math

import numpy as np
import torch

from lastlayer.tabular.encoding import Encoding

NAN = np.nan


def test_numbers_are_standardised_by_weighted_moments_of_known_values():
    codes = torch.tensor([[1.0], [4.0], [NAN]], dtype=torch.float64)
    weight = torch.tensor([2.0, 1.0, 5.0], dtype=torch.float64)
    features = Encoding.fit(codes, [0], weight)(codes)
    known = np.array([1.0, 1.0, 4.0])
    expected = (np.array([1.0, 4.0]) - known.mean()) / known.std()
    torch.testing.assert_close(features[:2, 0], torch.from_numpy(expected))
    assert features[2, 0] == 0
    torch.testing.assert_close(features[:, 1], codes.isnan()[:, 0].double() - 5 / 8)


def test_levels_are_centred_indicators_and_a_new_level_has_none():
    codes = torch.tensor([[0.0], [1.0], [1.0], [2.0]], dtype=torch.float64)
    encoding = Encoding.fit(codes, [3], torch.ones(4))
    shares = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
    torch.testing.assert_close(encoding(codes) + shares, torch.eye(3).double()[[0, 1, 1, 2]])
    torch.testing.assert_close(
        encoding(torch.tensor([[-1.0]]).double()) + shares, torch.zeros(1, 3).double()
    )


def test_a_constant_column_is_zero_whatever_its_size():
    codes = torch.full((5, 1), 1e9 + 0.1, dtype=torch.float64)
    torch.testing.assert_close(
        Encoding.fit(codes, [0], torch.ones(5))(codes), torch.zeros(5, 1).double()
    )


def test_values_are_newly_missing_where_training_had_all():
    codes = torch.tensor([[1.0, 0.0], [NAN, 1.0]], dtype=torch.float64)
    encoding = Encoding.fit(codes, [0, 2], torch.ones(2))
    missing = torch.tensor([[NAN, 0.0], [1.0, NAN], [NAN, NAN]], dtype=torch.float64)
    assert encoding.num_newly_missing(missing).tolist() == [0, 1, 1]


def test_a_saved_encoding_needs_only_its_width():
    codes = torch.tensor([[1.0, 0.0], [NAN, 1.0]], dtype=torch.float64)
    encoding = Encoding.fit(codes, [0, 2], torch.ones(2))
    other = Encoding(len(encoding.complete), encoding.width)
    other.load_state_dict(encoding.state_dict())
    torch.testing.assert_close(other(codes), encoding(codes))


def test_rare_levels_are_at_their_means_where_rows_are_described():
    codes = torch.tensor([[0.0, 3.0]] * 60 + [[1.0, 5.0]] * 39 + [[2.0, 90.0]], dtype=torch.float64)
    encoding = Encoding.fit(codes, [3, 0], torch.ones(100))
    inputs = encoding(codes)
    expected = inputs.clone()
    expected[:, 2] = 0  # of the level seen once; that number is rare too, and stays
    torch.testing.assert_close(encoding.usual(inputs), expected)


def test_absent_values_are_newly_missing_ones_and_new_levels():
    codes = torch.tensor([[0.0, -1.0, 1.0], [1.0, 5.0, math.nan]], dtype=torch.float64)
    encoding = Encoding.fit(codes, [2, 0, 2], torch.ones(2))
    new = torch.tensor([[-1.0, -1.0, -1.0], [math.nan] * 3], dtype=torch.float64)
    assert encoding.absent(new).tolist() == [[1, 0, 1], [1, 1, 0]]
    for column in range(2):
        without = codes.clone()
        without[:, column] = math.nan
        torch.testing.assert_close(encoding.without(column, encoding(codes)), encoding(without))
