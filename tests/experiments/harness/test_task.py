"""Tasks whose data are tensors, and tasks whose data are Datasets."""

import dataclasses

import torch
from torch.utils.data import TensorDataset

from tests.helpers.tasks import image_task


def test_development_data_are_training_and_validation_data_in_either_form():
    task = image_task()
    datasets = {name: TensorDataset(*getattr(task, name)) for name in ("train", "validation")}
    other = dataclasses.replace(task, **datasets)  # type: ignore[arg-type]
    assert other.num_data == task.num_data == 48
    inputs, target = task.development
    assert len(other.development) == len(inputs) == 64
    for at in (0, 47, 48, 63):
        image, label = other.development[at]
        assert torch.equal(image, inputs[at])
        assert label == target[at]


def test_a_task_describes_notes_as_they_are_unless_it_has_units():
    assert image_task().describe({"epochs": 3}) == {"epochs": 3}
