"""Components: collection for calibration, and selection."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from sklearn_clm._estimators._agreement import refuse_larger_budget, refuse_other_draws
from sklearn_clm._estimators._calibration import PARTS, SamplerCalibration, SelectorCalibration
from sklearn_clm._estimators._collection import (
    SCORED_AGAIN,
    TRIED_DRAWS,
    TRIED_PROMPTS,
    noting_kept_draws,
)
from sklearn_clm._estimators._precision import Noise, in_batches
from sklearn_clm._estimators._progress import Progress
from sklearn_clm._estimators._source import DrawSource, rows_in_order
from sklearn_clm._estimators._verdicts import ComponentVerdicts, shown_to
from sklearn_clm._exceptions import warn
from sklearn_clm._results import ComponentSet, PredictionSet, PredictionSets
from sklearn_clm.caching import DrawMemory, HumanJudge
from sklearn_clm.calibration import (
    ComponentCalibrationData,
    Provenance,
)
from sklearn_clm.calibration.rows import Part
from sklearn_clm.generators import Generation
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.policies.judging import Judging, judging_of
from sklearn_clm.policies.selection import labelled
from sklearn_clm.scoring import Citation, Citing, ClaimSupport, CombinedScore, get_splitter
from sklearn_clm.scoring._callables import is_ours
from sklearn_clm.scoring._components import (
    ComponentScoreLike,
    DistinctComponents,
    component_scores,
    distinct_components,
    get_component_score,
)
from sklearn_clm.scoring._similarity import warn_of_script
from sklearn_clm.scoring._splitters import Splitter, split_draws
from sklearn_clm.scoring.admission import get_component_admission
from sklearn_clm.scoring.protocols import Admission, ComponentScore, Prompt, Reference
from sklearn_clm.scoring.protocols import Part as ResponsePart

Parts: TypeAlias = list[list[ResponsePart]]  # of each draw of a prompt

_ROUNDING = 1e-4  # of the largest score: by less a score does not rise, it is rounded otherwise
_N_TRIED = 100  # prompts on which scores are tried


class CollectsComponents(Protocol):
    """A selector, as a collection of its components knows it."""

    @property
    def splitter(self) -> str | Splitter:
        """What splits a response."""

    @property
    def component_score(self) -> ComponentScoreLike:
        """Score of a component."""

    @property
    def admission(self) -> str | Admission:
        """Who says what is admissible."""

    @property
    def judging(self) -> str | Judging:
        """How many components are judged, and whether people audit."""

    @property
    def n_jobs(self) -> int | None:
        """Number of threads."""


class ComponentCollection:
    """Components of the draws of prompts, with scores and verdicts.

    The prompts are those at `rows`. `people` are the verdicts of those who audit the model's.
    """

    data: ComponentCalibrationData
    verdicts: ComponentVerdicts
    people: ComponentVerdicts | None = None
    noise = Noise()  # of scores that are given prompts alone

    def __init__(
        self,
        selector: CollectsComponents,
        source: DrawSource,
        prompts: CheckedPrompts,
        references: list[Reference],
        rows: np.ndarray,
        *,
        groups: list[Hashable] | None = None,
    ) -> None:
        self.source = source
        self.prompts = prompts.take(rows)
        self.indices = rows
        learnt = source.has_learnt(prompts) | trained_score(selector.component_score, prompts)
        left_out = np.flatnonzero(learnt)
        self.left_out = prompts.take(left_out)
        self.groups = None if groups is None else [groups[i] for i in rows]
        self.groups_left_out = None if groups is None else [groups[i] for i in left_out]
        self._references = [references[i] for i in rows]
        self._n_jobs = selector.n_jobs
        # in this order scores are computed, so that rounding does not depend on that of the rows
        self.place = np.argsort(rows_in_order(self.prompts, self._references))
        self._splitter = get_splitter(selector.splitter)
        self._component_score = get_component_score(selector.component_score)
        self._admission = get_component_admission(selector.admission, self._splitter)
        self._parts_as_given = {name: getattr(selector, name) for name in PARTS}
        people = judging_of(selector.judging).people
        self._people = None if people is None else get_component_admission(people, self._splitter)

    def __getstate__(self) -> dict[str, Any]:
        # verdicts hold their references; functions among them may not be picklable
        return {**self.__dict__, "_references": None}

    def _parts(self, prompts: CheckedPrompts, draws: list[list[Generation]]) -> list[Parts]:
        """The components of the draws of each prompt."""
        with noting_kept_draws():
            return split_draws(self._splitter, prompts.prompts, draws)

    def _scored(
        self, prompts: CheckedPrompts, draws: list[list[Generation]], parts: list[Parts]
    ) -> list[DistinctComponents]:
        """The distinct components among the `parts` of draws, with scores."""
        with noting_kept_draws():
            return components_of_draws(self._component_score, prompts.prompts, draws, parts)

    def _judged_by(
        self,
        admission: Admission,
        prompts: CheckedPrompts,
        references: list[Reference],
        draws: list[list[Generation]],
        split: list[DistinctComponents],
    ) -> ComponentVerdicts:
        responses = [[draw.response for draw in row] for row in draws]
        passages: list[Sequence[str]] = [()] * len(prompts)
        if isinstance(admission, HumanJudge) and isinstance(self._component_score, Citing):
            passages = [self._component_score.passages_beside(prompt) for prompt in prompts.prompts]
        # people are shown a prompt with its reference; a model that they audit is given the
        # reference
        of_model = self._people not in (None, admission)
        return ComponentVerdicts(
            admission, references, responses, split, passages, self._n_jobs, of_model=of_model
        )

    def try_on(self, memory: DrawMemory, width: int) -> None:
        """Split, score and judge a few draws before the others."""
        tried = self.prompts.take(np.arange(min(TRIED_PROMPTS, len(self.prompts))))
        draws = self.source.draws(memory, tried, min(TRIED_DRAWS, width))
        split = self._scored(tried, draws, self._parts(tried, draws))
        if any(len(distinct.components) for distinct in split):
            references = self._references[: len(tried)]
            with noting_kept_draws():
                self._judged_by(self._admission, tried, references, draws, split).try_on(0)

    def fill(
        self, memory: DrawMemory, width: int, provenance: Provenance, *, progress: Progress
    ) -> None:
        """Split and score all K draws, whatever budget was chosen.

        `provenance` is that of the draws; what split, scored and judged them is added to it.
        """
        prompts = self.prompts
        references = self._references
        n_draws = len(prompts) * width
        progress.expect("collect", n_draws, "draw")
        # all K draws, whatever the sampler's sets hold (section 4.4)
        draws = self.source.draws(memory, prompts, width, progress=progress)
        progress.expect("score", n_draws, "draw")
        # a score may be rounded otherwise in another batch
        order = np.argsort(self.place)
        prompts_in_order = prompts.take(order)
        draws_in_order = [draws[i] for i in order]
        parts = self._parts(prompts_in_order, draws_in_order)
        split = self._scored(prompts_in_order, draws_in_order, parts)

        # Proposition 4.4: no component may score higher among half of the draws; scores of this
        # package do not, and some of them cost
        score = self._component_score
        scores = score.parts if isinstance(score, CombinedScore) else [score]
        if not all(map(is_ours, scores)):
            n_tried = min(_N_TRIED, len(prompts))
            n_half = (width + 1) // 2
            tried = prompts_in_order.take(np.arange(n_tried))
            half_of_draws = [row[:n_half] for row in draws_in_order[:n_tried]]
            half_of_parts = [row[:n_half] for row in parts[:n_tried]]
            of_half = self._scored(tried, half_of_draws, half_of_parts)
            warn_of_falling_scores(split[:n_tried], of_half)

        # back in the order of rows
        split = [split[place] for place in self.place]
        parts = [parts[place] for place in self.place]
        progress.advance("score", n_draws)
        if in_batches(self._component_score):
            self.noise = self._noise_of(split, draws, parts)

        # last of all: calls change the fingerprint of a function that records them
        made_with: dict[str, Any] = {
            name: score_fingerprint(part) for name, part in self._parts_as_given.items()
        }
        unknown_labels = [np.full(len(distinct.components), -1) for distinct in split]
        self.data = ComponentCalibrationData.from_arrays(
            [distinct.scores for distinct in split],
            unknown_labels,
            prompts=prompts.digests,
            provenance=replace(provenance, k_max=width, **made_with),
        )

        if not all(map(callable, references)):
            responses = (draw.response for row in draws for draw in row)
            warn_of_script("admission", self._parts_as_given["admission"], responses)
        self.verdicts = self._judged_by(self._admission, prompts, references, draws, split)
        self.verdicts.progress = progress
        if self._people is not None:
            references_shown = shown_to(self._people, prompts, references)
            self.people = self._judged_by(self._people, prompts, references_shown, draws, split)

    def _noise_of(
        self,
        split: list[DistinctComponents],
        draws: list[list[Generation]],
        parts: list[Parts],
    ) -> Noise:
        """Differences of scores of prompts that are scored alone."""
        noise = Noise()
        # the last prompts in the order of digests: the same whatever the order of rows
        for i in np.argsort(self.place)[-SCORED_AGAIN:].tolist():
            one_prompt = self.prompts.take(np.array([i]))
            (alone,) = self._scored(one_prompt, [draws[i]], [parts[i]])
            noise = noise.with_larger(Noise.between(split[i].scores, alone.scores))
        return noise

    def holds(self, data: ComponentCalibrationData) -> bool:
        """Whether data are these components."""
        collected = self.data
        return (
            collected.provenance == data.provenance
            and collected.prompts is not None
            and data.prompts is not None
            and np.array_equal(collected.prompts, data.prompts)
            and np.array_equal(collected.scores, data.scores)
        )

    def judged(
        self,
        data: ComponentCalibrationData,
        alpha: float,
        parts: Sequence[Part] | None = None,
        max_wrong: int = 0,
    ) -> ComponentCalibrationData:
        """The data with all labels, or those that tests need."""
        # people may have changed their verdicts since
        if data.unknown is None and not self.verdicts.of_people:
            return data
        self.data = labelled(data, self.verdicts, alpha, parts, max_wrong=max_wrong)
        return self.data


def prompts_of_sampler(
    record: SamplerCalibration,
    prompts: CheckedPrompts,
    references: list[Reference],
    *,
    of_fit: bool,
) -> np.ndarray:
    """Positions of prompts that may calibrate after a sampler's `record`.

    Prompts that trained its generator may not; `of_fit` says that the sampler has seen, and perhaps
    weighted, these very prompts.
    """
    seen = record.source.has_learnt(prompts)
    text = f"{seen.sum()} of the {len(prompts)} prompts in X trained the generator of the sampler"
    if seen.all():
        raise ValueError(f"X must hold prompts that the sampler has not seen, got {text} instead.")
    if seen.any() and not of_fit:
        warn(f"{text} and are left out: the guarantee needs prompts that it has not seen.")
    if record.shift is None:
        return np.flatnonzero(~seen)
    if not of_fit:
        raise ValueError(
            "sampler must not be fitted yet where it has a shift, or stand before the selector in "
            "a pipeline, got a fitted one instead: its weights keep the same prompts for both."
        )
    # the prompts that weights kept for the sampler, each as often as the sampler has it
    n_unmatched = Counter(record.data.prompts.tolist())
    kept = []
    for i in rows_in_order(prompts, references).tolist():
        digest = int(prompts.digests[i])
        if n_unmatched[digest] and not seen[i]:
            n_unmatched[digest] -= 1
            kept.append(i)
    return np.sort(np.array(kept, dtype=np.intp))


def prompts_unseen_by(
    component_score: ComponentScoreLike, prompts: CheckedPrompts, rows: np.ndarray
) -> np.ndarray:
    """Positions, among `rows`, of prompts that trained no score."""
    seen = trained_score(component_score, prompts)[rows]
    if seen.all():
        raise ValueError(
            "X must hold some prompts that have not trained component_score, got only prompts that "
            "have trained it instead."
        )
    return rows[~seen]


def trained_score(component_score: ComponentScoreLike, prompts: CheckedPrompts) -> np.ndarray:
    """Which of the prompts trained a score, bool."""
    # of our own scores this one alone learns from labels
    score = get_component_score(component_score)
    if not isinstance(score, CombinedScore):
        return np.zeros(len(prompts), dtype=bool)
    return np.isin(prompts.digests, score.trained_on_)


def components_of_draws(
    component_score: ComponentScore,
    prompts: Sequence[Prompt],
    draws: Sequence[Sequence[Generation]],
    spans: Sequence[Parts],
    members: Sequence[Sequence[int]] | None = None,
    indices: Sequence[Sequence[int]] | None = None,
) -> list[DistinctComponents]:
    """Distinct components of each prompt's members, with scores.

    `members` are the places of each set's members among its `draws`, by default all of them, and
    `spans` the parts of every draw. Occurrences name a draw by its number in `indices`, by default
    by its place.
    """
    if members is None:
        members = [range(len(row)) for row in draws]
    numbers_of_members = members if indices is None else indices
    scores = component_scores(component_score, prompts, draws, spans, members=members)

    components = []
    rows = zip(draws, members, numbers_of_members, spans, scores)
    for row, members_of_row, numbers, spans_of_row, scores_of_row in rows:
        responses = [row[j].response for j in members_of_row]
        spans_of_members = [spans_of_row[j] for j in members_of_row]
        distinct = distinct_components(responses, numbers, spans_of_members, scores_of_row)
        components.append(distinct)
    return components


def _compares(component_score: ComponentScore) -> bool:
    """Whether a score compares the components of all draws."""
    if isinstance(component_score, CombinedScore):
        return any(map(_compares, component_score.parts))
    # with an entailment the support of a claim is read off the responses, not off their parts
    if isinstance(component_score, ClaimSupport) and component_score.entails is not None:
        return False
    return bool(getattr(component_score, "counts_taken_draws", False))


def components_of_sets(
    splitter: Splitter, component_score: ComponentScore, sets: Sequence[PredictionSet]
) -> list[DistinctComponents]:
    """Distinct components of the members of sets, scored."""
    prompts = [sampled.prompt for sampled in sets]
    # generations carry log-probabilities, if the set still holds its draws
    draws: list[Sequence[Generation]] = []
    members: list[Sequence[int]] = []
    indices: list[Sequence[int]] = []
    for sampled in sets:
        if sampled.generations:
            draws.append(sampled.generations)
            accepted = sampled.accepted.tolist()
            members.append(accepted)
            indices.append(accepted)
        else:
            draws.append([Generation(text) for text in sampled.responses])
            members.append(range(len(sampled)))
            indices.append(sampled.indices.tolist())

    # what was rejected need not be split, which may cost, unless the score compares components
    compares = _compares(component_score)
    split = [range(len(row)) for row in draws] if compares else members
    draws_to_split = [[row[j] for j in chosen] for row, chosen in zip(draws, split)]
    components_of_rows = split_draws(splitter, prompts, draws_to_split)
    parts: list[Parts] = [[[] for _ in row] for row in draws]
    for parts_of_row, chosen, components_of_row in zip(parts, split, components_of_rows):
        for j, components in zip(chosen, components_of_row):
            parts_of_row[j] = components
    return components_of_draws(component_score, prompts, draws, parts, members, indices)


def select_components(
    record: SelectorCalibration, sets: PredictionSets, groups: object = None
) -> list[ComponentSet]:
    """Components that reach the threshold of their group (Algorithm 2)."""
    # Proposition 4.4 bounds components of subsets of the K draws that calibrated, and of no others
    most_draws = max((sampled.n_samples for sampled in sets), default=0)
    refuse_larger_budget(most_draws, record.provenance.k_max)
    refuse_other_draws(sets, record.provenance, "the draws of calibration")

    prompts = CheckedPrompts([sampled.prompt for sampled in sets], numeric=False)
    by_group = record.rules
    if sets.provenance is None:  # sets made by hand do not know their draws
        by_group = {
            name: rule.having(claim=replace(rule.claim, unknown=("generator", "seed")))
            for name, rule in by_group.items()
        }
    groups_of_prompts = record.groups_of(groups, prompts)
    rules = [by_group[name] for name in groups_of_prompts]
    thresholds = [record.thresholds[name] for name in groups_of_prompts]
    certified = sets[np.array([rule.certified for rule in rules], dtype=bool)]

    # where nothing is certified nothing is selected, and nothing has to be scored
    split = iter(components_of_sets(record.splitter, record.component_score, certified))
    no_components = DistinctComponents([], np.empty(0), [])
    selected = []
    for sampled, rule, gamma_hat in zip(sets, rules, thresholds, strict=True):
        # `split` has as many parts as there are certified sets, in their order
        components, scores, occurrences = next(split) if rule.certified else no_components
        is_chosen = scores >= gamma_hat
        chosen = np.flatnonzero(is_chosen).tolist()
        rejected = np.flatnonzero(~is_chosen).tolist()
        kept = tuple(components[c] for c in chosen)
        left_out = [(components[c], scores[c], occurrences[c]) for c in rejected]

        citations: list[tuple[Citation, ...]] = []
        if len(kept) and isinstance(record.component_score, Citing):
            cited = record.component_score.cite(sampled.prompt, kept)
            citations = [() if citation is None else (citation,) for citation in cited]
        selected.append(
            ComponentSet(
                components=kept,
                scores=scores[is_chosen],
                occurrences=tuple(tuple(occurrences[c]) for c in chosen),
                prediction_set=sampled,
                guaranteed=rule.certified,
                claim=rule.claim,
                citations=tuple(citations),
                left_out=tuple(left_out),
            )
        )

    maker = record.sampler if sets.sampler is None else sets.sampler  # a pickle of sets loses it
    if sets.of_fit and maker is not None:
        selected = maker.calibration_.source.unguaranteed(selected, prompts)
    return selected


def _first_places(split: DistinctComponents) -> list[Any]:
    """Where each component occurs first; of claims their texts, too."""
    places = []
    for component, occurrences in zip(split.components, split.occurrences):
        text = component.strip() if isinstance(component, str) else None
        places.append((occurrences[0], text))
    return places


def warn_of_falling_scores(
    of_all: Sequence[DistinctComponents], of_some: Sequence[DistinctComponents]
) -> None:
    """Warn if components score higher among fewer draws."""
    scores = [
        score for of_prompt in of_all for score in of_prompt.scores.tolist() if np.isfinite(score)
    ]
    # sums of likelihoods round by their order
    rounding = _ROUNDING * max(map(abs, scores), default=0.0)
    n_found = 0
    higher = []
    for of_prompt, part in zip(of_all, of_some, strict=True):
        # a component is known by where it occurs first, which is the same among fewer draws
        score_of = dict(zip(_first_places(of_prompt), of_prompt.scores.tolist()))
        for name, score, place in zip(part.components, part.scores.tolist(), _first_places(part)):
            n_found += 1
            among_all = score_of[place]
            if score > among_all + rounding:
                higher.append(f"{score:.3g} in place of {among_all:.3g} for {name!r:.80}")
    if higher:
        warn(
            f"component_score rises where draws are taken away, for {len(higher)} of {n_found} "
            f"components of calibration prompts, such as {higher[0]}. Proposition 4.4 of the paper "
            "does not hold for such a score, and more selections may be wrong than alpha allows. "
            "Wanted one that never falls when draws are added: the number of draws that agree, "
            "say, and not their share."
        )
