"""PredictionSets: a sequence, an array, a table, a text and a page."""

import pickle
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.utils import _safe_indexing

from sklearn_clm import ConformalSampler, PredictionSet, PredictionSets
from sklearn_clm.calibration import Provenance
from sklearn_clm.generators import Generation


def one(prompt, responses, n_samples=3, guaranteed=True):
    m = len(responses)
    draws = [Generation(response) for response in responses]
    draws += [Generation(responses[0] if m else "no")] * (n_samples - m)
    return PredictionSet(
        prompt,
        responses,
        np.linspace(0.9, 0.5, m),
        range(m),
        n_samples,
        0.5,
        m > 0,
        guaranteed,
        draws,
    )


TEXTS = PredictionSets(
    [one("a", ("x", "y")), one("b", ()), one("c", ("z",), guaranteed=False)],
    k_max=3,
    sampler="the sampler",
    provenance=Provenance(generator="one", seed=4),
)
NUMBERS = PredictionSets([one([0.0], (4, 5)), one([1.0], (6,))], k_max=3)


def test_a_set_is_a_collection_of_responses():
    first = TEXTS[0]
    assert len(first) == 2
    assert list(first) == ["x", "y"]
    assert "x" in first
    assert "z" not in first
    assert first == one("a", ("x", "y"))
    assert first != one("a", ("x", "z"))
    assert first != "a"
    assert str(first) == "'a' -> {'x', 'y'} (3 draws, stopped)"
    assert str(TEXTS[1]) == "'b' -> {} (3 draws, budget used up)"
    unclear = one("d", ("", "Krakow, I believe.", "it's\nRome ", "\x1b[1m", np.str_("z"), 4, 2.5))
    shown = """{'', 'Krakow, I believe.', "it's\\nRome ", '\\x1b[1m', 'z', 4, 2.5}"""
    assert str(unclear) == f"'d' -> {shown} (3 draws, stopped)"
    assert str(TEXTS[2]).endswith("stopped; no guarantee)")
    alone = PredictionSet("a", ("x",), [0.5], [0], 1, 0.5, True, True)
    assert str(alone) == "'a' -> {'x'} (1 draw, stopped)"
    assert "1 draw, stopped" in alone._repr_html_()


@pytest.mark.parametrize(
    "key",
    [
        slice(1, 3),
        slice(None, None, -1),
        [2, 0],
        (slice(0, 2), Ellipsis),
        np.array([0, 0, 1]),
        np.array([True, False, True]),
        [True, False, True],
        np.array([], dtype=int),
    ],
)
def test_indexed_like_an_array(key):
    rows = np.arange(3)[key[0] if isinstance(key, tuple) else key]
    part = TEXTS[key]
    assert isinstance(part, PredictionSets)
    assert [each.prompt for each in part] == [TEXTS[int(i)].prompt for i in rows]
    assert part.shape == (len(rows), 3)
    assert part.sampler == "the sampler"
    assert part.provenance == TEXTS.provenance


def test_single_items_columns_and_wrong_keys():
    assert TEXTS[-1].prompt == TEXTS[np.int64(2)].prompt == "c"
    assert TEXTS[:, 0].tolist() == ["x", None, "z"]
    assert NUMBERS[0, 1] == 5
    with pytest.raises(IndexError):
        TEXTS[3]
    with pytest.raises(IndexError):
        TEXTS[[True, False]]
    assert [each.prompt for each in _safe_indexing(TEXTS, [2, 1])] == ["c", "b"]


def test_as_an_array():
    assert TEXTS.shape == np.asarray(TEXTS).shape == (3, 3)
    assert TEXTS.dtype == np.asarray(TEXTS).dtype == object
    assert np.asarray(TEXTS).tolist() == [
        ["x", "y", None],
        [None, None, None],
        ["z", None, None],
    ]
    assert NUMBERS.dtype == np.asarray(NUMBERS).dtype == np.float64
    np.testing.assert_array_equal(np.asarray(NUMBERS), [[4, 5, np.nan], [6, np.nan, np.nan]])
    assert np.asarray(NUMBERS, dtype=np.float32).dtype == np.float32
    assert np.array(TEXTS[1:2]).tolist() == [[None, None, None]]


def test_a_set_without_members_is_still_text():
    assert TEXTS[1:2].dtype == object


def test_lists_arrays_and_equality():
    assert TEXTS.responses == [["x", "y"], [], ["z"]]
    assert TEXTS.sizes.tolist() == [2, 0, 1]
    assert TEXTS.n_samples.tolist() == [3, 3, 3]
    assert not TEXTS.guaranteed
    assert TEXTS[:2].guaranteed
    assert TEXTS[:] == TEXTS
    assert TEXTS[:2] != TEXTS
    assert TEXTS != [1, 2, 3]


def test_a_pickle_leaves_the_sampler_behind():
    copy = pickle.loads(pickle.dumps(TEXTS))
    assert copy == TEXTS
    assert copy.sampler is None
    assert TEXTS.sampler == "the sampler"
    assert copy.provenance == TEXTS.provenance


def test_to_frame():
    pytest.importorskip("pandas")
    frame = TEXTS.to_frame()
    assert frame["prompt"].tolist() == ["a", "b", "c"]
    assert frame["size"].tolist() == [2, 0, 1]
    assert frame["guaranteed"].tolist() == [True, True, False]
    long = frame.explode(["responses", "quality", "indices"])
    assert long["responses"].tolist()[:2] == ["x", "y"]
    assert NUMBERS.to_frame()["responses"].tolist() == [(4, 5), (6,)]
    assert TEXTS[:0].to_frame().shape[0] == 0
    assert frame.index.tolist() == [0, 1, 2]


def test_a_row_per_response_survives_a_csv_file(tmp_path):
    pd = pytest.importorskip("pandas")
    odd = PredictionSets([*TEXTS, one("d,\n'e'", ("it's (x, 'y')", "line\nline"))], k_max=3)
    frame = odd.to_frame("response")
    assert frame.index.tolist() == [0, 0, 1, 2, 3, 3]
    assert frame["quality"].tolist()[:2] == [0.9, 0.5]
    assert frame["draw"].tolist()[:2] == [0, 1]
    frame.to_csv(tmp_path / "sets.csv")
    read = pd.read_csv(tmp_path / "sets.csv", index_col=0)
    assert [
        rows.loc[rows["size"] > 0, "response"].tolist() for _, rows in read.groupby(level=0)
    ] == odd.responses
    assert read["size"].tolist() == [2, 2, 0, 1, 2, 2]
    assert read["guaranteed"].tolist() == [True, True, True, False, True, True]
    assert NUMBERS.to_frame("response")["response"].tolist() == [4, 5, 6]
    assert len(TEXTS[:0].to_frame("response")) == 0
    with pytest.raises(ValueError, match="per"):
        TEXTS.to_frame("set")


def test_the_index_of_the_prompts_stays():
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame(
        {"a": np.linspace(-1, 1, 80)}, index=pd.Index([f"row {i}" for i in range(80)], name="id")
    )
    sampler = ConformalSampler(k_max=3, epsilon=0.8, random_state=0)
    answers = np.where(rows["a"] > 0, "yes", "no")
    sets = sampler.fit(rows, answers).predict(rows[10:20])
    for some in (sets, pickle.loads(pickle.dumps(sets))):
        pd.testing.assert_index_equal(some.to_frame().index, rows.index[10:20])
    assert sets[[3, 1]].to_frame().index.tolist() == ["row 13", "row 11"]
    assert sets[sets.sizes > 0].to_frame("response").index.isin(rows.index).all()
    assert sampler.fit_transform(rows, answers).to_frame().index.equals(rows.index)
    texts = pd.Series([f"text {i}" for i in range(80)], index=rows.index)
    assert sampler.fit(texts, answers).predict(texts[5:7]).to_frame().index.tolist() == [
        "row 5",
        "row 6",
    ]
    assert sampler.predict(texts[5:7].tolist()).to_frame().index.tolist() == [0, 1]
    assert sampler.predict(texts[5:7]) == sampler.predict(texts[5:7].tolist())


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("br", "hr", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_escapes_whatever_a_model_says():
    evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
    sets = PredictionSets([one(evil, (evil, "fine & <b>dandy</b>"))], k_max=3)
    for page in (sets._repr_html_(), sets[0]._repr_html_()):
        parser = Tags()
        parser.feed(page)
        assert not parser.open
        assert "script" not in parser.tags
        assert "img" not in parser.tags
        assert evil in "".join(parser.text)
        assert "fine & <b>dandy</b>" in "".join(parser.text)


def test_long_collections_are_shown_in_part():
    many = PredictionSets([one(f"prompt {i}", ("x",)) for i in range(50)], k_max=3)
    assert "and 30 more" in str(many)
    assert "prompt 49" not in str(many)
    assert repr(many) == "<PredictionSets of 50 prompts, k_max=3>"
