"""Twenty draws for few-shot prompts beside `generate`, one prompt at a time; on one thread."""

import hashlib
import warnings
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.base import clone

from . import Row

__all__ = ["rows"]

N_SHARED, N_NEW, N_DRAWS = 512, 8, 20
_WORDS = [f"w{rank}" for rank in range(2_000)]


def rows(quick: bool = False) -> Iterator[Row]:
    """Time few-shot question answering: 512 shared tokens, 8-token answers, 20 draws."""
    import torch

    from sklearn_clm.generators import TransformersGenerator

    warnings.filterwarnings("ignore", module="transformers")
    torch.set_num_threads(1)  # those of a model as small as this mostly wait for each other
    model, tokenizer = _model()
    prompts = _prompts(8 if quick else 16)
    generator = TransformersGenerator(
        model, tokenizer=tokenizer, max_new_tokens=N_NEW, batch_size=64
    )
    generator.sample(prompts[:1], 1)  # loads nothing, but looks at the model
    generator = clone(generator)  # counts from 0

    n_timed = 1 if quick else 2
    torch.manual_seed(0)
    start = perf_counter()
    for prompt in prompts[:n_timed]:
        _one_prompt_at_a_time(model, tokenizer, prompt)
    reference = (perf_counter() - start) / n_timed
    start = perf_counter()
    ours = generator.sample(prompts, N_DRAWS)
    seconds = (perf_counter() - start) / len(prompts)
    yield Row(
        f"{N_DRAWS} draws of {N_NEW} tokens for {len(prompts)} prompts with {N_SHARED} shared "
        "tokens, per prompt",
        f"{1e3 * reference:.0f} ms (generate, one prompt at a time)",
        f"{1e3 * seconds:.0f} ms",
        reference / seconds,
    )
    yield from _token_rows(generator, tokenizer, prompts, ours)
    yield from _stopping_rows("zero-shot prompts", quick)
    yield from _stopping_rows("512 shared and 100 own tokens", quick)
    yield from _alone_rows("few draws needed", 0.5, quick)
    yield from _alone_rows("many draws needed", 0.92, quick)


def _one_prompt_at_a_time(model: Any, tokenizer: Any, prompt: str) -> None:
    """Draw with `generate`, five sequences in a call."""
    import torch

    inputs = tokenizer([prompt], return_tensors="pt")
    with torch.inference_mode():
        for _ in range(N_DRAWS // 5):
            model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                do_sample=True,
                top_k=50,
                max_new_tokens=N_NEW,
                num_return_sequences=5,
                return_dict_in_generate=True,
                output_scores=True,
            )


def _token_rows(generator: Any, tokenizer: Any, prompts: list[str], draws: Any) -> Iterator[Row]:
    """Tokens run through the model beside the fewest that could be."""
    lengths = [len(ids) for ids in tokenizer(prompts)["input_ids"]]
    own = sum(length - N_SHARED for length in lengths)
    decoded = sum(draw.n_tokens - 1 for row in draws for draw in row)
    per_draw, padded = N_DRAWS * sum(lengths), len(prompts) * N_DRAWS * (N_NEW - 1)
    of = generator
    for step, fewest, usual, why, found in (
        ("prefilled", N_SHARED + own, per_draw, "prompt for every draw", of.n_prefilled_tokens_),
        ("decoded", decoded, padded, "draw to the end of its batch", of.n_decoded_tokens_),
    ):
        what = f"tokens {step} (fewest possible {fewest:,})"
        yield Row(what, f"{usual:,} (every {why})", f"{found:,}", usual / found)


def _stopping_rows(what: str, quick: bool) -> Iterator[Row]:
    """`predict`, whose rule looks at each draw before it asks for another, beside `sample`.

    Processor time of one thread, of runs that take turns, so that whatever else the machine does
    concerns all of them alike.
    """
    from sklearn_clm.generators import TransformersGenerator

    model, tokenizer = _model(hidden_size=128, n_layers=4)
    rng = np.random.default_rng(1)
    if what.startswith("zero"):
        prompts = [" ".join(rng.choice(_WORDS, rng.integers(8, 25))) for _ in range(64)]
    else:
        header = " ".join(rng.choice(_WORDS, N_SHARED))
        prompts = [f"{header} {' '.join(rng.choice(_WORDS, 100))}" for _ in range(32)]
    generator = TransformersGenerator(
        model, tokenizer=tokenizer, max_new_tokens=N_NEW, batch_size=16
    )
    stopping, patient = _sampler(generator, _uniform), _sampler(generator, _never_enough)
    n_used = int(stopping.predict(prompts).n_samples.sum())
    runs = {
        "all": lambda: generator.sample(prompts, N_DRAWS),
        "all one by one": lambda: patient.predict(prompts),
        "stopping": lambda: stopping.predict(prompts),
        "as many": lambda: generator.sample(prompts, round(n_used / len(prompts))),
    }
    makers = (generator, patient.generator_, stopping.generator_, generator)
    seconds, n_prefilled = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0)
    n_rounds = 1 if quick else 3
    for _ in range(n_rounds):
        for maker, (name, run) in zip(makers, runs.items(), strict=True):
            maker._load()._forward[1]._prefix = None
            for sampler in (stopping, patient):
                sampler.memory_.clear()
            before, start = maker.n_prefilled_tokens_, process_time()
            run()
            seconds[name] += (process_time() - start) / n_rounds
            n_prefilled[name] += (maker.n_prefilled_tokens_ - before) // n_rounds
    n_all = len(prompts) * N_DRAWS
    yield Row(
        f"{what}: predict that uses all of {n_all:,} draws, time per draw (at most 1.1)",
        f"{1e3 * seconds['all'] / n_all:.2f} ms (sample)",
        f"{1e3 * seconds['all one by one'] / n_all:.2f} ms",
        seconds["all one by one"] / seconds["all"],
    )
    yield Row(
        f"{what}: predict that uses {n_used:,} of {n_all:,} draws (at half of them at most 0.6)",
        f"{seconds['all']:.2f} s (sample of all; as many as are used: {seconds['as many']:.2f} s)",
        f"{seconds['stopping']:.2f} s",
        seconds["stopping"] / seconds["all"],
    )
    yield Row(
        f"{what}: tokens prefilled by that (at most 1.02)",
        f"{n_prefilled['all']:,} (sample)",
        f"{n_prefilled['stopping']:,}",
        n_prefilled["stopping"] / n_prefilled["all"],
    )


def _alone_rows(what: str, least: float, quick: bool) -> Iterator[Row]:
    """`predict` of one prompt at a time, beside one draw after another and all in one batch."""
    from sklearn_clm.generators import TransformersGenerator

    class OneAfterAnother(TransformersGenerator):
        """Makes no draw before it is wanted."""

        def serve(self, queue: Any) -> None:
            queue.take_ahead = lambda max_draws, least_chance=0.0, *, n_at_once=None: []
            super().serve(queue)

    model, tokenizer = _model(hidden_size=128, n_layers=4)
    rng = np.random.default_rng(2)
    n = 12 if quick else 48
    prompts = [" ".join(rng.choice(_WORDS, rng.integers(8, 25))) for _ in range(n)]
    options = {"tokenizer": tokenizer, "max_new_tokens": N_NEW}
    ours, slow = (
        _sampler(kind(model, **options), _uniform, least)
        for kind in (TransformersGenerator, OneAfterAnother)
    )
    n_used = int(ours.predict(prompts).n_samples.sum())  # and learns what rows cost
    runs = {
        "after another": lambda: [slow.predict([prompt]) for prompt in prompts],
        "all": lambda: [ours.generator_.sample([prompt], N_DRAWS) for prompt in prompts],
        "ours": lambda: [ours.predict([prompt]) for prompt in prompts],
    }
    seconds = dict.fromkeys(runs, 0.0)
    for _ in range(1 if quick else 3):
        for name, run in runs.items():
            ours.memory_.clear()
            slow.memory_.clear()
            before, start = ours.generator_.n_begun_draws_, process_time()
            run()
            seconds[name] += process_time() - start
            n_begun = ours.generator_.n_begun_draws_ - before
    n_all = n * N_DRAWS
    what = f"one prompt at a time, {what} ({n_used:,} of {n_all:,}; {n_begun:,} begun)"
    for of, most in (("after another", 1), ("all", 1.1)):
        yield Row(
            f"{what}: beside {'one draw after another' if of != 'all' else 'all in one batch'} "
            f"(at most {most})",
            f"{1e3 * seconds[of] / n:.1f} ms",
            f"{1e3 * seconds['ours'] / n:.1f} ms",
            seconds["ours"] / seconds[of],
        )


def _sampler(generator: Any, quality: Any, least: float = 0.92) -> Any:
    """Calibrated to stop at the first draw of high quality, above `least` or a little less."""
    from sklearn_clm import ConformalSampler
    from sklearn_clm.calibration import CalibrationData
    from sklearn_clm.policies import ThresholdPolicy

    scores = np.random.default_rng(0).random((4_000, N_DRAWS))
    data = CalibrationData(scores, np.zeros((4_000, N_DRAWS, N_DRAWS)), scores > least)
    options = {"policy": ThresholdPolicy(n_lambdas=40), "quality": quality, "random_state": 0}
    sampler = ConformalSampler(generator, k_max=N_DRAWS, epsilon=0.215, **options)
    return sampler.calibrate(data)


def _never_enough(prompt: str, generation: Any) -> float:
    return -1.0


def _uniform(prompt: str, generation: Any) -> float:
    digest = hashlib.blake2b(f"{prompt} {generation.response}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _model(hidden_size: int = 256, n_layers: int = 8) -> tuple[Any, Any]:
    """A Llama over whole words, with distributions far from uniform."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    words = ["</s>", *_WORDS]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "</s>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="</s>", pad_token="</s>", padding_side="left"
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=hidden_size,
        intermediate_size=8 * hidden_size // 3,
        num_hidden_layers=n_layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1_024,
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval(), tokenizer


def _prompts(n: int) -> list[str]:
    """Questions of 8 to 24 words behind a header that all of them share."""
    rng = np.random.default_rng(0)
    header = " ".join(rng.choice(_WORDS, N_SHARED))
    return [f"{header} {' '.join(rng.choice(_WORDS, rng.integers(8, 25)))}" for _ in range(n)]
