"""What calibration data were collected with."""

import json
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

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
    sampler: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            wanted = int if name in ("seed", "k_max") else str
            if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
                raise TypeError(
                    f"{name} must be {'an int' if wanted is int else 'a str'} or None, "
                    f"got {value!r} instead."
                )
        for name, least in (("seed", 0), ("k_max", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value} instead.")

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

    def differences(self, other: "Provenance") -> tuple[str, ...]:
        """Names of the fields known in both that differ."""
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
        """Read what :meth:`to_array` wrote."""
        try:
            known = json.loads(str(array))
            known.pop("precision", None)  # which earlier versions wrote
            return cls(**known)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"its provenance is damaged: {error}") from error


def with_budget(provenance: Provenance | None, k_max: int | None) -> Provenance:
    """The given provenance, with the number of draws that arrays show."""
    known = Provenance() if provenance is None else provenance
    if not isinstance(known, Provenance):
        raise TypeError(
            f"provenance must be a Provenance or None, got {type(known).__name__} instead."
        )
    if k_max is None:
        return known
    if known.k_max not in (None, k_max):
        raise ValueError(
            f"provenance.k_max must be the number of draws in the arrays, {k_max}, "
            f"got {known.k_max} instead."
        )
    return replace(known, k_max=k_max)
