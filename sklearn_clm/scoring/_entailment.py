"""Entailment of components by a text, judged by a model."""

import os
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from sklearn_clm._exceptions import optional_module

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Pair: TypeAlias = tuple[str, str]

_NO_LIMIT = 10**9  # transformers writes "unknown" as a number larger than this


class EntailmentScore(BaseEstimator):
    """Probability that a text entails a component.

    As component score F^c, the premise is the prompt, such as the article of a summary;
    :class:`GroundedIn` takes passages of it. :func:`threshold_admission` makes it a judge of
    components against references.

    Parameters
    ----------
    model : str, path or transformers model
        A classifier of natural language inference. Weights are read from safetensors only, and no
        code of a checkpoint is run.
    tokenizer : transformers tokenizer, optional
        By default the one saved beside `model`. Wanted where `model` is a loaded model. Its
        ``model_max_length`` is what a pair has at most: the end of a longer premise is cut off,
        never the hypothesis.
    entailment_label : int or str, optional
        Which class means entailment; by default the one whose name says so.
    batch_size : int, default=32
        Pairs in one forward pass.
    device : str or torch.device, optional
        Where to run. By default where the model is, the CPU for a checkpoint.

    Notes
    -----
    A batch of another size moves the last digits of a score. A checkpoint is run in single
    precision. A loaded model in half precision is given one pair at a time.

    Examples
    --------
    >>> from sklearn_clm.scoring import EntailmentScore, threshold_admission
    >>> score = EntailmentScore("path/to/checkpoint")
    >>> admission = threshold_admission(score, 0.7)
    """

    def __init__(
        self,
        model: "str | os.PathLike[str] | PreTrainedModel",
        *,
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        entailment_label: int | str | None = None,
        batch_size: int = 32,
        device: "str | torch.device | None" = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.entailment_label = entailment_label
        self.batch_size = batch_size
        self.device = device

    def __sklearn_clone__(self) -> Self:
        # the default deep-copies parameters: a loaded model is shared instead
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.startswith("_loaded")}

    def __call__(self, premise: str, hypothesis: str) -> float:
        """Probability that a premise entails a hypothesis, as in :meth:`score_pairs`."""
        return float(self.score_pairs([premise], [hypothesis])[0])

    def score_pairs(
        self, premises: Sequence[str], hypotheses: Sequence[str], *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Probability that each premise entails its hypothesis, shape (n,).

        Each distinct pair is judged once, in batches of pairs of like length. `n_jobs` is not used.
        """
        return self._score(list(zip(premises, hypotheses)))

    def _score(self, pairs: list[Pair]) -> np.ndarray:
        for pair in pairs:
            if not all(isinstance(text, str) for text in pair):
                raise TypeError(
                    f"EntailmentScore must be given pairs of texts, got {pair!r:.80} instead; "
                    "GroundedIn takes texts of a prompt."
                )
        check_scalar(self.batch_size, "batch_size", Integral, min_val=1)
        if not pairs:
            return np.empty(0)
        # by length, so that little of a batch is padding
        distinct = list(dict.fromkeys(pairs))
        distinct.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        model, tokenizer = self._model_and_tokenizer()
        model.train(False)
        # in low precision the other rows of a batch show in a row's score: one at a time
        size = self.batch_size if model.dtype.itemsize >= 4 else 1
        scores: dict[Pair, float] = {}
        for first in range(0, len(distinct), size):
            batch = distinct[first : first + size]
            scores.update(zip(batch, self._probabilities(model, tokenizer, batch)))
        return np.array([scores[pair] for pair in pairs], dtype=np.float64)

    def _probabilities(self, model: Any, tokenizer: Any, pairs: list[Pair]) -> np.ndarray:
        """Probability of entailment of pairs that share a batch."""
        import torch

        # a tokenizer may allow more than the model has positions for, or say nothing
        positions = getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT
        limit = int(min(tokenizer.model_max_length, positions, _NO_LIMIT))
        premises, hypotheses = map(list, zip(*pairs))
        encoded = tokenizer(
            premises,
            hypotheses,
            padding=True,
            truncation="only_first",  # a hypothesis that is cut is another one
            max_length=limit,
            return_tensors="pt",
        ).to(model.device)
        # checkpoints number their classes as they like
        entailment = _entailment_index(model.config, self.entailment_label)
        with torch.inference_mode():
            logits = model(**encoded).logits.double()
            probabilities = logits.softmax(dim=-1)[:, entailment]
        return np.asarray(probabilities.cpu().numpy())

    def import_modules(self) -> None:
        """Load the model, as in :class:`Importing`."""
        self._model_and_tokenizer()

    def _model_and_tokenizer(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        key = (self.model, self.tokenizer, self.device)
        if getattr(self, "_loaded_for", None) != key:
            self._loaded = self._load()
            self._loaded_for = key
        return self._loaded

    def _load(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        optional_module("torch", "transformers", "EntailmentScore")
        transformers = optional_module("transformers", "transformers", "EntailmentScore")
        model = self.model
        tokenizer = self.tokenizer
        if isinstance(model, (str, os.PathLike)):
            name = model
            kind = transformers.AutoModelForSequenceClassification
            options = {"trust_remote_code": False}  # and no question whether to
            model = kind.from_pretrained(name, use_safetensors=True, **options)  # nosec B615
            model = model.float()
            if tokenizer is None:
                tokens = transformers.AutoTokenizer
                tokenizer = tokens.from_pretrained(name, **options)  # nosec B615
        elif tokenizer is None:
            raise ValueError("tokenizer must be given beside a loaded model, got None instead.")
        if self.device is not None:
            model = model.to(self.device)  # type: ignore[arg-type]
        return model, tokenizer


def _entailment_index(config: "PretrainedConfig", wanted: int | str | None) -> int:
    # a config that was read from JSON has texts for indices
    labels = config.id2label or {}
    names = {int(index): str(name) for index, name in labels.items()}
    matching = [
        index
        for index, name in names.items()
        if wanted in (index, name) or (wanted is None and name.lower().startswith("entail"))
    ]
    if len(matching) != 1:
        raise ValueError(
            f"entailment_label must name one of the classes {names} of the model, got {wanted!r} "
            "instead."
        )
    return matching[0]
