"""Collecting block by block, and similarities that stay on disk."""

import numpy as np
import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import BaseGenerator, Generation, draw_stream

PROMPTS = [f"question {i % 110}" for i in range(120)]
REFERENCES = [str(i % 3) for i in range(120)]


class Letters(BaseGenerator):
    """A few words; no answer to some prompt, where one is named."""

    def __init__(self, fails_at=None):
        self.fails_at = fails_at

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        if self.fails_at in prompts:
            raise RuntimeError(f"no answer to {self.fails_at}")
        return [[self._draw(p, seed, start + j) for j in range(n_samples)] for p in prompts]

    def _draw(self, prompt, seed, draw):
        rng = draw_stream(prompt, seed, draw)
        words = " ".join(rng.choice(["0", "1", "2", "or"], size=2))
        return Generation(words, logprob=-rng.random(), n_tokens=2)


def sampler_for(**params):
    params = {"k_max": 4, "epsilon": 0.5, "random_state": 0, "generator": Letters(), **params}
    return ConformalSampler(admission=lambda reference, text: reference in text, **params)


def collected(memory=None, **params):
    sampler = sampler_for(**params)
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
    assert sampler.calibration_draws_ == Letters().sample(PROMPTS, 4)


def test_lazy_judging_goes_over_all_blocks(monkeypatch):
    thresholds = sampler_for(judging="lazy").fit(PROMPTS, REFERENCES).lambda_hat_
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    assert sampler_for(judging="lazy").fit(PROMPTS, REFERENCES).lambda_hat_ == thresholds


def test_similarities_stay_on_disk(monkeypatch, tmp_path):
    in_memory, expected = collected()
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    sampler, data = collected(tmp_path / "similarity.npy")
    assert isinstance(data.similarity, np.memmap)
    assert_same_data(data, expected)
    thresholds = in_memory.calibrate(expected).lambda_hat_
    assert sampler.calibrate(data).lambda_hat_ == thresholds is not None
    assert sampler.predict(PROMPTS[:3])[2].responses == in_memory.predict(PROMPTS[2:3])[0].responses
    again = CalibrationData.from_arrays(
        data.quality,
        tmp_path / "similarity.npy",
        data.admissible,
        mmap=True,
        provenance=data.provenance,
    )
    bare = CalibrationData(expected.quality, expected.similarity, expected.admissible)
    assert sampler_for().calibrate(again).lambda_hat_ == sampler_for().calibrate(bare).lambda_hat_


def test_the_file_is_there_when_it_is_complete(monkeypatch, tmp_path):
    monkeypatch.setattr("sklearn_clm.policies._collection._DRAWS_AT_ONCE", 100)
    sampler = sampler_for(generator=Letters(fails_at="question 100"))
    with pytest.raises(RuntimeError, match="no answer to question 100"):
        sampler.collect(PROMPTS, REFERENCES, memory=tmp_path / "similarity.npy")
    assert not list(tmp_path.iterdir())
    # what was drawn is kept, and a bad path costs no draw
    assert sampler.memory_.known(Letters("question 100"), PROMPTS[:75], 4).all()
    sampler = sampler_for()
    with pytest.raises(FileNotFoundError):
        sampler.collect(PROMPTS, REFERENCES, memory=tmp_path / "none" / "similarity.npy")
    with pytest.raises(TypeError):
        sampler.collect(PROMPTS, REFERENCES, memory=3)
    assert sampler.memory_.n_bytes == 0
