"""A Bayesian last layer for a classifier that is already trained, beside its softmax.

python examples/pretrained.py    # needs lastlayer[metrics,sklearn]
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import lastlayer as ll
from lastlayer import metrics


def trained_classifier(train: tuple[torch.Tensor, torch.Tensor]) -> nn.Module:
    """A network that knows its few training images by heart."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    model.append(nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train[0]), train[1]).backward()
        optimizer.step()
    return model


def main() -> dict[str, float]:
    torch.manual_seed(0)
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    images, order = images.float() / 16, torch.randperm(len(labels))
    train, validation, test = (
        (images[part], labels[part]) for part in order.split([150, 150, len(labels) - 300])
    )
    model = trained_classifier(train)
    bayesian = ll.posttrain(model, train, validation=validation, progress=False)

    before = metrics.evaluate(ll.Plain(model, "classification"), test)
    after = metrics.evaluate(bayesian, test)
    return {
        "accuracy": before["accuracy"],
        "accuracy, post-trained": after["accuracy"],
        "NLL": before["nll"],
        "NLL, post-trained": after["nll"],
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:32}{value:.3f}")
