"""Arrays from outside: checked, written atomically, never unpickled.

Such data carry what they were collected with.
"""

import copy
import hashlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import ArrayLike

from sklearn_clm.calibration.checks import as_labels
from sklearn_clm.calibration.digests import numbered
from sklearn_clm.calibration.files import expecting_intact, replacing


@dataclass(frozen=True)
class Provenance:
    """What calibration data were collected with; None stands for unknown.

    Parameters
    ----------
    generator, quality, similarity, admission, splitter, component_score : str or None
        Fingerprints of the generator, its training included, of scores and judge, and of what makes
        and scores components.
    seed, k_max : int or None
        Seed of the draws, and their number for each prompt.
    shift : str or None
        A description of the shift by whose weights prompts were kept; None for all prompts.
    stops : str or None
        What else than its own draws ended those of a prompt, such as verdicts on other prompts: of
        such data the set of all draws, or a vote, is certified alone. None for nothing.

    Examples
    --------
    >>> from sklearn_clm.calibration import Provenance
    >>> collected = Provenance(generator="6f1c", seed=0, quality="likelihood")
    >>> collected.differences(Provenance(generator="6f1c", seed=1))
    ('seed',)
    >>> collected.unknown
    ('similarity', 'admission', 'k_max')
    """

    generator: str | None = None
    seed: int | None = None
    quality: str | None = None
    similarity: str | None = None
    admission: str | None = None
    splitter: str | None = None
    component_score: str | None = None
    k_max: int | None = None
    shift: str | None = None
    stops: str | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the unknown fields."""
        # None says "all prompts" and "nothing" in these; responses have no splitter
        optional = ["shift", "stops"]
        if self.splitter is None and self.component_score is None:
            optional += ["splitter", "component_score"]
        lacking = [name for name, value in vars(self).items() if value is None]
        return tuple(name for name in lacking if name not in optional)

    def differences(self, other: "Provenance") -> tuple[str, ...]:
        """Names of fields that are known and differ."""
        names = []
        for name, value in vars(self).items():
            other_value = getattr(other, name)
            both_are_known = value is not None and other_value is not None
            if both_are_known and value != other_value:
                names.append(name)
        return tuple(names)


class LabeledArrays(ABC):
    """Arrays of prompts with labels, kept in a .npz file."""

    _members: ClassVar[tuple[str, ...]]  # names of the arrays in the constructor
    _each: ClassVar[str]  # what a label belongs to

    provenance: Provenance
    labels: np.ndarray
    prompts: np.ndarray | None  # digests, where the prompts are known

    @property
    @abstractmethod
    def n_prompts(self) -> int:
        """Number of prompts, n."""

    @abstractmethod
    def content_digests(self) -> np.ndarray:
        """Digests of what the rows hold, uint64 of shape (n,)."""

    @property
    def digests(self) -> np.ndarray:
        """Digests of the prompts, or of the rows.

        A row whose prompt is not known is a prompt of its own: copies are numbered, and which of
        several equal rows has which number makes no difference.
        """
        return numbered(self.content_digests()) if self.prompts is None else self.prompts

    def order(self, ties: np.ndarray | None = None) -> np.ndarray:
        """Positions by digest: one order, however rows are given.

        Rows of one prompt are in the order of `ties`, where these are given, and then of what they
        hold.
        """
        # lexsort takes the last key first: prompts, then ties, then what the rows hold
        keys = [self.content_digests(), ties, self.prompts]
        return np.lexsort([key for key in keys if key is not None])

    @property
    def admissible(self) -> np.ndarray:
        """Whether the label is 1; False where it is unknown."""
        return self.labels == 1

    @property
    def unknown(self) -> np.ndarray | None:
        """Where labels are unknown; None if all are known."""
        unknown = self.labels < 0
        return unknown if unknown.any() else None

    def with_labels(self, labels: ArrayLike, admission: str | None = None) -> Self:
        """A copy with other labels: booleans, or 1, 0, -1.

        All other arrays are shared. `admission` is what provenance says of the judge, if known.
        """
        data = copy.copy(self)
        data.labels = as_labels(labels, self.labels.shape)
        data.provenance = replace(self.provenance, admission=admission)
        return data

    def refuse_unknown(self) -> None:
        """Refuse unknown labels."""
        if self.unknown is not None:
            raise ValueError(
                f"data must have a label for each {self._each}, got {int(self.unknown.sum())} "
                "unknown labels instead; only the estimator that collected them asks for more."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to a .npz file, atomically, without pickle.

        By a digest of the arrays, ``load`` notices a file that was changed.
        """
        arrays = {}
        for name in self._members:
            array = getattr(self, name)
            if array is not None:
                arrays[name] = array
        arrays["admissible"] = self.labels
        arrays["format"] = np.array(f"sklearn_clm.{type(self).__name__}/2")
        arrays["provenance"] = np.array(json.dumps(vars(self.provenance)))
        with replacing(path) as unfinished, open(unfinished, "wb") as file:
            np.savez(file, **arrays, digest=_digest_of_arrays(arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file written by :meth:`save`, without running code."""
        with expecting_intact(path, f"is not an intact file written by {cls.__name__}.save"):
            # np.load would take a file of another kind for a pickle, and say how to run it
            with open(path, "rb") as file, NpzFile(file, allow_pickle=False) as archive:
                arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
            is_intact = str(arrays.pop("digest")) == _digest_of_arrays(arrays)
            # another version has another format, and perhaps another digest: the format says more
            format_ = str(arrays.pop("format"))
            if format_ != f"sklearn_clm.{cls.__name__}/2":
                raise ValueError(f"it was written in the format {format_!r}.")
            # a field of another version that holds None says nothing, and may be unknown here
            fields_of_file = json.loads(str(arrays["provenance"]))
            known_fields = {
                name: value for name, value in fields_of_file.items() if value is not None
            }
            arrays["provenance"] = Provenance(**known_fields)
            data = cls(**arrays)
            # last, since what the class itself refuses says more than a digest
            if not is_intact:
                raise ValueError("its arrays were changed since it was written.")
            return data


def _digest_of_arrays(arrays: dict[str, Any]) -> str:
    """A digest of named arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.atleast_1d(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
