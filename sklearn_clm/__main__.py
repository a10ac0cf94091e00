"""Command line ``python -m sklearn_clm``: evaluation, calibration and plans for arrays on disk."""

import argparse
import errno
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sklearn_clm import ConformalSampler, NullCalibrationError, __version__
from sklearn_clm._html import counted
from sklearn_clm.caching import CachedGenerator, HumanJudge
from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    LearnThenTestResult,
    Provenance,
    get_set_score,
)
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.evaluation import TrialResults, plan, run_trials
from sklearn_clm.generators import BaseGenerator, Generation, OpenAIGenerator
from sklearn_clm.generators._records import json_lines, json_value, naming
from sklearn_clm.inspection import AchievableBandDisplay, RiskCurveDisplay
from sklearn_clm.judging import serve, wanted_from_file

__all__ = ["main"]


_MOST_LEVELS = 100_000
_DESCRIPTION = "Conformal language modeling on arrays of scores, similarities and labels."
_EVALUATE = """\
Run the paper's evaluation (section 5, Appendix F) on arrays: repeated random splits into a part
that finds the Pareto frontier, a part that tests it and a part that measures; write the curves,
the areas under them and the figure."""
_CALIBRATE = """\
Find the thresholds that keep the risk below epsilon, and write them as the JSON that
ConformalSampler.load_calibration reads. Three bare arrays do not tell which generator, seed and
scores they came from, so the file says "unknown" by null, and load_calibration warns of it. A file
of CalibrationData.save tells, and load_calibration refuses a sampler that differs."""
_PLAN = """\
Estimate from a pilot of some 50 to 100 prompts what calibrations of several sizes will do: the
smallest epsilon that they certify, set size, draws and judge calls, each with an interval."""
_JUDGE = """\
Serve a page on this machine on which a person judges responses. The verdicts are kept in the
SQLite file of a HumanJudge, each on the disk before the next response is shown."""
_BATCH = """\
Have draws made by a batch service at a discount: write the requests for those that a store lacks,
as OpenAI's Batch API and vllm run-batch read them, and read the answers into the store. A
CachedGenerator with this store then gives the draws without a request."""
_INPUT = """\
Three .npy files of n prompts with K draws each, or one .npz file that CalibrationData.save wrote.
Files are never unpickled."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.

    Returns
    -------
    int
        Exit status: 0, or 2 after an error, which is written to the standard error stream; 1
        where `calibrate` found no valid configuration.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except NullCalibrationError as error:
        message = _message(error, arguments)
        print(f"{parser.prog} {arguments.command}: {message}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(
            f"{parser.prog} {arguments.command}: error: {_message(error, arguments)}",
            file=sys.stderr,
        )
        return 2


def _message(error: Exception, arguments: argparse.Namespace) -> str:
    """The error in the words of the command line: options where parameters are named."""
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    options = {name: f"--{name.replace('_', '-')}" for name in vars(arguments)}
    options |= {"n_trials": "--trials", "random_state": "--seed", "n_jobs": "--jobs"}
    options |= {"quality": "--scores", "admissible": "--labels"} if arguments.data is None else {}
    options.setdefault("set_score", "--methods")
    named = "|".join(sorted(options, key=len, reverse=True))
    text = re.sub(rf"The '({named})' parameter of \w+", lambda m: options[m[1]], str(error))
    # a name stands before its value or before what it must be
    return re.sub(rf"(?<![\w-])({named})(?==| must)", lambda m: options[m[1]], text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sklearn_clm", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"sklearn_clm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_evaluate(commands)
    _add_calibrate(commands)
    _add_plan(commands)
    _add_judge(commands)
    _add_batch(commands)
    return parser


class _HelpFormatter(argparse.HelpFormatter):
    """Names the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if default is None or default is False or default == argparse.SUPPRESS:
            return text
        if isinstance(default, list):
            default = " ".join(map(str, default))
        elif isinstance(default, float):
            default = f"{default:.3g}"
        return f"{text} (default: {default})"


class _Arrays(BaseGenerator):
    """Stands for the unknown generator that the arrays came from."""

    def sample(
        self, prompts: Sequence[object], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        raise RuntimeError("arrays of scores hold no responses to draw")


def _add_evaluate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="run the paper's evaluation on arrays",
        description=_EVALUATE,
        formatter_class=_HelpFormatter,
    )
    _add_input(evaluate)
    evaluate.add_argument(
        "--output", type=Path, default=Path("clm-evaluation"), metavar="DIR", help="where to write"
    )
    evaluate.add_argument(
        "--methods",
        nargs="+",
        default=["first_k", "first_k_reject", "max", "sum"],
        metavar="NAME",
        help="set scores to compare",
    )
    evaluate.add_argument(
        "--epsilons",
        nargs="+",
        default=["0:1:101"],
        metavar="E",
        help="tolerated risks: numbers in [0, 1], or START:STOP:COUNT, both ends included",
    )
    evaluate.add_argument("--trials", type=int, default=100, metavar="T", help="random splits")
    evaluate.add_argument(
        "--frontier-fraction", type=float, default=0.2, metavar="F", help="share for the frontier"
    )
    evaluate.add_argument(
        "--testing-fraction",
        type=float,
        default=0.4,
        metavar="F",
        help="share for fixed sequence testing; the rest measures",
    )
    _add_search(evaluate)
    evaluate.add_argument(
        "--jobs",
        type=int,
        default=None,
        metavar="J",
        help="trials in parallel, -1 for all cores (default: 1)",
    )
    evaluate.add_argument(
        "--figure-format",
        choices=["png", "pdf", "svg", "none"],
        default="png",
        help="format of the figures, which need matplotlib",
    )
    evaluate.add_argument("--quiet", action="store_true", help="no progress bar, no table")
    evaluate.set_defaults(run=_evaluate)


def _add_calibrate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    calibrate = commands.add_parser(
        "calibrate",
        help="find valid thresholds and write them as JSON",
        description=_CALIBRATE,
        epilog="Exits with status 1, and writes nothing, if no configuration is valid.",
        formatter_class=_HelpFormatter,
    )
    _add_input(calibrate)
    calibrate.add_argument(
        "--output",
        type=Path,
        default=Path("calibration.json"),
        metavar="FILE",
        help="where to write",
    )
    _add_one_level(calibrate)
    calibrate.set_defaults(run=_calibrate)


def _add_plan(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "plan",
        help="how many prompts to collect, from a pilot",
        description=_PLAN,
        formatter_class=_HelpFormatter,
    )
    _add_input(command)
    command.add_argument(
        "--output", type=Path, default=None, metavar="FILE", help="Markdown file to write"
    )
    command.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[100, 200, 500, 1000, 2000],
        metavar="N",
        help="numbers of prompts to consider",
    )
    command.add_argument(
        "--power", type=float, default=0.9, metavar="P", help="wanted probability of success"
    )
    command.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="confidence of the intervals"
    )
    command.add_argument("--trials", type=int, default=40, metavar="T", help="simulations")
    _add_one_level(command)
    command.set_defaults(run=_plan)


def _add_judge(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    judge = commands.add_parser(
        "judge",
        help="judge responses on a page in the browser",
        description=_JUDGE,
        formatter_class=_HelpFormatter,
    )
    judge.add_argument("store", metavar="STORE", help="the file of the HumanJudge")
    judge.add_argument(
        "--wanted",
        metavar="FILE",
        help="responses to judge, in JSON Lines, as HumanJudge.export writes them (default: those "
        "that the last calibration with this STORE lacked)",
    )
    judge.add_argument(
        "--question",
        default=HumanJudge("").question,
        metavar="TEXT",
        help="what is asked; that of the HumanJudge",
    )
    judge.add_argument("--name", metavar="NAME", help="who judges (default: the user)")
    judge.add_argument(
        "--second-opinions",
        type=float,
        default=0.0,
        metavar="F",
        help="judge this share of what others have judged, at random and without seeing their "
        "verdicts, and print how many agree",
    )
    judge.add_argument("--port", type=int, default=0, metavar="P", help="port; 0 takes a free one")
    judge.set_defaults(run=_judge, data=None)


def _add_batch(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    batch = commands.add_parser(
        "batch", help="draw by files of a batch service", description=_BATCH
    )
    actions = batch.add_subparsers(dest="action", required=True, metavar="ACTION")
    write = actions.add_parser(
        "write",
        help="write the requests for draws that the store lacks",
        description="Write the requests for draws that the store lacks.",
        formatter_class=_HelpFormatter,
    )
    write.set_defaults(answers=[])
    read = actions.add_parser(
        "read",
        help="keep the answers, and write the requests for what is still missing",
        description="Keep the answers in the store, and write the requests for what is still "
        "missing. Answers may stand in any order, be incomplete, occur twice or be errors.",
        formatter_class=_HelpFormatter,
    )
    read.add_argument(
        "answers", nargs="+", metavar="ANSWERS", help="output and error files of the service"
    )
    for command, output in ((write, "requests.jsonl"), (read, "missing.jsonl")):
        command.add_argument(
            "--store", required=True, metavar="FILE", help="the file of the CachedGenerator"
        )
        command.add_argument(
            "--generator",
            required=True,
            metavar="FILE",
            help="the parameters of the OpenAIGenerator, as a JSON object",
        )
        command.add_argument(
            "--prompts", required=True, metavar="FILE", help="the prompts, one object a line (JSON)"
        )
        command.add_argument(
            "--field", default="prompt", metavar="NAME", help="field of a line with the prompt"
        )
        command.add_argument("--draws", type=int, default=20, metavar="K", help="draws per prompt")
        command.add_argument(
            "--seed", type=int, default=0, metavar="S", help="random_state of the sampler"
        )
        command.add_argument(
            "--output",
            type=Path,
            default=Path(output),
            metavar="FILE",
            help="requests to write; what one file may not hold goes to further, numbered ones",
        )
        command.set_defaults(run=_batch, data=None)


def _add_input(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("input", _INPUT)
    group.add_argument("--scores", metavar="FILE", help="quality of each draw, shape (n, K)")
    group.add_argument(
        "--labels", metavar="FILE", help="1 where a draw is admissible, else 0, shape (n, K)"
    )
    group.add_argument(
        "--similarity",
        metavar="FILE",
        help="similarity of draws j and l < j at [i, j, l], shape (n, K, K); called "
        "diversity.npy by some, but larger must mean more alike",
    )
    group.add_argument("--data", metavar="FILE", help="calibration data as .npz, instead of these")


def _add_one_level(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--epsilon", type=float, default=0.3, metavar="E", help="tolerated risk, in (0, 1)"
    )
    command.add_argument("--set-score", default="max", metavar="NAME", help="set score F")
    command.add_argument(
        "--optimization-fraction",
        type=float,
        default=1 / 3,
        metavar="F",
        help="share of the prompts that finds the frontier",
    )
    _add_search(command)
    command.add_argument("--quiet", action="store_true", help="print nothing")


def _add_search(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--delta", type=float, default=0.05, metavar="D", help="level of the tests, in (0, 1)"
    )
    command.add_argument(
        "--n-lambdas", type=int, default=25, metavar="N", help="quantiles tried for each threshold"
    )
    command.add_argument(
        "--size-weight", type=float, default=0.5, metavar="W", help="weight of set size in Eq. 7"
    )
    command.add_argument(
        "--excess-weight",
        type=float,
        default=0.5,
        metavar="W",
        help="weight of excess draws in Eq. 7",
    )
    command.add_argument(
        "--k-max",
        type=int,
        nargs="+",
        default=None,
        metavar="K",
        help="budgets of draws to search (default: all draws)",
    )
    command.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the splits")


def _load(arguments: argparse.Namespace) -> CalibrationData:
    named = ("scores", "labels", "similarity")
    given = [name for name in named if getattr(arguments, name) is not None]
    if arguments.data is not None:
        if given:
            raise ValueError(f"--data was given together with --{given[0]}; wanted one of them.")
        return CalibrationData.load(arguments.data)
    missing = [f"--{name}" for name in named if name not in given]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} missing: give --scores, --labels and --similarity, or --data."
        )
    return CalibrationData.from_arrays(
        arguments.scores, arguments.similarity, arguments.labels, mmap=True
    )


def _levels(items: Sequence[str]) -> np.ndarray:
    levels: list[float] = []
    for item in items:
        try:
            if ":" in item:
                start, stop, count = item.split(":")
                if not 1 <= int(count) <= _MOST_LEVELS:
                    raise ValueError
                levels.extend(np.linspace(float(start), float(stop), int(count)))
            else:
                levels.append(float(item))
        except ValueError:
            raise ValueError(
                f"--epsilons: {item!r} is neither a number nor START:STOP:COUNT with a COUNT from "
                f"1 to {_MOST_LEVELS:,}."
            ) from None
    return np.unique(levels)


def _evaluate(arguments: argparse.Namespace) -> int:
    data = _load(arguments)
    output: Path = arguments.output
    if output.exists() and not output.is_dir():  # before hours of trials
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(output))
    results = run_trials(
        data,
        arguments.methods,
        _levels(arguments.epsilons),
        delta=arguments.delta,
        n_trials=arguments.trials,
        frontier_fraction=arguments.frontier_fraction,
        testing_fraction=arguments.testing_fraction,
        n_lambdas=arguments.n_lambdas,
        size_weight=arguments.size_weight,
        excess_weight=arguments.excess_weight,
        k_max=arguments.k_max,
        random_state=arguments.seed,
        n_jobs=arguments.jobs,
        verbose=0 if arguments.quiet else 1,
    )
    output.mkdir(parents=True, exist_ok=True)
    table = results.auc_table()
    if len(results.methods) > 1:
        table += "\n" + results.comparison_table()
    reason = results.why_no_area()
    if reason is not None:
        table += f"\n{reason}\n"
    (output / "auc.md").write_text(table, encoding="utf-8")
    results.to_csv(output / "curves.csv")
    results.save(output / "trials.npz")
    written = ["auc.md", "curves.csv", "trials.npz"]
    if arguments.figure_format != "none":
        written += _draw(results, data, arguments, output)
    if not arguments.quiet:
        print(table)
        print(f"Wrote {', '.join(written)} in {output}.")
    return 0


def _draw(
    results: TrialResults, data: CalibrationData, arguments: argparse.Namespace, output: Path
) -> list[str]:
    import matplotlib as mpl

    mpl.use("Agg")  # a command line may have no screen
    used = arguments.frontier_fraction + arguments.testing_fraction
    displays: dict[str, RiskCurveDisplay | AchievableBandDisplay] = {
        "curves": RiskCurveDisplay.from_trials(results),
        "achievable_band": AchievableBandDisplay.from_data(
            data.truncate(results.k_max),
            delta=arguments.delta,
            optimization_fraction=arguments.frontier_fraction / used,
        ),
    }
    written = []
    for name, display in displays.items():
        written.append(f"{name}.{arguments.figure_format}")
        display.figure_.savefig(output / written[-1], dpi=200)
    return written


def _calibrate(arguments: argparse.Namespace) -> int:
    data = _load(arguments)
    budgets = arguments.k_max or [data.k_max]
    sampler = ConformalSampler(
        _Arrays(),
        k_max=budgets[0] if len(budgets) == 1 else budgets,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        set_score=arguments.set_score,
        size_weight=arguments.size_weight,
        excess_weight=arguments.excess_weight,
        n_lambdas=arguments.n_lambdas,
        optimization_fraction=arguments.optimization_fraction,
        on_null="raise",
        random_state=arguments.seed,
    )
    # what the data were collected with concerns the file, not this stand-in for a sampler
    known = data.provenance
    stand_in = Provenance(precision=known.precision)
    sampler.calibrate(CalibrationData(data.quality, data.similarity, data.labels, stand_in))
    with replacing(arguments.output) as unfinished:
        sampler.save_calibration(unfinished)
        content = json.loads(Path(unfinished).read_text(encoding="utf-8"))
        content["generator"] = known.generator and {"class": None, "fingerprint": known.generator}
        # the seed of the split is not that of the draws
        content["seed"] = known.seed
        scores = {name: getattr(known, name) for name in ("quality", "similarity", "admission")}
        content["scores"] |= scores
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        Path(unfinished).write_text(text, encoding="utf-8")
    result, thresholds = sampler.result_, sampler.lambda_hat_
    if not arguments.quiet and result is not None and thresholds is not None:
        _describe(result, thresholds, sampler.k_max_, arguments, known.unknown)
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    expected = plan(
        _load(arguments),
        arguments.epsilon,
        arguments.delta,
        sizes=arguments.sizes,
        set_score=arguments.set_score,
        k_max=arguments.k_max,
        optimization_fraction=arguments.optimization_fraction,
        n_lambdas=arguments.n_lambdas,
        size_weight=arguments.size_weight,
        excess_weight=arguments.excess_weight,
        power=arguments.power,
        confidence=arguments.confidence,
        n_trials=arguments.trials,
        random_state=arguments.seed,
    )
    text = expected.to_markdown()
    if arguments.output is not None:
        with replacing(arguments.output) as unfinished:
            Path(unfinished).write_text(text, encoding="utf-8")
    if not arguments.quiet:
        print(text, end="")
    return 0


def _judge(arguments: argparse.Namespace) -> int:
    if not Path(arguments.store).exists() and arguments.wanted is None:
        raise FileNotFoundError(errno.ENOENT, "No such file", arguments.store)
    judge = HumanJudge(arguments.store, question=arguments.question, judge=arguments.name)
    wanted = judge.wanted() if arguments.wanted is None else wanted_from_file(arguments.wanted)
    if not wanted and not arguments.second_opinions:
        raise ValueError(
            f"{arguments.wanted or arguments.store} holds nothing to judge on the question "
            f"{arguments.question!r}."
        )
    serve(judge, wanted, port=arguments.port, second_opinions=arguments.second_opinions)
    return 0


def _batch(arguments: argparse.Namespace) -> int:
    for name, least in (("draws", 1), ("seed", 0)):
        if getattr(arguments, name) < least:
            raise ValueError(
                f"--{name} must be at least {least}, got {getattr(arguments, name)} instead."
            )
    with naming(f"{arguments.generator} does not hold the parameters of an OpenAIGenerator"):
        generator = OpenAIGenerator(**json_value(Path(arguments.generator).read_bytes()))
    field, seed = arguments.field, arguments.seed
    prompts: list[object] = []
    for where, line in json_lines(arguments.prompts):
        if field not in line:
            raise ValueError(f"{where}: no field {field!r}; it has {sorted(line)}.")
        prompts.append(line[field])
    cached = CachedGenerator(generator, arguments.store)
    if arguments.answers:
        n_new = cached.import_draws(generator.read_batch(*arguments.answers, seed=seed), seed=seed)
        print(f"{counted(n_new, 'new draw')} kept in {arguments.store}.")
    known = cached.known_draws(prompts, arguments.draws, seed=seed)
    files = generator.write_batch(
        prompts, arguments.draws, arguments.output, seed=seed, known=known
    )
    written = f"Wrote {', '.join(map(str, files))}." if files else "Nothing is missing."
    print(f"{counted(len(known), 'draw')} of these prompts are there. {written}")
    return 0


def _describe(
    result: LearnThenTestResult,
    thresholds: Configuration,
    k_max: int,
    arguments: argparse.Namespace,
    unknown: Sequence[str],
) -> None:
    tested = counted(len(result.frontier), "configuration")
    print(
        f"epsilon={arguments.epsilon:g}, delta={arguments.delta:g}: {len(result.valid_lambdas)} "
        f"of {tested} valid on {counted(result.n_calibration, 'prompt')}.\n"
        f"lambda-hat: similarity <= {thresholds.similarity:g}, quality >= "
        f"{thresholds.quality:g}, stop at {get_set_score(arguments.set_score).name} >= "
        f"{thresholds.set_score:g}, at most {counted(k_max, 'draw')}."
    )
    if unknown:
        print(
            f"Provenance unknown: {', '.join(unknown)}. The guarantee holds only for the sampler "
            "that these data come from."
        )
    print(f"Wrote {arguments.output}.")


if __name__ == "__main__":
    sys.exit(main())
