"""Write reports about images, and say which sentences of them can be trusted.

    python examples/report_generation.py

The radiology task of the paper in small. An image is a strip of four handwritten digits, a side of
some of them torn off; a ViT + GPT-2 model that lies beside this script writes a report about it,
one sentence for each digit, worded at will. A report is right if all four digits are, as a
labeller reads them; a sentence, if it states the right digit. None of the digits has been seen in
training.

Prints how often each guarantee holds on new strips, and writes a page of examples and a figure to
examples/output.
"""

import argparse
import html
import logging
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from checkpoints.digit_reports.strips import (
    N_DIGITS,
    draw_single_digits,
    draw_strips,
    read_report,
    read_sentence,
    write_report,
)

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "digit_reports"
STYLE = "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .6em}"


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Run the whole script and return what it measured."""
    args = parse(argv)
    start = time.monotonic()
    strips, reports = load_data(args.calibration, seed=args.seed)
    new_strips, new_reports = load_data(args.test, seed=args.seed + 1)

    print(f"Calibrating on {len(strips)} strips, {args.k_max} reports written for each", flush=True)
    sampler = build_sampler(args)
    sets = sampler.fit_transform(strips, reports)
    # all scores are calibrated on the very draws that the sampler was
    selectors = {
        name: build_selector(score, args).fit(sets, reports)
        for name, score in component_scores(args.seed).items()
    }
    selector = selectors["classifier"]
    describe_calibration(sampler, selector)

    print(f"\nReading {len(new_strips)} new strips", flush=True)
    new_sets = sampler.predict(new_strips)
    selected = {name: one.predict(new_sets) for name, one in selectors.items()}
    results = measure(sampler, selector, new_sets, selected["classifier"], new_reports)
    describe_test(sampler, selector, results)
    compare(selected, new_reports)

    args.output.mkdir(parents=True, exist_ok=True)
    page = args.output / "report_generation.html"
    shown = selected["classifier"][: args.show]
    text = write_page(sampler, selector, shown, new_reports)
    page.write_text(text, encoding="utf-8")
    figure = args.output / "report_generation.png"
    draw_figure(selectors, args).savefig(figure, dpi=150)
    print(f"\nWrote {page} and {figure}\n{time.monotonic() - start:.0f} s in all")
    return results


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=0.3, help="tolerated error of a set")
    parser.add_argument("--alpha", type=float, default=0.2, help="tolerated error of sentences")
    parser.add_argument("--delta", type=float, default=0.05, help="1 - confidence, of each")
    parser.add_argument("--k-max", type=int, default=10, help="most reports for a strip")
    parser.add_argument("--calibration", type=int, default=400, help="calibration strips")
    parser.add_argument("--test", type=int, default=400, help="new strips")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=12, help="how many sets the page shows")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="where to write")
    return parser.parse_args(argv)


def load_data(n_strips: int, seed: int) -> tuple[list, list[str]]:
    """Strips, and the reports that a person wrote about them."""
    strips, labels = draw_strips(n_strips, part="unseen", random_state=[seed, 1])
    return strips, [write_report(digits, [seed, i]) for i, digits in enumerate(labels)]


def build_sampler(args: argparse.Namespace):
    """Sets of reports, of which one is right."""
    import torch

    from sklearn_clm import ConformalSampler
    from sklearn_clm.generators import TransformersGenerator
    from sklearn_clm.scoring import label_match

    # threads wait for each other longer than they work on matrices this small
    torch.set_num_threads(1)
    if not sys.stderr.isatty():
        logging.getLogger("transformers").setLevel(logging.ERROR)
    generator = TransformersGenerator(CHECKPOINT, max_new_tokens=47, top_k=None, batch_size=256)
    return ConformalSampler(
        generator,
        k_max=args.k_max,
        epsilon=args.epsilon,
        delta=args.delta,
        admission=label_match(read_report),
        set_score="sum",
        random_state=args.seed,
        verbose=int(sys.stderr.isatty()),
    )


def build_selector(component_score, args: argparse.Namespace):
    """Sentences of these reports, of which all are right."""
    from sklearn_clm import ComponentSelector

    return ComponentSelector(
        alpha=args.alpha,
        delta=args.delta,
        component_score=component_score,
        # not ROUGE-L: two sentences about different digits may share all other words
        admission=states_the_right_digit,
        random_state=args.seed,
    )


def states_the_right_digit(reference: str, sentence: str) -> bool:
    """Component admission: the digit that the sentence states is that of the reference."""
    finding = read_sentence(sentence)
    return finding is not None and read_report(reference)[finding[0]] == finding[1]


def component_scores(seed: int) -> dict:
    """Three component scores: the model's own likelihood, a second opinion, and chance."""
    from sklearn.ensemble import RandomForestClassifier

    reader = RandomForestClassifier(100, min_samples_leaf=2, random_state=seed)
    reader.fit(*draw_single_digits(6000, part="training", random_state=seed))

    @cache
    def probabilities(pixels: bytes):
        strip = np.frombuffer(pixels, dtype=np.uint8).reshape(8, -1, 3)[:, :, 0] / 255
        return reader.predict_proba([part.ravel() for part in np.split(strip, N_DIGITS, axis=1)])

    def second_opinion(strip, sentence: str) -> float:
        """Probability of the stated digit, from a classifier that sees that digit alone."""
        finding = read_sentence(sentence)
        return 0.0 if finding is None else float(probabilities(strip.tobytes())[finding])

    return {
        "classifier": second_opinion,
        "span likelihood": "span_likelihood",
        "random": "random",
    }


def describe_calibration(sampler, selector) -> None:
    """Print what was certified."""
    low, high = sampler.achievable_epsilon_
    print(
        f"The first report is right for {1 - high:.0%} of these strips, one of {sampler.k_max} for "
        f"{1 - low:.0%}"
    )
    print(f"lambda-hat: {sampler.lambda_hat_}")
    print(f"gamma-hat:  {selector.gamma_hat_:.3g}")


def measure(sampler, selector, sets, selected, reports) -> dict[str, float]:
    """What came of both guarantees on new strips."""
    from sklearn_clm.metrics import (
        component_count,
        component_loss,
        component_precision,
        set_coverage,
        set_samples,
        set_size,
    )

    return {
        "coverage": float(set_coverage(reports, sets)),
        "set_size": float(set_size(sets)),
        "samples": float(set_samples(sets)),
        "component_coverage": 1.0 - component_loss(reports, selected),
        "component_count": component_count(selected),
        "component_precision": component_precision(reports, selected),
    }


def describe_test(sampler, selector, results: dict[str, float]) -> None:
    """Print it."""
    sets, sentences = promises(sampler, selector)
    print(
        f"A right report in the set:    {results['coverage']:6.1%} of strips (promised: {sets}); "
        f"{results['set_size']:.1f} reports in a set, of {results['samples']:.1f} written"
    )
    print(
        f"All selected sentences right: {results['component_coverage']:6.1%} of strips (promised: "
        f"{sentences}); {results['component_count']:.1f} sentences, "
        f"{results['component_precision']:.1%} of them right"
    )
    print(confidence(sampler))


def promises(sampler, selector) -> tuple[str, str]:
    """How often a set is promised to hold a right report, and all trusted sentences to be right."""
    sets = "nothing" if sampler.lambda_hat_ is None else f"{1 - sampler.epsilon:.0%}"
    sentences = f"{1 - selector.alpha:.0%}" if selector.gamma_hat_ < np.inf else "nothing"
    return sets, sentences


def confidence(sampler) -> str:
    """How sure these promises are: two events of probability delta at most."""
    return (
        f"Each promise holds with confidence {1 - sampler.delta:.0%} over the calibration strips, "
        f"both at once with {1 - 2 * sampler.delta:.0%}."
    )


def compare(selected: dict, reports) -> None:
    """Print what each component score selects under the same promise."""
    from sklearn_clm.metrics import component_count, component_loss

    print("\nComponent score   right   sentences   findings covered")
    for name, sets in selected.items():
        covered = sum(len({read_sentence(s)[0] for s in one if read_sentence(s)}) for one in sets)
        print(
            f"{name:16s} {1 - component_loss(reports, sets):6.1%} {component_count(sets):11.2f}"
            f" {covered / (4 * len(sets)):18.1%}"
        )


def write_page(sampler, selector, selected, reports) -> str:
    """A page of example sets, the trusted sentences in bold."""
    sets, sentences = promises(sampler, selector)
    sections = [
        f"<section><h2>Strip {i + 1}</h2>{one._repr_html_()}<p>A person wrote: "
        f"{html.escape(report)}<br>{verdict(one, report)}</p></section>"
        for i, (one, report) in enumerate(zip(selected, reports))
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Reports</title>'
        f"<style>{STYLE}</style><h1>Reports about strips of digits</h1>"
        f"<p>Promised: a right report in the set, for {sets} of strips; all sentences in bold "
        f"right, for {sentences} of strips. {confidence(sampler)}</p>{''.join(sections)}</html>"
    )


def verdict(one, report: str) -> str:
    """Which of the reports in the set are right, and which trusted sentences are not."""
    answer = one.prediction_set
    right = [
        str(draw + 1)
        for draw, response in zip(answer.indices, answer.responses)
        if read_report(response) == read_report(report)
    ]
    wrong = [sentence for sentence in one if not states_the_right_digit(report, sentence)]
    return (
        f"Right reports: {', '.join(right) or 'none'}. "
        f"Trusted sentences that are wrong: {html.escape(' '.join(wrong)) or 'none'}."
    )


def draw_figure(selectors: dict, args: argparse.Namespace):
    """Loss, number and recall of selected sentences against alpha, over random splits."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.evaluation import run_component_trials
    from sklearn_clm.inspection import ComponentCurveDisplay

    trials = run_component_trials(
        {name: selector.calibration_data_ for name, selector in selectors.items()},
        delta=args.delta,
        n_trials=30,
        calibration_fraction=0.5,
        random_state=args.seed,
    )
    return ComponentCurveDisplay.from_trials(trials).figure_


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        main()
