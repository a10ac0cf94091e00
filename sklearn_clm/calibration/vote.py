"""A vote: answers by scores that nobody learnt.

After all K draws the most frequent text is the answer, with as many votes as draws that gave it;
or, by quality, the text of the best draw. Of equals it is the one that came first. The rule at
level u answers where the score reaches u. Whether votes are shares of equal texts, or of texts
alike, whether quality is anybody's score: no label has shaped it, so all prompts calibrate.

*One level* is tested as in ``answer.py``: given that m prompts are answered, errors are
Bin(m, r_u).

*Many levels* are a fixed sequence from a start downwards: all numbers of votes, or, of a continuous
score, the levels that the first m_0, m_1, ... prompts reach. The start is the highest level that
m_0 prompts reach, with m_0 a function of alpha and delta alone. Labels have no part in it, but the
draws of the very prompts that are tested do, and they say how many prompts have how many votes. So
its effect must be shown. Let m_u prompts reach u. Given all of them, errors at u are not
Bin(m_u, r_u): they are as many as the mix of votes makes likely.

*Where risk rises as votes fall the start is harmless.* Let v be the highest level of r_v > alpha;
then r_u > alpha for all u < v, and r_u <= alpha above v. A claim is false only if v, or the start
where that is below v, has passed.

1. The start is at v or above if and only if m_v >= m_0. Given m_v this is no further condition, so
   that v passes with probability at most delta.
2. Otherwise m_v < m_0, and the start is some w < v. Let w' be the level above it. Given m_w, the
   start is w if and only if m_w >= m_0 and m_w' < m_0. Given m_w' and m_w, errors at w are a sum of
   Bin(m_w', r_w') and Bin(m_w - m_w', rho), with rho >= r_w >= r_w': fewer prompts at w' make
   stochastically more errors. So w passes with a probability of at most that without the
   condition m_w' < m_0, which is delta.

These cases exclude each other, so that their probabilities add up to delta at most. Of a continuous
score, levels are order statistics: given that of rank m, the prompts above it are independent draws
from those above; given the number N of prompts above v, the first rank beyond N is known, the N of
them err at a rate of alpha, the others more.

*Where it does not rise*, say where the most unanimous answers are the worst, two false levels may
have different risks r_v > r_w > alpha. Then w may pass more often where few prompts reach v, and v
passes less often where many do. This is not proved but summed: ``tests/calibration/test_vote.py``
adds the exact probabilities over such worlds, and finds no sum above delta. The sums are largest
where both risks are equal.

*Beside what is learnt* from a part of the prompts, what was learnt is tested with a share w of
delta and a vote with 1 - w, where w is the same whatever is seen. All prompts test the vote: its
levels and prompts are the same whatever was learnt. So its claim is false with probability
(1 - w) delta at most. Given the part that taught, the others test what was learnt: its claim is
false with probability w delta at most, given that part, hence also without the condition. These add
up to delta: both claims hold at once with probability 1 - delta, and the one that answers more is
used, chosen by whatever was seen.

*What is learnt has the larger share* (``tests/benchmarks/README.md``). Where the vote answers more,
what is learnt mostly answers nearly as much, since it knows the votes; where what is learnt answers
more, the vote may answer next to nothing. A choice of w by labels of the prompts that taught must
heed that these test the vote, too: given their labels, what can be handed over is the chance that
the vote still has to pass, and that is small just where they speak against it.

*A vote that was chosen by draws* of some prompts, because enough of these have a text that repeats,
needs no correction above the level of single votes: how many have at least two votes tells nothing
of errors among those of more, given their number. Single votes are no vote then.

*Draws that lack* are the subject of ``_holes.py``.

*Draws* end as soon as no further one can change the answer, nor whether the level is reached.
"""

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from sklearn_clm.calibration._binomial import critical_count
from sklearn_clm.calibration._texts import AsItIs, TextPaths, texts_of_draws
from sklearn_clm.calibration.between import first_of_largest, middles_below
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.exit_model import TextModel
from sklearn_clm.calibration.exit_policy import ExitRule
from sklearn_clm.calibration.path import TablePath
from sklearn_clm.calibration.table import DrawEntries, Table
from sklearn_clm.calibration.tiers import Tiers

_TOLERATED = 1  # errors that the first level may have
_N_LEVELS = 100  # of a continuous score
#: The score of a text that no other draw repeats.
SINGLE_VOTE = 1.0

PlainScore = Literal["vote", "quality"]


@dataclass(frozen=True)
class PlainModel(TextModel):
    """Scores of texts that need no learning."""

    score: PlainScore
    k_max: int
    same_text: float | None = None  # similarity above which a response repeats an earlier text
    tiers: Tiers | None = None

    def paths(self, n_prompts: int) -> TextPaths:
        return TextPaths(n_prompts, self.k_max, AsItIs(), AsItIs(), self.tiers, self.same_text)

    def probabilities(self, paths: TextPaths, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        votes = paths.counts[rows].sum(axis=2)
        scores = votes if self.score == "vote" else paths.quality[rows]
        return np.where(votes > 0, scores, -np.inf), np.zeros(len(rows))


@dataclass(frozen=True)
class PlainAnswers:
    """Answers by a score that needs no learning."""

    model: PlainModel
    seen: np.ndarray | None = field(default=None, repr=False)  # digests of prompts that chose it
    share_of_delta: float = 1.0  # for its tests
    least: float = 0.0  # score of the last level at least

    tells_losses: ClassVar[bool] = False  # no prompt has told what a vote errs

    @property
    def k_max(self) -> int:
        """Number of draws that vote."""
        return self.model.k_max


@functools.lru_cache
def fewest_answers(alpha: float, delta: float) -> int:
    """Number of prompts, m_0, that the first level must answer."""
    # a first level that tolerates no error would fail by one unlucky prompt
    m = 1
    while critical_count(m, alpha, delta) < _TOLERATED:
        m += 1
    return m


def votes_of(data: CalibrationData, model: PlainModel) -> np.ndarray:
    """Known votes for the most frequent text of each prompt."""
    texts = texts_of_draws(data.similarity, data.first, model.same_text)
    # (n, text, voter): a draw votes for its text, and one that was not made for none
    is_same_text = texts[:, :, np.newaxis] == texts[:, np.newaxis, :]
    is_vote = is_same_text & data.made[:, np.newaxis]
    votes = is_vote.sum(axis=2)
    return np.asarray(votes.max(axis=1))


class PlainSteps(TablePath):
    """Levels of a score on some prompts.

    Where draws end early, prompts may stay open, and so does the start: levels begin at the highest
    that it can be, and only those from `first_certifiable` on may be certified (``_holes.py``).
    """

    what: ClassVar[str] = "level of answers"
    parts: ClassVar[tuple[str, str]] = ("tells whether texts repeat", "finds its level")

    def __init__(self, table: Table, rows: np.ndarray, answers: PlainAnswers, fewest: int) -> None:
        self.table = table
        self.rows = rows
        self.answers = answers
        self.fewest = fewest
        model = answers.model
        shape = (len(rows), answers.k_max)
        self.texts = np.zeros(shape, dtype=np.intp)
        self.sure = np.full(shape, -np.inf)  # score of an answer that no later draw changes
        self.reach = np.full(shape, np.inf)  # largest score that later draws can bring
        paths = model.paths(len(rows))
        in_reach = table.in_reach(rows)
        for k in range(model.k_max):
            drawn = np.flatnonzero(in_reach > k)
            scores, _ = model.after_next_draw(table, rows[drawn], paths, drawn)
            # what the last known draw decides stays
            best, sure, reach = decided(scores, k + 1, model)
            self.texts[drawn, k:] = best[:, np.newaxis]
            self.sure[drawn, k:] = sure[:, np.newaxis]
            self.reach[drawn, k:] = reach[:, np.newaxis]
        levels = levels_of(self.reach[:, -1], model.score, fewest, model.k_max)
        self.levels = levels[: max(int(np.sum(levels >= answers.least)), 1)]
        self.first_certifiable = 0
        if table.has_holes:
            lowest_start = start_of(self.sure[:, -1], fewest)
            self.first_certifiable = int(np.sum(self.levels > lowest_start))

    def __len__(self) -> int:
        return len(self.levels)

    def members(self, step: int) -> DrawEntries:
        """The answers at a level."""
        owner = np.flatnonzero(self.sizes(step))
        return DrawEntries(
            self.table, self.rows[owner], self.texts[owner, -1], owner, len(self.rows)
        )

    def sizes(self, step: int) -> np.ndarray:
        """Which prompts are answered, as numbers."""
        is_answered = self.sure[:, -1] >= self.levels[step]
        return np.asarray(is_answered).astype(np.intp)

    def draws(self, step: int) -> np.ndarray:
        """Number of draws taken for each prompt."""
        level = self.levels[step]
        answers = self.sure >= level
        gives_up = self.reach < level
        ended = answers | gives_up
        ended[:, -1] = True  # at the budget in any case
        return np.asarray(1 + ended.argmax(axis=1))

    def unfinished(self, step: int) -> np.ndarray:
        """Which prompts lack draws that decide at a level."""
        level = self.levels[step]
        is_answered = self.sure[:, -1] >= level
        may_be_answered = self.reach[:, -1] >= level
        return np.asarray(~is_answered & may_be_answered)

    def only(self, step: int) -> "PlainSteps":
        """The path of this level alone."""
        alone = copy.copy(self)  # with the same draws
        alone.levels = self.levels[step : step + 1]
        alone.first_certifiable = max(self.first_certifiable - step, 0)
        return alone

    def on(self, rows: np.ndarray) -> "PlainSteps":
        """The same levels on other prompts."""
        steps = PlainSteps(self.table, rows, self.answers, self.fewest)
        # the path's, not those that these prompts would reach
        steps.levels = self.levels
        steps.first_certifiable = self.first_certifiable
        return steps


def scores_of_votes(k_max: int) -> np.ndarray:
    """All scores that votes can have, from the largest."""
    of_best, of_next = np.indices((k_max + 1, k_max + 1))
    possible = (of_best > 0) & (of_next <= of_best) & (of_best + of_next <= k_max)
    return np.unique(_score(of_best[possible], of_next[possible], k_max))[::-1]


def _score(of_best: np.ndarray, of_next: np.ndarray, k_max: int) -> np.ndarray:
    """Votes; of equals, fewer for the next are better."""
    return np.asarray(of_best - of_next / _steps(k_max))


def _steps(k_max: int) -> float:
    """Steps of a vote, a power of two."""
    return float(2.0 ** np.ceil(np.log2(k_max + 1)))


def votes_in_words(level: float, k_max: int) -> str:
    """Fewest votes at a level, most for another text."""
    # the score is the votes, less a small step for each vote of the next text
    votes = int(np.ceil(level))
    of_next = int((votes - level) * _steps(k_max))
    # so many as the other text cannot get anyway are no condition
    most_of_next = min(votes, k_max - votes)
    against = ""
    if of_next < most_of_next:
        against = f", at most {of_next} for another text"
    return f"{votes} of {k_max} votes{against}"


def start_of(scores: np.ndarray, fewest: int) -> float:
    """The highest score that `fewest` prompts reach, or all."""
    descending = np.sort(scores)[::-1]
    rank = min(fewest, len(scores))
    return float(descending[rank - 1])


def levels_of(scores: np.ndarray, score: PlainScore, fewest: int, k_max: int) -> np.ndarray:
    """Descending levels from that which `fewest` prompts reach."""
    if score == "vote":
        # votes are few numbers: all of them are levels, each half a step below its score
        votes = scores_of_votes(k_max)
        return votes[votes <= start_of(scores, fewest)] - 0.5 / _steps(k_max)
    # a continuous score has as many levels as prompts: evenly spaced ranks are enough
    n = len(scores)
    ranks = np.linspace(min(fewest, n), n, _N_LEVELS).astype(np.intp)
    reached = np.sort(scores)[::-1][ranks - 1]
    # an infinite score has no gap below it; files hold finite levels
    finite = np.isfinite(reached)
    levels = np.sign(reached) * np.finfo(float).max
    levels[finite] = middles_below(scores, reached[finite])
    return np.unique(levels)[::-1]


def decided(
    scores: np.ndarray, draws: int, model: PlainModel
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best text of each prompt, with bounds of its score.

    `scores`, of shape (m, K), are those of texts after some draws, -inf where there is none. The
    first bound is the least score that this text can end with as the answer, -inf as long as
    later draws may bring another answer; the second is the most that any answer can reach.
    """
    top = scores.max(axis=1)
    n_to_come = model.k_max - draws
    if model.score != "vote":
        best = first_of_largest(scores)
        if not n_to_come:
            return best, top, top
        # the next draw may always be better: nothing is sure, and anything within reach
        nothing_sure = np.full(len(best), -np.inf)
        no_limit = np.full(len(best), np.inf)
        return best, nothing_sure, no_limit

    best = scores.argmax(axis=1)
    # of equals the first wins, so that texts to come would lose against it
    texts = np.arange(model.k_max)
    later = texts > best[:, np.newaxis]
    # the most votes that each text can still get, those that have not come yet included
    may_come = (scores == -np.inf) & (texts >= draws)
    most_votes = np.where(may_come, 0.0, scores) + n_to_come
    votes_of_best = top[:, np.newaxis]
    wins_tie = (most_votes == votes_of_best) & ~later
    overtakes = (most_votes > votes_of_best) | wins_tie
    overtakes[np.arange(len(best)), best] = False  # the best is no rival of itself
    is_best = texts == best[:, np.newaxis]
    votes_of_others = np.where(is_best, 0.0, scores)
    of_next = np.maximum(votes_of_others.max(axis=1), 0.0)
    # all draws to come may go to the next text: the score is at least this
    least = _score(top, of_next + n_to_come, model.k_max)
    sure = np.where(overtakes.any(axis=1), -np.inf, least)
    # or all of them to the best: no answer reaches more
    most = _score(top + n_to_come, of_next, model.k_max)
    return best, sure, most


class PlainRule(ExitRule):
    """The rule for one prompt at one level.

    `exit` is the score of the answer.
    """

    def __init__(self, level: float, model: PlainModel) -> None:
        super().__init__(level, 1.0, model.k_max)
        self.model = model
        self.exit = -np.inf

    def update(self, text: "np.ndarray | Sequence[float]", arrival: float) -> bool:
        self.n_samples += 1
        scores = np.asarray(text)[np.newaxis]
        (best,), (sure,), (reach,) = decided(scores, self.n_samples, self.model)
        if sure >= self.level:
            self.accepted = [int(best)]
            self.exit = float(sure)
            self.stopped = True
        elif reach < self.level:
            self.stopped = True
        return self.done
