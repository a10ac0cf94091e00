"""Scores that are not the same number twice.

``fit`` scores draws in large batches, ``predict`` as they come, and a model's arithmetic rounds a
row otherwise in another batch. Thresholds stand between scores, so that last digits decide nothing,
up to single precision at least. What differs by more than the gap around them decides: then sets
are others than those that were tested, and the guarantee is not about them.
"""

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData
from sklearn_clm.calibration.between import SAME, room_about_zero
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.words import percent
from sklearn_clm.policies._thresholds import ThresholdRule
from sklearn_clm.policies.rules import Rule, SetRule
from sklearn_clm.policies.selection import SelectionRule
from sklearn_clm.scoring import (
    ClaimSupport,
    ClassifierScore,
    CombinedScore,
    EntailmentScore,
    GroundedIn,
    quality_matrix,
    similarity_tensor,
)
from sklearn_clm.scoring._callables import is_ours
from sklearn_clm.scoring._components import CallableScore
from sklearn_clm.scoring.protocols import (
    ComponentScore,
    Draws,
    DrawScorer,
    PairwiseSimilarity,
    Prompts,
    Quality,
    Similarity,
)

_Data = TypeVar("_Data", CalibrationData, ComponentCalibrationData)
_Rule = TypeVar("_Rule", bound=Rule)

_DRAWS_ALONE = 3  # of each prompt that is scored alone
_FEW = 0.01  # of the prompts, whose sets may depend on the last digits


class Noise(NamedTuple):
    """The largest differences of scores that were computed twice."""

    absolute: float = 0.0
    relative: float = 0.0

    @classmethod
    def between(cls, together: np.ndarray, alone: np.ndarray) -> "Noise":
        """Differences of scores in a batch and alone."""
        differ = together != alone  # equal infinities do not, and their difference is NaN
        scores = together[differ]
        other = alone[differ]
        if not len(scores):
            return cls()
        absolute = np.abs(other - scores)
        # relative to a score of 0, or an infinite one, every difference is infinite
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(np.isfinite(absolute), absolute / np.abs(scores), np.inf)
        return cls(float(absolute.max()), float(relative.max()))

    def with_larger(self, other: "Noise") -> "Noise":
        """The larger of two differences of both kinds."""
        return Noise(max(self.absolute, other.absolute), max(self.relative, other.relative))

    def matters_to(self, scores: np.ndarray) -> bool:
        """Whether thresholds may have too little room for it."""
        about_zero = room_about_zero(scores)
        return self.relative > SAME or 0.0 < about_zero < self.absolute

    def added(self, scores: np.ndarray, sign: int) -> np.ndarray:
        """Scores that are larger, or smaller, by as much."""
        with np.errstate(invalid="ignore"):
            # both bound what was observed, and so does the smaller one
            by = np.fmin(self.absolute, self.relative * np.abs(scores))
            # but differences of larger numbers have these numbers' last digits, however small
            # they are, and few of those that were scored alone may be about zero
            if room_about_zero(scores) and np.isfinite(self.absolute):
                by = np.full(scores.shape, self.absolute)
            moved = scores + sign * by
        return np.where(np.isfinite(scores), moved, scores)


# half a unit in the last place of a number in [1, 2): scores that were stored in single precision
# are wrong by so much, relatively, even where nothing was measured
_SINGLE_PRECISION = Noise(np.inf, 2.0**-24)


def in_batches(score: object) -> bool:
    """Whether a score may depend on the batch."""
    if isinstance(score, CombinedScore):
        return any(map(in_batches, score.parts))
    # what computes the numbers of a wrapper
    if isinstance(score, CallableScore):
        score = score.function
    elif isinstance(score, (ClaimSupport, GroundedIn)):
        score = score.entails

    # a local model, whose matrix products round by the batch
    if isinstance(score, (ClassifierScore, EntailmentScore)):
        return True
    # a user's object that is given whole rows; our own scores compute row by row
    takes_rows = isinstance(score, (DrawScorer, PairwiseSimilarity, ComponentScore))
    return takes_rows and not is_ours(score)


def noise_of_draws(
    quality: Quality | DrawScorer,
    similarity: Similarity | PairwiseSimilarity,
    prompts: Prompts,
    draws: Draws,
    data: CalibrationData,
) -> dict[str, Noise]:
    """Differences of scores that users' objects give draws alone.

    `data` hold what they gave these draws among all others.
    """
    # our own scores are computed row by row: those of users and models may see the batch
    n_draws = min(_DRAWS_ALONE, *map(len, draws))
    noise = {}

    if in_batches(quality):
        # as predict scores them: one prompt and one new draw at a time
        alone = np.zeros((len(prompts), n_draws))
        for i, row in enumerate(draws):
            for j in range(n_draws):
                scores = quality_matrix(quality, prompts[i : i + 1], [row[: j + 1]], start=j)
                alone[i, j] = scores.item()
        noise["quality"] = Noise.between(data.quality[:, :n_draws], alone)

    if in_batches(similarity):
        alone = np.zeros((len(prompts), n_draws, n_draws))
        for i, row in enumerate(draws):
            responses = [draw.response for draw in row]
            for j in range(1, n_draws):
                scores = similarity_tensor(similarity, [responses[: j + 1]], start=j)
                alone[i, j, :j] = scores[0, 0, :j]
        earlier, later = np.triu_indices(n_draws, 1)
        together = data.similarity[:, later, earlier]
        noise["similarity"] = Noise.between(together, alone[:, later, earlier])
    return noise


def check_precision(
    rules: Mapping[Hashable | None, SetRule],
    data: CalibrationData,
    groups: Sequence[Hashable] | None,
    set_score: SetScoreLike,
    noise: Mapping[str, Noise],
) -> list[str]:
    """Refuse scores whose noise decides sets.

    `noise` is that of each score that was computed alone as well. Warnings of thresholds without
    room are returned.
    """
    doubts = []
    for rule, part in _certified_parts(rules, data, groups):
        for name in ("quality", "similarity"):
            measured = noise.get(name, Noise())
            matters = measured.matters_to(getattr(part, name))
            # the features of an exit policy are places among scores, which have room
            if not (matters or isinstance(rule, ThresholdRule)):
                continue
            allowed = measured if matters else _SINGLE_PRECISION
            # sets that change when all scores move by as much, upwards or downwards
            share = _share_of_other_sets(rule, part, set_score, name, allowed)
            if matters:
                refuse_noise(name, measured, share)
            doubts.append(_doubt(name, "sets", share))
    return list(dict.fromkeys(filter(None, doubts)))


def check_precision_of_components(
    rules: Mapping[Hashable | None, SelectionRule],
    data: ComponentCalibrationData,
    groups: Sequence[Hashable] | None,
    noise: Noise,
) -> list[str]:
    """Doubts about selections whose scores depend on the batch."""
    doubts = []
    for rule, part in _certified_parts(rules, data, groups):
        matters = noise.matters_to(part.scores)
        allowed = noise if matters else _SINGLE_PRECISION
        # a prompt changes if any component crosses the threshold
        is_selected_if_lower = allowed.added(part.scores, -1) >= rule.gamma_hat
        is_selected_if_higher = allowed.added(part.scores, 1) >= rule.gamma_hat
        crosses = is_selected_if_lower != is_selected_if_higher
        n_changed = len(np.unique(part.prompt_index[crosses]))
        share = n_changed / part.n_prompts
        if matters:
            refuse_noise("component_score", noise, share)
        doubts.append(_doubt("component_score", "selections", share))
    return list(dict.fromkeys(filter(None, doubts)))


def _certified_parts(
    rules: Mapping[Hashable | None, _Rule], data: _Data, groups: Sequence[Hashable] | None
) -> Iterator[tuple[_Rule, _Data]]:
    """Each certified rule, with the data of its group."""
    # a null promises nothing that noise could break
    for group, rule in rules.items():
        if not rule.certified:
            continue
        if groups is None:
            yield rule, data
        else:
            of_group = [name == group for name in groups]
            yield rule, data.take(of_group)


def refuse_noise(name: str, noise: Noise, share: float) -> None:
    """Refuse a score whose noise changes many sets."""
    if share <= _FEW:
        return
    raise ValueError(
        f"{name} must give a draw the same number alone and in a batch, got numbers that differ "
        f"by up to {noise.absolute:.2g}, more than the gap around the thresholds: such differences "
        f"change what {percent(share)} of the prompts get, and predict scores draws as they come. "
        "Wanted a score of higher precision, or one that is computed row by row, as that of a "
        "plain function is."
    )


def _doubt(name: str, what: str, share: float) -> str | None:
    if share <= _FEW:
        return None
    return (
        f"for {percent(share)} of the prompts {name} lies within single precision of a threshold: "
        f"a score may differ by so little each time that it is computed, and the {what} of these "
        "prompts with it. Wanted scores of higher precision, or rounded."
    )


def _share_of_other_sets(
    rule: SetRule, data: CalibrationData, set_score: SetScoreLike, name: str, noise: Noise
) -> float:
    """Share of the prompts whose set changes with a score."""
    # all scores at once, which changes more sets than chance would
    members = rule.shown(data, set_score)
    changed = np.zeros(data.n_prompts, dtype=bool)
    for sign in (-1, 1):
        moved: Any = copy.copy(data)
        setattr(moved, name, noise.added(getattr(data, name), sign))
        changed |= np.any(rule.shown(moved, set_score) != members, axis=1)
    return float(changed.mean())
