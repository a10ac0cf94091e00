"""Draws of calibration prompts, made when a test asks for them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklearn_clm.calibration import CalibrationData, Provenance
from sklearn_clm.calibration._lazy_judging import text_key
from sklearn_clm.generators import DrawQueue, Generation
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.policies._sampling import SimilarityLike
from sklearn_clm.policies._source import naming_position
from sklearn_clm.scoring import quality_matrix, similarity_tensor
from sklearn_clm.scoring._protocols import DrawScorer, Quality, Response

Serve = Callable[[DrawQueue], None]
OnDraw = Callable[[int, int, Generation], None]
_Means = tuple[Serve, Quality | DrawScorer, SimilarityLike, int | None, OnDraw | None]


class LazyDraws:
    """The first draws of each prompt and their scores, and how the next ones are made.

    Draws are keyed, and scores of a draw depend on it and earlier ones alone: so those that are
    made one by one are those that would be made all at once.

    For n prompts and a budget of K: `quality`, `similarity` and `texts` as in
    :class:`~sklearn_clm.calibration.CalibrationData`, how many draws were made of each prompt in
    `n_draws`, and these in `draws` and `responses`.
    """

    def __init__(self, prompts: CheckedPrompts, k_max: int, seed: int) -> None:
        n = len(prompts)
        self.quality, self.similarity = np.zeros((n, k_max)), np.zeros((n, k_max, k_max))
        self.texts = np.tile(np.arange(k_max), (n, 1))
        self.n_draws = np.zeros(n, dtype=np.intp)
        self.draws: list[list[Generation]] = [[] for _ in range(n)]
        self.responses: list[list[Response]] = [[] for _ in range(n)]
        self._prompts, self._seed, self._digests = prompts, seed, prompts.digests()
        self._seen: list[dict[object, int]] = [{} for _ in range(n)]
        self._means: _Means | None = None

    def use(
        self,
        serve: Serve,
        quality: Quality | DrawScorer,
        similarity: SimilarityLike,
        n_jobs: int | None,
        on_draw: OnDraw | None = None,
    ) -> None:
        """Say who makes the next draws, and how they are scored.

        A quality that asks a generator has it already; `on_draw` is called with each new draw.
        """
        self._means = serve, quality, similarity, n_jobs, on_draw

    def forget_means(self) -> None:
        """Make no further draws."""
        self._means = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_means": None}

    def data(self, labels: np.ndarray, provenance: Provenance | None) -> CalibrationData:
        """The draws as they are now, with int8 labels; further ones show in the same arrays."""
        return CalibrationData(
            self.quality,
            self.similarity,
            labels,
            provenance=provenance,
            texts=self.texts,
            prompts=self._digests,
            n_draws=self.n_draws,
        )

    def make(self, rows: np.ndarray, n_draws: int | np.ndarray) -> None:
        """Make and score draws, until so many are made of each of the prompts at `rows`."""
        counts = np.broadcast_to(n_draws, rows.shape)
        lacking = counts > self.n_draws[rows]
        rows, counts = rows[lacking], counts[lacking]
        if not len(rows):
            return
        if self._means is None:
            raise RuntimeError("draws are missing, and nobody is known who makes them")
        serve, quality, similarity, n_jobs, on_draw = self._means
        starts = self.n_draws[rows]
        new: list[list[Generation]] = [[] for _ in rows]

        def decide(arrived: list[tuple[int, list[Generation]]]) -> list[int]:
            for i, draws in arrived:
                new[i].extend(draws)
            return [int(counts[i]) for i, _ in arrived]

        part = self._prompts.take(rows)
        queue = DrawQueue(
            part.prompts,
            int(counts.max()),
            seed=self._seed,
            decide=decide,
            first=starts.tolist(),
            on_draw=on_draw,
        )
        with naming_position(part):
            serve(queue)
        # those that begin and end alike are scored together
        for start, stop in sorted(set(zip(starts.tolist(), counts.tolist()))):
            members = np.flatnonzero((starts == start) & (counts == stop))
            group = rows[members]
            draws = [
                self.draws[i] + new[m][: stop - start]
                for i, m in zip(group.tolist(), members.tolist())
            ]
            responses = [[draw.response for draw in row] for row in draws]
            own = part.take(members).prompts
            self.quality[group, start:stop] = quality_matrix(
                quality, own, draws, start=start, n_jobs=n_jobs
            )
            self.similarity[group, start:stop, :stop] = similarity_tensor(
                similarity, responses, start=start, n_jobs=n_jobs
            )
            for i, drawn, said in zip(group.tolist(), draws, responses, strict=True):
                self.draws[i] = drawn
                self.responses[i].extend(said[start:])
                for j in range(start, stop):
                    self.texts[i, j] = self._seen[i].setdefault(text_key(said[j]), j)
                self.n_draws[i] = stop


class DrawnPart:
    """The prompts at `rows` of :class:`LazyDraws`, counted from 0.

    `data` are those of all prompts, of the budget that calibrates; the attribute is a copy of the
    draws of these prompts, which :meth:`draw` updates.
    """

    def __init__(self, draws: LazyDraws, data: CalibrationData, rows: np.ndarray) -> None:
        self._draws, self._rows = draws, rows
        self.data = data.take(rows)
        self.data.texts, self.data.n_draws = self.data.first, np.zeros(len(rows), dtype=np.intp)
        self._refresh(np.arange(len(rows)))

    @property
    def n_missing(self) -> int:
        """How many draws were not made."""
        data = self.data
        return 0 if data.n_draws is None else int(np.sum(data.k_max - data.n_draws))

    def draw(self, prompts: np.ndarray) -> None:
        """Make the next draw of each of some prompts of this part."""
        if self.data.n_draws is not None:
            self._draws.make(self._rows[prompts], self.data.n_draws[prompts] + 1)
            self._refresh(prompts)

    def _refresh(self, prompts: np.ndarray) -> None:
        data, draws, rows = self.data, self._draws, self._rows[prompts]
        if data.n_draws is None or data.texts is None:
            return
        k_max = data.k_max
        data.quality[prompts] = draws.quality[rows, :k_max]
        data.similarity[prompts] = draws.similarity[rows, :k_max, :k_max]
        data.texts[prompts] = draws.texts[rows, :k_max]
        data.n_draws[prompts] = np.minimum(draws.n_draws[rows], k_max)
