"""The paper's numbers for the UCI data sets: its two tables of regression results.

Facts copied from "Variational Bayesian Last Layers" (ICLR 2024), mean ± standard error over seeds,
in the printed digits. Most baselines are those of Watson et al. (2021), with whom the paper
compares directly.
"""

from __future__ import annotations

from typing import NamedTuple

DATASETS = ("boston", "concrete", "energy", "power", "wine", "yacht")


class Estimate(NamedTuple):
    """A mean over seeds and its standard error."""

    mean: float
    stderr: float


# Columns as in DATASETS.
_NLL = {
    "vbll": ((2.55, 0.06), (3.22, 0.07), (1.37, 0.08), (2.73, 0.01), (1.02, 0.03), (1.29, 0.17)),
    "gbll": ((2.90, 0.05), (3.09, 0.03), (0.69, 0.03), (2.77, 0.01), (1.02, 0.01), (1.67, 0.11)),
    "ldgbll": ((2.60, 0.04), (2.97, 0.03), (4.80, 0.18), (2.77, 0.01), (1.02, 0.01), (1.13, 0.06)),
    "map": ((2.60, 0.07), (3.04, 0.04), (1.44, 0.09), (2.77, 0.01), (0.96, 0.01), (5.14, 1.62)),
    "gp": ((2.41, 0.06), (3.08, 0.02), (0.66, 0.04), (2.76, 0.01), (0.45, 0.01), (0.17, 0.03)),
    "dropout": ((2.36, 0.04), (2.90, 0.02), (1.33, 0.00), (2.80, 0.01), (0.93, 0.01), (1.82, 0.01)),
    "ensemble": (
        (2.48, 0.09), (3.04, 0.08), (0.58, 0.07), (2.70, 0.01), (0.95, 0.01), (0.35, 0.07)
    ),
    "swag": ((2.64, 0.16), (3.19, 0.05), (1.23, 0.08), (2.77, 0.02), (0.96, 0.03), (1.11, 0.05)),
    "bbb": ((2.39, 0.04), (2.97, 0.03), (0.63, 0.05), (2.77, 0.01), (0.95, 0.01), (1.43, 0.17)),
    "vbll_bbb": (
        (2.59, 0.07), (3.36, 0.22), (1.35, 0.15), (2.74, 0.01), (0.94, 0.03), (2.96, 0.59)
    ),
}  # fmt: skip
_RMSE = {
    "vbll": ((2.92, 0.12), (5.09, 0.13), (0.87, 0.04), (3.68, 0.03), (0.65, 0.01), (0.86, 0.17)),
    "gbll": ((4.19, 0.17), (5.01, 0.18), (0.46, 0.02), (3.85, 0.03), (0.64, 0.01), (1.09, 0.09)),
    "ldgbll": ((3.38, 0.18), (4.80, 0.18), (0.50, 0.02), (3.85, 0.04), (0.64, 0.01), (0.75, 0.10)),
    "map": ((3.02, 0.17), (4.75, 0.12), (0.53, 0.01), (3.81, 0.04), (0.63, 0.01), (0.94, 0.09)),
    "gp": ((2.83, 0.16), (5.62, 0.13), (0.47, 0.01), (3.72, 0.04), (0.56, 0.05), (0.40, 0.03)),
    "dropout": ((2.78, 0.16), (4.45, 0.11), (0.53, 0.01), (3.90, 0.04), (0.61, 0.01), (1.21, 0.13)),
    "ensemble": (
        (2.79, 0.17), (4.55, 0.12), (0.41, 0.02), (3.59, 0.04), (0.63, 0.01), (0.83, 0.08)
    ),
    "swag": ((3.08, 0.35), (5.50, 0.16), (0.93, 0.09), (3.85, 0.05), (0.63, 0.01), (1.13, 0.20)),
    "bbb": ((2.74, 0.16), (4.80, 0.13), (0.43, 0.01), (3.86, 0.04), (0.63, 0.01), (1.10, 0.11)),
    "vbll_bbb": (
        (3.13, 0.19), (5.16, 0.16), (0.062, 0.03), (3.73, 0.04), (0.61, 0.01), (0.79, 0.05)
    ),
}  # fmt: skip

# By (method, data set, metric).
UCI: dict[tuple[str, str, str], Estimate] = {
    (method, dataset, metric): Estimate(*cell)
    for metric, rows in (("nll", _NLL), ("rmse", _RMSE))
    for method, row in rows.items()
    for dataset, cell in zip(DATASETS, row, strict=True)
}

# Cells that look like misprints: shown, but neither marked as best nor compared.
SUSPECT: dict[tuple[str, str, str], str] = {
    ("ldgbll", "energy", "nll"): "the same number as its RMSE on Concrete",
    ("vbll_bbb", "energy", "rmse"): "probably 0.62",
}

# Why a method differs from the paper's by more than the target allows, by (method, data set)
# or, where one reason holds for all data sets, by (method, "*").
EXPLANATIONS: dict[tuple[str, str], str] = {
    ("vbll", "power"): (
        "what the paper did otherwise is not known. The last layer of the authors' own package, in "
        "the same training on five of the splits, is no nearer (below), and on Energy both have "
        "about half the paper's RMSE. The paper says that its runs never reached the 3,000 epochs; "
        "here most seeds use more than 2,500. Training gets further with the first weights of the "
        "last layer as large as they are: with smaller ones RMSE is nearly twice as far away, and "
        "NLL further too (below). With a third hidden layer, which the example network of the "
        "authors' package has when it is asked for two, far fewer epochs are chosen and no seed "
        "reaches the limit, as in the paper, but NLL and RMSE stay (below). Our splits are more "
        "than half of it: trees find them harder than the average split, and what is left after "
        "adjusting for that is little more than one of the paper's standard errors ('Luck of the "
        "splits'). On the next twenty, seeds 20 to 39, VBLL has an NLL of 2.73 ± 0.01 and an RMSE "
        "of 3.70 ± 0.04, within the target (not kept; `uci --datasets power --methods vbll --seeds "
        "40 --results elsewhere` has them). Splits are not all: on the same hard ones MAP, Dropout "
        "and SWAG are better than in the paper. The Gaussian process, which is exact and does not "
        "depend on training, is above the paper's RMSE too. Tried without success, by validation "
        "NLL of four seeds: larger first weights of the features, a constant feature, scaled "
        "targets, noise that starts at one, a steeper leaky ReLU, weight decay of the last layer "
        "too, gradients that are not clipped (with the smaller first weights, in runs that were "
        "not kept). Ours, with another optimiser, smaller batches and a weight decay chosen by "
        "cross-validation, does better."
    ),
    ("vbll", "yacht"): (
        "two splits decide the mean of NLL, seeds 11 and 13; most others are far better than it "
        "(median and worst under 'Single seeds'). Seed 11 is as bad with the last layer of the "
        "authors' package. Seed 13 has the lowest validation NLL of all: its 55 validation "
        "examples are easy, and training goes on until the noise is too small for some test "
        "example. With smaller first weights it is not so, and the mean is within the target "
        "(below). That is chance, not merit: within training and validation data, with each of "
        "four sizes of the first weights, five or six of 80 runs had an NLL above 4 (not kept). "
        "Ours calibrates its tails on held-out data, and has no such split."
    ),
    ("gbll", "*"): (
        "better than the paper's, whose figures are those of Watson et al.; what they did "
        "otherwise is not known. Here the noise starts where it is best for the first features. "
        "Trained for 2,000 epochs instead of the chosen ones, about 230, Boston's RMSE is 4.1 "
        "here too (five seeds), but its NLL 82: too long a training may be a part of it, not all."
    ),
    ("ldgbll", "*"): "better than the paper's where GBLL is, whose code it shares.",
    ("map", "*"): (
        "better than the paper's. The noise is the one learned with the features on the way, and "
        "the number of epochs is chosen on validation data. If the noise is estimated anew from "
        "the trained features it is far too small, which is what the paper's NLL on Yacht looks "
        "like."
    ),
    ("gp", "power"): (
        "RMSE is worse than the paper's, while NLL agrees. The process is exact, and its "
        "hyper-parameters are those of all training and validation data. All inputs share one "
        "length scale; with one for each the marginal likelihood is higher (1,500 examples of the "
        "first seed, in a run that was not kept): the paper's process may have them, though on "
        "other data sets one for all agrees better with its figures. Our splits, harder than the "
        "average ('Luck of the splits'), are a part of it."
    ),
    ("gp", "wine"): (
        "Wine repeats rows. The marginal likelihood is highest where the process interpolates "
        "them, with the noise at its lower bound (a variance of 1e-4 of the targets', gpytorch's "
        "own): repeated test rows then gain much, others lose much. The paper's process seems to "
        "do the same with another bound."
    ),
    ("gp", "yacht"): (
        "slightly better than the paper's; hyper-parameters are found by L-BFGS in double "
        "precision, and the paper does not say how it found them."
    ),
    ("dropout", "*"): (
        "better than the paper's. Here the noise variance is learned, the rate is small (0.05) and "
        "training long: on Energy and Yacht most seeds use 1,700 or more of the 2,000 epochs. The "
        "paper's figures are those of Watson et al., whose settings are not known."
    ),
    ("ensemble", "*"): (
        "the settings of the paper's figures are not known. Here members predict a variance for "
        "every input, and the NLL of validation data ends training after 10 to 120 epochs on "
        "Boston and 20 to 420 on Concrete, where RMSE is worse, and after 600 or more on Yacht, "
        "where NLL is better. On Power, where RMSE is worse too, it was given 1,000 epochs, for "
        "the sake of time, and 18 of 20 seeds use 880 or more."
    ),
    ("swag", "*"): (
        "better than the paper's. It collects weights around a network that is trained as MAP's "
        "is, and so its RMSE is about as good; the paper's is worse than its own MAP's, or equal. "
        "Its settings are not known."
    ),
    ("bbb", "*"): (
        "worse than the paper's, whose figures are those of Watson et al., with settings that are "
        "not known. With the paper's prior and the whole weight of the divergence, validation NLL "
        "is lowest before the posterior of the weights widens, after 40 to 120 epochs on Boston "
        "and for six seeds of ten on Concrete, or after thousands of epochs, when the fit has "
        "recovered from it, as on Energy. Intervals of 90 % cover 94 to 96 % there. Power was "
        "given 1,000 epochs, of which seven seeds of ten use 740 or more."
    ),
    ("vbll_bbb", "concrete"): (
        "NLL is better and RMSE worse than the paper's. All seeds use 6,100 or more of the 10,000 "
        "epochs."
    ),
    ("vbll_bbb", "energy"): (
        "better than the paper's, as VBLL on features that are not variational is. Nine seeds of "
        "ten use 9,300 or more of the 10,000 epochs."
    ),
    ("vbll_bbb", "power"): (
        "worse than the paper's. Seeds use 4,700 to 9,800 of the paper's 10,000 epochs. The "
        "divergence of the features has its whole weight here, as the paper says of its own "
        "(section 5.2; appendix D has other weights, but for images), and with it the model "
        "underfits. The paper's figures on Concrete and Yacht, with a lower RMSE and a higher NLL "
        "than here, look like a smaller weight; on Yacht a tenth is far better, also by validation "
        "data (below)."
    ),
    ("vbll_bbb", "wine"): (
        "worse than the paper's. The numbers of epochs chosen on validation data go from 100 to "
        "9,600, as if these said little about when to stop."
    ),
    ("vbll_bbb", "yacht"): (
        "NLL is better and RMSE worse than the paper's. Validation NLL is lowest after 300 epochs "
        "for six seeds of ten, while the posterior of the features is still narrow and the fit not "
        "yet good; it rises when the posterior widens, and is only on its way down again when the "
        "paper's 10,000 epochs end. With a tenth of the features' divergence "
        "both are far better than the paper's (below)."
    ),
}
