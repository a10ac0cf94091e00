"""The estimator that calibrates when to stop sampling and what to throw away."""

import logging
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
)
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import report_null, warn, warn_of_supervised_steps
from sklearn_clm._results import PredictionSets, visual_block
from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    Provenance,
    SetScore,
    achievable_epsilon,
    get_set_score,
)
from sklearn_clm.calibration._binomial import mistaken_delta, mistaken_epsilon
from sklearn_clm.calibration._data import check_collected
from sklearn_clm.calibration._set_scores import SetScoreLike
from sklearn_clm.generators import DrawQueue, Generator
from sklearn_clm.generators._prompts import CheckedPrompts, check_fitted_prompts, check_prompts
from sklearn_clm.metrics._sets import judge_sets, objective_of
from sklearn_clm.policies import (
    CovariateShift,
    ExitPolicy,
    Groups,
    LazyJudging,
    Losses,
    ThresholdPolicy,
)
from sklearn_clm.policies._attributes import N_JOBS, SamplerAttributes
from sklearn_clm.policies._base import (
    CalibratedRule,
    Policy,
    Request,
    draw_budgets,
    refuse_combinations,
)
from sklearn_clm.policies._collection import (
    SCORES,
    CalibrationPrompts,
    Collector,
    conditions_of,
    needed_shift,
    source_of,
    warn_of_repetitions,
)
from sklearn_clm.policies._files import (
    read_calibration,
    refuse_other_sampler,
)
from sklearn_clm.policies._records import SamplerCalibration
from sklearn_clm.policies._risks import why_empty
from sklearn_clm.policies._sampling import DrawScores, QualityLike, SimilarityLike
from sklearn_clm.policies._source import (
    DrawSource,
    naming_position,
    progress_bar,
    refuse_other_models,
    warn_of_repeated_draws,
)
from sklearn_clm.scoring import (
    get_admission,
    get_quality,
    get_similarity,
    likelihood,
)
from sklearn_clm.scoring._admission import check_admissions
from sklearn_clm.scoring._identity import frozen, score_fingerprint
from sklearn_clm.scoring._protocols import Admission
from sklearn_clm.scoring._quality import bind_quality

_LOGGER = logging.getLogger("sklearn_clm")


class ConformalSampler(  # type: ignore[call-arg]
    SamplerAttributes, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Sample responses until the set of them holds an admissible one, with a guarantee.

    ``fit`` calibrates by Learn Then Test (section 4.3 of the paper) when to stop sampling and
    which draws to throw away; ``predict`` then runs Algorithm 1. With probability at least
    1 - `delta` over the calibration prompts, a new prompt's set holds an admissible response with
    probability at least 1 - `epsilon` (Eq. 1).

    Parameters
    ----------
    generator : generator, default=None
        Where draws come from, see :mod:`sklearn_clm.generators`. A generator with a ``fit``
        method is cloned and fitted on `training_fraction` of the data, which calibration never
        sees. None is :class:`sklearn_clm.generators.ResamplingGenerator`, a baseline that looks
        at no prompt.
    k_max : int or sequence of int, default=20
        Budget of draws per prompt. Of a sequence the largest is drawn in ``fit``, and the budget
        is chosen along with the thresholds, under the same guarantee.
    epsilon : float, default=0.3
        Tolerated probability that a set holds no admissible response, in (0, 1).
    delta : float, default=0.05
        Tolerated probability that calibration misleads, in (0, 1).
    admission : str or callable, default="exact_match"
        ``admission(reference, response) -> bool``, used where admissions are references. Of a
        list, tuple or set of references it is called once with each, and any will do; a dict,
        or a row of numbers, is one reference.
    quality : str, callable or classifier, default="likelihood"
        Quality Q of a draw: "likelihood", "self_consistency", "verbalized", "p_true", a callable
        ``quality(prompt, generation) -> float``, or a fitted classifier with ``predict_proba``.
    similarity : str, callable or object with ``pairwise``, default="rouge_l"
        Similarity S of two responses: a name or ``similarity(a, b) -> float``.
    set_score : {"first_k", "first_k_reject", "max", "sum"} or callable, default="max"
        Set score F.
    size_weight, excess_weight : float, default=0.5
        Weights rho_1 of the set size and rho_2 of the relative excess of draws in Eq. 7, >= 0.
    n_lambdas : int, default=25
        Most observed values to try for each threshold; -inf and +inf come on top.
    optimization_fraction : float, default=1/3
        Part of the collected prompts that chooses which configurations to test, in (0, 1).
    on_null : {"warn", "raise"}, default="warn"
        What happens if no configuration can be certified, because none is safe enough or because
        there are too few prompts for any test to succeed. With "warn" a
        :class:`NullCalibrationWarning` is issued (a parameter search or a cross-validation issues
        one, with their number) and ``predict`` returns all draws, marked as not guaranteed; with
        "raise" it is a :class:`NullCalibrationError`.
    random_state : int, RandomState instance or None, default=None
        An int is itself the seed of the draws, and seeds the random splits of the data. With
        None the seed of the draws is 0, so that draws which were paid for are found again in a
        cache, and the splits come from the prompts, whatever their order: the same prompts give
        the same calibration, so that trying again after a null gains nothing.
    n_jobs : int or None, default=None
        Processes or threads for scores and admissions.
    verbose : int, default=0
        Whether to show progress: draws in ``fit``, prompts and their draws in ``predict``.
    training_fraction : float, default=0.5
        Part of the data that trains a generator with a ``fit`` method, in (0, 1).
    policy : {"thresholds"}, ThresholdPolicy or ExitPolicy, default="thresholds"
        How sampling stops and what is returned, see :mod:`sklearn_clm.policies`: the thresholds
        of Algorithm 1, or one level of an exit policy that is learnt from the optimisation part.
    judging : {"all", "lazy"} or LazyJudging, default="all"
        Whether ``fit`` makes and judges all draws, or only those that a test's decision still
        needs. The guarantee is the same. Lazily, p-values are bounds, and by default the tested
        configurations are others, since labels of the optimisation part are mostly estimated.
    guarantee : {"pac", "marginal"}, default="pac"
        "pac" holds with confidence 1 - `delta` over the calibration prompts. "marginal" holds on
        average over calibration prompts and new prompts together, a weaker promise with smaller
        sets, for an exit policy alone: the frontier of thresholds is no nested family.
    draw_weight : float, default=0.0
        Price of a draw in the objective, >= 0; with 0 it is that of Eq. 7.
    groups : Groups, default=None
        A guarantee within each group of prompts, see :class:`sklearn_clm.policies.Groups`. None
        is one guarantee for all prompts together, unless ``fit`` is given groups.
    shift : CovariateShift, default=None
        A guarantee for new prompts that are distributed otherwise than those that calibrate, see
        :class:`sklearn_clm.policies.CovariateShift`.
    losses : Losses, default=None
        Other losses of a set that are kept besides that of admission, or instead of it, see
        :class:`sklearn_clm.policies.Losses`; for thresholds with ``judging="all"``.

    Attributes
    ----------
    calibration_ : SamplerCalibration
        All that ``predict`` depends on, as calibration saw it. The attributes below are read from
        it, and later changes of parameters do not reach it.
    lambda_hat_ : Configuration or None
        The chosen thresholds, named `similarity`, `quality` and `set_score`; None for null, and
        always with an :class:`~sklearn_clm.policies.ExitPolicy`, which has an `exit_level_`.
    k_max_ : int
        The budget in force.
    valid_lambdas_ : ndarray of shape (m, 3)
        Every certified configuration.
    frontier_ : Frontier or None
        The tested configurations, from the safest.
    p_values_ : ndarray
        Binomial p-value of each tested configuration.
    achievable_epsilon_ : tuple of float (low, high)
        Error of always drawing K, and of always drawing one (appendix C). With lazy judging they
        are not known, and NaN.
    exit_level_ : float
        The calibrated level of an exit policy; -inf for null.
    groups_ : dict
        With groups: the :class:`sklearn_clm.policies.ThresholdRule` or
        :class:`sklearn_clm.policies.ExitResult` of each. The other attributes are those of the
        rule for all prompts together, which is tested for comparison.
    shift_ : Shift or None
        The shift of prompts that the guarantee holds for, with the numbers of prompts offered and
        kept, and their effective number.
    n_judgements_, n_draws_ : int
        How many draws of the collected prompts were judged, where equal responses of a prompt are
        judged once, and how many were made.
    calibration_data_ : CalibrationData
        Scores, similarities and admissions of the draws that calibration saw; its `n_draws` says
        how many these are for each prompt, where ``fit`` with lazy judging made fewer than K.
    calibration_draws_ : list of lists of Generation
        The draws themselves, from memory or made again.
    calibration_indices_ : ndarray of int
        Positions in X of the prompts that calibrated. This and the draws are known only
        where ``fit`` or ``collect`` of this very estimator gave these data.
    result_ : LearnThenTestResult or None
        The whole result of calibration; None where there were too few prompts to test at all.
    generator_, seed_ : generator, int
        The generator in use, fitted where it can be, and the seed of all its draws.
    memory_ : DrawMemory
        The draws that were made in this process, which nobody makes again; ``memory_.clear()`` lets
        them go, and a pickle leaves them behind.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of X, for two-dimensional X, and their names, for a data frame.

    Notes
    -----
    The guarantee is Theorem 4.2 of the paper. It needs calibration prompts and new prompts that
    are independent draws of one distribution, and nothing about the model. Draws are keyed: draw
    j for a prompt depends on the generator, the prompt, the seed and j alone. Hence, *given the
    seed*, a draw is a fixed function of its prompt, the losses of independent prompts are
    independent, and the guarantee holds given the seed. It is one guarantee for the calibrated
    estimator over random new prompts, not one for each prompt, and it is spent once: choosing
    among several estimators by their calibration data, for instance `k_max` by grid search on
    the very data that then calibrates, or `epsilon` after a look at what these data certify,
    voids it. Search on other data, or give `k_max` a sequence.

    The unit is the prompt: all rows of one prompt stand on one side of every split (training,
    optimisation, calibration), so that no copy of what was learnt from calibrates. A test still
    counts rows, and the rows of one prompt succeed or fail together: n rows of prompts that stand
    there m times each are worth, at worst, n^2 / sum(m^2) independent ones. Below nine tenths of n
    ``fit`` warns, whatever the references: the risk may then exceed epsilon more often than
    delta. Pass each prompt once, with a list of its references; the promise is then about distinct
    prompts. Requests that repeat by themselves are warned of as well: although they are
    independent, a split by prompts leaves a popular one on one side. They keep their guarantee
    where nothing is split: with an untrained generator, and a ``frontier`` or a fitted
    :class:`~sklearn_clm.policies.ExitPolicy` from other data.

    Steps of a pipeline that learn from references, such as a selection of features, must not
    stand before the sampler: they would have seen the references that calibrate. They belong to
    the estimator inside the generator, which is trained on prompts of its own.

    Draws are kept in this process and made once, whoever asks for them: a ``fit`` that is tried
    again, ``predict``, and a selector after the sampler. A service that is not keyed gives other
    draws once that memory is gone, and repeated prompts are then no longer independent of how
    often they occur: put a :class:`sklearn_clm.caching.CachedGenerator` before it.

    ``predict`` refuses a generator whose parameters or training have changed since calibration,
    as far as its fingerprint tells. What a generator without a fingerprint holds (a client, a
    model of its own) is not known here.

    Calibrating with an admission that is stricter than the one in mind keeps the guarantee
    (Corollary A.4).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.generators import EstimatorGenerator
    >>> X, y = load_digits(return_X_y=True)
    >>> generator = EstimatorGenerator(GaussianNB(var_smoothing=0.1))
    >>> sampler = ConformalSampler(generator, k_max=5, epsilon=0.2, random_state=0)
    >>> sampler.fit(X[:1000], y[:1000]).lambda_hat_ is not None
    True
    >>> sets = sampler.predict(X[1000:])
    >>> float(sum(label in one for label, one in zip(y[1000:], sets)) / len(sets)) > 0.8
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "generator": [None, HasMethods("sample"), HasMethods("stream")],
        "k_max": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "epsilon": [Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "admission": [str, callable],
        "quality": [str, callable, HasMethods("predict_proba"), HasMethods("score_draws")],
        "similarity": [str, callable, HasMethods("pairwise")],
        "set_score": [str, callable, SetScore],
        "size_weight": [Interval(Real, 0, None, closed="left")],
        "excess_weight": [Interval(Real, 0, None, closed="left")],
        "n_lambdas": [Interval(Integral, 1, None, closed="left")],
        "optimization_fraction": [Interval(Real, 0, 1, closed="neither")],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
        "n_jobs": N_JOBS,
        "verbose": ["verbose"],
        "training_fraction": [Interval(Real, 0, 1, closed="neither")],
        "policy": [StrOptions({"thresholds"}), ThresholdPolicy, ExitPolicy],
        "judging": [StrOptions({"all", "lazy"}), LazyJudging],
        "guarantee": [StrOptions({"pac", "marginal"})],
        "draw_weight": [Interval(Real, 0, None, closed="left")],
        "groups": [None, Groups],
        "shift": [None, CovariateShift],
        "losses": [None, Losses],
    }
    _options: ClassVar[dict[str, type[BaseEstimator]]] = {
        "policy": ExitPolicy,
        "judging": LazyJudging,
        "groups": Groups,
        "shift": CovariateShift,
        "losses": Losses,
    }

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
        set_score: SetScoreLike = "max",
        size_weight: float = 0.5,
        excess_weight: float = 0.5,
        n_lambdas: int = 25,
        optimization_fraction: float = 1 / 3,
        on_null: str = "warn",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        training_fraction: float = 0.5,
        policy: str | ThresholdPolicy | ExitPolicy = "thresholds",
        judging: str | LazyJudging = "all",
        guarantee: str = "pac",
        draw_weight: float = 0.0,
        groups: Groups | None = None,
        shift: CovariateShift | None = None,
        losses: Losses | None = None,
    ) -> None:
        self.generator = generator
        self.k_max = k_max
        self.epsilon = epsilon
        self.delta = delta
        self.admission = admission
        self.quality = quality
        self.similarity = similarity
        self.set_score = set_score
        self.size_weight = size_weight
        self.excess_weight = excess_weight
        self.n_lambdas = n_lambdas
        self.optimization_fraction = optimization_fraction
        self.on_null = on_null
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.training_fraction = training_fraction
        self.policy = policy
        self.judging = judging
        self.guarantee = guarantee
        self.draw_weight = draw_weight
        self.groups = groups
        self.shift = shift
        self.losses = losses

    def fit(
        self, X: object, y: object, *, groups: object = None, prompt_weight: object = None
    ) -> "ConformalSampler":
        """Collect draws for the prompts and calibrate on them.

        Parameters
        ----------
        X : sequence of length n, numeric array of shape (n, d), or data frame
            Prompts. Of a data frame one column, or several of numbers; for a generator that is a
            classifier, of text and categories as well.
        y : sequence of length n
            Admissions: for each prompt either a callable ``A_i(response) -> bool``, or a
            reference that `admission` judges by. A list, tuple or set holds several references,
            each judged by itself, any of which will do; a dict is one reference.
        groups : sequence of length n, default=None
            The group of each prompt, where the parameter `groups` does not give it.
        prompt_weight : array-like of shape (n,), default=None
            Density of new prompts relative to these, where the parameter `shift` does not give it.

        Returns
        -------
        ConformalSampler
            Itself.

        Raises
        ------
        ValueError, TypeError
            If an argument does not fit, or the generator, a score or an admission gives what it
            should not. Draws made until then are kept, and the next ``fit`` on the same prompts
            uses them; verdicts are, where `admission` is a
            :class:`sklearn_clm.caching.CachedAdmission`.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``. What was collected is kept: see
            :meth:`calibrate`.
        """
        self._validate_params()
        if groups is None and self.groups is not None and self.groups.by is None:
            self.groups.of(None, 0)  # says what is missing
        if prompt_weight is None and self.shift is not None and self.shift.weight is None:
            self.shift.of(None, 0)
        lazily = self.judging != "all"
        return self.calibrate(self._collect(X, y, groups, prompt_weight, None, lazily=lazily))

    def collect(
        self,
        prompts: object,
        admissions: object,
        *,
        groups: object = None,
        prompt_weight: object = None,
        memory: str | os.PathLike[str] | None = None,
    ) -> CalibrationData:
        """Draw, score and judge: the expensive half of ``fit``.

        Forgets an earlier calibration, since the generator may be fitted anew.

        Parameters
        ----------
        prompts, admissions, groups, prompt_weight
            As X, y, groups and prompt_weight in :meth:`fit`.
        memory : str or path, default=None
            A .npy file for the similarities, n x K x K numbers of 8 bytes. They are written as
            draws are scored, read as calibration needs them, and never whole in memory; the data
            need the file as long as they are in use. None keeps them in memory.

        Returns
        -------
        CalibrationData
            K draws for each prompt; prompts that trained the generator are not among them. The
            data carry what they were collected with.
        """
        self._validate_params()
        if not isinstance(memory, (str, os.PathLike, type(None))):
            raise TypeError(f"memory must be a path or None, got {memory!r:.80} instead.")
        return self._collect(prompts, admissions, groups, prompt_weight, memory)

    def _collect(
        self,
        prompts: object,
        admissions: object,
        groups: object,
        prompt_weight: object,
        memory: str | os.PathLike[str] | None,
        *,
        lazily: bool = False,
    ) -> CalibrationData:
        """Collect all draws, or the first one of each prompt."""
        n_draws = draw_budgets(self.k_max)[-1]
        checked = check_prompts(prompts, estimator=self)
        references = check_admissions(admissions, len(checked), estimator=self)
        names = None
        if groups is not None or (self.groups is not None and self.groups.by is not None):
            # a mistake is found before anything is paid for
            names = (self.groups or Groups()).of(groups, len(checked), checked)
        weights = None
        if prompt_weight is not None or (self.shift is not None and self.shift.weight is not None):
            weights = needed_shift(self.shift).of(prompt_weight, len(checked), checked)
        self._check_scores(self.generator)
        warn_of_supervised_steps()
        warn_of_repetitions(checked)
        source, rest = DrawSource.train(
            self.generator,
            checked,
            references,
            fraction=self.training_fraction,
            random_state=self.random_state,
        )
        asked = CalibrationPrompts.of(
            checked,
            rest,
            groups=None if groups is None else names,
            shift=self.shift,
            weights=weights,
            seed=source.seed,
        )
        if lazily:
            collected = self._collector.first_draws(source, asked, references, n_draws)
        else:
            collected = self._collector.all_draws(source, asked, references, n_draws, memory)
        self.__dict__.pop("calibration_", None)
        self._source, self._collected = source, collected
        self._grouped = None if groups is None else asked.prompts.digests()
        self._numeric_prompts = checked.numeric
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if checked.n_features is not None:
            self.n_features_in_ = checked.n_features
        if checked.feature_names is not None:
            self.feature_names_in_ = checked.feature_names
        return self.calibration_data_

    def calibrate(
        self, data: CalibrationData, *, groups: object = None, prompt_weight: object = None
    ) -> "ConformalSampler":
        """Calibrate on collected data: the instant half of ``fit``.

        Once collected, data can be calibrated for many `epsilon`, `delta`, `set_score` and smaller
        `k_max`. Later changes of these parameters or of the scores do not reach what was
        calibrated: ``predict`` goes on with those that calibration looked at.

        Parameters
        ----------
        data : CalibrationData
            From :meth:`collect`, or loaded. Data that do not know what they were collected with,
            such as bare arrays, are allowed, and results are marked "provenance unknown". The
            seed of data that know theirs is the seed of predictions.
        groups : sequence of length n, default=None
            The group of each prompt of `data`. None are those given to :meth:`collect`, or
            found from the prompts that it was given, where `data` are what it returned; a part
            of them needs its groups.
        prompt_weight : array-like of shape (n,), default=None
            The weight of each prompt of `data`, where :meth:`collect` was given none.

        Returns
        -------
        ConformalSampler
            Itself.

        Raises
        ------
        ValueError
            If the data holds fewer draws than `k_max`, or another generator, other scores or
            another admission collected it.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``.
        """
        self._validate_params()
        budgets = draw_budgets(self.k_max)
        check_collected(data)
        conditions = conditions_of(
            data,
            getattr(self, "_collected", None),
            lambda: source_of(
                data.provenance, getattr(self, "_source", None), self._untrained_source
            ),
            k_max=budgets[-1],
            scores=self._fingerprints(SCORES),
            judges_all=self.judging == "all",
            groups=self.groups,
            shift=self.shift,
            losses=self.losses,
            given_groups=groups,
            grouped=getattr(self, "_grouped", None),
            prompt_weight=prompt_weight,
        )
        verdicts = conditions.verdicts
        with self._collector.making(conditions.source, conditions.draws):
            found = self._policy.calibrate(
                conditions.data.truncate(budgets[-1]),
                Request(
                    epsilon=self.epsilon,
                    delta=self.delta,
                    guarantee=self.guarantee,
                    budgets=budgets,
                    set_score=self.set_score,
                    weights={
                        "size_weight": self.size_weight,
                        "excess_weight": self.excess_weight,
                        "draw_weight": self.draw_weight,
                    },
                    n_lambdas=self.n_lambdas,
                    optimization_fraction=self.optimization_fraction,
                    random_state=self.random_state,
                    judging=None if verdicts is None else self._judging,
                    verdicts=verdicts,
                    groups=conditions.groups,
                    options=self.groups or Groups(),
                    risks=conditions.risks,
                    draws=conditions.draws,
                ),
            )
        report_null(found.why_null, self.on_null)
        data, self._collected = conditions.after_tests(budgets[-1])
        self._source = conditions.source
        self.calibration_ = self._record(
            rule=found.rule,
            width=budgets[-1],
            epsilon=self.epsilon,
            delta=self.delta,
            size_weight=self.size_weight,
            excess_weight=self.excess_weight,
            draw_weight=self.draw_weight,
            guarantee=self.guarantee,
            source=self._source,
            provenance=data.provenance,
            achievable_epsilon=(
                achievable_epsilon(data)
                if verdicts is None
                else AchievableEpsilon(math.nan, math.nan)
            ),
            n_judgements=None if verdicts is None else verdicts.n_judgements,
            data=data,
            by_group=found.by_group,
            groups=None if found.by_group is None else frozen(self.groups or Groups()),
            shift=conditions.shift,
            losses=frozen(self.losses),
        )
        delta = None if self.guarantee == "marginal" else mistaken_delta(self.delta)
        empty = None
        if self.calibration_.has_empty_sets:
            empty = why_empty(self.losses, self.epsilon)
        elif self.losses is None:
            empty = mistaken_epsilon(self.epsilon, self.calibration_.achievable_epsilon.high)
        record, everything = self.calibration_, None
        if record.by_group is None and record.certified and record.rule.size == record.k_max > 1:
            everything = (
                f"nothing smaller than the set of all {record.k_max} draws was certified: predict "
                "returns all of them, with the guarantee. A larger epsilon or more prompts (of "
                "another calibration) may give smaller sets"
                f"{'' if self.judging == 'all' else ', or judging more of the optimisation part'}."
            )
        for message in filter(None, (delta, empty, everything)):
            warn(message)
        return self

    def predict(self, X: object, *, groups: object = None) -> PredictionSets:
        """Sample a set of responses for each prompt (Algorithm 1).

        Draws are made only as the stopping rule asks for them: it decides on a prompt as soon as
        that prompt's draw has arrived, and the next draw is then asked for at once.

        Parameters
        ----------
        X : sequence of length n, or numeric array of shape (n, d)
            Prompts.
        groups : sequence of length n, default=None
            The group of each prompt, where calibration was given groups.

        Returns
        -------
        PredictionSets
            One set for each prompt. A null calibration gives all draws of the budget, each set
            marked ``guaranteed=False``.

        Raises
        ------
        NotFittedError
            Before ``fit``, ``calibrate`` or ``load_calibration``.
        ValueError
            If prompts are of another kind than those of ``fit``, the generator was changed
            since, or calibration has not seen a group.
        """
        check_is_fitted(self)
        return self._sets(check_fitted_prompts(self, X), groups=groups)

    def transform(self, X: object, *, groups: object = None) -> PredictionSets:
        """Same as :meth:`predict`, so that the sampler stands inside a pipeline.

        Parameters
        ----------
        X, groups
            As in :meth:`predict`.

        Returns
        -------
        PredictionSets
            One set for each prompt. They are no data frame, whatever the output that scikit-learn
            is configured for; their ``to_frame()`` makes them one.
        """
        return self.predict(X, groups=groups)

    def fit_transform(
        self, X: object, y: object, *, groups: object = None, prompt_weight: object = None
    ) -> PredictionSets:
        """Fit, and return the sets of the same prompts from the same draws.

        Parameters
        ----------
        X, y, groups, prompt_weight
            As in :meth:`fit`.

        Returns
        -------
        PredictionSets
            Those of ``fit(X, y).transform(X)``. Sets of prompts that trained the generator are
            marked ``guaranteed=False``, and a :class:`ComponentSelector` that is fitted on the
            sets leaves them out.
        """
        checked = check_prompts(X, estimator=self)
        self.fit(checked, y, groups=groups, prompt_weight=prompt_weight)
        return self._sets_of_fit(checked, groups)

    def score(self, X: object, y: object, *, groups: object = None) -> float:
        """Minus the objective of Eq. 7 on the given data; the larger the better.

        The data must be others than those of ``fit``, for this as for any other measure of the
        sets: on the prompts that calibrated, the thresholds look better than they are. ``predict``
        logs it where prompts have calibrated.

        Parameters
        ----------
        X, y, groups
            As in :meth:`fit`.

        Returns
        -------
        float
            ``-(size_weight * mean size + excess_weight * mean excess + draw_weight * mean
            draws)``; -inf for a null calibration, for which nothing is drawn.
        """
        check_is_fitted(self)
        checked = check_fitted_prompts(self, X)
        references = check_admissions(y, len(checked), estimator=self)
        record = self.calibration_
        if not record.certified:
            return -np.inf
        sets = self._sets(checked, groups=groups)
        outcomes = judge_sets(self.admission, references, sets, n_jobs=self.n_jobs)
        return -objective_of(outcomes, record.size_weight, record.excess_weight, record.draw_weight)

    def load_calibration(self, path: str | os.PathLike[str]) -> "ConformalSampler":
        """Take over a calibration written by :meth:`save_calibration`.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        ConformalSampler
            Itself, ready to predict. What calibration looked at (data, frontier,
            p-values, ...) is not in the file.

        Raises
        ------
        ValueError
            If the file belongs to another generator, other scores or other parameters, or is no
            such file.

        Warns
        -----
        NullCalibrationWarning
            If the file holds a null calibration; with `on_null` "raise" it is an error.
        """
        self._validate_params()
        budgets = draw_budgets(self.k_max)
        name = os.fspath(path)
        content, read = read_calibration(path, SamplerCalibration)
        source = getattr(self, "_source", None)
        known: Provenance = read["provenance"]
        if source is None or not hasattr(source.generator, "fit"):
            source = self._untrained_source(known.generator)
        rule: CalibratedRule = read["rule"]
        refuse_other_sampler(
            name,
            content,
            read,
            fingerprint=source.fingerprint,
            scores=self._fingerprints((*SCORES, "set_score")),
            parameters={
                "epsilon": float(self.epsilon),
                "delta": float(self.delta),
                "guarantee": self.guarantee,
            },
            policy=self._policy,
            groups=self.groups,
            losses=self.losses,
            shift=self.shift,
        )
        read["losses"] = frozen(self.losses)
        if self.groups is not None:
            read["groups"] = frozen(self.groups)
        if rule.k_max not in budgets:
            raise ValueError(
                f"{name!r} was calibrated for k_max={rule.k_max}, but this sampler has "
                f"k_max={self.k_max!r}."
            )
        source = source.with_seed(known.seed)
        record = self._record(source=source, **read)
        self._report_null_file(name, record.certified)
        self._source, self._collected, self.calibration_ = source, None, record
        if self.calibration_.unknown:
            warn(
                f"{name!r} was calibrated on arrays, which do not tell the "
                f"{', '.join(self.calibration_.unknown)} they came from: the guarantee holds only "
                "if these are the sampler's own."
            )
        return self

    def _sk_visual_block_(self) -> Any:
        return visual_block([("generator", self.generator)])

    @property
    def _policy(self) -> Policy[Any]:
        return ThresholdPolicy() if isinstance(self.policy, str) else self.policy

    @property
    def _judging(self) -> LazyJudging:
        return LazyJudging() if isinstance(self.judging, str) else self.judging

    def _validate_params(self) -> None:
        refuse_other_models(self.generator, type(self).__name__)
        super()._validate_params()
        refuse_combinations(
            *(self._policy, self.k_max, self.guarantee, self.judging),
            *(self.groups, self.shift, self.losses),
        )

    # --- collect ------------------------------------------------------------------------------

    def _check_scores(self, generator: Any) -> None:
        """Refuse what can be known to fail before anything is paid for."""
        get_set_score(self.set_score)
        get_similarity(self.similarity)
        get_admission(self.admission)
        quality = get_quality(self.quality)
        if quality is likelihood and not getattr(generator, "gives_logprobs", True):
            raise ValueError(
                f"quality='likelihood' needs log-probabilities, which {type(generator).__name__} "
                "does not give; wanted another quality, such as 'self_consistency' or a callable "
                "(prompt, generation) -> float, or a generator that gives log-probabilities (of a "
                "table of draws: name its columns by logprob= and n_tokens=)."
            )

    # --- calibrate ----------------------------------------------------------------------------

    @property
    def _collector(self) -> Collector:
        return Collector(
            self.quality,
            self.similarity,
            self.admission,
            self.judging == "all",
            self.losses is not None,
            self.memory_,
            self.n_jobs,
            self.verbose,
        )

    def _fingerprints(self, names: Iterable[str]) -> dict[str, str]:
        return {name: score_fingerprint(getattr(self, name)) for name in names}

    def _untrained_source(self, known: str | None) -> DrawSource:
        """Generator and seed of a sampler that has seen no prompts."""
        name = type(self).__name__
        source = DrawSource.untrained(self.generator, self.random_state, name, known)
        self._check_scores(source.generator)
        return source

    def _record(self, **found: Any) -> SamplerCalibration:
        """The calibration, with copies of the scores that it holds for."""
        scores = {name: frozen(getattr(self, name)) for name in ("quality", "similarity")}
        return SamplerCalibration(**scores, set_score=frozen(self.set_score), **found)

    # --- predict ------------------------------------------------------------------------------

    def _sets(
        self,
        prompts: CheckedPrompts,
        known: dict[int, int] | None = None,
        groups: object = None,
    ) -> PredictionSets:
        """Sets of prompts; `known` names the row of some of them in the calibration data."""
        record, source = self.calibration_, self.calibration_.source
        source.refuse_changes()
        source.refuse_other_columns(prompts)
        scores = DrawScores(
            bind_quality(record.quality, record.generator),
            record.similarity,
            get_set_score(record.set_score),
            record.width,
            prompts,
            record.provenance,
            self.n_jobs,
            record.data,
            known or {},
        )
        with (
            naming_position(prompts),
            progress_bar(self.verbose, len(prompts), "prompt") as progress,
        ):
            rules = record.open_sets(scores, groups, progress)
            queue = DrawQueue(
                prompts.prompts,
                record.k_max,
                seed=source.seed,
                decide=rules.decide,
                on_draw=rules.count_draw,
            )
            self.memory_.serve(source.generator, queue, fingerprint=source.fingerprint)
        made_by = replace(record.drawn_with, sampler=record.digest)
        if record.data is not None and record.data.prompts is not None and known is None:
            n_known = int(np.isin(prompts.digests(), record.data.prompts).sum())
            if n_known:
                _LOGGER.info(
                    "predict: %d of %d prompts calibrated this sampler; do not measure it on them.",
                    n_known,
                    len(prompts),
                )
        if record.data is not None:
            warn_of_repeated_draws([one.generations for one in rules.sets], record.data)
        return PredictionSets(
            rules.sets, record.k_max, sampler=self, provenance=made_by, index=prompts.index
        )

    def _sets_of_fit(self, prompts: CheckedPrompts, groups: object = None) -> PredictionSets:
        """Sets of the prompts given to fit, with the scores that calibration has."""
        known = {int(i): row for row, i in enumerate(self.calibration_indices_)}
        sets = self._sets(prompts, known, groups)
        trained = np.isin(prompts.digests(), self.calibration_.source.trained_on)
        sets._sets = [
            replace(one, guaranteed=one.guaranteed and not seen) for one, seen in zip(sets, trained)
        ]
        sets.of_fit = True
        return sets
