"""Answer where it is likely to be right, or escalate.

After k draws a model gives each distinct text c the probability p_k(c) that c is admissible. The
text of largest p_k has the sureness

    s_k = 1 - (1 - p_k) w_K / w_k,

where w_k is the number k of these draws, or in a cascade, if that answers more, their price. So
less doubt is tolerated after fewer of the K draws: of 20 draws, a level of 0.8 wants p_k to be 0.8
after all, 0.9 after ten, and 0.98 after two. Whoever answers at the first k of a p_k of at least u
has answers that are hardly surer than u. The rule at level u answers that text at the first k with
s_k >= u, and escalates a prompt that has no such k up to K. A prompt is also escalated, and drawn
from no more, once from draw 5 on the largest p_k is below a cut times (k / K)^(1/2): it is
hopeless, whatever the level. A lower level answers whatever a higher one does, no later, though
perhaps by another text.

*One level.* The model, w, cut and levels u_1 > ... > u_J come from the optimisation part.
Given these, calibration prompts are independent and identically distributed. At level u_j let a
share r_j of the answers be wrong. If m_j calibration prompts are answered, e_j of them wrongly,
then, given m_j, e_j is Bin(m_j, r_j). So p_j = P(Bin(m_j, alpha) <= e_j), and 1 where m_j = 0, is a
p-value of "r_j > alpha": P(p_j <= delta | m_j) <= delta for every m_j, hence also without the
condition.

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
wrong answers, as uncertain as the optimisation part leaves it. A hundred prompts, of which few are
answered wrongly, tell little of that share: it counts a quarter as (e + 1/2) / (m + 1), and three
quarters as the mean of 1 - p there, out-of-fold. Of several cuts, and of both w, those are taken
that answer nearly as many as the best, over the levels that are expected to be the last to pass, by
the cheapest draws.

*Without labels* each prompt's last draw stands for its reference, so that the share of a text is
its chance to be right. Where a model is sure of what is wrong the start is poor; the promise stays.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import betabinom, binom

from sklearn_clm.calibration._binomial import critical_count
from sklearn_clm.calibration._texts import TextPaths
from sklearn_clm.calibration.between import first_of_largest, middles_below
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.exit_model import (
    ConstantClassifier,
    ExitModel,
    Learner,
    folds_of,
    learnt,
    with_references,
)
from sklearn_clm.calibration.exit_policy import ExitRule
from sklearn_clm.calibration.path import TablePath
from sklearn_clm.calibration.table import DrawEntries, Table
from sklearn_clm.calibration.tiers import Tiers

_CUT_FROM = 5  # draws
_N_LEVELS = 100
_FEWEST = 8  # prompts that the first level answers: fewer tell nothing of its risk
_NEARLY = 0.96  # of the largest share, where draws cost less
_COUNTED = 1 / 4  # of the share of wrong answers; the rest is as the model has it
_QUANTILES = (np.arange(9) + 0.5) / 9  # of the number of prompts that are answered
_CUTS = np.arange(10, -1, -1) / 8  # of the level of the start
_NOTHING = 1e-9  # of the draws: as good as no answer before all are made

Values: TypeAlias = float | np.ndarray
"""A number of one prompt, or an array of those of many."""


@dataclass(frozen=True)
class LearntAnswers:
    """A model of texts, and descending levels to test.

    Both come from the optimisation part.
    `shares` and `risks` are the expected shares of prompts answered and of wrong answers at each.
    """

    model: ExitModel  # its probabilities are those of being admissible
    patience: tuple[float, ...]  # how many times doubt counts after each number of draws
    n_seen: int  # prompts that it was learnt from
    levels: np.ndarray
    shares: np.ndarray
    risks: np.ndarray
    cut: float = 0.0  # below it a prompt is hopeless after the last draw
    seen: np.ndarray | None = field(default=None, repr=False)  # digests of the prompts
    share_of_delta: float = 1.0  # for its tests

    tells_losses: ClassVar[bool] = True  # by `risks`

    @property
    def k_max(self) -> int:
        """Number of draws that it was learnt from."""
        return self.model.k_max

    def chances(self, n: int, alpha: float, delta: float) -> np.ndarray:
        """Chance of each level to pass with n prompts."""
        return chances_to_pass(self.shares, self.risks, self.n_seen, n, alpha, delta)

    def after(self, start: int, stop: int | None = None) -> "LearntAnswers":
        """The same with the levels from a start on."""
        some = slice(start, stop)
        return replace(
            self, levels=self.levels[some], shares=self.shares[some], risks=self.risks[some]
        )

    def start(self, n: int, alpha: float, delta: float) -> int:
        """The level of the greatest chance, tested first."""
        return int(np.argmax(self.chances(n, alpha, delta)))


def chances_to_pass(
    shares: np.ndarray, risks: np.ndarray, n_seen: int, n: int, alpha: float, delta: float
) -> np.ndarray:
    """Chance of each level to pass its test.

    Of `n_seen` other rows the share that counts at each level was `shares`, and of these were
    errors `risks`; n rows are tested.
    """
    share = shares[:, np.newaxis]
    risk = risks[:, np.newaxis]
    # how many will be answered is not known, nor is the risk: both are averaged over
    m = np.maximum(binom.ppf(_QUANTILES, n, share), 1.0).astype(np.int64)
    n_answers_seen = n_seen * share + 1.0
    n_wrong_seen = risk * n_answers_seen
    n_right_seen = (1.0 - risk) * n_answers_seen
    n_allowed = critical_count(m, alpha, delta)
    chance = betabinom.cdf(n_allowed, m, n_wrong_seen, n_right_seen)
    return np.asarray(chance.mean(axis=1))


class _Answers(NamedTuple):
    """The answer of n prompts after each draw, (n, draws)."""

    chance: np.ndarray  # p_k of its text, cross-fitted
    wrong: np.ndarray  # whether it is wrong
    costs: np.ndarray  # (K,): of the first so many draws


class _Candidate(NamedTuple):
    """What may be learnt, and what it promises to give."""

    learnt: LearntAnswers
    answered: float  # share of prompts, at the level that passes last; 0 where none passes
    price: float  # of a prompt's draws, where a level passes


def search_answers(
    data: CalibrationData,
    new_classifier: Callable[[], Learner],
    n: int,
    alpha: float,
    delta: float,
    tiers: Tiers | None = None,
    *,
    draw_price: float | None = 0.0,
    share_of_delta: float = 1.0,
) -> LearntAnswers:
    """Learn answers for a calibration with n other prompts.

    A draw costs as many answers as `draw_price` says; None: answers are nearly as many as can be,
    by the cheapest draws. Its tests have `share_of_delta` of delta.
    """
    model, answers = _learnt_model(data, new_classifier, tiers)
    is_labeled = bool(np.any(data.labels >= 0))
    candidates = []
    for spent in _ways_to_count(data.k_max, tiers, draw_price):
        # levels, their chances to pass, and the start are those without a cut
        patience = tuple((spent[-1] / spent).tolist())
        sure = sureness(answers.chance, patience)
        levels = _levels(sure)
        shares, risks, _ = _measured(levels, sure, answers)
        learnt_answers = LearntAnswers(
            model,
            patience,
            data.n_prompts,
            levels,
            shares,
            risks,
            share_of_delta=share_of_delta,
        )
        chances = learnt_answers.chances(n, alpha, share_of_delta * delta)
        candidates += _with_cuts(
            learnt_answers, answers, chances, draw_price, is_labeled=is_labeled
        )
    return _best(candidates, draw_price).learnt


def _learnt_model(
    data: CalibrationData, new_classifier: Callable[[], Learner], tiers: Tiers | None
) -> tuple[ExitModel, _Answers]:
    """The model of texts, and its cross-fitted answers."""
    k_max = data.k_max
    data = with_references(data)  # which may take the place of the last draw
    paths, present, features = TextPaths.of_all_draws(
        data.quality, data.similarity, data.first, tiers
    )
    right = np.broadcast_to(data.admissible[:, np.newaxis, :], present.shape)
    folds = folds_of(data.n_prompts)
    # p_k(c) out-of-fold, for each prompt after each draw, of each text
    classifier, chance_of_text = learnt(new_classifier, folds, features, right, present, present)
    # whether to go on is decided by the best text so far, not by what may still arrive
    model = ExitModel(
        text_classifier=classifier,
        added_classifier=None,
        arrival_classifiers=(ConstantClassifier(0.0),),
        quality_scale=paths.quality_scale,
        similarity_scale=paths.similarity_scale,
        rho=1.0,
        k_max=k_max,
        tiers=tiers,
    )
    texts = chance_of_text.argmax(axis=2)
    wrong = ~np.take_along_axis(data.admissible, texts, axis=1)
    draws = np.arange(1, k_max + 1)
    costs = draws if tiers is None else tiers.price_of(draws)
    return model, _Answers(chance_of_text.max(axis=2), wrong, costs)


def _with_cuts(
    learnt_answers: LearntAnswers,
    answers: _Answers,
    chances: np.ndarray,
    draw_price: float | None,
    *,
    is_labeled: bool,
) -> list[_Candidate]:
    """What was learnt, with each cut.

    `chances` are those of its levels to pass.
    """
    start = int(np.argmax(chances))
    chance_last = _likely_last(chances[start:])
    # without labels the risks are a guess: any level may be the last
    if not is_labeled:
        chance_last = np.full(len(chance_last), chances[start] / len(chance_last))
    # prices are those where something passes: where nothing does, all draws are made
    chance_any = max(chances[start], np.finfo(float).tiny)

    candidates = []
    # a cut saves draws, and answers nobody more
    cuts = [0.0] if draw_price == 0.0 else learnt_answers.levels[start] * _CUTS
    for cut in cuts:
        sure = sureness(answers.chance, learnt_answers.patience, cut)
        shares, risks, prices = _measured(learnt_answers.levels, sure, answers)
        with_cut = replace(learnt_answers, shares=shares, risks=risks, cut=float(cut))
        answered = chance_last @ shares[start:]
        price = chance_last @ prices[start:] / chance_any
        candidates.append(_Candidate(with_cut, answered, price))
    return candidates


def _best(candidates: list[_Candidate], draw_price: float | None) -> _Candidate:
    """The candidate that answers most, less the price of draws."""
    if draw_price is not None:
        worth = [candidate.answered - draw_price * candidate.price for candidate in candidates]
        return candidates[int(np.argmax(worth))]
    enough = _NEARLY * max(candidate.answered for candidate in candidates)
    nearly_best = [candidate for candidate in candidates if candidate.answered >= enough]
    return min(nearly_best, key=attrgetter("price"))


def _ways_to_count(k_max: int, tiers: Tiers | None, draw_price: float | None) -> list[np.ndarray]:
    """Ways to count what was spent, w_1 to w_K."""
    draws = np.arange(1, k_max + 1)
    # doubt that counts so often lets nothing be answered before the last draw
    after_all = np.where(draws < k_max, _NOTHING, 1.0)
    if draw_price == 0.0:
        return [after_all]
    spent = [draws] if tiers is None else [draws, tiers.price_of(draws)]
    return spent if draw_price is None else [after_all, *spent]


def _likely_last(chances: np.ndarray) -> np.ndarray:
    """How likely each level passes last."""
    # a fixed sequence: a level passes only if all before it do
    passed = np.minimum.accumulate(chances)
    return np.asarray(passed - np.append(passed[1:], 0.0))


def sureness(chance: np.ndarray, patience: Sequence[float], cut: float = 0.0) -> np.ndarray:
    """s_k of each prompt, (n, draws); -inf once hopeless."""
    draws = np.arange(1, chance.shape[1] + 1)
    low = hopeless_after(chance, draws, len(patience), cut)
    # the draw at which a prompt is given up still counts: it may answer there
    sure = sure_after(chance, np.array(patience)[draws - 1])
    return np.where(np.cumsum(low, axis=1) > low, -np.inf, sure)


def sure_after(chance: Values, doubted: Values) -> Values:
    """s_k, where doubt counts so many times."""
    return 1.0 - (1.0 - chance) * doubted


def hopeless_after(chance: Values, draws: Values, k_max: int, cut: float) -> np.ndarray | bool:
    """Whether prompts of this largest p_k are hopeless."""
    return (draws >= _CUT_FROM) & (chance < cut * (draws / k_max) ** 0.5)


def _levels(sure: np.ndarray) -> np.ndarray:
    """Descending levels, each with about as many answers more.

    They stand in gaps between what was reached: any levels of the optimisation part will do.
    """
    surest = np.sort(sure.max(axis=1))[::-1]  # of each prompt
    n = len(surest)
    counts = np.linspace(min(_FEWEST, n), n, _N_LEVELS)
    chosen = surest[counts.astype(np.intp) - 1]
    # doubt that counts many times leaves a wide gap below what the last draws reach
    in_gap_of_draws = middles_below(sure, chosen)
    in_gap_of_prompts = middles_below(surest, chosen)
    return np.unique(np.maximum(in_gap_of_draws, in_gap_of_prompts))[::-1]


def _measured(
    levels: np.ndarray, sure: np.ndarray, answers: _Answers
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share answered, expected share of wrong answers, price.

    Each is by level. `sure`, (n, draws), says how sure the answer is after each draw.
    """
    # how many draws of each prompt lie below each level, (n, levels): the next one answers
    k_max = sure.shape[1]
    surest_so_far = np.maximum.accumulate(sure, axis=1)
    n_below = np.sum(surest_so_far[..., np.newaxis] < levels, axis=1)
    answered = n_below < k_max
    m = answered.sum(axis=0)

    # errors among the answers, and what the model expects of them
    answering_draw = np.minimum(n_below, k_max - 1)
    is_wrong = np.take_along_axis(answers.wrong, answering_draw, axis=1)
    doubt = np.take_along_axis(1.0 - answers.chance, answering_draw, axis=1)
    n_wrong = np.sum(is_wrong * answered, axis=0)
    total_doubt = np.sum(doubt * answered, axis=0)

    # an escalated prompt is drawn from until it is hopeless: it is -inf from there on
    draws_of_escalated = np.isfinite(sure).sum(axis=1, keepdims=True)
    draws = np.where(answered, n_below + 1, draws_of_escalated)
    price = answers.costs[draws - 1].mean(axis=0)
    return m / len(sure), _risks(m, n_wrong, total_doubt), price


def _risks(m: np.ndarray, n_wrong: np.ndarray, total_doubt: np.ndarray) -> np.ndarray:
    """Expected shares of wrong answers."""
    # few errors are counted at selective levels: what the model believes steadies their share
    counted = (n_wrong + 0.5) / (m + 1.0)
    believed = total_doubt / np.maximum(m, 1)
    return np.asarray(_COUNTED * counted + (1.0 - _COUNTED) * believed)


def answered_at(sure: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Which prompts reach a level, and after how many draws."""
    reaches = sure >= level
    answered: np.ndarray = np.any(reaches, axis=1)
    return answered, np.where(answered, reaches.argmax(axis=1) + 1, 0)


class AnswerSteps(TablePath):
    """Levels of answers, from the most selective, on some prompts.

    Draws are made until the first level, the highest, answers. Where they end early, prompts may
    stay open (``_holes.py``).
    """

    # any level may be certified: all of them come from other prompts
    first_certifiable: int = 0

    what: ClassVar[str] = "level of answers"
    parts: ClassVar[tuple[str, str]] = ("learns the policy", "finds its level")

    def __init__(self, table: Table, rows: np.ndarray, answers: LearntAnswers) -> None:
        self.table = table
        self.rows = rows
        self.answers = answers
        self.sure = np.full((len(rows), table.k_max), -np.inf)
        self.texts = np.zeros(self.sure.shape, dtype=np.intp)
        self.n_made = np.zeros(len(rows), dtype=np.intp)  # draws
        self.ends_early = np.zeros(len(rows), dtype=bool)  # before the highest level decides
        paths = answers.model.paths(len(rows))
        in_reach = table.in_reach(rows)
        waiting = np.arange(len(rows))
        for k in range(table.k_max):
            ends = in_reach[waiting] == k
            self.ends_early[waiting[ends]] = True
            waiting = waiting[~ends]
            text, _ = answers.model.after_next_draw(table, rows[waiting], paths, waiting)
            # the answer is the text of the largest chance after this draw
            chance = text.max(axis=1)
            self.texts[waiting, k] = first_of_largest(text)
            self.n_made[waiting] = k + 1
            self.sure[waiting, k] = sure_after(chance, answers.patience[k])
            hopeless = hopeless_after(chance, k + 1, answers.k_max, answers.cut)
            # who answers at the highest level answers, with the same draw, at every lower one
            waiting = waiting[(self.sure[waiting, k] < answers.levels[0]) & ~hopeless]

    def __len__(self) -> int:
        return len(self.answers.levels)

    def members(self, step: int) -> DrawEntries:
        """The answers at a level."""
        answered, draws = answered_at(self.sure, self.answers.levels[step])
        owner = np.flatnonzero(answered)
        texts = self.texts[owner, draws[owner] - 1]
        return DrawEntries(self.table, self.rows[owner], texts, owner, len(self.rows))

    def sizes(self, step: int) -> np.ndarray:
        """Which prompts are answered, as numbers."""
        answered, _ = answered_at(self.sure, self.answers.levels[step])
        return answered.astype(np.intp)

    def draws(self, step: int) -> np.ndarray:
        """Number of draws taken for each prompt."""
        answered, draws = answered_at(self.sure, self.answers.levels[step])
        return np.where(answered, draws, self.n_made)

    def unfinished(self, step: int) -> np.ndarray:
        """Which prompts lack draws that decide at a level."""
        answered, _ = answered_at(self.sure, self.answers.levels[step])
        return np.asarray(self.ends_early & ~answered)

    def only(self, step: int) -> "AnswerSteps":
        """The path of this level alone."""
        alone = copy.copy(self)  # with the same draws
        alone.answers = self.answers.after(step, step + 1)
        return alone

    def on(self, rows: np.ndarray) -> "AnswerSteps":
        """The same levels on other prompts."""
        return AnswerSteps(self.table, rows, self.answers)

    def expected_losses(self) -> np.ndarray:
        """What each level is expected to err."""
        return self.answers.risks


class AnswerRule(ExitRule):
    """The rule for one prompt at one level.

    `exit` is the probability of the answer.
    """

    def __init__(self, level: float, patience: Sequence[float], cut: float = 0.0) -> None:
        super().__init__(level, 1.0, len(patience))
        self.patience = patience
        self.cut = cut
        self.exit = -np.inf

    def update(self, text: "np.ndarray | list[float]", arrival: float) -> bool:
        self.n_samples += 1
        k = self.n_samples
        chance = float(np.max(text))
        if sure_after(chance, self.patience[k - 1]) >= self.level:
            (best,) = first_of_largest(np.asarray(text)[np.newaxis])
            self.accepted = [int(best)]
            self.exit = chance
            self.stopped = True
        elif hopeless_after(chance, k, self.k_max, self.cut):
            self.stopped = True
        return self.done
