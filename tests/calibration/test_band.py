"""The band of epsilon says what no set can reach, and what one draw does as well."""

import numpy as np
import pytest

from sklearn_clm.calibration.band import AchievableEpsilon


def test_the_band_is_that_of_all_draws_and_of_the_first():
    admissible = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]])
    assert AchievableEpsilon.of_labels(admissible == 1) == (0.25, 0.75)


@pytest.mark.parametrize(
    ("band", "k_max", "words"),
    [
        ((np.nan, np.nan), 3, ""),
        ((1.0, 1.0), 3, "No draw of these prompts is admissible"),
        ((0.25, 0.25), 1, "The one draw errs for 25 % of the prompts."),
        ((0.25, 0.25), 3, "25 %; the other draws found nothing more."),
        ((0.25, 0.75), 3, "err for 75 % of the prompts, and sets of all 3 draws still for 25 %"),
    ],
)
def test_it_says_so_in_a_sentence(band, k_max, words):
    sentence = AchievableEpsilon(*band).words(k_max)
    assert words in sentence
    assert bool(sentence) == bool(words)
