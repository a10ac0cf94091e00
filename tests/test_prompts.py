"""Prompts and admissions of every container, and the bad ones."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators.prompts import check_prompts
from sklearn_clm.scoring.verdicts import check_admissions
from tests.toy import ToyModel, questions, toy_sampler

X, Y = questions(60)
NEW, _ = questions(20, first=3000)


def frame(texts):
    return pd.DataFrame({"question": texts})


def series(texts, dtype=None):
    return pd.Series(texts, dtype=dtype, index=np.arange(len(texts))[::-1])


def polars_series(texts):
    return pytest.importorskip("polars").Series("question", texts)


def polars_frame(texts):
    return pytest.importorskip("polars").DataFrame({"question": texts})


def hugging_face(texts):
    return pytest.importorskip("datasets").Dataset.from_dict({"question": texts})["question"]


CONTAINERS = {
    "tuple": tuple,
    "object": lambda texts: np.array(texts, dtype=object),
    "str": np.array,
    "str_ items": lambda texts: [np.str_(text) for text in texts],
    "column": lambda texts: np.array(texts, dtype=object).reshape(-1, 1),
    "Series": series,
    "Series of objects": lambda texts: series(texts, object),
    "DataFrame": frame,
    "polars Series": polars_series,
    "polars DataFrame": polars_frame,
    "Hugging Face column": hugging_face,
}


@pytest.fixture(scope="module")
def expected():
    return toy_sampler().fit(X, Y)


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_same(container, expected):
    wrap = CONTAINERS[container]
    sampler = toy_sampler().fit(wrap(X), wrap(Y))
    assert sampler.lambda_hat_ == expected.lambda_hat_
    assert sampler.predict(wrap(NEW)) == expected.predict(NEW)
    assert sampler.score(wrap(X), wrap(Y)) == expected.score(X, Y)
    assert sampler.fit_transform(wrap(X), wrap(Y)) == expected.predict(X)
    assert check_prompts(wrap(X)).prompts == X
    assert all(type(prompt) is str for prompt in check_prompts(wrap(X)).prompts)


def test_data_frames_name_their_column():
    sampler = toy_sampler().fit(frame(X), Y)
    assert sampler.n_features_in_ == 1
    assert sampler.feature_names_in_.tolist() == ["question"]
    assert sampler.predict(NEW) == sampler.predict(frame(NEW))
    with pytest.raises(ValueError, match="feature names should match"):
        sampler.predict(pd.DataFrame({"answer": NEW}))
    assert not hasattr(sampler.fit(X, Y), "feature_names_in_")
    assert not hasattr(sampler, "n_features_in_")
    two = pd.DataFrame({"question": X, "context": X})
    with pytest.raises(ValueError, match=r"X\['question'\]"):
        toy_sampler().fit(two, Y)
    beside = pd.DataFrame({"n": range(len(X)), "question": X})
    beside.loc[0, "question"] = None
    with pytest.raises(ValueError, match=r"X\['question'\]"):
        toy_sampler().fit(beside, Y)


class Echo(ToyModel):
    """Takes chats: the last message holds the question."""

    def _draw(self, prompt, seed, draw):
        return super()._draw(prompt[-1]["content"], seed, draw)


COLUMNS_OF_CHATS = {
    "polars Series": lambda pl, chats: pl.Series(chats),
    "polars DataFrame": lambda pl, chats: pl.DataFrame({"messages": chats}),
    "Arrow": lambda pl, chats: pl.Series(chats).to_arrow(),
    "pandas of a Parquet file": lambda pl, chats: pl.DataFrame({"messages": chats}).to_pandas(),
    "pandas on Arrow": lambda pl, chats: pl.Series(chats).to_pandas(
        use_pyarrow_extension_array=True
    ),
}


@pytest.mark.parametrize("kind", COLUMNS_OF_CHATS)
def test_chats_keep_their_keys_in_columns_of_every_library(kind):
    pl = pytest.importorskip("polars")
    chats = [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"}],
        [{"role": "user", "content": "two"}],
    ]
    assert check_prompts(COLUMNS_OF_CHATS[kind](pl, chats)).prompts == chats


def test_chats():
    def chats(texts):
        system = {"role": "system", "content": "Be brief."}
        return [[system, {"role": "user", "content": text}] for text in texts]

    array = np.empty(len(X), dtype=object)
    array[:] = chats(X)
    for given in (array, np.array(chats(X), dtype=object), series(chats(X))):
        assert check_prompts(given).prompts == chats(X)
    sampler = ConformalSampler(Echo(), k_max=5, epsilon=0.4, random_state=0).fit(chats(X), Y)
    plain = toy_sampler().fit(X, Y)
    data, same = sampler.calibration_data_, plain.calibration_data_
    np.testing.assert_array_equal(data.quality, same.quality)
    np.testing.assert_array_equal(data.labels, same.labels)
    # other prompts are split otherwise; so both are given data that do not know theirs
    bare = CalibrationData(data.quality, data.similarity, data.labels)
    assert sampler.calibrate(bare).lambda_hat_ == plain.calibrate(bare).lambda_hat_
    assert sampler.predict(chats(NEW)).responses == plain.predict(NEW).responses


def test_numeric_rows_of_every_kind():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    labels = (rows[:, 0] > 0).astype(int)
    reference = ConformalSampler(k_max=3, random_state=0, epsilon=0.8).fit(rows, labels)
    assert reference.n_features_in_ == 2
    for other in (rows.tolist(), list(rows), rows.astype(object), np.asfortranarray(rows)):
        sampler = ConformalSampler(k_max=3, random_state=0, epsilon=0.8).fit(other, labels.tolist())
        assert np.array_equal(sampler.predict(other), reference.predict(rows), equal_nan=True)
    table = pd.DataFrame(rows, columns=["a", "b"])
    sampler = ConformalSampler(k_max=3, random_state=0, epsilon=0.8).fit(table, labels)
    assert sampler.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names should match"):
        sampler.predict(table.rename(columns={"a": "c"}))
    with pytest.raises(ValueError, match="1 features, but"):
        reference.predict(rows[:, :1])
    assert np.asarray(reference.predict(rows)).dtype == np.float64


def test_fitted_on_one_kind_given_another():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    numeric = ConformalSampler(k_max=3, random_state=0, epsilon=0.8).fit(rows, rows[:, 0] > 0)
    with pytest.raises(ValueError, match="fitted on rows of numbers"):
        numeric.predict(["some text"])
    with pytest.raises(ValueError, match="fitted on objects such as text"):
        toy_sampler().fit(X, Y).predict(rows)


def test_images_stacked_or_listed():
    stack = np.random.default_rng(0).integers(0, 255, size=(4, 2, 2, 3))
    for images in (stack, list(stack)):
        checked = check_prompts(images)
        assert not checked.numeric
        assert [image.shape for image in checked.prompts] == [(2, 2, 3)] * 4


BAD_PROMPTS = [
    ({"a": 1}, TypeError, "dict"),
    (7, TypeError, "int 7"),
    ({"a"}, TypeError, "set"),
    (np.array([], dtype=object), ValueError, "empty"),
    (["a", float("nan")], ValueError, "nan at position 1"),
    (np.array(["a", np.nan, "b"], dtype=object), ValueError, "nan at position 1"),
    (["a", 3], ValueError, "3 at position 1"),
    ([1.0, 2.0, 3.0], ValueError, "1D array"),
    (sparse.csr_array(np.eye(3)), TypeError, "Sparse"),
    (np.array([["a", "b"], ["c", "d"]]), ValueError, "one column"),
    (np.zeros((3, 2, 2), dtype=object), ValueError, "one column"),
    (np.array([["1", "2"], ["3", "4"]], dtype=object), ValueError, "one column"),
    ([[1.0, 2.0], [3.0]], ValueError, "inhomogeneous|array element"),
    ([[1.0, np.nan]], ValueError, "NaN"),
    (np.array([[1.0, np.nan]]), ValueError, "NaN"),
    *((wrap(["a", None]), ValueError, "at position 1") for wrap in (series, frame)),
    *((pd.DataFrame({"a": [1, np.nan]}, dtype=one), ValueError, "NaN") for one in (float, "Int64")),
]


@pytest.mark.parametrize(("prompts", "error", "shown"), BAD_PROMPTS)
def test_bad_prompts(prompts, error, shown, expected):
    for call in (check_prompts, expected.predict):
        with pytest.raises(error, match=shown) as caught:
            call(prompts)
        assert len(str(caught.value)) < 700


def test_missing_values_of_polars():
    with pytest.raises(ValueError, match="at position 1"):
        check_prompts(polars_series(["a", None]))


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        *((y, TypeError, r"admissions \(y\) must be") for y in (len, {"a", "b", "c"})),
        (["a", "b", float("nan")], ValueError, r"admissions\[2\] .* got nan"),
        ([1.0, 2.0, np.inf], ValueError, "Input y contains infinity"),
        (iter(["a"] * 3), TypeError, "got list_iterator|got "),
        (np.array("a"), TypeError, "0-d array"),
        (sparse.csr_array(np.eye(3)), TypeError, "dense"),
    ],
)
def test_bad_admissions(y, error, message):
    with pytest.raises(error, match=message):
        toy_sampler().fit(X[:3], y)


def test_references_keep_their_keys_in_columns_of_polars():
    pl = pytest.importorskip("polars")
    references = [{"question": "a", "answer": "1"}, {"question": "b", "answer": "2"}]
    assert check_admissions(pl.Series(references), 2) == references
    assert check_admissions(pl.Series([["a", "b"], ["c"]]), 2) == [["a", "b"], ["c"]]


def test_admissions_in_plain_form():
    assert check_admissions(np.array([1, 2]), 2) == [1, 2]
    assert check_admissions(np.array([[1], [2]]), 2) == [1, 2]
    assert check_admissions([np.str_("a"), ["b", "c"]], 2) == ["a", ["b", "c"]]
    vectors = check_admissions(np.array([[1, 0], [0, 1]]), 2)
    assert [vector.tolist() for vector in vectors] == [[1, 0], [0, 1]]
