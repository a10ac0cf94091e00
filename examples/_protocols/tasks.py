"""What the paper's tasks have in common: options, a model whose draws are kept, and files."""

import argparse
from pathlib import Path

__all__ = ["ADMISSIBLE", "ALMOST", "OUTPUT", "add_options", "cached_generator", "read_questions"]

ADMISSIBLE, ALMOST = 0.35, 0.4  # ROUGE-L of a response, and of a sentence
OUTPUT = Path(__file__).resolve().parents[1] / "output"


def add_options(
    parser: argparse.ArgumentParser,
    checkpoint: Path,
    *,
    max_new_tokens: int,
    temperature: float,
    batch_size: int,
) -> None:
    """Options of the model, of its draws and of the splits."""
    add = parser.add_argument
    add("--model", default=str(checkpoint), help="name or folder of a model")
    add("--trials", type=int, default=100, help="random splits")
    add("--k-max", type=int, default=20, help="draws for a prompt")
    add("--max-new-tokens", type=int, default=max_new_tokens)
    add("--temperature", type=float, default=temperature)
    add("--batch-size", type=int, default=batch_size, help="responses written at once")
    add("--device", help="where the model runs, for instance cuda")
    add("--dtype", help="for instance bfloat16")
    add("--seed", type=int, default=0)
    add("--output", type=Path, default=OUTPUT, help="where to write")


def cached_generator(args: argparse.Namespace, name: str, **options):
    """The model, whose draws are kept in a file of the output folder."""
    import torch
    from transformers.utils import logging

    from sklearn_clm.caching import CachedGenerator
    from sklearn_clm.generators import TransformersGenerator

    if Path(args.model).parent == OUTPUT.parent / "checkpoints":
        torch.set_num_threads(1)  # those of a model as small as these mostly wait for each other
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    args.output.mkdir(parents=True, exist_ok=True)
    generator = TransformersGenerator(
        args.model,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        batch_size=args.batch_size,
        device=args.device,
        dtype=args.dtype,
        **options,
    )
    return CachedGenerator(generator, args.output / f"{name}.sqlite")


def read_questions(path: Path, prompt: str = "prompt") -> tuple[list[str], list[list[str]]]:
    """Prompts and, for each, every reference that is right, from JSON lines."""
    import pandas as pd

    frame = pd.read_json(path, lines=True, dtype=False, convert_dates=False)
    references = [one if isinstance(one, list) else [one] for one in frame["reference"]]
    return frame[prompt].tolist(), references
