import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_clm.scoring import admission_matrix, exact_match
from sklearn_clm.scoring._exact_match import answer_key


@pytest.mark.parametrize(
    ("answer", "normalized"),
    [
        ("Paris", "paris"),
        ("  The   Beatles\n", "beatles"),
        ("a cat, an ant and the dog", "cat ant and dog"),
        ("U.S.A.", "u s"),  # "a" is left alone, and is then an article
        ("snake_case", "snake case"),
        ("‘tis “so”, it's ´x` done", "tis “so” it s x done"),
        ("3,000.5", "3 000 . 5"),
    ],
)
def test_what_is_left_of_an_answer(answer, normalized):
    assert answer_key(answer) == (True, normalized)


@pytest.mark.parametrize("answer", ["Zürich", "Việt Nam", "서울", "São Paulo -3", "“é”"])
def test_both_spellings_of_letters_with_marks_are_one(answer):
    parts = unicodedata.normalize("NFD", answer)
    assert parts != answer
    assert exact_match(answer, parts)
    assert exact_match([parts], answer)
    assert not exact_match("Zurich", parts)
    assert not exact_match("São Paulo 3", parts)


@given(st.text())
def test_normalizing_leaves_no_article_punctuation_or_wide_space(text):
    has_words, key = answer_key(text)
    words = key.split(" ") if has_words else ["..."]
    assert all(words)
    assert not {"a", "an", "the"} & set(words)
    assert not set("!\"$%&'()*/:;?@[\\]^_`{|}~‘’´`") & set(key if has_words else "")


@given(st.text())
def test_a_text_matches_itself_in_any_dress(text):
    assert exact_match(text, text) is True
    assert exact_match(text, f"  {text} ") is True
    if answer_key(text)[0]:
        assert exact_match(text, f"The {text}!") is True


def test_answers_of_articles_and_punctuation_alone_are_told_apart():
    assert exact_match("The The", "the the ") is True
    assert exact_match("The The", "A") is False
    assert exact_match("!", "?") is False
    assert exact_match("The The", "") is False
    assert exact_match("cat", "") is False


@pytest.mark.parametrize("kind", [list, tuple, set, np.array])
def test_aliases(kind):
    aliases = kind(["USA", "United States"])
    assert exact_match(aliases, "the United States.") is True
    assert exact_match(aliases, "United Kingdom") is False
    assert admission_matrix(exact_match, [aliases], [["Usa", "UK"]]).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("reference", "response", "expected"),
    [
        (3, 3.0, True),
        (np.float32(0.5), 0.5, True),
        (3, "3", False),
        ("3", 3, False),
        (float("nan"), float("nan"), False),
        (np.array([1, 2]), np.array([1.0, 2.0]), True),
        (np.array([1, 2]), np.array([1, 2, 3]), False),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), False),
        ([1, [2, "a"]], [1, [2, "a"]], True),
        (True, False, False),
        (None, None, True),
    ],
)
def test_responses_that_are_no_texts_are_equal_or_not(reference, response, expected):
    assert exact_match(reference, response) is expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("+1", "-1"),
        ("5", "-5"),
        ("C++", "C#"),
        ("1,5", "1.5"),
        (".5", "5"),
        ("3.000", "3,000"),
        ("<=50K", ">50K"),
        ("x = 5", "x 5"),
        ("B+", "B-"),
        ("1 -2", "-1 2"),
    ],
)
def test_punctuation_that_changes_the_meaning_tells_answers_apart(first, second):
    for a, b in ((first, second), (second, first)):
        assert exact_match(a, b) is False
        assert exact_match([a, "other"], f"The {b}.") is False
        assert exact_match(a, f"**{a.lower()}**.") is True


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1,234,567.", "1 234 567"),
        ("1990-95", "1990 95"),
        ("Spider-Man", "spider man!"),
        ("- Paris", "Paris"),
        ("#1", "1."),
        ("No.5", "No 5"),
        ("(-5)", "-5"),
        ("AT&T", "AT T"),
        ("50%", "50"),
        ("O'Brien", "o brien"),
        ("wait...5", "wait 5"),
    ],
)
def test_ordinary_punctuation_does_not_count(first, second):
    assert exact_match(first, second) is True
