"""The paper's question answering experiment (section 6), on a laptop or with a model of yours.

    python examples/open_domain_qa.py
    python examples/open_domain_qa.py --model meta-llama/Llama-2-13b-hf --data triviaqa.jsonl

Every question stands behind the same few examples (the few-shot header, which the model runs
through once for all questions). K = 20 answers are drawn for each question, once: they are kept in
a file, and a second run draws none. Then many random splits into calibration and test compare
FIRST-K, FIRST-K+REJECT, MAX and SUM, as in the paper. As in the authors' scripts, an answer ends
before its first full stop, comma or line break, so do the aliases, and an answer is right if it
equals an alias after normalisation (case, articles, punctuation, white space).

Without --model and --data, the small Llama model beside this script answers questions about the
names of territories. A file of --data has one JSON object with "prompt" (ending in "A:", say) and
"reference" (one text, or a list of aliases) on each line; its first lines become the header.
"""

import argparse
from pathlib import Path

import numpy as np
from _protocols.paper_protocol import evaluate_sets
from _protocols.tasks import add_options, cached_generator, read_questions

CHECKPOINT = Path(__file__).resolve().parent / "checkpoints" / "territory_names"
STOP = [".", ",", "\n"]


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Draw, judge, repeat the splits, print the tables, write the figures."""
    args = parse(argv)
    header, prompts, references = load_data(args)
    print(f"{len(prompts):,} questions, each behind the same {args.shots}-shot header:\n{header}")

    sampler = build_sampler(args, header)
    return evaluate_sets(
        sampler,
        prompts,
        references,
        args.output,
        "open_domain_qa",
        n_trials=args.trials,
        seed=args.seed,
    )


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, CHECKPOINT, max_new_tokens=40, temperature=0.8, batch_size=512)
    parser.add_argument("--data", type=Path, help="JSON lines with prompt and reference")
    parser.add_argument("--shots", type=int, default=4, help="examples in the header")
    parser.add_argument("--questions", type=int, default=2400, help="how many to use at most")
    parser.add_argument("--top-k", type=int, default=50, help="likeliest tokens to draw from")
    parser.add_argument("--stop", nargs="*", default=STOP, help="strings that end an answer")
    return parser.parse_args(argv)


# %% Questions behind a header of examples
def load_data(args: argparse.Namespace) -> tuple[str, list[str], list[list[str]]]:
    """Header of examples, prompts and their references; no example is among the prompts."""
    rng = np.random.default_rng(args.seed)
    if args.data is None:
        from checkpoints.territory_names.questions import load_questions

        shown = load_questions("train")
        examples = [shown[i] for i in rng.choice(len(shown), args.shots, replace=False)]
        header = "".join(f"{q.prompt} {q.answers[0]}\n" for q in examples)
        asked = load_questions("held_out")
        prompts, references = [q.prompt for q in asked], [list(q.answers) for q in asked]
    else:
        prompts, references = read_questions(args.data)
        header = "".join(
            f"{prompt} {aliases[0]}\n"
            for prompt, aliases in zip(prompts[: args.shots], references[: args.shots])
        )
        prompts, references = prompts[args.shots :], references[args.shots :]
    chosen = rng.permutation(len(prompts))[: args.questions]
    cut = [[first_part(alias, args.stop) for alias in references[i]] for i in chosen]
    return header, [prompts[i] for i in chosen], cut


def first_part(text: str, stop: list[str]) -> str:
    """The text before the first of the strings that end an answer; all of it if that is empty."""
    ends = [text.find(one) for one in stop if one in text]
    return text[: min(ends)] if ends and min(ends) > 0 else text


# %% The model and the estimator
def build_sampler(args: argparse.Namespace, header: str):
    """The estimator; its draws are kept in a file of the output folder."""
    from sklearn_clm import ConformalSampler

    template = header + "{prompt}"
    return ConformalSampler(
        cached_generator(
            args, "open_domain_qa", prompt_template=template, top_k=args.top_k, stop=args.stop
        ),
        k_max=args.k_max,
        admission="exact_match",
        random_state=args.seed,
        verbose=1,
    )


if __name__ == "__main__":
    main()
