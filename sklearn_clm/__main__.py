"""Command line ``python -m sklearn_clm``: evaluation, calibration and plans for arrays on disk."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.utils import check_scalar

from sklearn_clm import ConformalSampler, NullCalibrationError, __version__
from sklearn_clm._results import counted
from sklearn_clm.caching import CachedGenerator, HumanJudge
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.evaluation import TrialResults, plan, run_trials
from sklearn_clm.generators import BaseGenerator, Generation, OpenAIGenerator
from sklearn_clm.generators._records import json_lines, json_value, naming
from sklearn_clm.inspection import AchievableBandDisplay, RiskCurveDisplay
from sklearn_clm.judging import serve, wanted_from_file
from sklearn_clm.policies import ThresholdPolicy
from sklearn_clm.policies._files import write_content
from sklearn_clm.policies._rules import Certified

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["main"]


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_INTERRUPTED = 130  # as shells have it
_DESCRIPTION = """\
Conformal language modeling on arrays of scores, similarities and labels. Errors name the arguments
of the functions that the commands call; options are called alike, with dashes."""
_EVALUATE = """\
Run the paper's evaluation (section 5, Appendix F) on arrays: repeated random splits into a part
that finds the Pareto frontier, a part that tests it and a part that measures; write the curves,
the areas under them and the figure. Needs pandas, and matplotlib for figures."""
_CALIBRATE = """\
Find the thresholds that keep the risk below epsilon, and write them as the JSON that
ConformalSampler.load_calibration reads. Three bare arrays do not tell which generator, seed and
scores they came from, so the file says "unknown" by null, and load_calibration warns of it. A file
of CalibrationData.save tells, and load_calibration refuses a sampler that differs."""
_ONLY_PYTHON = """\
Exits with status 1, and writes nothing, if no configuration is valid. In Python alone: an exit
policy, see help(sklearn_clm.policies); draws that are texts in a table or in lists, see
help(sklearn_clm.generators.PrecomputedGenerator); and sets of new prompts, and files of them, see
help(sklearn_clm.PredictionSets.to_frame)."""
_PLAN = """\
Estimate from a pilot of some 50 to 100 prompts what calibrations of several sizes will do: the
smallest epsilon that they certify, set size, draws and judge calls, each with an interval; and
how many prompts each number of draws needs. Set size and draws are for thresholds, not for an
ExitPolicy."""
_JUDGE = """\
Serve a page on this machine on which a person judges responses. The verdicts are kept in the
SQLite file of a HumanJudge, each on the disk before the next response is shown."""
_BATCH = """\
Have draws made by a batch service at a discount: write the requests for those that a store lacks,
as OpenAI's Batch API and vllm run-batch read them, and read the answers into the store. A
CachedGenerator with this store then gives the draws without a request; where it has a key, --key
must be the same."""
_READ = """\
Keep the answers in the store, and write the requests for what is still missing. Answers may stand
in any order, be incomplete, occur twice or be errors."""
_AREAS = """\
Averages over epsilon (normalised areas under the curves), over those epsilon that can be used in
every trial: mean and standard deviation over trials. curves.csv has the values at each epsilon."""
_WRITTEN = ("areas.txt", "curves.csv", "trials.npz")
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
        where `calibrate` found no valid configuration; 130 after Ctrl-C, or where nobody reads
        the output any more.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        status = int(arguments.run(arguments))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # what is still to be written at exit has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED
    except NullCalibrationError as null:
        print(f"{parser.prog} {arguments.command}: {null}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"{parser.prog} {arguments.command}: error: {error}", file=sys.stderr)
        return 2


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Names the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


class _Arrays(BaseGenerator):
    """Stands for the unknown generator that the arrays came from."""

    def sample(
        self, prompts: Sequence[object], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        raise RuntimeError("arrays of scores hold no responses to draw")


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


def _command(
    commands: _Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    description: str,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=text, description=description, epilog=epilog, formatter_class=_HelpFormatter
    )
    command.set_defaults(run=run)
    return command


def _number(command: argparse.ArgumentParser, names: str, default: float, text: str) -> None:
    """An option of the type of its default, under the names of its parameter and shorter ones."""
    command.add_argument(*names.split(), type=type(default), default=default, help=text)


def _add_evaluate(commands: _Commands) -> None:
    text = "run the paper's evaluation on arrays"
    evaluate = _command(commands, "evaluate", _evaluate, text, _EVALUATE)
    _add_input(evaluate)
    add = evaluate.add_argument
    add("--output", type=Path, default=Path("clm-evaluation"), metavar="DIR", help="where to write")
    names = ["first_k", "first_k_reject", "max", "sum"]
    add("--methods", nargs="+", default=names, metavar="NAME", help="set scores to compare")
    text = "tolerated risks: numbers in [0, 1], or START:STOP:COUNT, both ends included"
    add("--epsilons", nargs="+", default=["0:1:101"], metavar="E", help=text)
    _number(evaluate, "--n-trials --trials", 100, "random splits")
    _number(evaluate, "--frontier-fraction", 0.2, "share for the frontier")
    text = "share for fixed sequence testing; the rest measures"
    _number(evaluate, "--testing-fraction", 0.4, text)
    _add_search(evaluate)
    text = "trials in parallel, -1 for all cores (default: 1)"
    add("--n-jobs", "--jobs", type=int, help=text)
    formats, text = ["png", "pdf", "svg", "none"], "format of the figures, which need matplotlib"
    add("--figure-format", choices=formats, default="png", help=text)
    add("--quiet", action="store_true", help="no progress bar, no table")


def _add_calibrate(commands: _Commands) -> None:
    text = "find valid thresholds and write them as JSON"
    calibrate = _command(commands, "calibrate", _calibrate, text, _CALIBRATE, _ONLY_PYTHON)
    _add_input(calibrate)
    output = Path("calibration.json")
    calibrate.add_argument(
        "--output", type=Path, default=output, metavar="FILE", help="where to write"
    )
    _add_one_level(calibrate)


def _add_plan(commands: _Commands) -> None:
    text = "how many prompts to collect, from a pilot"
    command = _command(commands, "plan", _plan, text, _PLAN)
    _add_input(command)
    command.add_argument("--output", type=Path, metavar="FILE", help="Markdown file to write")
    sizes, text = [100, 200, 500, 1000, 2000], "numbers of prompts to consider"
    command.add_argument("--sizes", type=int, nargs="+", default=sizes, metavar="N", help=text)
    _number(command, "--power", 0.9, "wanted probability of success")
    _number(command, "--confidence", 0.95, "confidence of the intervals")
    _number(command, "--n-trials --trials", 40, "simulations")
    _number(command, "--looks", 1, "calibrations of more and more prompts that share delta")
    _add_one_level(command)


def _add_judge(commands: _Commands) -> None:
    text = "judge responses on a page in the browser"
    judge = _command(commands, "judge", _judge, text, _JUDGE)
    judge.add_argument("store", metavar="STORE", help="the file of the HumanJudge")
    text = (
        "responses to judge, in JSON Lines, as HumanJudge.export writes them (default: those that "
        "the last calibration with this STORE lacked)"
    )
    judge.add_argument("--wanted", metavar="FILE", help=text)
    text = (
        "what is asked; that of the HumanJudge (default: the one question of the STORE, or "
        f"{HumanJudge('').question})"
    )
    judge.add_argument("--question", metavar="TEXT", help=text)
    judge.add_argument("--name", help="who judges (default: the user)")
    _number(judge, "--port", 0, "port; 0 takes a free one")


def _add_batch(commands: _Commands) -> None:
    batch = commands.add_parser(
        "batch", help="draw by files of a batch service", description=_BATCH
    )
    actions = batch.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "write the requests for draws that the store lacks"
    write = _command(actions, "write", _batch, text, f"W{text[1:]}.")
    write.set_defaults(answers=[])
    text = "keep the answers, and write the requests for what is still missing"
    read = _command(actions, "read", _batch, text, _READ)
    text = "output and error files of the service"
    read.add_argument("answers", nargs="+", metavar="ANSWERS", help=text)
    for command, output in ((write, "requests.jsonl"), (read, "missing.jsonl")):
        add = command.add_argument
        need = partial(add, required=True, metavar="FILE")
        need("--store", help="the file of the CachedGenerator")
        need("--generator", help="the parameters of the OpenAIGenerator, as a JSON object")
        need("--prompts", help="the prompts, one object a line (JSON)")
        text = "the key of the CachedGenerator, where it has one: draws under another are not found"
        add("--key", metavar="NAME", help=text)
        add("--field", default="prompt", metavar="NAME", help="field of a line with the prompt")
        _number(command, "--draws", 20, "draws per prompt")
        _number(command, "--seed", 0, "random_state of the sampler")
        text = "requests to write; what one file may not hold goes to further, numbered ones"
        add("--output", type=Path, default=Path(output), metavar="FILE", help=text)


def _add_input(command: argparse.ArgumentParser) -> None:
    add = partial(command.add_argument_group("input", _INPUT).add_argument, metavar="FILE")
    add("--scores", help="quality of each draw, shape (n, K)")
    add("--labels", help="1 where a draw is admissible, else 0, shape (n, K)")
    add(
        "--similarity",
        help="similarity of draws j and l < j at [i, j, l], shape (n, K, K); called diversity.npy "
        "by some, but larger must mean more alike",
    )
    add("--data", help="calibration data as .npz, instead of these")


def _add_one_level(command: argparse.ArgumentParser) -> None:
    _number(command, "--epsilon", 0.3, "tolerated risk, in (0, 1)")
    command.add_argument("--set-score", default="max", metavar="NAME", help="set score F")
    text = "share of the prompts that finds the frontier"
    _number(command, "--optimization-fraction", 1 / 3, text)
    _add_search(command)
    command.add_argument("--quiet", action="store_true", help="print nothing")


def _add_search(command: argparse.ArgumentParser) -> None:
    _number(command, "--delta", 0.05, "level of the tests, in (0, 1)")
    _number(command, "--n-lambdas", 25, "quantiles tried for each threshold")
    _number(command, "--size-weight", 0.5, "weight of set size in Eq. 7")
    _number(command, "--excess-weight", 0.5, "weight of excess draws in Eq. 7")
    text = "budgets of draws to search (default: all draws)"
    command.add_argument("--k-max", type=int, nargs="+", metavar="K", help=text)
    _number(command, "--random-state --seed", 0, "seed of the splits")


def _given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options that are parameters, those of :func:`_add_search` among them."""
    shared = ("delta", "n_lambdas", "size_weight", "excess_weight", "random_state")
    return {name: getattr(arguments, name) for name in (*shared, *names)}


def _levels(text: str) -> np.ndarray:
    try:
        if ":" not in text:
            return np.array([float(text)])
        start, stop, count = text.split(":")
        return np.linspace(float(start), float(stop), int(count))
    except ValueError:
        wanted = "numbers or START:STOP:COUNT"
        raise ValueError(f"epsilons must be {wanted}, got {text!r} instead.") from None


def _load(arguments: argparse.Namespace, *outputs: Path) -> CalibrationData:
    """The data, which none of the outputs may replace."""
    arrays = arguments.scores, arguments.similarity, arguments.labels
    _refuse_inputs(outputs, (arguments.data, *arrays))
    if arguments.data is not None and arrays == (None, None, None):
        return CalibrationData.load(arguments.data)
    if arguments.data is not None or None in arrays:
        raise ValueError("input must be --scores, --labels and --similarity, or --data alone.")
    return CalibrationData.from_arrays(*arrays, mmap=True)


def _refuse_inputs(outputs: Iterable[Path], inputs: Iterable[str | None]) -> None:
    read = [name for name in inputs if name is not None and os.path.exists(name)]
    for output in outputs:
        for name in read:
            if output.is_file() and output.samefile(name):
                raise ValueError(f"--output must be none of the inputs, got {name} instead.")


def _evaluate(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    data = _load(arguments, *(output / name for name in _WRITTEN))
    if output.exists() and not output.is_dir():  # before hours of trials
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(output))
    fractions = ("frontier_fraction", "testing_fraction")
    results = run_trials(
        data,
        epsilons=np.unique(np.concatenate([_levels(text) for text in arguments.epsilons])),
        verbose=0 if arguments.quiet else 1,
        **_given(arguments, "methods", "n_trials", *fractions, "k_max", "n_jobs"),
    )
    output.mkdir(parents=True, exist_ok=True)
    results.save(output / "trials.npz")
    with replacing(output / "curves.csv") as unfinished:
        _curves(results).to_csv(unfinished)
    text = f"{_AREAS}\n\n{results.summary().T.round(4).to_string()}\n"
    first, *others = results.methods
    if others:
        compared = results.summary(first).loc[others].T.round(4).to_string()
        text += f"\nDifferences to {first}, from low to high in 95 % of the trials:\n\n{compared}\n"
    if (reason := results.why_no_area()) is not None:
        text += f"\n{reason}\n"
    _write(output / "areas.txt", text)
    written = [*_WRITTEN]
    if arguments.figure_format != "none":
        written += _draw(results, data, arguments, output)
    if not arguments.quiet:
        print(text)
        print(f"Wrote {', '.join(written)} in {output}.")
    return 0


def _curves(results: TrialResults) -> "pd.DataFrame":
    """Means and standard deviations over the trials that did not abstain, at each epsilon."""
    trials = results.to_frame().groupby(["method", "epsilon"], sort=False)
    values = trials[[*results.measures]]
    curves = values.mean().join(values.std(ddof=0), lsuffix="_mean", rsuffix="_std")
    return trials[["null", "trivial"]].mean().join(curves)


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
        with replacing(output / written[-1]) as unfinished:
            display.figure_.savefig(unfinished, format=arguments.figure_format, dpi=200)
    return written


def _write(path: Path, text: str) -> None:
    with replacing(path) as unfinished:
        Path(unfinished).write_text(text, encoding="utf-8")


def _calibrate(arguments: argparse.Namespace) -> int:
    data = _load(arguments, arguments.output)
    budgets = arguments.k_max or [data.k_max]
    sampler = ConformalSampler(
        _Arrays(),
        k_max=budgets[0] if len(budgets) == 1 else budgets,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        policy=ThresholdPolicy(
            set_score=arguments.set_score,
            n_lambdas=arguments.n_lambdas,
            size_weight=arguments.size_weight,
            excess_weight=arguments.excess_weight,
        ),
        optimization_fraction=arguments.optimization_fraction,
        random_state=arguments.random_state,
        on_null="raise",
    )
    # what the data were collected with concerns the file, not this stand-in for a sampler
    known = data.provenance
    sampler.calibrate(CalibrationData(data.quality, data.similarity, data.labels))
    record = replace(sampler.calibration_, provenance=known)
    claim = replace(record.claim, unknown=record.unknown)
    record = replace(record, rules={None: Certified(record.rule, claim)})
    write_content(arguments.output, record.content())
    result, thresholds = sampler.result_, sampler.lambda_hat_
    if arguments.quiet or result is None or thresholds is None:
        return 0
    print(
        f"{len(result.valid_lambdas)} of {counted(len(result.frontier), 'configuration')} valid on "
        f"{counted(result.n_calibration, 'prompt')}.\n"
        f"lambda-hat: similarity <= {thresholds.similarity:g}, quality >= "
        f"{thresholds.quality:g}, stop at {get_set_score(arguments.set_score).name} >= "
        f"{thresholds.set_score:g}, at most {counted(sampler.k_max_, 'draw')}."
    )
    if known.unknown:
        print(
            f"Provenance unknown: {', '.join(known.unknown)}. The guarantee holds only for the "
            "sampler that these data come from."
        )
    print(f"Wrote {arguments.output}.")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    data = _load(arguments, *filter(None, [arguments.output]))
    names = ("epsilon", "sizes", "set_score", "k_max", "optimization_fraction", "power")
    text = plan(data, **_given(arguments, *names, "confidence", "n_trials", "looks")).to_markdown()
    if arguments.output is not None:
        _write(arguments.output, text)
    if not arguments.quiet:
        print(text, end="")
    return 0


def _judge(arguments: argparse.Namespace) -> int:
    if not Path(arguments.store).exists() and arguments.wanted is None:
        raise FileNotFoundError(errno.ENOENT, "No such file", arguments.store)
    judge = HumanJudge(arguments.store, judge=arguments.name)
    known = judge.questions() if Path(arguments.store).exists() else []
    if arguments.question is not None:
        judge.question = arguments.question
    elif len(known) == 1:
        (judge.question,) = known
    wanted = judge.wanted() if arguments.wanted is None else wanted_from_file(arguments.wanted)
    if not wanted:
        others = [repr(question) for question in known if question != judge.question]
        advice = f" Give --question: the store knows {', '.join(others)}." if others else ""
        raise ValueError(
            f"{arguments.wanted or arguments.store} holds nothing to judge on the question "
            f"{judge.question!r}.{advice}"
        )
    serve(judge, wanted, port=arguments.port)
    return 0


def _batch(arguments: argparse.Namespace) -> int:
    check_scalar(arguments.draws, "draws", Integral, min_val=1)
    check_scalar(arguments.seed, "seed", Integral, min_val=0)
    inputs = arguments.store, arguments.generator, arguments.prompts, *arguments.answers
    _refuse_inputs([arguments.output], inputs)
    with naming(f"{arguments.generator} does not hold the parameters of an OpenAIGenerator"):
        generator = OpenAIGenerator(**json_value(Path(arguments.generator).read_bytes()))
    field, seed = arguments.field, arguments.seed
    prompts: list[object] = []
    for where, line in json_lines(arguments.prompts):
        if field not in line:
            raise ValueError(f"{where}: no field {field!r}; it has {sorted(line)}.")
        prompts.append(line[field])
    cached = CachedGenerator(generator, arguments.store, key=arguments.key)
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


if __name__ == "__main__":
    sys.exit(main())
