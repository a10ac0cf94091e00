"""A score learnt from several scores of components."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_clm.generators.prompts import check_prompts
from sklearn_clm.scoring._claims import Citation, Citing
from sklearn_clm.scoring._components import component_scores, get_component_score
from sklearn_clm.scoring._splitters import Splitter, numbered_components, split_draws
from sklearn_clm.scoring.admission import get_component_admission
from sklearn_clm.scoring.protocols import (
    Admission,
    ComponentScore,
    Draws,
    Prompt,
    Prompts,
    Reference,
    Response,
    Scores,
    Spans,
)
from sklearn_clm.scoring.verdicts import check_admissions, judge


class CombinedScore(BaseEstimator):
    """Chance that a component is right, learnt from several scores.

    A classifier of scikit-learn (gradient boosting of trees) sees the scores of a component. It is
    constrained to rise with each of them, so that the chance never falls as draws are added, where
    they do not.

    Parameters
    ----------
    scores : list of component scores
        Each is a name, a callable or an object, as ``component_score`` of a
        :class:`sklearn_clm.ComponentSelector`.

    Attributes
    ----------
    classifier_ : HistGradientBoostingClassifier
        What ``fit`` has trained.
    trained_on_ : ndarray of uint64
        Digests of the prompts that trained it, or a combined score among `scores`. A selector that
        is given them, too, leaves them out: they calibrate nothing.

    Notes
    -----
    ``clone`` makes one that has learnt nothing, as of any estimator; a
    :class:`sklearn.frozen.FrozenEstimator` around it keeps what it has learnt.

    Examples
    --------
    >>> from sklearn_clm import ComponentSelector, ConformalSampler
    >>> from sklearn_clm.generators import FunctionGenerator
    >>> from sklearn_clm.scoring import ClaimSupport, CombinedScore, VerbalisedConfidence
    >>> def ask(question, seed=0):  # stands for a model, which is sure of what is false, too
    ...     if "How likely" in question:
    ...         return "90" if "2" in question else "80"
    ...     return f"{question} is {2 if (len(question) + seed) % 4 else 3}"
    >>> def is_true(prompt, claim):
    ...     return claim.endswith("2")
    >>> prompts = [f"{'+' * (i % 9)} {i}" for i in range(160)]
    >>> score = CombinedScore([ClaimSupport(), VerbalisedConfidence(ask)])
    >>> draws = FunctionGenerator(ask).sample(prompts[:40], 4)
    >>> score = score.fit(prompts[:40], prompts[:40], draws, admission=is_true)
    >>> sampler = ConformalSampler(
    ...     FunctionGenerator(ask), k_max=4, epsilon=0.3, quality="self_consistency"
    ... )
    >>> parts = {"component_score": score, "admission": is_true}
    >>> selector = ComponentSelector(sampler.set_params(admission=is_true), alpha=0.1, **parts)
    >>> len(selector.fit(prompts, prompts).calibration_indices_)
    120
    """

    def __init__(self, scores: Sequence[Any]) -> None:
        self.scores = scores

    @property
    def parts(self) -> list[ComponentScore]:
        """The scores as objects."""
        return [get_component_score(score) for score in self.scores]

    @property
    def counts_taken_draws(self) -> bool:
        """Whether any of them counts draws that were not accepted."""
        return any(getattr(part, "counts_taken_draws", False) for part in self.parts)

    def fit(
        self,
        prompts: Prompts,
        admissions: Sequence[Reference],
        draws: Draws,
        *,
        splitter: Splitter | str = "sentence",
        admission: str | Admission = "rouge_l",
    ) -> Self:
        """Learn which components of some draws are right.

        Parameters
        ----------
        prompts, admissions : sequences of length n
            As X and y of the selector. Prompts that a score has learnt from never calibrate.
        draws : sequence of n sequences of Generation
            What a generator draws for them: ``generator.sample(prompts, k_max)``.
        splitter, admission
            As in the selector.

        Returns
        -------
        CombinedScore
            Itself.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier

        checked = check_prompts(prompts)
        references = check_admissions(admissions, len(checked), estimator=self)
        parts = split_draws(splitter, checked.prompts, draws)
        features = self._features(checked.prompts, draws, parts)

        # a component of several draws is one, with its largest scores
        components = []
        rows = []
        start = 0
        for row, parts_of_row in zip(draws, parts):
            texts, numbers = numbered_components((draw.response for draw in row), parts_of_row)
            number_of_row = np.concatenate([np.empty(0, dtype=np.intp), *numbers])
            largest = np.full((len(texts), features.shape[1]), -np.inf)
            np.maximum.at(largest, number_of_row, features[start : start + len(number_of_row)])
            start += len(number_of_row)
            components.append(texts)
            rows.append(largest)

        verdicts = judge(get_component_admission(admission, splitter), references, components)
        right = np.concatenate(verdicts)
        if len(np.unique(right)) < 2:
            raise ValueError(
                "admissions must admit some components and refuse others, for a classifier to "
                f"learn from, got {int(right.sum())} of {len(right)} that are right instead."
            )
        # monotone in each score: none of them falls when draws are added, and so the combined one
        # does not (Proposition 4.4). Seeded, so that equal data give an equal score
        classifier = HistGradientBoostingClassifier(
            monotonic_cst=[1] * len(self.scores), random_state=0
        )
        self.classifier_ = classifier.fit(np.concatenate(rows), right)
        # no prompt that any of them has learnt from may calibrate
        of_parts = [part.trained_on_ for part in self.parts if isinstance(part, CombinedScore)]
        self.trained_on_: np.ndarray = np.unique(np.concatenate([checked.digests, *of_parts]))
        return self

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        check_is_fitted(self)
        # all occurrences in one call, and cut up again by draws
        features = self._features(prompts, generations, spans)
        values = self.classifier_.predict_proba(features)[:, 1] if len(features) else np.empty(0)
        scores: Scores = []
        start = 0
        for row in spans:
            scores.append([])
            for parts in row:
                scores[-1].append(values[start : start + len(parts)])
                start += len(parts)
        return scores

    def cite(self, prompt: Prompt, claims: Sequence[Response]) -> list[Citation | None]:
        """The passages that the first citing score gives."""
        citing = [part for part in self.parts if isinstance(part, Citing)]
        return citing[0].cite(prompt, claims) if citing else [None] * len(claims)

    def passages_beside(self, prompt: Prompt) -> Sequence[str]:
        """The passages of that score beside the prompt."""
        citing = [part for part in self.parts if isinstance(part, Citing)]
        return citing[0].passages_beside(prompt) if citing else []

    def _features(self, prompts: Prompts, draws: Draws, spans: Spans) -> np.ndarray:
        """The scores of each occurrence in turn, shape (m, d)."""
        columns = []
        for part in self.parts:
            scores = component_scores(part, prompts, draws, spans)
            columns.append(np.concatenate([np.empty(0), *chain.from_iterable(scores)]))
        return np.column_stack(columns)
