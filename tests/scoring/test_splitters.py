import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.generators import Generation
from sklearn_clm.scoring import Claim, SentenceSplitter, get_splitter
from sklearn_clm.scoring._splitters import split_draws

SPLITTERS = ["sentence", str.splitlines]

# what has misled segmenters before: initials before line separators, lone surrogates, quotation
fragment = st.one_of(
    st.text(max_size=4),
    st.sampled_from(
        ["Dr. ", "J.", "M.\u2028", "A.\x85", "e.g. ", "3.5 cm", "?! ", ". ", "...", "\n\n", "\r\n"]
        + ["1. ", "(2) ", "“So.” ", "No. 5", "\ud800", "p.m. ", "U.S. ", "http://a.b/c. ", "。"]
    ),
)
any_text = st.lists(fragment, max_size=12).map("".join)


def parts(splitter, text):
    return [text[start:stop] for start, stop in get_splitter(splitter)(text)]


@settings(max_examples=300, deadline=None)
@given(any_text, st.sampled_from(SPLITTERS))
def test_offsets_are_in_order_trimmed_and_leave_out_nothing_but_space(text, splitter):
    offsets = get_splitter(splitter)(text)
    end = 0
    for start, stop in [*offsets, (len(text), len(text))]:
        assert end <= start <= stop <= len(text)
        assert text[start:stop] == text[start:stop].strip()
        assert not text[end:start].strip()
        end = stop
    assert all(start < stop for start, stop in offsets)


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith saw a 3.5 cm mass.", "No effusion"],
        ["J. R. R. Tolkien wrote it.", "He lived in the U.S. until 1950.", "Then he left!"],
        ["It grew, e.g. in services.", "It cost $3.50.", "Is it?", "Yes."],
        ["He came at 5 p.m. on Monday.", "No. 5 is alive."],
        ["no capitals here.", "nor here.", "and no end"],
        ["1. Heart size is normal.", "2. Lungs are clear.", "3. No effusion."],
        ["(1) First.", "(2) Second."],
        ["How many?", "42.", "That is all."],
        ["It weighs approx. 3 kg.", "By Eqs. 4 and 5 it fell.", "Excl. VAT it cost 3."],
        ["**Yes.**", "It is.", "_No!_", "*It* is not."],
        ["Só isto.", "Ça va?", "Oui 😀."],
    ],
)
@pytest.mark.parametrize("space", [" ", "  ", "\n"])
def test_sentences(sentences, space):
    assert parts("sentence", space.join(sentences)) == sentences
    assert parts("sentence", f" {space.join(sentences)} ") == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Das gilt z.B. hier.", "Ende."]),
        ("de", ["Am 3. Mai kam er.", "Am 12. Dezember 2020 ging er."]),
        ("en", ["It cost 3.", "April came."]),
    ],
)
def test_language_decides_on_abbreviations_and_ordinals(language, sentences):
    assert parts(SentenceSplitter(language), " ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "components",
    [
        ["# Findings", "The heart is\nnormal.", "## Impression. Short", "No disease."],
        ["So:", "- one", "- two. three", "- four"],
        ["Use this:", "```python\nx = 1.\n\ny = 2. # no heading\n```", "It works."],
        ["Cut:", "```\nx = 1. y = 2."],
        ["So:", "- One.", "- Two.", "~~~\nx = 1. y = 2.\n~~~", "| a. b |\n  | 1. |", "Done."],
        ["See:", "| a. b | c |\n|---|---|\n| 1. | 2 |", "Done.", "Truly."],
    ],
)
def test_blocks_of_markdown_are_components_of_their_own(components):
    assert parts("sentence", "\n".join(components)) == components


def test_lines():
    text = "one. two\r\n\n  three \n\tfour\n"
    assert parts(str.splitlines, text) == ["one. two", "three", "four"]


@pytest.mark.parametrize("splitter", SPLITTERS)
@pytest.mark.parametrize("text", ["", " ", "\n \t\n"])
def test_nothing_has_no_components(splitter, text):
    assert get_splitter(splitter)(text) == []


def test_callables_may_give_offsets_or_parts():
    assert get_splitter(lambda text: [(0, 4), [4, 8]])(" ab c d ") == [(1, 3), (4, 7)]
    assert get_splitter(lambda text: text.split(";"))("a; b;;a ;") == [(0, 1), (3, 4), (6, 7)]
    assert get_splitter(lambda text: iter(()))("a") == []
    assert get_splitter(lambda text: ["c", " a", ""])("abc a") == [(2, 3), (3 + 1, 5)]


@pytest.mark.parametrize(
    "result",
    [
        *([span] for span in ((0, 4), (2, 1), (-1, 1), (0, 1, 2), (0.0, 1.0))),
        *([(0, 2), (1, 3)], [(2, 3), (0, 1)]),
        *(None, 3, "abc", [3], [None], {"a": 1}.values()),
        *([Claim(3)], [Claim("x", (0, 4))], [Claim("x", 3)], [Claim("x", parents=(1,))]),
        *([Claim("x", parents=("a",))], [" ", Claim("x", parents=(0,))]),
    ],
)
def test_bad_results_of_callables(result):
    def bad(text):
        return result

    with pytest.raises(ValueError, match="splitter bad must return"):
        get_splitter(bad)("abc")


def test_splitters_are_their_own():
    sentences = SentenceSplitter("fr")
    assert get_splitter(sentences) is sentences
    checked = get_splitter(str.split)
    assert get_splitter(checked) is checked
    assert pickle.loads(pickle.dumps(checked))("a b") == [(0, 1), (2, 3)]
    for wrong, error in (("word", ValueError), (3, TypeError), (SentenceSplitter, TypeError)):
        with pytest.raises(error, match="splitter must be"):
            get_splitter(wrong)


def of_text(text):
    raise ValueError("no parts")


def of_prompt_and_text(prompt, text):
    raise ValueError("no parts")


async def awaited(text):
    raise ValueError("no parts")


@pytest.mark.parametrize("function", [of_text, of_prompt_and_text, awaited])
def test_an_error_of_a_callable_says_of_which_response_it_is(function):
    with pytest.raises(ValueError, match="no parts") as raised:
        split_draws(function, ["q"], [[Generation("Once more.")]])
    given = "'q' and 'Once more.'" if function is of_prompt_and_text else "'Once more.'"
    assert f"splitter {function.__name__} was given {given}." in raised.value.__notes__
