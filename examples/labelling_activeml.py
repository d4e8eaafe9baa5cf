"""Label in rounds, as scikit-activeml does: pip install scikit-activeml."""

import numpy as np
import torch
from skactiveml.base import SingleAnnotatorPoolQueryStrategy
from skactiveml.utils import is_labeled
from torch import nn

import lastlayer as ll
from lastlayer.acquisition import select

ROUNDS, BATCH = 8, 10


def fitted(x: np.ndarray, y: np.ndarray) -> ll.Network:
    """A network trained on labelled rows."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    model = ll.Network(backbone, ll.Regression(64, num_data=len(x), bias=True))
    rows = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    ll.fit(model, rows, epochs=100, batch_size=16, learning_rate=3e-3, progress=False)
    return model


class Select(SingleAnnotatorPoolQueryStrategy):
    """A batch by `lastlayer.acquisition.select`; labels that are missing are NaN."""

    def query(self, X, y, candidates=None, batch_size=1, return_utilities=False):  # noqa: N803
        x, y, candidates, size, _ = self._validate_data(X, y, candidates, batch_size, False)
        pool, rows = self._transform_candidates(candidates, x, y)
        known, targets = (part[is_labeled(y, self.missing_label_)] for part in (x, y))
        labelled, inputs = (torch.from_numpy(part).float() for part in (known, pool))
        chosen = select(fitted(known, targets), labelled, inputs, size, progress=False).numpy()
        return chosen if rows is None else rows[chosen]


def main() -> dict[str, float]:
    x = np.random.default_rng(0).uniform(-2, 2, (1500, 2))
    truth, y = np.sin(x[:, 0]) * np.cos(2 * x[:, 1]), np.full(1500, np.nan)
    y[:BATCH] = truth[:BATCH]
    for _ in range(ROUNDS):
        rows = Select(missing_label=np.nan, random_state=0).query(x, y, batch_size=BATCH)
        y[rows] = truth[rows]
    model = fitted(x[is_labeled(y)], y[is_labeled(y)])
    mean = model(torch.from_numpy(x).float()).mean
    return {"rmse": float((mean[:, 0] - torch.from_numpy(truth)).square().mean().sqrt().detach())}


if __name__ == "__main__":
    print(main())
