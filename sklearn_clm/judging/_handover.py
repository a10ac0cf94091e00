"""Answers for the prompts that an estimator escalates."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sklearn_clm._exceptions import optional_module
from sklearn_clm._results import PredictionSet, PredictionSets
from sklearn_clm.caching import HumanJudge, VerdictsWanted, WantedVerdict
from sklearn_clm.caching.verdict_files import read_lines, text_of, write_lines
from sklearn_clm.generators.draws import text_key

if TYPE_CHECKING:
    import pandas as pd

Handover: TypeAlias = HumanJudge | str | os.PathLike[str] | Callable[[Any], object]

_COLUMNS = ("prompt", "response")


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
        - A CSV file (``encoding="utf-8-sig"``) with the columns `prompt` and `response`. Where
          there is none it is written, with empty responses for people to fill in; later it is read,
          and prompts that it lacks are added. Prompts must be text; a quote keeps them from being
          formulas of a spreadsheet.
        - A judge: people say on its page whether a draw is acceptable, and the most frequent one
          that is becomes the answer. They are asked about the most frequent text of each prompt,
          and about the next one only after a no: :class:`sklearn_clm.caching.VerdictsWanted` lists
          what is wanted next.

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
    optional_module("pandas", "plot", "a data frame")
    import pandas as pd

    if not isinstance(sets, PredictionSets):
        raise TypeError(f"sets must be PredictionSets, got {type(sets).__name__} instead.")
    answered, escalated = sets.answered, sets.escalated
    if isinstance(to, HumanJudge):
        other_responses = _by_judge(escalated, to)
    elif isinstance(to, (str, os.PathLike)):
        other_responses = _by_file(escalated, Path(to))
    elif callable(to):
        other_responses = [to(a_set.prompt) for a_set in escalated]  # type: ignore[call-arg]
    else:
        raise TypeError(f"to must be a function, a path or a HumanJudge, got {to!r:.80} instead.")
    remaining = iter(other_responses)
    responses = [
        a_set.responses[0] if by_model else next(remaining)
        for a_set, by_model in zip(sets, answered)
    ]
    frame = sets.to_frame()[["prompt"]]
    frame["response"] = pd.Series(responses, index=frame.index, dtype=object)
    frame["by"] = ["model" if by_model else "handover" for by_model in answered]
    return frame


def _by_judge(sets: PredictionSets, judge: HumanJudge) -> list[object]:
    """The most frequent draw of each prompt that people admit.

    A rarer text is asked about once all that are more frequent are rejected: only then can it be
    the answer.
    """
    candidates = [
        [WantedVerdict(prompt, text) for text in _distinct(a_set)]
        for prompt, a_set in zip(judge.asked([a_set.prompt for a_set in sets]), sets)
    ]
    # one look-up for all prompts
    verdicts = iter(judge.verdicts([pair for pairs in candidates for pair in pairs]))
    answers: list[object] = []
    wanted: dict[str, WantedVerdict] = {}
    later: dict[str, WantedVerdict] = {}
    for pairs in candidates:
        verdicts_of_pairs = [next(verdicts) for _ in pairs]
        # the first that is not rejected: admitted, or not judged yet
        not_rejected = [k for k, verdict in enumerate(verdicts_of_pairs) if verdict is not False]
        first = not_rejected[0] if not_rejected else None
        is_admitted = first is not None and verdicts_of_pairs[first] is True
        answers.append(pairs[first].response if first is not None and is_admitted else None)
        if first is not None and not is_admitted:
            wanted[pairs[first].id] = pairs[first]
            rarer = zip(pairs[first + 1 :], verdicts_of_pairs[first + 1 :])
            later.update((pair.id, pair) for pair, verdict in rarer if verdict is None)
    if wanted:
        wanted_now = list(wanted.values())
        judge.want(wanted_now)
        n_at_most = len(wanted) + len(later)
        raise VerdictsWanted(wanted_now, n_at_most, list(later.values()))
    return answers


def _distinct(a_set: PredictionSet) -> list[Any]:
    """Responses drawn for a prompt, the most frequent first."""
    # sorted is stable: of texts as frequent the one that was drawn first comes first
    alike: dict[object, list[Any]] = {}
    for draw in a_set.generations:
        alike.setdefault(text_key(draw.response), []).append(draw.response)
    return [responses[-1] for responses in sorted(alike.values(), key=len, reverse=True)]


def _by_file(sets: PredictionSets, path: Path) -> list[object]:
    """Responses in a file, which is given the missing prompts."""
    if not all(isinstance(a_set.prompt, str) for a_set in sets):
        raise TypeError("prompts must be text for a file, got others instead; give a function.")
    prompts = [text_of(a_set.prompt) for a_set in sets]
    lines: list[dict[str, str]] = []
    if path.exists():
        lines = [
            {name: text_of(cell) for name, cell in line.items()}
            for _, line in read_lines(path, _COLUMNS)
        ]
    known_prompts = {line["prompt"] for line in lines}
    # people fill the file in meanwhile: their lines stay as they are, new ones follow
    if new := [text for text in dict.fromkeys(prompts) if text not in known_prompts]:
        columns = list(lines[0]) if lines else _COLUMNS
        lines += [dict.fromkeys(columns, "") | {"prompt": text} for text in new]
        write_lines(path, lines, columns)
    responses = {line["prompt"]: line["response"] for line in lines if line["response"]}
    return [responses.get(text) for text in prompts]
