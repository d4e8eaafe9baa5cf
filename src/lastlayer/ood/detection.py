"""How well scores tell out-of-distribution examples from others."""

from __future__ import annotations

import torch
from torch import Tensor


def detection(in_scores: Tensor, out_scores: Tensor) -> dict[str, float]:
    """AUROC, AUPR and FPR of detection by scores that are higher further out.

    Out is the positive class, as in OpenOOD.

    Args:
        in_scores: of examples like the training data, any shape.
        out_scores: of others, any shape.

    Returns:
        `auroc`, how often a random example from outside scores above one from inside, ties
        counting half; `aupr`, the average precision with out as the positive class, which for
        chance is the fraction of examples that are out; `fpr95`, the fraction of examples from
        inside that are flagged at the highest threshold that flags at least 95 % of those from
        outside. For the other convention, in as the positive class, pass `(-out, -in)`.
    """
    # double precision, which not every device has, tells all ranks apart
    inside, outside = (
        scores.detach().cpu().double().flatten() for scores in (in_scores, out_scores)
    )
    for name, scores in (("in_scores", inside), ("out_scores", outside)):
        if not len(scores) or bool(scores.isnan().any()):
            what = "NaN" if len(scores) else "none"
            raise ValueError(f"{name} must hold at least one score and no NaN, got {what}")
    values, rank = torch.cat([inside, outside]).unique(return_inverse=True)
    # examples at each value, from the highest down
    ins = rank[: len(inside)].bincount(minlength=len(values)).flip(0).double()
    outs = rank[len(inside) :].bincount(minlength=len(values)).flip(0).double()
    false, true = ins.cumsum(0), outs.cumsum(0)  # flagged at each threshold
    auroc = (ins * (true - outs / 2)).sum() / (len(inside) * len(outside))
    aupr = (outs * true / (true + false)).sum() / len(outside)
    first = int((100 * true < 95 * len(outside)).sum())
    return {
        "auroc": auroc.item(),
        "aupr": aupr.item(),
        "fpr95": (false[first] / len(inside)).item(),
    }
