"""Serialisation of prompts and the streams keyed by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_clm.generators import draw_stream
from sklearn_clm.generators.draws import prompt_bytes

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
prompts = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def canonical(prompt):
    """A hashable stand-in that two prompts share exactly when they are the same prompt."""
    if isinstance(prompt, dict):
        return "d", frozenset((key, canonical(value)) for key, value in prompt.items())
    if isinstance(prompt, (list, tuple)):
        return "l", tuple(canonical(item) for item in prompt)
    if isinstance(prompt, bool):
        return "t", prompt
    if isinstance(prompt, (int, float)):
        return "f", repr(float(prompt)) if abs(prompt) < 2**53 else prompt
    return type(prompt).__name__, prompt


@given(prompts, prompts)
def test_equal_bytes_mean_equal_prompts(a, b):
    assert (prompt_bytes(a) == prompt_bytes(b)) == (canonical(a) == canonical(b))


def test_numpy_and_python_forms_are_one_prompt():
    assert prompt_bytes(np.str_("Q")) == prompt_bytes("Q")
    assert prompt_bytes(np.int64(3)) == prompt_bytes(3) == prompt_bytes(3.0)
    row = np.array([1.0, 0.5])
    assert prompt_bytes(row) == prompt_bytes(row.astype(np.float32))
    assert prompt_bytes(row) == prompt_bytes(np.array([1.0, 9.0, 0.5])[::2])
    assert prompt_bytes(np.array(["a", "b"], dtype=object)) == prompt_bytes(["a", "b"])
    assert prompt_bytes(row) != prompt_bytes(row[:, np.newaxis])


def test_images_are_told_apart_by_their_pixels_and_palettes():
    image = pytest.importorskip("PIL.Image")
    black, white, wide = (image.new("L", *of) for of in (((4, 4),), ((4, 4), 255), ((2, 8),)))
    assert len({prompt_bytes(variant) for variant in (black, white, wide, black.copy())}) == 3
    red, blue = (image.new("P", (4, 4)) for _ in range(2))
    red.putpalette((255, 0, 0))
    blue.putpalette((0, 0, 255))
    clear = red.copy()
    clear.info["transparency"] = 0
    assert len({prompt_bytes(variant) for variant in (red, blue, clear, red.copy())}) == 3


def test_unknown_types_are_refused_by_name():
    with pytest.raises(TypeError, match=r"prompts .*object"):
        prompt_bytes(["fine", object()])


@given(st.text(max_size=5), st.integers(0, 2**32), st.integers(0, 50))
def test_streams_are_functions_of_their_key(prompt, seed, draw):
    first = draw_stream(prompt, seed, draw).random(4)
    np.testing.assert_array_equal(first, draw_stream(prompt_bytes(prompt), seed, draw).random(4))
    for other in (
        draw_stream(prompt + "x", seed, draw),
        draw_stream(prompt, seed + 1, draw),
        draw_stream(prompt, seed, draw + 1),
        draw_stream(prompt, seed, draw, salt=b"other"),
    ):
        assert not np.array_equal(first, other.random(4))


def test_first_numbers_of_many_keys_are_uniform_and_uncorrelated():
    uniforms = np.array(
        [[draw_stream(f"p{i}", 0, j).random() for j in range(4)] for i in range(2500)]
    )
    counts, _ = np.histogram(uniforms, bins=20, range=(0, 1))
    expected = uniforms.size / 20
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 43.8  # 99.9 % quantile, 19 degrees of freedom
    correlations = np.corrcoef(uniforms.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(2500)


def test_integers_beyond_double_precision_are_told_apart():
    large = [1, 2**53, 2**53 + 1, 2**60 + 1]
    assert len({prompt_bytes(number) for number in large}) == 4
    for dtype in (np.int64, np.uint64):
        assert len({prompt_bytes(np.array([number], dtype)) for number in large}) == 4
    assert prompt_bytes(2.0**60) == prompt_bytes(2**60) != prompt_bytes(2**60 + 1)
    for number in (np.inf, -np.inf, np.nan):
        assert prompt_bytes(number) == prompt_bytes(np.float32(number))


def test_missing_numbers_are_equal_to_themselves():
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64)
    keys = {prompt_bytes(np.array([1.0, nan])) for nan in nans.view(np.float64)}
    assert keys == {prompt_bytes(np.array([1.0, np.nan], dtype=np.float32))}


def test_parts_and_order_of_keys():
    assert prompt_bytes([["a"], "b"]) != prompt_bytes([["a", "b"]])
    assert prompt_bytes(["ab", ""]) != prompt_bytes(["a", "b"])
    assert prompt_bytes({"a": 1, "b": 2}) == prompt_bytes({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="position 5"):
        prompt_bytes([{"content": "half \ud83d"}])
