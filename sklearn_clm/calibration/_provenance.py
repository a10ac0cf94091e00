"""What calibration data were collected with."""

import json
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike

_FORMATS = ("float16", "float32", "float64")
_OF_COMPONENTS = ("splitter", "component_score")


@dataclass(frozen=True)
class Provenance:
    """What calibration data were collected with; None stands for unknown.

    Parameters
    ----------
    generator : str or None
        Fingerprint of the generator, its training included.
    seed : int or None
        Seed of the draws.
    quality, similarity, admission : str or None
        Fingerprints of the scores and of the judge.
    splitter, component_score : str or None
        For data of components: fingerprints of the splitter and of the component score.
    k_max : int or None
        Number of draws for each prompt.
    precision : str or None
        Floating-point format of the scores, such as "float64" or "float32"; where quality and
        similarity differ, both, joined by a slash: "float64/float32". Thresholds are found among
        numbers of that format: a new score is rounded to it before it is compared, by
        :class:`SamplingRule` for draws and by :meth:`rounded` for components. Otherwise all that
        ties with a threshold could fall on the other side of it than in calibration.
    shift : str or None
        JSON text that describes the shift, where prompts were kept by weights; None where all
        prompts take part, as far as is known.
    sampler : str or None
        Digest of the calibration whose sets the data hold; None for all draws, or where unknown.

    Examples
    --------
    >>> from sklearn_clm.calibration import Provenance
    >>> collected = Provenance(generator="6f1c", seed=0, quality="likelihood")
    >>> collected.differences(Provenance(generator="6f1c", seed=1))
    ('seed',)
    >>> collected.unknown
    ('similarity', 'admission', 'k_max', 'precision')
    """

    generator: str | None = None
    seed: int | None = None
    quality: str | None = None
    similarity: str | None = None
    admission: str | None = None
    splitter: str | None = None
    component_score: str | None = None
    k_max: int | None = None
    precision: str | None = None
    shift: str | None = None
    sampler: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            wanted = int if name in ("seed", "k_max") else str
            if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
                raise TypeError(
                    f"{name} must be {'an int' if wanted is int else 'a str'} or None, "
                    f"got {value!r} instead."
                )
        if self.k_max is not None and self.k_max < 1:
            raise ValueError(f"k_max must be at least 1, got {self.k_max} instead.")
        formats = [] if self.precision is None else self.precision.split("/")
        if len(formats) > 2 or not all(name in _FORMATS for name in formats):
            raise ValueError(
                f"precision must be one of {', '.join(_FORMATS)}, two of them joined by a slash, "
                f"or None, got {self.precision!r} instead."
            )

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the unknown fields.

        Those that only data of components have count once one of them is known.
        """
        about_components = any(getattr(self, name) is not None for name in _OF_COMPONENTS)
        return tuple(
            name
            for name, value in asdict(self).items()
            if value is None
            and name not in ("shift", "sampler")
            and (about_components or name not in _OF_COMPONENTS)
        )

    def rounded(self, scores: ArrayLike, name: str = "quality") -> np.ndarray:
        """Scores as calibration saw them: rounded to its precision.

        Parameters
        ----------
        scores : array-like of float
            New scores.
        name : {"quality", "similarity"}, default="quality"
            Which precision, where the two differ. Components have one only.

        Returns
        -------
        ndarray of float64
            The scores, unchanged where the precision is double or unknown.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_clm.calibration import Provenance
        >>> threshold = float(np.float32(0.1))  # more than 0.1
        >>> bool(Provenance(precision="float32").rounded(0.1) >= threshold)
        True
        """
        values = np.asarray(scores, dtype=np.float64)
        with np.errstate(over="ignore"):
            return values.astype(precision_of(self.precision, name)).astype(np.float64, copy=False)

    def differences(self, other: "Provenance") -> tuple[str, ...]:
        """Names of the fields known in both that differ.

        Parameters
        ----------
        other : Provenance
            What to compare with.

        Returns
        -------
        tuple of str
            Empty where nothing is known to differ.
        """
        return tuple(
            field.name
            for field in fields(self)
            if None not in (mine := getattr(self, field.name), its := getattr(other, field.name))
            and mine != its
        )

    def to_array(self) -> np.ndarray:
        """The fields as JSON text in a 0-d array, for files without pickle."""
        return np.array(json.dumps(asdict(self)))

    @classmethod
    def from_array(cls, array: np.ndarray) -> "Provenance":
        """Read what :meth:`to_array` wrote.

        Parameters
        ----------
        array : ndarray
            The 0-d array.

        Returns
        -------
        Provenance
            The fields, checked.

        Raises
        ------
        ValueError
            If the text is damaged.
        """
        try:
            return cls(**json.loads(str(array)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"its provenance is damaged: {error}") from error


def precision_of(precision: str | None, name: str) -> np.dtype:
    """Format of the scores called `name`: the second of two for the similarity, else the first."""
    formats = (precision or "float64").split("/")
    return np.dtype(formats[-1] if name == "similarity" else formats[0])


def of_arrays(
    provenance: Provenance | None, scores: dict[str, tuple[np.dtype, np.ndarray]], k_max: int | None
) -> Provenance:
    """The given provenance, completed by what the arrays themselves show.

    `scores` holds, by name, the format in which an array was given and the array as it is held.
    """
    known = Provenance() if provenance is None else provenance
    if not isinstance(known, Provenance):
        raise TypeError(
            f"provenance must be a Provenance or None, got {type(known).__name__} instead."
        )
    if k_max is not None and known.k_max not in (None, k_max):
        raise ValueError(
            f"provenance.k_max must be the number of draws in the arrays, {k_max}, "
            f"got {known.k_max} instead."
        )
    formats = []
    for name, (given, values) in scores.items():
        held = given if given.name in _FORMATS else np.dtype(np.float64)
        claimed = precision_of(known.precision, name)
        if claimed.itemsize < held.itemsize and not _fits(values, claimed):
            raise ValueError(
                f"provenance.precision is {known.precision!r}, but {name} holds numbers that "
                f"{claimed} does not have."
            )
        formats.append(min(claimed, held, key=lambda dtype: dtype.itemsize).name)
    precision = "/".join(dict.fromkeys(formats))
    return replace(known, k_max=known.k_max if k_max is None else k_max, precision=precision)


def _fits(values: np.ndarray, dtype: np.dtype) -> bool:
    with np.errstate(over="ignore"):
        return all(np.array_equal(row, row.astype(dtype), equal_nan=True) for row in values)
