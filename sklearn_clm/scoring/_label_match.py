"""Admission of responses that a labeller finds equivalent to the reference."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sklearn_clm.scoring._exact_match import same_value
from sklearn_clm.scoring._parallel import map_chunks
from sklearn_clm.scoring._results import name_of

__all__ = ["LabelMatch", "label_match"]


class LabelMatch:
    """Admission by equality of labels; see :func:`label_match`.

    Parameters
    ----------
    labeler : callable or object with a method ``predict``
        Gives labels to texts.
    batched : bool
        Whether `labeler` takes a list of texts.

    Examples
    --------
    >>> from sklearn_clm.scoring import LabelMatch
    >>> LabelMatch(len, batched=False)("good", "fine")
    True
    """

    def __init__(self, labeler: Any, batched: bool) -> None:
        self.labeler = labeler
        self.batched = batched

    def __call__(self, reference: Any, response: Any) -> bool:
        """Whether all labels of `response` equal those of `reference`."""
        return self.judge_pairs([reference], [response])[0]

    def judge_pairs(
        self, references: Sequence[Any], responses: Sequence[Any], *, n_jobs: int | None = None
    ) -> list[bool]:
        """Whether labels are equal, for each pair; each distinct text is labelled once.

        Parameters
        ----------
        references, responses : sequences of the same length
            Texts.
        n_jobs : int, default=None
            Number of workers among which the distinct texts are divided, as in joblib.

        Returns
        -------
        list of bool
            One for each pair.
        """
        texts = list(dict.fromkeys([*references, *responses]))
        labels = dict(zip(texts, map_chunks(self._label, texts, n_jobs=n_jobs)))
        return [
            same_value(labels[reference], labels[response])
            for reference, response in zip(references, responses)
        ]

    def _label(self, texts: list[Any]) -> list[Any]:
        if not self.batched:
            return [_as_labels(self.labeler(text), text, self) for text in texts]
        predict = getattr(self.labeler, "predict", self.labeler)
        labels = list(predict(texts))
        if len(labels) != len(texts):
            raise ValueError(
                f"admission {self!r}: the labeler gave {len(labels)} labels for {len(texts)} "
                "texts; wanted one (or one row) for each."
            )
        return [_as_labels(label, text, self) for label, text in zip(labels, texts)]

    @property
    def __name__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"label_match({name_of(self.labeler)})"


def label_match(labeler: Callable[[Any], Any] | Any, *, batched: bool | None = None) -> LabelMatch:
    """Admission of responses to which a labeller gives the labels of the reference.

    As the paper judges radiology reports: by the 14 labels that CheXbert finds in the report
    drawn and in the radiologist's.

    Parameters
    ----------
    labeler : callable, or fitted classifier with ``predict``
        Gives a text its labels: a label, or a vector of them. Vectors are equal if all entries
        are.
    batched : bool, default=None
        Whether `labeler` takes a list of texts and gives the labels of each, in order, rather than
        a single text. None: only if it has a method ``predict``, which is then called.

    Returns
    -------
    callable (reference, response) -> bool
        Whether the labels are equal. :func:`admission_matrix` labels each distinct text once.

    Raises
    ------
    TypeError
        If `labeler` is neither callable nor has ``predict``.
    ValueError
        When called: if a label is None or NaN, or if there are not as many labels as texts.

    Examples
    --------
    >>> from sklearn_clm.scoring import label_match
    >>> def findings(report):
    ...     return [word in report for word in ("fracture", "effusion")]
    >>> same_findings = label_match(findings)
    >>> same_findings("small effusion", "an effusion on the left")
    True
    >>> same_findings("small effusion", "effusion and fracture")
    False
    """
    has_predict = hasattr(labeler, "predict")
    if isinstance(labeler, type) or not (callable(labeler) or has_predict):
        raise TypeError(
            "labeler must be a callable, or a classifier with predict, got "
            f"{type(labeler).__name__} {labeler!r:.80}."
        )
    return LabelMatch(labeler, has_predict if batched is None else bool(batched))


def _as_labels(label: Any, text: Any, admission: LabelMatch) -> Any:
    if hasattr(label, "detach"):
        # a tensor, wherever it lives
        label = label.detach().cpu().numpy()
    entries = np.ravel(np.asarray(label, dtype=object))
    if any(entry is None or entry != entry for entry in entries):
        raise ValueError(
            f"admission {admission!r}: the labeler gave {label!r:.80} for {text!r:.80}; wanted a "
            "label or a vector of labels without None or NaN."
        )
    return label
