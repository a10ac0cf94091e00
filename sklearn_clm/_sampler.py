"""The estimator that calibrates when to stop sampling and what to throw away."""

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_clm import _calibrating
from sklearn_clm._collecting import N_JOBS, collect, generator_for
from sklearn_clm._html import visual_block
from sklearn_clm._judging import judge_sets, set_objective
from sklearn_clm._persistence import CalibrationFileMixin
from sklearn_clm._predicting import sample_sets, sets_of_fitted_prompts
from sklearn_clm._prompts import check_admissions, check_fitted_prompts, check_prompts
from sklearn_clm._reporting import ReportMixin
from sklearn_clm._results import PredictionSets
from sklearn_clm._wrong_generator import GeneratorOwner
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import Generation
from sklearn_clm.scoring import SetScore

__all__ = ["ConformalSampler"]


class ConformalSampler(  # type: ignore[call-arg]
    CalibrationFileMixin, ReportMixin, TransformerMixin, GeneratorOwner, auto_wrap_output_keys=None
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
        What happens if no configuration can be certified, be it that none is safe enough or that
        there are too few prompts for any test to succeed. With "warn" a
        :class:`NullCalibrationWarning` is issued and ``predict`` returns all draws, marked as
        not guaranteed; with "raise" it is a :class:`NullCalibrationError`.
    random_state : int, RandomState instance or None, default=None
        An int is itself the seed of the draws, and seeds the random splits of the data. With
        None the seed of the draws is 0, so that draws which were paid for are found again in a
        cache, and the splits are different at every call.
    n_jobs : int or None, default=None
        Processes or threads for scores and admissions.
    verbose : int, default=0
        Whether to show a progress bar that counts draws.
    training_fraction : float, default=0.5
        Part of the data that trains a generator with a ``fit`` method, in (0, 1).
    draws_per_round : int, default=1
        Draws that ``predict`` asks for at once for each prompt that is still open. More means
        fewer, larger calls of the generator, and draws beyond the stop that are thrown away;
        the sets are the same.

    Attributes
    ----------
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
        Error of always drawing K, and of always drawing one (appendix C).
    calibration_data_ : CalibrationData
        Scores, similarities and admissions of the draws that calibration saw.
    calibration_draws_ : list of lists of Generation
        The draws themselves, K for each prompt.
    calibration_indices_ : ndarray of int
        Positions in X of the prompts in `calibration_data_`.
    result_ : LearnThenTestResult or None
        The whole result of calibration; None where there were too few prompts to test at all.
    generator_, seed_ : generator, int
        The generator in use, fitted where it can be, and the seed of all its draws.
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
        "draws_per_round": [Interval(Integral, 1, None, closed="left")],
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
        draws_per_round: int = 1,
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
        self.draws_per_round = draws_per_round

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
        _, data = self._collect(X, y)
        return self.calibrate(data)

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
            K draws for each prompt; prompts that trained the generator are not among them.
        """
        return self._collect(prompts, admissions)[1]

    def calibrate(self, data: CalibrationData) -> "ConformalSampler":
        """Calibrate on collected data: the instant half of ``fit``.

        Once collected, data can be calibrated for many `epsilon`, `delta`, `set_score` and smaller
        `k_max`. Later changes of these parameters or of the scores do not reach what was
        calibrated: ``predict`` goes on with those that calibration looked at.

        Parameters
        ----------
        data : CalibrationData
            From :meth:`collect`, or loaded.

        Returns
        -------
        ConformalSampler
            Itself.

        Raises
        ------
        ValueError
            If the data holds fewer draws than `k_max`, or other scores collected it.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``.
        """
        self._validate_params()
        if not isinstance(data, CalibrationData):
            raise TypeError(f"data must be CalibrationData, got {type(data).__name__}.")
        _calibrating.check_collected_data(self, data)
        attributes = _calibrating.calibrated_attributes(
            data,
            _calibrating.draw_budgets(self.k_max),
            epsilon=self.epsilon,
            delta=self.delta,
            set_score=self.set_score,
            random_state=self.random_state,
            n_lambdas=self.n_lambdas,
            optimization_fraction=self.optimization_fraction,
            size_weight=self.size_weight,
            excess_weight=self.excess_weight,
            on_null=self.on_null,
        )
        attributes |= generator_for(self, data)
        _calibrating.take_over(self, attributes)
        self._paid_draws = None
        return self

    def predict(self, X: Any) -> PredictionSets:
        """Sample a set of responses for each prompt (Algorithm 1).

        Draws are made only as the stopping rule asks for them, in rounds over all prompts that
        are still open.

        Parameters
        ----------
        X : sequence of length n, or numeric array of shape (n, d)
            Prompts.

        Returns
        -------
        PredictionSets
            One set for each prompt. A null calibration gives all `k_max_` draws, each set marked
            ``guaranteed=False``.
        """
        check_is_fitted(self)
        checked = check_fitted_prompts(self, X)
        return PredictionSets(sample_sets(self, checked.prompts), self.k_max_, sampler=self)

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
            Equal to ``fit(X, y).transform(X)``, with all draws of the calibration prompts in
            `calibration_draws` and, in `calibration_mask`, which prompts those are.
        """
        checked = check_prompts(X, estimator=self)
        self.fit(X, y)
        return sets_of_fitted_prompts(self, checked.prompts)

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
        admissions = check_admissions(y, len(checked), estimator=self)
        if self.lambda_hat_ is None:
            return -np.inf
        sets = PredictionSets(sample_sets(self, checked.prompts), self.k_max_)
        outcomes = judge_sets(self.admission, admissions, sets, n_jobs=self.n_jobs)
        return -set_objective(outcomes, self.size_weight, self.excess_weight)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "lambda_hat_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _sk_visual_block_(self) -> Any:
        return visual_block([("generator", self.generator)])

    def _collect(self, X: Any, y: Any) -> tuple[list[list[Generation]], CalibrationData]:
        self._validate_params()
        _calibrating.draw_budgets(self.k_max)
        checked = check_prompts(X, estimator=self)
        admissions = check_admissions(y, len(checked), estimator=self)
        collected = collect(self, checked, admissions)
        _calibrating.forget_calibration(self)
        self._numeric_prompts = checked.numeric
        _calibrating.set_or_delete(self, "n_features_in_", checked.n_features)
        _calibrating.set_or_delete(self, "feature_names_in_", checked.feature_names)
        for name, value in collected.items():
            setattr(self, name, value)
        return self.calibration_draws_, self.calibration_data_
