"""The estimator that calibrates which components of responses can be trusted on their own."""

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._calibrating import set_or_delete
from sklearn_clm._collecting import N_JOBS
from sklearn_clm._component_draws import (
    CalibrationDraws,
    calibration_draws,
    check_sets,
    refuse_without_logprobs,
    sampler_for_prompts,
    sets_of_fit,
)
from sklearn_clm._html import visual_block
from sklearn_clm._results import ComponentSets, PredictionSets, drawn_by
from sklearn_clm._selecting import (
    accepted_draws,
    calibrated_attributes,
    forget_calibration,
    found_components,
    parts_of,
    select,
)
from sklearn_clm._snapshots import snapshot
from sklearn_clm.calibration import ComponentCalibrationData
from sklearn_clm.scoring import get_component_admission
from sklearn_clm.scoring._admission import judge

__all__ = ["ComponentSelector"]


class ComponentSelector(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Select the components of responses, such as sentences, that can be trusted.

    ``fit`` calibrates a threshold on the scores of components (section 4.4 of the paper);
    ``predict`` samples a set of responses for each prompt, and returns the components of its
    members that score at least that (Algorithm 2). With probability at least 1 - `delta` over the
    calibration prompts, *all* components selected for a new prompt are correct with probability
    at least 1 - `alpha` (Eq. 9).

    Parameters
    ----------
    sampler : ConformalSampler, default=None
        Samples the responses. A fitted one is used as it is, and only the draws that it still
        lacks are made; one that is not is cloned and fitted on the same prompts. None is right in
        a Pipeline after a sampler, and a default :class:`ConformalSampler` otherwise.
    alpha : float, default=0.3
        Tolerated probability that any selected component is wrong, in (0, 1).
    delta : float, default=0.05
        Tolerated probability that calibration misleads, in (0, 1).
    splitter : str or callable, default="sentence"
        Splits a response into components: "sentence", "period", "line", or a callable that gives
        (start, stop) character offsets, or the parts themselves, in order. A response that is not
        text, such as a number, is a single component.
    component_score : str, callable, classifier or object, default="span_likelihood"
        Confidence F^c in a component: "span_likelihood", "random" (a baseline), "support", a
        callable ``f(prompt, component) -> float``, a fitted binary classifier with
        ``predict_proba``, or an object with ``score_components`` such as
        :class:`~sklearn_clm.scoring.EntailmentScore`. A score that looks at the other samples of
        the set must never fall when samples are added.
    admission : str or callable, default="rouge_l"
        Admission A^c, used where admissions are references. "rouge_l" admits a component whose
        ROUGE-L with any component of the reference is at least 0.4 (one that is not text if it
        equals the reference), "exact_match" one that matches any of them exactly. A callable
        ``admission(reference, component) -> bool`` is given the whole reference.
    on_null : {"warn", "raise"}, default="warn"
        What happens if no threshold can be certified. With "warn" a
        :class:`NullCalibrationWarning` is issued and every selection is empty, which is valid;
        with "raise" it is a :class:`NullCalibrationError`.
    random_state : int, RandomState instance or None, default=None
        Seed of ``component_score="random"``, for which None is 0; and the `random_state` of a
        sampler that is fitted here and has none of its own.
    n_jobs : int or None, default=None
        Processes or threads that judge components.

    Attributes
    ----------
    gamma_hat_ : float
        The threshold: components that score at least this are selected. +inf where none could be
        certified.
    thresholds_, n_errors_, p_values_ : ndarray of shape (t,)
        The distinct scores of the calibration data from the largest down, and for each of them
        how many prompts had an inadmissible component selected, and the p-value.
    achievable_alpha_ : tuple of float (low, high)
        Share of calibration prompts with an error at the highest threshold and at the lowest.
    calibration_data_ : ComponentCalibrationData
        Scores and labels of the distinct components of the calibration prompts.
    calibration_indices_ : ndarray of int
        Positions in X of the prompts in `calibration_data_`.
    result_ : ComponentThreshold or None
        The whole result of calibration; None where there were too few prompts to test at all.
    sampler_ : ConformalSampler
        The sampler in use.
    n_features_in_ : int
        Columns of X, for two-dimensional X.
    feature_names_in_ : ndarray of str
        Names of the columns of X, where X is a data frame.

    See Also
    --------
    ConformalSampler : The sets that the components come from.
    sklearn_clm.calibration.component_learn_then_test : The calibration, as a function of arrays.

    Notes
    -----
    Calibration looks at all K samples of each prompt, whatever set the sampler would have
    returned, so it does not depend on the thresholds of the sampler (Proposition 4.4). Texts that
    are equal up to the white space around them are one component, and the maximum over its
    occurrences is its score: hence a component of a set never scores higher than among the K
    samples.

    The guarantee of the sampler (Eq. 1) and this one hold each with probability 1 - delta over
    the calibration data; *both at once* hold with probability 1 - 2 delta, by the union bound
    (with different deltas, 1 minus their sum). As with the sampler, the guarantee is for prompts
    from the distribution of the calibration prompts, and given the seed of the draws. A sampler
    that comes fitted, or a score that was trained, must not have been trained on the prompts
    passed to ``fit`` here; calibrating a sampler on them is no training.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_clm import ComponentSelector, ConformalSampler
    >>> from sklearn_clm.generators import BaseGenerator, Generation, draw_stream
    >>> class Forecaster(BaseGenerator):
    ...     def sample(self, prompts, n_samples, *, start=0, seed=0):
    ...         draws = range(start, start + n_samples)
    ...         return [[self.draw(p, draw_stream(p, seed, j)) for j in draws] for p in prompts]
    ...
    ...     def draw(self, prompt, rng):
    ...         sunny = rng.random() < 0.99
    ...         text = f"It is {prompt}. {'It will be sunny.' if sunny else 'It will rain.'}"
    ...         end = text.index(".") + 1
    ...         logs = (0.0, float(np.log(0.99 if sunny else 0.01)))
    ...         return Generation(text, sum(logs), 2, logs, ((0, end), (end, len(text))))
    >>> days = [f"day {i}" for i in range(200)]
    >>> references = [f"It is {day}. It will be sunny." for day in days]
    >>> pipeline = make_pipeline(
    ...     ConformalSampler(Forecaster(), k_max=3, epsilon=0.1, random_state=0),
    ...     ComponentSelector(alpha=0.1, admission="exact_match"),
    ... )
    >>> pipeline.fit(days, references).predict(["day 1001"])[0].components
    ('It is day 1001.', 'It will be sunny.')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "sampler": [None, HasMethods(["fit", "predict"])],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "splitter": [str, callable],
        "component_score": [
            str,
            callable,
            HasMethods("predict_proba"),
            HasMethods("score_components"),
        ],
        "admission": [str, callable],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        sampler: Any = None,
        *,
        alpha: float = 0.3,
        delta: float = 0.05,
        splitter: str | Callable[[str], Any] = "sentence",
        component_score: Any = "span_likelihood",
        admission: str | Callable[[Any, Any], bool] = "rouge_l",
        on_null: str = "warn",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.sampler = sampler
        self.alpha = alpha
        self.delta = delta
        self.splitter = splitter
        self.component_score = component_score
        self.admission = admission
        self.on_null = on_null
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> "ComponentSelector":
        """Collect components and calibrate on them.

        Parameters
        ----------
        X : sequence of length n, numeric array of shape (n, d), or PredictionSets
            Prompts, or, inside a Pipeline, the sets that the ``fit_transform`` of the sampler
            gave: their draws are used again, and prompts that trained a generator left out.
        y : sequence of length n
            Admissions: for each prompt either a callable ``A^c_i(component) -> bool``, or a
            reference (or a list of references, any of which will do) that `admission` judges by.

        Returns
        -------
        ComponentSelector
            Itself.

        Raises
        ------
        ValueError, TypeError
            If an argument does not fit, or a splitter, a score or an admission gives what it
            should not. Draws made until then are kept, and the next ``fit`` on the same prompts
            uses them.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``.
        """
        return self.calibrate(self.collect(X, y))

    def collect(self, prompts: Any, admissions: Any) -> ComponentCalibrationData:
        """Draw, split, score and judge: the expensive half of ``fit``.

        Forgets an earlier calibration, which was one of other draws and other scores.

        Parameters
        ----------
        prompts, admissions
            As X and y in :meth:`fit`.

        Returns
        -------
        ComponentCalibrationData
            Scores and labels of the distinct components of all K draws of each prompt.
        """
        self._validate_params()
        parts = parts_of(self)
        admission = get_component_admission(self.admission, parts["splitter_"])
        refuse_without_logprobs(self, parts["component_score_"], prompts)
        found = calibration_draws(self, prompts, admissions)
        components = found_components(
            parts["splitter_"],
            parts["component_score_"],
            found.prompts,
            found.draws,
            [range(len(row)) for row in found.draws],
        )
        distinct = [one.components for one in components]
        labels = judge(admission, found.admissions, distinct, n_jobs=self.n_jobs)
        data = ComponentCalibrationData.from_arrays([one.scores for one in components], labels)
        self._remember(found, parts, data)
        return data

    def calibrate(self, data: ComponentCalibrationData) -> "ComponentSelector":
        """Calibrate on collected data: the instant half of ``fit``.

        Parameters
        ----------
        data : ComponentCalibrationData
            From :meth:`collect`, loaded, or made of the scores and labels that one has.

        Returns
        -------
        ComponentSelector
            Itself.

        Raises
        ------
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``.
        """
        self._validate_params()
        if not isinstance(data, ComponentCalibrationData):
            raise TypeError(f"data must be ComponentCalibrationData, got {type(data).__name__}.")
        attributes = calibrated_attributes(data, self.alpha, self.delta, self.on_null)
        if data is not getattr(self, "_collected", None):
            # from elsewhere, so what it was scored with is what the parameters say now
            self._forget_collected()
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def predict(self, X: Any) -> ComponentSets:
        """Select the trusted components of the responses to each prompt (Algorithm 2).

        Parameters
        ----------
        X : sequence of length n, numeric array of shape (n, d), or PredictionSets
            Prompts, for which `sampler_` then samples sets, or such sets.

        Returns
        -------
        ComponentSets
            One set of components for each prompt.

        Raises
        ------
        NotFittedError
            If the selector is not fitted, or was calibrated on arrays and has no fitted sampler
            for prompts.
        ValueError
            If a set was sampled with a larger budget than calibration saw, or from another
            generator or with another seed.
        """
        check_is_fitted(self)
        sets = X if isinstance(X, PredictionSets) else sampler_for_prompts(self).predict(X)
        check_sets(self, sets)
        draws = [accepted_draws(one) for one in sets]
        if self.gamma_hat_ == np.inf:
            draws = [[] for _ in sets]
        prompts, indices = [one.prompt for one in sets], [one.indices for one in sets]
        components = found_components(
            self.splitter_, self.component_score_, prompts, draws, indices
        )
        calibrated = self.calibration_data_.provenance
        return ComponentSets(
            [
                select(one, found, self.gamma_hat_, calibrated)
                for one, found in zip(sets, components)
            ],
            min_width=sets.k_max,
            selector=self,
        )

    def transform(self, X: Any) -> ComponentSets:
        """Same as :meth:`predict`.

        Parameters
        ----------
        X : sequence, array or PredictionSets
            As in :meth:`predict`.

        Returns
        -------
        ComponentSets
            One set of components for each prompt.
        """
        return self.predict(X)

    def fit_transform(self, X: Any, y: Any) -> ComponentSets:
        """Fit, and select components of the same prompts from the same draws.

        Parameters
        ----------
        X, y
            As in :meth:`fit`.

        Returns
        -------
        ComponentSets
            Equal to ``fit(X, y).transform(X)``.
        """
        return self.fit(X, y).predict(sets_of_fit(self, X))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean number of selected components (what Eq. 10 maximises).

        Parameters
        ----------
        X : sequence, array or PredictionSets
            As in :meth:`predict`.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            The mean over prompts.
        """
        return float(np.mean(self.predict(X).sizes))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "gamma_hat_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _sk_visual_block_(self) -> Any:
        return visual_block([("sampler", self.sampler)])

    def _remember(self, found: CalibrationDraws, parts: dict[str, Any], data: Any) -> None:
        forget_calibration(self)
        self._paid_draws, self._collected = None, data
        self._n_draws = max(len(row) for row in found.draws)
        self.calibration_indices_ = found.indices
        self.sampler_, self._drawn_by = found.sampler, drawn_by(found.sampler)
        for name, part in parts.items():
            setattr(self, name, snapshot(part))
        for name in ("n_features_in_", "feature_names_in_"):
            set_or_delete(self, name, getattr(found.sampler, name, None))

    def _forget_collected(self) -> None:
        self._collected = None
        if hasattr(self, "calibration_indices_"):
            del self.calibration_indices_
        for name, part in parts_of(self).items():
            setattr(self, name, snapshot(part))
