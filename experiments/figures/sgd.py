"""SGD with momentum, as both toy problems of the paper train."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

import lastlayer as ll

Pair = tuple[Tensor, Tensor]


def train(config: Any, network: ll.Network, data: Pair, epochs: int) -> ll.History:
    """Minimise the loss by SGD with momentum."""
    names = "batch_size", "learning_rate", "schedule", "weight_decay", "clip", "seed"
    options: dict[str, Any] = {name: getattr(config, name) for name in names}
    options["optimizer"] = partial(torch.optim.SGD, momentum=config.momentum)
    # the paper names no initial values at the scale of the targets
    return ll.fit(network, data, epochs=epochs, initialize=False, **options)
