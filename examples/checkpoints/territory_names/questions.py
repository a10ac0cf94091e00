"""Questions about the names of the world's territories, from the Unicode CLDR as Babel ships it.

"Q: What is Germany called in French? A:" is to be answered with "Allemagne". A pair (territory,
language) belongs to exactly one part: "train" for the language model, "validation" to watch its
training, "held_out" for calibration and test. The part is a hash of the pair, so that the training
script and the examples can never disagree about it.
"""

import hashlib
from typing import NamedTuple

__all__ = ["LANGUAGES", "Question", "ask", "load_questions", "part_of"]

_LANGUAGES = (
    "af an ast br bs ca cs cy da de dsb eo es et eu fi fo fr frr fur fy gl gsw ha hr hsb ht "
    "hu ia id ie it jv ku la lb lij lt lv ms nb nds nl oc pl pt qu rm ro sc scn se sk sl smn "
    "sv sw szl vi wae zu"
)
LANGUAGES = tuple(_LANGUAGES.split())

_PSEUDO_TERRITORIES = {"EZ", "XA", "XB", "ZZ"}  # currency area, test locales, "unknown"
_HELD_OUT = 0.25
_VALIDATION = 0.03


class Question(NamedTuple):
    """One question: codes of territory and language, the text, and every answer that is right."""

    territory: str
    language: str
    prompt: str
    answers: tuple[str, ...]


def ask(territory: str, language: str) -> str:
    """Text of the question for an English territory name and an English language name."""
    return f"Q: What is {territory} called in {language}? A:"


def part_of(territory: str, language: str) -> str:
    """Part that a pair of codes belongs to: "train", "validation" or "held_out"."""
    digest = hashlib.blake2b(f"{territory}/{language}".encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    if position < _HELD_OUT:
        return "held_out"
    return "validation" if position < _HELD_OUT + _VALIDATION else "train"


def load_questions(part: str) -> list[Question]:
    """All questions of one part, ordered by territory and language code."""
    try:
        from babel import Locale
    except ImportError as error:
        raise SystemExit(
            "The territory names come from the Babel package; install it with: pip install Babel"
        ) from error

    english = Locale("en")
    names = {language: _names_of(language) for language in LANGUAGES}
    return [
        Question(
            territory,
            language,
            ask(english.territories[territory], english.languages[language]),
            tuple(names[language][territory]),
        )
        for territory in sorted(set(english.territories) - _PSEUDO_TERRITORIES)
        if territory.isalpha()  # continents and their parts have numbers
        for language in LANGUAGES
        if territory in names[language] and part_of(territory, language) == part
    ]


def _names_of(language: str) -> dict[str, list[str]]:
    """Names of each territory: the language's own first, then those of its regional variants."""
    from babel import localedata

    regional = [
        identifier
        for identifier in localedata.locale_identifiers()
        if identifier.startswith(language + "_") and _is_region(identifier.partition("_")[2])
    ]
    names: dict[str, list[str]] = {}
    for identifier in [language, *sorted(regional)]:
        own = localedata.load(identifier, merge_inherited=False).get("territories", {})
        for territory, name in own.items():
            known = names.setdefault(str(territory), [])
            if name not in known:
                known.append(name)
    return names


def _is_region(tag: str) -> bool:
    """Whether a locale tag names a region alone, not a script or another spelling."""
    return (len(tag) == 2 and tag.isupper()) or (len(tag) == 3 and tag.isdigit())
