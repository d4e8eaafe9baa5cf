"""What a run would take: time by a step of a small batch, memory by what it keeps."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .methods import NUM_TRAIN, TRAINING, methods_of
from .task import CLASSES, ImageTask

MEASURED = 8  # images of a step


class Estimate(NamedTuple):
    """What one network takes, trained with the settings of DNN."""

    num_parameters: int
    seconds_per_step: float  # on this machine, if its cores do nothing else
    steps: int
    bytes_per_image: float  # kept for the gradient
    batch_size: int

    @property
    def hours(self) -> float:
        """Of all steps."""
        return self.steps * self.seconds_per_step / 3600

    @property
    def gigabytes(self) -> float:
        """Weights, gradients and momentum in single precision, and what a batch keeps."""
        return (12 * self.num_parameters + self.batch_size * self.bytes_per_image) / 1e9

    def __str__(self) -> str:
        return (
            f"{self.num_parameters / 1e6:.1f} million parameters; {self.steps:,} steps of "
            f"{self.batch_size} images, {self.seconds_per_step:.2f} s each here: "
            f"{self.hours:,.1f} hours; {self.gigabytes:.1f} GB of memory for training"
        )


def estimate(backbone: str, dataset: str = "cifar10", num_images: int = MEASURED) -> Estimate:
    """Train a new network for two steps on a few random images, of which the second counts."""
    settings = TRAINING[backbone]
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (num_images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    pair = (pictures, torch.arange(num_images) % CLASSES[dataset])
    task = ImageTask(
        seed=0, dataset=dataset, backbone_name=backbone, train=pair, held_out=pair, test=pair
    )
    method = methods_of(backbone)["dnn"].configured(dataset)
    model: nn.Module = method.make(task).train()
    kept: dict[int, int] = {}
    weights = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    seconds = 0.0
    for _ in range(2):
        kept.clear()
        begun = time.process_time()
        half = settings.get("precision") == "bfloat16"
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=half),
        ):
            loss = model(*pair)
        loss.backward()
        seconds = (time.process_time() - begun) / torch.get_num_threads()
    epochs, batch_size = method.epochs, method.batch_size
    return Estimate(
        num_parameters=sum(p.numel() for p in model.parameters()),
        seconds_per_step=seconds * batch_size / num_images,
        steps=epochs * -(-NUM_TRAIN[dataset] // batch_size),
        bytes_per_image=sum(kept.values()) / num_images,
        batch_size=batch_size,
    )
