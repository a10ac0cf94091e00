r"""The paper's radiology task in small: reports about images, and their sentences (section 6).

    python examples/report_generation.py
    python examples/report_generation.py --model cxr-vit-gpt2 --data mimic_cxr.jsonl \
        --labeler chexbert_labels:read --max-new-tokens 150

An image is a strip of four handwritten digits, a side of some of them torn off; a ViT + GPT-2 model
that lies beside this script writes a report about it, one sentence for each digit, worded at will.
A report is right if all four digits are, as a labeller reads them; a sentence, if it states the
right digit. None of the digits has been seen in training. Many random splits into calibration and
test compare FIRST-K, FIRST-K+REJECT, MAX and SUM, and then three scores of single sentences: the
likelihood of the sentence, a classifier that is trained on images of its own, and a random number.
The reports drawn are kept in a file, and a second run draws none.

A file of --data has one JSON object with "image" (a path, relative to the file) and "reference"
(the report of a person) on each line. A report is then right if its ROUGE-L with the reference is
at least 0.35; or, with --labeler, if the labeller gives it the labels that it gives the reference,
as the paper does with CheXbert. A sentence is right if its ROUGE-L with some sentence of the
reference is at least 0.4. All ROUGE-L here stems words first (Porter), as in the authors' scripts,
the similarity of two reports included. A part of the images trains the classifier of sentences, on
8 x 8 grey pixels and the words of the sentence.
"""

import argparse
import sys
import warnings
from pathlib import Path

from _protocols.paper_protocol import evaluate_components, evaluate_sets
from _protocols.report_tasks import ReportTask, file_task, strip_task
from _protocols.tasks import add_options, cached_generator

CHECKPOINT = Path(__file__).resolve().parent / "checkpoints" / "digit_reports"


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Draw, judge, repeat the splits, print the tables, write the figures."""
    args = parse(argv)
    task = load_task(args)
    sampler = build_sampler(task, args)
    where = task.images, task.reports, args.output, "report_generation"
    how_often = {"n_trials": args.trials, "seed": args.seed}
    report = evaluate_sets(sampler, *where, **how_often)
    report["components"] = evaluate_components(
        sampler,
        *where,
        task.train(sampler.generator_, sampler.k_max, sampler.seed_),
        **how_often,
        admission=task.sentence_admission,
        match=task.match,
    )
    return report


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, CHECKPOINT, max_new_tokens=47, temperature=1.0, batch_size=256)
    add = parser.add_argument
    add("--images", type=int, default=2400, help="how many to use at most")
    add("--top-k", type=int, default=50, help="likeliest tokens to draw from, 0 for all")
    add("--data", type=Path, help="JSON lines with image and reference")
    add("--labeler", metavar="MODULE:FUNCTION", help="from a report to its labels")
    add("--classifier-images", type=int, default=600, help="to train the classifier on")
    add("--max-side", type=int, default=384, help="pixels to which larger images are shrunk")
    args = parser.parse_args(argv)
    if args.data is None and args.labeler is not None:
        parser.error("--labeler judges reports of --data, which is not given")
    return args


# %% Images, references, and who judges
def load_task(args: argparse.Namespace) -> ReportTask:
    """Images, references, and who judges."""
    if args.data is None:
        return strip_task(args.images, args.seed)
    return file_task(
        args.data, args.images, args.classifier_images, args.labeler, args.max_side, args.seed
    )


# %% The model and the estimator
def build_sampler(task: ReportTask, args: argparse.Namespace):
    """Sets of reports, of which one is right; the draws are kept in a file."""
    from sklearn_clm import ConformalSampler
    from sklearn_clm.scoring import RougeL

    return ConformalSampler(
        cached_generator(args, "report_generation", top_k=args.top_k),
        k_max=args.k_max,
        admission=task.admission,
        similarity=RougeL(use_stemmer=True),
        random_state=args.seed,
        verbose=int(sys.stderr.isatty()),
    )


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        main()
