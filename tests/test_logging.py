"""What is logged: little, and never printed."""

import logging

import pytest

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import ResamplingGenerator
from tests.toy import ToyModel, Trained, questions


def null_sampler(generator=None):
    return ConformalSampler(generator, k_max=2, epsilon=0.1, random_state=0)


def test_null_calibrations_and_kept_draws_are_logged(tmp_path, caplog):
    prompts, references = [f"{i}" for i in range(60)], [f"{i}" for i in range(60)]
    caplog.set_level(logging.INFO, logger="sklearn_clm")
    path = tmp_path / "draws.sqlite"
    for _ in range(2):
        with pytest.warns(NullCalibrationWarning):
            null_sampler(CachedGenerator(ResamplingGenerator(), path)).fit(prompts, references)
    levels = [record.levelname for record in caplog.records]
    assert levels.count("WARNING") == 2
    assert "null calibration" in caplog.text
    kept = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert kept
    assert all(str(path) in message for message in kept)


def test_predicting_what_calibrated_is_logged(caplog):
    prompts, references = questions(60)
    sampler = ConformalSampler(ToyModel(), k_max=5, epsilon=0.6, random_state=0)
    caplog.set_level(logging.INFO, logger="sklearn_clm")
    sampler.fit_transform(prompts, references)
    sampler.predict(questions(20, first=60)[0])
    assert not caplog.records
    sampler.score(prompts[:20] + questions(5, first=60)[0], references[:25])
    assert "20 of 25 prompts" in caplog.text


def test_predicting_what_trained_is_logged(caplog):
    prompts, references = questions(60)
    sampler = ConformalSampler(Trained(), k_max=5, epsilon=0.45, random_state=0)
    caplog.set_level(logging.INFO, logger="sklearn_clm")
    sampler.fit(prompts, references).predict(prompts)
    assert "60 of 60 prompts" in caplog.text


def test_nothing_is_printed_without_a_handler():
    handlers = logging.getLogger("sklearn_clm").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
