"""What calibration data were collected with."""

from dataclasses import dataclass

_OPTIONAL = ("splitter", "component_score", "shift", "sampler")


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
    shift, sampler : str or None
        A description of the shift by whose weights prompts were kept, and a digest of the
        calibration whose sets the data hold; None for all prompts, or all draws.

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

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the unknown fields; those of components count once one of them is known."""
        known_parts = self.splitter is not None or self.component_score is not None
        optional = _OPTIONAL[2:] if known_parts else _OPTIONAL
        return tuple(
            name for name, value in vars(self).items() if value is None and name not in optional
        )

    def differences(self, other: "Provenance") -> tuple[str, ...]:
        """Names of the fields known in both that differ."""
        both = zip(vars(self).items(), vars(other).values())
        return tuple(name for (name, a), b in both if None not in (a, b) and a != b)
