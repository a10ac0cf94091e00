"""Command line ``sklearn-clm``: plans, calibrations, sets and evaluations of files."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_clm import ConformalSampler, NullCalibrationError, NullCalibrationWarning, __version__
from sklearn_clm import _tables as tables
from sklearn_clm._estimators import write_content
from sklearn_clm._exceptions import report_null
from sklearn_clm.caching import HumanJudge
from sklearn_clm.caching.verdict_files import double_verdicts, write_lines
from sklearn_clm.calibration import CalibrationData, Claim, Provenance, clopper_pearson
from sklearn_clm.calibration.files import replacing
from sklearn_clm.calibration.words import counted
from sklearn_clm.evaluation import plan, plan_answers, plan_audits
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport
from sklearn_clm.judging import serve
from sklearn_clm.metrics import set_outcomes
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, ThresholdPolicy
from sklearn_clm.policies.base import Policy

__all__ = ["main"]

_DESCRIPTION = """\
Conformal language modeling on samples that you have. The exit status is 0; 1 where nothing is
certified, or where held-out prompts refute the promise; 2 after an error; 130 after Ctrl-C, or
where nobody reads the output any more. Errors name the arguments of the functions that the commands
call; options are called alike, with dashes."""
_EVALUATE = """\
Measure, on held-out prompts, the sets that thresholds give, as the judge of calibration judges
them; exit with status 1 if the 95 % interval of their risk lies above epsilon. Prompts that
calibrated are left out. Of those whose draws end before the rule stops both ends are measured."""
_CALIBRATE = """\
Find the thresholds that keep the risk below epsilon, and write them as the JSON that predict and
ConformalSampler.load_calibration read; exit with status 1, and write nothing, where none are
valid. --policy exit calibrates one level that stops when sure and when hopeless, --policy answer
one answer where it is likely to be right, of which at most --alpha are wrong: predict then says
which prompts are escalated. help(sklearn_clm.policies) describes them."""
_PREDICT = """\
Apply the thresholds of calibrate to samples of new prompts: write the set of each, or that it
needs_draws, where its samples end before the rule stops. In a service,
ConformalSampler.load_calibration does it with draws made as they are needed."""
_PLAN = """\
Estimate from a pilot of some 50 to 100 prompts what calibrations of several sizes will certify: the
smallest epsilon, and the chance of --epsilon, each with an interval; and how many prompts to
collect. With --judge: how many verdicts of people an audit of a model that judges takes, whether
people alone are better, and whether a larger pilot pays. Prompts of a pilot that decided epsilon
must not calibrate."""
_JUDGE = """\
Serve a page on this machine on which a person judges the responses that the last calibration
lacked. The verdicts are kept in the SQLite file of a HumanJudge, each on the disk before the next
response is shown. What is left at most, and what a model said that people audit, only the page of
sklearn_clm.judging.serve(judge, calibration) shows."""
_CONFIDENCE = 0.95  # of intervals
_POLICIES: dict[str, Callable[[argparse.Namespace], Policy]] = {
    "thresholds": lambda given: ThresholdPolicy(
        set_score=given.set_score, n_lambdas=given.n_lambdas
    ),
    "exit": lambda given: ExitPolicy(guarantee=given.guarantee),
    "answer": lambda given: AnswerPolicy(alpha=given.alpha, score=given.score),
}
# options of some policies alone: of which, and their defaults
_OF_POLICIES: dict[str, tuple[tuple[str, ...], object]] = {
    "epsilon": (("thresholds", "exit"), 0.3),
    "set_score": (("thresholds",), "max"),
    "n_lambdas": (("thresholds",), 25),
    "guarantee": (("exit",), "pac"),
    "alpha": (("answer",), 0.1),
    "score": (("answer",), "auto"),
}
_OF_A_MEMBER = {"responses": "response", "quality": "quality", "indices": "draw"}  # in a table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    name = f"{parser.prog} {arguments.command}"

    def show(message: Warning | str, category: object, *place: object, **text: object) -> None:
        print(f"{name}: warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            status: int | None = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # what is still to be written at exit has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 130
    except NullCalibrationError as null:
        print(f"{name}: {null}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OSError, ImportError, RecursionError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    return status or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("sklearn-clm", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"sklearn_clm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        run: Callable[[argparse.Namespace], int | None], text: str, description: str
    ) -> Callable[..., argparse.Action]:
        """Add a command; return what adds an argument to it."""
        name = run.__name__.removeprefix("_")
        new = commands.add_parser(name, help=text, description=description, allow_abbrev=False)
        new.set_defaults(run=run)
        return new.add_argument

    thresholds = "thresholds, as calibrate wrote them"
    add = command(_evaluate, "measure sets on held-out prompts", _EVALUATE + tables.SAMPLES)
    tables.add_options(add, judged=True)
    add("--calibration", required=True, metavar="FILE", help=thresholds)

    text = "find valid thresholds and write them as JSON"
    add = command(_calibrate, text, _CALIBRATE + tables.SAMPLES)
    _add_data(add, with_groups=True)
    text = "who gave the verdicts, such as 'support team, November': the promise names them"
    add("--judge", metavar="NAME", help=text)
    output = Path("calibration.json")
    text = "where to write (default: %(default)s)"
    add("-o", "--output", type=_file(), default=output, metavar="FILE", help=text)
    text = "where to write a page about the promise and what it costs, .html or .md"
    add("--report", type=_file(".html", ".htm", ".md"), metavar="FILE", help=text)
    text = "what is calibrated (default: %(default)s)"
    add("--policy", choices=[*_POLICIES], default="thresholds", help=text)
    _of_policies(add, "--set-score", "set score F", metavar="NAME")
    _of_policies(add, "--n-lambdas", "quantiles tried for each threshold", type=int)
    _of_policies(add, "--alpha", "tolerated share of wrong answers", type=float)
    text = "what makes a text the answer"
    _of_policies(add, "--score", text, choices=["auto", "vote", "quality", "learnt"])
    text = "with confidence 1 - delta, or on average"
    _of_policies(add, "--guarantee", text, choices=["pac", "marginal"])

    text = "the sets of new prompts, from their samples"
    add = command(_predict, text, _PREDICT + tables.SAMPLES)
    tables.add_options(add, judged=False)
    add("--id", metavar="COLUMN", help="what identifies a prompt, to be written beside its set")
    add("--calibration", required=True, metavar="FILE", help=thresholds)
    text = (
        "where to write: .jsonl, or .csv of a row a response, draws from 0, texts that would be "
        "formulas behind an apostrophe (default: the screen)"
    )
    add("-o", "--output", type=_file(".jsonl", ".csv"), metavar="FILE", help=text)

    add = command(_plan, "how many prompts to collect, from a pilot", _PLAN + tables.SAMPLES)
    _add_data(add, with_groups=False)
    add("-o", "--output", type=_file(), metavar="FILE", help="Markdown file to write")
    sizes = [100, 200, 500, 1000, 2000]
    text = "numbers of prompts to consider"
    add("--sizes", type=int, nargs="+", default=sizes, metavar="N", help=text)
    _add_number(add, "--power", 0.9, "wanted probability of success")
    text = "what will be calibrated: sets, or answers by votes (default: %(default)s)"
    add("--policy", choices=[*_POLICIES], default="thresholds", help=text)
    _of_policies(add, "--alpha", "tolerated share of wrong answers", type=float)
    text = (
        "in place of SAMPLES, a pilot that a model has judged, and people in part: CSV with the "
        "columns model and people (y or n, 1 or 0, true or false; people may be empty). As many "
        "prompts will calibrate as the first of --sizes says"
    )
    add("--judge", metavar="FILE", help=text)

    add = command(_judge, "judge responses on a page in the browser", _JUDGE)
    add("store", metavar="STORE", help="the file of the HumanJudge")
    text = (
        "what is asked; that of the HumanJudge (default: the one question of the STORE, or "
        f"{HumanJudge('').question})"
    )
    add("--question", metavar="TEXT", help=text)
    add("--name", help="who judges (default: the user)")
    _add_number(add, "--port", 0, "port; 0 takes a free one")
    return parser


def _add_data(add: Callable[..., argparse.Action], *, with_groups: bool) -> None:
    """Data that calibrate, and what decides how."""
    tables.add_options(add, judged=True, nargs="*", with_groups=with_groups)
    text = "where there are no verdicts: exact_match (default) or rouge_l"
    add("--admission", default="exact_match", metavar="NAME", help=text)
    text = "similarity of draws: rouge_l (default) or exact_match"
    add("--similarity", metavar="NAME", help=text)
    text = "in place of SAMPLES, calibration data, as CalibrationData.save writes them"
    add("--data", metavar="FILE", help=text)
    _of_policies(add, "--epsilon", "tolerated risk of sets, in (0, 1)", type=float)
    _add_number(add, "--delta", 0.05, "level of the tests, in (0, 1)")
    text = "budgets of draws to search (default: all draws)"
    add("--k-max", type=int, nargs="+", metavar="K", help=text)
    _add_number(add, "--random-state", 0, "seed of the splits")


def _of_policies(
    add: Callable[..., argparse.Action], option: str, text: str, **arguments: Any
) -> None:
    """Add an option that some policies alone have."""
    policies, default = _OF_POLICIES[option.removeprefix("--").replace("-", "_")]
    # without a default, so that what is given for another policy is seen
    add(
        option,
        help=f"of --policy {' or '.join(policies)}: {text} (default: {default})",
        **arguments,
    )


def _settle_options(arguments: argparse.Namespace) -> None:
    """Refuse options of other policies; set what was not given."""
    for name, (policies, default) in _OF_POLICIES.items():
        given = vars(arguments).get(name)
        if given is None:
            setattr(arguments, name, default)
        elif arguments.policy not in policies:
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} must be given with --policy {' or '.join(policies)}, got it with "
                f"--policy {arguments.policy} instead."
            )


def _add_number(add: Callable[..., argparse.Action], name: str, default: float, text: str) -> None:
    """An option of the type of its default."""
    add(name, type=type(default), default=default, help=f"{text} (default: %(default)s)")


def _file(*suffixes: str) -> Callable[[str], Path]:
    """The type of a file to write."""

    def path(text: str) -> Path:
        path = Path(text)
        if suffixes and path.suffix.lower() not in suffixes:
            raise argparse.ArgumentTypeError(f"{text} must end in {' or '.join(suffixes)}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"{path.parent} must be a folder that exists")
        return path

    return path


def _data_and_groups(
    arguments: argparse.Namespace, *outputs: Path | None
) -> tuple[CalibrationData, list[str] | None]:
    """Data and groups, which none of the outputs may replace."""
    if bool(arguments.samples) == (arguments.data is not None):
        raise ValueError("input must be SAMPLES, or --data alone.")
    _refuse_inputs(outputs, (*arguments.samples, arguments.data))
    if arguments.data is None:
        return tables.collected(arguments)
    if vars(arguments).get("groups") is not None:
        raise ValueError("--groups must name a column of SAMPLES, got --data instead.")
    return CalibrationData.load(arguments.data), None


def _refuse_inputs(outputs: Iterable[Path | None], inputs: Iterable[str | None]) -> None:
    read = [name for name in inputs if name is not None and os.path.exists(name)]
    for output in outputs:
        if output is not None and output.is_file() and any(map(output.samefile, read)):
            raise ValueError(f"--output must be none of the inputs, got {output} instead.")


def _evaluate(arguments: argparse.Namespace) -> int:
    """Measure whether thresholds keep their promise on held-out prompts."""
    log = tables.read(arguments)
    content = tables.thresholds(arguments.calibration)
    log = tables.held_out(log, content)
    sets = tables.sets_of(log, content, arguments)
    outcomes = set_outcomes(log.admissions, sets, admission=sets.sampler.admission)
    needs_draws = np.array([a_set.needs_draws for a_set in sets], dtype=bool)
    # an admissible member settles its prompt, whatever draws are to come
    is_open = outcomes.loss & needs_draws
    in_use = sets.sampler.calibration_.in_use
    group_of = np.array([None] * len(sets) if log.groups is None else log.groups, dtype=object)
    # of several groups none is refuted by chance more often than one would be
    confidence = 1.0 - (1.0 - _CONFIDENCE) / len(in_use)
    refuted = []
    for name, rule in in_use.items():
        rows = np.array([group == name for group in group_of])
        print("" if name is None else f"Group {name!r}: ", end="")
        refuted.append(
            _is_refuted(
                rule.claim, outcomes.loss[rows], sets.sizes[rows], is_open[rows], confidence
            )
        )
    # sets that are not complete have no size
    if not needs_draws.any():
        print(
            f"Set size {outcomes.size.mean():.2f}, draws {outcomes.samples.mean():.2f} of at most "
            f"{sets.k_max}."
        )
    return int(any(refuted))


def _is_refuted(
    claim: Claim, loss: np.ndarray, sizes: np.ndarray, is_open: np.ndarray, confidence: float
) -> bool:
    """Whether losses of held-out prompts refute a claim.

    Prompts that are open count, and may err or not: both ends are shown.
    """
    if not claim.holds:
        print("nothing is certified.")
        return False
    # the promise of answers is about those that are given
    risk = claim.risk
    counts = risk.counts(sizes) | is_open
    n = int(counts.sum())
    n_open = int(is_open.sum())
    most = int(loss[counts].sum())
    fewest = most - n_open
    if n == 0:
        which = "No prompt"
        if len(loss):
            which = f"None of {counted(len(loss), 'prompt')} is {risk.answered}"
        print(f"{which}: nothing was measured.")
        return False
    low = clopper_pearson(fewest, n, confidence)[0]
    high = clopper_pearson(most, n, confidence)[1]
    is_refuted = bool(low > claim.level)
    verdict = "refuted" if is_refuted else "confirmed" if high <= claim.level else "not refuted"
    hint = " (it takes more prompts to tell more)" if verdict == "not refuted" else ""
    what = counted(n, risk.unit if risk.counts_all else risk.given)
    if n_open:
        what += f" ({n_open} of them open)"
    if not risk.counts_all:
        what += f" (of {counted(len(loss), 'prompt')}, the others {risk.unanswered})"
    # one number where both ends are the same
    ends = [f"{100 * (1 - errors / n):.1f}" for errors in (most, fewest)]
    held = " to ".join(dict.fromkeys(ends))
    interval = f"interval {100 * (1 - high):.1f} to {100 * (1 - low):.1f} %"
    print(
        f"Promised {100 * (1 - claim.level):g} %, held {held} % of {what}, "
        f"{100 * confidence:.3g} % {interval}: the promise is {verdict}{hint}."
    )
    return is_refuted


def _predict(arguments: argparse.Namespace) -> None:
    # before anything is read: a mistake must not cost the file that it names
    _refuse_inputs([arguments.output], (*arguments.samples, arguments.calibration))
    log = tables.read(arguments)
    output = arguments.output
    sets = tables.sets_of(log, tables.thresholds(arguments.calibration), arguments)
    ids = [{} if arguments.id is None else {"id": id_} for id_ in log.ids]
    written = [id_ | a_set.to_dict() for id_, a_set in zip(ids, sets)]
    if output is None:
        print("".join(json.dumps(row) + "\n" for row in written), end="")
        return
    if output.suffix.lower() == ".csv":
        # the cells of a table are short, so the promise is printed, once
        promises: dict[str, None] = {}
        for content, a_set in zip(written, sets):
            promise = content.pop("guarantee")
            if not a_set.needs_draws:
                promises[promise] = None
            content["remarks"] = "; ".join(a_set.remarks())
        rows = _rows_of(written)
        first = [name for name in ("id", "prompt", *_OF_A_MEMBER.values()) if name in rows[0]]
        write_lines(output, rows, list(dict.fromkeys([*first, *rows[0]])))
        print(*promises, sep="\n")
    else:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in written)
        _write(output, "".join(lines))
    print(f"Wrote {output}.")


def _rows_of(sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each response, or empty set."""
    rows = []
    for a_set in sets:
        columns = [a_set[name] for name in _OF_A_MEMBER]
        # an empty set is a row without a response: a table without it would lose the prompt
        members = list(zip(*columns)) or [("",) * len(columns)]
        shared = {name: value for name, value in a_set.items() if name not in _OF_A_MEMBER}
        rows += [shared | dict(zip(_OF_A_MEMBER.values(), member)) for member in members]
    return rows


def _write(path: Path, text: str) -> None:
    # whole or not at all: what stood there stays until the new text is complete
    with replacing(path) as unfinished:
        Path(unfinished).write_text(text, encoding="utf-8")


def _calibrate(arguments: argparse.Namespace) -> None:
    _settle_options(arguments)
    if arguments.samples and arguments.key is None:
        raise ValueError(
            "--key must name the model and its settings, such as 'llama-8b, temperature 0.7': the "
            "guarantee holds for draws of the same model alone, and predict asks for the same key."
        )
    sampler = ConformalSampler(
        PrecomputedGenerator([], []),  # stands for the one that the data came from
        k_max=arguments.k_max or 1,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        policy=_POLICIES[arguments.policy](arguments),
        random_state=arguments.random_state,
    )
    sampler._validate_params()  # before the samples are scored, which takes long
    data, groups = _data_and_groups(arguments, arguments.output, arguments.report)
    if arguments.k_max is None:
        sampler.k_max = data.k_max
    # what the data were collected with concerns the file, not this stand-in for a sampler
    provenance = data.provenance
    judge = arguments.judge
    if judge is not None and provenance.admission is not None:
        raise ValueError(
            f"--judge must name who gave the verdicts (--label), got {judge!r} where "
            f"{provenance.admission} judges."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullCalibrationWarning)  # which is raised below
        sampler.calibrate(
            CalibrationData(
                data.quality,
                data.similarity,
                data.labels,
                texts=data.texts,
                prompts=data.prompts,
                n_draws=data.n_draws,
                provenance=Provenance(stops=provenance.stops),
            ),
            groups=groups,
        )
    record = sampler.calibration_.collected_with_provenance(provenance, judge)
    claim = record.claim
    if arguments.report is not None:
        sampler.calibration_ = record
        CalibrationReport.from_estimator(sampler).save(arguments.report)
        plot = "" if find_spec("matplotlib") else " without pictures (matplotlib)"
        print(f"Wrote {arguments.report}{plot}.")
    nulls = [rule.claim.why_null() for rule in record.in_use.values() if not rule.certified]
    if not claim.holds:
        report_null("\n".join(filter(None, nulls)), "raise", "")
    write_content(arguments.output, record.content())
    print(claim.sentence(), *claim.named_judge())
    score = f" ({arguments.set_score})" if arguments.policy == "thresholds" else ""
    for name, rule in record.in_use.items():
        if rule.certified:
            of_group = "" if name is None else f"Group {name!r}: "
            words = f"{of_group}{rule.heading}: {rule.words}{score}"
            print(f"{words}, at most {counted(rule.k_max, 'draw')}.")
    print(*filter(None, nulls), sep="\n", end="\n" * bool(nulls))
    if unnamed := ", ".join(
        field for field in provenance.unknown if field != "admission" or not judge
    ):
        print(f"The data do not name their {unnamed}: the promise is about whatever was used.")
        if "admission" in unnamed:
            print("--judge NAME says in the promise who gave the verdicts.")
    print(f"Wrote {arguments.output}.")


def _plan(arguments: argparse.Namespace) -> None:
    _settle_options(arguments)
    if arguments.judge is not None:
        if arguments.samples:
            raise ValueError("input must be SAMPLES, or the FILE of --judge, got both instead.")
        _refuse_inputs([arguments.output], [arguments.judge])
        by_model, by_people = double_verdicts(arguments.judge)
        options = {name: getattr(arguments, name) for name in ("epsilon", "delta", "power")}
        options["n_prompts"] = arguments.sizes[0]
        text = plan_audits(by_model, by_people, **options).to_markdown()
    else:
        # as they were given: `plan` names them in its errors
        names = "epsilon", "delta", "sizes", "power"
        options = {name: getattr(arguments, name) for name in names}
        data, _ = _data_and_groups(arguments, arguments.output)
        pilot = data.truncate(max(arguments.k_max or [data.k_max]))
        if arguments.policy == "answer":
            alpha, delta, power = arguments.alpha, arguments.delta, arguments.power
            text = plan_answers(pilot, alpha, delta, power=power).to_markdown()
        else:
            text = plan(pilot, **options).to_markdown()
    if arguments.output is not None:
        _write(arguments.output, text)
    print(text, end="")


def _judge(arguments: argparse.Namespace) -> None:
    if not Path(arguments.store).exists():
        raise FileNotFoundError(f"STORE must be the file of a HumanJudge, got {arguments.store}.")
    judge = HumanJudge(arguments.store, judge=arguments.name)
    questions = judge.questions()
    if arguments.question is not None:
        judge.question = arguments.question
    elif len(questions) == 1:
        (judge.question,) = questions
    wanted = judge.wanted()
    if not wanted:
        raise ValueError(
            f"{arguments.store} holds nothing to judge on --question "
            f"{judge.question!r}; the store knows {questions}."
        )
    serve(judge, wanted, port=arguments.port)


if __name__ == "__main__":
    sys.exit(main())
