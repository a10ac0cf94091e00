"""Entry point of ``python -m sklearn_clm``.

Command line: the paper's evaluation, and a calibration, of arrays on disk."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_clm._exceptions import NullCalibrationError
from sklearn_clm._version import __version__
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._arrays import replacing
from sklearn_clm.generators import BaseGenerator, Generation

__all__ = ["main"]


_DESCRIPTION = "Conformal language modeling on arrays of scores, similarities and labels."
_EVALUATE = """\
Run the paper's evaluation (section 5, Appendix F) on arrays: repeated random splits into a part
that finds the Pareto frontier, a part that tests it and a part that measures; write the curves,
the areas under them and the figure."""
_CALIBRATE = """\
Find the thresholds that keep the risk below epsilon, and write them as the JSON that
ConformalSampler.load_calibration reads. The arrays do not tell which generator and which scores
they came from, so the file records neither, and load_calibration says so."""
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
        print(f"{parser.prog} {arguments.command}: {error}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"{parser.prog} {arguments.command}: error: {_message(error)}", file=sys.stderr)
        return 2


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sklearn_clm", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"sklearn_clm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_evaluate(commands)
    _add_calibrate(commands)
    return parser


class _HelpFormatter(argparse.HelpFormatter):
    """Names the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if default is None or default is False or default == argparse.SUPPRESS:
            return text
        if isinstance(default, list):
            default = " ".join(default)
        elif isinstance(default, float):
            default = f"{default:.3g}"
        return f"{text} (default: {default})"


class _Arrays(BaseGenerator):
    """Stands for the unknown generator that the arrays came from."""

    def sample(
        self, prompts: Sequence[Any], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        raise RuntimeError("arrays of scores hold no responses to draw")


def _add_evaluate(commands: Any) -> None:
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
        "--frontier-fraction", type=float, default=0.1, metavar="F", help="share for the frontier"
    )
    evaluate.add_argument(
        "--testing-fraction",
        type=float,
        default=0.2,
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


def _add_calibrate(commands: Any) -> None:
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
    calibrate.add_argument(
        "--epsilon", type=float, default=0.3, metavar="E", help="tolerated risk, in (0, 1)"
    )
    calibrate.add_argument("--set-score", default="max", metavar="NAME", help="set score F")
    calibrate.add_argument(
        "--optimization-fraction",
        type=float,
        default=1 / 3,
        metavar="F",
        help="share of the prompts that finds the frontier",
    )
    _add_search(calibrate)
    calibrate.add_argument("--quiet", action="store_true", help="print nothing")
    calibrate.set_defaults(run=_calibrate)


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
                levels.extend(np.linspace(float(start), float(stop), int(count)))
            else:
                levels.append(float(item))
        except ValueError:
            raise ValueError(
                f"--epsilons: {item!r} is neither a number nor START:STOP:COUNT."
            ) from None
    return np.unique(levels)


def _evaluate(arguments: argparse.Namespace) -> int:
    from sklearn_clm.evaluation import run_trials

    data = _load(arguments)
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
    output: Path = arguments.output
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


def _draw(results: Any, data: Any, arguments: argparse.Namespace, output: Path) -> list[str]:
    import matplotlib as mpl

    mpl.use("Agg")  # a command line may have no screen
    from sklearn_clm.inspection import AchievableBandDisplay, RiskCurveDisplay

    used = arguments.frontier_fraction + arguments.testing_fraction
    displays: dict[str, Any] = {
        "curves": RiskCurveDisplay.from_trials(results),
        "achievable_band": AchievableBandDisplay.from_data(
            data,
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
    from sklearn_clm._sampler import ConformalSampler

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
    ).calibrate(data)
    with replacing(arguments.output) as unfinished:
        sampler.save_calibration(unfinished)
        content = json.loads(Path(unfinished).read_text(encoding="utf-8"))
        content["generator"] = None
        content["scores"] = {
            name: arguments.set_score if name == "set_score" else None for name in content["scores"]
        }
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        Path(unfinished).write_text(text, encoding="utf-8")
    if not arguments.quiet:
        thresholds = sampler.lambda_hat_
        print(
            f"epsilon={arguments.epsilon:g}, delta={arguments.delta:g}: "
            f"{len(sampler.valid_lambdas_)} of {len(sampler.frontier_)} configurations valid on "
            f"{sampler.result_.n_calibration} prompts.\n"
            f"lambda-hat: similarity <= {thresholds.similarity:g}, quality >= "
            f"{thresholds.quality:g}, stop at {arguments.set_score} >= {thresholds.set_score:g}, "
            f"at most {sampler.k_max_} draws.\nWrote {arguments.output}."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
