"""The estimator that calibrates which components of responses can be trusted on their own."""

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, replace
from itertools import chain
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import report_null, warn
from sklearn_clm._results import ComponentSets, PredictionSets, visual_block
from sklearn_clm._sampler import ConformalSampler
from sklearn_clm.calibration import ComponentCalibrationData, Provenance
from sklearn_clm.calibration._arrays import refuse_unknown
from sklearn_clm.calibration._binomial import mistaken_delta
from sklearn_clm.calibration._components import check_components
from sklearn_clm.calibration._data import optimization_size, split_prompts
from sklearn_clm.generators import Generation
from sklearn_clm.generators._prompts import CheckedPrompts, check_fitted_prompts, check_prompts
from sklearn_clm.policies import Groups
from sklearn_clm.policies._attributes import N_JOBS, SelectorAttributes
from sklearn_clm.policies._collection import needed_shift, warn_of_repetitions
from sklearn_clm.policies._component_tests import ComponentTest, planned_tests, run_tests
from sklearn_clm.policies._components import (
    CollectedComponents,
    components_of_draws,
    components_of_sets,
    draws_of,
    higher_in_sets,
    never_right,
    never_wrong,
    out_of_reach,
    refuse_betting,
    refuse_larger_budget,
    refuse_other_calibration,
    refuse_other_draws,
    refuse_other_loss,
    refuse_other_parts,
    refuse_sets_of_fit,
    refuse_without_logprobs,
    select_components,
    shift_of_prompts,
    unseen_prompts,
)
from sklearn_clm.policies._files import read_calibration, refuse_differences, refuse_other_groups
from sklearn_clm.policies._groups import groups_of, lost_groups
from sklearn_clm.policies._judging import ComponentVerdicts
from sklearn_clm.policies._records import SelectorCalibration
from sklearn_clm.policies._risks import WrongFraction
from sklearn_clm.policies._source import naming_position, seed_of_draws
from sklearn_clm.scoring import get_component_admission, get_component_score, get_splitter
from sklearn_clm.scoring._admission import check_admissions
from sklearn_clm.scoring._identity import frozen, score_fingerprint
from sklearn_clm.scoring._similarity import warn_of_script

_N_TRIED = 100  # calibration prompts on which the threshold is tried
_NOTHING = "Every such selection will be empty, which is valid."


class ComponentSelector(  # type: ignore[call-arg]
    SelectorAttributes, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Select the components of responses, such as sentences, that are admissible.

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
        Tolerated probability that any selected component is wrong, in (0, 1); see `loss`.
    delta : float, default=0.05
        Tolerated probability that calibration misleads, in (0, 1).
    splitter : str or callable, default="sentence"
        Splits a response into components: "sentence" (of English; German is
        ``sklearn_clm.scoring.SentenceSplitter("de")``), "period", "line", or a callable that gives
        (start, stop) character offsets, or the parts themselves, in order. A response that is not
        text, such as a number, is a single component.
    component_score : str, callable, classifier or object, default="span_likelihood"
        Confidence F^c in a component: "span_likelihood", "random" (a baseline), "support", a
        callable ``f(prompt, component) -> float``, a fitted binary classifier with
        ``predict_proba``, or an object with ``score_components`` such as
        :class:`sklearn_clm.scoring.EntailmentScore`. A score that looks at the other samples of
        the set must never fall when samples are added; ``fit`` warns where it does.
    admission : str or callable, default="rouge_l"
        Admission A^c, used where admissions are references. "rouge_l" admits a component whose
        ROUGE-L with any component of the reference is at least 0.4 (one that is not text if it
        equals the reference), "exact_match" one that matches any of them exactly. A callable
        ``admission(reference, component) -> bool`` is given the whole text of a reference, and of
        a list, tuple or set of references it is called once with each; a dict is one reference.
    judging : {"all", "lazy"}, default="all"
        With "lazy" components are judged from the highest score down, until the threshold is
        known: it is that of all labels, see :func:`sklearn_clm.calibration.judge_components`.
        ``calibrate`` then asks, and not ``collect``.
    loss : {"any", "fraction"} or WrongFraction, default="any"
        What `alpha` bounds: the probability that any selected component is wrong, or the mean
        fraction of wrong ones among those selected (0 for none); see
        :class:`~sklearn_clm.policies.WrongFraction`. For fractions a sampler that is not fitted is
        fitted on a random half of the prompts, and the other half calibrates; one that is fitted
        must be so on other prompts, and later predictions need the very same calibration of it.
    on_null : {"warn", "raise"}, default="warn"
        What happens if no threshold can be certified. With "warn" a
        :class:`NullCalibrationWarning` is issued and every selection is empty, which is valid;
        with "raise" it is a :class:`NullCalibrationError`.
    random_state : int, RandomState instance or None, default=None
        Seed of ``component_score="random"``, for which None is 0; of the split between sampler
        and components, which with None comes from the prompts; and the `random_state` of a sampler
        that is fitted here and has none of its own.
    n_jobs : int or None, default=None
        Processes or threads that judge components.
    verbose : int, default=0
        Whether to show the progress of draws; a sampler that is given has its own.
    groups : Groups, default=None
        A guarantee within each group of prompts, see :class:`sklearn_clm.policies.Groups`. None
        is one guarantee for all prompts together, unless ``fit`` is given groups. What the sampler
        promises within groups is a parameter of its own.

    Attributes
    ----------
    calibration_ : SelectorCalibration
        All that ``predict`` depends on, as calibration saw it. The attributes below are read from
        it, and later changes of parameters do not reach it.
    gamma_hat_ : float
        The threshold: components that score at least this are selected. +inf where none could be
        certified.
    groups_ : dict of float
        With groups: the threshold of each. The other attributes are those of the threshold for all
        prompts together, which is tested for comparison.
    group_results_ : dict of ComponentThreshold or None
        With groups: the whole result of each; None for one of too few prompts.
    shift_ : Shift or None
        The shift of prompts that the guarantee holds for; it is that of the sampler.
    thresholds_, n_errors_, p_values_ : ndarray of shape (t,)
        The thresholds that were tested, from the largest down, and for each of them how many
        prompts had an inadmissible component selected, and the p-value.
    achievable_alpha_ : tuple of float (low, high)
        Mean loss of calibration prompts at the highest threshold and at the lowest.
    calibration_data_ : ComponentCalibrationData
        Scores and labels of the distinct components of the calibration prompts.
    n_judgements_ : int
        How many of them have a label.
    calibration_indices_ : ndarray of int
        Positions in X of the calibration prompts; only where ``fit`` or ``collect`` of
        this very estimator gave these data.
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
    from the distribution of the calibration prompts, and given the seed of the draws; after a
    sampler with a :class:`~sklearn_clm.policies.CovariateShift`, for prompts that are distributed
    as the weights say, since prompts are kept by their weight here as well. A sampler
    that comes fitted, or a score that was trained, must not have been trained on the prompts
    passed to ``fit`` here; calibrating a sampler on them is no training.

    The mean fraction of wrong components (``loss="fraction"``) is another matter: a part of a set
    may hold a larger fraction of them than the whole, so Proposition 4.4 fails, and what is
    calibrated is the selection from the very sets that the sampler makes.

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
        "sampler": [None, ConformalSampler],
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
        "judging": [StrOptions({"all", "lazy"})],
        "loss": [StrOptions({"any", "fraction"}), WrongFraction],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
        "n_jobs": N_JOBS,
        "verbose": ["verbose"],
        "groups": [None, Groups],
    }
    _options: ClassVar[dict[str, type[BaseEstimator]]] = {"loss": WrongFraction, "groups": Groups}

    def __init__(
        self,
        sampler: ConformalSampler | None = None,
        *,
        alpha: float = 0.3,
        delta: float = 0.05,
        splitter: str | Callable[[str], Any] = "sentence",
        component_score: Any = "span_likelihood",
        admission: str | Callable[[Any, Any], bool] = "rouge_l",
        judging: str = "all",
        loss: str | WrongFraction = "any",
        on_null: str = "warn",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        groups: Groups | None = None,
    ) -> None:
        self.sampler = sampler
        self.alpha = alpha
        self.delta = delta
        self.splitter = splitter
        self.component_score = component_score
        self.admission = admission
        self.judging = judging
        self.loss = loss
        self.on_null = on_null
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.groups = groups

    def fit(
        self, X: Any, y: Any, *, groups: object = None, prompt_weight: object = None
    ) -> "ComponentSelector":
        """Collect components and calibrate on them.

        Parameters
        ----------
        X : sequence of length n, numeric array of shape (n, d), or PredictionSets
            Prompts, or, inside a Pipeline, the sets that the ``fit_transform`` of the sampler
            gave: their draws are used again, and prompts that trained a generator left out.
        y : sequence of length n
            Admissions: for each prompt either a callable ``A^c_i(component) -> bool``, or a
            reference that `admission` judges by. A list, tuple or set holds several references,
            each judged by itself, any of which will do; a dict is one reference.
        groups : sequence of length n, default=None
            The group of each prompt, where the parameter `groups` does not give it. A sampler with
            ``groups=Groups()`` is given them as well.
        prompt_weight : array-like of shape (n,), default=None
            Density of new prompts relative to these, where the `shift` of the sampler does not
            give it. A prompt calibrates with probability weight / bound, as it does the sampler.

        Returns
        -------
        ComponentSelector
            Itself.

        Raises
        ------
        ValueError, TypeError
            If an argument does not fit, or a splitter, a score or an admission gives what it
            should not. Draws made until then are kept, and the next ``fit`` on the same prompts
            uses them; verdicts are, where `admission` is a
            :class:`sklearn_clm.caching.CachedAdmission`.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``.
        """
        self._validate_params()
        if groups is None and self.groups is not None and self.groups.by is None:
            self.groups.of(None, 0)  # says what is missing
        return self.calibrate(self.collect(X, y, groups=groups, prompt_weight=prompt_weight))

    def collect(
        self, prompts: Any, admissions: Any, *, groups: object = None, prompt_weight: object = None
    ) -> ComponentCalibrationData:
        """Draw, split, score and judge: the expensive half of ``fit``.

        Forgets an earlier calibration, which was one of other draws and other scores.

        Parameters
        ----------
        prompts, admissions, groups, prompt_weight
            As X, y, groups and prompt_weight in :meth:`fit`.

        Returns
        -------
        ComponentCalibrationData
            Scores and labels of the distinct components of all K draws of each prompt. The data
            carry what they were collected with.
        """
        self._validate_params()
        splitter, component_score = self._parts()
        admission = get_component_admission(self.admission, splitter)
        given = prompts if isinstance(prompts, PredictionSets) else None
        maker = None if given is None else given.sampler
        refuse_without_logprobs(self.component_score, component_score, maker or self.sampler)
        if given is None:
            checked = self._checked(prompts)
        else:
            sampler, checked, indices = self._prompts_of_sets(given)
        references = check_admissions(admissions, len(checked), estimator=self)
        # a mistake is found before anything is paid for
        names = groups_of(self.groups, groups, len(checked), checked)
        names = None if groups is None else names
        if given is None:
            sampler, indices = self._fitted_sampler(checked, references, names, prompt_weight)
        shift = None
        if given is not None or sampler is self.sampler or self._fraction is not None:
            of_fit = given is not None and given.of_fit
            indices, shift = shift_of_prompts(
                sampler, prompt_weight, checked, indices, of_fit=of_fit
            )
        names = None if names is None else [names[i] for i in indices]
        checked, references = checked.take(indices), [references[i] for i in indices]
        record, fraction = sampler.calibration_, self._fraction
        draws: Sequence[Sequence[Generation]]
        if fraction is not None:
            needed = _of_sampler(sampler, names)
            sets = sampler._sets(checked, groups=needed) if given is None else given[indices]
            draws = [draws_of(one) for one in sets]
            found = components_of_sets(splitter, component_score, sets)
        else:
            # the whole budget, even where a smaller one was chosen: the choice was made on data
            with naming_position(checked):
                draws = record.source.draw(sampler.memory_, checked, record.width, sampler.verbose)
            found = components_of_draws(splitter, component_score, checked.prompts, draws)
        responses = [[draw.response for draw in row] for row in draws]
        if not all(map(callable, references)):
            warn_of_script("admission", self.admission, chain.from_iterable(responses))
        verdicts = ComponentVerdicts(admission, references, responses, found, self.n_jobs)
        data = ComponentCalibrationData.from_arrays(
            [one.scores for one in found],
            [np.full(len(one.components), -1) for one in found],
            prompts=checked.digests(),
            provenance=replace(
                record.drawn_with,
                k_max=record.width,
                precision=None,
                sampler=None if fraction is None else record.digest,
                shift=record.drawn_with.shift if shift is None else shift.to_json(),
                **self._fingerprints(),
            ),
        )
        if self.judging == "all":
            data = self._judged(verdicts, data, None)
        self.__dict__.pop("calibration_", None)
        self._collected = CollectedComponents(
            data, verdicts, sampler, checked, indices, found[:_N_TRIED], names
        )
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(sampler, name):
                setattr(self, name, getattr(sampler, name))
        return data

    def calibrate(
        self, data: ComponentCalibrationData, *, groups: object = None
    ) -> "ComponentSelector":
        """Calibrate on collected data: the instant half of ``fit``.

        Parameters
        ----------
        data : ComponentCalibrationData
            From :meth:`collect`, loaded, or made of the scores and labels that one has. Data that
            do not know what they were collected with are allowed, and results are marked
            "provenance unknown".
        groups : sequence of length n, default=None
            The group of each prompt of `data`. None are those given to :meth:`collect`, or found
            from the prompts that it was given, where `data` are what it returned; a part of them
            needs its groups.

        Returns
        -------
        ComponentSelector
            Itself.

        Raises
        ------
        ValueError
            If the data were collected with another splitter, score, admission, generator, seed,
            kind of loss or a smaller budget of draws.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``.
        """
        self._validate_params()
        check_components(data)
        known, prompts = data.provenance, None
        refuse_other_parts(known, self._fingerprints())
        refuse_other_loss(known, self.loss, of_sets=self._fraction is not None)
        collected = self._collected_of(data)
        if collected is not None:
            prompts, groups = collected.prompts, collected.groups if groups is None else groups
        elif groups is None and self.groups is None and self._collected_alike(data):
            raise lost_groups(data.n_prompts)
        names = groups_of(self.groups, groups, data.n_prompts, prompts)
        data = self._labelled(data, names, collected)
        sampler = self._sampler_of(data)
        if sampler is not None:
            refuse_other_calibration(sampler.calibration_.digest, known.sampler, "data")
        tests = self._tests(data, names)
        found = run_tests(data, self.alpha, tests, self._fraction)
        report_null(found.why_null, self.on_null, _NOTHING)
        self.calibration_ = self._record(
            **found.fields(),
            n_draws=known.k_max,
            provenance=known,
            sampler=sampler,
            data=data,
            groups=None if found.by_group is None else frozen(self.groups or Groups()),
        )
        remarks = {
            "delta": mistaken_delta(self.delta),
            **self._remarks_on_sets(),
            "never right": never_right(data.labels),
            "never wrong": never_wrong(self.admission, self.achievable_alpha_[1]),
        }
        self.calibration_ = replace(
            self.calibration_, remarks=tuple(filter(None, remarks.values()))
        )
        for message in self.calibration_.remarks:
            warn(message)
        return self

    def predict(self, X: Any, *, groups: object = None) -> ComponentSets:
        """Select the admissible components of the responses to each prompt (Algorithm 2).

        Parameters
        ----------
        X : sequence of length n, numeric array of shape (n, d), or PredictionSets
            Prompts, for which `sampler_` then samples sets, or such sets.
        groups : sequence of length n, default=None
            The group of each prompt, where calibration of components, or of the sampler, was given
            groups.

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
            generator or with another seed; for fractions, by another calibration of the sampler.
            If calibration has not seen a group.
        """
        check_is_fitted(self)
        if isinstance(X, PredictionSets):
            return self._select(X, groups)
        sampler = self._sampler_for_prompts()
        needed = _of_sampler(sampler, groups)
        sets = sampler.predict(X, groups=needed)
        if self.calibration_.by_group is None and needed is not None:
            groups = None  # the sampler alone has groups
        return self._select(sets, groups)

    def transform(self, X: Any, *, groups: object = None) -> ComponentSets:
        """Same as :meth:`predict`.

        Parameters
        ----------
        X, groups
            As in :meth:`predict`.

        Returns
        -------
        ComponentSets
            One set of components for each prompt.
        """
        return self.predict(X, groups=groups)

    def fit_transform(
        self, X: Any, y: Any, *, groups: object = None, prompt_weight: object = None
    ) -> ComponentSets:
        """Fit, and select components of the same prompts from the same draws.

        Parameters
        ----------
        X, y, groups, prompt_weight
            As in :meth:`fit`.

        Returns
        -------
        ComponentSets
            Equal to ``fit(X, y).transform(X)``.
        """
        given = isinstance(X, PredictionSets)
        checked = X if given else self._checked(X)
        self.fit(checked, y, groups=groups, prompt_weight=prompt_weight)
        if given or self.sampler_ is self.sampler or self._fraction is not None:
            return self.predict(checked, groups=groups)
        sets = self.sampler_._sets_of_fit(checked, _of_sampler(self.sampler_, groups))
        return self._select(sets, groups)

    def score(self, X: Any, y: Any = None, *, groups: object = None) -> float:
        """Mean number of selected components (what Eq. 10 maximises).

        Parameters
        ----------
        X : sequence, array or PredictionSets
            As in :meth:`predict`.
        y : object, optional
            Ignored.
        groups : sequence of length n, default=None
            As in :meth:`predict`.

        Returns
        -------
        float
            The mean over prompts.
        """
        return float(np.mean(self.predict(X, groups=groups).sizes))

    def load_calibration(self, path: str | os.PathLike[str]) -> "ComponentSelector":
        """Take over a calibration written by :meth:`save_calibration`.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        ComponentSelector
            Itself, ready to predict on sets, and on prompts where `sampler` is fitted. What
            calibration looked at is not in the file.

        Raises
        ------
        ValueError
            If the file belongs to another generator, seed, splitter, score, admission, loss, alpha,
            delta or groups, or is no such file.
        """
        self._validate_params()
        name = os.fspath(path)
        content, read = read_calibration(path, SelectorCalibration)
        known: Provenance = read["provenance"]
        own = {"alpha": float(self.alpha), "delta": float(self.delta), "loss": self._loss}
        refuse_differences(name, "parameters", read, own)
        refuse_differences(name, "scores", asdict(known), self._fingerprints())
        refuse_other_groups(name, content.get("groups"), self.groups)
        sampler = _fitted(self.sampler)
        if sampler is not None:
            made = sampler.calibration_
            drawn = {"generator": made.source.fingerprint, "seed": made.seed}
            refuse_differences(name, "draws", asdict(known), {**drawn, "sampler": made.digest})
            refuse_larger_budget(sampler.k_max_, read["n_draws"])
        if self.groups is not None:
            read["groups"] = frozen(self.groups)
        record = self._record(**{**read, "sampler": sampler})
        self._report_null_file(name, record.certified, _NOTHING)
        self.calibration_ = record
        return self

    @property
    def calibration_indices_(self) -> np.ndarray:
        """Positions in X of the calibration prompts."""
        record = self.__dict__.get("calibration_")
        if record is not None and record.data is not self._collected.data:
            raise AttributeError("calibration_indices_ needs data that this estimator collected.")
        return self._collected.indices

    @property
    def sampler_(self) -> ConformalSampler:
        """The sampler in use."""
        record = self.__dict__.get("calibration_")
        sampler = self._collected.sampler if record is None else record.sampler
        if sampler is None:
            raise AttributeError("sampler_ needs prompts, or a fitted sampler=.")
        return sampler

    def _sk_visual_block_(self) -> Any:
        return visual_block([("sampler", self.sampler)])

    # --- collect ------------------------------------------------------------------------------

    def _parts(self) -> tuple[Callable[[str], Any], Any]:
        """The splitter and the score that the parameters stand for."""
        seed = seed_of_draws(self.random_state)
        return get_splitter(self.splitter), get_component_score(self.component_score, seed=seed)

    @property
    def _fraction(self) -> WrongFraction | None:
        """How fractions of wrong components are tested; None where any wrong one counts."""
        if isinstance(self.loss, WrongFraction):
            return self.loss
        return WrongFraction() if self.loss == "fraction" else None

    @property
    def _loss(self) -> Literal["any", "fraction"]:
        return "any" if self._fraction is None else "fraction"

    def _validate_params(self) -> None:
        super()._validate_params()
        if self._fraction is not None and self.judging == "lazy":
            raise ValueError(
                "judging must be 'all' where loss is a fraction, got 'lazy' instead: one wrong "
                "component settles whether there is any, but not how many there are."
            )

    def _fingerprints(self) -> dict[str, Any]:
        """Of the parts, by their names in a provenance."""
        score = self._parts()[1] if self.component_score == "random" else self.component_score
        return {
            "splitter": score_fingerprint(self.splitter),
            "component_score": score_fingerprint(score),
            "admission": score_fingerprint(self.admission),
        }

    def _checked(self, X: Any) -> CheckedPrompts:
        if _fitted(self.sampler) is not None:
            return check_fitted_prompts(self.sampler, X)
        return check_prompts(X, estimator=self)

    def _fitted_sampler(
        self,
        prompts: CheckedPrompts,
        references: list[Any],
        groups: list[Hashable] | None,
        prompt_weight: object,
    ) -> tuple[ConformalSampler, np.ndarray]:
        """The sampler, fitted on the prompts where it was not, and which of them may calibrate."""
        given = _fitted(self.sampler)
        if given is not None:
            warn_of_repetitions(prompts)
            return given, unseen_prompts(given.calibration_, prompts, self._loss)
        sampler = ConformalSampler() if self.sampler is None else clone(self.sampler)
        if sampler.random_state is None:
            sampler.set_params(random_state=self.random_state)
        sampler.set_params(verbose=max(self.verbose, sampler.verbose))
        refuse_betting(sampler.shift)
        weights = None
        if prompt_weight is not None:
            weights = needed_shift(sampler.shift).of(prompt_weight, len(prompts), prompts)
        if sampler.groups is None or sampler.groups.by is not None:
            groups = None  # not given, but none or found from the prompts
        sampler._memory = self._memory = getattr(self, "_memory", sampler.memory_)
        if self._fraction is None:
            sampler.fit(prompts, references, groups=groups, prompt_weight=weights)
            return sampler, sampler.calibration_indices_
        n_own = optimization_size(len(prompts), 0.5)
        own, rest = split_prompts(prompts.digests(), n_own, self.random_state)
        sampler.fit(
            prompts.take(own),
            [references[i] for i in own],
            groups=None if groups is None else [groups[i] for i in own],
            prompt_weight=None if weights is None else weights[own],
        )
        return sampler, rest

    def _prompts_of_sets(
        self, sets: PredictionSets
    ) -> tuple[ConformalSampler, CheckedPrompts, np.ndarray]:
        sampler = _fitted(self.sampler if sets.sampler is None else sets.sampler)
        if sampler is None:
            raise ValueError(
                "X holds prediction sets that know neither all their draws nor the sampler that "
                "made them; wanted those of a fitted sampler (as in a Pipeline), a fitted "
                "sampler=, or prompts."
            )
        refuse_sets_of_fit(sets, self._loss)
        record = sampler.calibration_
        refuse_other_draws(sets, record.drawn_with, "those that their sampler makes now")
        prompts: Any = [one.prompt for one in sets]
        numeric = bool(sampler._numeric_prompts) if hasattr(sampler, "_numeric_prompts") else False
        checked = CheckedPrompts(np.asarray(prompts) if numeric else prompts, numeric)
        if not sets.of_fit:  # the sampler has said so
            warn_of_repetitions(checked)
        rows = unseen_prompts(record, checked, self._loss, warns=not sets.of_fit)
        return sampler, checked, rows

    # --- calibrate ----------------------------------------------------------------------------

    def _tests(
        self, data: ComponentCalibrationData, names: list[Hashable] | None
    ) -> list[ComponentTest]:
        options = self.groups or Groups()
        n_prompts = data.n_prompts
        return planned_tests(n_prompts, self.delta, self._fraction, names, options, data.prompts)

    def _judged(
        self,
        verdicts: ComponentVerdicts,
        data: ComponentCalibrationData,
        names: list[Hashable] | None,
    ) -> ComponentCalibrationData:
        tests = [(test.rows, test.delta) for test in self._tests(data, names)]
        return verdicts.of_components(data, self.alpha, tests, lazily=self.judging == "lazy")

    def _collected_of(self, data: ComponentCalibrationData) -> CollectedComponents | None:
        """What this selector has collected, if that is what the data are."""
        collected: CollectedComponents | None = getattr(self, "_collected", None)
        return collected if collected is not None and collected.are(data) else None

    def _collected_alike(self, data: ComponentCalibrationData) -> bool:
        """Whether data were collected as this selector has collected prompts with groups."""
        collected: CollectedComponents | None = getattr(self, "_collected", None)
        return (
            collected is not None
            and collected.groups is not None
            and collected.data.provenance == data.provenance
        )

    def _labelled(
        self,
        data: ComponentCalibrationData,
        names: list[Hashable] | None,
        collected: CollectedComponents | None,
    ) -> ComponentCalibrationData:
        """The data with the labels that are needed, those of people as they are now."""
        tested = data.take(self._tests(data, None)[-1].rows)
        if collected is None:
            nobody = ": there is nobody to ask about components from elsewhere."
            refuse_unknown(tested, "component, or be what this selector has collected", nobody)
            return data
        if tested.unknown is None and not collected.verdicts.of_people:
            return data
        data = self._judged(collected.verdicts, data, names)
        self._collected = replace(collected, data=data)
        return data

    def _sampler_of(self, data: ComponentCalibrationData) -> ConformalSampler | None:
        """The fitted sampler that makes such draws, if there is one."""
        collected = getattr(self, "_collected", None)
        if collected is not None and data is collected.data:
            return collected.sampler
        given = _fitted(self.sampler)
        sampler: ConformalSampler | None = given or (collected and collected.sampler)
        if sampler is None:
            return None
        known, drawn = data.provenance, sampler.calibration_.drawn_with
        other = [name for name in ("generator", "seed") if name in known.differences(drawn)]
        if other and sampler is not given:
            return None
        if other:
            raise ValueError(
                f"data was collected from draws with another {' and '.join(other)} than the "
                f"sampler makes: {known} there, {drawn} here. Call collect, or fit, again."
            )
        refuse_larger_budget(sampler.k_max_, data.provenance.k_max)
        return sampler

    def _record(self, **found: Any) -> SelectorCalibration:
        """The calibration, with copies of the parameters that it holds for."""
        splitter, component_score = (frozen(part) for part in self._parts())
        return SelectorCalibration(
            splitter=splitter,
            component_score=component_score,
            **{"alpha": self.alpha, "delta": self.delta, "loss": self._loss, **found},
        )

    def _remarks_on_sets(self) -> dict[str, str | None]:
        """What is said of the components of sets of calibration prompts, by topic."""
        collected, record = getattr(self, "_collected", None), self.calibration_
        if collected is None or record.data is not collected.data or not record.certified:
            return {}
        needs = (collected.sampler.calibration_.groups, record.groups)
        if collected.groups is None and any(one and one.by is None for one in needs):
            return {}  # only the user knows the groups of these prompts
        tried = collected.prompts.take(range(len(collected.first)))
        names = collected.groups and collected.groups[: len(tried)]
        sets = collected.sampler._sets(tried, groups=_of_sampler(collected.sampler, names))
        found = components_of_sets(record.splitter, record.component_score, sets)
        levels = [gamma for gamma, _ in record.thresholds_of(names, [one.prompt for one in sets])]
        reached = [
            bool(np.any(record.provenance.rounded(part.scores) >= gamma))
            for part, gamma, one in zip(found, levels, sets)
            if gamma < np.inf and len(one)  # prompts of null groups say nothing
        ]
        threshold = f"gamma_hat_={min(levels):.4g}"
        if record.by_group is not None:
            threshold = f"Each threshold in groups_, the lowest of them {min(levels):.4g},"
        lost = bool(reached) and not any(reached)
        return {
            "out of reach": out_of_reach(threshold, len(tried)) if lost else None,
            "higher in sets": higher_in_sets(collected.first, found),
        }

    # --- predict ------------------------------------------------------------------------------

    def _sampler_for_prompts(self) -> ConformalSampler:
        sampler: ConformalSampler | None = self.calibration_.sampler or _fitted(self.sampler)
        if sampler is None:
            raise NotFittedError(
                "X holds prompts, but this ComponentSelector was calibrated on arrays, or loaded "
                "from a file, and has no fitted sampler for them; wanted prediction sets, or a "
                "fitted sampler=, such as one after its own load_calibration."
            )
        return sampler

    def _select(self, sets: PredictionSets, groups: object = None) -> ComponentSets:
        selected = select_components(self.calibration_, sets, groups)
        return ComponentSets(selected, min_width=sets.k_max, selector=self, index=sets._index)


def _fitted(sampler: object) -> ConformalSampler | None:
    """The sampler, where it is one that is fitted."""
    if isinstance(sampler, ConformalSampler) and hasattr(sampler, "calibration_"):
        return sampler
    return None


def _of_sampler(sampler: ConformalSampler, groups: Any) -> Any:
    """The groups, where the sampler has to be given them."""
    known = sampler.calibration_.groups
    return groups if known is not None and known.by is None else None
