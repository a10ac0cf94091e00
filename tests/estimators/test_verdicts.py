"""Verdicts on draws, and judges that fail."""

import functools

import numpy as np
import pytest

from sklearn_clm import (
    ConformalSampler,
)
from sklearn_clm.generators import (
    PrecomputedGenerator,
)
from tests import toy
from tests.toy import questions

N_FIT = 150


X, y = questions(N_FIT)


toy_sampler = functools.partial(toy.toy_sampler, k_max=8, epsilon=0.3, random_state=3)


@pytest.mark.parametrize("kind", [list, tuple, set])
def test_each_reference_of_a_list_is_judged_by_itself_and_a_dict_whole(kind):
    X, y = questions(60)
    seen = set()

    def note(reference, response):
        seen.add(type(reference))
        return str(response) in reference

    many, whole = [kind([answer, "else"]) for answer in y], [{answer: 1} for answer in y]
    toy_sampler(admission=note, k_max=1).collect(X, many)
    assert seen == {str}
    toy_sampler(admission=note, k_max=1).collect(X, whole)
    assert seen == {str, dict}


@pytest.mark.parametrize("references", [np.arange(60), [b"answer"] * 60])
def test_numbers_as_references_of_texts_are_refused_before_all_is_drawn(references, tmp_path):
    log = tmp_path / "log"
    with pytest.raises(TypeError, match="must be texts"):
        toy_sampler(log=log).fit(questions(60)[0], references)
    assert len(log.read_text().splitlines()) < 60
    numbers = PrecomputedGenerator(questions(60)[0], [[5, 5, 7]] * 60)
    with pytest.raises(TypeError, match="must be texts"):
        ConformalSampler(numbers, k_max=3, quality="self_consistency").fit(*questions(60))


@pytest.mark.parametrize("judging", ["all", "lazy"])
def test_a_judge_that_fails_is_named_with_what_it_was_asked_about(judging):
    X, y = questions(60)

    def judge(reference, response):
        if reference == y[50]:
            raise RuntimeError("out of order")
        return reference == response

    with pytest.raises(RuntimeError) as caught:
        toy_sampler(admission=judge, judging=judging, epsilon=0.1).fit(X, y)
    notes = " ".join(caught.value.__notes__)
    assert f"reference {y[50]!r}" in notes
    assert f"position 50: {X[50]!r}" in notes
