"""People who audit a model, and do what the page suggests."""

import json
import re

import numpy as np
import pytest
from scipy.stats import binom

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import HumanJudge
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.judging import JudgingSession
from sklearn_clm.judging._server import _turn_view
from sklearn_clm.policies import AuditedJudging

EPSILON, DELTA, N_PROMPTS, N_AUDITS = 0.3, 0.2, 75, 24
SAYS_SOMETHING = re.compile(
    r"\b(model|judge[sd]?|admits?|agrees?|says?|right|yes)\b", re.IGNORECASE
)


def admits_all(reference, response):
    """A model that is too lenient: people would reject a third of it."""
    return True


def admits_most(reference, response):
    """Another model, of other verdicts."""
    return not response.endswith(("3", "7"))


def around(view):
    """All that a page says besides the prompt, the response and the references."""
    pair = view["pair"] or {}
    bare = {"pair": {name: [] for name in pair} | {"id": "", "compared": None}}
    rest = {
        name: value for name, value in (view | bare).items() if name not in ("undo", "question")
    }
    return json.dumps([rest, sorted(pair)])


def audited(folder, model, seed, session_type=JudgingSession):
    """A calibration that people audit; is it certified, and the pages that they saw, by pair.

    Of 100 responses two fewer are right than is promised. People know which, but where a page says
    anything of the model they do as it says.
    """
    prompts = [f"item {i} of {seed}" for i in range(N_PROMPTS)]
    right = np.random.default_rng(seed).random(N_PROMPTS) < 1 - EPSILON - 0.02
    said = [[f"answer {i}"] for i in range(N_PROMPTS)]
    truth = dict(zip(prompts, right.tolist()))
    judge = HumanJudge(folder / f"{model.__name__}-{seed}.sqlite", judge="Ada")
    sampler = ConformalSampler(
        PrecomputedGenerator(prompts, said),
        k_max=1,
        epsilon=EPSILON,
        delta=DELTA,
        admission=model,
        quality="self_consistency",
        similarity="exact_match",
        judging=AuditedJudging(judge, n_audits=N_AUDITS, design="two-phase"),
    )
    asked = judge.asked(prompts, prompts)
    data = sampler.collect(prompts, asked)
    session = session_type(judge, lambda: sampler.calibrate(data).calibration_.certified)
    turn, pages = session.turn(), {}
    while turn.pair is not None:
        view = _turn_view(session, turn)
        pages[turn.pair.id] = view
        suggested = SAYS_SOMETHING.search(around(view))
        verdict = suggested or truth[turn.pair.asked.prompt]
        turn = session.act(turn.pair.id, "y" if verdict else "n")
    return sampler.calibration_.certified, pages


class Leaning(JudgingSession):
    """Broken: the page says what the model says."""

    def _turn(self, notice):
        return super()._turn(notice)._replace(notice="The model says yes, too.")


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_people_who_do_as_the_page_suggests_certify_no_more_than_delta_allows(tmp_path):
    seeds = range(16)
    certified = [audited(tmp_path, admits_all, seed)[0] for seed in seeds]
    assert sum(certified) <= binom.ppf(0.999, len(seeds), DELTA)
    # ... and with a page that leans on them they certify what is false
    led = [audited(tmp_path, admits_all, 100 + seed, Leaning)[0] for seed in range(4)]
    assert all(led)


@pytest.mark.filterwarnings("ignore::sklearn_clm.NullCalibrationWarning")
def test_a_page_is_the_same_whatever_the_model_says(tmp_path):
    pages = [audited(tmp_path, model, 0)[1] for model in (admits_all, admits_most)]
    common = pages[0].keys() & pages[1].keys()
    assert len(common) > 5
    for id_ in common:
        assert pages[0][id_]["pair"] == pages[1][id_]["pair"]
        assert not SAYS_SOMETHING.search(around(pages[0][id_]))
    asked = [{page["pair"]["response"][0][0] for page in seen.values()} for seen in pages]
    assert any(text.endswith(("3", "7")) for text in asked[0])
    assert not any(text.endswith(("3", "7")) for text in asked[1])
