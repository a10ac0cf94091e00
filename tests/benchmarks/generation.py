"""Twenty draws for few-shot prompts beside `generate`, one prompt at a time."""

import warnings
from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from . import Row

__all__ = ["rows"]

N_SHARED, N_NEW, N_DRAWS = 512, 8, 20
_WORDS = [f"w{rank}" for rank in range(2_000)]


def rows(quick: bool = False) -> Iterator[Row]:
    """Time few-shot question answering: 512 shared tokens, 8-token answers, 20 draws."""
    import torch

    from sklearn_clm.generators import TransformersGenerator

    warnings.filterwarnings("ignore", module="transformers")
    model, tokenizer = _model()
    prompts = _prompts(12 if quick else 40)
    generator = TransformersGenerator(
        model, tokenizer=tokenizer, max_new_tokens=N_NEW, batch_size=64
    )
    generator.sample(prompts[:1], 1)  # loads nothing, but readies the threads
    generator._load().prefix = None
    generator.n_prefilled_tokens_ = generator.n_decoded_tokens_ = 0

    n_timed = 2 if quick else 4
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
    yield from _stopping_rows("zero-shot prompts", model, tokenizer, quick)
    yield from _stopping_rows("512 shared and 100 own tokens", model, tokenizer, quick)
    p_value = _same_distribution(model, tokenizer, prompts[0], n_draws=400 if quick else 2_000)
    yield Row(
        "first tokens, ours against generate's: chi-square p-value", "0 to 1", f"{p_value:.2f}", 1.0
    )


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
    fewest = N_SHARED + sum(length - N_SHARED for length in lengths)
    per_draw = N_DRAWS * sum(lengths)
    prefilled = generator.n_prefilled_tokens_
    yield Row(
        f"tokens prefilled (fewest possible {fewest:,})",
        f"{per_draw:,} (every prompt for every draw)",
        f"{prefilled:,}",
        per_draw / prefilled,
    )
    fewest = sum(draw.n_tokens - 1 for row in draws for draw in row)
    padded = len(prompts) * N_DRAWS * (N_NEW - 1)
    decoded = generator.n_decoded_tokens_
    yield Row(
        f"tokens decoded (fewest possible {fewest:,})",
        f"{padded:,} (every draw to the end of its batch)",
        f"{decoded:,}",
        padded / decoded,
    )


def _stopping_rows(what: str, model: Any, tokenizer: Any, quick: bool) -> Iterator[Row]:
    """Draws that a rule stops at about half of them, beside always all of them."""
    from sklearn_clm.generators import DrawQueue, TransformersGenerator

    rng = np.random.default_rng(1)
    if what.startswith("zero"):
        prompts = [" ".join(rng.choice(_WORDS, rng.integers(8, 25))) for _ in range(200)]
    else:
        header = " ".join(rng.choice(_WORDS, N_SHARED))
        prompts = [f"{header} {' '.join(rng.choice(_WORDS, 100))}" for _ in range(100)]
    prompts = prompts[: len(prompts) // (4 if quick else 1)]
    counts = rng.integers(1, N_DRAWS + 1, len(prompts))
    seen = np.zeros(len(prompts), dtype=int)

    def decide(arrived: list[tuple[int, list[Any]]]) -> list[int]:
        for i, draws in arrived:
            seen[i] += len(draws)
        return [min(seen[i] + 1, counts[i]) for i, _ in arrived]

    seconds, n_prefilled = [], []
    queue = DrawQueue(prompts, N_DRAWS, decide=decide)
    for stops in (False, True):
        generator = TransformersGenerator(
            model, tokenizer=tokenizer, max_new_tokens=N_NEW, batch_size=64
        )
        generator.sample(prompts[:1], 1)  # readies the threads
        generator._load().prefix = None
        before = generator.n_prefilled_tokens_
        start = perf_counter()
        if stops:
            generator.serve(queue)
        else:
            generator.sample(prompts, N_DRAWS)
        seconds.append(perf_counter() - start)
        n_prefilled.append(generator.n_prefilled_tokens_ - before)
    n_all, n_used = len(prompts) * N_DRAWS, int(counts.sum())
    per_draw = [1e3 * seconds[0] / n_all, 1e3 * seconds[1] / n_used]
    title = f"{what}, {n_used:,} of {n_all:,} draws used ({queue.n_put:,} made)"
    yield Row(
        f"{title}: time per draw that is used",
        f"{per_draw[0]:.2f} ms (always all)",
        f"{per_draw[1]:.2f} ms",
        per_draw[1] / per_draw[0],
    )
    yield Row(
        f"{title}: time in all",
        f"{seconds[0]:.1f} s (always all)",
        f"{seconds[1]:.1f} s",
        seconds[1] / seconds[0],
    )
    yield Row(
        f"{title}: tokens prefilled",
        f"{n_prefilled[0]:,} (always all)",
        f"{n_prefilled[1]:,}",
        n_prefilled[1] / n_prefilled[0],
    )


def _same_distribution(model: Any, tokenizer: Any, prompt: str, n_draws: int) -> float:
    """P-value of the hypothesis that first tokens come from one distribution."""
    import torch
    from scipy.stats import chi2_contingency

    from sklearn_clm.generators import TransformersGenerator

    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=1, batch_size=100)
    ours = Counter(draw.response for draw in generator.sample([prompt], n_draws)[0])
    torch.manual_seed(1)
    inputs = tokenizer([prompt], return_tensors="pt")
    with torch.inference_mode():
        tokens = [
            token
            for _ in range(n_draws // 400)  # fewer than ours: each prefills the prompt again
            for token in model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                do_sample=True,
                top_k=50,
                max_new_tokens=1,
                num_return_sequences=100,
            )[:, -1].tolist()
        ]
    theirs = Counter(tokenizer.decode([token], skip_special_tokens=True) for token in tokens)
    table = np.array([[ours[token], theirs[token]] for token in {*ours, *theirs}])
    rare = table.sum(1) < 10
    table = np.vstack([table[~rare], table[rare].sum(0)])
    return float(chi2_contingency(table[table.sum(1) > 0]).pvalue)


def _model() -> tuple[Any, Any]:
    """A Llama of 8 million weights over whole words, with distributions far from uniform."""
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
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=8,
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
