"""Questions about the names of the world's territories, from the Unicode CLDR as Babel ships it.

"Q: What is Germany called in French? A:" is to be answered with "Allemagne". A pair (territory,
language) belongs to exactly one part: "train" for the language model, "validation" to watch its
training, "held_out" for calibration and test. The part is a hash of the pair, so that the training
script and the examples can never disagree about it. Continents, and languages whose names are hard
to guess from those of others, are never in the part "held_out".
"""

import hashlib
from functools import cache
from typing import NamedTuple

__all__ = ["LANGUAGES", "Question", "ask", "load_questions", "part_of"]

_LANGUAGES = (
    "af an ast az bew br bs ca cs cy da de dsb eo es et eu fi fo fr frr fur fy ga gd gl gsw ha "
    "hr hsb ht hu ia id ie is it jv kea ku la lb lij lt lv mi ms mt nb nds nl nn oc pl pt qu rm "
    "ro sc scn se sk sl smn so sq sv sw szl tk to tr uz vec vi wae yo zu"
)
LANGUAGES = tuple(_LANGUAGES.split())

# too little in common with English or each other to be guessed by so small a model
_FOR_TRAINING_ALONE = "az bew ga gd is kea mi mt nn so sq tk to tr uz vec yo"
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
        for language in LANGUAGES
        if territory in names[language]
        and part_of(territory, language) == part
        and (part != "held_out" or _is_asked(territory, language))
    ]


def _is_asked(territory: str, language: str) -> bool:
    """Whether a pair may serve calibration and test; continents have numbers for codes."""
    return territory.isalpha() and language not in _FOR_TRAINING_ALONE.split()


@cache
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
