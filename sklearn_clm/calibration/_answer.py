"""Answer or escalate: one answer where it is likely to be right, none elsewhere.

After k draws a model gives each distinct text c the probability p_k(c) that c is admissible. The
rule at level u answers the text of largest p_k at the first k >= k_min at which that p_k is at
least u, and escalates a prompt that has no such k up to K. A prompt is also escalated, and drawn
from no more, once from draw 5 on the largest p_k is below a cut: it is hopeless, whatever the
level. A lower level answers whatever a higher one does, no later, though perhaps by another text.

*One level.* The model, k_min, cut and levels u_1 > ... > u_J come from the optimisation part. Given
these, calibration prompts are independent and identically distributed. At level u_j let a share r_j
of the answers be wrong. If m_j calibration prompts are answered, e_j of them wrongly, then, given
m_j, e_j is Bin(m_j, r_j). So p_j = P(Bin(m_j, alpha) <= e_j), and 1 where m_j = 0, is a p-value of
"r_j > alpha": P(p_j <= delta | m_j) <= delta for every m_j, hence also without the condition.

*Many levels.* r_j need not fall with the level: the most selective answers may be the worst. So
the largest level that passes, or the least selective one, would be chosen among J tests, and its
answers be wrong too often with a probability above delta. The tests are a fixed sequence instead.
They begin at a start s that the optimisation part chooses, go on to s + 1, s + 2, ..., each at
level delta, and end at the first that fails. If the last to pass has r_j > alpha, then so far the
first level of the sequence with r_j > alpha has passed. That level is fixed before the calibration
part is looked at, so that this has probability at most delta, whatever the start.

*The start decides the power alone.* A level that answers few cannot pass, nor can one that answers
wrongly. So s is the level of the greatest chance to pass: the mean of P(e <= c(m)), with c(m) the
critical count, over the number m of calibration prompts that are answered and over the share of
wrong answers, as uncertain as the optimisation part leaves it. The expected share is the mean of
two estimates: (e + 1/2) / (m + 1) there, and the mean of 1 - p, out-of-fold. Among classifiers, the
share of a text, and several k_min, the path is taken that is expected to answer most, or nearly so
with a smaller k_min; and the largest cut that keeps nine tenths of what the levels from the start
on answer, since the last to pass is not known.

*Without labels* each prompt's last draw stands for its reference, so that the share of a text is
its chance to be right. Where a model is sure of what is wrong the start is poor; the promise stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import betabinom, binom

from sklearn_clm.calibration._binomial import critical_count
from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._exit_model import (
    ConstantClassifier,
    ExitModel,
    folds_of,
    learnt,
    with_references,
)
from sklearn_clm.calibration._exit_policy import ExitRule
from sklearn_clm.calibration._table import DrawEntries, Table
from sklearn_clm.calibration._texts import TEXT_FEATURES, TextPaths
from sklearn_clm.calibration._tiers import Tiers

_FIRST_DRAWS = (1, 3, 5, 8)  # at which an answer may be given
_N_LEVELS = 40
_NEARLY = 0.95  # of the largest share, where fewer draws are needed
_KEPT = 0.9  # of what levels answer, by a cut
_CUT_FROM = 5  # draws
_QUANTILES = (np.arange(9) + 0.5) / 9  # of the number of prompts that are answered
_CUTS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # of the level of the start


class ShareOfDraws:
    """The share of a text among the draws, in place of a classifier."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "ShareOfDraws":
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        share = X[:, TEXT_FEATURES.index("share of the draws so far")]
        return np.stack((1.0 - share, share), axis=1)


@dataclass(frozen=True)
class AnswerPath:
    """What the optimisation part gives: a model of texts, and a path of descending levels.

    `shares` and `risks` are the expected shares of prompts answered and of wrong answers at each.
    """

    model: ExitModel  # its probabilities are those of being admissible
    k_min: int  # the first draw at which an answer may be given
    n_seen: int  # prompts that it was learnt from
    levels: np.ndarray
    shares: np.ndarray
    risks: np.ndarray
    cut: float = 0.0  # below it a prompt is hopeless
    seen: np.ndarray | None = field(default=None, repr=False)  # digests of the prompts

    @property
    def k_max(self) -> int:
        """Number of draws that it was learnt from."""
        return self.model.k_max

    def chances(self, n: int, alpha: float, delta: float) -> np.ndarray:
        """The chance of each level to pass with n calibration prompts."""
        shares, risks = self.shares[:, np.newaxis], self.risks[:, np.newaxis]
        m = np.maximum(binom.ppf(_QUANTILES, n, shares), 1.0).astype(np.int64)
        wrong, right = np.array([risks, 1.0 - risks]) * (self.n_seen * shares + 1.0)
        passing = betabinom.cdf(critical_count(m, alpha, delta), m, wrong, right)
        return np.asarray(passing.mean(axis=1))

    def start(self, n: int, alpha: float, delta: float) -> int:
        """The level that is tested first: that of the greatest chance to pass."""
        return int(np.argmax(self.chances(n, alpha, delta)))

    def expected_share(self, n: int, alpha: float, delta: float) -> float:
        """Share of prompts that a calibration with n prompts is expected to answer."""
        chances = self.chances(n, alpha, delta)
        start = int(np.argmax(chances))
        gains = np.diff(self.shares[start:], prepend=0.0)
        reached = np.minimum.accumulate(chances[start:])
        return float(gains @ reached)


def search_answers(
    data: CalibrationData,
    classifiers: Sequence[Callable[[], Any]],
    n: int,
    alpha: float,
    delta: float,
    tiers: Tiers | None = None,
) -> AnswerPath:
    """Learn a path on the optimisation part alone; n prompts will calibrate."""
    in_use, data = data.k_max, with_references(data)
    scores = data.quality, data.similarity
    paths, present, features = TextPaths.of_all_draws(*scores, data.first, tiers)
    right = np.broadcast_to(data.admissible[:, np.newaxis, :], present.shape)
    folds = folds_of(data.n_prompts)
    found: list[tuple[AnswerPath, float, tuple[np.ndarray, np.ndarray, np.ndarray]]] = []
    believed = None  # probabilities of texts, which shares are not
    for new_classifier in classifiers:
        classifier, score = learnt(new_classifier, folds, features, right, present, present)
        if not isinstance(classifier, ShareOfDraws):
            believed = score
        texts, chance = score.argmax(axis=2), score.max(axis=2)
        wrong = ~np.take_along_axis(data.admissible, texts, axis=1)
        doubts = 1.0 - np.take_along_axis(believed, texts[..., np.newaxis], axis=2)[..., 0]
        scales = paths.quality_scale, paths.similarity_scale
        never = (ConstantClassifier(0.0),)
        model = ExitModel(classifier, None, never, *scales, 1.0, in_use, tiers)
        for k_min in (k for k in _FIRST_DRAWS if k <= data.k_max):
            path = AnswerPath(model, k_min, data.n_prompts, *_levels(chance, wrong, doubts, k_min))
            found.append((path, path.expected_share(n, alpha, delta), (chance, wrong, doubts)))
    enough = _NEARLY * max(share for _, share, _ in found)
    near = [one for one in found if one[1] >= enough]
    path, _, (chance, wrong, doubts) = min(near, key=lambda one: (one[0].k_min, -one[1]))
    start = path.start(n, alpha, delta)
    for cut in path.levels[start] * np.array(_CUTS):
        hopeful = while_hopeful(chance, cut)
        answered = [answered_at(hopeful, u, path.k_min)[0].mean() for u in path.levels[start:]]
        if np.mean(answered / path.shares[start:]) >= _KEPT:
            break  # at the last cut, 0, no prompt is hopeless
    levels = _levels(hopeful, wrong, doubts, path.k_min)
    return AnswerPath(path.model, path.k_min, path.n_seen, *levels, cut=float(cut))


def while_hopeful(chance: np.ndarray, cut: float) -> np.ndarray:
    """The largest p_k, (n, K), as long as a prompt is not hopeless; -inf after that."""
    low = (chance < cut) & (np.arange(chance.shape[1]) >= _CUT_FROM - 1)
    before: np.ndarray = np.cumsum(low, axis=1) - low
    return np.where(before > 0, -np.inf, chance)


def _levels(
    chance: np.ndarray, wrong: np.ndarray, doubts: np.ndarray, k_min: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels, descending, with the shares of prompts answered and of wrong answers at each."""
    reached = np.sort(chance[:, k_min - 1 :].max(axis=1))[::-1]
    reached = reached[np.isfinite(reached)]
    places = np.ceil(len(reached) * np.arange(1, _N_LEVELS + 1) / _N_LEVELS).astype(np.intp) - 1
    levels = np.unique(reached[places])[::-1]
    shares, risks = np.zeros((2, len(levels)))
    for j, level in enumerate(levels):
        answered, draws = answered_at(chance, level, k_min)
        rows, at = np.flatnonzero(answered), draws[answered] - 1
        counted = (wrong[rows, at].sum() + 0.5) / (len(rows) + 1.0)
        shares[j], risks[j] = answered.mean(), (counted + doubts[rows, at].mean()) / 2.0
    return levels, shares, risks


def answered_at(chance: np.ndarray, level: float, k_min: int) -> tuple[np.ndarray, np.ndarray]:
    """Which prompts are answered, and after how many draws, of all prompts.

    `chance`, (n, K), is the largest p_k, -inf where no draw was made.
    """
    sure = chance[:, k_min - 1 :] >= level
    answered: np.ndarray = np.any(sure, axis=1)
    made = np.sum(chance > -np.inf, axis=1)
    return answered, np.where(answered, sure.argmax(axis=1) + k_min, made)


class Answers:
    """What prompts of a table are answered, drawn from until the highest level answers them."""

    def __init__(self, table: Table, rows: np.ndarray, path: AnswerPath, highest: float) -> None:
        self.table, self.rows, self.k_min = table, rows, path.k_min
        self.chance = np.full((len(rows), table.k_max), -np.inf)
        self.texts = np.zeros(self.chance.shape, dtype=np.intp)
        paths, waiting = path.model.paths(len(rows)), np.arange(len(rows))
        for k in range(table.k_max):
            chance, _ = path.model.after_next_draw(table, rows[waiting], paths, waiting)
            self.chance[waiting, k] = chance.max(axis=1)
            self.texts[waiting, k] = chance.argmax(axis=1)
            chance = self.chance[waiting, k]
            hopeless = (k + 1 >= _CUT_FROM) & (chance < path.cut)
            waiting = waiting[((k + 1 < self.k_min) | (chance < highest)) & ~hopeless]

    def at(self, level: float) -> tuple[DrawEntries, np.ndarray]:
        """The answer to each prompt that has one at a level, and the draws made for each prompt."""
        answered, draws = answered_at(self.chance, level, self.k_min)
        positions = np.flatnonzero(answered)
        texts = self.texts[positions, draws[positions] - 1]
        owner = np.arange(len(positions))
        return DrawEntries(self.table, self.rows[positions], texts, owner, len(owner)), draws


class AnswerRule(ExitRule):
    """The rule for one prompt at one level; `exit` is the probability of the answer."""

    def __init__(self, level: float, k_min: int, k_max: int, cut: float = 0.0) -> None:
        super().__init__(level, 1.0, k_max)
        self.k_min, self.cut, self.exit = k_min, cut, -np.inf

    def update(self, text: "np.ndarray | list[float]", arrival: float) -> bool:
        self.n_samples += 1
        best = int(np.argmax(text))
        if self.n_samples >= self.k_min and text[best] >= self.level:
            self.members, self.exit, self.stopped = [best], float(text[best]), True
        elif self.n_samples >= _CUT_FROM and text[best] < self.cut:
            self.stopped = True
        return self.done
