"""Why a method differs from the paper's by more than the target allows.

By (method, data set) or, where one reason holds for all data sets, by (method, "*"). Figures are
not repeated here: the tables of the page have them.
"""

EXPLANATIONS: dict[tuple[str, str], str] = {
    ("vbll", "power"): (
        "what the paper did otherwise is not known. The last layer of the authors' own package, in "
        "the same training, is no nearer (below), and on Energy both are far better than the "
        "paper. The paper says that its runs never reached the maximum of epochs; here most come "
        "close to it. With smaller initial weights of the last layer NLL and RMSE are further "
        "away; with a third hidden layer, which the example network of the authors' package has "
        "when it is asked for two, far fewer epochs are chosen, as in the paper, but NLL and RMSE "
        "stay (below). Random splits differ in difficulty, and the paper's are not known; on the "
        "same splits MAP, Dropout and SWAG are better than in the paper, while the Gaussian "
        "process, which is exact, is above the paper's RMSE too. Ours, with another optimiser, "
        "smaller batches and a weight decay chosen by cross-validation, does better."
    ),
    ("vbll", "yacht"): (
        "two splits decide the mean of NLL; most others are far better than it (median and worst "
        "under 'Single seeds'). One of them is as bad with the last layer of the authors' package. "
        "The other has easy validation examples, so that training goes on until the noise is too "
        "small for some test example; with smaller initial weights it happens not to (below). Ours "
        "calibrates its tails on held-out data, and has no such split."
    ),
    ("gbll", "*"): (
        "better than the paper's, whose figures are those of Watson et al.; what they did "
        "otherwise is not known. Here the noise is initialised where it is best for the initial "
        "features, and the number of epochs is chosen on validation data."
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
        "hyperparameters are those of all training and validation data. All inputs share one "
        "length scale; the paper's process may have one for each, though on other data sets one "
        "for all agrees better with its figures."
    ),
    ("gp", "wine"): (
        "Wine repeats rows. The marginal likelihood is highest where the process interpolates "
        "them, with the noise at gpytorch's lower bound: repeated test rows then gain much, others "
        "lose much. The paper's process seems to do the same with another bound."
    ),
    ("gp", "yacht"): (
        "slightly better than the paper's; hyperparameters are found by L-BFGS in double "
        "precision, and the paper does not say how it found them."
    ),
    ("dropout", "*"): (
        "better than the paper's. Here the noise variance is learned, the rate is small and "
        "training long ('Settings'). The paper's figures are those of Watson et al., whose "
        "settings are not known."
    ),
    ("ensemble", "*"): (
        "the settings of the paper's figures are not known. Here members predict a variance for "
        "every input, and the NLL of validation data ends training early on Boston and Concrete, "
        "where RMSE is worse, and late on Yacht, where NLL is better ('Settings'). On Power, where "
        "RMSE is worse too, it was given fewer epochs than the paper's maximum, for the sake of "
        "time, and most seeds come close to them."
    ),
    ("swag", "*"): (
        "better than the paper's. It collects weights around a network that is trained as MAP's "
        "is, and so its RMSE is about as good; the paper's is worse than its own MAP's, or equal. "
        "Its settings are not known."
    ),
    ("bbb", "*"): (
        "worse than the paper's, whose figures are those of Watson et al., with settings that are "
        "not known. With the paper's prior and the whole weight of the divergence, validation NLL "
        "is lowest before the posterior of the weights widens, as on Boston, or after thousands of "
        "epochs, when the fit has recovered from it, as on Energy ('Settings'). Power was given "
        "fewer epochs, for the sake of time."
    ),
    ("vbll_bbb", "concrete"): (
        "NLL is better and RMSE worse than the paper's. Most seeds use nearly all epochs."
    ),
    ("vbll_bbb", "energy"): (
        "better than the paper's, as VBLL on features that are not variational is. Most seeds use "
        "nearly all epochs."
    ),
    ("vbll_bbb", "power"): (
        "worse than the paper's. The divergence of the features has its whole weight here, as the "
        "paper says of its own (section 5.2; appendix D has other weights, but for images), and "
        "with it the model underfits. The paper's figures on Concrete and Yacht, with a lower RMSE "
        "and a higher NLL than here, look like a smaller weight; on Yacht a tenth is far better, "
        "also by validation data (below)."
    ),
    ("vbll_bbb", "wine"): (
        "worse than the paper's. The numbers of epochs chosen on validation data vary widely, as "
        "if these said little about when to stop."
    ),
    ("vbll_bbb", "yacht"): (
        "NLL is better and RMSE worse than the paper's. Validation NLL of most seeds is lowest "
        "while the posterior of the features is still narrow and the fit not yet good; it rises "
        "when the posterior widens, and is only on its way down again when the paper's epochs end. "
        "With a tenth of the features' divergence both are far better than the paper's (below)."
    ),
}


def explanation(method: str, dataset: str) -> tuple[str, str] | None:
    """Where a reason holds, a data set or "*", and the reason; None if there is none."""
    for where in (dataset, "*"):
        if (method, where) in EXPLANATIONS:
            return where, EXPLANATIONS[method, where]
    return None
