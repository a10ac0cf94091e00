"""ConformalSampler: when to stop sampling, and what to reject."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypedDict

import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._estimators._agreement import (
    check_fitted_prompts,
    refuse_differences,
    refuse_other_shift,
)
from sklearn_clm._estimators._base import N_JOBS, CalibratedEstimator
from sklearn_clm._estimators._calibration import Calibration, SamplerCalibration
from sklearn_clm._estimators._collection import SCORES, Collection
from sklearn_clm._estimators._open_sets import OnAccept, sample_sets
from sklearn_clm._estimators._precision import check_precision
from sklearn_clm._estimators._progress import Progress
from sklearn_clm._estimators._source import DrawSource, source_of
from sklearn_clm._estimators._table import table_of
from sklearn_clm._estimators._threads import in_thread
from sklearn_clm._estimators._watch import Watch
from sklearn_clm._exceptions import described, naming_parameters, warn_of_supervised_steps
from sklearn_clm._results import PredictionSets
from sklearn_clm.calibration import CalibrationData, Provenance
from sklearn_clm.calibration.checks import check_budgets
from sklearn_clm.calibration.data import check_data
from sklearn_clm.calibration.risk import Risk, check_found_again
from sklearn_clm.calibration.set_scores import SetScoreLike
from sklearn_clm.calibration.tiers import check_tiers
from sklearn_clm.generators import Generation, Generator
from sklearn_clm.generators.base import trait
from sklearn_clm.generators.identity import frozen, score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts, check_prompts
from sklearn_clm.policies import (
    AnswerPolicy,
    AuditedJudging,
    CovariateShift,
    ExitPolicy,
    Groups,
    LazyJudging,
    Losses,
    ThresholdPolicy,
)
from sklearn_clm.policies.base import Policy
from sklearn_clm.policies.groups import groups_of, parameters_of_groups
from sklearn_clm.policies.judging import Judging, judging_of
from sklearn_clm.policies.shift import weights_of
from sklearn_clm.scoring._quality import QualityLike, needs_logprobs
from sklearn_clm.scoring._similarity import SimilarityLike, get_similarity
from sklearn_clm.scoring.admission import get_admission
from sklearn_clm.scoring.protocols import Admission
from sklearn_clm.scoring.verdicts import check_admissions

_LOGGER = logging.getLogger("sklearn_clm")
_BASELINE = (
    "generator is None, so that draws are references of other prompts: a baseline that looks at no "
    "prompt. Give your model as generator, or ResamplingGenerator() to say that this is meant."
)


def _unlabeled(response: object) -> bool:
    """Admission of prompts without labels; its verdicts are unused."""
    return False


class FrozenScores(TypedDict):
    """Copies of what predictions use of a sampler."""

    quality: QualityLike
    similarity: SimilarityLike
    set_score: SetScoreLike
    risk: Risk


class ConformalSampler(CalibratedEstimator[SamplerCalibration, CalibrationData, Collection]):
    """Sample responses until the set holds an admissible one.

    ``fit`` calibrates by Learn Then Test (section 4.3 of the paper) when to stop sampling and
    which draws to throw away; ``predict`` then runs Algorithm 1. With probability at least
    1 - `delta` over the calibration prompts, a new prompt's set holds an admissible response with
    probability at least 1 - `epsilon` (Eq. 1).

    Parameters
    ----------
    generator : generator, default=None
        The source of draws, see :mod:`sklearn_clm.generators`. A generator with a ``fit`` method
        is cloned and fitted on `training_fraction` of the data, which calibration never sees. None
        is :class:`sklearn_clm.generators.ResamplingGenerator`, a baseline that ignores the prompt,
        and ``fit`` warns of it.
    k_max : int or sequence of int, default=20
        Budget of draws per prompt. From a sequence calibration chooses one, under the same
        guarantee, if `policy` is one of thresholds.
    epsilon, delta : float, default=0.3, 0.05
        Tolerated probabilities, in (0, 1): of a set without an admissible response, and of a
        calibration after which such sets are more frequent than `epsilon`.
    admission : str or callable, default="exact_match"
        ``admission(reference, response) -> bool``, if `y` holds references. A list, tuple or set
        holds several references, of which one must match; a dict, or a row of numbers, is one.
    quality : str, callable or classifier, default="likelihood"
        Quality Q of a draw: "likelihood", "self_consistency", "p_true", a callable
        ``quality(prompt, generation) -> float``, or a fitted classifier with ``predict_proba``.
    similarity : str, callable or object with ``pairwise``, default="rouge_l"
        Similarity S of two responses: a name or ``similarity(a, b) -> float``. One that finds free
        texts of one meaning alike lets thresholds reject draws that agree, so that few sets stop
        early: then take ``quality="self_consistency"``, or an :class:`ExitPolicy`.
    policy : ThresholdPolicy, ExitPolicy or AnswerPolicy, default=None
        When sampling stops, and what is returned. None is ``ThresholdPolicy()``, as in the paper.
    judging : {"all", "lazy"}, LazyJudging or AuditedJudging, default="all"
        "all": ``fit`` judges all draws. "lazy": only those that decide a test; with an exit policy
        fewer are made, too. With an :class:`AuditedJudging` people audit `admission`.
    groups : Groups, default=None
        A guarantee within each group of prompts. None: one guarantee for all prompts together,
        unless ``fit`` is given groups.
    shift : CovariateShift, default=None
        A guarantee for new prompts from another distribution than the calibration prompts.
    losses : Losses, default=None
        Further losses of a set, each controlled at a level of its own; for thresholds with
        ``judging="all"``.
    training_fraction : float, default=0.5
        Share of the prompts, in (0, 1), that trains a generator.
    optimization_fraction : float or "auto", default="auto"
        Share of the other prompts, in (0, 1), on which the rules to be tested are chosen. "auto"
        is a third; with an :class:`ExitPolicy` a fifth, or 60 prompts if that is more, with an
        :class:`AnswerPolicy` 12 %, or 36 prompts if that is more, but at most a third.
    on_null : {"warn", "raise"}, default="warn"
        Whether ``fit`` warns or raises if nothing can be certified. After a warning ``predict``
        returns all draws, with ``guaranteed=False``.
    random_state : int, RandomState instance or None, default=None
        An int is the seed of the draws and of the splits. With None the seed of the draws is 0,
        and the splits are computed from the prompts: fitting again gives the same result. The
        order of the prompts changes nothing, whatever the seed.
    n_jobs : int or None, default=None
        Processes or threads for scores and admissions.
    verbose : int, default=0
        Whether to show progress, a line for each stage: collect, score, judge, calibrate.

    Attributes
    ----------
    calibration_ : SamplerCalibration
        Everything that ``predict`` depends on; later changes of parameters have no effect on it.
        ``calibration_.claim.sentence()`` states the guarantee.
    lambda_hat_ : Configuration or None
        The chosen thresholds, named `similarity`, `quality` and `set_score`; None if none are
        certified, and for other policies, whose level is ``calibration_.rule.level``.
    frontier_, p_values_, valid_lambdas_ : Frontier, ndarray, ndarray of shape (m, 3)
        The configurations in the order of their tests, their p-values, and the certified ones.
        `result_` holds all of the tests, and is None if there were too few prompts.
    achievable_epsilon_ : tuple of float (low, high)
        Error of always drawing K, and of always drawing one (appendix C); NaN with lazy judging.
    groups_, shift_ : dict, Shift or None
        With groups the rule of each group (other attributes are about all prompts together, which
        are not tested where that would ask for verdicts); the shift for which the guarantee holds.
    calibration_data_, calibration_indices_, calibration_draws_ : CalibrationData, ndarray, lists
        The data of calibration, the positions in X of its prompts, and the draws. `n_draws_`
        draws were made, and `n_judgements_` judged, with equal responses of a prompt counted once.
    generator_, k_max_, seed_ : generator, int, int
        The generator, the budget and the seed in use.
    memory_ : DrawMemory
        The draws of this process, which are never made twice; ``memory_.clear()`` drops them.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of X, for two-dimensional X, and their names, for a data frame.

    Notes
    -----
    The guarantee is Theorem 4.2 of the paper. It needs calibration prompts and new prompts that
    are independent draws of one distribution, and nothing about the model. Draw j for a prompt
    depends on the generator, the prompt, the seed and j alone: *given the seed*, the losses of
    independent prompts are independent. The guarantee is about random new prompts, and can be
    used once: :mod:`sklearn_clm.calibration` says what voids it. It also holds for any admission
    that is less strict than the one in `fit` (Corollary A.4).

    All rows of one prompt stand on the same side of every split. But a test counts rows: where many
    of those that it uses, or that may err, repeat a prompt, ``fit`` warns and the claim says so.
    Pass each prompt once, with a list of its references. A service without keyed draws gives other
    draws once `memory_` is gone: wrap it in a :class:`sklearn_clm.caching.CachedGenerator`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.utils import shuffle
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.generators import EstimatorGenerator
    >>> X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    >>> generator = EstimatorGenerator(GaussianNB(var_smoothing=3.0))
    >>> sampler = ConformalSampler(generator, k_max=5, epsilon=0.2, random_state=0)
    >>> sampler.fit(X[:1000], y[:1000]).lambda_hat_ is not None
    True
    >>> sets = sampler.predict(X[1000:])
    >>> float(sum(label in one for label, one in zip(y[1000:], sets)) / len(sets)) > 0.8
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "generator": [object],  # checked by hand: the error says how to wrap a function or a model
        "k_max": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "epsilon": [Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "admission": [str, callable],
        "quality": [str, callable, HasMethods("predict_proba"), HasMethods("score_draws")],
        "similarity": [str, callable, HasMethods("pairwise")],
        "policy": [None, ThresholdPolicy, ExitPolicy, AnswerPolicy, Policy],
        "judging": [StrOptions({"all", "lazy"}), LazyJudging, AuditedJudging],
        "groups": [None, Groups],
        "shift": [None, CovariateShift],
        "losses": [None, Losses],
        "training_fraction": [Interval(Real, 0, 1, closed="neither")],
        "optimization_fraction": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
        "n_jobs": N_JOBS,
        "verbose": ["verbose"],
    }
    _record_type: ClassVar[type[Calibration]] = SamplerCalibration
    _collected: Collection | None
    _source: DrawSource

    @naming_parameters
    def __init__(
        self,
        generator: Generator | None = None,
        *,
        k_max: int | Sequence[int] = 20,
        epsilon: float = 0.3,
        delta: float = 0.05,
        admission: str | Admission = "exact_match",
        quality: QualityLike = "likelihood",
        similarity: SimilarityLike = "rouge_l",
        policy: ThresholdPolicy | ExitPolicy | AnswerPolicy | None = None,
        judging: str | LazyJudging | AuditedJudging = "all",
        groups: Groups | None = None,
        shift: CovariateShift | None = None,
        losses: Losses | None = None,
        training_fraction: float = 0.5,
        optimization_fraction: float | Literal["auto"] = "auto",
        on_null: str = "warn",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.generator = generator
        self.k_max = k_max
        self.epsilon = epsilon
        self.delta = delta
        self.admission = admission
        self.quality = quality
        self.similarity = similarity
        self.policy = policy
        self.judging = judging
        self.groups = groups
        self.shift = shift
        self.losses = losses
        self.training_fraction = training_fraction
        self.optimization_fraction = optimization_fraction
        self.on_null = on_null
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def collect(
        self,
        prompts: object,
        admissions: object = ...,
        *,
        groups: object = None,
        prompt_weight: object = None,
    ) -> CalibrationData:
        """Draw, score and judge: the expensive half of ``fit``.

        Forgets an earlier calibration, since the generator may be fitted anew.

        Parameters
        ----------
        prompts, admissions, groups, prompt_weight
            As X, y, groups and prompt_weight in :meth:`fit`. With `admissions` None, which must be
            said, nothing is judged, and an earlier calibration stays: the draws are those of the
            generator in use, and can train an :class:`sklearn_clm.policies.ExitPolicy`.

        Returns
        -------
        CalibrationData
            K draws for each prompt, without prompts that trained the generator. The data record
            with which generator, seed and scores they were collected.
        """
        self._validate_params()
        # None has a meaning: who forgets the references would pay for draws that nobody judges
        if admissions is ...:
            raise TypeError(
                "admissions must hold, for each prompt, a reference or a function of a response, "
                "or be None where nothing is to be judged; got no admissions instead."
            )
        if admissions is None:
            return self._collect_unlabeled(prompts)
        return self._collect(prompts, admissions, groups, prompt_weight)

    def _collect_unlabeled(self, X: object) -> CalibrationData:
        """Collect all draws of prompts without labels."""
        prompts = check_prompts(X)
        source = self._source_of("prompts", Provenance())
        # a generator is surer of what trained it
        rows = np.flatnonzero(~source.has_learnt(prompts))
        if not len(rows):
            raise ValueError(
                "prompts must hold some that have not trained the generator, got only prompts that "
                "have trained it instead."
            )
        collected = Collection(self, source, prompts, [_unlabeled] * len(prompts), rows)
        collected.fill(collected.data.k_max, judges=False, keeps=False)
        return collected.data

    def _collect(
        self, X: object, y: object, groups: object, prompt_weight: object, *, lazily: bool = False
    ) -> CalibrationData:
        """Collect all draws, or `lazily` the first of each prompt."""
        collected = self._new_collection(X, y, groups, prompt_weight)
        return self._fill(collected, lazily=lazily)

    def _new_collection(
        self, X: object, y: object, groups: object, prompt_weight: object
    ) -> Collection:
        """Train the generator, and begin a collection without draws."""
        # mistakes are found before anything is paid for
        prompts = check_prompts(X)
        references = check_admissions(y, len(prompts), estimator=self)
        names = groups_of(self.groups, groups, len(prompts), prompts)
        weights = weights_of(self.shift, prompt_weight, prompts)
        self._check_scores(self.generator)
        warn_of_supervised_steps()
        source, rows = DrawSource.train(
            self.generator,
            prompts,
            references,
            fraction=self.training_fraction,
            random_state=self.random_state,
        )

        # what a shift drops is neither drawn nor judged
        shift = None
        if weights is not None and self.shift is not None:
            digests = prompts.digests[rows]
            kept, shift = self.shift.applied(weights[rows], digests, source.seed)
            rows = rows[kept]
        rows = np.sort(rows)  # as they were given

        # audits that cannot certify anything are refused before the draws that they would be about
        level = (self.groups or Groups()).level(self.delta, names, rows)
        self._judging.refuse(self._level, level)
        groups_given = None if groups is None else names  # a function computes its groups again
        return Collection(self, source, prompts, references, rows, groups=groups_given, shift=shift)

    def _fill(self, collected: Collection, *, lazily: bool) -> CalibrationData:
        """Make the draws of a collection, and keep it."""
        judges_lazily = self._judging.lazily
        n_draws = collected.data.k_max
        if lazily and judges_lazily and not collected.has_holes:
            # one draw of each prompt, on which scores are tried; tests ask for the others
            n_draws = 1
        # draws that are judged later, or anew, are kept, and so are those that losses are given
        are_judged_later = self.judging != "all" or collected.verdicts.of_people
        keeps = are_judged_later or self.losses is not None
        collected.fill(n_draws, judges=not judges_lazily, keeps=keeps)

        prompts = collected.prompts
        self._forget_fit()
        self._source = collected.source
        self._collected = collected
        self._numeric_prompts = prompts.numeric
        self.calibration_data_ = collected.data
        self.calibration_indices_ = collected.indices
        if prompts.n_features is not None:
            self.n_features_in_ = prompts.n_features
        if prompts.feature_names is not None:
            self.feature_names_in_ = prompts.feature_names
        return collected.data

    def calibrate(self, data: CalibrationData, *, groups: object = None) -> "ConformalSampler":
        """Calibrate on collected data: the instant half of ``fit``.

        Once collected, data can be calibrated for many `epsilon`, `delta`, policies and smaller
        `k_max`.

        Parameters
        ----------
        data : CalibrationData
            From :meth:`collect`, or loaded. Bare arrays are allowed; the results are then marked
            "provenance unknown". Predictions use the seed of the data, if the data record it.
        groups : sequence of length n, default=None
            The group of each prompt of `data`; None means the groups given to :meth:`collect`.

        Returns
        -------
        ConformalSampler
            Itself.
        """
        self._validate_params()
        check_data(data, draws=False, labels=False)
        refuse_differences("data", vars(data.provenance), self._fingerprints())
        return self._calibrated(data, groups=groups)

    def _calibrated(self, data: CalibrationData, *, groups: object = None) -> "ConformalSampler":
        collected, source = self._origin_of(data)
        names = self._groups_of(data, collected, groups)
        provenance = data.provenance

        policy = self._policy
        # rows of one prompt have one digest: their places order them by their references
        ties = None if collected is None else collected.place
        fraction = self.optimization_fraction
        searched, tested = policy.split(data, fraction, self.random_state, ties)
        parts = self._parts(searched, tested, collected, names, groups)
        self._judging.refuse(self._level, parts[0].delta)

        losses = {} if self.losses is None else self.losses.claimed()
        grouped = names is not None
        promise = policy.promise(self.epsilon)
        claim = self._claim_of(provenance, grouped, promise, losses=losses)

        with (
            Progress(self.verbose) if collected is None else collected.drawing(self.memory_)
        ) as progress:
            progress.expect("calibrate", 1, "step")
            judging = self._judging
            table = table_of(
                data,
                collected,
                budgets=check_budgets(self.k_max),
                tiers=source.tiers_priced_by(self.generator),
                judging=judging,
                risk=policy.risk,
                losses=self.losses,
            )
            if collected is not None:
                judging = judging.for_collection(collected)
            rules = policy.calibrate(table, parts, claim, judging)
            progress.advance("calibrate")

        # what the tests asked for is part of the data from now on
        filled = table.filled()
        lazily = table.is_lazy
        filled.provenance = provenance
        if collected is not None and filled.k_max == collected.data.k_max:
            collected.data = filled  # it holds the new labels of a lazy table

        record = SamplerCalibration(
            rules=rules,
            width=table.k_max,
            weights=policy.weights,
            source=source,
            n_judgements=collected.verdicts.n_judgements if collected and lazily else None,
            **self._record_fields(filled, grouped),
            **self._frozen(),
        )

        noise = {} if collected is None else collected.noise
        doubts = check_precision(record.in_use, filled, names, record.set_score, noise)
        if self.generator is None and collected is not None:
            doubts.append(_BASELINE)
        self._keep(record, collected, doubts)
        return self

    def predict(self, X: object, *, groups: object = None) -> PredictionSets:
        """Sample a set of responses for each prompt (Algorithm 1).

        Draws are made only as the stopping rule asks for them.

        Parameters
        ----------
        X : sequence of length n, or numeric array of shape (n, d)
            Prompts.
        groups : sequence of length n, default=None
            The group of each prompt, where calibration was given groups.

        Returns
        -------
        PredictionSets
            One set for each prompt; if nothing is certified all draws, ``guaranteed=False``. Where
            a table of draws ends before the rule does, the set says that it `needs_draws`.
        """
        check_is_fitted(self)
        checked = check_fitted_prompts(self, X)
        record = self.calibration_
        # logged, not warned: a service may be asked anything, and its operator should know
        seen = np.append(record.seen, record.source.trained_on)
        if n_seen := int(np.isin(checked.digests, seen).sum()):
            text = "predict: %d of %d prompts calibrated, or trained the generator."
            _LOGGER.info(text, n_seen, len(checked))
        return self._sets(checked, groups)

    async def apredict(
        self, X: object, *, groups: object = None, on_accept: OnAccept | None = None
    ) -> PredictionSets:
        """Predict in a thread while an event loop runs.

        Parameters
        ----------
        X, groups
            As in :meth:`predict`.
        on_accept : callable, default=None
            A plain function: ``on_accept(i, generation)`` is called in the event loop as soon as a
            draw joins the set of prompt `i`. The guarantee is about the complete set.

        Returns
        -------
        PredictionSets
            Those of ``predict(X)``. A cancelled task begins no further draw; draws under way are
            kept for the next call, but for those of an ``async`` function, which are cancelled
            where nobody else waits for them.
        """
        check_is_fitted(self)
        checked = check_fitted_prompts(self, X)
        if on_accept is None:
            return await in_thread(partial(self._sets, checked, groups))
        loop = asyncio.get_running_loop()

        # from the thread that predicts to the loop that awaits it
        def accept_in_loop(i: int, generation: Generation) -> None:
            loop.call_soon_threadsafe(on_accept, i, generation)

        return await in_thread(partial(self._sets, checked, groups, accept_in_loop))

    def score(self, X: object, y: object = None, *, groups: object = None) -> float:
        """Minus the objective of Eq. 7 on the given data.

        Give other prompts than those of ``fit``, on which thresholds look better than they are.

        Parameters
        ----------
        X, y, groups
            As in :meth:`fit`.

        Returns
        -------
        float
            ``-(size_weight * mean size + excess_weight * mean excess + draw_weight * mean
            draws)``; -inf, without a draw, if nothing is certified.
        """
        # here, since its scorers import sklearn.metrics, which takes long
        from sklearn_clm.metrics._sets import judge_sets, objective_of

        check_is_fitted(self)
        checked = check_fitted_prompts(self, X)
        references = check_admissions(y, len(checked), estimator=self)
        record = self.calibration_
        if not record.certified:
            return -np.inf
        sets = self.predict(checked, groups=groups)
        if any(a_set.needs_draws for a_set in sets):
            raise ValueError("X must have all draws that the rule takes, got prompts with fewer.")
        outcomes = judge_sets(self.admission, references, sets, n_jobs=self.n_jobs)
        return -objective_of(outcomes, **record.weights)

    @property
    def calibration_draws_(self) -> list[list[Generation]]:
        """The draws of the calibration prompts, made again if necessary."""
        collected = getattr(self, "_collected", None)
        if collected is None or not hasattr(self, "calibration_indices_"):
            raise AttributeError("calibration_draws_ needs data that this estimator collected.")
        return collected.source.draws(self.memory_, collected.prompts, collected.n_draws)

    # --- parameters ---------------------------------------------------------------------------

    @property
    def _policy(self) -> Policy:
        return ThresholdPolicy() if self.policy is None else self.policy

    @property
    def _level(self) -> float:
        """The tolerated risk, of the policy or the sampler."""
        return float(self._policy.promise(self.epsilon)["level"])

    @property
    def _judging(self) -> Judging:
        return judging_of(self.judging)

    def _validate_params(self) -> None:
        generator = self.generator
        # a class has the method as well, and cannot draw
        can_draw = hasattr(generator, "sample") and not isinstance(generator, type)
        if generator is not None and not can_draw:
            raise TypeError(
                f"generator must be an object with a method sample, got {described(generator)} "
                "instead. Wrap a function as FunctionGenerator(ask), a checkpoint's name as "
                "TransformersGenerator(name), a classifier as EstimatorGenerator(classifier)."
            )

        super()._validate_params()

        budgets = check_budgets(self.k_max)
        check_tiers(trait(generator, "tiers"), budgets[-1])
        policy = self._policy
        check_found_again(policy.risk)
        policy.refuse(self.k_max, self.judging)
        self._judging.refuse(self._level, self.delta)
        self._judging.refuse_policy(policy, budgets[-1])

        # other losses are tested along a list of thresholds; levels are nested in one risk alone
        if self.losses is not None and not isinstance(policy, ThresholdPolicy):
            raise ValueError(
                f"policy must be a ThresholdPolicy with losses, got {policy!r:.60} instead."
            )
        if self.losses is not None and self.judging != "all":
            raise ValueError(f"judging must be 'all' with losses, got {self.judging!r} instead.")

        marginal = policy.guarantee == "marginal"
        if marginal and self.groups is not None and self.groups.guarantee == "all":
            raise ValueError(
                "groups must have guarantee='each' with a marginal guarantee, got 'all' instead: "
                "an average over calibrations has no delta to share among groups."
            )

    def _check_scores(self, generator: Any) -> None:
        """Refuse scores that must fail, before draws are paid for."""
        # for their errors alone: unknown names cost nothing yet
        get_similarity(self.similarity)
        get_admission(self.admission)
        if needs_logprobs(self.quality) and not trait(generator, "gives_logprobs"):
            raise ValueError(
                f"quality={self.quality!r:.40} needs log-probabilities, and generator "
                f"{generator!r:.60} gives none (a table of draws has them in columns logprob= and "
                "n_tokens=); give another quality, such as 'self_consistency' or a callable."
            )

    def _fingerprints(self) -> dict[str, str]:
        return {name: score_fingerprint(getattr(self, name)) for name in SCORES}

    def _frozen(self) -> FrozenScores:
        policy = self._policy
        return {
            "quality": frozen(self.quality),
            "similarity": frozen(self.similarity),
            "set_score": frozen(policy.set_score),
            "risk": policy.risk,
        }

    def _parameters_in_files(self, groups: Groups | None) -> dict[str, Any]:
        policy = self._policy
        losses = self.losses
        of_sampler = {
            "set_score": score_fingerprint(policy.set_score),
            # of the promise: `epsilon` has no part in that of a policy with a level of its own
            policy.risk.level_name: self._level,
            "delta": float(self.delta),
            "guarantee": policy.guarantee,
            "losses": "none" if losses is None else losses.content(),
            **parameters_of_groups(groups),
        }
        # what a policy describes is compared last, and cannot take the place of these
        described_alone = {
            name: value for name, value in policy.described.items() if name not in of_sampler
        }
        return {**of_sampler, **described_alone}

    # --- calibrate ----------------------------------------------------------------------------

    def _origin_of(self, data: CalibrationData) -> tuple[Collection | None, DrawSource]:
        """The collection that made these data, and their source.

        The collection is None for data that this sampler has not collected. Data of another shift,
        or with too few draws, are refused.
        """
        if data.k_max < check_budgets(self.k_max)[-1]:
            raise ValueError(
                f"k_max must be at most the {data.k_max} draws of data, got {self.k_max!r} instead."
            )
        refuse_other_shift("data", self.shift, data.provenance)
        collected: Collection | None = self._collection_of(data)
        if collected is None:
            # data from a file, or from arrays: their provenance says whose draws they are
            return None, self._source_of("data", data.provenance)
        return collected, collected.source

    def _source_of(self, name: str, provenance: Provenance) -> DrawSource:
        current = getattr(self, "_source", None)
        source = source_of(name, provenance, current, self.generator, self.random_state)
        self._check_scores(source.generator)
        return source

    def _publish(self, record: SamplerCalibration, **further: object) -> None:
        super()._publish(record, **further)
        self._watch_of_all_calls()  # predict changes no attribute of a fitted estimator

    def _watch_of_all_calls(self) -> Watch:
        """What counts the sets; copies make their own."""
        # of several threads, all get what the first one made
        watch: Watch = self.__dict__.setdefault("_watch", Watch())
        return watch

    def _attributes_of(self, record: SamplerCalibration) -> dict[str, Any]:
        fitted = super()._attributes_of(record)
        fitted["_source"] = record.source
        fitted["generator_"] = record.source.generator
        fitted["seed_"] = record.source.seed
        fitted["lambda_hat_"] = record.lambda_hat
        fitted["k_max_"] = record.k_max
        fitted["achievable_epsilon_"] = record.achievable_epsilon
        if record.by_group is not None:
            fitted["groups_"] = record.by_group
        if record.data is None:
            # what was collected before belongs to another calibration than that of the file
            fitted["_collected"] = None
            return fitted
        result = record.result
        n_judgements = record.n_judgements
        fitted["result_"] = result
        fitted["frontier_"] = None if result is None else result.frontier
        fitted["p_values_"] = np.empty(0) if result is None else result.p_values
        fitted["valid_lambdas_"] = np.empty((0, 3)) if result is None else result.valid_lambdas
        fitted["n_draws_"] = record.data.n_made
        fitted["n_judgements_"] = record.data.n_judged if n_judgements is None else n_judgements
        return fitted

    def _loaded(self, name: str, read: dict[str, Any]) -> SamplerCalibration:
        source = self._source_of(repr(name), read["provenance"])
        # draws beyond the largest budget of the file were never calibrated
        k_max = max(rule.k_max for rule in read["rules"].values())
        if k_max not in check_budgets(self.k_max):
            raise ValueError(
                f"k_max must be that of {name!r}, {k_max}, got {self.k_max!r} instead."
            )
        refuse_other_shift(repr(name), self.shift, read["provenance"])
        # what is promised is part of the file: measures would else go by another risk than tests
        claim = read["rules"][None].claim
        refuse_differences(repr(name), {"risk": claim.about}, {"risk": self._policy.risk.about})
        return SamplerCalibration(**read, source=source)

    # --- predict ------------------------------------------------------------------------------

    def _sets_of_fit(self, checked: CheckedPrompts, groups: object) -> PredictionSets:
        return self._sets(checked, groups, of_fit=True)

    def _sets(
        self,
        prompts: CheckedPrompts,
        groups: object = None,
        on_accept: OnAccept | None = None,
        *,
        of_fit: bool = False,
    ) -> PredictionSets:
        """Sets of prompts; `of_fit` says that these trained or calibrated."""
        record: SamplerCalibration = self.calibration_  # once: another thread may fit meanwhile
        record.source.refuse_changes()
        names = record.groups_of(groups, prompts)
        sets = sample_sets(
            record,
            prompts,
            names,
            self.memory_,
            on_accept=on_accept,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self._watch_of_all_calls().add(record, names, prompts, sets)
        if of_fit:
            sets = record.source.unguaranteed(sets, prompts)
        result = PredictionSets(
            sets, record.width, sampler=self, provenance=record.drawn_with, index=prompts.index
        )
        result.of_fit = of_fit
        return result
