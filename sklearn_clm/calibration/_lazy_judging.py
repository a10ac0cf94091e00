"""Lazy judging: only the labels that a test's decision still needs.

A fixed table says for every distinct text of every prompt whether it is admissible. A test of a
configuration on n prompts rejects if and only if at most c prompts err, where c is the critical
count of the binomial test, and a prompt does not err as soon as one member of its set is known to
be admissible, its *witness*. So the test is decided once n - c witnesses are known, or c + 1
prompts are known to have none, and no further label can change it.

*Why the guarantee stays.* The decision is a function of the whole table: "at most c errors". Labels
are revealed until the value of that function is forced, whatever order they are revealed in, so
every decision, and with it the outcome of the fixed sequence test, equals that of the full table.
What is *not* known is the p-value itself: a curtailed test knows that it is at most delta.

*Why no judgement is in vain.* A batch holds one text each of at most min(witnesses still needed,
errors still needed) prompts. Any way of deciding the test reveals at least that many prompts.

*In which order tests are decided.* The outcome of fixed sequence testing is the first test that
does not reject. Every test before it is decided, in whatever order, and each decision is a function
of the table alone. So the search begins where the optimisation part expects the last rejection:
witnesses that are found in its small sets are, as a rule, in the larger ones of the tests before,
which then cost nothing. From there it halves what is left until the first failure is found.

*Why draws can be lazy.* Whether a draw is accepted depends on the draws up to it alone. So a
witness counts before later draws are made, and a prompt without one needs the draws up to the stop
of the configuration that is tested, and no more. Accepting every draw has the witnesses of all
other configurations, so that its test needs no draw of its own once any other test rejects.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    critical_count,
    mistaken_delta,
    prompts_needed,
    smallest_epsilon,
    warn_caller,
)
from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._engine._stopping import scores_of_prefixes
from sklearn_clm.calibration._exit_policy import (
    Classifier,
    ScoreScale,
    TextPaths,
    completed,
    fitted,
    probability,
)
from sklearn_clm.calibration._learn_then_test import (
    AchievableEpsilon,
    Frontier,
    LearnThenTestResult,
    choose_configuration,
)
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration._set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration._surface import ConfigurationRisks

_COPIES_DIFFER = 1 / 8  # as often as any two judged texts of a prompt, at most

Judge = Callable[[np.ndarray, np.ndarray], Iterable[bool]]
"""``judge(prompts, draws)``: two arrays of positions, of equal length; gives the verdicts in
order, as they become known. Those given before an error are kept."""


class LabelTable:
    """Labels of the distinct texts of n prompts, as far as they are known.

    Parameters
    ----------
    first : ndarray of int, shape (n, K)
        For each draw the draw in which its text occurs first; itself for a new text.
    judge : callable
        ``judge(prompts, draws)``, see :data:`Judge`.
    known : ndarray of int8, shape (n, K), default=None
        Labels of draws that are known beforehand: 1, 0, or -1 for unknown.

    Attributes
    ----------
    labels : ndarray of int8, shape (n, K)
        1, 0 or -1 for each draw; draws of equal text have equal labels.
    n_judgements : int
        How many texts were judged.

    Raises
    ------
    ValueError
        If known labels of equal texts differ.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import LabelTable
    >>> table = LabelTable(np.array([[0, 0, 2]]), lambda prompts, draws: [True] * len(prompts))
    >>> table.ask(np.array([0]), np.array([1]))
    >>> table.labels, table.n_judgements
    (array([[ 1,  1, -1]], dtype=int8), 1)
    """

    def __init__(self, first: np.ndarray, judge: Judge, known: np.ndarray | None = None) -> None:
        self.first = first
        self.n_judgements = 0
        self._judge = judge
        self._of_text = np.full(first.shape, -1, dtype=np.int8)  # at the first occurrence
        if known is not None:
            rows, draws = np.nonzero(known >= 0)
            self._learn(rows, first[rows, draws], known[rows, draws])

    @property
    def labels(self) -> np.ndarray:
        return np.take_along_axis(self._of_text, self.first, axis=1)

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        """`labels` of some prompts."""
        return np.take_along_axis(self._of_text[rows], self.first[rows], axis=1)

    def ask(self, prompts: np.ndarray, draws: np.ndarray) -> None:
        """Judge one draw of each of some prompts.

        Parameters
        ----------
        prompts, draws : ndarray of int, shape (m,)
            Positions of texts without a label.

        Raises
        ------
        ValueError
            If the judge gives another number of verdicts than it was asked for.
        """
        texts = self.first[prompts, draws]
        verdicts: list[bool] = []
        try:
            for verdict in self._judge(prompts, texts):
                verdicts.append(bool(verdict))
                if len(verdicts) > len(prompts):
                    break
        finally:
            # what was judged before an error is kept
            n_given = min(len(verdicts), len(prompts))
            self.n_judgements += n_given
            labels = np.array(verdicts[:n_given], dtype=np.int8)
            self._learn(prompts[:n_given], texts[:n_given], labels)
        if len(verdicts) != len(prompts):
            raise ValueError(
                f"judge must give one verdict for each of {len(prompts)} texts, got "
                f"{'more' if len(verdicts) > len(prompts) else len(verdicts)} instead."
            )

    def _learn(self, prompts: np.ndarray, texts: np.ndarray, labels: np.ndarray) -> None:
        before = self._of_text[prompts, texts]
        self._of_text[prompts, texts] = labels
        changed = ((before >= 0) & (before != labels)) | (self._of_text[prompts, texts] != labels)
        if changed.any():
            m = int(changed.argmax())
            raise ValueError(
                f"the judge must give equal texts one verdict, got both for the text of draw "
                f"{texts[m]} of prompt {prompts[m]} instead."
            )


class CurtailedTest(NamedTuple):
    """What a lazily judged test knows.

    Parameters
    ----------
    rejected : bool
        Whether at most c prompts err, that is, the p-value is at most delta.
    fewest_errors, most_errors : int
        Bounds of the number of errors; equal where every prompt is settled.

    Examples
    --------
    >>> from sklearn_clm.calibration import CurtailedTest
    >>> CurtailedTest(True, 2, 5).most_errors
    5
    """

    rejected: bool
    fewest_errors: int
    most_errors: int


class StoppedSets(Sequence[np.ndarray]):
    """The calibration prompts' sets under each configuration of a frontier.

    ``sets[m]`` are the accepted draws up to the stop, as far as draws were made. Where `data` lack
    draws, ``draw(prompts)`` makes the next one of each of some prompts and updates `data`.
    """

    def __init__(
        self,
        data: CalibrationData,
        frontier: Frontier,
        set_score: SetScore,
        draw: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        self._data, self._frontier, self._set_score = data, frontier, set_score
        self._draw = draw
        # accepted draws, draws at the stop, and how many draws were made then
        self._found: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray | None]] = {}

    def __len__(self) -> int:
        return len(self._frontier)

    def __getitem__(self, m: int) -> np.ndarray:  # type: ignore[override]
        return self._sets(m)[0]

    def finish(self, m: int, prompts: np.ndarray | None = None) -> None:
        """Draw some prompts, or all, up to the stop of configuration m."""
        while self._draw is not None and len(waiting := self._unfinished(m, prompts)):
            self._draw(waiting)

    def unfinished(self, m: int) -> np.ndarray:
        """Which prompts lack draws before the stop of configuration m."""
        waiting = np.zeros(self._data.n_prompts, dtype=bool)
        waiting[self._unfinished(m)] = True
        return waiting

    def costs(self, m: int) -> tuple[float, float]:
        """Mean set size and mean draws of configuration m; NaN where draws are missing."""
        if self.accepts_all(m):
            k_max = float(self._frontier.k_max[m])
            return k_max, k_max
        if len(self._unfinished(m)):
            return np.nan, np.nan
        accepted, samples = self._sets(m)
        return float(accepted.sum(axis=1).mean()), float(samples.mean())

    def accepts_all(self, m: int) -> bool:
        """Whether configuration m returns every draw, which errs for no more prompts than any."""
        similarity, quality, set_score = self._frontier.lambdas[m]
        everything = similarity == np.inf and quality == -np.inf and set_score == np.inf
        return bool(everything and self._frontier.k_max[m] == self._frontier.k_max.max())

    def _sets(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        data = self._data
        configuration = Configuration(*self._frontier.lambdas[m].tolist())
        k_max = int(self._frontier.k_max[m])
        if m not in self._found:
            made = None if data.n_draws is None else data.n_draws.copy()
            self._found[m] = (*sets_at_stop(data, configuration, k_max, self._set_score), made)
        accepted, samples, made = self._found[m]
        if made is not None and data.n_draws is not None:
            # further draws change nothing for those that have stopped
            new = np.flatnonzero((data.n_draws > made) & (samples > made))
            if len(new):
                accepted[new], samples[new] = sets_at_stop(
                    data.take(new), configuration, k_max, self._set_score
                )
            made[:] = data.n_draws
        return accepted, samples

    def _unfinished(self, m: int, prompts: np.ndarray | None = None) -> np.ndarray:
        n_draws = self._data.n_draws
        if n_draws is None:
            return np.arange(0)
        chosen = np.arange(len(n_draws)) if prompts is None else prompts
        return chosen[self._sets(m)[1][chosen] > n_draws[chosen]]


def judge_lazily(
    accepted_sets: Sequence[np.ndarray],
    n_errors: int,
    table: LabelTable,
    preference: np.ndarray,
    *,
    start: int = 0,
) -> list[CurtailedTest]:
    """Test configurations in sequence, judging what each decision needs.

    Parameters
    ----------
    accepted_sets : sequence of ndarray of bool, shape (n, K)
        The draws in each prompt's set, for one configuration after the other, from the safest.
    n_errors : int
        c, the most errors with which a test rejects; negative where none does.
    table : LabelTable
        What is known, and who is asked.
    preference : ndarray of shape (n, K)
        Of the unjudged draws of a prompt, the one of largest preference is judged first, and
        prompts are taken in falling order of it. It decides how many labels are needed, never the
        outcome.
    start : int, default=0
        Which test is decided first. It decides how many labels are needed, never the outcome.

    Returns
    -------
    list of CurtailedTest
        For each configuration up to and including the first that is not rejected, with what is
        known at the end.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import LabelTable, judge_lazily
    >>> truth = np.array([[True, False], [True, True], [False, False]])
    >>> first = np.array([[0, 1], [0, 0], [0, 1]])
    >>> table = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    >>> everything = np.ones((3, 2), dtype=bool)
    >>> judge_lazily([everything], 1, table, np.zeros((3, 2)))
    [CurtailedTest(rejected=True, fewest_errors=0, most_errors=1)]
    >>> table.n_judgements
    2
    """
    rejects: dict[int, bool] = {}
    low, high, middle = 0, len(accepted_sets), min(start, len(accepted_sets) - 1)
    while low < high:  # all tests before `low` reject, and the one at `high` does not
        if not _rejects(accepted_sets, middle, n_errors, table, preference, rejects):
            high = middle
        while low < min(middle, high):
            if not _rejects(accepted_sets, low, n_errors, table, preference, rejects):
                high = low
            else:
                low += 1
        while low < high and rejects.get(low):
            low += 1
        middle = low if high == len(accepted_sets) else (low + high) // 2
    tests, labels = [], table.labels
    for m in range(min(high + 1, len(accepted_sets))):
        covered, unjudged = _known(accepted_sets[m], labels)
        open_prompts = unjudged.any(axis=1)
        if isinstance(accepted_sets, StoppedSets):
            open_prompts |= ~covered & accepted_sets.unfinished(m)
        most = int(np.sum(~covered))
        tests.append(CurtailedTest(m < high, most - int(np.sum(open_prompts)), most))
    return tests


def texts_for_tests(
    accepted_sets: Iterable[np.ndarray], n_errors: int, table: LabelTable
) -> np.ndarray:
    """Texts that :func:`judge_lazily` may still ask for.

    A decided test stays decided, and a witness stays one, so that what no test could ask for now
    will not be asked for later.

    Parameters
    ----------
    accepted_sets, n_errors, table
        As in :func:`judge_lazily`.

    Returns
    -------
    ndarray of bool, shape (n, K)
        At the first occurrence of each text.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import LabelTable, texts_for_tests
    >>> known = np.array([[1, -1], [-1, -1], [0, -1]], dtype=np.int8)
    >>> table = LabelTable(np.array([[0, 1], [0, 0], [0, 1]]), lambda i, j: [], known)
    >>> texts_for_tests([np.ones((3, 2), dtype=bool)], 1, table)
    array([[False, False],
           [ True, False],
           [False,  True]])
    """
    labels = table.labels
    asked = np.zeros(labels.shape, dtype=bool)
    for accepted in accepted_sets:
        covered, unjudged = _known(accepted, labels)
        if np.sum(~covered & ~unjudged.any(axis=1)) > n_errors:
            break
        if np.sum(~covered) > n_errors:
            asked |= unjudged
    rows, draws = np.nonzero(asked)
    texts = np.zeros_like(asked)
    texts[rows, table.first[rows, draws]] = True
    return texts


def _known(accepted: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which prompts have a witness, and which draws of the others may still be one."""
    covered = np.any(accepted & (labels == 1), axis=1)
    return covered, accepted & (labels < 0) & ~covered[:, np.newaxis]


def _rejects(
    sets: Sequence[np.ndarray],
    m: int,
    n_errors: int,
    table: LabelTable,
    preference: np.ndarray,
    rejects: dict[int, bool],
) -> bool:
    """Decide test m, unless it is decided already."""
    if m in rejects:
        return rejects[m]
    covered, _ = _known(sets[m], table.labels)
    if isinstance(sets, StoppedSets) and np.sum(~covered) > n_errors:
        sets.finish(m, np.flatnonzero(~covered))
    accepted = sets[m]
    covered, unjudged = _known(accepted, table.labels)
    waiting = np.flatnonzero(unjudged.any(axis=1))
    most = int(np.sum(~covered))
    fewest = most - len(waiting)
    draws, value = _preferred(unjudged[waiting], preference[waiting])
    while most > n_errors >= fewest and len(waiting):
        batch = np.argsort(-value, kind="stable")[: min(most - n_errors, n_errors + 1 - fewest)]
        rows = waiting[batch]
        table.ask(rows, draws[batch])
        # what is known of the others has not changed
        found, unjudged = _known(accepted[rows], table.labels_of(rows))
        settled = ~unjudged.any(axis=1)
        draws[batch], value[batch] = _preferred(unjudged, preference[rows])
        most -= int(found.sum())
        fewest += int(np.sum(settled & ~found))
        left = np.ones(len(waiting), dtype=bool)
        left[batch[settled]] = False
        waiting, draws, value = waiting[left], draws[left], value[left]
    rejects[m] = most <= n_errors
    return rejects[m]


def _preferred(unjudged: np.ndarray, preference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The unjudged draw of each prompt that is judged first, and its preference."""
    wanted = np.where(unjudged, preference, -np.inf)
    value = wanted.max(axis=1, initial=-np.inf)
    # a preference of -inf must not hide the only unjudged draw
    hidden = ~np.isfinite(value)
    return np.where(hidden, unjudged.argmax(axis=1), wanted.argmax(axis=1)), value


def judge_in_falling_order(
    tau: np.ndarray,
    n_errors: int,
    table: LabelTable,
    *,
    exits: np.ndarray | None = None,
    draw: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """Judge texts from the largest tau down, until the exit level is known.

    Texts are judged in falling order of tau over all prompts, but no more of a prompt that has a
    witness. The level is the tau of the (n - c)-th witness: the (c + 1)-th smallest score V. No
    text below it is judged, and a batch holds texts of different prompts, no more than witnesses
    are still needed: any order of judging that finds the level would have asked for them.

    Where draws are missing, the exit m_k after the last draw made bounds every tau that is not
    known yet. A prompt is drawn from only while this bound is among the largest, as many as
    witnesses are still needed: no fewer prompts than that reach the level, so that the bound does,
    and the prompt has not stopped at the level.

    Parameters
    ----------
    tau : ndarray of shape (n, K)
        At the first occurrence of each text; -inf elsewhere, and where it is not known yet.
    n_errors : int
        c; negative where no test rejects.
    table : LabelTable
        What is known, and who is asked.
    exits : ndarray of shape (n,), default=None
        m_k after the last draw made of each prompt. None: all draws are made.
    draw : callable, default=None
        ``draw(prompts)`` makes the next draw of each of some prompts and updates `tau` and
        `exits`, where draws are missing.

    Returns
    -------
    ndarray of shape (n,)
        V_i for each prompt with a witness, and -inf for the others, whose scores lie below the
        level: its (c + 1)-th smallest entry is that of the full table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import LabelTable, exit_level, judge_in_falling_order
    >>> tau = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
    >>> truth = np.array([[True, True], [False, True], [True, False]])
    >>> first = np.array([[0, 1], [0, 1], [0, 1]])
    >>> table = LabelTable(first, lambda prompts, draws: truth[prompts, draws])
    >>> scores = judge_in_falling_order(tau, 1, table)
    >>> exit_level(scores, 1), table.n_judgements
    (0.7, 3)
    """
    n = len(tau)
    scores = np.full(n, -np.inf)
    needed = n - n_errors
    if n_errors < 0:
        return scores
    bound = np.full(n, -np.inf) if exits is None else exits
    waiting = np.arange(n)
    while needed > 0:
        # the next text of each prompt, or what its next draws can reach
        ahead = np.where(table.labels[waiting] == 0, -np.inf, tau[waiting])
        texts = ahead.argmax(axis=1)
        known = ahead[np.arange(len(waiting)), texts]
        heads = np.where(known > -np.inf, known, bound[waiting])
        kept = np.flatnonzero(heads > -np.inf)
        if not len(kept):
            return scores
        batch = kept[np.argsort(-heads[kept], kind="stable")[:needed]]
        undrawn = known[batch] == -np.inf
        if draw is not None and undrawn.any():
            draw(waiting[batch[undrawn]])
        batch = batch[~undrawn]
        prompts, draws = waiting[batch], texts[batch]
        asked = table.labels[prompts, draws] < 0
        if asked.any():
            table.ask(prompts[asked], draws[asked])
        found = table.labels[prompts, draws] == 1
        scores[prompts[found]] = tau[prompts[found], draws[found]]
        needed -= int(found.sum())
        waiting = np.setdiff1d(waiting, prompts[found], assume_unique=True)
    return scores


def texts_for_exit(tau: np.ndarray, n_errors: int, table: LabelTable) -> np.ndarray:
    """Texts that :func:`judge_in_falling_order` may still ask for.

    Parameters
    ----------
    tau, n_errors, table
        As in :func:`judge_in_falling_order`.

    Returns
    -------
    ndarray of bool, shape (n, K)
        Those not below a witness of their prompt, nor below the (c + 1)-th smallest score that is
        known so far: the level is at least that.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import LabelTable, texts_for_exit
    >>> tau = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]])
    >>> known = np.array([[1, -1], [-1, -1], [-1, -1]], dtype=np.int8)
    >>> table = LabelTable(np.tile([0, 1], (3, 1)), lambda i, j: [], known)
    >>> texts_for_exit(tau, 1, table)
    array([[False, False],
           [ True,  True],
           [ True,  True]])
    """
    labels = table.labels
    if not 0 <= n_errors < len(tau):
        return np.zeros(tau.shape, dtype=bool)
    known = np.max(np.where(labels == 1, tau, -np.inf), axis=1)
    floor = np.maximum(known, np.sort(known)[n_errors])
    return (labels < 0) & (tau >= floor[:, np.newaxis]) & (tau > -np.inf)


def sets_at_stop(
    data: CalibrationData, configuration: Configuration, k_max: int, set_score: SetScore
) -> tuple[np.ndarray, np.ndarray]:
    """Every prompt's set under one configuration of Algorithm 1.

    Parameters
    ----------
    data : CalibrationData
        Scores of the draws; labels are not looked at.
    configuration : Configuration
        The thresholds.
    k_max : int
        The budget, at most ``data.k_max``.
    set_score : SetScore
        The set function F.

    Returns
    -------
    accepted : ndarray of bool, shape (n, K)
        The draws in the set at the stop.
    samples : ndarray of int, shape (n,)
        Draws taken; `k_max` where the draws that were made do not reach the stop.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, Configuration, get_set_score
    >>> from sklearn_clm.calibration import sets_at_stop
    >>> data = CalibrationData([[0.1, 0.7, 0.9]], np.zeros((1, 3, 3)), np.zeros((1, 3)))
    >>> sets_at_stop(data, Configuration(1.0, 0.5, 0.6), 3, get_set_score("max"))
    (array([[False,  True, False]]), array([2]))
    """
    quality, similarity = data.quality, data.similarity
    made = np.ones(quality.shape, dtype=bool)
    if data.n_draws is not None:
        made = np.arange(data.k_max) < data.n_draws[:, np.newaxis]
    accepted = (quality >= configuration.quality) & made
    for j in range(1, data.k_max):
        alike = similarity[:, j, :j].astype(np.float64) > configuration.similarity
        accepted[:, j] &= ~np.any(accepted[:, :j] & alike, axis=1)
    filled = np.logical_or.accumulate(accepted, axis=1)
    # F changes with an accepted draw alone, unless it counts draws
    changes = (filled & made if set_score.counts_draws else accepted).T
    places = np.flatnonzero(changes)
    reached = np.zeros(changes.shape, dtype=bool)
    scores = scores_of_prefixes(
        set_score, np.ascontiguousarray(quality.T), np.ascontiguousarray(accepted.T), places
    )
    reached.reshape(-1)[places] = scores >= configuration.set_score
    reached[k_max - 1] = True
    samples = reached.argmax(axis=0) + 1
    return accepted & (np.arange(data.k_max) < samples[:, np.newaxis]), samples


def learn_then_test_lazily(
    data: CalibrationData,
    frontier: Frontier,
    epsilon: float,
    delta: float,
    table: LabelTable,
    *,
    set_score: SetScoreLike = "max",
    size_weight: float = 0.5,
    draw_weight: float = 0.0,
    select: Literal["objective", "last"] = "objective",
    preference: np.ndarray | None = None,
    draw: Callable[[np.ndarray], None] | None = None,
) -> LearnThenTestResult:
    """Test a frontier, asking for the labels that its decisions need.

    The certified configurations are those of :func:`learn_then_test` with the same frontier and
    all labels. Among them the objective decides without the excess, which would need labels that
    no test asks for.

    Parameters
    ----------
    data : CalibrationData
        The calibration part; its labels are not looked at.
    frontier : Frontier
        From other prompts, see :func:`search_frontier`.
    epsilon, delta : float
        Tolerated risk, and tolerated probability of exceeding it, in (0, 1).
    table : LabelTable
        What is known of these prompts, and who is asked.
    set_score : str, callable or SetScore, default="max"
        The set function F.
    size_weight, draw_weight : float
        Prices of a member of the set and of a draw in the objective, >= 0.
    select : {"objective", "last"}, default="objective"
        As in :func:`learn_then_test`.
    preference : ndarray of shape (n, K), default=None
        Which draws are judged first, see :func:`judge_lazily`. None is their quality.
    draw : callable, default=None
        ``draw(prompts)`` makes the next draw of each of some prompts and updates `data`, where it
        lacks draws. The objective needs those of every certified configuration; with
        ``select="last"`` far fewer are made, and sizes are NaN for configurations that lack some.

    Returns
    -------
    LearnThenTestResult
        With `exact` and `n_judgements`. Its `n_errors` are the most errors where a configuration
        is certified, the fewest where it is not, and its p-values belong to them. The achievable
        epsilon is not known and NaN.

    Raises
    ------
    ValueError
        If there are too few prompts for any p-value to reach delta.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import (
    ...     CalibrationData, LabelTable, learn_then_test_lazily, search_frontier
    ... )
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 5))
    >>> truth = rng.random((600, 5)) < quality
    >>> data = CalibrationData(quality, rng.random((600, 5, 5)), truth)
    >>> frontier, part = search_frontier(data.rows(slice(200))), data.rows(slice(200, 600))
    >>> table = LabelTable(part.first, lambda prompts, draws: part.admissible[prompts, draws])
    >>> result = learn_then_test_lazily(part, frontier, 0.3, 0.05, table)
    >>> bool(result.p_values[0] <= 0.05), result.n_judgements < 2 * 400
    (True, True)
    """
    n, m, score = data.n_prompts, len(frontier), get_set_score(set_score)
    if n < (needed := prompts_needed(epsilon, delta)):
        raise ValueError(
            f"data must hold at least {needed} prompts for a p-value to reach delta={delta:g} at "
            f"epsilon={epsilon:g}, got {n} instead."
        )
    warn_caller(mistaken_delta(delta))
    before = table.n_judgements
    sets = StoppedSets(data, frontier, score, draw)
    allowed = int(critical_count(n, epsilon, delta))
    n_expected = int(np.sum(np.maximum.accumulate(frontier.loss) * n <= allowed))
    tests = judge_lazily(
        sets,
        allowed,
        table,
        data.quality if preference is None else preference,
        start=max(n_expected - 1, 1),  # the first, of all draws, is the dearest to decide
    )
    rejected, exact = np.zeros((2, m), dtype=bool)
    sizes, samples, p_values = np.full((3, m), np.nan)
    n_errors = np.full(m, n)
    for one, test in enumerate(tests):
        rejected[one] = test.rejected
        exact[one] = test.fewest_errors == test.most_errors
        n_errors[one] = test.most_errors if test.rejected else test.fewest_errors
    p_values[: len(tests)] = binomial_p_value(n_errors[: len(tests)], n, epsilon)
    n_certified = int(rejected.sum())
    for one in range(n_certified):
        if not sets.accepts_all(one) and (select == "objective" or one == n_certified - 1):
            sets.finish(one)
    for one in range(len(tests)):
        sizes[one], samples[one] = sets.costs(one)
    objective = size_weight * sizes + draw_weight * samples
    excess = np.full(m, np.nan)
    risks = ConfigurationRisks(n_errors, n_errors / n, sizes, samples, excess, n)
    return LearnThenTestResult(
        **choose_configuration(frontier, rejected, objective, select),
        frontier=frontier,
        n_errors=n_errors,
        p_values=p_values,
        n_optimization=0,
        n_calibration=n,
        epsilon=float(epsilon),
        delta=float(delta),
        smallest_epsilon=float(smallest_epsilon(n_errors[0], n, delta)),
        achievable_epsilon=AchievableEpsilon(np.nan, np.nan),
        risks=risks,
        provenance=data.provenance,
        exact=exact,
        n_judgements=table.n_judgements - before,
    )


def impute_labels(
    data: CalibrationData,
    first: np.ndarray,
    known: np.ndarray,
    new_classifier: Callable[[], Classifier],
    random_state: int = 0,
) -> np.ndarray:
    """Labels for the optimisation part, where few draws of each prompt were judged.

    A classifier on quality, frequency and similarity to judged draws gives each unjudged text a
    probability, and its label is drawn from it, so that shares of admissible texts are right on
    average. Near copies count as one text: their labels are equal in truth, and drawn one by one
    they would look as if each of them could save a set. From which similarity on texts are near
    copies is learnt from the pairs of judged texts.

    Only for the optimisation part: there labels shape the path of the tests, and the guarantee
    needs nothing of them.

    Parameters
    ----------
    data : CalibrationData
        Scores of the draws; its labels are not looked at.
    first : ndarray of int, shape (n, K)
        Draw in which each draw's text occurs first.
    known : ndarray of int8, shape (n, K)
        1, 0, or -1 where a draw was not judged. Draws of equal text have equal labels.
    new_classifier : callable
        Gives an unfitted classifier.
    random_state : int, default=0
        Seed of the labels that are drawn.

    Returns
    -------
    ndarray of bool, shape (n, K)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_clm.calibration import CalibrationData, impute_labels
    >>> data = CalibrationData([[0.9, 0.2]] * 4, np.zeros((4, 2, 2)), np.zeros((4, 2)))
    >>> known = np.array([[1, -1], [-1, 0], [1, -1], [-1, 0]], dtype=np.int8)
    >>> impute_labels(data, np.tile([0, 1], (4, 1)), known, lambda: LogisticRegression(C=1e6))
    array([[ True, False],
           [ True, False],
           [ True, False],
           [ True, False]])
    """
    n, k_max = data.quality.shape
    rows = np.arange(n)
    earlier, later = np.triu_indices(k_max, 1)
    copies = _similarity_of_copies(data.similarity, first, known)
    if copies is not None:
        first = texts_of_draws(data.similarity, first, np.nextafter(copies, -np.inf))
        known = _shared(known, first)
    alike = ScoreScale.of(data.similarity[:, later, earlier])
    paths = TextPaths(n, k_max, ScoreScale.of(data.quality), alike)
    for k in range(k_max):
        paths.update(rows, data.quality[:, k], data.similarity[:, k], first[:, k])
    present, features = paths.text_features(rows)
    lower = np.tril(np.asarray(data.similarity, dtype=np.float64), -1)
    scaled = alike(lower + np.swapaxes(lower, 1, 2))
    other = first[:, :, np.newaxis] != first[:, np.newaxis, :]
    nearest = [
        np.max(np.where(other & (known == label)[:, np.newaxis, :], scaled, 0.0), axis=2)
        for label in (0, 1)
    ]
    features = np.concatenate((features, np.stack(nearest, axis=2)), axis=2)
    judged = present & (known >= 0)
    classifier = fitted(new_classifier, features[judged], known[judged] > 0)
    chance = np.zeros((n, k_max))
    chance[present] = probability(classifier, features[present])
    return completed(known, first, chance, np.random.default_rng(random_state))


def _similarity_of_copies(
    similarity: np.ndarray, first: np.ndarray, known: np.ndarray
) -> float | None:
    """Similarity from which on the labels of two texts agree; None if there is no such.

    Pairs above it differ an eighth as often as all judged pairs of a prompt do, or less.
    """
    earlier, later = np.triu_indices(first.shape[1], 1)
    judged = (known >= 0) & (first == np.arange(first.shape[1]))  # equal texts are no pair
    pairs = judged[:, earlier] & judged[:, later]
    values = np.asarray(similarity[:, later, earlier][pairs], dtype=np.float64)
    differ = (known[:, earlier] != known[:, later])[pairs]
    if not differ.any():
        return None  # all labels are alike, whatever the similarity
    order = np.argsort(-values, kind="stable")
    values, differ = values[order], differ[order]
    n_pairs = np.arange(1, len(values) + 1)
    # one more, so that a few pairs show nothing
    share = (np.cumsum(differ) + 1.0) / (n_pairs + 1.0)
    is_last = np.append(values[1:] < values[:-1], True)  # of those that are as similar
    found = np.flatnonzero(is_last & (share <= _COPIES_DIFFER * differ.mean()))
    return float(values[found[-1]]) if len(found) else None


def _shared(known: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Labels with which unknown draws of a text share the label of its first known draw."""
    shared = known.copy()
    for draw in range(known.shape[1]):
        same = (first == first[:, [draw]]) & (known[:, [draw]] >= 0)
        shared = np.where(same & (shared < 0), known[:, [draw]], shared)
    return shared


def texts_of_draws(
    similarity: np.ndarray, first: np.ndarray, same_text: float | None
) -> np.ndarray:
    """Draw in which each draw's text occurs first, near duplicates counted as one: (n, K).

    `first` says the same for equal responses.
    """
    texts = np.empty_like(first)
    for j in range(first.shape[1]):
        texts[:, j] = text_of_draw(texts[:, :j], first[:, j], similarity[:, j], same_text)
    return texts


def text_of_draw(
    texts: np.ndarray, first: np.ndarray, similarity: np.ndarray, same_text: float | None
) -> np.ndarray:
    """Draw in which the text of the next draw occurs first, near duplicates counted as one.

    Of m prompts with j draws each, `texts`, of shape (m, j), says the same for these. `first` is
    the draw that holds an equal response first, j where there is none. A response repeats the
    earliest text to which its similarity is above `same_text`; clusters do not chain.
    """
    j = texts.shape[1]
    own = np.concatenate((texts, np.full((len(texts), 1), j)), axis=1)
    found = own[np.arange(len(texts)), first]
    if same_text is None:
        return found
    alike = (texts == np.arange(j)) & (similarity[:, :j].astype(np.float64) > same_text)
    # a column for none of them
    alike = np.concatenate((alike, np.ones((len(texts), 1), dtype=bool)), axis=1)
    return np.where(first == j, alike.argmax(axis=1), found)


def equal_texts(responses: Sequence[Sequence[object]]) -> np.ndarray:
    """For each draw the first draw of its prompt with an equal response.

    Parameters
    ----------
    responses : sequence of n sequences of length K
        The responses: texts or other hashable values; values that cannot be hashed are compared
        by their representation.

    Returns
    -------
    ndarray of int, shape (n, K)

    Examples
    --------
    >>> from sklearn_clm.calibration import equal_texts
    >>> equal_texts([["a", "b", "a"]])
    array([[0, 1, 0]])
    """
    first = np.zeros((len(responses), max(map(len, responses), default=0)), dtype=np.intp)
    for i, row in enumerate(responses):
        seen: dict[object, int] = {}
        for j, response in enumerate(row):
            first[i, j] = seen.setdefault(text_key(response), j)
    return first


def text_key(response: object) -> object:
    """What equal responses, and only those, have in common, as a key of a mapping."""
    try:
        hash(response)
    except TypeError:
        return repr(response)
    return type(response), response
