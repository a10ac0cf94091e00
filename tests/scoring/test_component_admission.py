"""Admission of components against any component of a reference."""

import numpy as np
import pytest

from sklearn_clm.scoring import admission_matrix, component_match, rouge_l, threshold_admission
from sklearn_clm.scoring.verdicts import judge

REFERENCE = "The lungs are clear. There is no pleural effusion."


def test_rouge_of_at_least_four_tenths_with_any_sentence():
    admit = component_match("rouge_l")
    for component in ("No effusion.", "Lungs clear.", "There is a mass.", "The heart is large."):
        parts = ["The lungs are clear.", "There is no pleural effusion."]
        best = max(rouge_l(part, component) for part in parts)
        assert admit(REFERENCE, component) is (best >= 0.4)
    assert admit(REFERENCE, "There is no pleural effusion.")
    assert not admit(REFERENCE, "Broken rib.")


def test_splitter_of_the_reference():
    assert not component_match("exact_match")("two; six", "six")
    assert component_match("exact_match", lambda text: text.split(";"))("two; six", "six")
    assert component_match("exact_match", str.splitlines)("a\nb", "B.")


def test_a_reference_without_components_admits_nothing():
    for admit in (component_match("rouge_l"), component_match("exact_match")):
        for reference in ("", "  \n"):
            assert admit(reference, "No effusion.") is False


def test_what_is_not_text_compares_by_equality():
    admit = component_match("rouge_l")
    assert admit(3, 3.0) is True
    assert admit(3, 4) is False
    assert admit("3", 3) is False


def test_all_at_once_as_one_by_one():
    rng = np.random.default_rng(0)
    words = ["the", "heart", "lungs", "are", "is", "clear", "large", "no", "effusion"]
    texts = [" ".join(rng.choice(words, 5)) + "." for _ in range(60)]
    references = [" ".join(texts[i : i + 2]) for i in range(0, 20, 2)] + [[texts[3], texts[9]]]
    components = [texts[20 + 3 * i : 26 + 3 * i] for i in range(10)] + [[]]
    admit = component_match("rouge_l")
    rows = judge(admit, references, components)
    pairs = zip(references, components)
    one_by_one = [[admit(reference, part) for part in parts] for reference, parts in pairs]
    assert [row.tolist() for row in rows] == one_by_one
    slow = component_match(threshold_admission(lambda a, b: rouge_l(a, b), 0.4))
    assert all(np.array_equal(a, b) for a, b in zip(judge(slow, references, components), rows))
    parallel = judge(admit, references, components, n_jobs=2)
    assert all(np.array_equal(a, b) for a, b in zip(parallel, rows))


def test_one_name_has_one_threshold():
    reference, response = "a b c d e f g", "a b c x y z u v w r"  # 6 / 17, between 0.35 and 0.4
    assert rouge_l(reference, response) == pytest.approx(6 / 17)
    for admit in ("rouge_l", component_match("rouge_l")):
        verdicts = admission_matrix(admit, [reference, "a b c d e"], [[response], ["a b x y z"]])
        assert verdicts.tolist() == [[False], [True]]  # the second is 0.4
