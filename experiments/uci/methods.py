"""The methods of the tables by name."""

from __future__ import annotations

from .baselines import variants
from .baselines.bbb import BBB
from .baselines.dropout import Dropout
from .baselines.ensemble import Ensemble
from .baselines.gbll import GBLL
from .baselines.gp import GP
from .baselines.ldgbll import LDGBLL
from .baselines.map import MAP
from .baselines.ours import Ours
from .baselines.swag import SWAG
from .baselines.vbll import VBLL
from .baselines.vbll_bbb import VBLLBBB
from .baselines.vbll_package import VBLLPackage
from .method import Method

METHODS: dict[str, type[Method]] = {
    "ours": Ours,
    "vbll": VBLL,
    "gbll": GBLL,
    "ldgbll": LDGBLL,
    "map": MAP,
    "gp": GP,
    "dropout": Dropout,
    "ensemble": Ensemble,
    "swag": SWAG,
    "bbb": BBB,
    "vbll_bbb": VBLLBBB,
    "vbll-package": VBLLPackage,
    "vbll-start": variants.SmallerStart,
    "vbll-deeper": variants.Deeper,
    "vbll_bbb-lighter": variants.LighterFeatures,
    "ours-adamw": variants.Adam,
    "ours-centred": variants.CentredTargets,
    "ours-noise": variants.PaperNoisePrior,
    "ours-bias": variants.NoBias,
    "ours-constant": variants.ConstantRate,
    "ours-start": variants.LargerStart,
    "ours-conjugate": variants.Conjugate,
    "ours-prior": variants.WidePrior,
    "ours-decay": variants.NoDecay,
    "ours-fold": variants.OneFold,
}
