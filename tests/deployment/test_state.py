"""Copied, saved, or made on the meta device, a head computes the same."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from tests.deployment.comparison import (
    assert_identical,
    every_case,
)
from tests.helpers.cases import (
    CASES,
    make_examples,
    make_head,
)


@every_case
def test_a_deep_copy_predicts_the_same_and_learns_apart(name: str) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 8)
    before = head(features)
    twin = copy.deepcopy(head)
    assert_identical(twin(features), before)
    with torch.no_grad():
        for tensor in (*twin.parameters(), *twin.buffers()):
            tensor.zero_()
    assert_identical(head(features), before)


@every_case
def test_state_travels_exactly_through_state_dicts_and_safetensors(
    name: str, tmp_path: Path
) -> None:
    head = make_head(name)
    features, target = make_examples(head, 8)
    save_file(head.state_dict(), tmp_path / "head.safetensors")
    for state in (head.state_dict(), load_file(tmp_path / "head.safetensors")):
        other = CASES[name]()
        other.load_state_dict(state)
        assert_identical(other(features), head(features))
        assert_close(other(features, target), head(features, target), rtol=0, atol=0)


@every_case
def test_a_predictive_survives_pickle_and_torch_save_unchanged(name: str) -> None:
    head = make_head(name)
    predictive = head(make_examples(head, 8)[0])
    assert_identical(pickle.loads(pickle.dumps(predictive)), predictive)
    file = io.BytesIO()
    torch.save(predictive, file)
    file.seek(0)
    with torch.serialization.safe_globals([type(predictive)]):
        assert_identical(torch.load(file, weights_only=True), predictive)


@every_case
def test_a_pickled_head_predicts_the_same(name: str) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 8)
    assert_identical(pickle.loads(pickle.dumps(head))(features), head(features))


@every_case
def test_a_meta_head_has_the_shapes_of_a_real_one_and_is_initialised_the_same(name: str) -> None:
    with torch.device("meta"):
        in_context = CASES[name]()
    for head in (CASES[name](device="meta"), in_context):
        tensors = {**dict(head.named_parameters()), **dict(head.named_buffers())}
        assert all(tensor.is_meta for tensor in tensors.values())
        torch.manual_seed(3)
        real = CASES[name]()
        features, target = make_examples(real, 8)
        assert head(features.to("meta"), target.to("meta")).shape == ()
        head.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.fill_(float("nan"))  # whatever was in memory
        torch.manual_seed(3)
        head.reset_parameters()
        assert_identical(head(features), real(features))
        assert_close(head(features, target), real(features, target), rtol=0, atol=0)


def test_resetting_every_module_that_can_be_reset_initialises_a_head_again() -> None:
    for name, make in CASES.items():
        torch.manual_seed(3)
        expected = make().state_dict()
        head = make_head(name)
        torch.manual_seed(3)
        for module in head.modules():  # as FSDP and others do after leaving the meta device
            reset: Any = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
        assert_close(head.state_dict(), expected)
