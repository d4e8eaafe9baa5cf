"""Intervals and unusual rows of a table.

python examples/table.py    # needs lastlayer[sklearn]
"""

import numpy as np
from sklearn.datasets import load_diabetes

from lastlayer.sklearn import LastLayerRegressor


def main() -> dict[str, float]:
    frame, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    frame.loc[::7, "bmi"] = np.nan  # missing values need no preparation
    train, test = frame[::2], frame[1::2]
    model = LastLayerRegressor(max_epochs=32, random_state=0).fit(train, target[::2])

    lower, upper = model.predict_interval(test, level=0.9).T
    known = target[1::2].to_numpy()
    patient = test.head(1).assign(bmi=90.0, bp=300.0)  # a typing error, perhaps
    return {
        "R²": model.score(test, known),
        "coverage of 90 % intervals": np.mean((lower <= known) & (known <= upper)),
        "rows above the threshold": np.mean(model.ood_score(test) > model.ood_threshold_),
        "score over threshold of an odd row": model.ood_score(patient)[0] / model.ood_threshold_,
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:36}{value:.3f}")
