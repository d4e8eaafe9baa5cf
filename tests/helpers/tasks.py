"""Small tasks for the methods of the experiments, and oracles of exact ones."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import lastlayer as ll
from experiments.baselines.fitted import Fitted
from experiments.harness.likelihood import Categorical
from experiments.harness.task import Supervised
from experiments.uci.task import TableTask

NUM_INPUTS, NUM_TRAIN, NUM_VALIDATION = 3, 20, 8  # the last two of the smallest task
NUM_CLASSES, NUM_CHANNELS, SIDE = 3, 6, 8


def table_task(seed: int = 0, num_train: int = 24, num_validation: int = 8) -> TableTask:
    """A smooth function with noise, in the default dtype."""
    generator = torch.Generator().manual_seed(100 + seed)

    def pair(count: int) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(count, NUM_INPUTS, generator=generator)
        noise = 0.3 * torch.randn(count, 1, generator=generator)
        return inputs, inputs.sum(-1, keepdim=True).sin() + noise

    train, validation, test = pair(num_train), pair(num_validation), pair(8)
    return TableTask(seed=seed, train=train, validation=validation, test=test)


def large_task(seed: int = 0) -> TableTask:
    """The same in units in which it is large, with a few examples fewer."""
    task = table_task(seed, NUM_TRAIN, NUM_VALIDATION)
    parts = {name: getattr(task, name) for name in ("train", "validation", "test")}
    scaled: Any = {name: (x, 5 * y) for name, (x, y) in parts.items()}
    return replace(task, **scaled)


def perturbed(method: Fitted, task: TableTask) -> nn.Module:
    """A model whose every parameter, also those that begin at zero, is like no other."""
    model = method.make(task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def conditioned(
    prior: MultivariateNormal, target: Tensor, noise_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance without noise of what follows the first targets, (rest,) each."""
    first, rest = slice(None, len(target)), slice(len(target), None)
    covariance, mean = prior.covariance_matrix, prior.mean
    gain = torch.linalg.solve(covariance[first, first], covariance[first, rest]).T
    variance = (covariance[rest, rest] - gain @ covariance[first, rest]).diagonal()
    return mean[rest] + gain @ (target - mean[first]), variance - noise_variance


@dataclass(frozen=True, kw_only=True)
class ImageTask(Supervised):
    """Images with a bright column, whose place is the class, for a convolutional network."""

    @property
    def likelihood(self) -> Categorical:
        return Categorical(NUM_CLASSES)

    @property
    def num_features(self) -> int:
        return NUM_CHANNELS * 4

    def backbone(self, **options: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(1, NUM_CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(NUM_CHANNELS, NUM_CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((1, 4)),
            nn.Flatten(),
        )

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        torch.manual_seed(self.seed)
        return ll.metrics.evaluate(model, self.test, progress=False)


def image_task(seed: int = 0) -> ImageTask:
    """Made images of 8 × 8 pixels with three classes."""
    generator = torch.Generator().manual_seed(100 + seed)

    def pair(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(NUM_CLASSES, (count,), generator=generator)
        image = 0.3 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
        image[torch.arange(count), 0, :, 3 * label] += 1.0
        return image, label

    return ImageTask(seed=seed, train=pair(48), validation=pair(16), test=pair(30))
