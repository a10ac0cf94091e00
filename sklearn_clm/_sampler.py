"""The estimator that calibrates when to stop sampling and what to throw away."""

import copy
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, get_tags
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
)
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._calibration import (
    SCORES,
    DrawSource,
    SamplerCalibration,
    read_calibration,
    refuse_differences,
    write_calibration,
)
from sklearn_clm._exceptions import (
    NullCalibrationError,
    in_search,
    steps_before,
    warn,
    warn_of_null,
)
from sklearn_clm._html import visual_block
from sklearn_clm._prompts import (
    CheckedPrompts,
    check_admissions,
    check_fitted_prompts,
    check_prompts,
)
from sklearn_clm._results import PredictionSets
from sklearn_clm.caching import DrawMemory
from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    Configuration,
    Frontier,
    LabelTable,
    LearnThenTestResult,
    Provenance,
    SetScore,
    achievable_epsilon,
    equal_texts,
    get_set_score,
    prompts_needed,
)
from sklearn_clm.calibration._data import check_collected, optimization_size
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.generators import (
    BaseGenerator,
    DrawQueue,
    Generation,
    Generator,
    ResamplingGenerator,
)
from sklearn_clm.generators._base import fingerprint, sample
from sklearn_clm.metrics._sets import judge_sets, objective_of
from sklearn_clm.policies import ExitPolicy, ExitResult, LazyJudging, ThresholdPolicy
from sklearn_clm.policies._exit import calibrate_exit
from sklearn_clm.policies._judging import Verdicts
from sklearn_clm.policies._sampling import DrawScores, ExitSets, ThresholdSets
from sklearn_clm.policies._thresholds import calibrate_thresholds
from sklearn_clm.scoring import (
    admission_matrix,
    get_admission,
    get_quality,
    get_similarity,
    likelihood,
    quality_matrix,
    similarity_tensor,
    warn_of_references,
)
from sklearn_clm.scoring._identity import frozen, score_fingerprint
from sklearn_clm.scoring._quality import bind_quality

__all__ = ["N_JOBS", "ConformalSampler", "SamplerCalibration", "report_null", "seed_of_draws"]

# values of the parameter n_jobs; joblib refuses 0 only after draws have been paid for
N_JOBS = [
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]
_ASKED = (
    *("epsilon", "delta", "guarantee"),
    *("size_weight", "excess_weight", "draw_weight"),
)
_USED = ("quality", "similarity", "set_score")  # by predict


class ConformalSampler(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
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
        sees. None is :class:`~sklearn_clm.generators.ResamplingGenerator`, a baseline that looks
        at no prompt.
    k_max : int or sequence of int, default=20
        Budget of draws per prompt. Of a sequence the largest is drawn in ``fit``, and the budget
        is chosen along with the thresholds, under the same guarantee.
    epsilon : float, default=0.3
        Tolerated probability that a set holds no admissible response, in (0, 1).
    delta : float, default=0.05
        Tolerated probability that calibration misleads, in (0, 1).
    admission : str or callable, default="exact_match"
        ``admission(reference, response) -> bool``, used where admissions are references.
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
        :class:`NullCalibrationWarning` is issued (a parameter search issues one, with their
        number) and ``predict`` returns all draws, marked as not guaranteed; with "raise" it is a
        :class:`NullCalibrationError`.
    random_state : int, RandomState instance or None, default=None
        An int is itself the seed of the draws, and seeds the random splits of the data. With
        None the seed of the draws is 0, so that draws which were paid for are found again in a
        cache, and the splits are different at every call; with lazy judging they are those of 0,
        so that a ``fit`` that is tried again asks for no further verdicts.
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
        Whether ``fit`` judges all draws, or only those that a test's decision still needs. The
        certified configurations are the same; lazily, p-values are bounds.
    guarantee : {"pac", "marginal"}, default="pac"
        "pac" holds with confidence 1 - `delta` over the calibration prompts. "marginal" holds on
        average over calibration prompts and new prompts together, a weaker promise with smaller
        sets, for an exit policy alone: the frontier of thresholds is no nested family.
    draw_weight : float, default=0.0
        Price of a draw in the objective, >= 0; with 0 it is that of Eq. 7.

    Attributes
    ----------
    calibration_ : SamplerCalibration
        All that ``predict`` depends on, as calibration saw it. The attributes below are read from
        it, and later changes of parameters do not reach it.
    lambda_hat_ : Configuration or None
        The chosen thresholds, named `similarity`, `quality` and `set_score`; None for null.
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
    n_judgements_ : int
        How many draws of the collected prompts were judged.
    calibration_data_ : CalibrationData
        Scores, similarities and admissions of the draws that calibration saw.
    calibration_draws_ : list of lists of Generation
        The draws themselves, K for each prompt, from memory or made again.
    calibration_indices_ : ndarray of int
        Positions in X of the prompts in `calibration_data_`. This and the draws are known only
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

    Steps of a pipeline that learn from references, such as a selection of features, must not
    stand before the sampler: they would have seen the references that calibrate. They belong to
    the estimator inside the generator, which is trained on prompts of its own.

    Draws are kept in this process and made once, whoever asks for them: a ``fit`` that is tried
    again, ``predict``, and a selector after the sampler. A service that is not keyed gives other
    draws once that memory is gone, and repeated prompts are then no longer independent of how
    often they occur: put a :class:`~sklearn_clm.caching.CachedGenerator` before it.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
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
    }

    def __init__(
        self,
        generator: Any = None,
        *,
        k_max: int | Sequence[int] = 20,
        epsilon: float = 0.3,
        delta: float = 0.05,
        admission: str | Callable[[Any, Any], bool] = "exact_match",
        quality: Any = "likelihood",
        similarity: Any = "rouge_l",
        set_score: Any = "max",
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

    def fit(self, X: Any, y: Any) -> "ConformalSampler":
        """Collect draws for the prompts and calibrate on them.

        Parameters
        ----------
        X : sequence of length n, or numeric array of shape (n, d)
            Prompts.
        y : sequence of length n
            Admissions: for each prompt either a callable ``A_i(response) -> bool``, or a
            reference (or a list of references, any of which will do) that `admission` judges by.

        Returns
        -------
        ConformalSampler
            Itself.

        Raises
        ------
        ValueError, TypeError
            If an argument does not fit, or the generator, a score or an admission gives what it
            should not. Draws made until then are kept, and the next ``fit`` on the same prompts
            uses them.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``. What was collected is kept: see
            :meth:`calibrate`.
        """
        return self.calibrate(self.collect(X, y))

    def collect(self, prompts: Any, admissions: Any) -> CalibrationData:
        """Draw, score and judge: the expensive half of ``fit``.

        Forgets an earlier calibration, since the generator may be fitted anew.

        Parameters
        ----------
        prompts, admissions
            As X and y in :meth:`fit`.

        Returns
        -------
        CalibrationData
            K draws for each prompt; prompts that trained the generator are not among them. The
            data carry what they were collected with.
        """
        self._validate_params()
        n_draws = draw_budgets(self.k_max)[-1]
        checked = check_prompts(prompts, estimator=self)
        references = check_admissions(admissions, len(checked), estimator=self)
        self._check_scores(self.generator)
        _warn_of_supervised_steps()
        source, rest = self._train(checked, references)
        draws = self._draw(source, checked.take(rest), n_draws)
        _warn_of_unkeyed_draws(source, checked.take(rest[:1]), draws[0])
        source = self._judge(source, checked.take(rest), draws, [references[i] for i in rest])
        source = replace(source, indices=rest)
        self.__dict__.pop("calibration_", None)
        self._source = source
        self._numeric_prompts = checked.numeric
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if checked.n_features is not None:
            self.n_features_in_ = checked.n_features
        if checked.feature_names is not None:
            self.feature_names_in_ = checked.feature_names
        return self.calibration_data_

    def calibrate(self, data: CalibrationData) -> "ConformalSampler":
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
        self._refuse_other_scores(data.provenance)
        if data.k_max < budgets[-1]:
            raise ValueError(
                f"k_max={budgets[-1]} asks for more draws than the {data.k_max} of the calibration "
                "data; collect them, or lower k_max."
            )
        source = self._source_of(data)
        verdicts = self._verdicts_for(source, data)
        if verdicts is not None:
            data = _labelled(data, verdicts)
        result, left = self._test(data.truncate(budgets[-1]), budgets, verdicts)
        if verdicts is not None:
            data = _labelled(data, verdicts)
            if data.k_max == verdicts.labels.shape[1]:
                source = replace(source, data=data)
        chosen = None if result is None else result.k_max_hat
        data = data.truncate(budgets[-1]) if data.k_max > budgets[-1] else data
        if data.unknown is not None:
            band = AchievableEpsilon(math.nan, math.nan)
        else:
            band = achievable_epsilon(data) if result is None else result.achievable_epsilon
        self._source = source
        self.calibration_ = self._record(
            lambda_hat=None if result is None else result.lambda_hat,
            k_max=budgets[-1] if chosen is None else int(chosen),
            width=budgets[-1],
            source=source,
            provenance=data.provenance,
            achievable_epsilon=band,
            result=result,
            exit=left,
            n_judgements=None if verdicts is None else verdicts.n_judgements,
            data=data,
        )
        return self

    def predict(self, X: Any) -> PredictionSets:
        """Sample a set of responses for each prompt (Algorithm 1).

        Draws are made only as the stopping rule asks for them: it decides on a prompt as soon as
        that prompt's draw has arrived, and the next draw is then asked for at once.

        Parameters
        ----------
        X : sequence of length n, or numeric array of shape (n, d)
            Prompts.

        Returns
        -------
        PredictionSets
            One set for each prompt. A null calibration gives all `k_max_` draws, each set marked
            ``guaranteed=False``.

        Raises
        ------
        NotFittedError
            Before ``fit``, ``calibrate`` or ``load_calibration``.
        ValueError
            If prompts are of another kind than those of ``fit``, or the generator was changed
            since.
        """
        check_is_fitted(self)
        return self._sets(check_fitted_prompts(self, X))

    def transform(self, X: Any) -> PredictionSets:
        """Same as :meth:`predict`, so that the sampler stands inside a pipeline.

        Parameters
        ----------
        X
            As in :meth:`predict`.

        Returns
        -------
        PredictionSets
            One set for each prompt.
        """
        return self.predict(X)

    def fit_transform(self, X: Any, y: Any) -> PredictionSets:
        """Fit, and return the sets of the same prompts from the same draws.

        Parameters
        ----------
        X, y
            As in :meth:`fit`.

        Returns
        -------
        PredictionSets
            Equal to ``fit(X, y).transform(X)``. A :class:`ComponentSelector` that is fitted on
            them leaves out the prompts that trained the generator.
        """
        checked = check_prompts(X, estimator=self)
        sets = self.fit(checked, y)._sets_of_fit(checked)
        sets.of_fit = True
        return sets

    def score(self, X: Any, y: Any) -> float:
        """Minus the objective of Eq. 7 on the given data; the larger the better.

        Parameters
        ----------
        X, y
            As in :meth:`fit`.

        Returns
        -------
        float
            ``-(size_weight * mean size + excess_weight * mean excess)``; -inf for a null
            calibration, for which nothing is drawn.
        """
        check_is_fitted(self)
        checked = check_fitted_prompts(self, X)
        references = check_admissions(y, len(checked), estimator=self)
        record = self.calibration_
        if not record.certified:
            return -np.inf
        outcomes = judge_sets(self.admission, references, self._sets(checked), n_jobs=self.n_jobs)
        return -objective_of(outcomes, record.size_weight, record.excess_weight)

    def save_calibration(self, path: str | os.PathLike[str]) -> None:
        """Write what calibration found to a small, readable JSON file.

        Parameters
        ----------
        path : str or path
            The file. It holds the thresholds, what they were calibrated for, the versions in use
            and fingerprints of the generator and the scores, null where they are unknown; no
            data, and no model.
        """
        check_is_fitted(self)
        write_calibration(path, self.calibration_.content())

    def load_calibration(self, path: str | os.PathLike[str]) -> "ConformalSampler":
        """Take over a calibration written by :meth:`save_calibration`.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        ConformalSampler
            Itself, ready to predict. What calibration looked at (`calibration_data_`, `frontier_`,
            `p_values_`, ...) is not in the file.

        Raises
        ------
        ValueError
            If the file belongs to another generator, other scores or other parameters, or is no
            such file.
        """
        self._validate_params()
        budgets = draw_budgets(self.k_max)
        name = os.fspath(path)
        content, read = read_calibration(path, SamplerCalibration)
        source = getattr(self, "_source", None)
        if source is None or not hasattr(source.generator, "fit"):
            source = self._untrained_source()
        known: Provenance = read["provenance"]
        refuse_differences(
            name,
            "generator",
            {"fingerprint": known.generator},
            {"fingerprint": source.fingerprint},
        )
        own_scores = {score: score_fingerprint(getattr(self, score)) for score in SCORES}
        own_scores["set_score"] = score_fingerprint(self.set_score)
        refuse_differences(name, "scores", content["scores"] or {}, own_scores)
        own: dict[str, object] = {"epsilon": float(self.epsilon), "delta": float(self.delta)}
        own["guarantee"] = self.guarantee
        refuse_differences(name, "parameters", read, own)
        kinds = {True: "an exit policy", False: "thresholds"}
        saved = None  # a null of too few prompts has neither
        if read["exit"] is not None or read["lambda_hat"] is not None:
            saved = kinds[read["exit"] is not None]
        wanted = {"policy": kinds[isinstance(self.policy, ExitPolicy)]}
        refuse_differences(name, "parameters", {"policy": saved}, wanted)
        if read["k_max"] not in budgets:
            raise ValueError(
                f"{name!r} was calibrated for k_max={read['k_max']}, but this sampler has "
                f"k_max={self.k_max!r}."
            )
        if known.seed is not None:
            source = replace(source, seed=known.seed)
        self._source = replace(source, indices=None, prompts=None, data=None)
        self.calibration_ = self._record(source=self._source, **read)
        if self.calibration_.unknown:
            warn(
                f"{name!r} was calibrated on arrays, which do not tell the "
                f"{', '.join(self.calibration_.unknown)} they came from: the guarantee holds only "
                "if these are the sampler's own."
            )
        return self

    @property
    def lambda_hat_(self) -> Configuration | None:
        """The chosen thresholds; None for null."""
        return self.calibration_.lambda_hat

    @property
    def exit_level_(self) -> float:
        """The calibrated level of an exit policy; -inf for null."""
        if self.calibration_.exit is None:
            raise AttributeError("exit_level_ needs a calibrated exit policy.")
        return self.calibration_.exit.level

    @property
    def n_judgements_(self) -> int:
        """How many draws of the collected prompts were judged."""
        lazily = self.calibration_.n_judgements
        return self.calibration_data_.admissible.size if lazily is None else lazily

    @property
    def k_max_(self) -> int:
        """The budget in force."""
        return self.calibration_.k_max

    @property
    def valid_lambdas_(self) -> np.ndarray:
        """Every certified configuration, of shape (m, 3)."""
        result = self.result_
        return np.empty((0, 3)) if result is None else result.valid_lambdas

    @property
    def frontier_(self) -> Frontier | None:
        """The tested configurations, from the safest."""
        return None if self.result_ is None else self.result_.frontier

    @property
    def p_values_(self) -> np.ndarray:
        """Binomial p-value of each tested configuration."""
        return np.empty(0) if self.result_ is None else self.result_.p_values

    @property
    def achievable_epsilon_(self) -> AchievableEpsilon:
        """Error of always drawing K, and of always drawing one."""
        return self.calibration_.achievable_epsilon

    @property
    def result_(self) -> LearnThenTestResult | None:
        """The whole result of calibration; None where there were too few prompts."""
        if self.calibration_.data is None:
            raise AttributeError("result_ is not in a calibration that was loaded from a file.")
        return self.calibration_.result

    @property
    def calibration_data_(self) -> CalibrationData:
        """Scores, similarities and admissions of the draws that calibration saw."""
        holder = self.__dict__.get("calibration_") or self._source
        if holder.data is None:
            raise AttributeError("calibration_data_ is not in a file of a calibration.")
        return holder.data

    @property
    def calibration_indices_(self) -> np.ndarray:
        """Positions in X of the prompts in `calibration_data_`."""
        if self._source.indices is None:
            raise AttributeError("calibration_indices_ needs data that this estimator collected.")
        return self._source.indices

    @property
    def memory_(self) -> DrawMemory:
        """The draws that this estimator, its later fits and its selector share."""
        if not hasattr(self, "_memory"):
            self._memory = DrawMemory()
        return self._memory

    @property
    def calibration_draws_(self) -> list[list[Generation]]:
        """All draws of the prompts in `calibration_data_`; those no longer in memory are remade."""
        source = self._source
        if source.prompts is None:
            raise AttributeError("calibration_draws_ needs data that this estimator collected.")
        return self._draw(source, source.prompts, self.calibration_data_.k_max)

    @property
    def generator_(self) -> Generator:
        """The generator in use, fitted where it can be."""
        return self._source.generator

    @property
    def seed_(self) -> int:
        """The seed of all draws."""
        return self._source.seed

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        in_search(self, copy)
        return copy

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_memory", None)
        if (log := state.get("_null_log")) is not None and not log.is_open():
            del state["_null_log"]
        return state

    def _sk_visual_block_(self) -> Any:
        return visual_block([("generator", self.generator)])

    @property
    def _splits(self) -> int | np.random.RandomState | None:
        """The random state of splits."""
        return 0 if self.random_state is None and self.judging != "all" else self.random_state

    def set_params(self, **params: Any) -> "ConformalSampler":
        """Set parameters, such as `epsilon` or ``policy__look_ahead``.

        Parameters
        ----------
        **params
            The parameters.

        Returns
        -------
        ConformalSampler
            Itself.
        """
        for name in ("policy", "judging"):
            value = params.get(name, getattr(self, name))
            if isinstance(value, str) and any(key.startswith(f"{name}__") for key in params):
                raise ValueError(
                    f"{name} must be an object for its parameters to be set, such as "
                    f"{'ExitPolicy' if name == 'policy' else 'LazyJudging'}(), got {value!r} "
                    "instead."
                )
        super().set_params(**params)
        return self

    def _validate_params(self) -> None:
        wrapper = _wrapper(self.generator)
        if wrapper is not None:
            raise InvalidParameterError(
                f"The 'generator' parameter of {type(self).__name__} must be None or an object "
                f"implementing 'sample' or 'stream'. Got {self.generator!r:.200} instead; {wrapper}"
            )
        super()._validate_params()
        for part in (self.policy, self.judging):
            if not isinstance(part, str):
                part._validate_params()
        if self.guarantee == "marginal" and not isinstance(self.policy, ExitPolicy):
            raise ValueError(
                "guarantee must be 'pac' with a policy of thresholds, got 'marginal' instead: it "
                "needs nested sets, which the frontier of thresholds has not; take an ExitPolicy."
            )
        if isinstance(self.policy, ExitPolicy) and len(draw_budgets(self.k_max)) > 1:
            raise ValueError(
                f"k_max must be one integer with an exit policy, got {self.k_max!r} instead."
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
                "(prompt, generation) -> float, or a generator that gives log-probabilities."
            )

    def _train(
        self, prompts: CheckedPrompts, references: list[Any]
    ) -> tuple[DrawSource, np.ndarray]:
        """The source of draws, trained where it can be, and which prompts calibrate."""
        generator, seed = own_copy(self.generator), seed_of_draws(self._splits)
        n = len(prompts)
        n_train = 0
        if hasattr(generator, "fit"):
            n_train = min(max(round(self.training_fraction * n), 1), n - 1)
            if n_train < 1:
                raise ValueError(
                    f"{type(generator).__name__} is fitted on a part of the prompts that "
                    f"calibration never sees, which takes at least 2 prompts; got n_samples={n}."
                )
        order = np.arange(n)
        if n_train:
            order = _rng_of_training_split(self._splits).permutation(n)
        train, rest = np.sort(order[:n_train]), np.sort(order[n_train:])
        part = prompts.take(train)
        if n_train:
            generator.fit(part.prompts, [references[i] for i in train])
        trained_on = np.unique(part.digests())
        return DrawSource(generator, fingerprint(generator), seed, trained_on), rest

    def _draw(
        self, source: DrawSource, prompts: CheckedPrompts, n_draws: int
    ) -> list[list[Generation]]:
        """Draws 0 to ``n_draws - 1`` of each prompt; those that memory holds are not made again."""
        rows: list[list[Any]] = [[None] * n_draws for _ in range(len(prompts))]
        with _progress(self.verbose, len(prompts) * n_draws, "draw") as progress:

            def keep(i: int, draw: int, generation: Generation) -> None:
                rows[i][draw] = generation
                progress.update()
                _show_usage(progress, source.generator)

            queue = DrawQueue(prompts.prompts, n_draws, seed=source.seed, on_draw=keep)
            self.memory_.serve(source.generator, queue, fingerprint=source.fingerprint)
        return rows

    def _judge(
        self,
        source: DrawSource,
        prompts: CheckedPrompts,
        draws: list[list[Generation]],
        references: list[Any],
    ) -> DrawSource:
        """The source with the scores and verdicts of all draws, and what collected them."""
        generator = source.generator
        responses = [[draw.response for draw in row] for row in draws]
        if all(isinstance(one, str) and not one.strip() for row in responses for one in row):
            raise ValueError(
                f"{type(generator).__name__} returned empty responses for all {len(responses)} "
                "prompts; wanted text. Look at its stop strings and at the length it may generate."
            )
        warn_of_references(self.admission, references, responses)
        if self.judging == "all":
            admissible = admission_matrix(self.admission, references, responses, n_jobs=self.n_jobs)
        else:
            source = replace(
                source,
                verdicts=Verdicts(self.admission, references, responses, self.n_jobs),
            )
            admissible = np.full((len(responses), len(responses[0])), -1, dtype=np.int8)
        data = CalibrationData(
            quality_matrix(
                bind_quality(self.quality, generator), prompts.prompts, draws, n_jobs=self.n_jobs
            ),
            similarity_tensor(self.similarity, responses, n_jobs=self.n_jobs),
            admissible,
            provenance=Provenance(
                generator=source.fingerprint,
                seed=source.seed,
                k_max=len(draws[0]),
                **{name: score_fingerprint(getattr(self, name)) for name in SCORES},
            ),
            texts=equal_texts(responses),
            prompts=prompts.digests(),
        )
        return replace(source, data=data, prompts=prompts)

    # --- calibrate ----------------------------------------------------------------------------

    def _refuse_other_scores(self, collected: Provenance) -> None:
        for name in SCORES:
            then, now = getattr(collected, name), score_fingerprint(getattr(self, name))
            if then not in (None, now):
                raise ValueError(
                    f"data was collected with {name}={then!r:.80}, but now {name}={now!r:.80}; "
                    "wanted data collected with the scores that predict is to use. Call collect, "
                    "or fit, again: draws that were made before are not made anew."
                )

    def _source_of(self, data: CalibrationData) -> DrawSource:
        """Generator and seed that the data came from, as far as they tell."""
        known, source = data.provenance, getattr(self, "_source", None)
        if source is not None and source.collected(data):
            return source
        if source is None or known.generator not in (None, source.fingerprint):
            trained, source = source, None
        if source is not None and known.generator is None and not hasattr(source.generator, "fit"):
            source = None  # bare arrays: of the generator that the parameters name now
        if source is None:
            try:
                source = self._untrained_source()
            except NotFittedError:
                if trained is None:
                    raise
                source = trained
        if known.generator not in (None, source.fingerprint):
            raise ValueError(
                f"data was collected from another generator than the "
                f"{type(source.generator).__name__} that predict would draw from: this one has "
                f"other parameters or was trained anew (fingerprint {source.fingerprint}, that of "
                f"the data {known.generator}); wanted data collected from this one. Call collect, "
                "or fit, again."
            )
        seed = source.seed if known.seed is None else known.seed
        return replace(source, seed=seed, indices=None, prompts=None, data=None)

    def _untrained_source(self) -> DrawSource:
        """Generator and seed of a sampler that has seen no prompts."""
        generator = own_copy(self.generator)
        if hasattr(generator, "fit"):
            hint = (
                " It stands for generator=None: give the generator that the data came from, or, "
                "for thresholds alone, call sklearn_clm.calibration.learn_then_test."
            )
            raise NotFittedError(
                f"{type(generator).__name__} is fitted on prompts and references, which this "
                f"{type(self).__name__} has not seen: call fit, or collect, first."
                f"{hint if self.generator is None else ''}"
            )
        self._check_scores(generator)
        nobody = np.empty(0, dtype=np.uint64)
        return DrawSource(
            generator, fingerprint(generator), seed_of_draws(self.random_state), nobody
        )

    def _verdicts_for(self, source: DrawSource, data: CalibrationData) -> Verdicts | None:
        """Whom to ask for labels that the data lack."""
        if data.unknown is None:
            return None
        if source.verdicts is None or not source.collected(data):
            raise ValueError(
                f"data must have a label for each draw, or be what this sampler has collected, got "
                f"{int(data.unknown.sum())} unknown labels instead: there is nobody to ask about "
                "draws from elsewhere."
            )
        return source.verdicts

    def _test(
        self, data: CalibrationData, budgets: list[int], verdicts: Verdicts | None
    ) -> tuple[LearnThenTestResult | None, ExitResult | None]:
        """The tests, or the exit level; a null result is reported."""
        policy = ThresholdPolicy() if isinstance(self.policy, str) else self.policy
        elsewhere = getattr(policy, "frontier", None) or getattr(policy, "model_", None)
        n = data.n_prompts
        n_calibration = n
        if elsewhere is None:
            n_calibration = n - optimization_size(n, self.optimization_fraction) if n > 1 else 0
        needed = prompts_needed(self.epsilon, self.delta)
        if self.guarantee == "marginal":
            needed = math.ceil(1 / self.epsilon) - 1
        if n_calibration < needed:
            report_null(self._too_small(n, n_calibration, needed), self.on_null)
            return None, None
        weights: Weights = {
            "size_weight": self.size_weight,
            "excess_weight": self.excess_weight,
            "draw_weight": self.draw_weight,
        }
        judging = None
        if verdicts is not None:
            judging = LazyJudging() if isinstance(self.judging, str) else self.judging
        if isinstance(policy, ExitPolicy):
            left = calibrate_exit(
                policy,
                data,
                epsilon=self.epsilon,
                delta=self.delta,
                guarantee=self.guarantee,
                weights=weights,
                optimization_fraction=self.optimization_fraction,
                random_state=self._splits,
                judging=judging,
                verdicts=verdicts,
            )
            report_null(_null_exit(left), self.on_null)
            return None, left
        result = calibrate_thresholds(
            policy,
            data,
            budgets,
            epsilon=self.epsilon,
            delta=self.delta,
            set_score=self.set_score,
            weights=weights,
            n_lambdas=self.n_lambdas,
            optimization_fraction=self.optimization_fraction,
            random_state=self._splits,
            judging=judging,
            verdicts=verdicts,
        )
        report_null(_null(result, budgets[-1]), self.on_null)
        return result, None

    def _too_small(self, n: int, n_calibration: int, needed: int) -> str:
        fraction = self.optimization_fraction
        reason = f"no p-value can reach delta={self.delta:g} at epsilon={self.epsilon:g}"
        total = prompts_needed(self.epsilon, self.delta, fraction)
        if self.guarantee == "marginal":
            reason = f"no level is certified on average at epsilon={self.epsilon:g}"
            total = needed + 1
            while total - optimization_size(total, fraction) < needed:
                total += 1
        if n_calibration == n > 1:
            total = needed  # none are spent on a search
        return (
            f"Calibration is null: the calibration part has {n_calibration} of n_samples={n} "
            f"prompts, and {reason} with fewer than {needed}. With "
            f"optimization_fraction={fraction:.3g} that takes at least {total} prompts (those "
            "that train a generator not counted)."
        )

    def _record(self, **found: Any) -> SamplerCalibration:
        """The calibration, with copies of the parameters that it holds for."""
        asked = {
            name: found.pop(name, getattr(self, name))
            for name in (
                "epsilon",
                "delta",
                "size_weight",
                "excess_weight",
                "draw_weight",
                "guarantee",
            )
        }
        scores = {name: frozen(getattr(self, name)) for name in _USED}
        return SamplerCalibration(**scores, **asked, **found)

    # --- predict ------------------------------------------------------------------------------

    def _sets(self, prompts: CheckedPrompts, known: dict[int, int] | None = None) -> PredictionSets:
        """Sets of prompts; `known` names the row of some of them in the calibration data."""
        record, source = self.calibration_, self.calibration_.source
        source.refuse_changes()
        record.refuse_changes()
        with _progress(self.verbose, len(prompts), "prompt") as progress:
            rules = _open_sets(record, prompts, self.n_jobs, known or {}, progress)
            queue = DrawQueue(
                prompts.prompts,
                record.k_max,
                seed=source.seed,
                decide=rules.decide,
                on_draw=rules.count_draw,
            )
            self.memory_.serve(source.generator, queue, fingerprint=source.fingerprint)
        return PredictionSets(rules.sets, record.k_max, sampler=self, provenance=record.drawn_with)

    def _sets_of_fit(self, prompts: CheckedPrompts) -> PredictionSets:
        """Sets of the prompts given to fit, with the scores that calibration has."""
        return self._sets(prompts, {int(i): row for row, i in enumerate(self.calibration_indices_)})


def _open_sets(
    record: SamplerCalibration,
    prompts: CheckedPrompts,
    n_jobs: int | None,
    known: dict[int, int],
    progress: Any,
) -> ThresholdSets | ExitSets:
    """The sets of prompts before their first draw, by the rule that was calibrated."""
    scores = DrawScores(
        bind_quality(record.quality, record.generator),
        record.similarity,
        prompts,
        record.provenance,
        n_jobs,
        record.data,
        known,
    )
    options = {
        "guaranteed": record.certified,
        "provenance_known": not record.unknown,
        "guarantee": record.guarantee,
        "progress": progress,
    }
    left = record.exit
    if left is not None and record.certified:
        return ExitSets(
            left.model, left.level, left.same_text, left.equal_texts, prompts, scores, **options
        )
    set_score = get_set_score(record.set_score)
    rule = (record.lambda_hat, set_score, record.k_max, record.width)
    return ThresholdSets(*rule, prompts, scores, **options)


def _labelled(data: CalibrationData, verdicts: Verdicts) -> CalibrationData:
    """The data with the labels that are known by now, equal responses alike."""
    own = data.labels
    known = np.where(own >= 0, own, verdicts.labels[:, : data.k_max])
    table = LabelTable(data.first, verdicts.of_rows(np.arange(data.n_prompts)), known)
    labelled = data.with_labels(table.labels)
    labelled.provenance = data.provenance
    return labelled


def draw_budgets(k_max: Any) -> list[int]:
    """Values of the parameter `k_max` in ascending order."""
    if isinstance(k_max, Integral):
        return [int(k_max)]
    budgets = list(k_max)
    if not budgets or not all(isinstance(k, Integral) and int(k) >= 1 for k in budgets):
        raise ValueError(f"k_max must be an int >= 1, or a sequence of such, got {k_max!r}.")
    return sorted({int(k) for k in budgets})


def seed_of_draws(random_state: Any) -> int:
    """The seed that the parameter `random_state` stands for."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def own_copy(generator: Any) -> Any:
    """A copy of a generator that belongs to the estimator; a model that it holds is shared."""
    if generator is None:
        return ResamplingGenerator()
    if hasattr(generator, "get_params"):
        return clone(generator)
    if hasattr(generator, "fit"):
        return copy.deepcopy(generator)
    try:
        copied = object.__new__(type(generator))
        copied.__dict__.update({name: frozen(part) for name, part in vars(generator).items()})
    except TypeError:  # of a class that cannot be made so
        return generator
    return copied


def report_null(
    message: str | None,
    on_null: str,
    outcome: str = "predict returns the trivial set of all draws, without any guarantee.",
) -> None:
    """Warn of a null calibration and of what comes of it, or raise it; None is none."""
    if message is not None and on_null == "raise":
        raise NullCalibrationError(message)
    warn_of_null(None if message is None else f"{message} {outcome}")


def _null(result: LearnThenTestResult, k_max: int) -> str | None:
    if result.lambda_hat is not None:
        return None
    low, high = result.achievable_epsilon
    # rounded up, so that the epsilon which is named does work
    smallest = math.ceil(result.smallest_epsilon * 1e4) / 1e4
    if math.isnan(low):
        return (
            f"Calibration is null: no configuration is certified at epsilon={result.epsilon:g}, "
            f"delta={result.delta:g} with {result.n_calibration} calibration prompts. No epsilon "
            f"below {smallest:g} would have worked; lazy judging does not know more."
        )
    hint = " No draw is admissible for any prompt: check admission and references."
    return (
        f"Calibration is null: no configuration is certified at epsilon={result.epsilon:g}, "
        f"delta={result.delta:g} with {result.n_calibration} calibration prompts. The smallest "
        f"epsilon that would have worked is {smallest:g}. Sets of the first draw alone err "
        f"for {high:.1%} of the prompts, and sets of all {k_max} draws still for {low:.1%}; "
        f"epsilon can sensibly lie between the two (appendix C).{hint if low == 1.0 else ''}"
    )


def _null_exit(left: ExitResult) -> str | None:
    if left.level > -math.inf:
        return None
    smallest = math.ceil(left.smallest_epsilon * 1e4) / 1e4
    delta = f", delta={left.delta:g}" if left.guarantee == "pac" else ""
    return (
        f"Calibration is null: no exit level is certified at epsilon={left.epsilon:g}{delta} with "
        f"{left.n_calibration} calibration prompts. The smallest epsilon that would have worked is "
        f"{smallest:g}."
    )


def _rng_of_training_split(random_state: Any) -> Any:
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return check_random_state(random_state)
    # apart from the stream that splits the rest for calibration
    return np.random.default_rng([int(random_state), 1])


def _wrapper(model: Any) -> str | None:
    """What to write in place of a model that is no generator, where one can tell."""
    if isinstance(model, type):
        return f"give an instance, such as {model.__name__}(...)."
    if hasattr(model, "sample") or hasattr(model, "stream"):
        return None
    wrapper = None
    if isinstance(model, str):
        wrapper = f"TransformersGenerator({model!r:.60}) or OpenAIGenerator({model!r:.60})"
    elif hasattr(model, "predict_proba"):
        wrapper = f"EstimatorGenerator({type(model).__name__}(...))"
    elif hasattr(model, "generate"):
        wrapper = "TransformersGenerator(model, tokenizer=tokenizer)"
    return wrapper and f"wrap it as sklearn_clm.generators.{wrapper}."


def _warn_of_supervised_steps() -> None:
    """Warn of steps before the sampler that have learnt from the references that calibrate."""
    supervised = [name for name, step in steps_before() if _is_supervised(step)]
    if supervised:
        warn(
            f"the pipeline's steps {supervised} learn from the references before the sampler does, "
            "so that the prompts are no longer independent of the references that calibrate, and "
            "the guarantee does not hold. Such steps belong to the estimator inside the generator: "
            "EstimatorGenerator(make_pipeline(step, classifier))."
        )


def _warn_of_unkeyed_draws(
    source: DrawSource, prompts: CheckedPrompts, draws: Sequence[Generation]
) -> None:
    """Repeat the last draw of a prompt, where the generator is none that is known to be keyed."""
    generator = source.generator
    if isinstance(generator, BaseGenerator):
        return
    last = len(draws) - 1
    (row,) = sample(generator, prompts.prompts, 1, start=last, seed=source.seed)
    if row[0].response != draws[last].response:
        warn(
            f"generator {type(generator).__name__} gave another response when the same draw was "
            "asked for again. Draw j of a prompt must depend on the prompt, the seed and j alone: "
            "otherwise repeated prompts share no draws with predict, and the guarantee may fail. "
            "A sklearn_clm.caching.CachedGenerator around it keeps its draws."
        )


def _is_supervised(step: object) -> bool:
    """Whether a transformer is known to learn from references, which tags seldom tell."""
    from sklearn.feature_selection import SelectorMixin, VarianceThreshold

    for name in ("steps", "transformer_list", "transformers"):  # of what holds others
        if hasattr(step, name):
            return any(_is_supervised(part) for _, part, *_ in getattr(step, name))
    if isinstance(step, SelectorMixin):
        return not isinstance(step, VarianceThreshold)
    return isinstance(step, BaseEstimator) and get_tags(step).target_tags.required


def _progress(verbose: int, total: int, unit: str) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, unit=unit, disable=not verbose)


def _show_usage(progress: Any, generator: Any) -> None:
    """What the draws cost, where the generator counts that."""
    usage = None if progress.disable else getattr(generator, "usage_", None)
    if usage:
        progress.set_postfix(usage, refresh=False)
