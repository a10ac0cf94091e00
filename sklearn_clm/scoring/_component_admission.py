"""Admission A^c of components (section 4.4 of the paper): against any component of a reference."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sklearn_clm.scoring._admission import ThresholdAdmission, get_admission
from sklearn_clm.scoring._component_spans import component_of, component_spans
from sklearn_clm.scoring._exact_match import exact_match, same_value
from sklearn_clm.scoring._parallel import map_chunks
from sklearn_clm.scoring._results import name_of
from sklearn_clm.scoring._rouge import rouge_l, rouge_l_matrix
from sklearn_clm.scoring._splitters import get_splitter

__all__ = ["ComponentMatch", "component_match", "get_component_admission"]

_NAMES = ("exact_match", "rouge_l")
# from which the paper takes two sentences of radiology reports for almost the same
_ALMOST = 0.4


class ComponentMatch:
    """Admission of components that match some component of the reference.

    See :func:`component_match`.

    Parameters
    ----------
    admission : callable (reference component, component) -> bool
        Judges two components.
    splitter : callable text -> list of (start, stop)
        Splits references.

    Examples
    --------
    >>> from sklearn_clm.scoring import ComponentMatch, exact_match, get_splitter
    >>> match = ComponentMatch(exact_match, get_splitter("sentence"))
    >>> match("No effusion. The heart is large.", "no effusion")
    True
    """

    def __init__(
        self, admission: Callable[[Any, Any], bool], splitter: Callable[[str], Any]
    ) -> None:
        self.admission = admission
        self.splitter = splitter

    def __call__(self, reference: Any, component: Any) -> bool:
        """Whether `component` matches any component of `reference`."""
        return self.judge_pairs([reference], [component])[0]

    def judge_pairs(
        self,
        references: Sequence[Any],
        components: Sequence[Any],
        *,
        n_jobs: int | None = None,
    ) -> list[Any]:
        """Verdict on each pair; each run of equal references is split once.

        Parameters
        ----------
        references, components : sequences of the same length
            Whole references, and components.
        n_jobs : int, default=None
            Number of workers, as in joblib.

        Returns
        -------
        list of bool
            One for each pair.
        """
        runs: list[tuple[Any, Sequence[Any]]] = []
        first = 0
        for last in range(1, len(references) + 1):
            if last == len(references) or references[last] is not references[first]:
                runs.append((references[first], components[first:last]))
                first = last
        return [
            verdict for row in map_chunks(self._judge_runs, runs, n_jobs=n_jobs) for verdict in row
        ]

    def _judge_runs(self, runs: Sequence[tuple[Any, Sequence[Any]]]) -> list[list[Any]]:
        return [self._against(self._parts(reference), row) for reference, row in runs]

    def _parts(self, reference: Any) -> list[Any]:
        spans = component_spans(self.splitter, reference)
        return [component_of(reference, span) for span in spans]

    def _against(self, parts: list[Any], components: Sequence[Any]) -> list[Any]:
        judge = self.admission
        texts = all(isinstance(text, str) for text in [*parts, *components])
        if (
            isinstance(judge, ThresholdAdmission)
            and judge.metric is rouge_l_or_equality
            and texts
            and parts
        ):
            best = rouge_l_matrix(parts, components).max(axis=0)
            return list((best >= judge.threshold).tolist())
        return [_any(judge(part, component) for part in parts) for component in components]

    @property
    def __name__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"component_match({name_of(self.admission)}, {name_of(self.splitter)})"


def _any(verdicts: Any) -> Any:
    """True at the first true verdict; one that is no bool is handed on, to be refused."""
    for verdict in verdicts:
        if verdict or not isinstance(verdict, (bool, np.bool_)):
            return verdict
    return False


def component_match(
    admission: Callable[[Any, Any], bool] | str,
    splitter: Callable[[str], Any] | str = "sentence",
) -> ComponentMatch:
    """Admission of components that match some component of the reference.

    Parameters
    ----------
    admission : callable (reference component, component) -> bool, or {"exact_match", "rouge_l"}
        Judges two components, such as ``threshold_admission(rouge_l, 0.5)``. "rouge_l" is a
        ROUGE-L of at least 0.4, as the paper has it; what is not text compares by equality there.
    splitter : str or callable, default="sentence"
        Splits references, as in :func:`get_splitter`. A reference that is not text is a single
        component.

    Returns
    -------
    callable (reference, component) -> bool
        Whether `component` matches any component of `reference`; never where that has none.

    Raises
    ------
    ValueError
        If a name is unknown.

    Examples
    --------
    >>> from sklearn_clm.scoring import component_match
    >>> almost = component_match("rouge_l")
    >>> almost("The lungs are clear. No effusion.", "There is no effusion.")
    True
    >>> almost("", "There is no effusion.")
    False
    """
    split = get_splitter(splitter)
    if isinstance(admission, str):
        if admission not in _NAMES:
            raise ValueError(
                f"admission={admission!r} is unknown; wanted one of {list(_NAMES)} or a callable "
                "(reference, component) -> bool."
            )
        judge = (
            exact_match
            if admission == "exact_match"
            else ThresholdAdmission(rouge_l_or_equality, _ALMOST)
        )
        return ComponentMatch(judge, split)
    return ComponentMatch(get_admission(admission), split)


def get_component_admission(
    admission: Any, splitter: Callable[[str], Any] | str = "sentence"
) -> Callable[[Any, Any], bool]:
    """Admission A^c from its name.

    Parameters
    ----------
    admission : {"exact_match", "rouge_l"} or callable (reference, component) -> bool
        A name compares with every component of the reference, see :func:`component_match`. A
        callable is given the whole reference.
    splitter : str or callable, default="sentence"
        Splits references, for names.

    Returns
    -------
    callable (reference, component) -> bool
        The admission.

    Raises
    ------
    ValueError
        If a name is unknown.
    TypeError
        If it is neither a name nor a callable.

    Examples
    --------
    >>> from sklearn_clm.scoring import get_component_admission
    >>> get_component_admission("exact_match")("Yes. No.", "no")
    True
    """
    if isinstance(admission, str):
        return component_match(admission, splitter)
    return get_admission(admission)


def rouge_l_or_equality(reference: Any, component: Any) -> float:
    """ROUGE-L of two texts; 1.0 or 0.0 by equality where one is none."""
    if isinstance(reference, str) and isinstance(component, str):
        return rouge_l(reference, component)
    return float(same_value(reference, component))
