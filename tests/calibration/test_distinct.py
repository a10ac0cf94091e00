import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_clm.calibration._engine._acceptance import (
    DistinctSets,
    as_booleans,
    distinct_sets,
    set_bits,
)


def random_words(k, n_pairs, n, seed=0):
    """Few different sets of k draws for each of n prompts, as words (W, P, n) and booleans."""
    rng = np.random.default_rng(seed)
    choices = rng.random((max(2, n_pairs // 4), k, n)) < 0.5
    accepted = choices[rng.integers(0, len(choices), n_pairs)]
    places = list(set_bits(k))
    words = np.zeros((places[-1][0] + 1, n_pairs, n), dtype=places[0][1].dtype)
    for draw, (word, bit) in enumerate(places):
        words[word] |= accepted[:, draw] * bit
    return words, accepted


SIZES = [(1, 5, 3), (8, 16, 3), (20, 729, 4), (28, 15, 3), (29, 15, 3), (60, 15, 3), (61, 15, 3)]
SIZES += [(64, 40, 2), (65, 40, 2), (130, 9, 2), (5, 1, 4)]


@pytest.mark.parametrize(("k", "n_pairs", "n"), SIZES)
def test_each_set_occurs_once_with_all_pairs_that_lead_to_it(k, n_pairs, n):
    words, accepted = random_words(k, n_pairs, n)
    sets = distinct_sets(words, k)
    assert sets.accepted.shape == (k, len(sets.prompt))
    assert np.all(np.diff(sets.prompt) >= 0)
    seen = np.zeros((n, n_pairs), dtype=int)
    for u, prompt in enumerate(sets.prompt):
        pairs = sets.pairs[sets.begin[u] : sets.begin[u + 1]]
        seen[prompt, pairs] += 1
        for pair in pairs:
            assert_array_equal(accepted[pair, :, prompt], sets.accepted[:, u])
    assert np.all(seen == 1)
    for prompt in range(n):
        own = [tuple(column) for column in sets.accepted[:, sets.prompt == prompt].T.tolist()]
        assert own == sorted(set(map(tuple, accepted[:, :, prompt].tolist())))


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_blocks_are_the_whole_in_pieces(size):
    words, _ = random_words(12, 50, 6)
    sets = distinct_sets(words, 12)
    blocks = list(sets.blocks(size))
    assert [len(block.prompt) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    for name in ("accepted", "prompt", "pairs"):
        pieces = [getattr(block, name) for block in blocks]
        assert_array_equal(np.concatenate(pieces, axis=-1), getattr(sets, name))
    assert all(len(block.begin) == len(block.prompt) + 1 for block in blocks)
    counts = np.concatenate([np.diff(block.begin) for block in blocks])
    assert_array_equal(counts, np.diff(sets.begin))
    assert all((block.begin[0], block.begin[-1]) == (0, len(block.pairs)) for block in blocks)


def test_new_prefixes_are_the_distinct_beginnings_of_each_prompt():
    words, _ = random_words(6, 200, 5, seed=1)
    sets = distinct_sets(words, 6)
    new = sets.new_prefixes()
    beginnings = {
        (prompt, tuple(sets.accepted[: j + 1, u]))
        for u, prompt in enumerate(sets.prompt)
        for j in np.flatnonzero(sets.accepted[:, u])
    }
    found = [(sets.prompt[u], tuple(sets.accepted[: j + 1, u])) for j, u in zip(*np.nonzero(new))]
    assert len(found) == len(set(found))
    assert set(found) == beginnings


def test_sets_that_differ_between_prompts_only_are_kept_apart():
    accepted = np.array([[True, True], [False, False]])
    sets = DistinctSets(accepted, np.array([0, 1]), np.array([0, 0]), np.array([0, 1, 2]))
    assert_array_equal(sets.new_prefixes(), accepted)


@pytest.mark.parametrize("k", [1, 8, 9, 33, 65])
def test_words_hold_a_bit_for_each_draw(k):
    words, accepted = random_words(k, 10, 1)
    assert_array_equal(as_booleans(words[:, :, 0], k), accepted[:, :, 0].T)
