"""The table of draws, scores and labels, filled or lazy.

Eager and lazy are one object. A table that was filled before has no judge, and needs none. A lazy
table makes a draw, or asks for a label, when a decision needs it. A table with holes has missing
draws, and no generator to make them (``_holes.py``). Draws are keyed and scores look at earlier
draws alone, so that draws made one by one are those that would be made all at once. Labels belong
to texts, so that equal responses of a prompt share one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sklearn_clm.calibration._holes import completed
from sklearn_clm.calibration.certify import Entries
from sklearn_clm.calibration.data import CalibrationData
from sklearn_clm.calibration.tiers import Tiers

if TYPE_CHECKING:
    from sklearn_clm.calibration.thresholds import ThresholdPath

Draw = Callable[[np.ndarray, int | np.ndarray], None]
"""``draw(rows, n_draws)``: makes draws until the prompts at `rows` have so many each."""

Judge = Callable[[np.ndarray, np.ndarray], Iterable[bool]]
"""``judge(rows, draws)``: two arrays of positions, of equal length; gives the verdicts in order, as
they become known. Those given before an error are kept."""

LossesOfSets = Callable[[str, "ThresholdPath", int], np.ndarray]
"""``losses(name, path, step)``: the loss of that name of each set at a step of a path."""


class Table:
    """Draws of n prompts with scores and labels, perhaps incomplete.

    `data` is what is known; its arrays of scores are shared: where draws are missing, ``draw(rows,
    n_draws)`` makes them there until the prompts at `rows` have so many each. `judge` is asked for
    labels. Without `draw` missing draws stay missing, and are holes; without `judge` unknown labels
    stay unknown. `texts`, of shape (n, K), names for each draw the draw in which its text occurs
    first. `budgets` are numbers of draws after which sampling may end, ascending, by default K
    alone; `tiers` are prices of draws, where they differ. Only prompts `at_stake` may err, bool of
    shape (n,); None: all. `losses` gives other losses of sets, where a claim names some.
    """

    def __init__(
        self,
        data: CalibrationData,
        draw: Draw | None = None,
        judge: Judge | None = None,
        *,
        budgets: Sequence[int] | None = None,
        tiers: Tiers | None = None,
        at_stake: np.ndarray | None = None,
        losses: LossesOfSets | None = None,
    ) -> None:
        self.data = data
        self.budgets = budgets or [data.k_max]
        self.tiers = tiers
        self.at_stake = at_stake
        self.losses = losses
        self._draw = draw
        self.judge = judge
        n, k_max = data.quality.shape
        self.n_judgements = 0  # distinct texts that were judged
        self.n_draws = data.n_draws.copy()
        # some draws are missing, and stay so
        self.has_holes = draw is None and bool(np.any(self.n_draws < k_max))
        self.texts = data.first
        self._of_text = np.full((n, k_max), -1, dtype=np.int8)  # at the first draw of each text
        labels = data.labels
        rows, draws = np.nonzero(labels >= 0)
        self._learn(rows, self.texts[rows, draws], labels[rows, draws])

    @property
    def k_max(self) -> int:
        """Number of draws for each prompt, K."""
        return self.data.k_max

    @property
    def labels(self) -> np.ndarray:
        """1, 0 or -1 for each draw, shape (n, K)."""
        return np.take_along_axis(self._of_text, self.texts, axis=1)

    @property
    def is_lazy(self) -> bool:
        """Whether draws are made, or labels asked for, on demand."""
        return self._draw is not None or self.judge is not None

    @property
    def is_filled(self) -> bool:
        """Whether all draws and labels are known."""
        return not self.is_lazy and not self.has_holes

    @property
    def ended_by_others(self) -> bool:
        """Whether missing draws may tell of labels of other prompts."""
        return self.has_holes and self.data.provenance.stops is not None

    def is_hole(self, rows: np.ndarray) -> np.ndarray:
        """Which prompts at `rows` have missing draws that stay so."""
        return np.asarray(self.in_reach(rows) < self.k_max)

    def in_reach(self, rows: np.ndarray) -> np.ndarray:
        """How many draws of prompts at `rows` are possible."""
        can_draw = self._draw is not None
        return np.asarray(np.where(can_draw, self.k_max, self.n_draws[rows]))

    def searchable(self, rows: np.ndarray) -> "Table":
        """This table, with all draws of prompts at `rows`."""
        if self.has_holes:
            # of prompts that shape the path alone: holes are filled by copies (`_holes.py`)
            full = completed(self.filled())
            return Table(full, judge=self.judge, budgets=self.budgets, tiers=self.tiers)
        self.ensure(rows, self.k_max)
        return self

    @property
    def knows_texts(self) -> bool:
        """Whether the data tell which responses are equal."""
        return self.data.texts is not None

    def digests_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Digests of prompts, if known."""
        return None if self.data.prompts is None else self.data.prompts[rows]

    def labels_at(self, rows: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Labels of single draws."""
        return np.asarray(self._of_text[rows, self.texts[rows, draws]])

    def part(self, rows: np.ndarray | slice) -> CalibrationData:
        """The data of prompts at `rows`, as far as filled."""
        part = self.data.take(rows)
        part.labels = np.take_along_axis(self._of_text[rows], self.texts[rows], axis=1)
        part.n_draws = self.n_draws[rows].copy()
        return part

    def filled(self) -> CalibrationData:
        """The data of all prompts, as far as filled."""
        return self.part(slice(None))

    def ensure(self, rows: np.ndarray, n_draws: int | np.ndarray) -> None:
        """Make draws up to `n_draws` of each prompt at `rows`."""
        # draws are keyed: those that are there are the ones that would be made
        wanted = np.broadcast_to(n_draws, rows.shape)
        lacking = self.n_draws[rows] < wanted
        if not lacking.any():
            return
        if self._draw is None:
            raise ValueError(
                "data must hold all draws, got data with missing draws and no generator to make "
                "them instead."
            )
        self._draw(rows[lacking], wanted[lacking])
        self.n_draws[rows[lacking]] = wanted[lacking]

    def ask(self, rows: np.ndarray, draws: np.ndarray) -> None:
        """Ask for labels; those given before an error are kept."""
        if self.judge is None:
            raise ValueError(
                "data must hold all labels, got data with unknown labels and no judge instead."
            )
        # the judge sees the first draw of a text, so that it is asked once about equal ones
        texts = self.texts[rows, draws]
        verdicts: list[bool] = []
        try:
            verdicts.extend(bool(verdict) for verdict in self.judge(rows, texts))
        finally:
            # what was given before an error was paid for
            n_given = min(len(verdicts), len(rows))
            self.n_judgements += n_given
            labels = np.array(verdicts[:n_given], dtype=np.int8)
            self._learn(rows[:n_given], texts[:n_given], labels)
        if len(verdicts) != len(rows):
            raise ValueError(
                f"judge must give one verdict for each of {len(rows)} texts, got {len(verdicts)} "
                "instead."
            )

    def _learn(self, rows: np.ndarray, texts: np.ndarray, labels: np.ndarray) -> None:
        """Note labels, of each text one alone."""
        # a judge who contradicts himself is refused: which verdict counts would be by chance
        label_before = self._of_text[rows, texts]
        self._of_text[rows, texts] = labels
        # of a text that stands there twice the last label has been noted
        label_now = self._of_text[rows, texts]
        is_another = ((label_before >= 0) & (label_before != labels)) | (label_now != labels)
        if is_another.any():
            m = int(is_another.argmax())
            raise ValueError(
                f"judge must give equal texts one verdict, got both verdicts for the text of draw "
                f"{texts[m]} of prompt {rows[m]} instead."
            )


class DrawEntries(Entries):
    """Some draws of a table; admissible ones are witnesses."""

    def __init__(
        self,
        table: Table,
        rows: np.ndarray,
        draws: np.ndarray,
        owner: np.ndarray,
        n_prompts: int,
        scores: np.ndarray | None = None,
        preference: np.ndarray | None = None,
    ) -> None:
        scores = np.ones(len(owner)) if scores is None else scores
        super().__init__(owner, n_prompts, scores, wanted=1, preference=preference)
        self._table = table
        self.rows = rows
        self.draws = draws

    @property
    def labels(self) -> np.ndarray:
        return self._table.labels_at(self.rows, self.draws)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        return self.rows, self._table.texts[self.rows, self.draws]

    def ask(self, entries: np.ndarray) -> None:
        self._table.ask(self.rows[entries], self.draws[entries])
