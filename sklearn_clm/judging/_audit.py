"""Audit of a judge that is a model, against the verdicts of people."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.caching import HumanJudge
from sklearn_clm.calibration import clopper_pearson, smallest_epsilon
from sklearn_clm.calibration._binomial import check_probability
from sklearn_clm.generators._records import key_digest
from sklearn_clm.scoring import admission_matrix
from sklearn_clm.scoring._protocols import Admission, Reference


@dataclass(frozen=True)
class JudgeAudit:
    """Errors of a judge on responses that people have judged.

    Parameters
    ----------
    n_inadmissible, n_admitted : int
        Responses that people refuse, and how many of these the judge admits: it is too lenient.
    n_admissible, n_refused : int
        Responses that people admit, and how many of these the judge refuses: it is too strict.
    n_prompts, n_misled : int
        Prompts, and for how many of them the judge admits a response while people admit none.
    confidence : float
        Of each interval.

    Notes
    -----
    *What calibration with the judge promises.* Let A be the admission of people and A' that of the
    judge. Corollary A.4 of the paper: if A' admits nothing that A refuses, what is certified for A'
    holds for A. One response that is admitted too much, and the corollary says nothing.

    *How far from it.* A set without a member that A admits has either no member that A' admits, or
    some, but none that A admits, too. By the union bound:

        risk for A <= risk for A' + P(A' admits a member of the set, and A admits none)

    The first term is certified to be at most epsilon. `misled_at_most` bounds the second one, if
    the prompts are a random sample of those to come and people judged each response of their sets
    that the judge admits, up to the first that they admit. Both hold at once with confidence
    1 - delta - (1 - `confidence`). Being too strict costs no guarantee, but larger sets.

    Examples
    --------
    >>> from sklearn_clm.judging import JudgeAudit
    >>> audit = JudgeAudit.from_verdicts([1, 1, 0, 1], [1, 0, 0, 1], prompts=[0, 0, 1, 2])
    >>> audit.n_admitted, audit.n_inadmissible, audit.n_misled
    (1, 2, 0)
    >>> round(audit.misled_at_most, 3)
    0.632
    """

    n_inadmissible: int
    n_admitted: int
    n_admissible: int
    n_refused: int
    n_prompts: int
    n_misled: int
    confidence: float = 0.95

    @classmethod
    def from_verdicts(
        cls,
        judge: ArrayLike,
        people: ArrayLike,
        *,
        prompts: ArrayLike | None = None,
        confidence: float = 0.95,
    ) -> "JudgeAudit":
        """Compare two arrays of verdicts.

        Parameters
        ----------
        judge, people : array-like of bool, shape (n,)
            Verdicts of the judge and of people on the same responses.
        prompts : array-like of int, shape (n,), default=None
            Which prompt each response belongs to; None where each has a prompt of its own.
        confidence : float in (0, 1), default=0.95
            Of each interval.

        Returns
        -------
        JudgeAudit
        """
        check_probability(confidence, "confidence")
        admitted, right = _as_verdicts(judge, "judge"), _as_verdicts(people, "people")
        owner = np.arange(len(right)) if prompts is None else np.asarray(prompts)
        if not len(right) == len(admitted) == len(owner):
            raise ValueError(
                f"judge, people and prompts must have one length, got {len(admitted)}, "
                f"{len(right)} and {len(owner)} instead."
            )
        if not len(right):
            raise ValueError("people must have judged at least one response, got none instead.")
        distinct, owner = np.unique(owner, return_inverse=True)
        n = len(distinct)
        by_judge, by_people = (
            np.bincount(owner[verdicts], minlength=n) > 0 for verdicts in (admitted, right)
        )
        return cls(
            n_inadmissible=int(np.sum(~right)),
            n_admitted=int(np.sum(admitted & ~right)),
            n_admissible=int(np.sum(right)),
            n_refused=int(np.sum(~admitted & right)),
            n_prompts=n,
            n_misled=int(np.sum(by_judge & ~by_people)),
            confidence=float(confidence),
        )

    @property
    def too_lenient(self) -> tuple[float, float]:
        """Exact interval of the share of inadmissible responses that the judge admits."""
        return _interval(self.n_admitted, self.n_inadmissible, self.confidence)

    @property
    def too_strict(self) -> tuple[float, float]:
        """Exact interval of the share of admissible responses that the judge refuses."""
        return _interval(self.n_refused, self.n_admissible, self.confidence)

    @property
    def misled_at_most(self) -> float:
        """Exact upper bound of the share of prompts on which the judge misleads."""
        return float(smallest_epsilon(self.n_misled, self.n_prompts, 1.0 - self.confidence))

    def risk_at_most(self, epsilon: float) -> float:
        """Bound of the risk for the admission of people.

        Parameters
        ----------
        epsilon : float in (0, 1)
            What is certified with the judge.

        Returns
        -------
        float
            See the notes for what it needs, and for its confidence.
        """
        check_probability(epsilon, "epsilon")
        return min(1.0, epsilon + self.misled_at_most)

    def __str__(self) -> str:
        share = f"{100 * self.confidence:.3g} % interval"
        strict = (
            "That costs no guarantee, but larger sets."
            if self.n_refused
            else "None was seen that would cost larger sets."
        )
        corollary = (
            "Corollary A.4 (what is certified holds for people, too) needs a judge that is never "
            "too lenient. "
            + (
                "This one is, so that the corollary does not apply."
                if self.n_admitted
                else "No such error was seen; the interval says what may have been missed."
            )
        )
        return "\n".join(
            (
                f"Too lenient: admits {self.n_admitted} of {self.n_inadmissible} inadmissible "
                f"responses ({share} {_shown(self.too_lenient)}).",
                f"Too strict: refuses {self.n_refused} of {self.n_admissible} admissible responses "
                f"({share} {_shown(self.too_strict)}). {strict}",
                corollary,
                f"For {self.n_misled} of {self.n_prompts} prompts the judge admits a response and "
                f"people none. With confidence {self.confidence:.3g} the risk for people is at "
                f"most {self.misled_at_most:.4f} above the certified epsilon, if these prompts are "
                "a random sample and people judged all responses of their sets that the judge "
                "admits.",
            )
        )


def audit_judge(
    admission: str | Admission,
    people: HumanJudge,
    *,
    confidence: float = 0.95,
    n_jobs: int | None = None,
) -> JudgeAudit:
    """Ask a judge about all that people have judged.

    Parameters
    ----------
    admission : str or callable
        The judge, such as an :class:`sklearn_clm.scoring.LLMJudge`; "rouge_l" or another name for
        a rule.
    people : HumanJudge
        Keeps the verdicts of people, whose references the judge is asked about.
    confidence : float in (0, 1), default=0.95
        Of each interval.
    n_jobs : int, default=None
        Processes or threads that judge.

    Returns
    -------
    JudgeAudit

    Raises
    ------
    ValueError
        If people have judged nothing, or without references.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn_clm.caching import HumanJudge, WantedVerdict
    >>> from sklearn_clm.judging import audit_judge
    >>> folder = tempfile.TemporaryDirectory()
    >>> people = HumanJudge(folder.name + "/verdicts.sqlite", judge="Ada")
    >>> for asked in people.asked(["2+2?", "3+3?"], ["4", "6"]):
    ...     people.record(WantedVerdict(asked, "4"), asked.prompt == "2+2?")
    >>> audit = audit_judge("exact_match", people)
    >>> audit.n_admitted, audit.n_refused
    (0, 0)
    """
    judged = people.judged()
    bare = [pair for pair, _ in judged if not pair.asked.references]
    if bare:
        raise ValueError(
            f"people must have judged responses with references, got {len(bare)} of {len(judged)} "
            "without instead: the judge would have nothing to go by."
        )
    references: list[Reference] = [list(pair.asked.references) for pair, _ in judged]
    verdicts = admission_matrix(
        admission, references, [[pair.response] for pair, _ in judged], n_jobs=n_jobs
    )
    keys = [key_digest([pair.asked.prompt, list(pair.asked.references)]) for pair, _ in judged]
    numbers: dict[bytes, int] = {}
    return JudgeAudit.from_verdicts(
        verdicts[:, 0] if judged else [],
        [verdict for _, verdict in judged],
        prompts=[numbers.setdefault(key, len(numbers)) for key in keys],
        confidence=confidence,
    )


def _as_verdicts(values: ArrayLike | Sequence[bool], name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and not np.isin(array, (0, 1)).all()):
        raise ValueError(
            f"{name} must be a 1-D array of booleans, got shape {array.shape} and dtype "
            f"{array.dtype} instead."
        )
    return array.astype(bool)


def _interval(n_errors: int, n: int, confidence: float) -> tuple[float, float]:
    if not n:
        return 0.0, 1.0
    low, high = clopper_pearson(n_errors, n, confidence)
    return float(low), float(high)


def _shown(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.4f} to {interval[1]:.4f}"
