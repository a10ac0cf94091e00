"""Entailment of components by a text, judged by a model of natural language inference."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from sklearn_clm.generators.transformers._generator import import_transformers
from sklearn_clm.scoring._callables import Named
from sklearn_clm.scoring._protocols import Draws, PairJudge, Prompt, Prompts, Spans
from sklearn_clm.scoring._quality import near_boundary
from sklearn_clm.scoring._splitters import component_of

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Pair: TypeAlias = tuple[str, str]

# A batch of another size or padding moves the last digits of float32, which must not decide
# whether a score reaches the threshold that it set itself: log-odds are rounded, and those that a
# batch leaves too near to a boundary of rounding are had from the pair alone. Errors of 4e-6 of a
# BERT and of 9e-5 of a T5 with log-odds of 37 were seen (torch 2.13 on a CPU with AVX-512).
_LOGIT_DECIMALS = 2
_BATCH_ERROR = 1e-4
_NO_LIMIT = 10**9  # transformers writes "unknown" as a huge number


class EntailmentScore(BaseEstimator):
    """Probability that a text entails a component.

    As component score F^c, the premise is the prompt (or what `premise` makes of it), such as
    the article of a summary. Called as ``score(premise, hypothesis)`` it gives the probability for
    one pair; :meth:`admission` makes it a judge of components against references.

    Parameters
    ----------
    model : str, path or transformers model
        A sequence classification checkpoint of natural language inference, whose probability of
        entailment is the score; or a T5-like encoder-decoder in the format of the TRUE
        benchmark, which answers "1" to "premise: ... hypothesis: ..." (the score is then the
        probability of that answer). Weights are read from safetensors only, and no code of a
        checkpoint is run.
    tokenizer : transformers tokenizer, optional
        By default the one saved beside `model`. Wanted where `model` is a loaded model.
    premise : callable prompt -> str, optional
        Makes the premise of a prompt. By default the prompt itself, which must be a string.
    entailment_label : int or str, optional
        Which class of a classifier means entailment; by default the one whose name says so.
    batch_size : int, default=32
        Pairs in one forward pass.
    max_length : int, optional
        Tokens of a pair at most; the end of a longer premise is cut off, never the hypothesis.
        By default what the tokenizer and the model allow.
    device : str or torch.device, optional
        Where to run. By default where the model is, the CPU for a checkpoint.

    Notes
    -----
    A score is that of the pair alone, its log-odds rounded to two decimals, whatever batch the
    pair is in: where the log-odds in a batch come within 1e-4 (and 1e-5 of their size) of a
    boundary of rounding, as one pair in fifty does, the pair is run again alone. This holds on one
    machine with one number of threads, for a model whose batches move its log-odds by no more than
    that; elsewhere the second decimal may differ. A checkpoint is run in single precision. A
    loaded model in half precision, where batches differ by more, is given one pair at a time. A
    loaded model is put into evaluation mode.

    Examples
    --------
    >>> from sklearn_clm.scoring import EntailmentScore
    >>> score = EntailmentScore("path/to/checkpoint", premise=lambda prompt: prompt[:2000])
    >>> score.batch_size
    32
    """

    def __init__(
        self,
        model: "str | os.PathLike[str] | PreTrainedModel",
        *,
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        premise: Callable[[Prompt], str] | None = None,
        entailment_label: int | str | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
        device: "str | torch.device | None" = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.premise = premise
        self.entailment_label = entailment_label
        self.batch_size = batch_size
        self.max_length = max_length
        self.device = device

    def __sklearn_clone__(self) -> Self:
        # the default deep-copies parameters: a loaded model is shared instead
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.startswith("_loaded")}

    def __call__(self, premise: str, hypothesis: str) -> float:
        """Score of one pair.

        Parameters
        ----------
        premise, hypothesis : str
            Two texts.

        Returns
        -------
        float
            Probability that the premise entails the hypothesis.
        """
        return float(self.score_pairs([(premise, hypothesis)])[0])

    def admission(self, threshold: float = 0.5) -> "EntailmentAdmission":
        """Admission A^c of components that the reference entails.

        Parameters
        ----------
        threshold : float, default=0.5
            The smallest probability of entailment that is admitted, in [0, 1].

        Returns
        -------
        callable (reference, component) -> bool
            Judges many pairs in batches.

        Raises
        ------
        ValueError
            If `threshold` is out of range.

        Examples
        --------
        >>> from sklearn_clm import ComponentSelector
        >>> from sklearn_clm.scoring import EntailmentScore
        >>> judge = EntailmentScore("path/to/checkpoint").admission(0.7)
        >>> ComponentSelector(admission=judge).admission
        EntailmentAdmission(EntailmentScore(model='path/to/checkpoint'), 0.7)
        """
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold={threshold!r} is out of range; wanted a number in [0, 1].")
        return EntailmentAdmission(self, float(threshold))

    def score_components(
        self, prompts: Prompts, generations: Draws, spans: Spans
    ) -> list[list[np.ndarray]]:
        """Scores of all occurrences, as in :class:`ComponentScore`.

        Each distinct pair of a premise and a component is judged once.
        """
        positions: dict[tuple[str, str], int] = {}
        ids: list[list[list[int]]] = []
        for i, (prompt, draws, rows) in enumerate(zip(prompts, generations, spans)):
            premise = self._premise(prompt, i)
            ids.append([])
            for draw, row in zip(draws, rows):
                pairs = [(premise, str(component_of(draw.response, span))) for span in row]
                ids[-1].append([positions.setdefault(pair, len(positions)) for pair in pairs])
        scores = self.score_pairs(list(positions))
        return [[scores[np.asarray(row, dtype=np.intp)] for row in rows] for rows in ids]

    def score_pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Scores of many pairs, in batches.

        Parameters
        ----------
        pairs : sequence of m (premise, hypothesis)
            Texts.

        Returns
        -------
        ndarray of shape (m,)
            Probabilities.
        """
        if not len(pairs):
            return np.empty(0)
        check_scalar(self.batch_size, "batch_size", Integral, min_val=1)
        model, tokenizer = self._model_and_tokenizer()
        limit = self._limit(model, tokenizer)
        log_probability: Callable[[list[Pair]], np.ndarray]
        if model.config.is_encoder_decoder:
            answer = _answer_tokens(tokenizer)
            log_probability = partial(_answer_log_probability, model, tokenizer, answer, limit)
        else:
            wanted = _entailment_index(model.config, self.entailment_label)
            log_probability = partial(_class_log_probability, model, tokenizer, wanted, limit)

        def log_odds(rows: np.ndarray) -> np.ndarray:
            values = log_probability([pairs[row] for row in rows])
            with np.errstate(divide="ignore"):
                return np.asarray(values - np.log(-np.expm1(values)))

        size = self.batch_size if model.dtype.itemsize >= np.dtype(np.float32).itemsize else 1
        # texts of like length share a batch, so that little of it is padding
        order = np.argsort([len(p) + len(h) for p, h in pairs], kind="stable")
        values = np.empty(len(pairs))
        model.train(False)
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            values[rows] = log_odds(rows)
            if len(rows) > 1:
                for row in rows[near_boundary(values[rows], _LOGIT_DECIMALS, _BATCH_ERROR)]:
                    values[row] = log_odds(np.array([row])).item()
        return np.asarray(expit(np.round(values, _LOGIT_DECIMALS)))

    def _premise(self, prompt: Prompt, i: int) -> str:
        premise = prompt if self.premise is None else self.premise(prompt)
        if not isinstance(premise, str):
            source = "prompt" if self.premise is None else "premise made of prompt"
            raise TypeError(
                f"EntailmentScore needs text: {source} {i} is a {type(premise).__name__}. Pass "
                "premise=, a callable that makes a string of a prompt."
            )
        return premise

    def _model_and_tokenizer(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        wanted = (self.model, self.tokenizer, self.device)
        if getattr(self, "_loaded_for", None) != wanted:
            self._loaded, self._loaded_for = self._load(), wanted
        return self._loaded

    def _load(self) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
        transformers = import_transformers("EntailmentScore")
        model, tokenizer = self.model, self.tokenizer
        if isinstance(model, (str, os.PathLike)):
            name = model
            config = transformers.AutoConfig.from_pretrained(name)
            kind = transformers.AutoModelForSequenceClassification
            if config.is_encoder_decoder:
                kind = transformers.AutoModelForSeq2SeqLM
            model = kind.from_pretrained(name, use_safetensors=True).float()
            if tokenizer is None:
                tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        elif tokenizer is None:
            raise ValueError("tokenizer must be given beside a loaded model, got None instead.")
        if self.device is not None:
            model = model.to(self.device)  # type: ignore[arg-type]
        return model, tokenizer

    def _limit(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> int:
        limits = [getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT]
        for name, module in model.named_modules():
            padding = getattr(module, "padding_idx", None)
            if name.endswith("position_embeddings") and padding is not None:
                # RoBERTa and its kin count positions from the one after that of padding
                limits.append(module.num_embeddings - padding - 1)
        wanted = tokenizer.model_max_length if self.max_length is None else self.max_length
        return int(min(wanted, *limits, _NO_LIMIT))


class EntailmentAdmission(Named, PairJudge):
    """Admission by entailment; see :meth:`EntailmentScore.admission`.

    Parameters
    ----------
    score : EntailmentScore
        Gives the probability.
    threshold : float
        The smallest one that is admitted.
    """

    def __init__(self, score: EntailmentScore, threshold: float) -> None:
        self.score = score
        self.threshold = threshold

    def judge_pairs(
        self, references: Sequence[str], components: Sequence[str]
    ) -> Iterator[tuple[int, bool]]:
        """Verdict on each pair, as in :class:`PairJudge`; each distinct pair is judged once."""
        pairs = list(zip(references, components))
        for pair in pairs:
            if not all(isinstance(text, str) for text in pair):
                raise TypeError(f"EntailmentAdmission needs texts, got {pair!r:.80}.")
        distinct = list(dict.fromkeys(pairs))
        known = dict(zip(distinct, self.score.score_pairs(distinct) >= self.threshold))
        return enumerate(bool(known[pair]) for pair in pairs)

    def __repr__(self) -> str:
        return f"EntailmentAdmission({self.score!r}, {self.threshold})"


def _entailment_index(config: "PretrainedConfig", wanted: int | str | None) -> int:
    names = {int(index): str(name) for index, name in (config.id2label or {}).items()}
    if isinstance(wanted, (int, np.integer)) and int(wanted) in names:
        return int(wanted)
    if wanted is None:
        found = [i for i, name in names.items() if name.lower().startswith("entail")]
    else:
        found = [i for i, name in names.items() if name == wanted]
    if len(found) != 1:
        raise ValueError(
            f"entailment_label={wanted!r} names {len(found)} of the classes "
            f"{list(names.values())} of the model; wanted the one that means entailment."
        )
    return found[0]


def _class_log_probability(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    entailment: int,
    limit: int,
    pairs: list[Pair],
) -> np.ndarray:
    import torch

    premises, hypotheses = zip(*pairs)
    encoded = tokenizer(
        list(premises),
        list(hypotheses),
        padding=True,
        truncation="only_first",
        max_length=limit if limit < _NO_LIMIT else None,
        return_tensors="pt",
    ).to(model.device)
    with torch.inference_mode():
        logits = model(**encoded).logits.double()
    return logits.log_softmax(dim=-1)[:, entailment].cpu().numpy()


def _answer_log_probability(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    answer: list[int],
    limit: int,
    pairs: list[Pair],
) -> np.ndarray:
    import torch

    rows = [_true_format(tokenizer, premise, hypothesis, limit) for premise, hypothesis in pairs]
    encoded = tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(model.device)
    start = model.config.decoder_start_token_id
    before = torch.tensor([[start, *answer[:-1]]] * len(rows), device=model.device)
    with torch.inference_mode():
        logits = model(
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            decoder_input_ids=before,
        ).logits.double()
    tokens = torch.tensor(answer, device=model.device)
    each = logits.log_softmax(dim=-1)[:, torch.arange(len(answer)), tokens]
    return each.sum(dim=1).cpu().numpy()


def _answer_tokens(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    answer = list(tokenizer("1", add_special_tokens=False)["input_ids"])
    if not answer or tokenizer.unk_token_id in answer:
        raise ValueError(
            "model cannot answer '1': its tokenizer has no such token; wanted a classifier, or a "
            "T5 in the format of the TRUE benchmark."
        )
    return answer


def _true_format(
    tokenizer: "PreTrainedTokenizerBase", premise: str, hypothesis: str, limit: int
) -> list[int]:
    """Token ids of a pair, the end of the premise cut off where it is too long."""
    text = f"premise: {premise} hypothesis: {hypothesis}"
    ids = tokenizer(text, verbose=False)["input_ids"]
    if len(ids) <= limit:
        return list(ids)
    tail = tokenizer(f"hypothesis: {hypothesis}")["input_ids"]
    premise = f"premise: {premise}"
    head = tokenizer(premise, add_special_tokens=False, verbose=False)["input_ids"]
    return [*head[: max(limit - len(tail), 0)], *tail]
