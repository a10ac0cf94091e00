"""Samples in tables and logs, by the command line's names."""

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from sklearn_clm import ConformalSampler, PredictionSets
from sklearn_clm._estimators import SamplerCalibration, prompts_of, reading
from sklearn_clm._exceptions import warn
from sklearn_clm.calibration import CalibrationData, Provenance
from sklearn_clm.calibration.words import counted
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.generators.logs import SampleLog, read_records
from sklearn_clm.generators.prompts import check_prompts
from sklearn_clm.generators.records import key_digest
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, ThresholdPolicy
from sklearn_clm.policies.base import Policy

_Add: TypeAlias = Callable[..., argparse.Action]
SAMPLES = """\
 SAMPLES are files that hold, for each prompt, several draws of one model, in the order in which
they were made: CSV, TSV, JSON Lines or Parquet, with one draw in a row or a list of them; the log
of lm-evaluation-harness (--log_samples); or that of Inspect (.eval, .json), whose epochs are the
draws. The samples of a prompt in all rows and files are its draws. Prompts may have draws of
different number, whatever ended them, such as a success: to calibrate, what the draws leave open
counts as an error. Quality is that of --quality, or else the likelihood where all
log-probabilities and numbers of tokens are there, or else self-consistency. Verdicts (--label) are
used as they are; without them, --admission compares with references."""
_DRAWN = {
    "prompt": "the prompt; a field of a field is named doc.question",
    "response": "a draw",
    "responses": "in its place, a list of all draws; their verdicts and scores are lists too",
    "logprob": "log-probability of a draw, natural logarithm",
    "n_tokens": "its number of tokens",
    "quality": "any score of a draw, from it and earlier ones alone; larger is better",
}
_JUDGED = {
    "reference": "a response that is right",
    "references": "in its place, a list of such responses; in a table as JSON",
    "label": "whether a draw is admissible: true or false, 1 or 0, C or I",
}


class _Column:
    """Quality of draws as a file tells it."""

    def __init__(self, log: SampleLog) -> None:
        self.rows = dict(zip(map(key_digest, log.prompts), log.quality or []))

    def score_draws(
        self, prompts: Sequence[object], generations: Sequence[Sequence[object]], start: int = 0
    ) -> np.ndarray:
        # of each prompt the numbers of its file, draws from `start` on
        qualities = []
        for prompt, row in zip(prompts, generations):
            qualities.append(self.rows[key_digest(prompt)][start : len(row)])
        return np.array(qualities)


def add_options(add: _Add, *, judged: bool, nargs: str = "+", with_groups: bool = True) -> None:
    """Add options: the files and the names of their columns."""
    add("samples", nargs=nargs, metavar="SAMPLES", help="files of samples, see above")
    for field, text in (_DRAWN | _JUDGED if judged else _DRAWN).items():
        text += f" (default: {field})"
        add(f"--{field.replace('_', '-')}", metavar="COLUMN", help=text)
    text = "of lm-evaluation-harness: the filter whose responses and metrics are read"
    add("--filter", metavar="NAME", help=text)
    text = (
        "names the model and its settings, in your words: thresholds hold for samples, and "
        "services, of the same key alone"
    )
    add("--key", metavar="NAME", help=text)
    if with_groups:
        text = "what group a prompt is of: the promise is for each group on its own"
        add("--groups", metavar="COLUMN", help=text)
    if judged:
        text = "least label that is admissible, where labels are numbers and no verdicts"
        add("--threshold", type=float, metavar="X", help=text)


def read(arguments: argparse.Namespace) -> SampleLog:
    """The samples of all files."""
    parameters = vars(arguments)
    files = arguments.samples
    # of several columns that say what is right those that are named count
    judged = [field for field in _JUDGED if parameters.get(field)] or _JUDGED
    names = {
        field: parameters[field] or field for field in (*_DRAWN, *judged) if field in parameters
    }
    # a file may have both columns: whoever names the one wants it
    if parameters["response"] is not None:
        del names["responses"]
    further = {"id": parameters.get("id"), "group": parameters.get("groups")}
    names |= {field: name for field, name in further.items() if name is not None}
    # the draws of a file that is given twice would be copies, and no independent draws
    if len({*map(os.path.realpath, files)}) < len(files):
        raise ValueError(f"SAMPLES must be different files, got {', '.join(files)} instead.")
    records = chain.from_iterable(read_records(name, arguments.filter) for name in files)
    least = parameters.get("threshold")
    log = SampleLog.of(records, names, least)
    if not log.prompts:
        raise ValueError(f"SAMPLES must hold samples, got none in {', '.join(files)}.")
    if least is not None and (log.verdicts is None or not math.isfinite(least)):
        labels = "no labels" if log.verdicts is None else "labels"
        raise ValueError(
            f"--threshold must be a finite number, for labels (--label) that are numbers, got "
            f"{least} for {labels} instead."
        )
    return log


def _sampler(
    log: SampleLog, arguments: argparse.Namespace, provenance: Provenance, **options: Any
) -> ConformalSampler:
    """A sampler of these draws, with scores of the file."""
    return ConformalSampler(
        PrecomputedGenerator(log.prompts, log.draws, key=arguments.key),
        quality=provenance.quality if log.quality is None else _Column(log),
        similarity=provenance.similarity or "rouge_l",
        admission=provenance.admission or vars(arguments).get("admission", "exact_match"),
        random_state=provenance.seed,
        **options,
    )


def collected(arguments: argparse.Namespace) -> tuple[CalibrationData, list[str] | None]:
    """Samples of files with scores and verdicts, and groups."""
    log = read(arguments)
    n_most = max(map(len, log.draws))
    if (k_max := max(arguments.k_max or [n_most])) > n_most:
        raise ValueError(f"--k-max must be at most {n_most}, the most draws, got {k_max}.")
    # the paper's quality, where the samples tell it
    quality = "likelihood" if log.has_logprobs else "self_consistency"
    provenance = Provenance(
        quality=quality, similarity=arguments.similarity, seed=arguments.random_state
    )
    data = _sampler(log, arguments, provenance, k_max=k_max).collect(log.prompts, log.admissions)
    # quality and verdicts of a file have no name
    unnamed = {"quality": log.quality, "admission": log.verdicts}
    nameless = {name: None for name, value in unnamed.items() if value is not None}
    data.provenance = provenance = replace(data.provenance, **nameless, stops=log.stops)
    fewest = int(data.n_draws.min())
    counts = "" if fewest == data.k_max else f"{fewest} to "
    print(
        f"{counted(data.n_prompts, 'prompt')}, {counts}{counted(data.k_max, 'draw')} each; "
        f"quality: {provenance.quality or 'of the file'}; "
        f"admission: {provenance.admission or 'verdicts of the file'}."
    )
    if log.stops is not None:
        print(f"Draws ended by {log.stops}: of sets, that of all draws alone is tested.")
    return data, log.groups


def thresholds(path: str) -> dict[str, Any]:
    """What the file of a calibration says."""
    with reading(path, SamplerCalibration.file_format) as content:
        provenance = Provenance(**content["provenance"])
        return {**content, "provenance": provenance, "prompts": prompts_of(content)}


def sets_of(
    log: SampleLog, content: Mapping[str, Any], arguments: argparse.Namespace
) -> PredictionSets:
    """The sets that thresholds give."""
    provenance = content["provenance"]
    # who draws is known by the key alone: thresholds hold for the same model and settings
    if provenance.generator not in (None, arguments.key):
        raise ValueError(
            f"--key must be that of the thresholds, {provenance.generator!r}, if the samples come "
            f"from the same model and settings, got {arguments.key!r} instead."
        )
    if log.quality is None and provenance.quality is None:
        raise ValueError("--quality must name a column of SAMPLES, as in calibration, got none.")
    if log.quality is None and provenance.quality == "likelihood" and not log.has_logprobs:
        raise ValueError("SAMPLES must have --logprob and --n-tokens, as in calibration, got none.")
    # the file of a policy with a level of its own holds no epsilon
    levels = {name: content[name] for name in ("epsilon", "delta") if name in content}
    sampler = _sampler(
        log,
        arguments,
        provenance,
        k_max=max(rule["k_max"] for rule in content["rules"]),
        policy=_policy_of(content),
        **levels,
    )
    sampler.load_calibration(arguments.calibration)
    return sampler.predict(log.prompts, groups=log.groups)


def _policy_of(content: Mapping[str, Any]) -> Policy:
    """The policy of a calibration, whose rules the file holds."""
    # parameters of the policy that a file must agree with; its rules are read from the file
    kind = content.get("policy")
    if kind == AnswerPolicy.rule.kind:
        return AnswerPolicy(alpha=content["alpha"])
    if kind == ExitPolicy.rule.kind:
        return ExitPolicy(guarantee=content["guarantee"])
    return ThresholdPolicy(set_score=content["set_score"])


def held_out(log: SampleLog, content: Mapping[str, Any]) -> SampleLog:
    """The samples of prompts that did not calibrate."""
    judge = content["provenance"].admission
    if (judge is None) == (log.verdicts is None):
        wanted = "verdicts (--label)" if judge is None else f"{judge} of --reference, --references"
        raise ValueError(f"SAMPLES must be judged as in calibration: name a column of {wanted}.")
    # prompts that calibrated would flatter the thresholds
    is_new = ~np.isin(check_prompts(log.prompts).digests, content["prompts"])
    n_seen = len(is_new) - int(is_new.sum())
    if n_seen == len(is_new):
        raise ValueError(f"SAMPLES must hold prompts that did not calibrate: all {n_seen} did.")
    if n_seen:
        warn(f"{n_seen} of {len(is_new)} prompts calibrated, and are left out.")
    return log.where(is_new)
