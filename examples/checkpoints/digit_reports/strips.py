"""Strips of four real handwritten digits, and the reports that are written about them.

A strip is the task of a radiologist in small: an image with four findings, some of them hard to
see because the film is damaged, and a report with one sentence for each finding whose wording is
free. The digits that the captioning model was trained on never occur in the strips that
:func:`draw_strips` makes with ``part="unseen"``.
"""

import re
from functools import lru_cache

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

HEIGHT = WIDTH = 8
N_DIGITS = 4
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ORDINALS = ("first", "second", "third", "fourth")
PLACES = ("On the far left", "Left of the centre", "Right of the centre", "On the far right")

WORDINGS = (
    "The {ordinal} digit is {article} {word}.",
    "{place} there is {article} {numeral}.",
    "In position {position} we see {article} {word}.",
    "The {ordinal} one reads {numeral}.",
)

_WHERE = {
    **{f"the {ordinal} ": i for i, ordinal in enumerate(ORDINALS)},
    **{f"{place.lower()} ": i for i, place in enumerate(PLACES)},
    **{f"in position {i + 1} ": i for i in range(N_DIGITS)},
}
_WHAT = {**{word: d for d, word in enumerate(WORDS)}, **{str(d): d for d in range(10)}}
_SENTENCE = re.compile(
    rf"({'|'.join(_WHERE)})(?:digit is an?|there is an?|we see an?|one reads) "
    rf"({'|'.join(_WHAT)})\.?"
)


def draw_strips(n_strips, *, part, random_state, torn=0.27):
    """Draw strips of four digits, independently of each other, with the digits they show.

    Parameters
    ----------
    n_strips : int
        Number of strips.
    part : {"training", "unseen"}
        Which half of the handwritten digits the strips are made of.
    random_state : int or sequence of ints
        Seed.
    torn : float
        Share of the digits that lose a side; the model was trained with the default.

    Returns
    -------
    strips : list of PIL.Image.Image
        Images of 32 x 8 pixels.
    labels : ndarray of shape (n_strips, 4)
        The digits they show, from left to right.
    """
    digits, labels = _draw_digits((n_strips, N_DIGITS), part, random_state, torn)
    rows = digits.transpose(0, 2, 1, 3).reshape(n_strips, HEIGHT, N_DIGITS * WIDTH)
    pixels = (255 * rows).round().astype(np.uint8)
    return [Image.fromarray(strip).convert("RGB") for strip in pixels], labels


def draw_single_digits(n_digits, *, part, random_state):
    """Draw digits as they stand in strips, one by one.

    Parameters
    ----------
    n_digits : int
        Number of digits.
    part, random_state
        As in :func:`draw_strips`.

    Returns
    -------
    pixels : ndarray of shape (n_digits, 64)
        From 0 to 1.
    labels : ndarray of shape (n_digits,)
        The digits they show.
    """
    digits, labels = _draw_digits((n_digits, 1), part, random_state, torn=0.27)
    return digits.reshape(n_digits, -1), labels[:, 0]


def part_of_digits(part):
    """Positions of the handwritten digits of one half.

    Parameters
    ----------
    part : {"training", "unseen"}
        Which half.

    Returns
    -------
    ndarray of int
        Positions in ``load_digits().data``.
    """
    n_digits = len(_handwritten()[1])
    halves = np.array_split(np.random.default_rng(0).permutation(n_digits), 2)
    return halves[("training", "unseen").index(part)]


@lru_cache(maxsize=1)
def _handwritten():
    return load_digits(return_X_y=True)


def _draw_digits(shape, part, random_state, torn):
    rng = np.random.default_rng(random_state)
    images, target = _handwritten()
    chosen = rng.choice(part_of_digits(part), size=shape)
    digits = images[chosen].reshape(*shape, HEIGHT, WIDTH) / 16.0
    digits = _damage(digits, rng, torn) + rng.normal(0.0, 0.12, digits.shape)
    return np.clip(digits, 0.0, 1.0), target[chosen]


def _damage(digits, rng, torn):
    """Tear a side off that share of the digits, 3 to 6 of 8 pixels deep."""
    chosen = rng.random(digits.shape[:2]) < torn
    depth = rng.integers(3, 7, size=digits.shape[:2])
    side = rng.integers(4, size=digits.shape[:2])
    digits = digits.copy()
    for i, j in np.argwhere(chosen):
        kept = np.rot90(digits[i, j], side[i, j])  # a view: any side becomes the top
        kept[: depth[i, j]] = 0.0
    return digits


def write_report(digits, random_state):
    """Write a report as a person would: one sentence for each digit, worded at will.

    Parameters
    ----------
    digits : sequence of 4 ints
        The digits, from left to right.
    random_state : int or numpy.random.Generator
        Seed of the wording.

    Returns
    -------
    str
        Four sentences.
    """
    rng = np.random.default_rng(random_state)
    chosen = rng.integers(len(WORDINGS), size=N_DIGITS)
    return " ".join(
        word_finding(position, digit, wording)
        for position, (digit, wording) in enumerate(zip(digits, chosen))
    )


def word_finding(position, digit, wording):
    """Word one finding.

    Parameters
    ----------
    position : int
        From 0, the leftmost, to 3.
    digit : int
        From 0 to 9.
    wording : int
        Index in `WORDINGS`.

    Returns
    -------
    str
        One sentence.
    """
    return WORDINGS[wording].format(
        ordinal=ORDINALS[position],
        place=PLACES[position],
        position=position + 1,
        article="an" if digit == 8 else "a",
        word=WORDS[digit],
        numeral=digit,
    )


def read_sentence(sentence):
    """Read the finding of a sentence.

    Parameters
    ----------
    sentence : str
        One sentence of a report.

    Returns
    -------
    (int, int) or None
        Position from 0 to 3 and digit; None where the sentence states no finding.
    """
    match = _SENTENCE.fullmatch(sentence.strip().lower())
    return None if match is None else (_WHERE[match[1]], _WHAT[match[2]])


def read_report(report):
    """Read the four digits of a report, the part that an automatic labeller plays.

    Parameters
    ----------
    report : str
        A report.

    Returns
    -------
    tuple of 4 ints
        The digits, from left to right; -1 where the report is silent or contradicts itself.
    """
    findings = {}
    for match in _SENTENCE.finditer(report.lower()):
        findings.setdefault(_WHERE[match[1]], set()).add(_WHAT[match[2]])
    return tuple(
        next(iter(found)) if len(found := findings.get(position, ())) == 1 else -1
        for position in range(N_DIGITS)
    )


def same_reading(one, other):
    """Compare two reports by what they state, however they are worded.

    Parameters
    ----------
    one, other : str
        Reports.

    Returns
    -------
    bool
        Whether :func:`read_report` reads the same digits.
    """
    return read_report(one) == read_report(other)


def states_the_right_digit(report, sentence):
    """Judge a sentence by a report that is right.

    Parameters
    ----------
    report : str
        Right in all digits.
    sentence : str
        The sentence.

    Returns
    -------
    bool
        Whether it states a digit, and the one that the report has there.
    """
    finding = read_sentence(sentence)
    return finding is not None and read_report(report)[finding[0]] == finding[1]
