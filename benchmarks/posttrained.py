"""What `posttrain` makes of trained networks, by data that are held out from training.

Networks with one hidden layer of 128 rectified units, trained by AdamW for 100 epochs, as in the
table that post-training was first judged by; of features of a pretrained network, a linear layer.
Each is post-trained with the defaults and with one option changed, with half of the held-out data
as validation data, without and with a temperature from these, and by laplace-torch where that is
installed. Rows have the mean over seeds of
NLL and calibration error (15 bins) on the other half of the held-out data, which are never test
data of an experiment: of IMDB they are other reviews of the training set.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/posttrained.py` or with -m.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.problems import (
    R_TABLES,
    UNSEEN_TABLES,
    WIDTH,
    Problem,
    imdb,
    of_r,
    ratings,
    stored,
    tables,
)
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.calibration import TemperatureScaling
from lastlayer.metrics import expected_calibration_error

Data = tuple[Tensor, Tensor]
Predict = Callable[[Tensor], Tensor]  # inputs to log-probabilities

OPTIONS: dict[str, dict[str, Any]] = {
    "posttrain": {},
    'posttrain, bound="jensen"': {"bound": "jensen"},
    'posttrain, noise="none"': {"noise": "none"},
}
VALIDATED, SCALED, LAPLACE = "posttrain, validation data", "{}, temperature", "Laplace, {}"
STRUCTURES = ("full", "kron", "diag")


def batch_size(num_train: int) -> int:
    return 32 if num_train <= 5000 else 256


def trained(problem: Problem, train: Data, seed: int, epochs: int) -> nn.Sequential:
    """The network, on pretrained features a layer alone."""
    torch.manual_seed(seed)
    inputs, labels = train
    num_classes = int(problem.target.max()) + 1
    layers: list[nn.Module] = [nn.Linear(inputs.shape[1], num_classes)]
    if problem.name != "pretrained":
        layers = [nn.Linear(inputs.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_classes)]
    network = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(batch_size(len(labels))):
            optimizer.zero_grad()
            F.cross_entropy(network(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    return network.eval()


def new_head(network: nn.Module, train: Data, **options: Any) -> ll.Network:
    if train[0].shape[1] > 1000:
        options = {"covariance": "diagonal"} | options  # of the pretrained network: seconds
    return ll.posttrain(network, train, progress=False, max_passes=200, **options)


def posttrained(network: nn.Module, train: Data, **options: Any) -> tuple[Predict, str]:
    """Post-trained, and by what its prior was chosen."""
    model = new_head(network, train, **options)
    return lambda inputs: model(inputs).log_probs(), model.posttraining.reason


def scaled(predict: Callable[[Tensor], Any], validation: Data) -> tuple[Predict, str]:
    """Predictives at the temperature of the lowest NLL of validation data."""
    scaling = TemperatureScaling().fit(predict, validation, progress=False)
    temperature = f"temperature {float(scaling.temperature):.3g}"
    return lambda inputs: scaling(predict(inputs)).log_probs(), temperature


def laplace(network: nn.Sequential, train: Data, structure: str) -> tuple[Predict, str]:
    """The package's Gaussian about the last layer, its prior tuned by the marginal likelihood."""
    from laplace import Laplace
    from laplace.curvature import BackPackGGN
    from torch.utils.data import DataLoader, TensorDataset

    with torch.no_grad():
        features = network[:-1](train[0])
    posterior = Laplace(
        nn.Sequential(nn.Identity(), network[-1]),
        "classification",
        subset_of_weights="last_layer",
        hessian_structure=structure,
        last_layer_name="1",
        backend=BackPackGGN,
    )
    posterior.fit(DataLoader(TensorDataset(features, train[1]), batch_size=1024))
    posterior.optimize_prior_precision(method="marglik")
    tiny = torch.finfo(torch.float32).tiny

    def predict(inputs: Tensor) -> Tensor:
        return posterior(network[:-1](inputs), link_approx="probit").clamp_min(tiny).log()

    return predict, ""


def measure(problem: Problem, seed: int, epochs: int) -> list[Row]:
    train, (inputs, labels) = problem.split(seed)
    half = len(labels) // 2
    validation, (inputs, labels) = (inputs[:half], labels[:half]), (inputs[half:], labels[half:])
    network = trained(problem, train, seed, epochs)
    rows: list[Row] = []

    def score(method: str, make: Callable[[], tuple[Predict, str]]) -> None:
        progress(f"{problem.name}, seed {seed}, {method}")
        clock = time.process_time()
        predict, reason = make()
        seconds = time.process_time() - clock
        with torch.no_grad():
            log_probs = predict(inputs)
        rows.append(
            {
                "data": problem.name,
                "T": problem.num_train,
                "method": method,
                "seed": seed,
                "nll": float(F.nll_loss(log_probs, labels)),
                "ece": float(expected_calibration_error(log_probs.exp(), labels)),
                "seconds": seconds,
                "reason": reason,
            }
        )

    def softmax(inputs: Tensor) -> ll.SoftmaxPredictive:
        return ll.SoftmaxPredictive(network(inputs))

    score("network", lambda: (lambda inputs: softmax(inputs).log_probs(), ""))
    score(SCALED.format("network"), lambda: scaled(softmax, validation))
    for name, options in OPTIONS.items():
        score(name, partial(posttrained, network, train, **options))
    score(VALIDATED, lambda: posttrained(network, train, validation=validation))
    score(
        SCALED.format(VALIDATED),
        lambda: scaled(new_head(network, train, validation=validation), validation),
    )
    if importlib.util.find_spec("laplace") is not None and problem.name != "pretrained":
        for structure in STRUCTURES:
            score(LAPLACE.format(structure), partial(laplace, network, train, structure))
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python benchmarks/posttrained.py --quick        does it run? seconds
  LASTLAYER_DATA=data python benchmarks/posttrained.py --json results/posttrained.json
                                                  with the IMDB embeddings too""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--features", type=Path, help="of a pretrained network, with labels")
    parser.add_argument(
        "--unseen",
        action="store_true",
        help="other tables of R, on which no default was chosen",
    )
    parser.add_argument("--epochs", type=int, default=100, help="of training (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="of data and weights (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one table, two epochs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args()


def problems(arguments: argparse.Namespace) -> list[Problem]:
    found = tables()
    if arguments.quick:
        return [problem for problem in found if problem.name == "wine"]
    if arguments.unseen:
        found = of_r(UNSEEN_TABLES)
    else:
        found += of_r(R_TABLES)
        if "LASTLAYER_DATA" in os.environ:
            folder = Path(os.environ["LASTLAYER_DATA"])
            found = [*imdb(folder), *ratings(folder), *found]
    if arguments.features is not None:
        found.append(stored(arguments.features))
    return found


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    if arguments.quick:
        arguments.epochs, arguments.seeds = 2, 1
    start = time.perf_counter()
    rows: list[Row] = []
    for problem in problems(arguments):
        for seed in range(arguments.seeds):
            rows += measure(problem, seed, arguments.epochs)
            if arguments.json:  # what is measured is kept, whatever happens next
                config = {**vars(arguments), "features": arguments.features is not None}
                about = {**environment(), "seconds": time.perf_counter() - start}
                write_json(arguments.json, config, about, {"posttrained": rows})
    print_table("Held-out scores of post-trained networks", rows)


if __name__ == "__main__":
    main()
