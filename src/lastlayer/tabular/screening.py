"""Which of many network inputs have to do with the target, by themselves or in pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .encoding import location_and_scale

MANY_INPUTS = 20  # from which on it is asked whether some are of no use
ENOUGH_ROWS = 1500  # to decide by
NUM_FOLDS = 3
CLEARLY = 0.9  # of the error, below which inputs are left out
HALF_WAVES = (3, 4, 5, 6)  # of an input's range, for effects that rise and fall
MAX_PAIRED, MAX_PAIRS = 500, 50  # inputs whose products are looked at, and products that are kept
NUM_SHUFFLES = 4  # of targets, to see what products do by chance
SHRINKAGE = 0.1  # of effects of single inputs, before products are looked at


class Screen(nn.Module):
    """Network inputs, zero where they have nothing to do with the target.

    Args:
        width: of the inputs.
    """

    kept: Tensor  # 1 or 0, (width,)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(width))

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs that are kept, (*batch, width)."""
        return inputs * self.kept

    @torch.no_grad()
    def fit(self, inputs: Tensor, target: Tensor, weight: Tensor) -> Screen:
        """Keep inputs that are `relevant`.

        Args:
            inputs: (T, width).
            target: (T, K).
            weight: (T,).
        """
        self.kept.copy_(relevant(inputs, target, weight).kept)
        return self


class Relevant(NamedTuple):
    """What has to do with a target."""

    kept: Tensor  # whether an input has, (width,)
    waves: Tensor  # inputs and half-waves that have, (W, 2)
    pairs: Tensor  # inputs whose product has, (P, 2)

    def terms(self, inputs: Tensor) -> Tensor:
        """Values of the waves and products, (T, W + P)."""
        chosen, number = self.waves.unbind(-1)
        waves = torch.cos(torch.pi * number * torch.special.ndtr(inputs[:, chosen]))
        return torch.cat([waves, inputs[:, self.pairs].prod(-1)], -1)


def relevant(inputs: Tensor, target: Tensor, weight: Tensor) -> Relevant:
    """Inputs that correlate with a target, by themselves, by curves, or in a product with another.

    More than the largest of as many correlations with an unrelated target would, √(2 log(n K)/T)
    of n values (Fan & Lv, 2008). Curves are squares, and cosines of the normal distribution
    function: waves. Products are compared with what curves leave of the target, and with shuffled
    rows of that, among which rare values of two inputs may meet by chance.

    Args:
        inputs: (T, width).
        target: (T, K).
        weight: (T,).
    """
    width, known = inputs.shape[-1], _standardised(target, weight)
    curves = _correlations(_curves(inputs), known, weight).reshape(2, -1).amax(0)
    kept = curves > _limit(2 * width, known)
    number = torch.tensor(HALF_WAVES, device=inputs.device).repeat_interleave(width)
    chosen = torch.arange(width, device=inputs.device).repeat(len(HALF_WAVES))
    waves = torch.stack([chosen, number], -1)
    single = Relevant(kept, waves, waves[:0])
    waving = _correlations(single.terms(inputs), known, weight)
    waves = waves[waving > _limit(len(waves), known)]
    kept = kept.index_fill(0, waves[:, 0], True)
    rest = _rest(Relevant(kept, waves, waves[:0]), inputs, known, weight)
    pairs = _pairs(inputs, curves, rest, weight)
    kept = kept.index_fill(0, pairs.flatten(), True)
    if not kept.any():
        kept[curves.argmax()] = True
    return Relevant(kept, waves, pairs)


@torch.no_grad()
def screening_helps(seed: int, inputs: Tensor, target: Tensor, weight: Tensor) -> bool:
    """Whether ridge regression of held-out rows is clearly better on what a screen keeps.

    On inputs and their squares, besides waves and products that are relevant, each with the best
    of some penalties. If the difference is small, the network is given all inputs: what it makes
    of them is more than curves.
    """
    if inputs.shape[-1] < MANY_INPUTS or len(inputs) < 2 * NUM_FOLDS:
        return False
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    order = order[:ENOUGH_ROWS].to(inputs.device)
    errors = torch.zeros(2, 1, dtype=torch.float64)
    for held_out in order.chunk(NUM_FOLDS):
        rest = order[~torch.isin(order, held_out)]
        found = relevant(inputs[rest], target[rest], weight[rest])
        curves, terms = _curves(inputs), found.terms(inputs)
        screened = curves[:, found.kept.repeat(2)]
        parts = [(part[rest], part[held_out]) for part in (target, weight)]
        both = [torch.cat([values, terms], -1) for values in (curves, screened)]
        errors = errors + torch.stack([_ridge_errors((x[rest], x[held_out]), *parts) for x in both])
    everything, screened = errors.amin(-1).tolist()
    return bool(screened < CLEARLY * everything)


def _ridge_errors(
    inputs: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor], weight: tuple[Tensor, Tensor]
) -> Tensor:
    """Weighted squared errors of held-out rows by penalties, from pairs of parts, (penalties,)."""
    location, scale = location_and_scale(inputs[0].double(), weight[0].double().unsqueeze(-1))
    train, test = ((part.double() - location) / scale for part in inputs)
    root = weight[0].double().sqrt().unsqueeze(-1)
    level = (root.square() * target[0]).sum(0) / root.square().sum()
    values, vectors = torch.linalg.eigh((root * train) @ (root * train).mT)
    known = vectors.mT @ (root * (target[0] - level))  # (T, K)
    across = test @ (root * train).mT @ vectors
    penalties = values.mean() * 10 ** torch.linspace(-3, 3, 7, dtype=values.dtype).to(values)
    predicted = torch.stack([across @ (known / (values + p).unsqueeze(-1)) for p in penalties])
    errors = (predicted + level - target[1]).square().sum(-1)  # (penalties, rows)
    return (errors @ weight[1].double()).cpu()


def _pairs(inputs: Tensor, strength: Tensor, rest: Tensor, weight: Tensor) -> Tensor:
    """Pairs of inputs whose products correlate with a target, the strongest first, (P, 2)."""
    among = strength.topk(min(MAX_PAIRED, len(strength))).indices
    values, share = inputs[:, among], (weight / weight.sum()).unsqueeze(-1)
    mean, square = ((share * part).mT @ part for part in (values, values.square()))
    spread = (square - mean.square()).sqrt()  # of the products
    first, second = torch.triu_indices(len(among), len(among), 1, device=inputs.device)
    spread = spread[first, second]

    def correlations(rest: Tensor) -> Tensor:
        products = torch.stack(
            [(share * one * values).mT @ values for one in rest.mT.unsqueeze(-1)]
        )
        sizes = products.abs().amax(0)[first, second]
        return torch.where(spread > 1e-6, sizes / spread, 0.0)

    generator = torch.Generator().manual_seed(0)
    orders = (torch.randperm(len(rest), generator=generator) for _ in range(NUM_SHUFFLES))
    by_chance = max(float(correlations(rest[order.to(rest.device)]).max()) for order in orders)
    found = correlations(rest)
    strongest = found.topk(min(MAX_PAIRS, len(found)))
    clear = strongest.indices[strongest.values > max(by_chance, _limit(len(found), rest))]
    return torch.stack([among[first[clear]], among[second[clear]]], -1)


def _rest(found: Relevant, inputs: Tensor, known: Tensor, weight: Tensor) -> Tensor:
    """Standardised targets without the effects of single inputs, by ridge regression, (T, K)."""
    single = _curves(inputs)[:, found.kept.repeat(2)]
    single = _standardised(torch.cat([single, found.terms(inputs)], -1), weight)
    weighted = (weight / weight.sum()).unsqueeze(-1) * single
    gram = weighted.mT @ single
    gram.diagonal().add_(SHRINKAGE)
    return _standardised(known - single @ torch.linalg.solve(gram, weighted.mT @ known), weight)


def _correlations(values: Tensor, known: Tensor, weight: Tensor) -> Tensor:
    """The largest absolute correlation of columns with one of standardised targets, (columns,)."""
    products = (weight.unsqueeze(-1) * _standardised(values, weight)).mT @ known / weight.sum()
    return products.abs().amax(-1)


def _limit(num_values: int, known: Tensor) -> float:
    """What the largest correlation of values with unrelated targets, (T, K), is about."""
    return math.sqrt(2 * math.log(num_values * known.shape[-1]) / len(known))


def _curves(inputs: Tensor) -> Tensor:
    """Inputs and their squares, (T, 2 · width)."""
    return torch.cat([inputs, inputs.square()], -1)


def _standardised(values: Tensor, weight: Tensor) -> Tensor:
    location, scale = location_and_scale(values.double(), weight.double().unsqueeze(-1))
    return ((values.double() - location) / scale).to(weight)
