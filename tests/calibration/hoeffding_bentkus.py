"""Another p-value of losses in [0, 1], with which betting is compared.

Hoeffding-Bentkus (Bates et al., 2021). Let m be the mean of n losses, and
h(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b)). Hoeffding's bound
exp(-n h(min(m, epsilon), epsilon)) and Bentkus' bound e P(Binom(n, epsilon) <= ceil(n m)) are
super-uniform. So is the smaller of the two: both rise with m, hence {min(p, q) <= u} is the larger
of two nested events, each of probability at most u.
"""

import numpy as np
from scipy.special import rel_entr

from sklearn_clm.calibration import binomial_p_value


def hoeffding_bentkus_p_value(losses, epsilon):
    """P-values of a mean loss above epsilon by the Hoeffding-Bentkus bound, as by betting."""
    values = np.asarray(losses, dtype=np.float64)
    n = len(values)
    total = values.sum(axis=0)
    mean = np.minimum(total / n, epsilon)
    divergence = rel_entr(mean, epsilon) + rel_entr(1.0 - mean, 1.0 - epsilon)
    # a sum that rounding has lifted over a whole number only makes the p-value larger
    count = np.minimum(np.ceil(total), n).astype(np.int64)
    bentkus = np.e * np.asarray(binomial_p_value(count, n, epsilon))
    return np.minimum(np.minimum(np.exp(-n * divergence), bentkus), 1.0)
