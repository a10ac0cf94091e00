"""Text, stop strings and the characters of each token."""

from itertools import pairwise

import pytest

pytest.importorskip("transformers")
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.generators.transformers._text import Detokenizer
from tests.tiny_models import byte_level_tokenizer, sentencepiece_tokenizer

BYTE_LEVEL = Detokenizer(byte_level_tokenizer())
SENTENCEPIECE = Detokenizer(sentencepiece_tokenizer())


def encode(detokenizer, text):
    return detokenizer.tokenizer(text, add_special_tokens=False)["input_ids"]


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=30))
def test_spans_cover_any_text_and_agree_with_the_tokenizer(text):
    encoded = BYTE_LEVEL.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    if BYTE_LEVEL.text(ids) != text:  # special tokens written out in the text
        return
    spans = BYTE_LEVEL.spans(ids, text)
    # a token that holds some of a character's bytes covers that character
    assert spans == [tuple(offsets) for offsets in encoded["offset_mapping"]]


def test_a_character_belongs_to_each_token_that_holds_some_of_its_bytes():
    text = "a\N{GRINNING FACE}b"
    ids = encode(BYTE_LEVEL, text)
    assert len(ids) == 6
    assert BYTE_LEVEL.spans(ids, text) == [(0, 1), (1, 2), (1, 2), (1, 2), (1, 2), (2, 3)]


def test_spaces_before_words_belong_to_them():
    ids = encode(SENTENCEPIECE, "The heart is enlarged. There is no edema.")
    text = SENTENCEPIECE.text(ids)
    spans = SENTENCEPIECE.spans(ids, text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert len(spans) == len(ids)


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 319), max_size=40))
def test_spans_of_arbitrary_bytes_are_ordered_and_complete(ids):
    text = BYTE_LEVEL.text(ids)
    spans = BYTE_LEVEL.spans(ids, text)
    assert len(spans) == len(ids)
    assert all(0 <= a <= b <= len(text) for a, b in spans)
    special = BYTE_LEVEL.special_tokens.values()
    plain = [span for token, span in zip(ids, spans) if token not in special]
    assert all(a <= c and b <= d for (a, b), (c, d) in pairwise(plain))
    covered = {at for a, b in spans for at in range(a, b)}
    assert covered == set(range(len(text)))


def test_special_tokens_have_no_characters():
    inner = encode(BYTE_LEVEL, "one")
    ids = [*inner, BYTE_LEVEL.tokenizer.eos_token_id, *inner]
    text = BYTE_LEVEL.text(ids)
    spans = BYTE_LEVEL.spans(ids, text)
    assert text == "oneone"
    assert spans[len(inner)] == (3, 3)


def test_decoders_that_join_words_are_followed():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "no", "effusion", ",", ".", "ede", "##ma"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    detokenizer = Detokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    ids = [1, 2, 3, 1, 5, 6, 4]
    text = detokenizer.text(ids)
    assert text == "no effusion, no edema."
    pieces = [text[a:b] for a, b in detokenizer.spans(ids, text)]
    assert "".join(pieces) == text
    assert [piece.strip() for piece in pieces] == ["no", "effusion", ",", "no", "ede", "ma", "."]
