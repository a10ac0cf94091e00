"""Scores and judges: what samples are worth.

Four questions are asked of samples, each answered by a plain callable or by the name of a built-in
one.

| parameter | question | yours |
|---|---|---|
| `admission` | is this response right? | ``(reference, response) -> bool`` |
| `quality` | how good does it look? | ``(prompt, generation) -> float`` |
| `similarity` | how alike are two responses? | ``(a, b) -> float`` |
| `set_score` | is the set good enough? | ``(qualities) -> float`` |

Names: admissions "exact_match" and "rouge_l"; qualities "likelihood", "self_consistency" and
"p_true"; similarities "rouge_l" and "exact_match"; set scores "max", "sum", "first_k" and
"first_k_reject" (:func:`get_set_score` defines them).

Components (sentences, or claims in other words) ask two more: how a response is split (`splitter`:
"sentence", a :class:`ClaimSplitter`, or a callable), and how certain a component is
(`component_score`: "span_likelihood", "support", a :class:`ClaimSupport`, :class:`GroundedIn`,
:class:`VerbalisedConfidence` or :class:`EntailmentScore`, a classifier, or
``(prompt, component) -> float``).

Only the admission defines what the guarantee is about. A poor quality or similarity costs draws and
size, never the guarantee.

## Choosing the admission

- Short answers: "exact_match", which ignores case, English articles, white space and idle ASCII
  punctuation, as is usual for TriviaQA; a reference may be a list of aliases. Labels and numbers
  compare by equality, and a text never equals a number. "The answer is 42." is not 42: have the
  answer alone returned, or read it out of the response.
- Texts: :func:`threshold_admission` turns any metric into an admission.
- Reports: a function that compares what a labeller reads out of them.
- Meaning: :class:`LLMJudge` asks a model, :class:`EntailmentScore` a small NLI model.
- People: :class:`sklearn_clm.caching.HumanJudge`.

Where the judge errs, let it be stricter than you are: the guarantee then holds for the truth, too.

>>> from sklearn_clm.scoring import RougeL, exact_match, threshold_admission
>>> exact_match("The Eiffel Tower", "eiffel tower."), exact_match("+1", "-1")
(True, False)
>>> def last_word(reference, response):
...     return exact_match(reference, response.split()[-1])
>>> exact_match("42", "The answer is 42."), last_word("42", "The answer is 42.")
(False, True)
>>> summary = threshold_admission(RougeL(use_stemmer=True), 0.35)
>>> bool(summary("the cat sat on the mat", "a cat is sitting on a mat"))
True

"rouge_l" compares ASCII letters and digits alone, as the `rouge-score` package does: for other
scripts, of which ``fit`` warns, take "exact_match" as similarity, and as admission a function that
knows their punctuation. ``use_stemmer`` is that package's Porter stemmer, which the authors'
scripts use for summaries and reports.

>>> import re
>>> def same_words(reference, response):  # of any script, whatever stands between
...     first, second = (re.findall(r"\\w+", text.casefold()) for text in (reference, response))
...     return first == second
>>> exact_match("北京", "北京。"), same_words("北京", "北京。")
(False, True)

## Choosing the quality

- "likelihood" (length-normalised, of the *base* model: :func:`likelihood`) is free where
  log-probabilities are known: local models, and services that give `logprobs`.
- "self_consistency", the agreement of a draw with the prompt's earlier ones, needs nothing: the
  choice for services without log-probabilities and short answers. The first draw has nothing to
  agree with.
- "p_true" (:class:`PTrue`) asks the model whether its answer is right, for one more request per
  draw.
- A classifier that was trained on other data beats them all where you have such data.

## A score of your own

>>> from sklearn_clm.generators import Generation
>>> from sklearn_clm.scoring import quality_matrix
>>> draws = [[Generation("Paris"), Generation("Lyon")]]
>>> def shortness(prompt, generation):
...     return 1.0 / (1 + len(generation.response))
>>> quality_matrix(shortness, ["The capital of France?"], draws).round(2)
array([[0.17, 0.2 ]])

What can score whole rows, or all pairs of two lists, says so by a method of a protocol:
:class:`DrawScorer`, :class:`PairwiseSimilarity`, :class:`PairJudge`, :class:`ComponentScore`.

What linear algebra gives depends on the batch in its last digits. Thresholds stand between scores,
so that these decide nothing; ``fit`` scores a few draws alone as well, and refuses a score of yours
where the difference would change sets, as in half precision it may.

A calibration holds for the scores that it saw. A function of yours is its name, its source
(comments and docstrings aside), its defaults and the variables around it; the globals and helpers
that it uses are not followed. Its source is that of the code which runs: a file that is edited
meanwhile counts from the next start of Python on. A class is its functions, and its attributes as
they were at first: values, members of enumerations, functions and objects of yours, but no client
or other object of a package. What an installed package holds is its name, whatever its version. An
object is its class and the parameters of its ``__init__``, where it keeps them under their names,
or else all its attributes; an estimator is also what it has learnt. An object or a function that
has a method ``fingerprint() -> str`` says itself what it is: ``shortness.fingerprint = lambda:
"v1"``. A function that remembers what it was asked, in a variable around it, needs that: otherwise
it is another one after each use.

## A judge of your own

Any function ``(reference, response) -> bool``, such as ``last_word`` above, or callables
``A_i(response) -> bool`` in place of references. A judge that takes many pairs at once is a
:class:`PairJudge`:

>>> from sklearn_clm.scoring import PairJudge, admission_matrix
>>> class SameLength(PairJudge):
...     def judge_pairs(self, references, responses):
...         return enumerate(len(a) == len(b) for a, b in zip(references, responses))
>>> admission_matrix(SameLength(), ["two", "three"], [["six"], ["four"]])
array([[ True],
       [False]])

Judges that cost money belong in a :class:`sklearn_clm.caching.CachedAdmission`, which keeps each
verdict as it arrives.

## Components

What is checked need not stand in the text. A `splitter` gives parts of a response, or *claims*,
which are true or not by themselves; one may rest on others, and is selected only if they are:

>>> from sklearn_clm.scoring import Claim
>>> def facts(prompt, response):  # ClaimSplitter(ask) has a model do this
...     return [Claim("Curie was born in 1867."), Claim("She was 44 in 1911.", parents=(0,))]

Equal claims of several draws are one component. A claim costs where a model is asked for it:
:class:`sklearn_clm.caching.CachedSplitter` keeps all of them.

"span_likelihood" scores a sentence by the likelihood of its tokens. "support" counts the draws that
agree with it, of all draws that were taken; it needs no log-probabilities, and suits samplers that
seldom stop early. Of claims, :class:`ClaimSupport` counts the draws that say the same in whatever
words, :class:`VerbalisedConfidence` asks a model for a number, and :class:`GroundedIn` asks which
passage of the prompt entails one, and cites it. A classifier (:class:`ClassifierScore`) selects
most where it can be trained, and :class:`CombinedScore` trains one on several such numbers, with
prompts that calibrate nothing. A score that looks at other draws must never fall when draws are
added: the guarantee rests on it.
"""

import sklearn_clm.generators  # noqa: F401 - whole, before parts of it
from sklearn_clm.calibration.set_scores import SetScore, get_set_score
from sklearn_clm.scoring._claims import Citation, Citing, ClaimSupport, GroundedIn
from sklearn_clm.scoring._combined import CombinedScore
from sklearn_clm.scoring._components import SpanLikelihood, Support
from sklearn_clm.scoring._entailment import EntailmentScore
from sklearn_clm.scoring._exact_match import exact_match
from sklearn_clm.scoring._language_model import (
    ClaimSplitter,
    LLMJudge,
    PTrue,
    VerbalisedConfidence,
)
from sklearn_clm.scoring._quality import (
    ClassifierScore,
    SelfConsistency,
    likelihood,
    quality_matrix,
)
from sklearn_clm.scoring._similarity import RougeL, rouge_l, rouge_l_matrix, similarity_tensor
from sklearn_clm.scoring._splitters import SentenceSplitter, get_splitter
from sklearn_clm.scoring.admission import component_match, threshold_admission
from sklearn_clm.scoring.protocols import (
    Claim,
    ComponentScore,
    DrawScorer,
    Occurrence,
    PairJudge,
    PairSplitter,
    PairwiseSimilarity,
)
from sklearn_clm.scoring.verdicts import admission_matrix

__all__ = [
    "Citation",
    "Citing",
    "Claim",
    "ClaimSplitter",
    "ClaimSupport",
    "ClassifierScore",
    "CombinedScore",
    "ComponentScore",
    "DrawScorer",
    "EntailmentScore",
    "GroundedIn",
    "LLMJudge",
    "Occurrence",
    "PTrue",
    "PairJudge",
    "PairSplitter",
    "PairwiseSimilarity",
    "RougeL",
    "SelfConsistency",
    "SentenceSplitter",
    "SetScore",
    "SpanLikelihood",
    "Support",
    "VerbalisedConfidence",
    "admission_matrix",
    "component_match",
    "exact_match",
    "get_set_score",
    "get_splitter",
    "likelihood",
    "quality_matrix",
    "rouge_l",
    "rouge_l_matrix",
    "similarity_tensor",
    "threshold_admission",
]
