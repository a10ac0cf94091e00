"""ROUGE-L matrices beside the `rouge-score` package and beside rapidfuzz's own loop."""

import random
from collections.abc import Iterator
from time import perf_counter

import numpy as np
from joblib import cpu_count
from rapidfuzz.distance import LCSseq
from rapidfuzz.process import cdist
from rouge_score.rouge_scorer import RougeScorer

from sklearn_clm.scoring import rouge_l_matrix, similarity_tensor

from . import Row, best_time

__all__ = ["rows"]

_ENOUGH_FOR_WORKERS = 1_000
_WORDS = [f"w{rank}" for rank in range(5_000)]
_WEIGHTS = [1.0 / (rank + 1) for rank in range(len(_WORDS))]


def rows(quick: bool = False) -> Iterator[Row]:
    """Time matrices and whole data sets, from texts to numbers, on one core if not said."""
    for length in (60, 10):
        yield from _matrix_rows(length, n_texts=300 if quick else 1_500)
    for length in (60, 10):
        yield from _data_set_rows(length, n_prompts=100 if quick else 1_565)


def _matrix_rows(length: int, n_texts: int) -> Iterator[Row]:
    texts = _texts(n_texts, length)
    reference = _pairs_per_second_of_package(texts)
    n_pairs = n_texts**2
    ours = n_pairs / best_time(lambda: rouge_l_matrix(texts))
    what = f"ROUGE-L matrix, {n_texts:,} texts of {length} tokens"
    yield _row(what, "rouge-score", reference, ours)
    words = [" ".join(f"{word}ingly" for word in text.split()) for text in texts]
    stemming = _pairs_per_second_of_package(words, n_pairs=100, use_stemmer=True)
    rouge_l_matrix(["a"], use_stemmer=True)  # imports the stemmer
    # once: the stems of a token are kept
    ours_stemming = n_pairs / best_time(lambda: rouge_l_matrix(words, use_stemmer=True), 1)
    yield _row(f"{what}, stemmed", "rouge-score", stemming, ours_stemming)
    strings = _as_strings(texts)
    # two lists rather than one twice: rapidfuzz is then several times as fast on short texts
    loop = n_pairs / best_time(
        lambda: cdist(strings, list(strings), scorer=LCSseq.similarity, dtype=np.uint8)
    )
    yield _row(f"{what}, beside comparing tokens that are numbered", "rapidfuzz cdist", loop, ours)


def _data_set_rows(length: int, n_prompts: int, n_draws: int = 20) -> Iterator[Row]:
    responses = [_variants(text, n_draws) for text in _texts(n_prompts, length)]
    reference = _pairs_per_second_of_package([text for row in responses for text in row])
    n_pairs = n_prompts * n_draws * (n_draws - 1) // 2
    ours = n_pairs / best_time(lambda: similarity_tensor("rouge_l", responses))
    what = f"ROUGE-L of {n_prompts:,} prompts, {n_draws} draws of {length} tokens (l < j)"
    yield _row(what, "rouge-score", reference, ours)
    if n_prompts >= _ENOUGH_FOR_WORKERS:
        similarity_tensor("rouge_l", responses, n_jobs=-1)  # starts the workers
        seconds = best_time(lambda: similarity_tensor("rouge_l", responses, n_jobs=-1))
        yield _row(
            f"{what}, {cpu_count()} cores", "rouge-score on one", reference, n_pairs / seconds
        )
    strings = [_as_strings(row) for row in responses]
    loop = n_pairs / best_time(
        lambda: [cdist(row, list(row), scorer=LCSseq.similarity, dtype=np.uint8) for row in strings]
    )
    yield _row(f"{what}, beside comparing tokens that are numbered", "rapidfuzz cdist", loop, ours)


def _texts(n_texts: int, length: int) -> list[str]:
    """Texts of words whose frequencies follow Zipf's law."""
    generator = random.Random(0)
    return [" ".join(generator.choices(_WORDS, _WEIGHTS, k=length)) for _ in range(n_texts)]


def _variants(text: str, n_variants: int) -> list[str]:
    """Texts that differ from one text in a third of the words, as samples of one model do."""
    generator = random.Random(text)
    words = text.split()
    variants = []
    for _ in range(n_variants):
        others = generator.choices(_WORDS, _WEIGHTS, k=len(words))
        variants.append(
            " ".join(
                other if generator.random() < 1 / 3 else word for word, other in zip(words, others)
            )
        )
    return variants


def _pairs_per_second_of_package(
    texts: list[str], n_pairs: int = 2_000, *, use_stemmer: bool = False
) -> float:
    scorer = RougeScorer(["rougeL"], use_stemmer=use_stemmer)
    generator = random.Random(1)
    pairs = [(generator.choice(texts), generator.choice(texts)) for _ in range(n_pairs)]
    start = perf_counter()
    for first, second in pairs:
        scorer.score(first, second)
    return n_pairs / (perf_counter() - start)


def _as_strings(texts: list[str]) -> list[str]:
    numbers: dict[str, str] = {}
    return [
        "".join(numbers.setdefault(token, chr(len(numbers))) for token in text.split())
        for text in texts
    ]


def _row(what: str, name: str, reference: float, ours: float) -> Row:
    return Row(what, f"{name}: {reference:,.0f} pairs/s", f"{ours:,.0f} pairs/s", ours / reference)
