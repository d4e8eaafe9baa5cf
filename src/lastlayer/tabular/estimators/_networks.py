"""The networks of which cross-validation chooses one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...heads import Head
from ...network import Network
from ..bins import MAX_BINS, Bins
from ..screening import Screen
from ._settings import FEW_ROWS, PRESETS, Candidate, has_many_rows, layouts

MakeHead = Callable[[int, float], Head]  # of the number of features and of examples


@dataclass(frozen=True)
class Networks:
    """New networks for encoded rows.

    Args:
        heads: functions that make new heads, by name.
        num_data: number of examples.
        screened: whether to leave out inputs that have nothing to do with the target.
        bins: of the numbers among the inputs.
    """

    heads: Mapping[str, MakeHead]
    num_data: float
    screened: bool
    bins: Bins

    def candidates(self, preset: str, widths: tuple[int, ...], count: int) -> list[Candidate]:
        """What to try, by a preset, widths of hidden layers and the number of rows."""
        varied, few = PRESETS[preset].varied, count <= FEW_ROWS
        heads = list(self.heads)  # three networks race on small tables, more take too long
        room = len(heads) == 1 or not few
        binned = varied and room and 0 < self.bins.num_bins <= min(MAX_BINS, count)
        # a network with bins can do what one without can, and many rows teach it to
        kinds = [True] if has_many_rows(preset, count) else [False, True]
        found = [
            Candidate(head, layers, with_bins)
            for layers in layouts(preset, widths)
            for with_bins in (kinds if binned and layers else [False])
            for head in heads
        ]
        if widths and varied and few:
            found.append(Candidate(heads[0], (), False))
        return found

    def network(self, candidate: Candidate, width: int, share: float = 1.0) -> Network:
        """A network for inputs of a width, to be trained on a share of the data."""
        layers: list[nn.Module] = [Screen(width)] if self.screened else []
        if candidate.binned:
            layers.append(self.bins)
            width = self.bins.num_outputs
        sizes = [width, *candidate.widths]
        for fan_in, fan_out in itertools.pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out, dtype=torch.float32), nn.ELU()]
        head = self.heads[candidate.head](sizes[-1], share * self.num_data)
        return Network(nn.Sequential(*layers), head)

    def made(self, candidate: Candidate, count: int, train: tuple[Tensor, ...]) -> Network:
        """A candidate for training data, which are all of `count` rows or some of them."""
        inputs, *known = train
        network = self.network(candidate, inputs.shape[-1], len(inputs) / count)
        network.to(inputs)
        for screen in network.modules():
            if isinstance(screen, Screen):
                screen.fit(*train)
        if not candidate.widths:  # training then begins where it should end
            network.head.fit_features(network.backbone(inputs), *known)
        return network
