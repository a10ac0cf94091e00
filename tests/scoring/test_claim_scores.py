"""Scores of claims: their values, and that none falls as draws are added."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from sklearn_clm.caching import CachedAdmission, CachedScore
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import (
    Citation,
    Claim,
    ClaimSupport,
    CombinedScore,
    GroundedIn,
    PairJudge,
    Support,
    VerbalisedConfidence,
)
from sklearn_clm.scoring._components import component_scores, distinct_components

LETTERS = "abcdef"


def says(response, claim):
    return claim in response


def half_says(response, claim):
    return 0.5 * (claim in response)


class Judge(PairJudge):
    def judge_pairs(self, references, responses):
        return enumerate(says(*pair) for pair in zip(references, responses))


def rows_of(texts):
    """Draws, and a claim for each letter but for the first, which rests on that before it."""
    draws = [Generation(text) for text in texts]
    claims = [
        [Claim(letter, parents=(k - 1,) if k % 2 else ()) for k, letter in enumerate(text)]
        for text in texts
    ]
    return draws, claims


def scores_of(score, prompt, texts, members=None):
    """The score of each claim of the accepted draws, by the rule of the package."""
    draws, claims = rows_of(texts)
    members = range(len(texts)) if members is None else members
    (scores,) = component_scores(score, [prompt], [draws], [claims], members=[members])
    found = distinct_components(
        [texts[j] for j in members], members, [claims[j] for j in members], scores
    )
    return dict(zip(found.components, found.scores.tolist()))


def refuse_falling(score, prompt, texts, members):
    """The test of the protocol: of fewer draws no claim scores higher than of all."""
    of_all = scores_of(score, prompt, texts)
    for n_taken in range(len(texts) + 1):
        accepted = [j for j in members if j < n_taken]
        few = scores_of(score, prompt, texts[:n_taken], accepted)
        for claim, value in few.items():
            assert value <= of_all[claim], f"{claim} scores {value} among {n_taken} draws"


def combined():
    """Three scores, of claims that are right more often where many draws say so."""
    rng = np.random.default_rng(0)
    texts = [["".join(rng.choice(list(LETTERS), 2)) for _ in range(5)] for _ in range(60)]
    draws = [[Generation(text) for text in row] for row in texts]
    score = CombinedScore([ClaimSupport(), GroundedIn(half_says), lambda prompt, claim: ord(claim)])

    def is_right(reference, claim):
        return rng.random() < 0.5 + 0.4 * (claim in "abc")

    prompts = [f"ab{i}" for i in range(60)]
    return score.fit(prompts, prompts, draws, splitter=lambda text: [*text], admission=is_right)


MONOTONE = {
    "a classifier": combined(),
    "support by equality": ClaimSupport(),
    "support by a function": ClaimSupport(half_says),
    "support by a judge": ClaimSupport(Judge()),
    "near copies": Support(),
    "confidence": VerbalisedConfidence(lambda question: str(len(question) % 100)),
    "passages": GroundedIn(half_says),
}
TEXTS = st.lists(st.text(LETTERS, max_size=4), min_size=1, max_size=6)


@pytest.mark.parametrize("name", MONOTONE)
@settings(max_examples=40, deadline=None)
@given(texts=TEXTS, data=st.data())
def test_no_score_falls_as_draws_are_added(name, texts, data):
    members = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True).map(sorted))
    refuse_falling(MONOTONE[name], "ab\n\ncd", texts, members)


class ShareOfTaken(ClaimSupport):
    """Wrong: the share among the draws that were taken falls with a draw that says otherwise."""

    def score_components(self, prompts, generations, spans):
        rows = super().score_components(prompts, generations, spans)
        return [[one / len(draws) for one in row] for row, draws in zip(rows, generations)]


def test_a_score_that_falls_is_refused():
    with pytest.raises(AssertionError, match=r"a scores 1\.0 among 1 draws"):
        refuse_falling(ShareOfTaken(), "p", ["a", "b"], [0, 1])


@pytest.mark.parametrize(
    "entails", [says, Judge(), CachedScore(says), CachedAdmission(says), lambda r, c: float(c in r)]
)
def test_support_counts_all_draws_taken(entails):
    texts = ["ab", "ab", "bc", "c"]
    assert scores_of(ClaimSupport(entails), "p", texts, [0]) == {"a": 2, "b": 2}
    assert scores_of(ClaimSupport(entails), "p", texts) == {"a": 2, "b": 3, "c": 2}


def test_equal_responses_are_asked_about_once():
    asked = []

    def entails(response, claim):
        asked.append((response, claim))
        return True

    scores_of(ClaimSupport(entails), "p", ["ab", "ab", "b"])
    assert sorted(asked) == [("ab", "a"), ("ab", "b"), ("b", "a"), ("b", "b")]


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan, "yes"])
def test_support_is_from_0_to_1(value):
    for score in (ClaimSupport(lambda a, b: value), GroundedIn(lambda a, b: value)):
        with pytest.raises(ValueError, match="entails <lambda> must return"):
            scores_of(score, "p", ["a"])


CHAT = [
    {"role": "system", "content": "Passages: ab."},
    {"role": "tool", "content": [{"type": "image"}]},
    {"role": "user", "content": "cd?"},
]


@pytest.mark.parametrize(
    ("prompt", "context"),
    [
        (CHAT, None),
        ("Passages: ab.\n \ncd?", None),
        (7, lambda prompt: ("Passages: ab.", "cd?")),
        (7, lambda prompt: iter(["Passages: ab.", "cd?"])),
    ],
)
def test_passages_are_cited(prompt, context):
    score = clone(GroundedIn(half_says, context))
    assert score.cite(prompt, ["b", "c", "z"]) == [
        Citation(0, "Passages: ab.", 0.5),
        Citation(1, "cd?", 0.5),
        None,
    ]
    assert scores_of(score, prompt, ["az"]) == {"a": 0.5, "z": 0.0}
    nothing = GroundedIn(says, lambda prompt: [])
    assert nothing.cite(prompt, ["a", "b"]) == [None, None]
    assert scores_of(nothing, prompt, ["a"]) == {"a": 0.0}
    assert scores_of(nothing, prompt, [""]) == {}
    for wrong in ("ab", None, 3, [b"ab"]):
        with pytest.raises(TypeError, match="context must give a list of texts, got "):
            GroundedIn(says, lambda prompt: wrong).cite(prompt, ["a"])  # noqa: B023


def test_confidence_is_a_number_and_each_question_is_asked_once():
    asked = []

    def ask(question):
        asked.append(question)
        return "**70 %**" if "answer: a" in question else "0.5"

    score = VerbalisedConfidence(ask)
    assert scores_of(score, "p", ["a", "ac", "c"]) == {"a": 0.7, "c": 0.005}
    assert len(asked) == 2
    for wrong in ("101", "70 or 80", "high", ""):
        with pytest.raises(ValueError, match="must give a number from 0 to 100 alone"):
            scores_of(VerbalisedConfidence(lambda question, said=wrong: said), "p", ["a"])
