"""Collecting block by block, and similarities that stay on disk."""

import numpy as np
import pytest

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import DrawQueue
from tests.toy import ToyModel, drawn, questions, toy_sampler

PROMPTS, REFERENCES = ([*some, *some[:10]] for some in questions(110))


class Failing(ToyModel):
    """The toy model, which has no answer to one of the prompts."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        if "item 100" in prompts:
            raise RuntimeError("no answer to item 100")
        return super().sample(prompts, n_samples, start=start, seed=seed)


def collected(memory=None, **params):
    sampler = toy_sampler(k_max=4, **params)
    return sampler, sampler.collect(PROMPTS, REFERENCES, memory=memory)


def assert_same_data(data, expected):
    for name in ("quality", "similarity", "admissible", "texts"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))
    assert data.provenance == expected.provenance


@pytest.mark.parametrize("quality", ["likelihood", "self_consistency"])
@pytest.mark.parametrize("draws_at_once", [1, 30, 479])
def test_blocks_make_no_difference(monkeypatch, draws_at_once, quality):
    _, expected = collected(quality=quality)
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", draws_at_once)
    sampler, data = collected(quality=quality)
    assert_same_data(data, expected)
    assert sampler.calibration_draws_ == ToyModel().sample(PROMPTS, 4)


def test_lazy_judging_goes_over_all_blocks(monkeypatch):
    lazy = toy_sampler(judging="lazy")
    thresholds = lazy.fit(PROMPTS, REFERENCES).lambda_hat_
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    assert lazy.fit(PROMPTS, REFERENCES).lambda_hat_ == thresholds


def test_similarities_stay_on_disk(monkeypatch, tmp_path):
    in_memory, expected = collected()
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    sampler, data = collected(tmp_path / "similarity.npy")
    assert isinstance(data.similarity, np.memmap)
    assert_same_data(data, expected)
    thresholds = in_memory.calibrate(expected).lambda_hat_
    assert sampler.calibrate(data).lambda_hat_ == thresholds is not None
    assert sampler.predict(PROMPTS[:3])[2].responses == in_memory.predict(PROMPTS[2:3])[0].responses
    arrays = data.quality, tmp_path / "similarity.npy", data.admissible
    again = CalibrationData.from_arrays(*arrays, mmap=True, provenance=data.provenance)
    bare = CalibrationData(expected.quality, expected.similarity, expected.admissible)
    other = toy_sampler(k_max=4)
    assert other.calibrate(again).lambda_hat_ == other.calibrate(bare).lambda_hat_


def test_the_file_is_there_when_it_is_complete(monkeypatch, tmp_path):
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    generator = Failing(log=tmp_path / "log")
    sampler = toy_sampler(generator, k_max=4)
    with pytest.raises(RuntimeError, match="no answer to item 100"):
        sampler.collect(PROMPTS, REFERENCES, memory=tmp_path / "similarity.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    # what was drawn is kept, and a bad path costs no draw
    n_drawn = len(drawn(generator.log))
    sampler.memory_.serve(generator, DrawQueue(PROMPTS[:75], 4))
    assert len(drawn(generator.log)) == n_drawn
    sampler = toy_sampler(k_max=4)
    with pytest.raises(FileNotFoundError):
        sampler.collect(PROMPTS, REFERENCES, memory=tmp_path / "none" / "similarity.npy")
    with pytest.raises(TypeError):
        sampler.collect(PROMPTS, REFERENCES, memory=3)
    assert sampler.memory_.n_bytes == 0
