"""The options of training are the same ones in every function that trains."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import lastlayer as ll
from lastlayer.training.options import Options

FIELDS = {field.name: field for field in dataclasses.fields(Options)}
FIT = set(FIELDS)
ALONE = {"seed", "groups", "augment", "monitor"}  # of one model
MANY = FIT - ALONE
CROSSFIT = MANY - {"weight_decay", "validate_every", "patience", "retrain"}
OWN_DEFAULTS = {"epochs", "learning_rate", "schedule", "optimizer"}


@pytest.mark.parametrize(
    ("function", "names", "own"),
    [
        (ll.fit, FIT, set()),
        (ll.fit_many, MANY, set()),
        (ll.crossfit, CROSSFIT, OWN_DEFAULTS),
        (ll.crossfit_many, CROSSFIT, OWN_DEFAULTS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_signatures_have_the_options_with_their_types_and_defaults(
    function: Callable[..., Any], names: set[str], own: set[str]
) -> None:
    parameters = inspect.signature(function).parameters
    assert names <= set(parameters)
    for name in names:
        parameter, field = parameters[name], FIELDS[name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.annotation == field.type
        assert name in own or parameter.default == field.default
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def test_crossfit_and_crossfit_many_differ_in_the_number_of_problems_alone() -> None:
    one, many = (inspect.signature(f).parameters for f in (ll.crossfit, ll.crossfit_many))
    shared = set(one) & set(many) - {"alternatives", "data", "example_groups"}
    assert set(one) - shared == {"alternatives", "make", "data", "example_groups", "seed"}
    assert set(many) - shared == {"alternatives", "makes", "data", "example_groups", "seeds"}
    assert all(one[name] == many[name] for name in shared)
