"""Images with reports about them, and who judges what a model writes: digits, or your own."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints.digit_reports.strips import (
    N_DIGITS,
    draw_single_digits,
    draw_strips,
    read_sentence,
    same_reading,
    states_the_right_digit,
    write_report,
)

from _protocols.sentence_classifier import train_sentence_classifier
from _protocols.tasks import ADMISSIBLE, ALMOST, read_questions

__all__ = ["ReportTask", "file_task", "strip_task"]


@dataclass(frozen=True)
class ReportTask:
    """Images, what a person wrote about them, and what counts as right.

    Parameters
    ----------
    subject : str
        What the images are, in words.
    images, reports : sequences of length n
        The images, and a report of a person about each.
    admission : callable (reference, report) -> bool
        Whether a report is right.
    sentence_admission : callable (reference, sentence) -> bool
        Whether a sentence is right.
    match : str or callable (reference sentence, sentence) -> bool
        Whether a sentence of the reference is covered by a selected one.
    train : callable (generator, n_samples, seed) -> component score
        Trains the classifier of sentences, on other images than these.
    """

    subject: str
    images: Sequence[Any]
    reports: Sequence[str]
    admission: Callable[[str, str], bool]
    sentence_admission: Callable[[str, str], bool]
    match: str | Callable[[str, str], bool]
    train: Callable[[Any, int, int], Any]


def strip_task(n_images: int, seed: int) -> ReportTask:
    """Strips of digits that the model beside this script has not seen."""
    strips, labels = draw_strips(n_images, part="unseen", random_state=[seed, 1])
    return ReportTask(
        subject="strips of digits",
        images=strips,
        reports=[write_report(digits, [seed, i]) for i, digits in enumerate(labels)],
        admission=same_reading,
        # not ROUGE-L: two sentences about different digits may share all other words
        sentence_admission=states_the_right_digit,
        match=states_the_same,
        train=train_reader,
    )


def states_the_same(one: str, other: str) -> bool:
    """Whether two sentences, however worded, state the same digit in the same place."""
    finding = read_sentence(other)
    return finding is not None and read_sentence(one) == finding


def train_reader(generator: Any, n_samples: int, seed: int) -> Callable[[Any, str], float]:
    """Probability that a sentence is right, of a classifier that sees the one digit alone."""
    from sklearn.ensemble import RandomForestClassifier

    reader = RandomForestClassifier(100, min_samples_leaf=2, random_state=seed)
    # it needs no reports, and the training half of the digits is in no strip
    reader.fit(*draw_single_digits(6000, part="training", random_state=seed))

    @cache
    def probabilities(pixels: bytes):
        strip = np.frombuffer(pixels, dtype=np.uint8).reshape(8, -1, 3)[:, :, 0] / 255
        return reader.predict_proba([part.ravel() for part in np.split(strip, N_DIGITS, axis=1)])

    def probability_of_the_stated_digit(strip, sentence: str) -> float:
        finding = read_sentence(sentence)
        return 0.0 if finding is None else float(probabilities(strip.tobytes())[finding])

    return probability_of_the_stated_digit


def file_task(
    path: Path, n_images: int, n_training: int, labeler: str | None, max_side: int, seed: int
) -> ReportTask:
    """Images and reports of a file of JSON lines; some of them train the classifier."""
    from sklearn_clm.scoring import RougeL, component_match, threshold_admission

    names, references = read_questions(path, prompt="image")
    paths, reports = [path.parent / name for name in names], [one[0] for one in references]
    order = np.random.default_rng(seed).permutation(len(paths))
    n_training = min(n_training, len(paths) // 3)
    training, chosen = order[:n_training], order[n_training : n_training + n_images]

    def train(generator: Any, n_samples: int, seed: int) -> Any:
        images = [load_image(paths[i], max_side) for i in training]
        return train_sentence_classifier(
            generator,
            images,
            [reports[i] for i in training],
            image_and_words,
            n_samples=n_samples,
            seed=seed,
        )

    rouge_l = RougeL(use_stemmer=True)
    almost = threshold_admission(rouge_l, ALMOST)
    if labeler is None:
        admission = threshold_admission(rouge_l, ADMISSIBLE)
    else:
        admission = same_labels(load_labeler(labeler))
    return ReportTask(
        subject=path.stem,
        images=[load_image(paths[i], max_side) for i in chosen],
        reports=[reports[i] for i in chosen],
        admission=admission,
        sentence_admission=component_match(almost),
        match=almost,
        train=train,
    )


def load_image(path: Path, max_side: int) -> Any:
    """An image in memory, shrunk so that thousands have room there."""
    from PIL import Image

    with Image.open(path) as file:
        image = file.convert("RGB")
    image.thumbnail((max_side, max_side))
    return image


def load_labeler(name: str) -> Callable[[str], Any]:
    """The function that MODULE:FUNCTION names, also in the working directory."""
    module, _, function = name.partition(":")
    sys.path.append(os.getcwd())
    return getattr(importlib.import_module(module), function)


def same_labels(labeler: Callable[[str], Any]) -> Callable[[str, str], bool]:
    """Admission of reports that a labeller labels as the reference; it sees each of them once."""
    labels = cache(labeler)
    return lambda reference, report: np.array_equal(labels(reference), labels(report))


def image_and_words(image: Any, sentence: str) -> np.ndarray:
    """What the classifier sees: 8 x 8 grey pixels, and counts of hashed words."""
    from PIL import Image
    from sklearn.feature_extraction.text import HashingVectorizer

    pixels = np.asarray(image.resize((8, 8), Image.Resampling.BOX).convert("L")).ravel()
    hashed = HashingVectorizer(n_features=64, norm=None, alternate_sign=False)
    return np.concatenate([pixels, hashed.transform([sentence]).toarray()[0]])
