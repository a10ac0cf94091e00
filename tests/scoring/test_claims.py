"""Claims: where they stand, on what they rest, and what that makes of their scores."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_clm.generators import Generation
from sklearn_clm.scoring import (
    Claim,
    ClaimSplitter,
    PairSplitter,
    SpanLikelihood,
    component_match,
    get_splitter,
)
from sklearn_clm.scoring._components import distinct_components
from sklearn_clm.scoring._splitters import least_on_the_way_up, split_draws

TEXT = "Marie Curie, born in Warsaw in 1867, won two Nobel prizes."
BORN = Claim("Marie Curie was born in Warsaw.")
WON = Claim("Marie Curie won two prizes.", span=(37, 57))


def test_what_stands_in_the_text_has_a_span_and_the_rest_is_kept():
    found = get_splitter(lambda text: [BORN, "two Nobel prizes", WON, Claim("Warsaw"), " "])(TEXT)
    assert found == [BORN, (41, 57), WON, (21, 27)]
    assert get_splitter(lambda text: [Claim(" x "), "y"])("z") == [Claim("x"), Claim("y")]
    assert get_splitter(lambda text: [Claim(" ", span=(0, 5)), Claim("")])(TEXT) == []


def test_parents_are_positions_among_what_is_kept():
    given = ["born", " ", Claim("a", parents=[0]), Claim("b", parents=(2, 0))]
    found = get_splitter(lambda text: given)(TEXT)
    assert [part.parents for part in found[1:]] == [(0,), (1, 0)]


@pytest.mark.parametrize("parents", [[(0,)], [(1,), (0,)], [(2,), (0,), (1,)]])
def test_a_circle_is_refused(parents):
    claims = [Claim(f"c{i}", parents=of) for i, of in enumerate(parents)]
    with pytest.raises(ValueError, match=r"without a circle, got .*c0"):
        get_splitter(lambda text: claims)(TEXT)


def test_splitters_may_take_the_prompt_be_async_or_take_all_at_once():
    def plain(prompt, response):
        return [f"{prompt} {response}"]

    async def later(response):
        await asyncio.sleep(0)
        return [Claim(response.upper())]

    class Both:
        async def __call__(self, prompt, response):
            return iter([f"{prompt} {response}"])

    class Many(PairSplitter):
        n_calls = 0

        def split_pairs(self, prompts, responses):
            self.n_calls += 1
            assert len(set(zip(prompts, responses))) == len(prompts)
            return [(k, [f"{p} {r}"]) for k, (p, r) in enumerate(zip(prompts, responses))][::-1]

    draws = [[Generation("x"), Generation("y"), Generation("x"), Generation(3)], []]
    many = Many()
    for splitter in (plain, Both(), many):
        wanted = [[Claim("p x")], [Claim("p y")], [Claim("p x")], [None]]
        assert split_draws(splitter, ["p", "q"], draws) == [wanted, []]
    assert many.n_calls == 1
    assert split_draws(later, ["p"], [[Generation("x")]]) == [[[Claim("X")]]]


@pytest.mark.parametrize("given", [None, "claims", [3], [Claim(b"x")], [Claim(b"x", (0, 1))]])
def test_what_is_no_list_of_claims_is_refused(given):
    async def wrong(prompt, response):
        return given

    with pytest.raises(ValueError, match="splitter wrong must return a list of parts"):
        split_draws(wrong, ["p"], [[Generation("x")]])


def test_references_are_split_into_sentences_where_claims_need_a_prompt():
    def claims(prompt, response):
        raise AssertionError

    judge = component_match("rouge_l", claims)
    assert judge.parts("One. Two.") == ["One.", "Two."]
    assert component_match("exact_match", lambda text: [text.upper()]).parts("a") == ["A"]


def test_the_likelihood_of_a_claim_without_a_place_is_not_known():
    draw = Generation("a b", token_logprobs=(-1.0, -2.0), token_spans=((0, 1), (1, 3)))
    with pytest.raises(ValueError, match="got the claim 'c' instead"):
        SpanLikelihood().score_components(["p"], [[draw]], [[[Claim("c")]]])
    of_place = SpanLikelihood().score_components(["p"], [[draw]], [[[Claim("c", (0, 1))]]])
    assert of_place == SpanLikelihood().score_components(["p"], [[draw]], [[[(0, 1)]]])


@st.composite
def draws_of_claims(draw):
    """Draws: claims among few texts, each with a score and resting on earlier ones."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        m = rng.integers(0, 6)
        parents = [tuple(np.flatnonzero(rng.random(k) < 0.3).tolist()) for k in range(m)]
        claims = [Claim(f"c{rng.integers(5)}", parents=of) for of in parents]
        rows.append((claims, rng.integers(0, 6, m) / 5))
    return rows


def merged(rows):
    n = len(rows)
    claims, scores = [row for row, _ in rows], [row for _, row in rows]
    found = distinct_components(["text"] * n, range(n), claims, scores)
    return dict(zip(found.components, found.scores.tolist()))


def way_up(claims, k):
    """A claim and all that it rests on."""
    return {k}.union(*(way_up(claims, parent) for parent in claims[k].parents))


@given(draws_of_claims())
def test_a_claim_scores_the_least_on_its_way_up_in_its_best_draw(rows):
    wanted = {}
    for claims, scores in rows:
        for k, claim in enumerate(claims):
            least = min(scores[list(way_up(claims, k))])
            wanted[claim.text] = max(wanted.get(claim.text, -np.inf), least)
    assert merged(rows) == wanted


@given(draws_of_claims())
def test_what_a_claim_rests_on_stays_with_it_and_further_draws_take_nothing(rows):
    scores = merged(rows)
    for gamma in np.unique(list(scores.values())):
        kept = {text for text, score in scores.items() if score >= gamma}
        for text in kept:
            grounds = (
                {claims[i].text for i in way_up(claims, k)}
                for claims, _ in rows
                for k, claim in enumerate(claims)
                if claim.text == text
            )
            assert any(ground <= kept for ground in grounds)
    for fewer in range(len(rows)):
        assert all(score <= scores[text] for text, score in merged(rows[:fewer]).items())


def test_order_does_not_matter_on_the_way_up():
    claims = [Claim("a", parents=(1,)), Claim("b", parents=(2,)), Claim("c")]
    assert least_on_the_way_up(claims, np.array([0.9, 0.8, 0.1])).tolist() == [0.1, 0.1, 0.1]
    assert least_on_the_way_up([(0, 1)], scores := np.array([0.5])) is scores


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("- One.\n* Two.\n\n3. Three.\n4) Four.", ["One.", "Two.", "Three.", "Four."]),
        ("Here they are:\n- One.", ["One."]),
        ("NONE", []),
        ("- none.", []),
        ('["One.", {"text": "Two.", "parents": [0]}]', ["One.", Claim("Two.", parents=(0,))]),
        ('```json\n{"claims": ["One."]}\n```', ["One."]),
        ("[]", []),
        *((wrong, None) for wrong in ("", "One.\n- Two.", "Sorry, no.", "[1]", '["a", ""]')),
        *(
            (f'["One.", {{"text": "Two.", "parents": {parents}}}]', None)
            for parents in ("[2]", "[-1]", "[0.0]", "[true]", '"0"', "[[0]]", "[1]", "3")
        ),
        *((wrong, None) for wrong in ("[" * 10**5, "{}", '{"claims": 3}', '[{"text": 1}]')),
    ],
)
def test_answers_with_claims_are_read_or_refused(answer, claims):
    splitter = ClaimSplitter(lambda question: answer, max_attempts=1)
    if claims is None:
        with pytest.raises(ValueError, match="generator of ClaimSplitter must give one claim a"):
            splitter("p", "text")
    else:
        wanted = [Claim(one) if isinstance(one, str) else one for one in claims]
        assert splitter("p", "text") == wanted


def test_claims_that_rest_on_each_other_are_asked_for_again():
    """A model that counts from 1 once does not end a collection that was paid for."""
    answers = iter(['["a", {"text": "b", "parents": [2]}]', '["a", {"text": "b", "parents": [0]}]'])
    splitter = ClaimSplitter(lambda question: next(answers), max_attempts=2)
    assert splitter("p", "text") == [Claim("a"), Claim("b", parents=(0,))]


def test_a_model_is_asked_with_the_prompt_and_the_response():
    asked = []

    def ask(question):
        asked.append(question)
        return "NONE"

    chat = [{"role": "user", "content": "Who {response}?"}]
    split_draws(ClaimSplitter(ask), [chat], [[Generation(" She {prompt}. "), Generation("No")]])
    assert sum("Who {response}?" in one and "She {prompt}.\n" in one for one in asked) == 1
    split_draws(ClaimSplitter(ask, template="{response}!"), ["p"], [[Generation("x")]])
    assert asked[-1] == "x!"


def test_an_error_shows_where_an_answer_ends_and_what_it_is_about():
    answer = "\n".join([*(f"- This is claim {i}." for i in range(99)), "I hope this helps!"])
    with pytest.raises(
        ValueError, match=r"got '- This is claim 0.*this helps!' for 'List what"
    ) as e:
        ClaimSplitter(lambda question: answer, max_attempts=1)("p", "Such is the response.")
    assert "Such is the response." in str(e.value)
