"""How many prompts to collect for answers, from a pilot."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import nbinom

from sklearn_clm._exceptions import DECIDE_BEFOREHAND
from sklearn_clm.calibration import CalibrationData, clopper_pearson
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.data import check_data
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.vote import PlainAnswers, PlainModel, PlainSteps, votes_in_words
from sklearn_clm.calibration.words import counted
from sklearn_clm.evaluation.markdown import markdown_table
from sklearn_clm.evaluation.sizes import prompts_to_collect

_MOST_PROMPTS = 10_000  # a plan for more would be no help
_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class AnswerPlan:
    """What votes of a pilot say of answers to come.

    Parameters
    ----------
    levels : list of str
        Votes that it takes to be answered, from the most cautious on.
    n_answered, n_wrong : ndarray of int, shape (s,)
        Prompts of the pilot that are answered at each, and wrong answers.
    n_prompts : list of (int or None, int or None)
        With so many prompts a calibration certifies the level with probability `power`, if the
        share of wrong answers is that of the pilot, and if it is the upper end of its 95 %
        interval; None where 10,000 do not.
    alpha, delta, power : float
        As asked for.
    n_pilot, k_max : int
        Prompts of the pilot, and draws for each.
    """

    levels: list[str]
    n_answered: np.ndarray
    n_wrong: np.ndarray
    n_prompts: list[tuple[int | None, int | None]]
    alpha: float
    delta: float
    power: float
    n_pilot: int
    k_max: int

    def to_markdown(self) -> str:
        """The plan as text with a table in Markdown."""
        rows = [("votes", "answered", "of these wrong", "prompts", "cautiously")]
        of_levels = zip(self.levels, self.n_answered, self.n_wrong, self.n_prompts)
        for level, m, wrong, needed in of_levels:
            low, high = map(float, clopper_pearson(int(wrong), int(m), _CONFIDENCE))
            interval = f"{wrong / m:.3f} [{low:.3f}, {high:.3f}]"
            numbers = [f"over {_MOST_PROMPTS:,}" if n is None else str(n) for n in needed]
            rows.append((level, f"{m / self.n_pilot:.2f}", interval, numbers[0], numbers[1]))
        parts = (
            f"Plan of answers from a pilot of {counted(self.n_pilot, 'prompt')} with "
            f"{counted(self.k_max, 'draw')} each: alpha = {self.alpha:g}, delta = {self.delta:g}.",
            f"With so many prompts a vote certifies its level with probability {self.power:g}, if "
            "the share of wrong answers is that of the pilot; and cautiously, if it is the upper "
            "end of its 95 % interval.",
            DECIDE_BEFOREHAND,
            markdown_table(rows).rstrip("\n"),
        )
        return "\n\n".join(parts) + "\n"

    __str__ = _repr_markdown_ = to_markdown


def plan_answers(
    data: CalibrationData, alpha: float = 0.1, delta: float = 0.05, *, power: float = 0.9
) -> AnswerPlan:
    """Estimate from a pilot how many prompts answers take.

    At a level m prompts are answered, of which as many may be wrong as the exact test of m allows.
    It is for votes, which all prompts calibrate.

    Parameters
    ----------
    data : CalibrationData
        The pilot: some 50 to 100 independent prompts that will not calibrate. Equal responses vote
        together, where ``data.texts`` tells them. Where draws end early, what they leave open
        counts as a wrong answer, as it will where as many are missing in calibration.
    alpha, delta, power : float
        Tolerated share of wrong answers, level of the tests, and wanted probability of success, in
        (0, 1).

    Returns
    -------
    AnswerPlan
        A row for each level that differs in the pilot.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData
    >>> from sklearn_clm.evaluation import plan_answers
    >>> rng = np.random.default_rng(0)
    >>> votes = (rng.random((80, 3)) < 0.2) * np.arange(3)
    >>> pilot = CalibrationData(np.ones((80, 3)), np.zeros((80, 3, 3)), votes == 0, texts=votes)
    >>> expected = plan_answers(pilot, alpha=0.1)
    >>> expected.levels[0], expected.n_answered.tolist(), expected.n_prompts[0]
    ('3 of 3 votes', [49, 79, 80], (57, 1971))
    """
    check_data(data, draws=False)
    for name, value in {"alpha": alpha, "delta": delta, "power": power}.items():
        check_level(value, name)

    vote = PlainAnswers(PlainModel("vote", data.k_max))
    steps = PlainSteps(Table(data), np.arange(data.n_prompts), vote, fewest=1)
    # what draws that end early leave open counts as answered, and wrong
    n_open = np.array([steps.unfinished(step).sum() for step in range(len(steps))])
    n_with_answer = np.array([steps.sizes(step).sum() for step in range(len(steps))])
    answered = n_with_answer + n_open
    # levels that answer the same prompts of the pilot are one row
    _, chosen = np.unique(answered, return_index=True)
    labels_of_answers = [steps.members(step).labels for step in chosen]
    wrong = np.array([int(np.sum(labels == 0)) for labels in labels_of_answers])
    wrong += n_open[chosen]

    needed = []
    for m, n_wrong in zip(answered[chosen].tolist(), wrong.tolist()):
        share = m / data.n_prompts
        # planned twice: by the pilot's share of errors, and by the upper end of its interval
        high = float(clopper_pearson(n_wrong, m, _CONFIDENCE)[1])
        risks = n_wrong / m, high
        exact, cautious = (_prompts(risk, share, alpha, delta, power) for risk in risks)
        needed.append((exact, cautious))

    return AnswerPlan(
        levels=[votes_in_words(steps.levels[step], data.k_max) for step in chosen],
        n_answered=answered[chosen],
        n_wrong=wrong,
        n_prompts=needed,
        alpha=alpha,
        delta=delta,
        power=power,
        n_pilot=data.n_prompts,
        k_max=data.k_max,
    )


def _prompts(risk: float, share: float, alpha: float, delta: float, power: float) -> int | None:
    """Prompts that give enough answers, and few enough errors."""
    # two things must go well, each with this probability: there are enough answers, and the test
    # passes
    each = math.sqrt(power)
    answers = prompts_to_collect(risk, alpha, delta, each, 0.0, _MOST_PROMPTS)
    if answers is None:
        return None
    total = answers
    if share < 1.0:
        # besides the answers, so many prompts that are escalated
        total += int(nbinom.ppf(each, answers, share))
    return total if total <= _MOST_PROMPTS else None
