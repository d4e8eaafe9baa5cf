"""Which score detects images of digits that were not in the training data?

python examples/out_of_distribution.py    # needs lastlayer[metrics,sklearn]
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import lastlayer as ll
from lastlayer import metrics, ood

NUM_CLASSES = 8  # 8 and 9 are out of distribution


def main() -> dict[str, float]:
    torch.manual_seed(0)
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    images, known = images.float() / 16, labels < NUM_CLASSES
    inputs, targets = images[known], labels[known]
    train, test = (inputs[::2], targets[::2]), (inputs[1::2], targets[1::2])

    backbone = nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
    head = ll.DiscriminativeClassification(64, NUM_CLASSES, num_data=len(train[0]), bias=True)
    model = ll.Network(backbone, head)
    ll.fit(model, train, epochs=30, learning_rate=3e-3, progress=False)

    density = ood.FeatureDensity.from_model(model, train)  # Gaussian densities of the features
    inside = metrics.evaluate(model, test)
    entropy = metrics.evaluate_ood(model, test[0], images[~known], "predictive_entropy")
    features = metrics.evaluate_ood(model.backbone, test[0], images[~known], density)
    return {
        "accuracy": inside["accuracy"],
        "expected calibration error": inside["ece"],
        "AUROC of the entropy": entropy["auroc"],
        "AUROC of the feature density": features["auroc"],
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:32}{value:.3f}")
