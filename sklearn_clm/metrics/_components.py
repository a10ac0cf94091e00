"""Loss, precision and recall of selected components."""

import numpy as np
from sklearn.metrics import make_scorer

from sklearn_clm._results import ComponentSets
from sklearn_clm.calibration.risk import WrongComponents
from sklearn_clm.metrics._sets import Admissions, Judge, checked_for, judge_of, set_size
from sklearn_clm.scoring import component_match
from sklearn_clm.scoring._splitters import Splitter
from sklearn_clm.scoring.admission import get_component_admission
from sklearn_clm.scoring.protocols import Admission
from sklearn_clm.scoring.verdicts import judge


def component_loss(
    admissions: Admissions,
    sets: ComponentSets,
    *,
    admission: Judge = None,
    average: bool = True,
) -> float | np.ndarray:
    """Share of prompts with a wrong component selected (Eq. 9).

    Where the claim of the sets tolerates some wrong components, only prompts with more count.

    Parameters
    ----------
    admissions : sequence of length n
        As y in :meth:`ComponentSelector.fit`: callables A^c_i, or references.
    sets : ComponentSets of length n
        From ``predict``. An empty selection has no loss.
    admission : str or callable, default=None
        Judge of references. None is that of the selector which made the sets.
    average : bool, default=True
        Whether to return the mean, or the values of each prompt.

    Examples
    --------
    >>> from sklearn_clm import ComponentSet, ComponentSets, PredictionSet
    >>> from sklearn_clm.metrics import component_loss
    >>> answer = PredictionSet("Q", ("Yes. No.",), [0.9], [0], 1, 0.9, True, True)
    >>> one = ComponentSet(("Yes.",), [0.8], [[(0, (0, 4))]], answer, True)
    >>> component_loss(["No."], ComponentSets([one]), admission="exact_match")
    1.0
    """
    verdicts = _verdicts(admissions, sets, admission)
    risks = [WrongComponents() if one.claim is None else one.claim.risk for one in sets]
    n_wrong = np.array([np.sum(~row) for row in verdicts], dtype=np.intp)
    losses = [bool(risk.errs(n)) for risk, n in zip(risks, n_wrong)]
    return _averaged(np.array(losses, dtype=bool), average)


def component_precision(
    admissions: Admissions,
    sets: ComponentSets,
    *,
    admission: Judge = None,
    average: bool = True,
) -> float | np.ndarray:
    """Share of the selected components that are correct.

    It is NaN for an empty selection, which no mean counts. Parameters as in :func:`component_loss`.
    """
    verdicts = _verdicts(admissions, sets, admission)
    shares = [row.mean() if row.size else np.nan for row in verdicts]
    return _averaged(np.array(shares), average)


def component_recall(
    references: Admissions,
    sets: ComponentSets,
    *,
    match: str | Admission = "rouge_l",
    splitter: str | Splitter | None = None,
    average: bool = True,
) -> float | np.ndarray:
    """Share of the reference's components almost matched (Appendix G).

    Parameters
    ----------
    references : sequence of length n
        References. Of a list of references, the one that is covered best counts.
    sets : ComponentSets of length n
        From ``predict``.
    match : str or callable, default="rouge_l"
        When ``match(reference component, component)`` holds, as in :func:`component_match`.
    splitter : str or callable, default=None
        Splits references. None is that of the selector which made the sets, or sentences.
    average : bool, default=True
        Whether to return the mean over the prompts whose reference has a component, or the values
        of each prompt: NaN for a reference without components.

    Examples
    --------
    >>> from sklearn_clm import ComponentSet, ComponentSets, PredictionSet
    >>> from sklearn_clm.metrics import component_recall
    >>> answer = PredictionSet("Q", ("No effusion.",), [0.9], [0], 1, 0.9, True, True)
    >>> one = ComponentSet(("No effusion.",), [0.8], [[(0, (0, 12))]], answer, True)
    >>> component_recall(["There is no effusion. The lungs are clear."], ComponentSets([one]))
    0.5
    """
    checked = checked_for(sets, ComponentSets, references)
    # split as the responses were, so that parts of like length are compared
    almost = component_match(match, _splitter(sets) if splitter is None else splitter)
    recalls = []
    for reference, a_set in zip(checked, sets):
        aliases = reference if isinstance(reference, (list, tuple, set)) else [reference]
        covered = [
            [
                any(almost.admission(part, c) for c in a_set.components)
                for part in almost.parts(alias)
            ]
            for alias in aliases
        ]
        # of several references that which is covered best
        recalls.append(max((np.mean(parts) for parts in covered if parts), default=np.nan))
    return _averaged(np.array(recalls), average)


def _verdicts(admissions: Admissions, sets: ComponentSets, admission: Judge) -> list[np.ndarray]:
    checked = checked_for(sets, ComponentSets, admissions)
    judges = get_component_admission(judge_of(admission, sets.selector, checked), _splitter(sets))
    return judge(judges, checked, [list(a_set.components) for a_set in sets])


def _splitter(sets: ComponentSets) -> str | Splitter:
    return "sentence" if sets.selector is None else sets.selector.calibration_.splitter


def _averaged(values: np.ndarray, average: bool) -> float | np.ndarray:
    if not average:
        return values
    # where there is nothing to select, or to cover, there is no share, and none that a mean counts
    defined = values[~np.isnan(values.astype(np.float64))]
    return float(defined.mean()) if defined.size else float("nan")


COMPONENT_SCORERS = {
    "component_count": make_scorer(set_size),
    "component_precision": make_scorer(component_precision),
    "component_recall": make_scorer(component_recall),
    "neg_component_loss": make_scorer(component_loss, greater_is_better=False),
}
