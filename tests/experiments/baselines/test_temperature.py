"""Temperature scaling by cross-validation."""

from typing import Any

import pytest
import torch

from experiments.baselines.deterministic import Deterministic
from experiments.baselines.temperature import Temperature
from tests.helpers.tasks import image_task

SETTINGS: Any = {"epochs": 12, "batch_size": 16, "learning_rate": 1e-2}


@pytest.mark.slow
def test_the_network_is_that_of_all_data_at_one_temperature():
    torch.set_default_dtype(torch.float32)
    task = image_task()
    ((plain, _),) = Deterministic(**SETTINGS).train([task])
    ((scaled, notes),) = Temperature(num_folds=3, **SETTINGS).train([task])
    expected = plain(task.test[0]).logits / notes["temperature"]
    torch.testing.assert_close(scaled(task.test[0]).probs(), expected.softmax(-1))
    assert notes["temperature"] != 1.0
