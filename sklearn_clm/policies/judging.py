"""Who judges, how many draws, and what tests follow."""

import math
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_clm.calibration import Claim, ComponentCalibrationData
from sklearn_clm.calibration.exit_model import impute_labels
from sklearn_clm.calibration.outcome import Audited
from sklearn_clm.calibration.path import Path, TablePath
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.calibration.rows import Part, RandomState
from sklearn_clm.calibration.table import Table
from sklearn_clm.policies._asking import CollectedDraws, CollectedJudge
from sklearn_clm.policies._classifiers import classifier_factory, one_thread
from sklearn_clm.scoring.admission import get_admission
from sklearn_clm.scoring.protocols import Admission

if TYPE_CHECKING:
    from sklearn_clm.policies.base import Policy
    from sklearn_clm.policies.rules import Rule

LearntT = TypeVar("LearntT", contravariant=True)  # what a search returns
TableT = TypeVar("TableT", contravariant=True)  # where its steps are tested
PathT = TypeVar("PathT", bound=Path)
TablePathT = TypeVar("TablePathT", bound=TablePath)

# of an optimisation prompt: two labels tell which texts are near copies
_FEWEST_JUDGEMENTS = 2
_MOST_JUDGEMENTS = 3
_ENOUGH_LABELS = 500  # in all: with more of them two for each prompt teach as well


class Auditable(Protocol[LearntT, TableT, PathT]):
    """What people may audit: a policy, or a selection."""

    @property
    def risk(self) -> Risk:
        """What is an error, and who counts."""

    def path_on(self, learnt: LearntT, table: TableT, part: Part, rows: np.ndarray) -> PathT:
        """What is tested on a part, on some prompts."""

    def by_people(
        self, people: CollectedJudge, path: PathT, step: int, part: Part, claim: Claim
    ) -> "Rule":
        """The usual test of a step, judged by people."""

    def audited(self, path: PathT, step: int, audit: Audited, claim: Claim, part: Part) -> "Rule":
        """The rule of a step that was audited."""


class Judging:
    """Judge all draws; other ways of judging change a part."""

    lazily: ClassVar[bool] = False  # whether tests ask for the labels
    audits: ClassVar[bool] = False  # whether each test asks people for verdicts of its own
    people: str | Admission | None = None  # the admission of those who audit
    optimization_judgements: int | str | None = "auto"
    optimization_admission: str | Admission | None = None

    def refuse(self, level: float, delta: float) -> None:
        """Refuse what certifies nothing at a level."""

    def split(
        self,
        data: ComponentCalibrationData,
        random_state: RandomState,
        ties: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Prompts that choose a rule of components, and that test.

        Both are in the order of the data's digests, rows of one prompt in that of `ties`.
        """
        return np.arange(0), data.order(ties)

    def for_collection(self, collection: CollectedDraws) -> "Judging":
        """This judging, of what an estimator has collected."""
        return self

    def rule_for(
        self,
        policy: "Policy[LearntT, TablePathT, Any]",
        learnt: LearntT,
        table: Table,
        part: Part,
        claim: Claim,
    ) -> "Rule":
        """The rule that a policy's tests of a part certify."""
        return policy.rule_for(learnt, table, part, claim)

    def refuse_policy(self, policy: "Policy[Any, Any, Any]", k_max: int) -> None:
        """Refuse parameters that would fail after draws were paid."""
        self.judgements_per_prompt(1, k_max)
        if self.optimization_admission is not None:
            get_admission(self.optimization_admission, "optimization_admission")

    def judgements_per_prompt(self, n_prompts: int, k_max: int) -> int:
        """How many draws of each optimisation prompt are judged."""
        wanted = self.optimization_judgements
        if wanted is None:
            return k_max
        if isinstance(wanted, str):
            enough = math.ceil(_ENOUGH_LABELS / max(n_prompts, 1))
            return min(max(enough, _FEWEST_JUDGEMENTS), _MOST_JUDGEMENTS, k_max)
        if wanted > k_max:
            raise ValueError(
                f"optimization_judgements must be at most k_max={k_max}, got {wanted} instead."
            )
        return wanted

    def labels(
        self, table: Table, rows: np.ndarray, texts: np.ndarray, random_state: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Labels of the optimisation part: some judged, the others estimated.

        The labels are those of the prompts at `rows`, (n, K); `texts`, (n, K), is the draw in which
        each draw's text occurs first. Returns all labels as bool, and those that were judged: 1, 0,
        or -1 for unknown. A table that is filled has them all.
        """
        if not table.is_lazy:
            return table.labels[rows] == 1, table.labels[rows]
        if self.optimization_admission is not None and isinstance(table.judge, CollectedJudge):
            # in a table of its own, so that none of these labels enters a test
            other = table.judge.by(self.optimization_admission)
            labels_by_other = other.labels[:, : table.k_max]
            table = Table(table.filled().with_labels(labels_by_other), judge=other)

        # in one call, with the draws of a prompt side by side
        n_prompts, k_max = texts.shape
        rng = np.random.default_rng(random_state)
        is_chosen = _random_texts(texts, self.judgements_per_prompt(n_prompts, k_max), rng)
        row_of_prompt = rows[:, np.newaxis]
        is_unknown = table.labels_at(row_of_prompt, texts) < 0
        prompts, draws = np.nonzero(is_chosen & is_unknown)
        if len(prompts):
            table.ask(rows[prompts], draws)

        # the labels of the others are estimated
        judged = table.labels_at(row_of_prompt, texts)
        if (judged >= 0).any():
            factory = classifier_factory(None)
            with one_thread():
                labels = impute_labels(table.part(rows), texts, judged, factory, random_state)
            return labels, judged
        # nobody was asked: a text is as likely to be admissible as its share of the draws
        is_same_text = texts[:, :, np.newaxis] == texts[:, np.newaxis, :]
        share = np.mean(is_same_text, axis=2)
        coin_of_text = np.take_along_axis(rng.random(texts.shape), texts, axis=1)
        return coin_of_text < share, judged


def _random_texts(texts: np.ndarray, n_wanted: int, rng: np.random.Generator) -> np.ndarray:
    """First draws of a random sample of each prompt's texts.

    `texts`, (n, K), is the draw in which each draw's text occurs first; the sample is bool, (n, K).
    """
    # the first so many of a random order, in which repetitions come last
    random_order = np.argsort(rng.random(texts.shape), axis=1)
    is_text = texts == np.arange(texts.shape[1])
    is_repetition = ~np.take_along_axis(is_text, random_order, axis=1)
    texts_first = np.argsort(is_repetition, axis=1, kind="stable")
    order = np.take_along_axis(random_order, texts_first, axis=1)
    is_chosen = np.zeros(texts.shape, dtype=bool)
    np.put_along_axis(is_chosen, order[:, :n_wanted], True, axis=1)
    # a prompt of fewer texts has no more to choose
    return is_chosen & is_text


class LazyJudging(BaseEstimator, Judging):
    """Judge only what decides the tests.

    On the calibration part draws are judged until each test is decided; the decision is always the
    same as with all labels. An exit policy saves draws, too; thresholds need nearly all. On the
    optimisation part a few draws of each prompt are judged, and the other labels are estimated.

    Parameters
    ----------
    optimization_judgements : int, "auto" or None, default="auto"
        Number of draws of each optimisation prompt to judge, at most K; equal responses count
        once. "auto" is three, or two if these give 500 labels. None judges all draws. With 0 all
        labels are estimated, by the share of a text among the draws.
    optimization_admission : str or callable, default=None
        The judge of the optimisation part, in place of the sampler's `admission`: a cheap judge,
        such as "rouge_l" or a model, if people judge the calibration part. None: the same judge.

    Notes
    -----
    Another judge is valid there, since fixed sequence testing holds for every path that does not
    depend on the calibration part. Labels of the optimisation part never enter a test: wrong labels
    only cause more draws, larger sets, or no guarantee. Equal pairs of different prompts are asked
    one by one: a :class:`sklearn_clm.caching.CachedAdmission` asks each once.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import LazyJudging
    >>> sampler = ConformalSampler(judging=LazyJudging(optimization_judgements=2))
    >>> sampler.get_params()["judging__optimization_judgements"]
    2
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "optimization_judgements": [
            None,
            StrOptions({"auto"}),
            Interval(Integral, 0, None, closed="left"),
        ],
        "optimization_admission": [None, str, callable],
    }
    lazily: ClassVar[bool] = True

    def __init__(
        self,
        *,
        optimization_judgements: int | str | None = "auto",
        optimization_admission: str | Admission | None = None,
    ) -> None:
        self.optimization_judgements = optimization_judgements
        self.optimization_admission = optimization_admission


def judging_of(judging: str | Judging) -> Judging:
    """The judging that a name stands for."""
    if isinstance(judging, Judging):
        return judging
    return LazyJudging() if judging == "lazy" else Judging()
