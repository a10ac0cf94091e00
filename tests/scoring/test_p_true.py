"""Qualities from a model that is asked about its own answers."""

import math

import numpy as np
import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import PTrue, quality_matrix
from sklearn_clm.scoring._quality import get_quality
from tests.toy import Answering

DRAWS = [[Generation("Paris"), Generation("Lyon"), Generation("Paris")]]


def votes(prompt, draw):
    """Answers, and answers to questions about answers."""
    text = str(prompt)
    if "Proposed answer" not in text:
        return Generation(["Paris", "Lyon", "Rome"][draw % 3], math.log(0.5), 1)
    return "Yes" if draw % 5 < (4 if "Paris" in text else 1) else "No"


def sure(prompt, draw):
    """The same with log-probabilities of yes and no."""
    said = votes(prompt, 0 if "Paris" in str(prompt) else 4)
    if said not in ("Yes", "No"):
        return votes(prompt, draw)
    logprobs, spans = (math.log(0.9), -3.0), ((0, len(said)), (len(said), len(said) + 1))
    return Generation(f"{said}!", sum(logprobs), 2, logprobs, spans)


@pytest.fixture(autouse=True)
def _forget():
    Answering.asked.clear()


def test_p_true_from_log_probabilities():
    values = quality_matrix(PTrue(Answering(sure)), ["Capital?"], DRAWS)
    np.testing.assert_allclose(values, [[0.9, 0.1, 0.9]])
    assert len(Answering.asked) == 2


@pytest.mark.parametrize(
    ("text", "spans", "logprobs", "value"),
    [
        (" Yes.", ((0, 2), (2, 4), (4, 5)), (0.5, 0.5, 0.1), 0.25),
        ("\nNo", ((0, 1), (1, 3)), (0.1, 0.9), 0.1),
        ("\n\nNo.", ((0, 2), (2, 4), (4, 5)), (0.3, 0.9, 0.2), 0.1),
        ("**Yes**", ((0, 2), (2, 5), (5, 7)), (0.2, 0.99, 0.5), 0.99),
        ("**No**", ((0, 2), (2, 4), (4, 6)), (0.2, 0.99, 0.5), 0.01),
        ('"Yes', ((0, 1), (1, 2), (2, 4)), (0.2, 0.5, 0.8), 0.4),
        (" No", ((0, 3),), (0.7,), 0.3),
        ("no", ((0, 0), (0, 2), (2, 2)), (0.4, 0.75, 0.3), 0.25),
        ("YES, because no", ((0, 3), (3, 15)), (0.6, 0.1), 0.6),
    ],
)
def test_only_tokens_of_the_word_count(text, spans, logprobs, value):
    logs = tuple(map(math.log, logprobs))
    model = Answering([Generation(text, sum(logs), len(logs), logs, spans)])
    assert PTrue(model).score_draws(["?"], DRAWS, 2) == [[pytest.approx(value)]]


def test_without_spans_a_formatted_answer_is_a_vote():
    def reply(text, draw):
        return Generation("**No**" if draw % 4 else "**Yes**", -9.0, 3, (-7.0, -1.0, -1.0))

    assert PTrue(Answering(reply), n_answers=4).score_draws(["?"], DRAWS, 2) == [[0.25]]
    plain = Answering([Generation("No", -0.5, 1, (-0.5,))])
    assert PTrue(plain).score_draws(["?"], DRAWS, 2) == [[pytest.approx(1 - math.exp(-0.5))]]


def test_p_true_from_votes():
    values = quality_matrix(PTrue(Answering(votes)), ["Capital?"], DRAWS)
    np.testing.assert_allclose(values, [[0.8, 0.2, 0.8]])


def test_votes_do_not_hang_on_what_else_is_asked():
    def reply(text, draw):
        if "Paris" in text:
            return Generation("Yes", -0.5, 1, (-0.5,))
        return Generation(["Yes", "No", "Hm", "No"][draw % 4])

    quality = PTrue(Answering(reply), n_answers=4)
    together = quality_matrix(quality, ["Capital?"], DRAWS)
    apart = [quality_matrix(quality, ["Capital?"], DRAWS, start=k)[0, 0] for k in range(3)]
    np.testing.assert_allclose(together, [apart])
    np.testing.assert_allclose(together, [[math.exp(-0.5), 1 / 3, math.exp(-0.5)]])


def test_chat_messages_are_quoted_as_text():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital?"}]
    PTrue(Answering(sure)).score_draws([messages], DRAWS, 2)
    assert "Question: Be brief.\n\nCapital?\n" in Answering.asked[0][0]


def test_templates():
    model = Answering(["Yes"])
    quality = PTrue(model, template=lambda prompt, response: f"Proposed answer {response}?")
    assert quality.score_draws(["x"], DRAWS, 2) == [[1.0]]


def test_without_a_generator():
    quality = get_quality("p_true")
    with pytest.raises(ValueError, match="generator of PTrue"):
        quality.score_draws(["x"], DRAWS)
    assert quality.bind(Answering(sure)).generator.answers is sure
    own = PTrue(Answering(sure))
    assert own.bind(Answering(votes)) is own
    assert own.fingerprint() != PTrue(Answering(votes)).fingerprint()


def test_by_name_a_sampler_asks_its_own_generator():
    prompts = [f"Capital {i}?" for i in range(40)]
    sampler = ConformalSampler(Answering(sure), k_max=3, epsilon=0.3, delta=0.1, quality="p_true")
    sets = sampler.fit(prompts, ["Paris"] * 40).predict(["Capital of France?"])
    assert "Paris" in sets[0].responses
    np.testing.assert_allclose(sampler.calibration_data_.quality[0], [0.9, 0.1, 0.1])
