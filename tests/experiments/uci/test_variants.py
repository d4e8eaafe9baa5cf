"""Methods of the UCI tables alone: alternatives of calibration, initial values, depth."""

import math
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from experiments.baselines.ours import Ours
from experiments.uci.methods import METHODS
from experiments.uci.task import TableTask
from experiments.uci.variants import OneFold, OursWithAlternatives
from tests.helpers.tasks import table_task


@pytest.fixture
def task() -> TableTask:
    return table_task()


def test_variants_of_initial_weights_differ_by_these_alone():
    scaled = {"start_scale": 1.0}
    ours, larger = (asdict(METHODS[name].configured("wine")) for name in ("ours", "ours-start"))
    vbll, smaller = (asdict(METHODS[name].configured("wine")) for name in ("vbll", "vbll-start"))
    assert (larger, vbll) == (ours | scaled, smaller | scaled)


def test_the_deeper_variant_of_vbll_has_one_layer_more(task):
    models: list[Any] = [
        METHODS[name].configured("power").make(task) for name in ("vbll", "vbll-deeper")
    ]
    widths = [
        [len(p) for n, p in model.backbone.named_parameters() if "weight" in n] for model in models
    ]
    assert widths == [[50, 50], [50, 50, 50]]


def test_conjugate_rows_are_those_of_the_head(task):
    methods = [METHODS[name].configured("wine") for name in ("ours", "ours-conjugate")]
    assert [method.make(task).head.conjugate for method in methods] == [False, True]
    assert asdict(methods[0]) == asdict(methods[1])  # as in the records


@pytest.mark.slow
def test_without_cross_validation_one_fold_is_held_out_and_else_all(task):
    for method, expected in ((OneFold, 1), (Ours, 5)):
        found: list[int] = []

        class Noted(method):  # type: ignore[misc, valid-type]
            def notes(self, crossfit, task, found=found):
                found.append(len(crossfit.folds))
                return {}

        Noted(epochs=1).train([task])
        assert found == [expected]


@pytest.mark.slow
def test_ours_keeps_its_calibration_and_notes_what_else_there_is(task):
    trained: Any = OursWithAlternatives(epochs=32).train([task])
    ((model, notes),) = trained
    assert {one["epochs"] for one in notes["tried"]} <= {16, 32}
    assert {one["weight_decay"] for one in notes["tried"]} == {30.0, 300.0}
    assert notes["validation_nll"] == min(one["validation_nll"] for one in notes["tried"])
    assert model.model.head.num_data == len(task.development[0])
    others = notes["alternatives"]
    inputs = task.test[0]
    for name, alternative in others.items():
        same = torch.equal(alternative(inputs).mean, model(inputs).mean)
        assert same == (name != "exact")
        assert math.isfinite(notes[f"validation_nll_{name}"])
    plain = others["uncalibrated"](inputs)
    assert_close(plain.variance, model.model(inputs).variance)
    assert not torch.equal(others["gaussian"](inputs).variance, plain.variance)
    noise = [each.model.head.noise.variance() for each in (model, others["exact"])]
    assert noise[0] != noise[1]
