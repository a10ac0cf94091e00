"""ComponentSelector: which components of the responses can be trusted."""

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, TypedDict

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._estimators._agreement import (
    check_fitted_prompts,
    refuse_differences,
    refuse_larger_budget,
    refuse_other_draws,
    takes_numbers,
)
from sklearn_clm._estimators._base import N_JOBS, CalibratedEstimator
from sklearn_clm._estimators._calibration import PARTS, Calibration, SelectorCalibration
from sklearn_clm._estimators._components import (
    ComponentCollection,
    prompts_of_sampler,
    prompts_unseen_by,
    select_components,
)
from sklearn_clm._estimators._precision import Noise, check_precision_of_components
from sklearn_clm._estimators._progress import Progress
from sklearn_clm._estimators._sampler import ConformalSampler
from sklearn_clm._exceptions import naming_parameters
from sklearn_clm._results import ComponentSets, PredictionSets
from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    Provenance,
)
from sklearn_clm.calibration.claim import Promise
from sklearn_clm.calibration.components import check_components
from sklearn_clm.calibration.rows import Part
from sklearn_clm.generators.identity import frozen, score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts, check_prompts
from sklearn_clm.policies import AuditedJudging, Groups
from sklearn_clm.policies._audited import Audit
from sklearn_clm.policies.groups import groups_of, parameters_of_groups
from sklearn_clm.policies.judging import judging_of
from sklearn_clm.policies.rules import Rule, rules_of_parts
from sklearn_clm.policies.selection import ComponentSelection, SelectionRule
from sklearn_clm.scoring import ComponentScore, get_splitter
from sklearn_clm.scoring._components import get_component_score
from sklearn_clm.scoring._splitters import Splitter
from sklearn_clm.scoring.admission import get_component_admission
from sklearn_clm.scoring.verdicts import check_admissions


class FrozenParts(TypedDict):
    """Copies of what predictions use of a selector."""

    splitter: Splitter
    component_score: ComponentScore


class ComponentSelector(
    CalibratedEstimator[SelectorCalibration, ComponentCalibrationData, ComponentCollection]
):
    """Select the admissible components of responses, such as sentences.

    ``fit`` calibrates a threshold on the scores of components (section 4.4 of the paper);
    ``predict`` samples a set of responses for each prompt, and returns the components of its
    members that score at least that (Algorithm 2). With probability at least 1 - `delta` over the
    calibration prompts, *all* components selected for a new prompt are correct with probability
    at least 1 - `alpha` (Eq. 9).

    Parameters
    ----------
    sampler : ConformalSampler, default=None
        Samples the responses. A fitted sampler is used unchanged; another is cloned and fitted on
        the same prompts. None: the sampler before this step in a Pipeline, or otherwise a default
        :class:`ConformalSampler`.
    alpha, delta : float, default=0.3, 0.05
        Tolerated probabilities, in (0, 1): of a selection with a wrong component, and of a
        calibration after which such selections are more frequent than `alpha`.
    splitter : str or callable, default="sentence"
        Splits a response into components: "sentence" (of English; German is
        ``sklearn_clm.scoring.SentenceSplitter("de")``), or a callable of the response, or of the
        prompt and the response, plain or ``async``, that gives (start, stop) character offsets,
        parts of the text, or *claims*: whatever the response says, each a text or a
        :class:`sklearn_clm.scoring.Claim`. A response that is not text, such as a number, is a
        single component.
    component_score : str, callable, classifier or object, default="span_likelihood"
        Confidence F^c in a component: a name, a callable ``f(prompt, component) -> float``, a
        fitted binary classifier, or an object with ``score_components``, see
        :mod:`sklearn_clm.scoring`. A score that depends on other samples must never fall when
        samples are added; ``fit`` warns if it does.
    admission : str or callable, default="rouge_l"
        Admission A^c, if `y` holds references. "rouge_l" admits a component whose ROUGE-L with any
        component of the reference is at least 0.4, "exact_match" a component that matches any of
        them; a component that is no text must equal the reference. A callable
        ``admission(reference, component) -> bool`` gets the whole reference, and of several each.
    max_wrong : int, default=0
        How many selected components may be wrong without an error.
    judging : {"all", "lazy"} or AuditedJudging, default="all"
        "all": ``collect`` judges all components. "lazy": ``calibrate`` judges components from the
        highest score down until the threshold is known; it is the threshold of all labels. With
        an :class:`sklearn_clm.policies.AuditedJudging` the guarantee is by people's standard.
    groups : Groups, default=None
        A guarantee within each group of prompts, independent of groups of the sampler.
    on_null : {"warn", "raise"}, default="warn"
        Whether ``fit`` warns or raises if no threshold can be certified. After a warning every
        selection is empty, which is valid.
    random_state : int, RandomState instance or None, default=None
        Seed of the split with an `AuditedJudging`; and the `random_state` of a sampler that is
        fitted here and has none of its own.
    n_jobs : int or None, default=None
        Processes or threads that judge components.
    verbose : int, default=0
        Whether to show progress, by stages; a given sampler has a `verbose` of its own.

    Attributes
    ----------
    calibration_ : SelectorCalibration
        Everything that ``predict`` depends on; later changes of parameters have no effect on it.
        ``calibration_.claim.sentence()`` states the guarantee.
    gamma_hat_ : float
        The threshold: components that score at least this are selected; +inf if no threshold is
        certified.
    groups_, shift_ : dict of float, Shift or None
        With groups the threshold of each group (other attributes are about all prompts together,
        which are not tested where that would ask for verdicts); the shift of the sampler, for which
        the guarantee holds.
    achievable_alpha_ : tuple of float (low, high)
        Mean loss of calibration prompts at the highest threshold and at the lowest.
    thresholds_, n_errors_, p_values_ : ndarray of shape (t,)
        The tested thresholds, from the largest down, the number of prompts with an inadmissible
        selected component (or more than `max_wrong`) at each, and the p-values. `result_` holds all
        of the tests, and is None if there were too few prompts.
    calibration_data_, calibration_indices_ : ComponentCalibrationData, ndarray of int
        Scores and labels of the distinct components of the calibration prompts (`n_judgements_`
        of them have a label), and the positions of these prompts in X.
    sampler_ : ConformalSampler
        The sampler in use, if there is one.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of X, for two-dimensional X, and their names, for a data frame.

    Notes
    -----
    Calibration looks at all K samples of each prompt, whatever set the sampler would have
    returned, so it does not depend on the thresholds of the sampler (Proposition 4.4). Texts that
    are equal up to the white space around them are one component, and the maximum over its
    occurrences is its score: hence a component of a set never scores higher than among the K
    samples. A claim that rests on others scores, in each draw, the least on its way up, so that it
    is selected only if those are on which it rests in one of the draws.

    A splitter that costs belongs in a :class:`sklearn_clm.caching.CachedSplitter`. An empty
    selection keeps the promise and tells nothing: the report says first how many components are
    selected, how many of the right ones, and how often none is.

    The guarantee of the sampler (Eq. 1) and this guarantee each hold with probability 1 - delta
    over the calibration data; *both at once* hold with probability 1 - 2 delta, by the union bound.
    The generator of a fitted sampler, and scores, must not have been trained on the prompts passed
    to ``fit`` here. A sampler may have been calibrated on them.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_clm import ComponentSelector, ConformalSampler
    >>> from sklearn_clm.generators import PrecomputedGenerator
    >>> days, weather = [f"day {i}" for i in range(200)], ["rainy", "sunny", "windy"]
    >>> samples = [[f"It is {day}. It will be {one}." for one in weather] for day in days]
    >>> references = [f"It is {day}. It will be sunny." for day in days]
    >>> def certainty(day, sentence):
    ...     return 0.2 if "rainy" in sentence or "windy" in sentence else 0.9
    >>> parts = {"quality": "self_consistency", "admission": "exact_match", "k_max": 3}
    >>> pipeline = make_pipeline(
    ...     ConformalSampler(PrecomputedGenerator(days, samples), epsilon=0.1, **parts),
    ...     ComponentSelector(component_score=certainty, admission="exact_match", alpha=0.1),
    ... )
    >>> pipeline.fit(days[:150], references[:150]).predict(days[150:])[0].components
    ('It is day 150.', 'It will be sunny.')
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
        "max_wrong": [Interval(Integral, 0, None, closed="left")],
        "judging": [StrOptions({"all", "lazy"}), AuditedJudging],
        "groups": [None, Groups],
        "on_null": [StrOptions({"warn", "raise"})],
        "random_state": ["random_state"],
        "n_jobs": N_JOBS,
        "verbose": ["verbose"],
    }
    _record_type: ClassVar[type[Calibration]] = SelectorCalibration

    @naming_parameters
    def __init__(
        self,
        sampler: ConformalSampler | None = None,
        *,
        alpha: float = 0.3,
        delta: float = 0.05,
        splitter: str | Callable[..., Any] = "sentence",
        component_score: Any = "span_likelihood",
        admission: str | Callable[[Any, Any], bool] = "rouge_l",
        max_wrong: int = 0,
        judging: str | AuditedJudging = "all",
        groups: Groups | None = None,
        on_null: str = "warn",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.sampler = sampler
        self.alpha = alpha
        self.delta = delta
        self.splitter = splitter
        self.component_score = component_score
        self.admission = admission
        self.max_wrong = max_wrong
        self.judging = judging
        self.groups = groups
        self.on_null = on_null
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def collect(
        self,
        prompts: Any,
        admissions: Any = None,
        *,
        groups: object = None,
        prompt_weight: object = None,
    ) -> ComponentCalibrationData:
        """Draw, split, score and judge: the expensive half of ``fit``.

        Forgets an earlier calibration.

        Parameters
        ----------
        prompts, admissions, groups, prompt_weight
            As X, y, groups and prompt_weight in :meth:`fit`.

        Returns
        -------
        ComponentCalibrationData
            Scores and labels of the distinct components of all K draws of each prompt. The data
            record with which generator, seed and scores they were collected.
        """
        self._validate_params()
        return self._collect(prompts, admissions, groups, prompt_weight)

    def _collect(
        self, X: Any, y: Any, groups: object, prompt_weight: object, *, lazily: bool = False
    ) -> ComponentCalibrationData:
        # mistakes are found before anything is paid for
        get_component_score(self.component_score)
        get_component_admission(self.admission, get_splitter(self.splitter))

        sampler = self._given_sampler(X)
        prompts = self._checked(X)
        references = check_admissions(y, len(prompts), estimator=self)
        names = groups_of(self.groups, groups, len(prompts), prompts)
        groups_given = None if groups is None else names  # a function computes its groups again

        if sampler is not None and prompt_weight is not None:
            raise ValueError(
                "prompt_weight must be None where the sampler is fitted, got weights instead: the "
                "sampler has kept prompts by its own."
            )

        sampled = None  # the collection by which a new sampler is calibrated
        if sampler is None:
            sampler = self._new_sampler()
            of_sampler = _groups_for(sampler.groups, groups_given)
            # the same prompts calibrate both: Proposition 4.4 is about all K draws, whatever
            # thresholds the sampler finds, so that each claim holds at its own delta
            sampled = sampler._new_collection(prompts, references, of_sampler, prompt_weight)
            source = sampled.source
            width = sampled.data.k_max
            rows = sampled.indices
        else:
            source = sampler.calibration_.source
            width = sampler.calibration_.width
            of_fit = isinstance(X, PredictionSets) and X.of_fit
            rows = prompts_of_sampler(sampler.calibration_, prompts, references, of_fit=of_fit)
        rows = prompts_unseen_by(self.component_score, prompts, rows)

        level = (self.groups or Groups()).level(self.delta, names, rows)
        judging_of(self.judging).refuse(self.alpha, level)

        collected = ComponentCollection(
            self, source, prompts, references, rows, groups=groups_given
        )
        # a splitter, score or judge that cannot work is found on a few draws of a few prompts
        collected.try_on(sampler.memory_, width)
        if sampled is not None:
            # its draws go to the shared memory, so that none is made anew for components
            sampler._calibrated(sampler._fill(sampled, lazily=True))

        provenance = sampler.calibration_.drawn_with
        with Progress(sampler.verbose) as progress:
            collected.fill(sampler.memory_, width, provenance, progress=progress)
            data = collected.data
            if self.judging != "lazy":
                data = collected.judged(data, self.alpha)

        self._note(collected, sampler)
        return data

    def _note(self, collected: ComponentCollection, sampler: ConformalSampler) -> None:
        """Replace the fitted attributes by those of a collection."""
        self._forget_fit()
        self.sampler_ = sampler
        self.calibration_indices_ = collected.indices
        self._collected = collected
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(sampler, name):
                setattr(self, name, getattr(sampler, name))

    def calibrate(
        self, data: ComponentCalibrationData, *, groups: object = None
    ) -> "ComponentSelector":
        """Calibrate on collected data: the instant half of ``fit``.

        Parameters
        ----------
        data : ComponentCalibrationData
            From :meth:`collect`, loaded, or made from arrays of scores and labels.
        groups : sequence of length n, default=None
            The group of each prompt of `data`, as in :meth:`ConformalSampler.calibrate`.

        Returns
        -------
        ComponentSelector
            Itself.
        """
        self._validate_params()
        check_components(data)
        refuse_differences("data", vars(data.provenance), self._fingerprints())
        return self._calibrated(data, groups=groups)

    def _calibrated(
        self, data: ComponentCalibrationData, *, groups: object = None
    ) -> "ComponentSelector":
        collected = self._collection_of(data)
        names = self._groups_of(data, collected, groups)
        # without a collection the data may be of any sampler: theirs must draw as this one does
        sampler = self.sampler_ if collected else self._sampler_for("data", data.provenance)

        ties = None if collected is None else collected.place
        searched, tested = judging_of(self.judging).split(data, self.random_state, ties)
        parts = self._parts(searched, tested, collected, names, groups)
        # where verdicts cost, the rule of all prompts together is not tested: no prediction uses it
        compares = collected is None or self.judging == "all"
        judging_of(self.judging).refuse(self.alpha, parts[0].delta)

        if collected is None:
            data.refuse_unknown()
        else:
            # the last part is that of all prompts together
            in_use = parts[:-1] or parts
            tests = in_use if self.judging == "lazy" else None
            with Progress(self.verbose) as collected.verdicts.progress:
                data = collected.judged(data, self.alpha, tests, self.max_wrong)

        provenance = data.provenance
        grouped = names is not None
        promise: Promise = {"level": self.alpha, "guarantee": "pac", "about": "components"}
        claim = self._claim_of(provenance, grouped, promise, max_wrong=int(self.max_wrong))
        empty_selection = partial(SelectionRule, gamma_hat=np.inf)
        # of each part: by the labels that are known now, or by an audit that asks people
        test = self._test_of(data, collected)
        record = SelectorCalibration(
            rules=rules_of_parts(
                parts, claim, data.prompts, empty_selection, test, compares=compares
            ),
            sampler=sampler,
            **self._record_fields(data, grouped),
            **self._frozen(),
        )

        noise = Noise() if collected is None else collected.noise
        doubts = check_precision_of_components(record.in_use, data, names, noise)
        self._keep(record, collected, doubts)
        return self

    def predict(self, X: Any, *, groups: object = None) -> ComponentSets:
        """Select the admissible components of responses (Algorithm 2).

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
        """
        check_is_fitted(self)
        record: SelectorCalibration = self.calibration_  # once: another thread may fit meanwhile
        if isinstance(X, PredictionSets):
            return self._select(record, X, groups)
        sampler: ConformalSampler | None = record.sampler or _fitted(self.sampler)
        if sampler is None:
            raise NotFittedError(
                "X holds prompts, but this ComponentSelector was calibrated on arrays, or loaded "
                "from a file, and has no fitted sampler for them; wanted prediction sets, or a "
                "fitted sampler=, such as one after its own load_calibration."
            )
        of_sampler = _groups_for(sampler.calibration_.groups, groups)
        sets = sampler.predict(X, groups=of_sampler)
        if record.by_group is None and of_sampler is not None:
            groups = None  # only the sampler has groups
        return self._select(record, sets, groups)

    def score(self, X: Any, y: Any = None, *, groups: object = None) -> float:
        """Mean number of selected components (what Eq. 10 maximises).

        Parameters
        ----------
        X, groups
            As in :meth:`predict`.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            The mean over prompts.
        """
        return float(np.mean(self.predict(X, groups=groups).sizes))

    # --- parameters ---------------------------------------------------------------------------

    def _frozen(self) -> FrozenParts:
        # copied first: an adapted score hides its parts
        splitter = frozen(self.splitter)
        score = frozen(self.component_score)
        return {"splitter": get_splitter(splitter), "component_score": get_component_score(score)}

    def _parameters_in_files(self, groups: Groups | None) -> dict[str, Any]:
        levels = {"alpha": float(self.alpha), "delta": float(self.delta)}
        return {**levels, "max_wrong": int(self.max_wrong), **parameters_of_groups(groups)}

    def _fingerprints(self) -> dict[str, str]:
        return {name: score_fingerprint(getattr(self, name)) for name in PARTS}

    def _given_sampler(self, X: Any = None) -> ConformalSampler | None:
        """The fitted sampler of sets X, or of the parameter."""
        maker = X.sampler if isinstance(X, PredictionSets) else None
        return _fitted(maker or self.sampler)

    def _sampler_for(self, name: str, provenance: Provenance) -> ConformalSampler | None:
        """The fitted sampler, which must make the draws of `name`."""
        sampler = self._given_sampler() or getattr(self, "sampler_", None)
        if sampler is not None:
            source = sampler.calibration_.source
            drawn = {"generator": source.fingerprint, "seed": source.seed}
            refuse_differences(name, vars(provenance), drawn)
            refuse_larger_budget(sampler.k_max_, provenance.k_max)
        return sampler

    def _checked(self, X: Any) -> CheckedPrompts:
        """Prompts, or the prompts of sets of a fitted sampler."""
        if not isinstance(X, PredictionSets):
            sampler = self._given_sampler()
            return check_prompts(X) if sampler is None else check_fitted_prompts(sampler, X)
        sampler = self._given_sampler(X)
        if sampler is None:
            raise ValueError(
                "X holds prediction sets that know neither all their draws nor the sampler that "
                "made them; wanted those of a fitted sampler (as in a Pipeline), a fitted "
                "sampler=, or prompts."
            )
        refuse_other_draws(X, sampler.calibration_.drawn_with, "those that their sampler makes now")
        prompts: Any = [a_set.prompt for a_set in X]
        numeric = bool(takes_numbers(sampler))
        return CheckedPrompts(np.asarray(prompts) if numeric else prompts, numeric)

    # --- collect ------------------------------------------------------------------------------

    def _new_sampler(self) -> ConformalSampler:
        """An unfitted sampler for the same prompts."""
        # a clone, so that the user's object stays unfitted, as scikit-learn's meta-estimators do
        sampler = ConformalSampler() if self.sampler is None else clone(self.sampler)
        if sampler.random_state is None:
            sampler.set_params(random_state=self.random_state)
        sampler.set_params(verbose=max(self.verbose, sampler.verbose))
        sampler._validate_params()
        sampler.memory_ = self.memory_  # either draws once for both
        return sampler

    # --- calibrate ----------------------------------------------------------------------------

    def _validate_params(self) -> None:
        super()._validate_params()
        judging_of(self.judging).refuse(self.alpha, self.delta)

    def _test_of(
        self, data: ComponentCalibrationData, collected: ComponentCollection | None
    ) -> Callable[[Part, Claim], Rule]:
        """The test of a part, by labels or an audit."""
        selection = ComponentSelection(data, self.max_wrong)
        if not isinstance(self.judging, AuditedJudging):
            return selection.rule_for
        if collected is None or collected.people is None:
            raise ValueError(
                "data must be what this selector has collected with people who audit, got other "
                "data instead."
            )
        audit = Audit(self.judging, collected.people, collected.source.seed, data.digests)
        # as of a policy, but with nothing learnt, and no table beside the scores
        return partial(audit.rule_for, selection, None, None)

    def _loaded(self, name: str, read: dict[str, Any]) -> SelectorCalibration:
        sampler = self._sampler_for(repr(name), read["provenance"])
        return SelectorCalibration(**read, sampler=sampler)

    def _attributes_of(self, record: SelectorCalibration) -> dict[str, Any]:
        fitted = super()._attributes_of(record)
        result: ComponentThreshold | None = record.tests
        thresholds = record.thresholds
        fitted["gamma_hat_"] = thresholds[None]  # of all prompts together, beside those of groups
        fitted["achievable_alpha_"] = (np.nan, np.nan)
        if result is not None:
            fitted["achievable_alpha_"] = result.achievable_alpha
        if record.by_group is not None:
            fitted["groups_"] = {name: thresholds[name] for name in record.by_group}
        if record.sampler is not None:
            fitted["sampler_"] = record.sampler
        if record.data is None:
            return fitted
        fitted["result_"] = result
        fitted["n_judgements_"] = int(np.sum(record.data.labels >= 0))
        fitted["thresholds_"] = np.empty(0) if result is None else result.thresholds
        fitted["n_errors_"] = np.empty(0, dtype=np.int64) if result is None else result.n_errors
        fitted["p_values_"] = np.empty(0) if result is None else result.p_values
        return fitted

    # --- predict ------------------------------------------------------------------------------

    def _sets_of_fit(self, checked: Any, groups: object) -> ComponentSets:
        if isinstance(checked, PredictionSets):
            return self.predict(checked, groups=groups)
        of_sampler = _groups_for(self.sampler_.calibration_.groups, groups)
        sets = self.sampler_._sets_of_fit(checked, of_sampler)
        return self._select(self.calibration_, sets, groups)

    def _select(
        self, record: SelectorCalibration, sets: PredictionSets, groups: object
    ) -> ComponentSets:
        selected = select_components(record, sets, groups)
        return ComponentSets(selected, min_width=sets.k_max, selector=self, index=sets.frame_index)


def _fitted(sampler: object) -> ConformalSampler | None:
    """The sampler, if it is a fitted ConformalSampler; None otherwise."""
    if isinstance(sampler, ConformalSampler) and hasattr(sampler, "calibration_"):
        return sampler
    return None


def _groups_for(options: Groups | None, groups: Any) -> Any:
    """The groups, if a sampler with these options needs them."""
    return groups if options is not None and options.by is None else None
