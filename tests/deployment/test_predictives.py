"""Predictives are data: pytrees that are indexed, moved and detached."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from tests.deployment.comparison import (
    assert_identical,
    assert_same_predictive,
    every_predictive,
    leaves,
)
from tests.helpers.cases import (
    make_examples,
    make_head,
)


@every_predictive
def test_a_predictive_is_a_pytree_of_its_tensors(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 8)[0])
    tensors, structure = pytree.tree_flatten(predictive)
    assert [id(tensor) for tensor in tensors] == [
        id(tensor) for tensor in vars(predictive).values()
    ]
    assert_identical(pytree.tree_unflatten(tensors, structure), predictive)
    doubled = pytree.tree_map(lambda tensor: 2 * tensor, predictive)
    assert type(doubled) is type(predictive)
    assert_close(leaves(doubled), [2 * tensor for tensor in tensors])


@pytest.mark.parametrize(
    "index",
    [2, -1, slice(1, 3), (slice(None), 0), (..., 1), (None, 0), torch.tensor([3, 0, 3])],
    ids=str,
)
@every_predictive
def test_indexing_a_predictive_is_predicting_for_the_indexed_features(
    name: str, index: object
) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 4, 2)
    batch = torch.arange(8).reshape(4, 2)[index]  # type: ignore[index]
    assert_same_predictive(head(features)[index], head(features.reshape(8, -1)[batch]))


@every_predictive
def test_a_predictive_cannot_be_indexed_beyond_its_batch(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 4)[0])
    with pytest.raises(IndexError, match="2 indices for a batch of shape"):
        predictive[0, 0]


@every_predictive
def test_moving_and_detaching_a_predictive_does_so_to_every_tensor(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 8)[0])
    assert any(tensor.requires_grad for tensor in leaves(predictive))
    single = predictive.to(torch.float32)
    assert type(single) is type(predictive)
    assert_close(leaves(single), [tensor.float() for tensor in leaves(predictive)], rtol=0, atol=0)
    detached = predictive.detach()
    assert not any(tensor.requires_grad for tensor in leaves(detached))
    assert_identical(detached, predictive)
    assert all(tensor.is_meta for tensor in leaves(predictive.to("meta")))
    assert_identical(predictive.cpu(), predictive)
