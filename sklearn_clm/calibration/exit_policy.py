"""Exit policy: one nested level stops sampling and chooses members.

After k draws a model ranks the distinct texts seen so far by their probability of being admissible,
and gives, for each text c, the probability p_k(c) that c is admissible and no text ranked above it
is, and g_k, the chance that a first admissible text arrives within the next few draws. So p_k(c) is
what c adds to a set of better texts: where several texts tend to be right together, the second one
adds little.
With m_k = min(m_{k-1}, g_k / rho), m_0 = +inf and m_K = -inf,

    tau(c) = max over k of { v = min(m_{k-1}, p_k(c)) : v > m_k },

the set at level u is {c : tau(c) >= u}, and sampling stops at the first k with m_k < u.

*The sets are nested, and use only what was seen up to the stop.* Let k* be the stop at level u, so
that m_k >= u for all k < k*, and m_{k*} < u. A text counts through a draw k > k* only by
v <= m_{k-1} <= m_{k*} < u, which does not reach u. So tau(c) >= u is decided at the stop, and a
lower u keeps every member.

*Draws in tiers, each at its price.* g_k is then the largest chance per price: over horizons h, that
a first admissible text arrives within the next h draws, divided by their price. It is a function of
what was seen and of prices, as without tiers, and does not know u, so that nothing changes in what
was said, nor in what follows: one level governs the whole stream.

*The level is calibrated without a search.* Let V_i be the largest tau_i(c) over the admissible
texts of prompt i (-inf where there is none). The set at level u misses prompt i if and only if
V_i < u. The model comes from other prompts, so the V_i are independent and identically
distributed, and the risk at u is P(V < u). Take the (c + 1)-th smallest V for u-hat, where c is
the largest count with P(Binom(n, epsilon) <= c) <= delta. Let u* be the supremum of the levels of
risk at most epsilon; the risk is continuous from the left, so it is at most epsilon at u* too.
If u-hat > u*, then at most c of the V_i are <= u*, though P(V <= u*) >= epsilon: an event of
probability at most P(Binom(n, epsilon) <= c) <= delta. Nothing is searched, so nothing is
corrected for, and every epsilon is answered from the same V.

*The level in use stands below u-hat*, in the middle of the gap that tau and m of the calibration
prompts leave there. The risk P(V < u) rises with u: any lower level, whatever it depends on, has a
risk at most that of u-hat, so that both guarantees stay, and no set of these prompts is another.

*Marginally*, V_1, ..., V_n and that of a new prompt are exchangeable: the new one falls below the
(c + 1)-th smallest of the others with probability at most (c + 1) / (n + 1), which is at most
epsilon for c = floor((n + 1) epsilon) - 1. Where that one is -inf nothing is certified, and the new
prompt does not fall below it: the mean is over all calibrations, and those that certify nothing
count as right. Given that a calibration certifies, the new prompt is missed with probability at
most epsilon / P(certifies), which is above epsilon where more than a few certify nothing: near the
share of prompts that no draw answers.
"""

from typing import ClassVar

import numpy as np

from sklearn_clm.calibration.between import SAME, middles_below
from sklearn_clm.calibration.exit_model import ExitModel, tau_after_draw
from sklearn_clm.calibration.path import TablePath
from sklearn_clm.calibration.table import DrawEntries, Table


class ExitRule:
    """The exit policy for one prompt, fed draw by draw."""

    def __init__(self, level: float, rho: float, k_max: int) -> None:
        self.level = level
        self.rho = rho
        self.k_max = k_max
        self.accepted: list[int] = []  # texts, named by the draw in which they occur first
        self.n_samples = 0
        self.exit = np.inf  # m_k
        self.stopped = False  # by the level, not by the budget

    @property
    def done(self) -> bool:
        """Whether no further draw is wanted."""
        return self.stopped or self.n_samples >= self.k_max

    def update(self, text: "np.ndarray | list[float]", arrival: float) -> bool:
        """Take p_k(c) and g_k; return whether to stop.

        `text` holds p_k(c) at the first occurrence of each text.
        """
        if self.done:
            raise RuntimeError("the exit rule has stopped; it takes no further draw")
        exit_before = self.exit  # m_{k-1}
        self.n_samples += 1
        is_last = self.n_samples == self.k_max
        # the running minimum, so that sets are nested in the level
        exit_now = -np.inf if is_last else min(exit_before, float(arrival) / self.rho)
        self.exit = exit_now
        # as numbers of Python: this loop runs for each draw of each request
        for c, chance in enumerate(np.asarray(text).tolist()):
            # the value min(m_{k-1}, p_k(c)) reaches the level where the chance does: with m_{k-1}
            # below the level sampling had stopped
            reaches_level = chance >= self.level
            if reaches_level and min(exit_before, chance) > exit_now and c not in self.accepted:
                self.accepted.append(c)
        # at the budget sampling ends, too, but then the level has not stopped it
        self.stopped = exit_now < self.level and not is_last
        return self.done


class ExitEntries(DrawEntries):
    """All draws of some prompts, scored by tau once made.

    A repetition has no score: it is judged by the response that stands for its text, the first one.
    """

    reach: np.ndarray  # m_k after the last draw made, +inf before the first

    def __init__(self, table: Table, rows: np.ndarray, model: ExitModel) -> None:
        n = len(rows)
        k_max = model.k_max
        # -inf where draws do not tell yet: no level is so low, so that nothing counts through them
        self.tau = np.full((n, k_max), -np.inf)  # tau(c), at the first draw of each text
        self.exits = np.full((n, k_max), -np.inf)  # m_k, at draw k
        # an entry for each draw of each prompt; their scores are a view of tau
        owner, draws = np.divmod(np.arange(n * k_max), k_max)
        super().__init__(table, rows[owner], draws, owner, n, scores=self.tau.reshape(-1))
        self._of_prompt = rows
        self._model = model
        self._paths = model.paths(n)
        self.reach = np.full(n, np.inf)
        # m_k after the last known draw, where draws end early; -inf elsewhere
        self.cut = np.full(n, -np.inf)
        # without a generator nothing is gained by waiting: all draws there are, at once
        if not table.is_lazy:
            for k in range(k_max):
                self.draw(np.flatnonzero(table.n_draws[rows] > k))
        self._end_at_holes(np.flatnonzero(table.n_draws[rows] == 0))

    def draw(self, prompts: np.ndarray) -> None:
        rows = self._of_prompt[prompts]
        draw = self._paths.n_draws[prompts]
        exit_before = self.reach[prompts]  # m_{k-1}
        chance, arrival = self._model.after_next_draw(self._table, rows, self._paths, prompts)
        exit_after = np.minimum(exit_before, arrival / self._model.rho)
        exit_after[draw == self._model.k_max - 1] = -np.inf  # no draw is left to wait for
        self.exits[prompts, draw] = exit_after
        self.reach[prompts] = exit_after
        # tau(c) is the largest value over all draws: a later one never takes a text away
        value = tau_after_draw(exit_before, chance, exit_after)
        self.tau[prompts] = np.maximum(self.tau[prompts], value)
        # of prompts whose draws end here nothing more will be known
        has_ended = self._paths.n_draws[prompts] == self._table.n_draws[rows]
        is_text = chance > -np.inf
        self._end_at_holes(prompts[has_ended], is_text[has_ended])

    def _end_at_holes(self, prompts: np.ndarray, is_text: np.ndarray | None = None) -> None:
        """End those prompts whose next draw is a hole.

        `is_text` says which of their draws are first draws of a text; None: there are none.
        """
        is_cut = self._table.is_hole(self._of_prompt[prompts])
        cut = prompts[is_cut]
        self.cut[cut] = self.reach[cut]
        self.reach[cut] = -np.inf
        # m_K = -inf counts every text at last, with a probability, so that 0 is a bound from below
        if is_text is not None:
            least = np.where(is_text[is_cut], 0.0, -np.inf)
            self.tau[cut] = np.maximum(self.tau[cut], least)

    @property
    def without_witness(self) -> np.ndarray:
        """Which prompts are not known to have an admissible text."""
        return np.asarray(self.largest(self.labels == 1) == -np.inf)

    @property
    def hopeless(self) -> np.ndarray:
        """Which prompts are known to have no admissible text."""
        draws = np.arange(self.tau.shape[1])
        is_wrong = self.labels.reshape(self.tau.shape) == 0
        is_made = draws < self._paths.n_draws[:, np.newaxis]
        is_repetition = is_made & (self._paths.first != draws)
        return np.asarray(np.all(is_wrong | is_repetition, axis=1))

    def below(self, level: float) -> float:
        """The middle of the gap below a level.

        Draws are made on which the gap depends: what later ones bring is below them.
        """
        if level == -np.inf:
            return level
        # scores that are one number with the level belong to it, and end no gap
        self.draw_to(level - SAME * abs(level))
        return float(middles_below(np.stack((self.tau, self.exits)), level))

    def draw_to(self, level: float) -> None:
        """Make as many draws as prediction makes at a level."""
        if level == -np.inf:
            return
        # those with m_k below the level have stopped there, and at every higher level
        while len(waiting := np.flatnonzero(self.reach >= level)):
            self.draw(waiting)


class LevelPath(TablePath):
    """Levels of an exit policy on some prompts, ascending.

    All levels share what was drawn. The steps are those that were asked for.
    """

    what: ClassVar[str] = "exit level"
    parts: ClassVar[tuple[str, str]] = ("learns the policy", "finds its level")

    def __init__(
        self, table: Table, rows: np.ndarray, model: ExitModel, entries: ExitEntries | None = None
    ) -> None:
        self.table = table
        self.rows = rows
        self.model = model
        # levels of one path share what was drawn, whatever path asked for it
        self.entries = ExitEntries(table, rows, model) if entries is None else entries
        self.levels: list[float] = []

    def __len__(self) -> int:
        return len(self.levels)

    def step_at(self, level: float) -> int:
        """The step at a level, which joins the path."""
        self.levels.append(level)
        return len(self.levels) - 1

    def members(self, step: int) -> DrawEntries:
        """The texts at a level, those relied on most first."""
        chosen = np.flatnonzero(self.entries.scores >= self.levels[step])
        entries = self.entries
        return DrawEntries(
            self.table,
            entries.rows[chosen],
            entries.draws[chosen],
            entries.owner[chosen],
            entries.n_prompts,
            preference=entries.scores[chosen],
        )

    def sizes(self, step: int) -> np.ndarray:
        """Number of members of each set."""
        return np.sum(self.entries.tau >= self.levels[step], axis=1)

    def draws(self, step: int) -> np.ndarray:
        """Number of draws taken for each prompt."""
        # m falls along the draws: sampling goes on after draw k where m_k reaches the level
        goes_on = self.entries.exits[:, :-1] >= self.levels[step]
        return 1 + np.sum(goes_on, axis=1)

    def unfinished(self, step: int) -> np.ndarray:
        """Which prompts lack draws before their stop."""
        level = self.levels[step]
        # draws that can still be made, and those that holes took away
        reach = np.maximum(self.entries.reach, self.entries.cut)
        return np.asarray((reach >= level) & (level > -np.inf))

    def finish(self, step: int, chosen: np.ndarray | None = None) -> None:
        """Make the draws of all prompts up to the stop."""
        self.entries.draw_to(self.levels[step])

    def only(self, step: int) -> "LevelPath":
        """The path of this level alone."""
        path = LevelPath(self.table, self.rows, self.model, self.entries)
        path.step_at(self.levels[step])
        return path

    def on(self, rows: np.ndarray) -> "LevelPath":
        """The levels of this path, on other prompts."""
        path = LevelPath(self.table, rows, self.model)
        path.levels = list(self.levels)
        return path

    def laid_out(self) -> "LevelPath":
        """All levels that differ for these prompts, from the lowest.

        At the lowest all texts are returned.
        """
        entries = self.entries
        path = LevelPath(self.table, self.rows, self.model, entries)
        every_tau = entries.tau[entries.tau > -np.inf]
        if not len(every_tau):  # of a group that was not searched
            path.levels = [0.0]
            return path
        # between two V of prompts the same prompts err: one level for each is enough
        v_of_prompts = entries.largest(entries.labels == 1)
        observed = np.append(v_of_prompts[v_of_prompts > -np.inf], every_tau.min())
        levels = middles_below(np.append(every_tau, entries.exits), observed)
        path.levels = np.unique(levels).tolist()
        return path
