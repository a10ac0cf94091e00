"""Errors, sizes, draws and excess as two whole numbers in float64, so that two sums do for four.

Sums of whole numbers below 2**53 are exact in float64: the result does not depend on the order of
the prompts, nor on how they are shared out among threads.
"""

import math

import numpy as np

from sklearn_clm.calibration._rule import relative_excess

_EXACT_BITS = 53
# an excess is a fraction with a denominator of at most K: whole multiples of 1 / lcm(1, ..., K)
# where that is small, else rounded to a multiple of this
_FINEST = 2**41


class Packing:
    """How many prompts may be summed at once, and where each quantity stands in the sum.

    Parameters
    ----------
    k : int
        Number of draws, K.
    n_prompts : int
        Number of prompts in all.
    """

    def __init__(self, k: int, n_prompts: int) -> None:
        # the grand total of the excess must fit into 63 bits
        finest = min(_FINEST, 2 ** (62 - n_prompts.bit_length()))
        common = math.lcm(*range(1, min(k, 64) + 1))
        self.unit = min(common, finest)
        count_bits, draw_bits = 1, k.bit_length()
        while (
            3 * (count_bits + 1) + 2 * draw_bits <= _EXACT_BITS
            and count_bits + 1 + self.unit.bit_length() <= _EXACT_BITS
        ):
            count_bits += 1
        self.max_prompts = 2**count_bits - 1
        self.size_unit = 2.0**count_bits
        self.samples_unit = 2.0 ** (2 * count_bits + draw_bits)
        self.k = k

    def excess(self, admissible: np.ndarray) -> np.ndarray:
        """Excess (n, K) of stopping after each draw, in whole units."""
        first = np.where(admissible.any(axis=1), admissible.argmax(axis=1) + 1, 0)
        shares = relative_excess(np.arange(1, self.k + 1), first[:, np.newaxis])
        # exact where the unit is the common denominator: the product is a whole number but for
        # the rounding of the quotient, which is far less than one half
        return np.rint(shares * float(self.unit))

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """Sums of errors, size, samples, and excess in units: four arrays of int64 in one."""
        counts, excess = packed.real, packed.imag
        samples = np.floor(counts / self.samples_unit)
        counts = counts - samples * self.samples_unit
        size = np.floor(counts / self.size_unit)
        errors = counts - size * self.size_unit
        return np.stack([errors, size, samples, excess]).astype(np.int64)
