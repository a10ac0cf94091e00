r"""Write reports about images, and say which sentences of them can be trusted.

    python examples/report_generation.py
    python examples/report_generation.py --paper
    python examples/report_generation.py --paper --model cxr-vit-gpt2 --data mimic_cxr.jsonl \
        --labeler chexbert_labels:read --max-new-tokens 150

The radiology task of the paper in small. An image is a strip of four handwritten digits, a side of
some of them torn off; a ViT + GPT-2 model that lies beside this script writes a report about it,
one sentence for each digit, worded at will. A report is right if all four digits are, as a
labeller reads them; a sentence, if it states the right digit. None of the digits has been seen in
training.

Calibrates once on one half of the images, prints how often each guarantee holds on the other, and
writes a page of examples and a figure to the folder of --output. With --paper, it runs the paper's
experiment instead (section 6): many random splits into calibration and test compare FIRST-K,
FIRST-K+REJECT, MAX and SUM, and then three scores of single sentences: the likelihood of the
sentence, a classifier that is trained on images of its own, and a random number. Either way, the
reports drawn are kept in a file there, and a second run draws none.

A file of --data has one JSON object with "image" (a path, relative to the file) and "reference"
(the report of a person) on each line. A report is then right if its ROUGE-L with the reference is
at least 0.35; or, with --labeler, if the labeller gives it the labels that it gives the reference,
as the paper does with CheXbert. A sentence is right if its ROUGE-L with some sentence of the
reference is at least 0.4. All ROUGE-L here stems words first (Porter), as in the authors' scripts,
the similarity of two reports included. A part of the images trains the classifier of sentences, on
8 x 8 grey pixels and the words of the sentence.
"""

import argparse
import html
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _protocols.paper_protocol import (
    at_random,
    component_trials,
    evaluate_components,
    evaluate_sets,
)
from _protocols.report_tasks import ReportTask, file_task, strip_task

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "digit_reports"
STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "section{border-top:1px solid #bbb}h2{font-size:1.1em}img{margin:.3em 0}"
    "table{margin:.6em 0}td,th{padding:.1em .6em}"
)


# %% The example from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Run the whole script and return what it measured."""
    args = parse(argv)
    start = time.monotonic()
    task = load_task(args)
    sampler = build_sampler(task, args)
    results = (run_protocol if args.paper else demonstrate)(task, sampler, args)
    print(f"{time.monotonic() - start:.0f} s in all")
    return results


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--paper", action="store_true", help="run the paper's experiment")
    add("--images", type=int, help="how many to use at most (800, with --paper 2400)")
    add("--k-max", type=int, default=20, help="most reports for an image")
    add("--delta", type=float, default=0.05, help="1 - confidence, of each guarantee")
    add("--seed", type=int, default=0)
    add("--output", type=Path, default=HERE / "output", help="where to write")
    once = parser.add_argument_group("without --paper")
    once.add_argument("--epsilon", type=float, default=0.3, help="tolerated error of a set")
    once.add_argument("--alpha", type=float, default=0.2, help="tolerated error of sentences")
    once.add_argument("--show", type=int, default=12, help="how many sets the page shows")
    paper = parser.add_argument_group("with --paper")
    paper.add_argument("--trials", type=int, default=100, help="random splits")
    add = parser.add_argument_group("for a model and images of yours").add_argument
    add("--model", default=str(CHECKPOINT), help="name or folder of a VisionEncoderDecoderModel")
    add("--data", type=Path, help="JSON lines with image and reference")
    add("--labeler", metavar="MODULE:FUNCTION", help="from a report to its labels")
    add("--classifier-images", type=int, default=600, help="to train the classifier on")
    add("--max-side", type=int, default=384, help="pixels to which larger images are shrunk")
    add("--max-new-tokens", type=int, default=47, help="longest report")
    add("--temperature", type=float, default=1.0)
    add("--top-k", type=int, default=50, help="likeliest tokens to draw from, 0 for all")
    add("--batch-size", type=int, default=256, help="reports written at once")
    add("--device", help="where the model runs, for instance cuda")
    add("--dtype", help="for instance bfloat16")
    args = parser.parse_args(argv)
    if args.data is None and args.labeler is not None:
        parser.error("--labeler judges reports of --data, which is not given")
    if args.images is not None and args.images < 2:
        parser.error(f"--images {args.images}: wanted some hundreds")
    return args


# %% Images, references, and who judges
def load_task(args: argparse.Namespace) -> ReportTask:
    """Images, references, and who judges."""
    n_images = args.images or (2400 if args.paper else 800)
    if args.data is None:
        return strip_task(n_images, args.seed)
    return file_task(
        args.data, n_images, args.classifier_images, args.labeler, args.max_side, args.seed
    )


# %% The model and the estimator
def build_sampler(task: ReportTask, args: argparse.Namespace):
    """Sets of reports, of which one is right; the draws are kept in a file."""
    import torch
    from transformers.utils import logging

    from sklearn_clm import ConformalSampler
    from sklearn_clm.caching import CachedGenerator
    from sklearn_clm.generators import TransformersGenerator
    from sklearn_clm.scoring import RougeL

    if args.model == str(CHECKPOINT):
        torch.set_num_threads(1)  # those of a model as small as this mostly wait for each other
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    args.output.mkdir(parents=True, exist_ok=True)
    generator = TransformersGenerator(
        args.model,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        batch_size=args.batch_size,
        device=args.device,
        dtype=args.dtype,
    )
    return ConformalSampler(
        CachedGenerator(generator, args.output / "report_generation.sqlite"),
        k_max=args.k_max,
        epsilon=args.epsilon,
        delta=args.delta,
        admission=task.admission,
        similarity=RougeL(use_stemmer=True),
        random_state=args.seed,
        verbose=int(sys.stderr.isatty()),
    )


# %% Scores of single sentences
def component_scores(task: ReportTask, sampler) -> dict:
    """The paper's three component scores."""
    return {
        "span likelihood": "span_likelihood",
        "classifier": task.train(sampler.generator_, sampler.k_max, sampler.seed_),
        "random": at_random,
    }


# %% The paper's experiment
def run_protocol(task: ReportTask, sampler, args: argparse.Namespace) -> dict:
    """Repeat the splits for sets and for sentences, print the tables, write the figures."""
    start = time.monotonic()
    data = sampler.collect(task.images, task.reports)
    print(
        f"{data.n_prompts:,} x {data.k_max} reports on {task.subject} drawn and judged after "
        f"{time.monotonic() - start:.0f} s: one is right for {data.admissible[:, 0].mean():.1%} "
        f"of the images, any of {data.k_max} for {data.admissible.any(axis=1).mean():.1%}",
        flush=True,
    )
    where = args.output, "report_generation"
    how_often = {"n_trials": args.trials, "seed": args.seed}
    report = evaluate_sets(sampler, data, *where, **how_often)
    report["components"] = evaluate_components(
        sampler,
        task.images,
        task.reports,
        component_scores(task, sampler),
        *where,
        **how_often,
        admission=task.sentence_admission,
        match=task.match,
    )
    print(f"Figures and tables are in {args.output}")
    return report


# %% One calibration, and new images
def demonstrate(task: ReportTask, sampler, args: argparse.Namespace) -> dict[str, float]:
    """Calibrate once, test on new images, show examples."""
    n = len(task.images) // 2
    images, reports = task.images[:n], task.reports[:n]
    new_images, new_reports = task.images[n:], task.reports[n:]

    print(f"Calibrating on {n:,} {task.subject}, {args.k_max} reports for each", flush=True)
    sets = sampler.fit_transform(images, reports)
    # all scores are calibrated on the very draws that the sampler was
    selectors = {
        name: build_selector(score, task, args).fit(sets, reports)
        for name, score in component_scores(task, sampler).items()
    }
    selector = selectors["classifier"]
    describe_calibration(sampler, selector)

    print(f"\nReading {len(new_images):,} new ones", flush=True)
    new_sets = sampler.predict(new_images)
    selected = {name: one.predict(new_sets) for name, one in selectors.items()}
    results = measure(sampler, selector, new_sets, selected["classifier"], new_reports)
    describe_test(sampler, selector, results)
    compare(selected, new_reports, task)

    page = args.output / "report_generation.html"
    text = write_page(sampler, selector, selected["classifier"][: args.show], new_reports, task)
    page.write_text(text, encoding="utf-8")
    figure = args.output / "report_generation.png"
    draw_figure(sampler, selectors, reports, task, args).savefig(figure, dpi=150)
    print(f"\nWrote {page} and {figure}")
    return results


def build_selector(component_score, task: ReportTask, args: argparse.Namespace):
    """Sentences of these reports, of which all are right."""
    from sklearn_clm import ComponentSelector

    return ComponentSelector(
        alpha=args.alpha,
        delta=args.delta,
        component_score=component_score,
        admission=task.sentence_admission,
        random_state=args.seed,
    )


# %% What was certified, and what came of it
def describe_calibration(sampler, selector) -> None:
    """Print what was certified."""
    low, high = sampler.achievable_epsilon_
    print(
        f"The first report is right for {1 - high:.0%} of these images, one of {sampler.k_max} "
        f"for {1 - low:.0%}"
    )
    print(f"lambda-hat: {sampler.lambda_hat_}")
    print(f"gamma-hat:  {selector.gamma_hat_:.3g}")


def measure(sampler, selector, sets, selected, reports) -> dict[str, float]:
    """What came of both guarantees on new images."""
    from sklearn_clm.metrics import component_loss, component_precision, set_coverage

    return {
        "coverage": float(set_coverage(reports, sets)),
        "set_size": float(sets.sizes.mean()),
        "samples": float(sets.n_samples.mean()),
        "component_coverage": 1.0 - component_loss(reports, selected),
        "component_count": float(selected.sizes.mean()),
        "component_precision": component_precision(reports, selected),
    }


def describe_test(sampler, selector, results: dict[str, float]) -> None:
    """Print it."""
    sets, sentences = promises(sampler, selector)
    print(
        f"A right report in the set:    {results['coverage']:6.1%} of images (promised: {sets}); "
        f"{results['set_size']:.1f} reports in a set, of {results['samples']:.1f} written"
    )
    print(
        f"All selected sentences right: {results['component_coverage']:6.1%} of images (promised: "
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
        f"Each promise holds with confidence {1 - sampler.delta:.0%} over the calibration images, "
        f"both at once with {1 - 2 * sampler.delta:.0%}."
    )


def compare(selected: dict, reports, task: ReportTask) -> None:
    """Print what each component score selects under the same promise."""
    from sklearn_clm.metrics import component_loss, component_recall

    print("\nComponent score   all right   sentences   of the reference covered")
    for name, sets in selected.items():
        covered = component_recall(reports, sets, match=task.match)
        print(
            f"{name:16s} {1 - component_loss(reports, sets):10.1%} {sets.sizes.mean():11.2f}"
            f" {covered:26.1%}"
        )


# %% A page of examples
def write_page(sampler, selector, selected, reports, task: ReportTask) -> str:
    """A page of example sets, the trusted sentences in bold."""
    sets, sentences = promises(sampler, selector)
    sections = [
        f"<section><h2>Image {i + 1}</h2>{one._repr_html_()}<p>A person wrote: "
        f"{html.escape(report)}<br>{verdict(one, report, task)}</p></section>"
        for i, (one, report) in enumerate(zip(selected, reports))
    ]
    subject = html.escape(task.subject)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Reports</title>'
        f"<style>{STYLE}</style><h1>Reports about {subject}</h1>"
        f"<p>Promised: a right report in the set, for {sets} of the images; all sentences in bold "
        f"right, for {sentences} of the images. {confidence(sampler)}</p>"
        f"{''.join(sections)}</html>"
    )


def verdict(one, report: str, task: ReportTask) -> str:
    """Which of the reports in the set are right, and which trusted sentences are not."""
    answer = one.prediction_set
    right = [
        str(draw + 1)
        for draw, response in zip(answer.indices, answer.responses)
        if task.admission(report, response)
    ]
    wrong = [sentence for sentence in one if not task.sentence_admission(report, sentence)]
    return (
        f"Right reports: {', '.join(right) or 'none'}. "
        f"Trusted sentences that are wrong: {html.escape(' '.join(wrong)) or 'none.'}"
    )


# %% A figure
def draw_figure(sampler, selectors: dict, reports, task: ReportTask, args: argparse.Namespace):
    """Loss, number and recall of selected sentences against alpha, over random splits."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.inspection import RiskCurveDisplay

    data = {name: selector.calibration_data_ for name, selector in selectors.items()}
    trials = component_trials(
        sampler, data, reports, n_trials=30, seed=args.seed, match=task.match, fraction=0.5
    )
    return RiskCurveDisplay.from_trials(trials).figure_


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        main()
