"""Calibrate a language model and watch it return guaranteed answer sets.

    python examples/quickstart.py
    python examples/quickstart.py --model NAME_OR_PATH --data FILE.jsonl

Without arguments, a small Llama model that lies beside this script answers closed-book questions
about the names of territories ("Q: What is Germany called in French? A:") that it has not been
trained on. With --model, any causal or encoder-decoder model of Hugging Face answers instead; with
--data, the questions are those of a file, one JSON object with "prompt" and "reference" on each
line, where a reference may be a list of aliases, each of them right.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from jsonl_questions import read_questions

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "territory_names"


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Run the whole script and return what it measured."""
    args = parse(argv)
    start = time.monotonic()
    prompts, references = load_data(args.data)
    calibration, test = split(len(prompts), args)

    print(f"Loading {args.model} ...", flush=True)
    sampler = build_sampler(args)
    print(
        f"Calibrating on {len(calibration):,} questions, {args.k_max} answers drawn for each",
        flush=True,
    )
    sampler.fit(
        [prompts[i] for i in calibration],
        [references[i] for i in calibration],
    )
    describe_calibration(sampler)

    print(f"\nAnswering {len(test):,} questions that calibration has not seen", flush=True)
    sets = sampler.predict([prompts[i] for i in test])
    results = measure(sampler, sets, [references[i] for i in test])
    describe_test(sampler, results, sets)
    show(sets, [references[i] for i in test], args.show)
    print(f"\n{time.monotonic() - start:.0f} s in all")
    return results


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(CHECKPOINT), help="name or folder of a model")
    parser.add_argument("--data", type=Path, help="JSON lines with prompt and reference")
    parser.add_argument("--epsilon", type=_fraction, default=0.45, help="tolerated error")
    parser.add_argument("--delta", type=_fraction, default=0.05, help="1 - confidence")
    parser.add_argument("--k-max", type=_count, default=20, help="most answers for a question")
    parser.add_argument("--calibration", type=_count, default=1000, help="calibration questions")
    parser.add_argument("--test", type=_count, default=1000, help="test questions")
    parser.add_argument("--max-new-tokens", type=_count, default=40, help="longest answer")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--stop", nargs="*", default=["\n"], help="strings that end an answer")
    parser.add_argument("--batch-size", type=_count, default=512, help="answers written at once")
    parser.add_argument("--device", help="where the model runs, for instance cuda")
    parser.add_argument("--dtype", help="for instance bfloat16; by default what the model says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=8, help="how many sets to print")
    return parser.parse_args(argv)


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def load_data(path: Path | None) -> tuple[list[str], list[list[str]]]:
    """Prompts and, for each, every reference that is right."""
    if path is None:
        from checkpoints.territory_names.questions import load_questions

        questions = load_questions("held_out")
        return [q.prompt for q in questions], [list(q.answers) for q in questions]
    return read_questions(path)


def split(n: int, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Random positions of calibration and test questions."""
    order = np.random.default_rng(args.seed).permutation(n)
    n_calibration = args.calibration
    if n < args.calibration + args.test:
        n_calibration = min(args.calibration, n // 2)
        print(
            f"{n:,} questions are fewer than {args.calibration:,} + {args.test:,}: calibrating "
            f"on {n_calibration:,}, testing on {min(args.test, n - n_calibration):,}"
        )
    return order[:n_calibration], order[n_calibration : n_calibration + args.test]


def build_sampler(args: argparse.Namespace):
    """The estimator; everything that decides about its guarantee stands here."""
    try:
        from transformers.utils import logging

        from sklearn_clm import ConformalSampler
        from sklearn_clm.generators import TransformersGenerator
    except ImportError as error:
        raise SystemExit(f'{error}; install with: pip install ".[examples]"') from None
    if args.model == str(CHECKPOINT):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    options = {
        "max_new_tokens": args.max_new_tokens,
        "temperature": args.temperature,
        "stop": args.stop,
        "batch_size": args.batch_size,
    }
    for name in ("device", "dtype"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    return ConformalSampler(
        TransformersGenerator(args.model, **options),
        k_max=args.k_max,
        epsilon=args.epsilon,
        delta=args.delta,
        admission="exact_match",
        random_state=args.seed,
        verbose=1,
    )


def describe_calibration(sampler) -> None:
    """Print lambda-hat, the band of errors that can be reached, and the guarantee."""
    low, high = sampler.achievable_epsilon_
    data = sampler.calibration_data_
    print(
        f"One draw is right for {1 - high:.1%} of these questions, some of {data.k_max} for "
        f"{1 - low:.1%}: errors from {low:.1%} to {high:.1%} can be had."
    )
    rule = sampler.lambda_hat_
    if rule is None:
        print("No rule could be certified: the sets that follow hold every draw.")
        return
    print(
        f"lambda-hat: keep an answer if its quality is at least {rule.quality:.3g} and its "
        f"similarity to every kept answer at most {rule.similarity:.3g};\n"
        f"            stop when the best quality in the set is at least {rule.set_score:.3g}"
    )
    print(
        f"Guarantee: a new question's set holds a right answer with probability at least "
        f"{1 - sampler.epsilon:.0%},\n           with confidence {1 - sampler.delta:.0%} over the "
        f"{data.n_prompts:,} calibration questions."
    )


def measure(sampler, sets, references) -> dict[str, float]:
    """Coverage, set size and draws over the test questions."""
    from sklearn_clm.metrics import set_coverage, set_samples, set_size

    return {
        "n_test": len(sets),
        "coverage": float(set_coverage(references, sets)),
        "wanted": 1 - sampler.epsilon,
        "mean_size": float(set_size(sets)),
        "mean_draws": float(set_samples(sets)),
    }


def describe_test(sampler, results: dict[str, float], sets) -> None:
    """Print what the sets were worth."""
    print(f"Coverage:   {results['coverage']:.1%} (wanted: at least {results['wanted']:.1%})")
    print(f"Mean size:  {results['mean_size']:.2f} answers in a set")
    print(
        f"Mean draws: {results['mean_draws']:.2f}, where always drawing {sets.k_max} takes "
        f"{sets.k_max}"
    )


def show(sets, references, n_shown: int) -> None:
    """Print a few sets, the right answers marked."""
    from sklearn_clm.scoring import exact_match

    print("\nA few sets (* right):")
    for answers, aliases in zip(sets[:n_shown], references[:n_shown]):
        marked = [
            ("*" if any(exact_match(alias, answer) for alias in aliases) else "") + answer.strip()
            for answer in answers
        ]
        draws = "1 draw" if answers.n_samples == 1 else f"{answers.n_samples} draws"
        print(f"  {answers.prompt} {{{', '.join(marked)}}} after {draws}")
        if not any(text.startswith("*") for text in marked):
            print(f"      would have been right: {' / '.join(aliases)}")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        main()
