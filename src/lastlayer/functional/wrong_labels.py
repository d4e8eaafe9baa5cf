"""Labels that are wrong with a probability whose log-odds are a Gaussian last layer."""

import math

import torch.nn.functional as F
from torch import Tensor

NUM_ITERATIONS = 8  # Newton steps for the tilt; half of them are enough below a variance of 10


def tilt_of_log_odds(mean: Tensor, variance: Tensor) -> Tensor:
    r"""The coefficient of `softplus_bound` at its minimum, $a = \sigma(m + (\tfrac12 - a)v)$.

    In $u = \operatorname{logit} a$ it is $u + v\,(\sigma(u) - \tfrac12) = m$, which rises, and is
    concave on the side of zero where u is: Newton's method from zero never steps too far.

    Args:
        mean: m, of any shape.
        variance: v, of that shape.

    Returns:
        a, without gradient, of that shape.
    """
    mean, variance = mean.detach(), variance.detach()
    log_odds = mean / (1 + 0.25 * variance)
    for _ in range(NUM_ITERATIONS):
        tilt = log_odds.sigmoid()
        error = log_odds + variance * (tilt - 0.5) - mean
        log_odds = log_odds - error / (1 + variance * tilt * (1 - tilt))
    return log_odds.sigmoid()


def softplus_bound(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Tilted bound on the expected softplus of a Gaussian (Knowles & Minka, 2011).

    $$E[\log(1 + e^g)] \le \tfrac12 a^2v + \log(1 + e^{m + (1/2 - a)v}), \qquad g \sim N(m, v)$$

    It holds for every a, so a needs no gradient; a = 0 is Jensen's inequality. At the best a the
    slope by m is a, and by v it is $\tfrac12 a(1 - a)$.

    Args:
        mean: m, of any shape.
        variance: v, of that shape.

    Returns:
        Of that shape.
    """
    tilt = tilt_of_log_odds(mean, variance)
    return 0.5 * tilt.square() * variance + F.softplus(mean + (0.5 - tilt) * variance)


def wrong_label_bound(
    log_likelihood: Tensor, log_odds_mean: Tensor, log_odds_variance: Tensor, num_classes: int
) -> Tensor:
    r"""Bound on the expected log-likelihood where labels are drawn at random now and then.

    A label is drawn from all K classes alike with probability $\pi = \sigma(g)$, $g \sim N(m, v)$,
    else from the softmax, whose expected logarithm is at least 𝓛. By Jensen's inequality for the
    convex LSE, with U the `softplus_bound`,

    $$E\log\Big((1 - \pi)p_y + \frac\pi K\Big) \ge
      \log\big(e^{\mathcal L} + e^{m}/K\big) - U(m, v)$$

    which is 𝓛 as m → −∞. The best posterior of a random label, given its class, has the log-odds
    $m - \log K - \mathcal L$.

    Args:
        log_likelihood: 𝓛, (*batch,).
        log_odds_mean: m, (*batch,).
        log_odds_variance: v, (*batch,).
        num_classes: K.

    Returns:
        One value per example, (*batch,).
    """
    of_random = log_odds_mean - math.log(num_classes)
    return log_likelihood.logaddexp(of_random) - softplus_bound(log_odds_mean, log_odds_variance)
