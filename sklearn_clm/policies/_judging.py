"""How many draws are judged."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from sklearn_clm.caching import (
    CachedAdmission,
    HumanJudge,
    JudgedPrompt,
    VerdictsWanted,
    WantedVerdict,
)
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    LabelTable,
    impute_labels,
    judge_components,
    judgements_at_most,
    prompts_needed,
)
from sklearn_clm.scoring import admission_matrix, get_admission
from sklearn_clm.scoring._admission import checked_admissions
from sklearn_clm.scoring._components import DistinctComponents
from sklearn_clm.scoring._protocols import Admission, PairJudge, Reference, Response
from sklearn_clm.scoring._results import name_of

_MOST_LOOKED_UP = 20_000  # verdicts, to make a bound tighter
# of an optimisation prompt, where two labels show which texts are near copies; of all together
_FEWEST_JUDGEMENTS, _MOST_JUDGEMENTS, _ENOUGH_LABELS = 2, 3, 500
_BLOCK = 16  # pairs that one worker judges before their verdicts are kept


class LazyJudging(BaseEstimator):
    """Judge, and draw, only what a decision still needs.

    On the calibration part labels are asked for until each test is decided; each decision is that
    of the full table of labels. On the optimisation part a few draws of each prompt are judged, and
    the other labels are estimated. There they shape the path of the tests, so that other
    configurations are tested than with all labels, and another one may be chosen: with the same
    guarantee, and as a rule with sets that are a little larger. With
    ``optimization_judgements=None`` the path, and what is certified on it, are those of
    ``judging="all"``.

    ``fit`` is lazy in drawing, too, where ``collect`` makes all K draws. Optimisation prompts get
    all of them. A calibration prompt gets none beyond the last that is asked for: with an exit
    policy at its level, so that it has as many as ``predict`` would make; with thresholds by the
    configurations that are tested. With ``select="objective"`` these are all certified ones, whose
    sizes are compared, and little is saved, since the most cautious draw almost always K. With
    ``select="last"`` they are the one that is chosen, and those for which the prompt still lacks a
    witness. What is found is the same as with all draws; `calibration_data_` holds the draws that
    were made, and `n_draws_` says how many these are.

    Parameters
    ----------
    optimization_judgements : int, "auto" or None, default="auto"
        How many draws of each optimisation prompt are judged, at most K; equal responses count as
        one. "auto" is three, and two where as many prompts give 500 labels without that: what is
        learnt from labels hardly grows beyond, but with one for each prompt nobody would know which
        similar texts have the same label. None judges all draws. With 0 no label is known, and
        those of all draws are estimated by their share among the draws.
    estimator : classifier with ``predict_proba``, default=None
        Estimates the labels of the other draws from their quality, frequency and similarity to
        judged draws, near copies counted as one text. None is a logistic regression with ``C=1``.
    optimization_admission : str or callable, default=None
        Who judges the optimisation part instead of the sampler's `admission`: something cheap,
        such as "rouge_l" or a model, where people judge the calibration part. None is the same.

    Notes
    -----
    *Why another judge is valid there.* What is learnt on the optimisation part is the path of the
    tests: which configurations are tested, and in which order. Fixed sequence testing holds for
    every path that does not depend on the calibration part, a bad one included. So labels of the
    optimisation part may be wrong in any way, and only a path that is worse than need be comes of
    it: more draws, larger sets, or a null. The labels of the other judge are kept apart, and none
    of them ever enters a test.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import LazyJudging
    >>> sampler = ConformalSampler(judging=LazyJudging(optimization_judgements=2))
    >>> sampler.get_params()["judging__optimization_judgements"]
    2
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "optimization_judgements": [
            None,
            StrOptions({"auto"}),
            Interval(Integral, 0, None, closed="left"),
        ],
        "estimator": [None, HasMethods(["fit", "predict_proba"])],
        "optimization_admission": [None, str, callable],
    }

    def __init__(
        self,
        *,
        optimization_judgements: int | str | None = "auto",
        estimator: BaseEstimator | None = None,
        optimization_admission: str | Admission | None = None,
    ) -> None:
        self.optimization_judgements = optimization_judgements
        self.estimator = estimator
        self.optimization_admission = optimization_admission

    def refuse(self, k_max: int) -> None:
        """Refuse what would fail once draws have been paid for.

        Parameters
        ----------
        k_max : int
            The budget K.

        Raises
        ------
        ValueError
            If more draws are to be judged than there are, or a judge is unknown.
        """
        self.judgements_per_prompt(1, k_max)
        if self.optimization_admission is not None:
            try:
                get_admission(self.optimization_admission)
            except ValueError as error:
                raise ValueError(f"optimization_admission must be a judge: {error}") from None

    def judgements_per_prompt(self, n_prompts: int, k_max: int) -> int:
        """How many draws of each optimisation prompt are judged.

        Parameters
        ----------
        n_prompts : int
            Number of optimisation prompts.
        k_max : int
            The budget K.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If more draws are to be judged than there are.
        """
        wanted = self.optimization_judgements
        if wanted is None:
            return k_max
        if isinstance(wanted, str):
            enough = -(-_ENOUGH_LABELS // max(n_prompts, 1))
            return min(max(enough, _FEWEST_JUDGEMENTS), _MOST_JUDGEMENTS, k_max)
        if wanted > k_max:
            raise ValueError(
                f"optimization_judgements must be at most k_max={k_max}, got {wanted} instead."
            )
        return wanted

    def labels(
        self, data: CalibrationData, first: np.ndarray, table: LabelTable, random_state: int = 0
    ) -> np.ndarray:
        """Labels of the optimisation part: some judged, the others estimated.

        Parameters
        ----------
        data : CalibrationData
            The optimisation part; its labels are not looked at.
        first : ndarray of int, shape (n, K)
            Draw in which each draw's text occurs first.
        table : LabelTable
            What is known, and who is asked.
        random_state : int, default=0
            Seed of the draws that are judged and of the labels that are estimated.

        Returns
        -------
        ndarray of bool, shape (n, K)

        Raises
        ------
        ValueError
            If more draws are to be judged than there are.
        """
        self._validate_params()
        n, k_max = first.shape
        wanted = self.judgements_per_prompt(n, k_max)
        rng = np.random.default_rng(random_state)
        order = np.argsort(rng.random((n, k_max)), axis=1)
        is_text = first == np.arange(k_max)
        # texts in random order, so that those which are judged stand for all
        rank = np.where(np.take_along_axis(is_text, order, axis=1), 0, k_max)
        order = np.take_along_axis(order, np.argsort(rank, axis=1, kind="stable"), axis=1)
        # all at once, those of one prompt together
        chosen = np.zeros((n, k_max), dtype=bool)
        np.put_along_axis(chosen, order[:, :wanted], True, axis=1)
        rows, draws = np.nonzero(chosen & is_text & (table.labels < 0))
        if len(rows):
            table.ask(rows, draws)
        known = table.labels
        if (known >= 0).any():
            return impute_labels(
                data, first, known, classifier_factory(self.estimator), random_state
            )
        counts = np.sum(first[:, :, np.newaxis] == first[:, np.newaxis, :], axis=2)
        chance = np.take_along_axis(rng.random((n, k_max)), first, axis=1)
        return chance < counts / k_max


class Verdicts:
    """The admission, asked for single draws of collected prompts.

    Further draws may be appended to `responses`; K is then `k_max`. `labels`, of shape (n, K), are
    1, 0, or -1 for unknown, at the draws that were judged, `n_judgements` in all.
    """

    def __init__(
        self,
        admission: Any,
        references: list[Any],
        responses: list[list[Any]],
        n_jobs: int | None,
        k_max: int | None = None,
    ) -> None:
        if k_max is None:
            k_max = len(responses[0]) if responses else 0
        self.labels = np.full((len(responses), k_max), -1, dtype=np.int8)
        self.n_judgements = 0
        self._admission = admission
        self._references, self._responses = references, responses
        self._n_jobs = n_jobs
        self._others: list[tuple[object, Verdicts]] = []

    def by(self, admission: str | Admission) -> "Verdicts":
        """Verdicts of another judge, which sees the references of people, kept apart from these."""
        for other, verdicts in self._others:
            if other is admission:
                return verdicts
        bare = [
            list(one.references) if isinstance(one, JudgedPrompt) else one
            for one in self._references
        ]
        k_max = self.labels.shape[1]
        verdicts = Verdicts(admission, bare, self._responses, self._n_jobs, k_max)
        self._others.append((admission, verdicts))
        return verdicts

    def __getstate__(self) -> dict[str, Any]:
        # admissions that are functions, often of a notebook, must not keep a sampler from a pickle
        kept = [None if callable(one) else one for one in self._references]
        return {**self.__dict__, "_references": kept, "_others": []}

    @property
    def of_people(self) -> bool:
        """Whether people judge, whose verdicts may change from one calibration to the next."""
        return isinstance(get_admission(self._admission), HumanJudge)

    def forget(self) -> None:
        """Take no label for known, so that all are looked up again."""
        self.labels[:] = -1
        self.n_judgements = 0

    def renewed(self, data: CalibrationData, *, everything: bool) -> CalibrationData:
        """The data, with all draws or the first ones, and labels looked up anew where people judge.

        Unless people are asked about everything, labels are unknown until a test asks for them.
        """
        if not self.of_people:
            return data
        self.forget()
        if everything:
            rows, draws = np.nonzero(np.ones((data.n_prompts, data.k_max), dtype=bool))
            for _ in self._ask(rows, draws):
                pass
        renewed = data.with_labels(self.labels[:, : data.k_max])
        renewed.provenance = data.provenance
        return renewed

    def wanted(
        self, error: VerdictsWanted, prompts: np.ndarray, draws: np.ndarray, n_more: int = 0
    ) -> VerdictsWanted:
        """The error with all verdicts that may still be wanted, or their number.

        `prompts` and `draws` are all that may be asked for from now on, of different texts;
        `n_more` verdicts are wanted of other prompts.
        """
        judge, n_left = get_admission(self._admission), len(prompts)
        later: list[WantedVerdict] = []
        if isinstance(judge, HumanJudge):
            pairs = {}
            order = np.argsort(draws, kind="stable")
            for i, j in zip(prompts[order].tolist(), draws[order].tolist()):
                if j >= len(self._responses[i]):
                    n_more += 1  # a draw to come
                    continue
                aliases = checked_admissions([self._references[i]], 1)[0]
                for alias in () if callable(aliases) else aliases:
                    pair = judge.wanted_pair(alias, self._responses[i][j])
                    pairs[pair.id] = pair
            n_left = len(pairs)
            if n_left <= _MOST_LOOKED_UP:
                known = judge.verdicts(list(pairs.values()))
                n_left = known.count(None)
                asked = {pair.id for pair in error.wanted}
                unknown = zip(pairs.items(), known)
                later = [one for (id_, one), said in unknown if said is None and id_ not in asked]
        return VerdictsWanted(error.wanted, max(n_left + n_more, len(error.wanted)), later)

    def labelled(self, data: CalibrationData) -> CalibrationData:
        """All data, or those of first draws, with labels as known by now, equal responses alike."""
        own = data.labels
        known = np.where(own >= 0, own, self.labels[:, : data.k_max])
        table = LabelTable(data.first, self.of_rows(np.arange(data.n_prompts)), known)
        labelled = data.with_labels(table.labels)
        labelled.provenance = data.provenance
        return labelled

    def of_rows(self, rows: np.ndarray) -> Callable[[np.ndarray, np.ndarray], Iterator[bool]]:
        """The :data:`sklearn_clm.calibration.Judge` of the prompts at `rows`, counted from 0."""

        def judge(prompts: np.ndarray, draws: np.ndarray) -> Iterator[bool]:
            return self._ask(rows[prompts], draws)

        return judge

    def _ask(self, prompts: np.ndarray, draws: np.ndarray) -> Iterator[bool]:
        if any(self._references[i] is None for i in prompts):
            raise ValueError(
                "admissions that are functions are not in a pickle, and more labels are needed; "
                "call collect again."
            )
        # whoever takes many pairs at once is given all; what others say is kept block by block
        many = isinstance(get_admission(self._admission), PairJudge)
        workers = abs(self._n_jobs or 1) if self._n_jobs != -1 else 16
        block = len(prompts) if many else (1 if self._n_jobs is None else workers * _BLOCK)
        for start in range(0, len(prompts), max(block, 1)):
            part = slice(start, start + block)
            references = [self._references[i] for i in prompts[part]]
            responses = [[self._responses[i][j]] for i, j in zip(prompts[part], draws[part])]
            with noting_lost_verdicts(self._admission, references):
                verdicts = admission_matrix(
                    self._admission, references, responses, n_jobs=self._n_jobs
                )[:, 0]
            self.labels[prompts[part], draws[part]] = verdicts
            self.n_judgements += len(verdicts)
            yield from verdicts.tolist()


@contextmanager
def noting_lost_verdicts(
    admission: str | Admission, references: Sequence[Reference]
) -> Iterator[None]:
    """Where a judge fails, say what keeps the verdicts that it has given."""
    try:
        yield
    except BaseException as error:
        keeps = isinstance(admission, (str, CachedAdmission, HumanJudge))
        if not (keeps or callable(references[0])):
            error.add_note(
                f"The next fit, or collect, asks {name_of(admission)} for all verdicts once more. "
                "sklearn_clm.caching.CachedAdmission(admission, path) keeps them as they are "
                "given, and goes on from there."
            )
        raise


class ComponentVerdicts(Verdicts):
    """The admission, asked for single components of collected prompts.

    The admission is one of :func:`sklearn_clm.scoring.get_component_admission`; each prompt has a
    reference, responses, and components that were found in them.
    """

    def __init__(
        self,
        admission: Admission,
        references: Sequence[Reference],
        responses: Sequence[Sequence[Response]],
        found: Sequence[DistinctComponents],
        n_jobs: int | None,
    ) -> None:
        asked: list[Reference] = []
        for reference, row, distinct in zip(references, responses, found):
            for occurrences in distinct.occurrences:
                draw, span = occurrences[0]
                if isinstance(admission, HumanJudge) and span is not None:
                    asked.append(admission.within(reference, row[draw], *span))
                else:
                    asked.append(reference)
        components = [[one] for distinct in found for one in distinct.components]
        super().__init__(admission, asked, components, n_jobs)

    def of_components(
        self,
        data: ComponentCalibrationData,
        alpha: float,
        tests: Sequence[tuple[np.ndarray, float]],
        *,
        lazily: bool,
    ) -> ComponentCalibrationData:
        """The data with all labels of the tested prompts, or lazily with those that tests need.

        Labels in `data` are not looked at. Of each test: positions of its prompts, ascending, and
        its level.
        """
        if self.of_people:
            self.forget()
        labels = self.labels.reshape(-1)
        judge = self.of_rows(np.arange(data.n_components))
        parts = [
            (rows, np.flatnonzero(np.isin(data.prompt_index, rows)), level)
            for rows, level in tests
            if not lazily or len(rows) >= prompts_needed(alpha, level)
        ]
        try:
            for rows, part, level in parts:

                def ask(which: np.ndarray, part: np.ndarray = part) -> Iterator[bool]:
                    return judge(part[which], np.zeros_like(which))

                if lazily:
                    tested = data.with_labels(labels).take(rows)
                    judge_components(tested, alpha, level, ask)
                else:
                    for _ in ask(np.flatnonzero(labels[part] < 0)):
                        pass
        except VerdictsWanted as error:
            left = [part for _, part, _ in parts]
            if lazily:
                known = data.with_labels(labels)
                left = [
                    part[judgements_at_most(known.take(rows), alpha, level)]
                    for rows, part, level in parts
                ]
            asked = np.unique(np.concatenate(left))
            raise self.wanted(error, asked, np.zeros_like(asked)) from None
        return replace(data, admissible=labels)


def classifier_factory(estimator: BaseEstimator | None) -> Callable[[], Any]:
    """What gives unfitted copies of a classifier; None is a logistic regression."""
    return lambda: LogisticRegression(C=1.0) if estimator is None else clone(estimator)
