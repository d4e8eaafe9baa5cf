"""Sentiment of film reviews with nothing chosen: our defaults beside peers, on test reviews.

Sentence embeddings (384 numbers) of IMDB reviews, a hidden layer of 128 rectified units and two
classes; AdamW at 1e-3 with a weight decay of 0.01, 100 epochs in batches of 32 (of 256 from 5,000
reviews on). Rows have NLL and calibration error (15 bins) on all 25,000 test reviews. A report on
defaults that were chosen on other data, not a place to choose any.
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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/reviews.py` or `python -m benchmarks.reviews`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.posttrained import Data, Predict, batch_size, laplace, posttrained, trained
from benchmarks.problems import WIDTH, Problem, reviews
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.metrics import expected_calibration_error

SIZES = (10, 100, 1000, 25_000)
MAX_VBLL = 1000  # reviews; with more it would take as long as all other rows together


def hidden(inputs: Tensor) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs.shape[1], WIDTH), nn.ReLU())


def logistic(train: Data, seed: int) -> Predict:
    """Logistic regression on the embeddings, C by five-fold cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold

    inputs, labels = (part.numpy() for part in train)
    folds = StratifiedKFold(5 if len(labels) > 10 else 2, shuffle=True, random_state=seed)
    model = LogisticRegressionCV(
        Cs=[10.0**power for power in range(-2, 5)],
        cv=folds,
        scoring="neg_log_loss",
        max_iter=1000,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    ).fit(inputs, labels)
    return lambda inputs: torch.from_numpy(model.predict_log_proba(inputs.numpy())).float()


def fitted(train: Data, seed: int, epochs: int) -> Predict:
    """A network with a discriminative head, trained by `fit` as the softmax network is."""
    torch.manual_seed(seed)
    head = ll.DiscriminativeClassification(WIDTH, 2, num_data=len(train[1]))
    model = ll.Network(hidden(train[0]), head)
    size = batch_size(len(train[1]))
    ll.fit(model, train, epochs=epochs, batch_size=size, seed=seed, progress=False)
    return lambda inputs: model.eval()(inputs).log_probs()


def package(train: Data, seed: int, epochs: int) -> Predict:
    """The authors' package with its own defaults, trained likewise."""
    import vbll

    torch.manual_seed(seed)
    inputs, labels = train
    layer = vbll.DiscClassification(WIDTH, 2, 1 / len(labels))
    network = nn.Sequential(hidden(inputs), layer)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(batch_size(len(labels))):
            optimizer.zero_grad()
            network(inputs[rows]).train_loss_fn(labels[rows]).backward()
            optimizer.step()
    return lambda inputs: network(inputs).predictive.probs.log()


def measure(problem: Problem, test: Data, seed: int, epochs: int) -> list[Row]:
    train, _ = problem.split(seed)
    network = trained(problem, train, seed, epochs)
    makers: dict[str, Callable[[], Predict]] = {
        "logistic regression": partial(logistic, train, seed),
        "network, softmax": lambda: lambda inputs: network(inputs).log_softmax(-1),
        "`fit`, discriminative": partial(fitted, train, seed, epochs),
        "`posttrain`, discriminative": lambda: posttrained(network, train)[0],
        "`posttrain`, generative": lambda: posttrained(network, train, head="generative")[0],
    }
    if importlib.util.find_spec("laplace") is not None:
        makers["laplace-torch, full"] = lambda: laplace(network, train, "full")[0]
    if importlib.util.find_spec("vbll") is not None and problem.num_train <= MAX_VBLL:
        makers["`vbll`, discriminative"] = partial(package, train, seed, epochs)
    rows: list[Row] = []
    for name, make in makers.items():
        progress(f"{problem.name}, seed {seed}, {name}")
        clock = time.process_time()
        predict = make()
        seconds = time.process_time() - clock
        with torch.no_grad():
            log_probs = predict(test[0])
        nll = float(F.nll_loss(log_probs, test[1]))
        error = float(expected_calibration_error(log_probs.exp(), test[1]))
        row = {"T": problem.num_train, "method": name, "seed": seed}
        rows.append(row | {"nll": nll, "ece": error, "seconds": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  LASTLAYER_DATA=data python benchmarks/reviews.py --json results/reviews.json
  LASTLAYER_DATA=data python benchmarks/reviews.py --sizes 10 --epochs 2    does it run?""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="training reviews")
    parser.add_argument("--epochs", type=int, default=100, help="of training (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="of data and weights (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    if "LASTLAYER_DATA" not in os.environ:
        raise SystemExit("set LASTLAYER_DATA to the folder that holds imdb/minilm_embeddings.npz")
    torch.set_num_threads(1)
    start = time.perf_counter()
    folder = Path(os.environ["LASTLAYER_DATA"])
    data, test = reviews(folder, "labels"), reviews(folder, "labels", train=False)
    rows: list[Row] = []
    for size in arguments.sizes:
        for seed in range(arguments.seeds):
            rows += measure(Problem(f"imdb, {size}", *data, size, 0), test, seed, arguments.epochs)
            if arguments.json:  # what is measured is kept, whatever happens next
                about = {**environment(), "seconds": time.perf_counter() - start}
                write_json(arguments.json, vars(arguments), about, {"reviews": rows})
    print_table("Test scores with nothing chosen", rows)


if __name__ == "__main__":
    main()
