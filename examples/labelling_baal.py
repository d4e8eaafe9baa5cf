"""Label digits in rounds with baal's data sets, chosen by the posterior.

pip install baal; python examples/labelling_baal.py
"""

import torch
from baal.active.dataset import ActiveLearningDataset
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import lastlayer as ll
from lastlayer.acquisition import select

ROUNDS, BATCH = 6, 20


def train(dataset: ActiveLearningDataset) -> ll.Network:
    """A network trained on what is labelled."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    head = ll.DiscriminativeClassification(64, 10, num_data=len(dataset))
    model = ll.Network(backbone, head)
    ll.fit(model, dataset, epochs=60, batch_size=16, learning_rate=3e-3, progress=False)
    return model


def main() -> dict[str, float]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(labels)
    dataset = ActiveLearningDataset(TensorDataset(x[:1200], y[:1200]))
    dataset.label(list(range(BATCH)))
    for _ in range(ROUNDS):
        model = train(dataset)
        chosen = select(model, dataset, dataset.pool, BATCH, progress=False)
        dataset.label(chosen.tolist())  # indices into dataset.pool
    probs = train(dataset)(x[1200:]).probs()
    accuracy = (probs.argmax(-1) == y[1200:]).float().mean()
    return {"labels": len(dataset), "accuracy": float(accuracy)}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:32}{value:.3f}")
