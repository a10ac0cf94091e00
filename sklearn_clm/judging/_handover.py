"""What becomes of the prompts that an estimator does not answer."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sklearn_clm._results import PredictionSet, PredictionSets
from sklearn_clm.caching import HumanJudge
from sklearn_clm.calibration._table import text_key
from sklearn_clm.generators._draws import check_text

if TYPE_CHECKING:
    import pandas as pd

Handover: TypeAlias = HumanJudge | str | os.PathLike[str] | Callable[[Any], object]


def hand_over(sets: PredictionSets, to: Handover) -> "pd.DataFrame":
    """Answers to all prompts, those that were escalated from elsewhere.

    Nothing is promised of what was escalated. Call it again with the same `sets` when more is
    known.

    Parameters
    ----------
    sets : PredictionSets
        What a sampler with an :class:`sklearn_clm.policies.AnswerPolicy` predicts. The sets of
        another policy are no answers: all of them are escalated.
    to : callable, path or HumanJudge
        Who answers the escalated prompts.

        - ``to(prompt) -> response``, a dearer model, say; None is no answer.
        - A CSV file with the columns `prompt` and `response`. Where there is none it is written,
          with empty responses for people to fill in; later it is read. Prompts must be text.
        - A judge: people say on its page whether a draw is acceptable, and the most frequent one
          that is becomes the answer. :class:`sklearn_clm.caching.VerdictsWanted` lists what nobody
          has judged.

    Returns
    -------
    pandas.DataFrame
        One row for each prompt, with the index of ``sets.to_frame()``: `prompt`, `response`, None
        where there is none, and `by`, "model" or "handover".

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> from sklearn_clm.calibration import Claim
    >>> from sklearn_clm.judging import hand_over
    >>> claim = Claim(0.1, 0.05, about="answers")
    >>> one = PredictionSet("2+2?", ("4",), [0.9], [0], 3, 0.9, True, True, claim=claim)
    >>> two = PredictionSet("17*23?", (), [], [], 3, 0.2, False, True, claim=claim)
    >>> hand_over(PredictionSets([one, two], k_max=3), lambda prompt: "391")
       prompt response        by
    0    2+2?        4     model
    1  17*23?      391  handover
    """
    import pandas as pd

    answered, escalated = sets.answered, sets.escalated
    if isinstance(to, HumanJudge):
        others = _by_judge(escalated, to)
    elif isinstance(to, (str, os.PathLike)):
        others = _by_file(escalated, Path(to))
    else:
        others = [to(one.prompt) for one in escalated]  # type: ignore[call-arg]
    given = iter(others)
    responses = [one.responses[0] if own else next(given) for one, own in zip(sets, answered)]
    frame = sets.to_frame()[["prompt"]]
    frame["response"] = pd.Series(responses, index=frame.index, dtype=object)
    frame["by"] = ["model" if own else "handover" for own in answered]
    return frame


def _by_judge(sets: PredictionSets, judge: HumanJudge) -> list[object]:
    """The most frequent draw of each prompt that people admit."""
    drawn = [_distinct(one) for one in sets]
    asked = judge.asked([one.prompt for one in sets])
    pairs = [(row, text) for row, texts in enumerate(drawn) for text in texts]
    said = judge.judge_pairs([asked[row] for row, _ in pairs], [text for _, text in pairs])
    admitted: dict[int, object] = {}
    for position, verdict in sorted(said):
        row, text = pairs[position]
        if verdict:
            admitted.setdefault(row, text)
    return [admitted.get(row) for row in range(len(drawn))]


def _distinct(one: PredictionSet) -> list[Any]:
    """Responses drawn for a prompt, the most frequent first."""
    texts = {text_key(draw.response): draw.response for draw in one.generations}
    counts = Counter(text_key(draw.response) for draw in one.generations)
    return [texts[key] for key, _ in counts.most_common()]


def _by_file(sets: PredictionSets, path: Path) -> list[object]:
    """Responses of a file; those that are missing, empty ones included, are written into it."""
    import pandas as pd

    prompts = [one.prompt for one in sets]
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise TypeError("prompts must be text for a file, got others instead; give a function.")
    for prompt in prompts:
        check_text(prompt, "a prompt")
    found: dict[str, str] = {}
    if path.exists():
        known = pd.read_csv(path, dtype=str, keep_default_na=False)
        if lacking := {"prompt", "response"} - set(known.columns):
            raise ValueError(
                f"{str(path)!r} must have the columns prompt and response, lacks {lacking}."
            )
        found = dict(zip(known["prompt"], known["response"]))
    new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in found]
    if new:
        rows = pd.DataFrame({"prompt": new, "response": ""})
        rows.to_csv(path, mode="a", header=not path.exists(), index=False)
    return [found.get(prompt) or None for prompt in prompts]
