"""Distinct texts of prompts, and their features after each draw."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration.between import SAME, middles_above, middles_below
from sklearn_clm.calibration.tiers import Tiers

TEXT_FEATURES = (
    "share of the draws so far",
    "share above that of the most frequent other text",
    "largest quality",
    "share of texts of higher quality",
    "mean similarity to the other draws",
    "logarithm of the number of draws",
)
_KNOTS = 65  # quantiles of a scale: an exit model is copied and filed with its scales
_COPIES_DIFFER = 1 / 4  # as often as any two judged texts of a prompt, at most
# the arrays of a TextPaths that have a row for each prompt
_GROWING = ("n_draws", "first", "counts", "quality", "similarity", "alike")


class ScoreScale:
    """Empirical distribution function of scores, through a few quantiles.

    Each knot reaches from the middle of the gap below it to that of the gap above, `low` and
    `high`, ascending, so that the last digits of a score change nothing. Features on this scale lie
    in [0, 1], whatever the unit of a score, infinite ones included.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        self.low = np.array(low, dtype=np.float64)
        self.high = np.array(high, dtype=np.float64)

    @classmethod
    def of(cls, values: np.ndarray) -> "ScoreScale":
        """The scale of observed scores."""
        ordered = np.sort(values, axis=None)
        if not len(ordered):
            return cls([0.0], [0.0])
        n_knots = min(_KNOTS, len(ordered))
        places = np.linspace(0, len(ordered) - 1, n_knots).round()
        knots = ordered[places.astype(np.intp)]
        low = knots.copy()
        high = knots.copy()
        # beside an infinite score there is no gap
        is_finite = np.isfinite(knots)
        low[is_finite] = middles_below(ordered, knots[is_finite])
        high[is_finite] = middles_above(ordered, knots[is_finite])
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
        self.tiers = tiers
        self.same_text = same_text
        self.quality_scale = quality_scale
        self.similarity_scale = similarity_scale
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
        present_after = []
        features_after = []
        for k in range(k_max):
            paths.update(rows, quality[:, k], similarity[:, k], texts[:, k])
            present, features = paths.text_features(rows)
            present_after.append(present)
            features_after.append(features)
        return paths, np.stack(present_after, axis=1), np.stack(features_after, axis=1)

    def update(
        self, rows: np.ndarray, quality: np.ndarray, similarity: np.ndarray, equal: np.ndarray
    ) -> None:
        """Take the next draw of each prompt at `rows`.

        No prompt stands there twice. `similarity`, of shape (m, at least the draws so
        far), is that to earlier draws, and `equal` the draw that holds an equal response first, the
        draw itself where there is none.
        """
        # a response alike an earlier text is a draw of that text
        draw = self.n_draws[rows]
        first = text_of_draw(self.first[rows], equal, draw, similarity, self.same_text)
        self.first[rows, draw] = first
        is_new = first == draw
        self.counts[rows, first, self.tier_of_draw[draw]] += 1.0

        # a text is as good as its best draw
        scaled = self.quality_scale(quality)
        best = np.maximum(scaled, self.quality[rows, first])
        self.quality[rows, first] = np.where(is_new, scaled, best)

        # similarity to earlier draws: prompts may have different numbers of them
        earlier = np.arange(int(draw.max(initial=0)))
        n_earlier = len(earlier)
        is_earlier = earlier < draw[:, np.newaxis]
        alike = np.where(is_earlier, self.similarity_scale(similarity[:, :n_earlier]), 0.0)
        # a new text meets all earlier draws; one by one, so that any batch rounds sums alike
        to_all_earlier = np.cumsum(alike, axis=1)[:, -1:].sum(axis=1)
        self.similarity[rows, draw] += np.where(is_new, to_all_earlier, 0.0)
        # and every other text meets one draw more: its sum stands at its first occurrence
        earlier_texts = self.first[rows, :n_earlier]
        is_first = is_earlier & (earlier_texts == earlier)
        is_other_text = earlier_texts != first[:, np.newaxis]
        to_others = np.where(is_first & is_other_text, alike, 0.0)
        row_of_pair = rows[:, np.newaxis]
        draw_of_pair = draw[:, np.newaxis]
        self.similarity[row_of_pair, earlier] += to_others

        # of two texts the similarity of their first draws
        pair = np.where(is_new[:, np.newaxis], to_others, 0.0)
        self.alike[row_of_pair, draw_of_pair, earlier] = pair
        self.alike[row_of_pair, earlier, draw_of_pair] = pair
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

        The arrays have the shapes (m, K) and (m, K, 6); :data:`TEXT_FEATURES` names the features.
        With tiers, the share of the text in each and the depth come after them.
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
        count_of_rival = np.where(counts == most, second, most)

        # where there is no text, the quality is below every other
        n_texts = np.sum(present, axis=1, keepdims=True)
        quality_of_text = np.where(present, quality, -1.0)
        is_higher = quality_of_text[:, np.newaxis, :] > quality_of_text[:, :, np.newaxis]
        n_higher = np.sum(is_higher, axis=2)
        n_other_draws = draws - counts
        columns = [
            share,
            share - count_of_rival / draws,
            quality,
            n_higher / n_texts,
            self.similarity[rows] / np.maximum(n_other_draws, 1.0),
            np.broadcast_to(np.log(draws), share.shape),
        ]
        if self.tiers is not None:
            draws_of_tier = self.tiers.counts(self.n_draws[rows])[:, np.newaxis]
            share_of_tier = self.counts[rows] / np.maximum(draws_of_tier, 1)
            columns += list(np.moveaxis(share_of_tier, 2, 0))
            depth = self.tiers.depth(self.n_draws[rows])
            for depth_of_tier in depth.T:
                columns.append(np.broadcast_to(depth_of_tier[:, np.newaxis], share.shape))
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

    The arrays are those of m prompts, whose next draw is `draw`. For each earlier draw `texts`,
    (m, K), holds the draw in which its text occurs first. `equal` is the draw that holds an equal
    response first, `draw` itself where there is none. Near duplicates count as one text: a response
    repeats the earliest text to which its similarity is above `same_text`; clusters do not chain.
    """
    is_unequal = equal == draw
    text_of_equal = texts[np.arange(len(texts)), equal]
    text = np.where(is_unequal, draw, text_of_equal)
    if same_text is None or not draw.any():
        return text
    # a similarity that is the number same_text is not above it, whatever its last digits
    room = SAME / 4 * abs(same_text) if np.isfinite(same_text) else 0.0
    earlier = np.arange(int(draw.max()))
    is_near = similarity[:, : len(earlier)] > same_text + room
    # a copy of a copy is none: only first occurrences stand for a text
    is_first = texts[:, : len(earlier)] == earlier
    is_near &= is_first & (earlier < draw[:, np.newaxis])
    repeats_a_text = is_unequal & is_near.any(axis=1)
    return np.where(repeats_a_text, is_near.argmax(axis=1), text)


def same_text_of(similarity: np.ndarray, first: np.ndarray, labels: np.ndarray) -> float | None:
    """Similarity above which labels of two texts agree, or None.

    Pairs are taken from the most similar on, as long as their labels differ at most a quarter as
    often as those of all judged pairs of a prompt. The threshold stands in the gap below the last
    of them.
    """
    k_max = first.shape[1]
    earlier, later = np.triu_indices(k_max, 1)
    is_judged = (labels >= 0) & (first == np.arange(k_max))  # equal texts are no pair
    is_pair = is_judged[:, earlier] & is_judged[:, later]
    similarity_of_pair = similarity[:, later, earlier][is_pair]
    labels_differ = (labels[:, earlier] != labels[:, later])[is_pair]
    if not labels_differ.any():
        return None  # all labels are alike, whatever the similarity

    # of so many pairs, from the most similar on: how many more could differ than do
    order = np.argsort(-similarity_of_pair, kind="stable")
    values = similarity_of_pair[order]
    differ = labels_differ[order]
    tolerated_share = _COPIES_DIFFER * differ.mean()
    # as if one more pair before them differed, so that a few pairs show nothing
    room = np.cumsum(tolerated_share - differ) - 1.0
    is_next_as_similar = values[1:] == values[:-1]
    room[:-1][is_next_as_similar] = -np.inf  # no threshold stands between equal similarities
    last = int(room.argmax())
    if room[last] < 0:
        return None
    # a threshold stands in the gap: the similarity of the same pair may differ in its last digits
    least = values[last]
    if not np.isfinite(least):
        return float(np.nextafter(least, -np.inf))
    return float(middles_below(similarity[:, later, earlier], least))
