"""Sets of responses and of components: sequences, arrays, tables, text and pages."""

import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.utils import _safe_indexing

from sklearn_clm import ComponentSet, ComponentSets, ConformalSampler, PredictionSet, PredictionSets
from sklearn_clm.calibration import Claim, Provenance
from sklearn_clm.generators import Generation, PrecomputedGenerator
from sklearn_clm.metrics import set_loss
from sklearn_clm.policies import ExitPolicy
from tests.pages import Page

EVIL = (
    '<script>document.title = "run"</script><img src=x onerror="document.title=\'run\'"> & "done".'
)
SAFE = "The lungs are clear."


def one(prompt, responses, n_samples=3, guaranteed=True, claim=None):
    m = len(responses)
    draws = [Generation(response) for response in responses]
    draws += [Generation(responses[0] if m else "no")] * (n_samples - m)
    quality = np.linspace(0.9, 0.5, m)
    return PredictionSet(
        prompt, responses, quality, range(m), n_samples, 0.5, m > 0, guaranteed, draws, claim
    )


TEXTS = PredictionSets(
    [one("a", ("x", "y")), one("b", ()), one("c", ("z",), guaranteed=False)],
    k_max=3,
    sampler="the sampler",
    provenance=Provenance(generator="one", seed=4),
)
NUMBERS = PredictionSets([one([0.0], (4, 5)), one([1.0], (6,))], k_max=3)


# --- sequences and arrays -------------------------------------------------------------------------


def test_a_set_is_a_collection_of_responses():
    first = TEXTS[0]
    assert (len(first), list(first)) == (2, ["x", "y"])
    assert "x" in first
    assert "z" not in first
    assert first == one("a", ("x", "y"))
    assert first != one("a", ("x", "z"))
    assert first != "a"
    assert one(np.array([np.nan]), (1,)) == one(np.array([np.nan]), (1,))


@pytest.mark.parametrize(
    "key",
    [
        slice(1, 3),
        slice(None, None, -1),
        [2, 0],
        (slice(0, 2), Ellipsis),
        np.array([True, False, True]),
        np.array([], dtype=int),
    ],
)
def test_indexed_like_an_array(key):
    rows = np.arange(3)[key[0] if isinstance(key, tuple) else key]
    part = TEXTS[key]
    assert isinstance(part, PredictionSets)
    assert [each.prompt for each in part] == [TEXTS[int(i)].prompt for i in rows]
    assert part.shape == (len(rows), 3)
    assert (part.sampler, part.provenance) == ("the sampler", TEXTS.provenance)


def test_single_items_columns_and_wrong_keys():
    assert TEXTS[-1].prompt == TEXTS[np.int64(2)].prompt == "c"
    assert TEXTS[:, 0].tolist() == ["x", None, "z"]
    assert NUMBERS[0, 1] == 5
    for wrong in (3, [True, False]):
        with pytest.raises(IndexError):
            TEXTS[wrong]
    assert [each.prompt for each in _safe_indexing(TEXTS, [2, 1])] == ["c", "b"]


def test_as_an_array():
    assert TEXTS.shape == np.asarray(TEXTS).shape == (3, 3)
    assert TEXTS.dtype == np.asarray(TEXTS).dtype == object
    assert np.asarray(TEXTS).tolist() == [["x", "y", None], [None] * 3, ["z", None, None]]
    assert NUMBERS.dtype == np.asarray(NUMBERS).dtype == np.float64
    np.testing.assert_array_equal(np.asarray(NUMBERS), [[4, 5, np.nan], [6, np.nan, np.nan]])
    assert np.asarray(NUMBERS, dtype=np.float32).dtype == np.float32
    assert TEXTS[1:2].dtype == object  # a set without members is still text


@pytest.mark.parametrize("strict", [TEXTS[0], TEXTS[1], NUMBERS[0], "components"])
def test_a_set_is_written_as_json(strict):
    if strict == "components":
        claim = Claim(0.1, 0.05, about="components", group=("a", 1))
        strict = ComponentSet(("x",), [-np.inf], [[(0, (0, 1))]], TEXTS[0], True, claim)
    content = json.loads(json.dumps(strict.to_dict(), allow_nan=False))
    inner = content.get("prediction_set", content)
    assert inner["responses"] == list(getattr(strict, "prediction_set", strict).responses)
    assert content["guaranteed"] is True
    assert content["guarantee"] == (strict.claim and strict.claim.sentence())
    assert content.get("group") == (["a", 1] if strict.claim else None)
    assert content.get("scores") in (None, [None])
    assert "answered" not in content
    answer = replace(TEXTS[0], responses=("x",), claim=Claim(0.1, 0.05, about="answers"))
    assert answer.to_dict()["answered"] is True


def test_equal_responses_are_shown_once():
    draws = [Generation(text) for text in ("x", "y", "x", "z", "x")]
    quality = [0.1, 0.4, 0.3, 0.9, 0.2]
    ending = {"set_score": 0.4, "stopped": False, "guaranteed": True}
    a_set = PredictionSet.of_draws("Q", draws, quality, [[0, 2, 4], [1]], **ending)
    assert str(a_set).startswith("'Q' -> {'x', 'y'} (5 draws")
    assert len(a_set) == 2
    assert (a_set.responses, a_set.quality.tolist()) == (("x", "y"), [0.3, 0.4])
    assert (a_set.indices.tolist(), a_set.repeats) == ([0, 1], ((2, 4), ()))
    assert a_set.accepted.tolist() == [0, 1, 2, 4]
    sets = PredictionSets([a_set], k_max=5)
    assert sets.to_frame()["repeats"].tolist() == [((2, 4), ())]
    assert sets.to_html().count("draw 1 (again 3, 5), quality 0.3") == 1
    assert a_set.to_dict()["repeats"] == [[2, 4], []]
    assert one("Q", ()).accepted.tolist() == []


def test_objects_that_json_does_not_have_are_texts():
    image = Image.new("L", (2, 2))
    content = one([{"role": "user", "content": [image]}], ("x",)).to_dict()
    assert content["prompt"][0]["content"] == [repr(image)]


def test_lists_and_equality():
    assert TEXTS.responses == [["x", "y"], [], ["z"]]
    assert TEXTS.sizes.tolist() == [2, 0, 1]
    assert TEXTS.n_samples.tolist() == [3, 3, 3]
    assert [TEXTS.guaranteed, TEXTS[:2].guaranteed] == [False, True]
    assert TEXTS[:] == TEXTS
    assert TEXTS[:2] != TEXTS
    assert TEXTS != [1, 2, 3]


def test_a_pickle_leaves_the_sampler_behind():
    copy = pickle.loads(pickle.dumps(TEXTS))
    assert copy == TEXTS
    assert (copy.sampler, TEXTS.sampler) == (None, "the sampler")
    assert copy.provenance == TEXTS.provenance


# --- tables ---------------------------------------------------------------------------------------


def test_a_row_per_prompt():
    frame = TEXTS.to_frame()
    assert frame["prompt"].tolist() == ["a", "b", "c"]
    assert frame["size"].tolist() == [2, 0, 1]
    assert frame["guaranteed"].tolist() == [True, True, False]
    assert NUMBERS.to_frame()["responses"].tolist() == [(4, 5), (6,)]
    assert TEXTS[:0].to_frame().shape == (0, 11)
    by_response = frame.explode(["responses", "quality", "agreement", "indices", "repeats"])
    assert by_response["indices"].tolist()[:2] == [0, 1]


def test_each_response_has_the_share_of_draws_that_agree():
    a_set = replace(TEXTS[0], generations=tuple(map(Generation, ("x", "y", "x", "w", "X"))))
    assert a_set.agreement.tolist() == [0.4, 0.2]
    frame = PredictionSets([a_set, TEXTS[1]], k_max=5).to_frame()
    assert frame["agreement"].tolist() == [(0.4, 0.2), ()]
    assert np.isnan(replace(a_set, generations=()).agreement).all()


def test_the_index_of_the_prompts_stays():
    index = pd.Index([f"row {i}" for i in range(80)], name="id")
    rows = pd.DataFrame({"a": np.linspace(-1, 1, 80)}, index=index)
    sampler = ConformalSampler(k_max=3, epsilon=0.8, random_state=0)
    answers = np.where(rows["a"] > 0, "yes", "no")
    sets = sampler.fit(rows, answers).predict(rows[10:20])
    for some in (sets, pickle.loads(pickle.dumps(sets))):
        pd.testing.assert_index_equal(some.to_frame().index, index[10:20])
    assert sets[[3, 1]].to_frame().index.tolist() == ["row 13", "row 11"]
    assert sampler.fit_transform(rows, answers).to_frame().index.equals(index)
    texts = pd.Series([f"text {i}" for i in range(80)], index=index)
    sampler.fit(texts, answers)
    assert sampler.predict(texts[5:7]).to_frame().index.tolist() == ["row 5", "row 6"]
    assert sampler.predict(texts[5:7].tolist()).to_frame().index.tolist() == [0, 1]
    assert sampler.predict(texts[5:7]) == sampler.predict(texts[5:7].tolist())


def test_a_prompt_whose_draws_end_before_the_rule_stops_says_so():
    rng = np.random.default_rng(0)
    prompts = [f"question {i}" for i in range(120)]
    rows = [["right" if rng.random() < 0.6 else "wrong" for _ in range(4)] for _ in prompts]
    short = [row[: 1 + i % 4] if i >= 100 else row for i, row in enumerate(rows)]
    sampler = ConformalSampler(k_max=4, epsilon=0.2, quality="self_consistency", random_state=0)
    sampler.set_params(generator=PrecomputedGenerator(prompts, rows, key="model"))
    sampler.fit(prompts[:100], ["right"] * 100)
    whole = sampler.predict(prompts[100:])
    other = ConformalSampler(k_max=4, epsilon=0.2, quality="self_consistency", random_state=0)
    other.set_params(generator=PrecomputedGenerator(prompts, short, key="model"))
    other.fit(prompts[:100], ["right"] * 100)
    with pytest.warns(
        UserWarning, match=r"the draws of \d+ of 20 prompts end before the rule stops"
    ):
        sets = other.predict(prompts[100:])
    lacking = [i for i, a_set in enumerate(sets) if a_set.needs_draws]
    assert lacking == [i for i in range(20) if whole[i].n_samples > 1 + i % 4]
    assert 0 < len(lacking) < 20
    for i, a_set in enumerate(sets):
        if i not in lacking:
            assert a_set == whole[i]
            continue
        # what was accepted is a member, whatever is still to come
        assert set(a_set.responses) <= set(whole[i].responses)
        assert (a_set.stopped, a_set.guaranteed, a_set.n_samples) == (False, False, 1 + i % 4)
        assert "needs further draws; no guarantee" in str(a_set)
    assert not sets.guaranteed
    with pytest.raises(ValueError, match="X must have all draws that the rule takes"):
        other.score(prompts[100:], ["right"] * 20)


def test_sets_that_need_draws_are_no_part_left_out_of_what_held():
    """Where draws ended on failures, the sets that are complete are the right ones."""
    claim = Claim(0.1, 0.05, about="answers")
    draw = [Generation("x")]
    whole = PredictionSet("a", ("x",), [1.0], [0], 1, 1.0, True, True, draw, claim=claim)
    lacking = claim.nullified("the rule wants more than its 1 draw.")
    cut = PredictionSet(
        "b", (), [], [], 1, -np.inf, False, False, draw, claim=lacking, needs_draws=True
    )
    sets = PredictionSets([whole, cut], k_max=3)
    assert set_loss(["x", "y"], sets, admission="exact_match") == 0.5
    assert set_loss(["x"], sets[:1], admission="exact_match") == 0.0
    page = sets.to_html(lambda prompt, answer: answer == "x")
    assert "held at least" in page
    assert "50%" in page
    assert "held at least" not in sets[:1].to_html(lambda prompt, answer: answer == "x")


# --- text and pages -------------------------------------------------------------------------------


def answer(prompt="chest & heart", responses=(f"{SAFE} {EVIL}", f"{EVIL} {SAFE}")):
    return PredictionSet(prompt, responses, [0.91, 0.5], [1, 4], 5, 1.41, True, True)


def selection(prompt="chest & heart"):
    start = len(EVIL) + 1
    places = [[(1, (0, len(SAFE))), (4, (start, start + len(SAFE)))], [(4, (0, len(EVIL)))]]
    return ComponentSet((SAFE, EVIL), [0.875, 0.75], places, answer(prompt), guaranteed=True)


def test_text_on_one_line():
    assert str(TEXTS[0]) == "'a' -> {'x', 'y'} (3 draws, stopped)"
    assert str(TEXTS[1]) == "'b' -> {} (3 draws, budget used up)"
    assert str(TEXTS[2]) == "'c' -> {'z'} (3 draws, stopped; no guarantee)"
    assert "(1 draw, stopped)" in str(one("a", ("x",), 1))
    unclear = one("d", ("", "Krakow, I believe.", "it's\nRome ", "\x1b[1m", np.str_("z"), 4, 2.5))
    shown = """{'', 'Krakow, I believe.', "it's\\nRome ", '\\x1b[1m', 'z', 4, 2.5}"""
    assert str(unclear) == f"'d' -> {shown} (3 draws, stopped)"
    single = PredictionSets([one("q", ("a",), 1)], k_max=5)
    assert repr(single) == "<PredictionSets of 1 prompt, k_max=5>"
    component = ComponentSet(("a",), [0.5], [[(0, None)]], single[0], True)
    assert repr(ComponentSets([component])) == "<ComponentSets of 1 prompt, 1 component>"
    assert len(repr(one("long " * 999, ("x",)))) < 420


def test_trusted_components_are_marked_in_text_and_pages():
    text = (
        "chest & heart\n"
        "  (5 draws, stopped)\n"
        "  draw 2, quality 0.91: {safe} {plain}\n"
        "  draw 5, quality 0.5: {evil} {safe}\n"
        "trusted components:\n"
        f"  0.875  {SAFE}  (draw 2, 5)\n"
        f"  0.75  {EVIL}  (draw 5)"
    )
    marked = {"safe": f"**{SAFE}**", "evil": f"**{EVIL}**", "plain": EVIL}
    assert str(selection()) == text.format(**marked)
    page = Page(selection()._repr_html_())
    shown = "".join(page.text).partition("</style>")[0]
    # nothing is listed again that stands on a tint
    assert shown.endswith(
        f"chest & heart{SAFE} {EVIL}{EVIL} {SAFE}2 trusted components · 5 draws, stopped"
    )
    assert page.marked == [SAFE, EVIL, SAFE]
    assert page.titles == ["score 0.88", "score 0.75", "score 0.88"]


def test_pages_show_what_was_wrong():
    sets = PredictionSets([one("a", ("x", "x", "y")), one("b", ("y",)), one("c", ())], k_max=3)
    page = sets.to_html(lambda prompt, member: member == "x")
    shown = "".join(Page(page).text)
    assert "33%</b> held" in page
    assert page.count('title="wrong"') == 2
    assert page.count('title="right"') == 1
    assert "✓\xa0x × 2✗\xa0y" in shown
    assert 'title="wrong"' not in sets.to_html()
    assert sets.to_html() == sets._repr_html_()
    assert 'title="wrong"' in sets[1].to_html(lambda prompt, member: False)
    # of selections, all members must be right, and empty ones are
    chosen = ComponentSets([selection(), ComponentSet((), [], [], answer(), True)])
    page = chosen.to_html(lambda prompt, component: component == SAFE)
    assert "50%</b> held" in page
    assert Page(page).marked == [SAFE, "✗\xa0", EVIL, SAFE]
    assert PredictionSets([], k_max=3).to_html(lambda prompt, member: True)


def test_a_response_without_text_is_no_empty_frame():
    assert "".join(Page(one("a", ("x", " ")).to_html()).text).count("no text") == 1


def test_what_held_stands_against_what_was_promised():
    claim = Claim(0.3, 0.05, about="answers")
    null = claim.nullified("nothing passed.")
    sure, empty = (one("q", responses, claim=claim) for responses in (("a",), ()))
    wrong = one("q", ("b",), claim=claim)
    hopeless = one("q", ("b", "a"), guaranteed=False, claim=null)

    def is_right(prompt, member):
        return member == "a"

    for some, promised, held, sign in (
        ([sure, sure, sure, empty, hopeless], "70%", "100%", "clm-yes"),  # only answers count
        ([sure, wrong, hopeless], "70%", "50%", "clm-no"),
        ([hopeless], "nothing", "100%", "clm-yes"),
    ):
        page = PredictionSets(some, k_max=3).to_html(is_right)
        expected = f'title="{held} held, {promised} promised"><div class="clm-held {sign}"'
        assert expected in page


def test_a_component_that_no_response_holds_word_for_word_is_listed():
    places = [[(1, (0, 10))], [(1, (0, 10))]]
    claims = ComponentSet(("It is safe.", SAFE), [0.9, 0.9], places, answer(), True)
    assert "It is safe." in Page(claims._repr_html_()).marked


def test_the_style_of_sets_stays_in_their_element():
    page = TEXTS._repr_html_()
    rules = page.partition("<style>")[2].partition("</style>")[0]
    rules = re.sub(r"@media [^{]*{", "", rules).replace("}}", "}")
    for selector in re.findall(r"([^{}]+){", rules):
        assert re.fullmatch(r"\.clm( .+)?", selector.strip()), selector
    assert "<script" not in page


def test_plain_text_steers_no_terminal():
    one = ComponentSet((), [], [], answer("\x1b[2Jprompt", ("\x1b]0;title\x07\nline", "")), True)
    for text in (str(one), str(PredictionSets([one.prediction_set], k_max=5))):
        assert not {"\x1b", "\x07"} & set(text)
    assert "\nline" in str(one)


def test_nothing_selected_and_nothing_accepted():
    empty = PredictionSet("q", (), [], [], 5, -np.inf, stopped=False, guaranteed=False)
    selected = ComponentSet((), [], [], empty, guaranteed=False)
    for view in (empty._repr_html_(), selected._repr_html_(), str(selected)):
        assert "(no response was accepted)" in view
        assert "5 draws, budget used up; no guarantee" in view
    assert "no trusted component" in str(selected)


def test_every_view_says_what_is_unusual_of_its_guarantee():
    usual, on_average = Claim(0.3, 0.05), Claim(0.3, 0.05, guarantee="marginal")
    pac, marginal, null = (
        one("q", ("a",), guaranteed=claim.holds, claim=claim)
        for claim in (usual, on_average, on_average.nullified("nothing passed."))
    )
    for some in (marginal, PredictionSets([pac, marginal], k_max=5)):
        for view in (str(some), repr(some), some._repr_html_()):
            assert "guaranteed on average" in view
    for some in (pac, null, PredictionSets([null, pac], k_max=5)):
        for view in (str(some), repr(some), some._repr_html_()):
            assert "on average" not in view
    assert "no guarantee" in str(null)
    for some, words in ((pac, "With confidence 95 %"), (marginal, "marginal guarantee")):
        sets = PredictionSets([some, null], k_max=5)
        for view in (str(sets), sets._repr_html_()):
            assert view.count(words) == 1
    assert "calibrations that certify nothing count as right" in marginal.to_dict()["guarantee"]
    assert "count as right" not in pac.to_dict()["guarantee"]
    frame = PredictionSets([pac, marginal], k_max=5).to_frame()
    assert frame["guarantee"].tolist() == ["pac", "marginal"]


def test_many_sets_are_cut():
    many = PredictionSets([one(f"prompt {i}", ("x",)) for i in range(30)], k_max=3)
    assert "and 10 more" in str(many)
    components = ComponentSets([ComponentSet((), [], [], each, True) for each in many])
    for view in (many._repr_html_(), str(components), components._repr_html_()):
        assert "the first 20 are shown" in view
    for view in (str(many), many._repr_html_(), str(components)):
        assert "prompt 19" in view
        assert "prompt 20" not in view


def test_numbers_strange_text_and_overlapping_spans():
    numbers = PredictionSet(np.array([1.5, 2.0]), (3.0,), [0.5], [0], 1, 0.5, True, True)
    whole = ComponentSet((3.0,), [0.5], [[(0, None)]], numbers, True)
    assert Page(whole._repr_html_()).marked == ["3.0"]
    assert "**3.0**" in str(whole)
    one("q", ("\ud800 half",))._repr_html_().encode("utf-8")
    places = [[(1, (0, 10))], [(1, (5, 999))]]
    overlapping = ComponentSet(("a", "b"), [0.5, 0.25], places, answer(), True)
    assert "".join(Page(overlapping._repr_html_()).marked) == f"{SAFE} {EVIL}ab"


def test_images_are_shown():
    shown = selection(Image.new("RGB", (4, 2)))
    assert 'src="data:image/png;base64,' in shown._repr_html_()
    assert str(shown).startswith("image, 4 x 2 pixels\n")
    assert str(shown.prediction_set).startswith("image, 4 x 2 pixels -> {")


def test_the_question_of_a_chat_is_shown():
    parts = [
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "What <is> it?"},
    ]
    chat = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": parts}]
    sets = PredictionSets([answer(chat)], k_max=5)
    for view in (str(sets), "".join(Page(sets._repr_html_()).text)):
        assert "user: [image_url] What <is> it?" in view
        assert "{'role" not in view


def test_rows_of_numbers_are_told_by_the_first_ones():
    sets = PredictionSets([answer(np.arange(64) / 3), answer(np.array([1, 2]))], k_max=5)
    assert "[0, 0.3333, 0.6667, 1, … 64 numbers] -> {" in str(sets)
    assert "\n[1, 2] -> {" in str(sets)
    assert "array of shape (8, 8)" in str(PredictionSets([answer(np.ones((8, 8)))], k_max=5))


def test_what_was_calibrated_prints_within_a_screen():
    prompts = [f"prompt {i}" for i in range(300)]
    references = ["yes" if i % 3 else "no" for i in range(300)]
    known = {"random_state": 0, "epsilon": 0.5, "quality": lambda prompt, draw: 0.5}
    groups = np.array(["a", "b"])[np.arange(300) % 2]
    for policy in (None, ExitPolicy()):
        sampler = ConformalSampler(policy=policy, **known).fit(prompts, references, groups=groups)
        record = sampler.calibration_
        shown = [record, record.rule, sampler.groups_, sampler.result_, sampler.frontier_]
        assert max(len(repr(each)) for each in [*shown, sampler.memory_]) < 80 * 24
