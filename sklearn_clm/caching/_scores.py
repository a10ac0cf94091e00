"""Judgements and scores that are made once and never lost."""

import abc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
from joblib import delayed, effective_n_jobs

from sklearn_clm.caching._cache import ResultCache
from sklearn_clm.caching._store import StoredRow, decoded, encoded
from sklearn_clm.generators import Generation
from sklearn_clm.generators._parallel import as_done
from sklearn_clm.generators.identity import digest_of, strictly
from sklearn_clm.generators.records import content_json, draw_to_record, key_digest
from sklearn_clm.scoring._callables import asked_verdict, number_from
from sklearn_clm.scoring._splitters import CheckedSplitter
from sklearn_clm.scoring.admission import get_admission
from sklearn_clm.scoring.protocols import (
    Admission,
    Claim,
    PairJudge,
    PairSplitter,
    Part,
    Prompts,
    Reference,
    Responses,
)
from sklearn_clm.scoring.verdicts import take_verdicts

Pair: TypeAlias = tuple[Any, Any]  # a reference or a prompt, and a response or a draw


class _PairCache(ResultCache):
    """Results for pairs, kept in a store.

    `_kind` is also the name of the parameter whose results are kept.
    """

    @property
    def wrapped(self) -> object:
        """The score or admission inside; None under a user's `key`."""
        return getattr(self, self._kind) if self.key is None else None

    def fingerprint(self) -> str:
        """Name of the results: `key`, or the score's digest."""
        if self.key is not None:
            return str(self.key)
        with strictly(f"{self._kind} of {type(self).__name__}"):
            return digest_of(type(self), {self._kind: self.wrapped})

    def _known_or_made(
        self, firsts: Sequence[object], seconds: Sequence[object], n_jobs: int | None
    ) -> list[Any]:
        """One value for each pair; missing pairs are made once."""
        shared = self._shared()
        space = self._space()
        pairs = [[_storable(first), _storable(second)] for first, second in zip(firsts, seconds)]

        # keys of pairs that cannot be kept are refused before anything is paid for
        digests = [self._digest_of_pair(pair) for pair in pairs]
        places: dict[bytes, int] = {}
        for k, digest in enumerate(digests):
            # of equal pairs the first stands for all
            places.setdefault(digest, k)
        kept = shared.store.lookup(space, list(places), 0, 0, 1)
        values = {digest: decoded(text, self.path) for (digest, _), text in kept.items()}
        missing = [k for digest, k in places.items() if digest not in values]
        shared.count(len(digests) - len(missing), len(missing))

        if not missing:
            return [values[digest] for digest in digests]
        # what could not be kept would be paid for in vain
        shared.store.check_writable()

        def keep(m: int, value: Any) -> None:
            k = missing[m]
            row = StoredRow(space, digests[k], content_json(pairs[k]), 0, 0, encoded(value))
            # another process may have been faster: its value is the one that counts
            values[digests[k]] = decoded(shared.store.put(row), self.path)

        self._make([(firsts[k], seconds[k]) for k in missing], keep, n_jobs)
        return [values[digest] for digest in digests]

    def _digest_of_pair(self, pair: list[object]) -> bytes:
        try:
            return key_digest(pair)
        except TypeError as error:
            raise TypeError(
                f"{type(self).__name__} keeps results for text, numbers, arrays, and lists and "
                f"dicts of these; got the pair {pair!r:.160}."
            ) from error

    @abc.abstractmethod
    def _make(
        self, pairs: list[Pair], keep: Callable[[int, Any], None], n_jobs: int | None
    ) -> None:
        """Hand each pair's position and value to `keep` in turn."""


class CachedAdmission(_PairCache, PairJudge):
    """Keep every judgement of an admission in a SQLite file.

    Each distinct pair of reference and response is judged at most once, over all folds,
    candidates and runs that share the file; of several references, only as many as it takes.
    Files are kept as :class:`sklearn_clm.caching.CachedGenerator` keeps them, and one file may
    hold draws and judgements.

    Verdicts arrive one by one from a plain callable. A :class:`sklearn_clm.scoring.PairJudge` gives
    them as it will: :class:`sklearn_clm.scoring.LLMJudge` as the draws of its generator arrive. In
    a :func:`sklearn_clm.scoring.component_match`, cache the judge that it is given.

    Parameters
    ----------
    admission : {"exact_match", "rouge_l"} or callable (reference, response) -> bool
        The judge.
    path : str or path, default=None
        The SQLite file, created where there is none. None keeps judgements in this process,
        shared by this object and its clones.
    key : str, default=None
        Stands in for the fingerprint of `admission`, which is made of the source of a function
        and the variables around it, or of the parameters of an object.

    Attributes
    ----------
    n_hits_ : int
        Pairs that needed no judgement, in this process.
    n_misses_ : int
        Pairs that were judged.

    Examples
    --------
    >>> from sklearn_clm.caching import CachedAdmission
    >>> judge = CachedAdmission("exact_match")
    >>> judge("Paris", "paris."), judge("Paris", "paris."), judge.n_misses_
    (True, True, 1)
    """

    _kind = "admission"

    def __init__(
        self,
        admission: str | Admission,
        path: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
    ) -> None:
        self.admission = admission
        self.path = path
        self.key = key

    def judge_pairs(
        self, references: Sequence[Reference], responses: Responses
    ) -> Iterator[tuple[int, bool]]:
        """Verdict on each pair, as in :class:`sklearn_clm.scoring.PairJudge`.

        Workers judge what is not kept. They need not see the file.
        """
        return enumerate(map(bool, self._known_or_made(references, responses, None)))

    def _make(
        self, pairs: list[Pair], keep: Callable[[int, float], None], n_jobs: int | None
    ) -> None:
        admission = get_admission(self.admission)
        if isinstance(admission, PairJudge):
            take_verdicts(admission, pairs, keep)
            return
        # workers judge, this process writes: SQLite wants one writer at a time
        arguments = [(admission, response, reference) for reference, response in pairs]
        _keep_each(asked_verdict, arguments, keep, n_jobs)


class CachedScore(_PairCache):
    """Keep every quality or similarity in a SQLite file.

    Parameters
    ----------
    score : callable (prompt, generation) -> float, or callable (a, b) -> float
        A quality or a similarity. Each distinct pair is scored at most once, over all folds,
        candidates and runs that share the file.
    path : str or path, default=None
        The SQLite file, as in :class:`CachedAdmission`.
    key : str, default=None
        Stands in for the fingerprint of `score`, as in :class:`CachedAdmission`.

    Examples
    --------
    >>> from sklearn_clm.caching import CachedScore
    >>> from sklearn_clm.scoring import similarity_tensor
    >>> same_length = CachedScore(lambda a, b: float(len(a) == len(b)))
    >>> similarity_tensor(same_length, [["yes", "no", "yes", "si"]])[0, 3]
    array([0., 1., 0., 0.])
    >>> same_length.n_misses_  # of 6 pairs, one occurs twice
    5
    """

    _kind = "score"

    def __init__(
        self,
        score: Callable[[Any, Any], float],
        path: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
    ) -> None:
        self.score = score
        self.path = path
        self.key = key

    def __call__(self, first: object, second: object) -> float:
        """The score of one pair."""
        return float(self.score_pairs([first], [second])[0])

    def score_pairs(
        self, firsts: Sequence[object], seconds: Sequence[object], *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Score of each pair, kept or made.

        Workers score what is not kept. They need not see the file.
        """
        if not callable(self.score) or hasattr(self.score, "score_draws"):
            raise TypeError(
                "score must be a callable (prompt, generation) -> float or (a, b) -> float, got "
                f"{type(self.score).__name__}. An object that scores all draws at once has nothing "
                "to keep for a pair; the generator that it asks can be a CachedGenerator."
            )
        values = self._known_or_made(firsts, seconds, n_jobs)
        return np.array(values, dtype=np.float64)

    def _make(
        self, pairs: list[Pair], keep: Callable[[int, float], None], n_jobs: int | None
    ) -> None:
        arguments = [(self.score, "score", *pair) for pair in pairs]
        _keep_each(number_from, arguments, keep, n_jobs)


class CachedSplitter(_PairCache, PairSplitter):
    """Keep the claims of every response in a SQLite file.

    Each distinct pair of prompt and response is split at most once, over all folds, candidates and
    runs that share the file, and what arrived before an interrupt is kept.

    Parameters
    ----------
    splitter : callable
        A :class:`sklearn_clm.scoring.ClaimSplitter`, or a function of a response, or of a prompt
        and a response, plain or ``async``, which is called several times at once.
    path : str or path, default=None
        The SQLite file, as in :class:`CachedAdmission`.
    key : str, default=None
        Stands in for the fingerprint of `splitter`, as in :class:`CachedAdmission`.
    max_concurrency : int, default=8
        Most calls of a function at a time.

    Examples
    --------
    >>> from sklearn_clm.caching import CachedSplitter
    >>> splitter = CachedSplitter(lambda response: response.split(" and "))
    >>> splitter("Q", "a and b") == splitter("Q", "a and b"), splitter.n_misses_
    (True, 1)
    """

    _kind = "splitter"

    def __init__(
        self,
        splitter: Callable[..., Any],
        path: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
        max_concurrency: int = 8,
    ) -> None:
        self.splitter = splitter
        self.path = path
        self.key = key
        self.max_concurrency = max_concurrency

    def split_pairs(self, prompts: Prompts, responses: Responses) -> Iterator[tuple[int, Any]]:
        """Claims of each response, kept or made."""
        rows = self._known_or_made(prompts, responses, None)
        return enumerate(
            [_stored_component(part, response) for part in row]
            for row, response in zip(rows, responses)
        )

    def _make(
        self, pairs: list[Pair], keep: Callable[[int, Any], None], n_jobs: int | None
    ) -> None:
        def keep_parts(k: int, parts: list[Part]) -> None:
            keep(k, [astuple(part) if isinstance(part, Claim) else part for part in parts])

        CheckedSplitter(self.splitter, self.max_concurrency).split_each(pairs, keep_parts)


def _stored_component(kept: list[Any], response: str) -> Claim:
    """A component from its JSON, whatever the order of parts."""
    if not isinstance(kept[0], str):
        start, stop = kept
        return Claim(response[start:stop], (start, stop))
    text, span, parents = kept
    return Claim(text, None if span is None else tuple(span), tuple(parents))


def _with_position(k: int, ask: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int, Any]:
    # results arrive in any order: each says which pair it is about
    return k, ask(*arguments)


def _keep_each(
    ask: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    keep: Callable[[int, Any], None],
    n_jobs: int | None,
) -> None:
    """Keep ``k, ask(*arguments[k])`` as results become known, in any order.

    Once one could not be kept no other is asked for, and those under way are waited for.
    """
    failures: list[OSError] = []
    wanted = takewhile(lambda _: not failures, enumerate(arguments))
    answers: Iterable[tuple[int, Any]]
    if len(arguments) <= 1 or effective_n_jobs(n_jobs) == 1:
        answers = (_with_position(k, ask, pair) for k, pair in wanted)
    else:
        tasks = (delayed(_with_position)(k, ask, pair) for k, pair in wanted)
        answers = as_done(tasks, n_jobs)
    for k, value in answers:
        try:
            keep(k, value)
        except OSError as error:
            failures.append(error)  # which ends `wanted`
    if failures:
        raise failures[0]


def _storable(value: object) -> object:
    """What of a pair a key is made of."""
    return ["generation", draw_to_record(value)] if isinstance(value, Generation) else value
