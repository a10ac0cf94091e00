"""From logits and a uniform number to a token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# When the shape of the batch changes, rounding moves a logit by up to about 16 units in the last
# place of the largest one, and a cumulative probability by less than one such unit (small models,
# float32, CPU; deeper ones may be a few times worse).
LOGIT_ULPS = 64
PROBABILITY_ULPS = 8
# What lies further below the largest logit is masked: its size says nothing about rounding.
MASKED = 1_000.0


class Choice(NamedTuple):
    """Chosen tokens, one for each row of logits."""

    tokens: Tensor  # (n,) int64
    logprobs: Tensor  # (n,) float64, under the untouched logits
    doubtful: Tensor  # (n,) bool, rounding of the logits could change the token


class Truncated(NamedTuple):
    """Truncated distribution of tokens, by their ids."""

    ids: Tensor | None  # (n, m) int64, None where every token of the vocabulary stands
    weights: Tensor  # (n, m) float64, not normalised, zero for excluded tokens
    doubtful: Tensor  # (n,) bool, rounding of the logits could change the candidates
    unit: Tensor  # (n,) float64, unit in the last place of the largest scaled logit


def choose(
    logits: Tensor, uniforms: Tensor, *, temperature: float, top_k: int, top_p: float, guard: bool
) -> Choice:
    """Invert the truncated distribution of each row at its number."""
    base = logits if logits.dtype == torch.float64 else logits.float()
    truncated = truncate(base, temperature=temperature, top_k=top_k, top_p=top_p)
    cumulative = truncated.weights.cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    last = torch.searchsorted(cumulative, total)

    def invert(at: Tensor) -> Tensor:
        # strictly greater, so that a token of weight zero is never chosen
        position = torch.searchsorted(cumulative, at.clamp(0.0, 1.0) * total, right=True)
        return torch.minimum(position, last)

    at = uniforms.unsqueeze(1)
    columns = invert(at)
    # a number so near to the edge of a token that rounding could take the other one
    if guard:
        margin = PROBABILITY_ULPS * truncated.unit.unsqueeze(1)
        moved = invert(torch.cat([at - margin, at + margin], dim=1))
        doubtful = truncated.doubtful | (moved[:, 0] != moved[:, 1])
    else:
        doubtful = torch.zeros_like(truncated.doubtful)
    tokens = columns if truncated.ids is None else truncated.ids.gather(1, columns)
    # of the base model (section 4.2): before temperature, top-k and top-p
    log_normaliser = base.logsumexp(-1, keepdim=True).double()
    logprobs = base.gather(1, tokens).double() - log_normaliser
    return Choice(tokens[:, 0], logprobs[:, 0], doubtful)


def truncate(logits: Tensor, *, temperature: float, top_k: int, top_p: float) -> Truncated:
    """Apply temperature, top-k and top-p, in this order."""
    scaled = logits / temperature
    top = logits.amax(-1, keepdim=True)
    # of a scaled logit that is no number, the weight would be none either
    if not bool((top + top / temperature).isfinite().all()):
        raise ValueError(
            "logits of the model, and these divided by temperature, must be finite, "
            f"got {top.tolist()} and temperature={temperature!r} instead."
        )

    seen = logits.masked_fill(logits < top - MASKED, 0.0)
    largest = seen.abs().amax(-1).double()
    unit = torch.finfo(logits.dtype).eps * largest / temperature

    below: Tensor | None = None
    ids: Tensor | None = None
    values = scaled
    if 0 < top_k < scaled.shape[-1]:
        best, best_ids = scaled.topk(top_k + 1, dim=-1)
        threshold = best[:, -2:-1]
        if bool((best[:, -1:] == threshold).any()):
            # every token tied with the k-th one stays
            kept = scaled >= threshold
            values = scaled.masked_fill(~kept, -torch.inf)
            below = scaled.masked_fill(kept, -torch.inf).amax(-1)
        else:
            ids, order = best_ids[:, :-1].sort(dim=-1)
            values = best[:, :-1].gather(1, order)
            below = best[:, -1]

    # sums of many small weights in double precision: in single they would depend on the order
    values = values.double()
    weights = (values - values.amax(-1, keepdim=True)).exp()

    doubtful = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    if below is not None:
        kept_values = values.masked_fill(weights == 0, torch.inf)
        # the last token that stays and the first that goes: closer than rounding, they could change
        # places, which matters where the last one has any weight
        gap = kept_values.amin(-1) - below.double()
        share = weights.masked_fill(weights == 0, torch.inf).amin(-1) / weights.sum(-1)
        doubtful = (gap > 0) & (gap <= LOGIT_ULPS * unit) & (share > unit)

    if top_p < 1.0:
        weights, unsure = _nucleus(values, weights, top_p, unit)
        doubtful = doubtful | unsure
    return Truncated(ids, weights, doubtful, unit)


def _nucleus(values: Tensor, weights: Tensor, top_p: float, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Drop unlikely tokens, of total probability 1 - `top_p`."""
    ordered, order = weights.sort(dim=-1, stable=True)
    shares = ordered / ordered.sum(-1, keepdim=True)
    cumulative = shares.cumsum(-1)
    dropped = cumulative <= 1.0 - top_p
    # the most likely token stays, whatever top_p is
    dropped[:, -1] = False
    unit = unit.unsqueeze(1)
    margin = PROBABILITY_ULPS * unit
    near_cut = ((cumulative - (1.0 - top_p)).abs() <= margin) & (shares > margin)
    n_dropped = dropped.sum(-1, keepdim=True)
    sorted_values = values.gather(1, order)
    kept_edge = sorted_values.gather(1, n_dropped)
    gap = kept_edge - sorted_values.gather(1, (n_dropped - 1).clamp(min=0))
    swap = (
        (n_dropped > 0)
        & (gap > 0)
        & (gap <= LOGIT_ULPS * unit)
        & (shares.gather(1, n_dropped) > margin)
    )
    mask = torch.zeros_like(dropped).scatter(1, order, dropped)
    # the cut could move by a token, or two tokens at it change places
    doubtful = near_cut[:, :-1].any(-1) | swap[:, 0]
    return weights.masked_fill(mask, 0.0), doubtful
