"""The base of both estimators: record, files and tags."""

import os
from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Generic, Protocol, Self, TypedDict, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._estimators._agreement import refuse_differences
from sklearn_clm._estimators._calibration import Calibration, unknown_fields
from sklearn_clm._estimators._files import write_content
from sklearn_clm._estimators._threads import import_modules_of_requests, in_thread
from sklearn_clm._exceptions import check_parameters, report_null, warn
from sklearn_clm._results import PredictionSets
from sklearn_clm.caching import DrawMemory
from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentCalibrationData,
    Provenance,
)
from sklearn_clm.calibration.claim import Promise, reasons_of_nulls, sentence_of_nulls
from sklearn_clm.calibration.rows import Part
from sklearn_clm.generators.base import Importing
from sklearn_clm.generators.identity import frozen, parts_of
from sklearn_clm.generators.prompts import CheckedPrompts, check_prompts
from sklearn_clm.policies import Groups
from sklearn_clm.policies.groups import groups_of
from sklearn_clm.policies.shift import Shift

# refused at once: joblib refuses 0 only after draws have been paid for
N_JOBS: list[object] = [
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]

DataT_contra = TypeVar("DataT_contra", contravariant=True)


class Collected(Protocol[DataT_contra]):
    """What an estimator has collected, with its prompts."""

    prompts: CheckedPrompts
    indices: np.ndarray  # positions of the prompts among those given
    groups: list[Hashable] | None
    left_out: CheckedPrompts  # that trained a generator or a score
    groups_left_out: list[Hashable] | None  # of the prompts that are left out, if given

    def holds(self, data: DataT_contra) -> bool:
        """Whether data are these, but for their labels."""


class RecordFields(TypedDict, total=False):
    """Fields that the records of both estimators share."""

    data: CalibrationData | ComponentCalibrationData
    provenance: Provenance
    groups: Groups | None
    columns: tuple[str, ...]
    parameters: Mapping[str, object]
    seen: np.ndarray


RecordT = TypeVar("RecordT", bound=Calibration)
DataT = TypeVar("DataT", bound=CalibrationData | ComponentCalibrationData)
CollectedT = TypeVar("CollectedT", bound=Collected[Any])


class CalibratedEstimator(  # type: ignore[call-arg]
    TransformerMixin,
    BaseEstimator,
    Generic[RecordT, DataT, CollectedT],
    auto_wrap_output_keys=None,
):
    """An estimator whose fitted state is one calibration record."""

    delta: float
    groups: Groups | None
    on_null: str
    calibration_: RecordT
    # class of `calibration_`
    _record_type: ClassVar[type[Calibration]]

    @property
    def memory_(self) -> DrawMemory:
        """The draws that this estimator and its later fits share."""
        memory: DrawMemory | None = self.__dict__.get("_memory")
        if memory is None:  # of several threads, all get what the first one made
            memory = self.__dict__.setdefault("_memory", DrawMemory())
        return memory

    @memory_.setter
    def memory_(self, memory: DrawMemory) -> None:
        self._memory = memory

    def fit(
        self, X: Any, y: Any = None, *, groups: object = None, prompt_weight: object = None
    ) -> Self:
        """Collect draws, scores and verdicts, and calibrate on them.

        Parameters
        ----------
        X : sequence of length n, numeric array of shape (n, d), or data frame
            Prompts. Of a data frame one column, or several of numbers. A selector in a Pipeline is
            given the sets of its sampler.
        y : sequence of length n
            Admissions: for each prompt either a callable, ``A_i(response) -> bool`` (of a selector
            ``A^c_i(component)``), or a reference that `admission` judges by. A list, tuple or set
            holds several references, any of which will do; a dict is one reference.
        groups : sequence of length n, default=None
            The group of each prompt, where the parameter `groups` does not give it.
        prompt_weight : array-like of shape (n,), default=None
            Density of new prompts relative to these, where the `shift` of the sampler does not
            give it.

        Returns
        -------
        ConformalSampler or ComponentSelector
            Itself.

        Raises
        ------
        ValueError, TypeError
            If an argument does not fit, or the generator, a score or an admission gives what it
            should not. The next ``fit`` uses the draws that were made until then.
        NullCalibrationError
            If nothing can be certified and ``on_null="raise"``; otherwise a
            :class:`NullCalibrationWarning`. What was collected is kept.
        """
        self._validate_params()
        # not by `calibrate`, which would first compare the scores of the data with those of now:
        # they are the same, and comparing them takes fingerprints
        return self._calibrated(self._collect(X, y, groups, prompt_weight, lazily=True))

    @abstractmethod
    def _collect(
        self, X: Any, y: Any, groups: object, prompt_weight: object, *, lazily: bool = False
    ) -> DataT:
        """Collect data, `lazily` without what calibration asks for later."""

    @abstractmethod
    def calibrate(self, data: DataT, *, groups: object = None) -> Self:
        """Calibrate on collected data."""

    @abstractmethod
    def _calibrated(self, data: DataT, *, groups: object = None) -> Self:
        """Calibrate on data of the present scores and judge."""

    @abstractmethod
    def predict(self, X: Any, *, groups: object = None) -> Any:
        """Sets for new prompts."""

    async def apredict(self, X: Any, *, groups: object = None) -> Any:
        """:meth:`predict` in a thread; cancelling stops further draws."""
        return await in_thread(partial(self.predict, X, groups=groups))

    def transform(self, X: Any, *, groups: object = None) -> Any:
        """:meth:`predict`, under the name that a pipeline calls.

        Parameters
        ----------
        X, groups
            As in :meth:`predict`.

        Returns
        -------
        PredictionSets or ComponentSets
            No data frame; ``to_frame()`` makes them one.
        """
        return self.predict(X, groups=groups)

    def fit_transform(
        self, X: Any, y: Any = None, *, groups: object = None, prompt_weight: object = None
    ) -> Any:
        """Fit, and predict for the same prompts and draws.

        Parameters
        ----------
        X, y, groups, prompt_weight
            As in :meth:`fit`.

        Returns
        -------
        PredictionSets or ComponentSets
            Those of ``fit(X, y).transform(X)``; of prompts that trained the generator they are
            marked ``guaranteed=False``.
        """
        checked = X if isinstance(X, PredictionSets) else self._checked(X)
        self.fit(checked, y, groups=groups, prompt_weight=prompt_weight)
        return self._sets_of_fit(checked, groups)

    def _checked(self, X: Any) -> CheckedPrompts:
        """Prompts that ``fit`` can take."""
        return check_prompts(X)

    @abstractmethod
    def _sets_of_fit(self, checked: Any, groups: object) -> Any:
        """Sets of the prompts of ``fit``, unguaranteed if they trained."""

    def save_calibration(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a small, readable JSON file.

        Parameters
        ----------
        path : str or path
            The file. It holds the thresholds, what they were calibrated for, fingerprints of the
            generator and the scores, a digest of 8 bytes of each prompt that calibrated, and one of
            itself; no data, and no model. A sampler and the selector after it have a file each. A
            generator that was trained in ``fit`` has to be kept beside it: pickle `generator_`, and
            give it as `generator` to the sampler that loads the file.
        """
        check_is_fitted(self)
        write_content(path, self.calibration_.content())

    def load_calibration(self, path: str | os.PathLike[str]) -> Self:
        """Take over a calibration written by :meth:`save_calibration`.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        ConformalSampler or ComponentSelector
            Itself, ready to predict; a selector on sets, and on prompts where `sampler` is fitted.

        Raises
        ------
        ValueError
            If the file belongs to another generator, other scores or other parameters, or is no
            such file. One that certifies nothing warns, or raises.
        """
        self._validate_params()
        name = os.fspath(path)
        parameters = self._parameters_in_files(self.groups)
        read = self._record_type.read(name, parameters)
        # thresholds hold for what they were calibrated with: scores, judge and levels are compared
        # with those that this estimator has now
        saved = {**vars(read["provenance"]), **read["parameters"]}
        wanted = {**self._fingerprints(), **parameters}
        refuse_differences(repr(name), saved, wanted)
        # a file holds no function: the parameter tells the group of a prompt, where there is one
        groups = frozen(self.groups) or read["groups"]
        record = self._loaded(name, {**read, "groups": groups, **self._frozen()})
        if not record.certified:
            report_null(
                f"{name!r} holds a calibration that certifies nothing.",
                self.on_null,
                sentence_of_nulls(record.claims_in_use),
            )

        columns: dict[str, Any] = {}
        if record.columns:
            columns["feature_names_in_"] = np.array(record.columns, dtype=object)
            columns["n_features_in_"] = len(record.columns)
        self._publish(record, **columns)
        return self

    @abstractmethod
    def _loaded(self, name: str, read: dict[str, Any]) -> RecordT:
        """The calibration from a file that fits this estimator."""

    @abstractmethod
    def _parameters_in_files(self, groups: Groups | None) -> dict[str, Any]:
        """Parameters that a file must agree with; None is any."""

    @abstractmethod
    def _fingerprints(self) -> dict[str, str]:
        """Fingerprints of the scores and the judge, by name."""

    @abstractmethod
    def _frozen(self) -> Mapping[str, object]:
        """Copies of the parameters that predict uses."""

    def _keep(self, record: RecordT, collected: CollectedT | None, doubts: list[str]) -> None:
        """Keep a calibration, and warn of what is doubtful."""
        # before anything is published: with on_null="raise" no attribute of this calibration is
        # seen
        claims = record.claims_in_use
        report_null(reasons_of_nulls(claims), self.on_null, sentence_of_nulls(claims))
        repeated = record.claim.repeated if record.certified else None
        remarks = (*record.doubts(), *doubts)
        indices = {} if collected is None else {"calibration_indices_": collected.indices}
        self._publish(replace(record, remarks=remarks), **indices)
        for remark in filter(None, (repeated, *remarks)):
            warn(remark)

    def _publish(self, record: RecordT, **further: object) -> None:
        """Replace the fitted attributes by those of a calibration."""
        import_modules_of_requests()
        for part in parts_of(record.parts):
            if isinstance(part, Importing):
                # a request will say what is missing; a report needs none of it
                with suppress(Exception):
                    part.import_modules()
        fitted = {**self._attributes_of(record), **further}
        # other threads predict meanwhile: what they need is replaced, and never missing
        self.__dict__.update(fitted)
        # what a collection has noted stays true, whatever is calibrated on it
        self._forget_fit(kept=("n_features_in_", "feature_names_in_", "sampler_", *fitted))

    def _attributes_of(self, record: RecordT) -> dict[str, Any]:
        """The fitted attributes that show a calibration."""
        fitted = {"calibration_": record, "shift_": record.shift}
        if record.data is not None:
            fitted["calibration_data_"] = record.data
        return fitted

    def _collection_of(self, data: DataT) -> CollectedT | None:
        """What this estimator collected last, if these are its data."""
        collected: CollectedT | None = getattr(self, "_collected", None)
        if collected is None or not collected.holds(data):
            return None
        return collected

    def _groups_of(
        self, data: DataT, collected: CollectedT | None, groups: object
    ) -> list[Hashable] | None:
        """The group of each prompt of data."""
        # arrays hold no prompts, so that no function can tell their groups
        prompts = None if collected is None else collected.prompts
        if collected is not None and groups is None:
            groups = collected.groups
        return groups_of(self.groups, groups, data.n_prompts, prompts)

    def _parts(
        self,
        searched: np.ndarray,
        tested: np.ndarray,
        collected: CollectedT | None,
        names: list[Hashable] | None,
        groups: object,
    ) -> list[Part]:
        """The tested parts, with the left out prompts of each.

        `names` are the groups of the prompts of data, and `groups` what ``calibrate`` was given.
        """
        parts = (self.groups or Groups()).parts(searched, tested, self.delta, names)
        if collected is None or not len(collected.left_out):
            return parts
        prompts = collected.left_out
        group_of_prompt = None
        # of groups that were given anew nobody knows which of the others are theirs: all may be
        if names is not None and groups is None:
            given = collected.groups_left_out
            group_of_prompt = groups_of(self.groups, given, len(prompts), prompts)
        with_left_out = []
        for part in parts:
            digests = prompts.digests
            if group_of_prompt is not None and part.group is not None:
                digests = digests[[name == part.group for name in group_of_prompt]]
            with_left_out.append(part._replace(left_out=digests))
        return with_left_out

    def _claim_of(
        self,
        provenance: Provenance,
        grouped: bool,
        promise: Promise,
        *,
        losses: Mapping[str, float] | None = None,
        max_wrong: int = 0,
    ) -> Claim:
        """The claim for all prompts, if their test passes."""
        shift = Shift.of(provenance)
        groups = self.groups or Groups()
        return Claim(
            delta=self.delta,
            within_groups=groups.guarantee if grouped else None,
            shifted=shift is not None,
            approximate=shift is not None and shift.estimated,
            unknown=unknown_fields(provenance, self._record_type.collected_with),
            losses=losses or {},
            max_wrong=max_wrong,
            **promise,
        )

    def _record_fields(self, data: DataT, grouped: bool) -> RecordFields:
        """Fields that the records of both estimators share."""
        groups = frozen(self.groups or Groups()) if grouped else None
        fields: RecordFields = {
            "data": data,
            "provenance": data.provenance,
            "groups": groups,
            "columns": tuple(getattr(self, "feature_names_in_", ())),
            "parameters": self._parameters_in_files(groups),
        }
        if data.prompts is not None:
            # a measure on these prompts would flatter: predict logs how many of them it is given
            fields["seen"] = np.unique(data.prompts)
        return fields

    def _forget_fit(self, kept: Collection[str] = ()) -> None:
        """Delete the fitted attributes, apart from those that are `kept`."""
        for name in list(vars(self)):
            if name.endswith("_") and name not in kept:
                self.__dict__.pop(name, None)  # another thread may forget it at the same time

    def _validate_params(self) -> None:
        check_parameters(self, super()._validate_params)
        for name in ("policy", "judging", "groups", "shift", "losses"):
            option = getattr(self, name, None)
            if isinstance(option, BaseEstimator):
                check_parameters(option, option._validate_params)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # each process has draws of its own, and counts its own sets
        for name in ("_memory", "_watch"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "calibration_"):
            import_modules_of_requests()
