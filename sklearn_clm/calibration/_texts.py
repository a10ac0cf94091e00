"""Distinct texts of prompts, and their features after each draw."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._between import SAME, middles_above, middles_below
from sklearn_clm.calibration.tiers import Tiers

TEXT_FEATURES = (
    "share of the draws so far",
    "share above that of the most frequent other text",
    "largest quality",
    "share of texts of higher quality",
    "mean similarity to the other draws",
    "logarithm of the number of draws",
)
_KNOTS = 65
_COPIES_DIFFER = 1 / 4  # as often as any two judged texts of a prompt, at most
_GROWING = ("n_draws", "first", "counts", "quality", "similarity", "alike")


class ScoreScale:
    """Empirical distribution function of scores, through a few quantiles.

    Each knot reaches from the middle of the gap below it to that of the gap above, `low` and
    `high`, ascending, so that the last digits of a score change nothing. Features on this scale lie
    in [0, 1], whatever the unit of a score, infinite ones included.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        self.low, self.high = np.array([low, high], dtype=np.float64)

    @classmethod
    def of(cls, values: np.ndarray) -> "ScoreScale":
        ordered = np.sort(values, axis=None)
        if not len(ordered):
            return cls([0.0], [0.0])
        places = np.linspace(0, len(ordered) - 1, min(_KNOTS, len(ordered))).round()
        knots = ordered[places.astype(np.intp)]
        low = knots.copy()
        high = knots.copy()
        finite = np.isfinite(knots)
        low[finite] = middles_below(ordered, knots[finite])
        high[finite] = middles_above(ordered, knots[finite])
        return cls(low, high)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        # the mean of both sides, so that scores that are all equal lie in the middle
        below = np.searchsorted(self.high, values, side="left")
        upto = np.searchsorted(self.low, values, side="right")
        return (below + upto) / (2.0 * len(self.low))


class AsItIs(ScoreScale):
    """Scores in their own unit."""

    def __init__(self) -> None:
        super().__init__([], [])

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)


class TextPaths:
    """The distinct texts of n prompts, draw by draw.

    All arithmetic is row by row and in the order of the draws: the same bits in any batch.
    """

    def __init__(
        self,
        n_prompts: int,
        k_max: int,
        quality_scale: ScoreScale,
        similarity_scale: ScoreScale,
        tiers: Tiers | None = None,
        same_text: float | None = None,
    ) -> None:
        shape = (n_prompts, k_max)
        self.tiers, self.same_text = tiers, same_text
        self.quality_scale, self.similarity_scale = quality_scale, similarity_scale
        self.k_max = k_max
        self.n_draws = np.zeros(n_prompts, dtype=np.intp)
        # a text is named by the draw in which it occurs first
        self.first = np.zeros(shape, dtype=np.intp)
        # how often it occurs among the draws of each tier
        self.tier_of_draw = np.zeros(k_max, dtype=np.intp) if tiers is None else tiers.of_draw
        self.counts = np.zeros((*shape, 1 if tiers is None else len(tiers.prices)))
        self.quality = np.zeros(shape)
        # of its first draw: the sum of similarities to all draws of other texts
        self.similarity = np.zeros(shape)
        # of the first draws of two texts: their similarity
        self.alike = np.zeros((*shape, k_max), dtype=np.float32)

    @classmethod
    def of_all_draws(
        cls,
        quality: np.ndarray,
        similarity: np.ndarray,
        texts: np.ndarray,
        tiers: Tiers | None = None,
    ) -> tuple["TextPaths", np.ndarray, np.ndarray]:
        """Paths after all draws, whose scores make the scales.

        With their :meth:`text_features` after each draw, (n, K, K) and (n, K, K, f).
        """
        n_prompts, k_max = quality.shape
        earlier, later = np.triu_indices(k_max, 1)
        of_similarity = ScoreScale.of(similarity[:, later, earlier])
        paths = cls(n_prompts, k_max, ScoreScale.of(quality), of_similarity, tiers)
        rows = np.arange(n_prompts)
        after_each_draw = []
        for k in range(k_max):
            paths.update(rows, quality[:, k], similarity[:, k], texts[:, k])
            after_each_draw.append(paths.text_features(rows))
        present, features = (np.stack(arrays, axis=1) for arrays in zip(*after_each_draw))
        return paths, present, features

    def update(
        self, rows: np.ndarray, quality: np.ndarray, similarity: np.ndarray, equal: np.ndarray
    ) -> None:
        """Take the next draw of each prompt at `rows`.

        Each prompt stands there at most once. `similarity`, of shape (m, at least the draws so
        far), is that to earlier draws, and `equal` the draw that holds an equal response first, the
        draw itself where there is none.
        """
        # a response alike an earlier text is a draw of that text
        draw = self.n_draws[rows]
        first = text_of_draw(self.first[rows], equal, draw, similarity, self.same_text)
        self.first[rows, draw] = first
        new = first == draw
        # a text is as good as its best draw
        scaled = self.quality_scale(quality)
        self.quality[rows, first] = np.where(
            new, scaled, np.maximum(scaled, self.quality[rows, first])
        )
        self.counts[rows, first, self.tier_of_draw[draw]] += 1.0
        earlier = np.arange(int(draw.max(initial=0)))
        is_earlier = earlier < draw[:, np.newaxis]
        texts = self.first[rows, : len(earlier)]
        scores = similarity[:, : len(earlier)]
        alike = np.where(is_earlier, self.similarity_scale(scores), 0.0)
        # a new text meets all earlier draws; one by one, so that any batch rounds sums alike
        met = np.cumsum(alike, axis=1)[:, -1:].sum(axis=1)
        self.similarity[rows, draw] += np.where(new, met, 0.0)
        # ... and every other text one draw more, at its first occurrence
        other = np.where(
            is_earlier & (texts == earlier) & (texts != first[:, np.newaxis]), alike, 0.0
        )
        at = rows[:, np.newaxis]
        self.similarity[at, earlier] += other
        pair = np.where(new[:, np.newaxis], other, 0.0)
        self.alike[at, draw[:, np.newaxis], earlier] = pair
        self.alike[at, earlier, draw[:, np.newaxis]] = pair
        self.n_draws[rows] += 1

    def grow(self, n_prompts: int) -> None:
        """Make room for `n_prompts` prompts more."""
        for name in _GROWING:
            array = getattr(self, name)
            more = np.zeros((n_prompts, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate((array, more)))

    def clear(self, row: int) -> None:
        """Forget the prompt at `row`, whose place another may take."""
        for name in _GROWING:
            getattr(self, name)[row] = 0

    def text_features(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which draws bring a new text, and its features.

        Of shapes (m, K) and (m, K, 6), see :data:`TEXT_FEATURES`. With tiers, the share of the text
        in each and the depth come after them.
        """
        counts = self.counts[rows].sum(axis=2)
        quality = self.quality[rows]
        present = counts > 0
        draws = self.n_draws[rows][:, np.newaxis].astype(np.float64)
        share = counts / draws
        # the rival is the most frequent other text: of the most frequent one, the second
        ordered = np.sort(counts, axis=1)
        most = ordered[:, -1:]
        second = ordered[:, -2:-1] if counts.shape[1] > 1 else 0.0
        rival = np.where(counts == most, second, most)
        texts = np.sum(present, axis=1, keepdims=True)
        ranked = np.where(present, quality, -1.0)
        higher = np.sum(ranked[:, np.newaxis, :] > ranked[:, :, np.newaxis], axis=2)
        n_other_draws = draws - counts
        columns = [
            share,
            share - rival / draws,
            quality,
            higher / texts,
            self.similarity[rows] / np.maximum(n_other_draws, 1.0),
            np.broadcast_to(np.log(draws), share.shape),
        ]
        if self.tiers is not None:
            n_of_tier = self.tiers.counts(self.n_draws[rows])[:, np.newaxis]
            depth = self.tiers.depth(self.n_draws[rows])[:, np.newaxis]
            columns += list(np.moveaxis(self.counts[rows] / np.maximum(n_of_tier, 1), 2, 0))
            columns += [
                np.broadcast_to(share_of_tier, share.shape)
                for share_of_tier in np.moveaxis(depth, 2, 0)
            ]
        return present, np.stack(columns, axis=2)


def texts_of_draws(
    similarity: np.ndarray, equal: np.ndarray, same_text: float | None
) -> np.ndarray:
    """Draw in which each draw's text occurs first, (n, K).

    Near duplicates count as one text.
    """
    texts = equal.copy()
    for j in range(equal.shape[1]):
        draw = np.full(len(equal), j)
        texts[:, j] = text_of_draw(texts, equal[:, j], draw, similarity[:, j], same_text)
    return texts


def text_of_draw(
    texts: np.ndarray,
    equal: np.ndarray,
    draw: np.ndarray,
    similarity: np.ndarray,
    same_text: float | None,
) -> np.ndarray:
    """Draw in which the next draw's text occurs first.

    Of m prompts, whose next draw is `draw`, `texts`, (m, K), says the same for earlier draws, and
    `equal` is the draw that holds an equal response first, `draw` itself where there is none. Near
    duplicates count as one text: a response repeats the earliest text to which its similarity is
    above `same_text`; clusters do not chain.
    """
    new = equal == draw
    text = np.where(new, draw, texts[np.arange(len(texts)), equal])
    if same_text is None or not draw.any():
        return text
    # a copy of a copy is none: only first occurrences stand for a text
    earlier = np.arange(int(draw.max()))
    # a similarity that is the number same_text is not above it, whatever its last digits
    room = SAME / 4 * abs(same_text) if np.isfinite(same_text) else 0.0
    alike = similarity[:, : len(earlier)] > same_text + room
    alike &= (texts[:, : len(earlier)] == earlier) & (earlier < draw[:, np.newaxis])
    return np.where(new & alike.any(axis=1), alike.argmax(axis=1), text)


def same_text_of(similarity: np.ndarray, first: np.ndarray, labels: np.ndarray) -> float | None:
    """Similarity above which labels of two texts agree, or None.

    Pairs are taken from the most similar on, as long as they differ at most a quarter as often as
    all judged pairs of a prompt do. It stands in the gap below the last of them.
    """
    earlier, later = np.triu_indices(first.shape[1], 1)
    judged = (labels >= 0) & (first == np.arange(first.shape[1]))  # equal texts are no pair
    pairs = judged[:, earlier] & judged[:, later]
    values = similarity[:, later, earlier][pairs]
    differ = (labels[:, earlier] != labels[:, later])[pairs]
    if not differ.any():
        return None  # all labels are alike, whatever the similarity
    # pairs from the most similar on, and what is gained by taking so many of them as copies
    order = np.argsort(-values, kind="stable")
    values = values[order]
    differ = differ[order]
    # one that differs before all others, so that a few pairs show nothing
    gain = np.cumsum(_COPIES_DIFFER * differ.mean() - differ) - 1.0
    gain[:-1][values[1:] == values[:-1]] = -np.inf  # those that are as similar stand together
    best = int(gain.argmax())
    if gain[best] < 0:
        return None
    # a threshold stands in the gap: the similarity of the same pair may differ in its last digits
    least = values[best]
    if not np.isfinite(least):
        return float(np.nextafter(least, -np.inf))
    return float(middles_below(similarity[:, later, earlier], least))
