"""The methods of the image experiment, with the settings of each for both backbones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..baselines.calibrated_generative import CalibratedGenerative
from ..baselines.calibrated_posttrained import CalibratedPosttrained
from ..baselines.deterministic import Deterministic
from ..baselines.discriminative import DiscriminativeVBLL
from ..baselines.dropout import Dropout
from ..baselines.generative_densities import GenerativeDensity, GenerativeMAP
from ..baselines.held_out_choice import HeldOutChoice
from ..baselines.held_out_temperature import HeldOutTemperature
from ..baselines.kept_ensemble import KeptEnsemble
from ..baselines.laplace import LastLayerLaplace
from ..baselines.posttrained_vbll import PosttrainedGenerative, PosttrainedVBLL
from ..baselines.single_layer_bbb import DiscriminativeBBB, GenerativeBBB, LastLayerBBB
from ..baselines.sngp import SNGP
from ..harness.method import Entry, Method

DATASETS = ("cifar10", "cifar100")
NUM_TRAIN = {"cifar10": 47_500, "cifar100": 19_000}
NUM_SEEDS = dict.fromkeys(DATASETS, 3)  # as in the paper
ALONE = dict.fromkeys(DATASETS, 1)  # seeds of a job

# The small network: the published recipe, at its batch size of 512 half the learning rate of 1,024.
SMALL: dict[str, Any] = {
    "epochs": {"cifar10": 16, "cifar100": 24},
    "batch_size": 512,
    "learning_rate": 0.75,
    "weight_decay": 1.3e-3,  # 0.002 per step of 1,024, at the learning rate of 1.5
    "clip": 2.0,  # paper, appendix D
    "schedule": "one_cycle",
    "optimizer": "nesterov",
    "momentum": 0.85,
    "precision": "bfloat16",
}
# The paper's network: appendix D, and Zagoruyko & Komodakis (2016) where it points to them.
WIDE: dict[str, Any] = {
    "epochs": 300,
    "batch_size": 128,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "clip": 2.0,
    "schedule": "cosine",
    "optimizer": "sgd",
    "momentum": 0.9,
}
# Of SNGP's, whose features vary less. With ten classes more is unstable (decision 40).
LOGIT_SCALE = {"cifar10": 0.125, "cifar100": 0.25}
LONGER = {"epochs": 400}  # of BBB, with the paper's network
TRAINING = {"small": SMALL, "wrn-28-10": WIDE}


def entry(method: type[Method], settings: Mapping[str, Any], **about: Any) -> Entry:
    """A method with its seeds, each of which is a job."""
    return Entry(method=method, settings=settings, num_seeds=NUM_SEEDS, together=ALONE, **about)


def methods_of(backbone: str) -> dict[str, Entry]:
    """All methods by name, in the order of tables."""
    usual = TRAINING[backbone]
    longer = usual if backbone == "small" else usual | LONGER
    logits = {"logit_scale": LOGIT_SCALE} if backbone == "small" else {}
    return {
        "dnn": entry(
            Deterministic, usual, label="DNN", about="The network with a softmax, as usual."
        ),
        "temperature": entry(HeldOutTemperature, usual),
        "sngp": entry(SNGP, usual | logits),
        "d_vbll": entry(DiscriminativeVBLL, usual),
        "g_vbll": entry(GenerativeDensity, usual),
        "dnn_laplace": entry(
            LastLayerLaplace, usual | {"structure": "kron"}, label="DNN + LL Laplace"
        ),
        "dnn_d_vbll": entry(PosttrainedVBLL, usual),
        "dnn_g_vbll": entry(PosttrainedGenerative, usual),
        "g_vbll_map": entry(GenerativeMAP, usual),
        "g_vbll_map_evidence": entry(
            GenerativeMAP,
            usual | {"density_variance": "evidence"},
            label="G-VBLL + MAP, s learned",
            about="The same with the likeliest prior variance of class means, in place of one.",
        ),
        "dnn_posttrain": entry(CalibratedPosttrained, usual),
        "g_vbll_posttrain": entry(CalibratedGenerative, usual),
        "ours": entry(HeldOutChoice, usual),
        "dropout": entry(Dropout, usual | {"num_prediction_samples": 10}),
        "ensemble": entry(KeptEnsemble, usual),
        "bbb": entry(LastLayerBBB, longer),
        "d_vbll_bbb": entry(DiscriminativeBBB, longer),
        "g_vbll_bbb": entry(GenerativeBBB, longer),
    }


# Methods as the paper's tables name them.
PAPER = {
    "dnn": "DNN",
    "sngp": "SNGP",
    "d_vbll": "D-VBLL",
    "g_vbll": "G-VBLL",
    "dnn_laplace": "DNN + LL Laplace",
    "dnn_d_vbll": "DNN + D-VBLL",
    "dnn_g_vbll": "DNN + G-VBLL",
    "g_vbll_map": "G-VBLL + MAP",
    "dropout": "Dropout",
    "ensemble": "Ensemble",
    "bbb": "BBB",
    "d_vbll_bbb": "D-VBLL BBB",
    "g_vbll_bbb": "G-VBLL BBB",
}
OURS = ("ours", "dnn_posttrain", "g_vbll_posttrain")  # the first is one of the others
