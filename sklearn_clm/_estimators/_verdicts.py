"""Verdicts: a judge, and the labels given so far."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from sklearn_clm._estimators._progress import QUIET
from sklearn_clm.caching import Context, HumanJudge, JudgedPrompt, VerdictsWanted, WantedVerdict
from sklearn_clm.caching._verdicts import as_judged
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.scoring._components import DistinctComponents
from sklearn_clm.scoring.admission import get_admission
from sklearn_clm.scoring.protocols import Admission, PairJudge, Reference, Response
from sklearn_clm.scoring.verdicts import judge, normalized_admissions

_MOST_LOOKED_UP = 20_000  # verdicts that are looked up for a tighter bound
_BLOCK = 16  # pairs that one worker judges before their verdicts are kept


class Verdicts:
    """The verdicts of an admission on draws of collected prompts.

    Further draws may be appended to `responses`; K is then `k_max`. `labels`, of shape (n, K), are
    1, 0, or -1 for unknown, at the draws that were judged, `n_judgements` in all. `of_model` says
    that the admission is a model, which sees the references of what people are asked.
    """

    def __init__(
        self,
        admission: str | Admission,
        references: list[Reference],
        responses: list[list[Response]],
        n_jobs: int | None,
        k_max: int | None = None,
        *,
        of_model: bool = False,
    ) -> None:
        if k_max is None:
            k_max = len(responses[0]) if responses else 0
        self.labels = np.full((len(responses), k_max), -1, dtype=np.int8)
        self.n_judgements = 0
        self.admission = admission
        self.references = references
        self._responses = responses
        self._n_jobs = n_jobs
        self._of_model = of_model
        self._other_judges: list[tuple[object, Verdicts]] = []
        self.progress = QUIET

    def by(self, admission: str | Admission) -> "Verdicts":
        """Verdicts of another judge on the same draws, kept apart."""
        for other, verdicts in self._other_judges:
            # by identity: a judge need be neither hashable nor comparable
            if other is admission:
                return verdicts
        k_max = self.labels.shape[1]
        verdicts = Verdicts(
            admission, self.references, self._responses, self._n_jobs, k_max, of_model=True
        )
        self._other_judges.append((admission, verdicts))
        return verdicts

    def __getstate__(self) -> dict[str, Any]:
        # functions as admissions, often of a notebook, would prevent a pickle of the sampler
        kept = [None if callable(reference) else reference for reference in self.references]
        return {**self.__dict__, "references": kept, "_other_judges": []}

    @property
    def of_people(self) -> bool:
        """Whether people judge, who may change their verdicts."""
        return isinstance(get_admission(self.admission), HumanJudge)

    def forget(self) -> None:
        """Mark all labels as unknown."""
        self.labels[:] = -1
        self.n_judgements = 0

    def try_on(self, prompt: int) -> None:
        """Ask about one draw, so that a failure shows early."""
        if not self.of_people:
            # an object of its own: what it counts and keeps is no part of the collection
            trial = Verdicts(
                self.admission,
                [self.references[prompt]],
                [self._responses[prompt]],
                n_jobs=None,
                of_model=self._of_model,
            )
            trial.ask(np.zeros(1, int), np.zeros(1, int))

    def pairs(self, prompts: np.ndarray, draws: np.ndarray) -> tuple[dict[str, WantedVerdict], int]:
        """Questions about draws, and how many draws are to come."""
        pairs: dict[str, WantedVerdict] = {}
        n_to_come = 0
        for i, j in zip(prompts.tolist(), draws.tolist()):
            # what the question will be about is not known before the draw is made
            if j >= len(self._responses[i]):
                n_to_come += 1
                continue
            (aliases,) = normalized_admissions([self.references[i]], 1)
            if callable(aliases):
                continue  # a function judges by itself: nobody is asked
            for alias in aliases:
                pair = WantedVerdict(as_judged(alias), self._responses[i][j])
                pairs[pair.id] = pair
        return pairs, n_to_come

    def ask(self, prompts: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Verdicts on draws, sorted by prompt, in one call."""
        if not len(prompts):
            return np.empty(0, dtype=bool)
        # one call for all, with the draws of a prompt side by side
        starts = np.flatnonzero(np.diff(prompts, prepend=-1))
        rows = prompts[starts].tolist()
        references = [self.references[i] for i in rows]
        if any(reference is None for reference in references):
            raise ValueError(
                "admissions were functions, which a pickle leaves behind, and more labels are "
                "needed: call collect again."
            )
        # a model gets the references themselves, not the prompt that people are shown with them
        if self._of_model:
            references = [
                list(shown_reference.references)
                if isinstance(shown_reference, JudgedPrompt)
                else shown_reference
                for shown_reference in references
            ]

        responses = []
        for i, draws_of_prompt in zip(rows, np.split(draws, starts[1:])):
            responses.append([self._responses[i][j] for j in draws_of_prompt])
        self.progress.expect("judge", len(draws), "response")
        n_arrived = 0

        def count_verdict() -> None:
            nonlocal n_arrived
            n_arrived += 1
            self.progress.advance("judge")

        answers = judge(
            self.admission, references, responses, n_jobs=self._n_jobs, on_verdict=count_verdict
        )
        self.progress.advance("judge", len(draws) - n_arrived)  # equal texts share a verdict
        verdicts = np.concatenate(answers)
        self.labels[prompts, draws] = verdicts
        self.n_judgements += len(verdicts)
        return verdicts

    def __call__(self, prompts: np.ndarray, draws: np.ndarray) -> Iterator[bool]:
        """Verdicts on single draws, as they arrive."""
        n_at_once = self._n_at_once(len(prompts))
        for start in range(0, len(prompts), n_at_once):
            part = slice(start, start + n_at_once)
            yield from self.ask(prompts[part], draws[part]).tolist()

    def _n_at_once(self, n_wanted: int) -> int:
        """How many verdicts are asked for before they are kept."""
        # a judge of many pairs is best asked about all of them
        if isinstance(get_admission(self.admission), PairJudge):
            return max(n_wanted, 1)
        # one by one, so that an interrupt loses one verdict at most
        if self._n_jobs is None:
            return 1
        return int(effective_n_jobs(self._n_jobs)) * _BLOCK

    @contextmanager
    def bounding(
        self, rows: np.ndarray, may_ask: Callable[[], np.ndarray], *, also: bool = False
    ) -> Iterator[None]:
        """Add to a call for verdicts which others may follow.

        ``may_ask()`` gives the texts of the prompts at `rows` that may still be asked for, bool of
        shape (len(rows), K). `also` says that the verdicts wanted now are about other prompts.
        """
        try:
            yield
        except VerdictsWanted as error:
            people = get_admission(self.admission)
            if not isinstance(people, HumanJudge):
                raise
            # draw by draw: first texts of all prompts come before second ones
            draws, prompts = np.nonzero(may_ask().T)
            pairs, n_to_come = self.pairs(rows[prompts], draws)
            n_left = len(pairs)
            later: list[WantedVerdict] = []
            # the store may hold some of these verdicts: looking up very many would take long
            if n_left <= _MOST_LOOKED_UP:
                verdicts = people.verdicts(list(pairs.values()))
                n_left = verdicts.count(None)
                wanted = {pair.id for pair in error.wanted}
                unknown = [
                    pair for pair, verdict in zip(pairs.values(), verdicts) if verdict is None
                ]
                later = [pair for pair in unknown if pair.id not in wanted]
            n_more = n_to_come + (len(error.wanted) if also else 0)
            n_at_most = max(n_left + n_more, len(error.wanted))
            raise VerdictsWanted(error.wanted, n_at_most, later) from None


def shown_to(
    people: Admission, prompts: CheckedPrompts, references: list[Reference]
) -> list[Reference]:
    """References for people who audit, with prompts for a HumanJudge."""
    if any(callable(reference) or reference is None for reference in references):
        raise ValueError(
            "admissions must be references where people audit the admission, got functions "
            "instead: these would judge in place of people."
        )
    if not isinstance(people, HumanJudge):
        return references
    pairs = zip(references, people.asked(prompts.prompts, references))
    return [
        reference if isinstance(reference, JudgedPrompt) else judged for reference, judged in pairs
    ]


class ComponentVerdicts(Verdicts):
    """The verdicts of an admission on components of collected prompts.

    Each prompt has a reference, responses, the distinct components of these, and passages that do
    not stand in it.
    """

    def __init__(
        self,
        admission: Admission,
        references: Sequence[Reference],
        responses: Sequence[Sequence[Response]],
        components: Sequence[DistinctComponents],
        passages: Sequence[Sequence[str]],
        n_jobs: int | None,
        *,
        of_model: bool = False,
    ) -> None:
        references_of_components: list[Reference] = []
        rows = zip(references, responses, components, passages)
        for reference, row, distinct, passages_of_prompt in rows:
            for occurrences in distinct.occurrences:
                draw, span = occurrences[0]
                # a component says little by itself: people see the response around it, and its
                # place there
                if isinstance(admission, HumanJudge) and isinstance(row[draw], str):
                    start, stop = span or (0, 0)
                    context = Context(row[draw], start, stop, tuple(passages_of_prompt))
                    references_of_components.append(replace(as_judged(reference), context=context))
                else:
                    references_of_components.append(reference)
        texts = [[text] for distinct in components for text in distinct.components]
        super().__init__(admission, references_of_components, texts, n_jobs, of_model=of_model)
