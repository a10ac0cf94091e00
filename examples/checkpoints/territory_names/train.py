"""Train the language model that names territories: python train.py [--threads 1].

A character-level model of the Llama architecture learns the CLDR names of territories from the
(territory, language) pairs of the part "train". The pairs of the part "held_out", on which the
examples calibrate and test, are never read. Weights are stored in bfloat16.

It has 894,336 parameters, and is trained for 30 epochs.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from questions import LANGUAGES, Question, load_questions
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
WIDTH = 128
N_LAYERS = 4
N_HEADS = 4
OPENING = "Q: What is "
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
EPOCHS = 30
BATCH = 96  # questions in a step
LEARNING_RATE = 3e-3
DROPOUT = 0.1


def build_tokenizer(questions: list[Question]) -> PreTrainedTokenizerFast:
    """One token per character, and one for each fixed phrase of the questions."""
    closings = sorted({q.prompt[q.prompt.rindex(" called in ") :] for q in questions})
    characters = sorted({c for q in questions for text in (q.prompt, *q.answers) for c in text})
    vocabulary = [*SPECIAL, "\n", OPENING, *closings, *characters]
    tokenizer = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>")
    )
    phrases = "|".join(phrase.replace("?", "\\?") for phrase in [OPENING, *closings])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{phrases}|[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary.index("<s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama of less than a million parameters."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def add_dropout(model: LlamaForCausalLM) -> None:
    """Dropout on every residual branch, which the architecture itself does not have.

    One mask for all positions of a row: much cheaper to draw than a mask for each of them.
    """

    def drop(module, inputs, output):
        if not module.training:
            return output
        kept = torch.rand(output.shape[0], 1, output.shape[2], dtype=output.dtype) >= DROPOUT
        return output * (kept / (1 - DROPOUT)).to(output.dtype)

    branches = [model.model.embed_tokens]
    for layer in model.model.layers:
        branches += [layer.self_attn.o_proj, layer.mlp]
    for branch in branches:
        branch.register_forward_hook(drop)


def encode(questions: list[Question], tokenizer) -> list[tuple[list[int], list[list[int]]]]:
    """Token ids of each question and of each of its answers, the closing line break included."""

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    return [(ids(q.prompt), [ids(f" {answer}\n") for answer in q.answers]) for q in questions]


def epoch_batches(encoded, rng: np.random.Generator):
    """Yield (input ids, labels); a row holds one question, or several as in a few-shot prompt."""
    order = rng.permutation(len(encoded))
    rows, first = [], 0
    while first < len(order):
        n_shots = int(rng.choice([1, 2, 4, 6], p=[0.85, 0.06, 0.05, 0.04]))
        rows.append(order[first : first + n_shots])
        first += n_shots
    # rows of like length stand together, so that little is padding
    rows.sort(key=lambda row: sum(len(encoded[i][0]) + len(encoded[i][1][0]) for i in row))
    batches, batch, size = [], [], 0
    for row in rows:
        batch.append(row)
        size += len(row)
        if size >= BATCH:
            batches.append(batch)
            batch, size = [], 0
    batches += [batch] if batch else []
    for b in rng.permutation(len(batches)):
        yield collate([[encoded[i] for i in row] for row in batches[b]], rng)


def collate(rows, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of questions at the right; labels are -100 outside the answers."""
    texts, labels = [], []
    for row in rows:
        text, label = [SPECIAL.index("<s>")], [-100]
        for prompt, answers in row:
            answer = answers[rng.integers(len(answers))]
            text += prompt + answer
            label += [-100] * len(prompt) + answer
        texts.append(text)
        labels.append(label)
    width = max(map(len, texts))
    return (
        torch.tensor([text + [SPECIAL.index("<pad>")] * (width - len(text)) for text in texts]),
        torch.tensor([label + [-100] * (width - len(label)) for label in labels]),
    )


@torch.no_grad()
def loss_of(model, encoded) -> float:
    """Mean loss for each token of the answers."""
    model.eval()
    ids, labels = collate([[pair] for pair in encoded], np.random.default_rng(0))
    loss = float(model(input_ids=ids, labels=labels).loss)
    model.train()
    return loss


@torch.no_grad()
def accuracy(model, tokenizer, questions, *, n_draws: int = 20) -> tuple[float, float]:
    """How often a draw is right, and how often any of `n_draws`."""
    model.eval()
    right = []
    for first in range(0, len(questions), 128):
        chunk = questions[first : first + 128]
        prompts = tokenizer([q.prompt for q in chunk], return_tensors="pt", padding=True)
        output = model.generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            do_sample=True,
            top_k=0,
            num_return_sequences=n_draws,
            max_new_tokens=40,
            eos_token_id=tokenizer.convert_tokens_to_ids("\n"),
            pad_token_id=tokenizer.pad_token_id,
        )
        texts = tokenizer.batch_decode(output[:, prompts["input_ids"].shape[1] :])
        for i, question in enumerate(chunk):
            draws = texts[i * n_draws : (i + 1) * n_draws]
            right.append([text.split("\n")[0].strip() in question.answers for text in draws])
    model.train()
    return float(np.mean(right)), float(np.mean([any(row) for row in right]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the checkpoint")
    args = parser.parse_args()

    start = time.monotonic()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    questions, watched = load_questions("train"), load_questions("validation")
    tokenizer = build_tokenizer(questions)
    model = build_model(tokenizer)
    model.set_attn_implementation("eager")  # faster than the fused kernel on rows this short
    encoded, watched_encoded = encode(questions, tokenizer), encode(watched, tokenizer)
    print(
        f"{len(questions)} questions in {len(LANGUAGES)} languages, {len(tokenizer)} tokens, "
        f"{model.num_parameters():,} parameters"
    )

    add_dropout(model)
    # half the time of a step, even on a CPU
    step_model = torch.compile(model, dynamic=True) if args.compile else model
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.98),
        fused=True,
    )
    n_steps = args.epochs * sum(1 for _ in epoch_batches(encoded, np.random.default_rng(0)))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / 300, 0.5 * (1 + math.cos(math.pi * min(1, step / n_steps)))),
    )
    model.train()
    for epoch in range(args.epochs):
        losses = []
        for ids, labels in tqdm(epoch_batches(encoded, rng), desc=f"epoch {epoch}", leave=False):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = step_model(input_ids=ids, labels=labels).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        report = (
            f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, "
            f"on validation {loss_of(model, watched_encoded):.3f}"
        )
        if epoch % 10 == 9 or epoch == args.epochs - 1:
            one, twenty = accuracy(model, tokenizer, watched[::2])
            report += f", one draw right {one:.3f}, any of 20 {twenty:.3f}"
            save(model, tokenizer, args.output)
        print(f"{report} ({time.monotonic() - start:.0f} s)", flush=True)

    print(f"saved in {args.output} after {(time.monotonic() - start) / 60:.1f} minutes")


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write config.json, model.safetensors (bfloat16) and tokenizer files."""
    stored = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=stored)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
