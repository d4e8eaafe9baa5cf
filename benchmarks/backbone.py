"""What a head costs beside the network that it sits on: its share of a whole training step."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from .contenders import SIDES, Model, Size, train_step
from .report import Row
from .timing import interleave, progress
from .wide_resnet import WideResNet

BATCH, CLASSES = 8, 10
CASES: list[tuple[str, Model, float | None]] = [  # at most this share, in percent
    ("lastlayer", Model("discriminative", "dense"), 0.6),
    ("lastlayer", Model("discriminative", "diagonal"), 0.05),
    ("lastlayer", Model("generative", "diagonal"), 0.05),
    ("linear", Model("discriminative", "none"), None),
    ("vbll", Model("discriminative", "dense"), None),
]


def backbone_rows(quick: bool, with_vbll: bool) -> list[Row]:
    """Time of each head, forward and backward, within a step of WRN-28-10 (quick: WRN-10-1)."""
    torch.manual_seed(0)
    network = WideResNet(10, 1) if quick else WideResNet(28, 10)
    images = torch.randn(BATCH, 3, 32, 32)
    target = torch.randint(CLASSES, (BATCH,))
    rows = []
    for library, model, limit in CASES:
        if library == "vbll" and not with_vbll:
            continue
        progress(f"backbone: {library} {model}")
        row = _share(network, images, target, library, model)
        judged = limit if not quick else None  # the targets are for the large network
        row["target_%"] = f"≤ {judged:g}" if judged else ""
        row["verdict"] = ("met" if row["share_%"] <= judged else "MISSED") if judged else ""
        rows.append(row)
    return rows


def _share(network: WideResNet, images: Tensor, target: Tensor, library: str, model: Model) -> Row:
    make_module, loss, _ = SIDES[library]
    size = Size(BATCH, network.num_features, CLASSES)
    head = make_module(model, size)
    head_loss = functools.partial(loss, head)
    # The head alone, on features of the same batch; the backbone's step ends in the same backward.
    features = network(images).detach().requires_grad_(True)
    alone = train_step(head, head_loss, features, target)
    both = nn.ModuleList([network, head])

    def whole_loss(inputs: Tensor, labels: Tensor) -> Tensor:
        return head_loss(network(inputs), labels)

    whole = train_step(both, whole_loss, images, target)
    timings = interleave({"head": alone, "whole": whole}, seconds=0, min_rounds=3)
    head_time, whole_time = timings["head"].median, timings["whole"].median
    return {
        "side": library,
        "model": "nn.Linear" if library == "linear" else str(model),
        "size": str(size),
        "head_ms": 1e3 * head_time,
        "whole_ms": 1e3 * whole_time,
        "share_%": 100 * head_time / whole_time,
    }
