"""Seconds per training step of D-VBLL and G-VBLL beside DNN's, measured alternately."""

from __future__ import annotations

import dataclasses
import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

import lastlayer as ll

from ..harness import records
from ..harness.tables import BLANK, signed, table
from .methods import TRAINING, methods_of
from .published import SECONDS
from .task import BACKBONES, CLASSES, ImageTask

COVARIANCES = {
    "d_vbll": ("dense", "diagonal", "low_rank", "shared", "kronecker"),
    "g_vbll": ("diagonal", "dense", "low_rank", "shared", "kronecker"),
}
ROUNDS = {"small": 7, "wrn-28-10": 3}
BATCH = {"small": 512, "wrn-28-10": 8}  # a batch of 128 would take a processor a minute
IDENTITY = ("method", "covariance", "dataset", "backbone")


def path(results: Path) -> Path:
    """Where the record is, a line for each model."""
    return results / "images" / "timing.jsonl"


def measure(backbone: str, results: Path, dataset: str = "cifar10") -> None:
    """Time steps of all models in turn, so that what else the machine does is the same for all."""
    task, precision = _task(dataset, backbone), TRAINING[backbone].get("precision", "full")
    steps = {("dnn", ""): _step(task, "dnn", None, precision)}
    for method, covariances in COVARIANCES.items():
        for covariance in covariances:
            steps[method, covariance] = _step(task, method, covariance, precision)
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for number in tqdm(range(1 + ROUNDS[backbone]), unit="round"):
        for key, step in steps.items():
            begun = time.process_time()
            step()
            if number:  # the first is a warm-up
                seconds[key].append(time.process_time() - begun)
    base = np.array(seconds["dnn", ""])
    made = []
    for (method, covariance), values in seconds.items():
        config = {"method": method, "covariance": covariance, "dataset": dataset}
        more = np.median(np.array(values) / base) - 1
        made.append(
            {
                "config": config | {"backbone": backbone, "batch_size": BATCH[backbone]},
                "metrics": {"seconds": float(np.median(values)), "above_dnn": float(more)},
                "versions": records.versions(),
                "time": records.now(),
            }
        )
    records.append(path(results), made)


@dataclass(frozen=True, kw_only=True)
class OneBackbone(ImageTask):
    """A task all of whose models share a backbone, to save memory: only times are asked for."""

    @functools.cached_property
    def network(self) -> nn.Module:
        """The backbone."""
        return super().backbone()

    def backbone(self, **options: Any) -> nn.Module:
        """The same one each time."""
        return self.network


def _task(dataset: str, backbone: str) -> ImageTask:
    """One batch of random images: time does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    count, classes = BATCH[backbone], CLASSES[dataset]
    pictures = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    pair = (pictures, torch.arange(count) % classes)
    return OneBackbone(
        seed=0, dataset=dataset, backbone_name=backbone, train=pair, held_out=pair, test=pair
    )


def _step(task: ImageTask, name: str, covariance: str | None, precision: str) -> Any:
    """A function that takes one step of `fit`'s kind."""
    method = methods_of(task.backbone_name)[name].configured(task.dataset)
    if covariance is not None:
        method = dataclasses.replace(method, covariance=covariance)
    torch.manual_seed(0)
    model: nn.Module = method.make(task).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-6, momentum=0.9)
    inputs, target = task.train
    if isinstance(model, ll.Network) and isinstance(model.head, ll.GenerativeClassification):
        model.head.observe(target)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(inputs, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 2.0)
        optimizer.step()

    return step


def section(results: Path) -> str:
    """The table: time above DNN, by backbone and covariance."""
    found = records.read(path(results), IDENTITY)
    if not found:
        return "Not run yet: `python -m experiments images --timing`."
    by_key = {tuple(record["config"][name] for name in IDENTITY): record for record in found}
    labels = {"dnn": "DNN", "d_vbll": "D-VBLL", "g_vbll": "G-VBLL"}
    keys = [("dnn", ""), *((m, c) for m, names in COVARIANCES.items() for c in names)]
    rows = []
    for method, covariance in keys:
        cells = []
        for backbone in BACKBONES:
            record = by_key.get((method, covariance, "cifar10", backbone))
            if record is None:
                cells += [BLANK, BLANK]
                continue
            more = 100 * record["metrics"]["above_dnn"]
            cells += [f"{record['metrics']['seconds']:.3f}", f"{signed(more)} %"]
        usual = covariance in ("", COVARIANCES.get(method, ("",))[0])
        paper = SECONDS[method] / SECONDS["dnn"] - 1
        cells.append(f"{signed(100 * paper)} %" if usual else BLANK)
        rows.append([labels[method], covariance, *cells])
    header = ["", "covariance"]
    for backbone in BACKBONES:
        header += [f"{backbone}, s", "above DNN"]
    return table([*header, "paper, WRN-28-10 on a T4"], rows, num_names=2)
