"""Generators: where samples come from.

| generator | draws from |
|---|---|
| :class:`FunctionGenerator` | a function of yours, plain or async: whatever you call today |
| :class:`TransformersGenerator` | a Hugging Face checkpoint: causal, encoder-decoder, vision |
| :class:`OpenAIGenerator` | OpenAI, and servers that speak its protocol: vLLM, llama.cpp ... |
| :class:`PrecomputedGenerator` | samples that exist: lists, data frames, JSON Lines |
| :class:`EstimatorGenerator` | a scikit-learn classifier: labels from ``predict_proba`` |
| :class:`ResamplingGenerator` | the references seen in ``fit``, whatever the prompt: a baseline |
| :class:`CascadeGenerator` | a cheap generator first, then dearer ones |
| :class:`ParallelGenerator` | another generator, in joblib's workers |
| :class:`sklearn_clm.caching.CachedGenerator` | another generator, each draw kept in a file |

## Draws are keyed

Draw j for a prompt under a seed depends on (generator, prompt, seed, j) alone: not on the batch,
the order, K, the number of processes or what was drawn before. The guarantee rests on it (given the
seed, a draw is a fixed function of its prompt), and it makes a draw a look-up: predictions are the
same one by one or together, searches draw nothing twice, an interrupted run resumes exactly. A
service that ignores seeds, and a GPU in low precision, where the other rows of a batch perturb the
logits by rounding, get the property from a :class:`sklearn_clm.caching.CachedGenerator`.

## Models on this machine

``TransformersGenerator("path/or/name", max_new_tokens=32, temperature=0.8, stop=["\\n"])`` loads
the model when it first draws. Prompts are run through the model once, whatever the number of
draws; rows that end make room for new ones. Where rows of a batch are cheap, a prediction draws
ahead of its rule as far as that saves time, by what rows were measured to cost; what was drawn for
nothing is ``n_begun_draws_`` less the `n_samples` of the sets. `device` and `dtype` choose a GPU; a
loaded model and its tokenizer may be given instead of a name. Prompts may be texts, chat messages
or images.

## A function of yours

Whatever you call today is a generator: an agent, a chain, another client, plain or ``async``.
``FunctionGenerator(ask, max_concurrency=16)`` calls it in parallel and repeats it where it fails;
``examples/recipes.md`` has LiteLLM, LangChain, DSPy, async clients, vLLM, ... Where it returns
text alone, give the sampler ``quality="self_consistency"``. Draws of a function that takes no seed
are keyed by a :class:`sklearn_clm.caching.CachedGenerator`, with a ``key=`` that names the model.

## Services

>>> from sklearn_clm.caching import CachedGenerator
>>> from sklearn_clm.generators import OpenAIGenerator
>>> server = OpenAIGenerator(
...     "my-model", base_url="http://localhost:8000/v1", max_tokens=32, max_concurrency=64,
...     logprobs=False,  # the default is True, as quality="likelihood" needs
... )
>>> generator = CachedGenerator(server)  # give it a path to keep draws over runs

Requests run concurrently and are repeated where they fail in passing. Keys come from the
environment and appear in no repr, pickle or cache. A prediction asks for a draw once the rule wants
it, so that none is paid for in vain; `draw_ahead` buys time with draws that will probably be
needed: see *In production* in `sklearn_clm.evaluation`.

## Samples that you have

>>> from sklearn_clm.generators import PrecomputedGenerator
>>> table = {
...     "question": ["2 + 2 =", "2 + 2 =", "3 + 3 =", "3 + 3 ="], "sample": ["4", "5", "6", "6"]
... }
>>> generator = PrecomputedGenerator.from_frame(table, prompt="question", response="sample")
>>> [draw.response for draw in generator.sample(["2 + 2 ="], 2)[0]]
['4', '5']

Other columns are named in the same way (``logprob=``, ``n_tokens=``). Draws are known by
their content, so that a table of new prompts is another generator, which a calibration refuses. To
calibrate on one table and predict on the next, give both the same ``key=``, which names the model
and its settings, then ``save_calibration`` and, with the new table, ``load_calibration``. The
shell reads such tables, and logs of lm-evaluation-harness and Inspect (`sklearn_clm.evaluation`).

## A generator of your own

A subclass of :class:`BaseGenerator` implements ``sample``; the example there takes a random stream
for each draw from :func:`draw_stream`, so that draws are keyed. :func:`check_keyed` draws twice and
compares. A generator with a ``fit(prompts, references)`` is cloned by the estimators and trained on
a part of the data that calibration never sees.

Where draws cost money or minutes, put it in a :class:`sklearn_clm.caching.CachedGenerator` and give
the class ``chunk_size = 1``: draws are kept after each call of ``sample``, by default for 256
prompts. One that works on many prompts at once implements ``serve(queue)``
(:class:`QueueGenerator`), so that nobody waits for the slowest of a round.

## Scaling out

| where | how |
|---|---|
| one GPU | ``TransformersGenerator(device="cuda", dtype="bfloat16")`` in a ``CachedGenerator`` |
| several processes | ``ParallelGenerator(generator, n_jobs=...)`` |
| several machines | the same, in ``joblib.parallel_config(backend="dask")`` or ``"ray"`` |
| a vLLM cluster | ``OpenAIGenerator``: scale on the server's side, raise `max_concurrency` |

Scores and judges take `n_jobs` of the estimator. Time and memory grow in proportion to the number
of prompts: 20 draws of 12 words for each of 100,000 prompts are collected in 190 s, without the
time of a model, and calibrated in 5 s, on one core and in 1.5 GiB (``python tests/benchmarks --only
scaling``). A process remembers the latest gigabyte of its draws, about a million; beyond that, a
:class:`sklearn_clm.caching.CachedGenerator` holds them all.
"""

import sklearn_clm.calibration  # noqa: F401 - whole, before parts of it
from sklearn_clm.generators._cascade import CascadeGenerator
from sklearn_clm.generators._classifiers import EstimatorGenerator, ResamplingGenerator
from sklearn_clm.generators._function import FunctionGenerator
from sklearn_clm.generators._parallel import ParallelGenerator
from sklearn_clm.generators._precomputed import PrecomputedGenerator
from sklearn_clm.generators.base import BaseGenerator, Generator, check_keyed
from sklearn_clm.generators.draws import Generation, draw_stream
from sklearn_clm.generators.openai import OpenAIGenerator, ServiceError
from sklearn_clm.generators.queue import DrawQueue, QueueGenerator
from sklearn_clm.generators.transformers import TransformersGenerator

__all__ = [
    "BaseGenerator",
    "CascadeGenerator",
    "DrawQueue",
    "EstimatorGenerator",
    "FunctionGenerator",
    "Generation",
    "Generator",
    "OpenAIGenerator",
    "ParallelGenerator",
    "PrecomputedGenerator",
    "QueueGenerator",
    "ResamplingGenerator",
    "ServiceError",
    "TransformersGenerator",
    "check_keyed",
    "draw_stream",
]
