"""Train the small language model of the summarisation example: python train.py.

A model of the T5 architecture learns to write the summary line of a docstring from the name, the
arguments and the body below it, on the docstrings of the part "train". Those of the part
"held_out", on which the example calibrates and tests, are never read. Weights are stored in
bfloat16.
"""

import argparse
import copy
import math
import time
from pathlib import Path

import numpy as np
import torch
from docstrings import Docstring, load_docstrings
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

HERE = Path(__file__).resolve().parent
SPECIAL = ["<pad>", "</s>", "<unk>"]
VOCABULARY = 2048
MAX_SUMMARY = 48  # tokens
EPOCHS = 20
BATCH = 64
LEARNING_RATE = 3e-3
DROPOUT = 0.1
SMOOTHING = 0.05


def build_tokenizer(docstrings: list[Docstring]) -> PreTrainedTokenizerFast:
    """Pieces of words, learned from the texts that the model is trained on."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True)]
    )
    tokenizer.decoder = decoders.Metaspace()
    texts = [text for d in docstrings for text in (d.text, d.summary, d.summary)]
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=SPECIAL, limit_alphabet=160, show_progress=False
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", SPECIAL.index("</s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
    """A T5 of less than a million parameters."""
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=96,
        d_kv=24,
        num_heads=4,
        d_ff=256,
        num_layers=3,
        num_decoder_layers=3,
        relative_attention_num_buckets=16,
        relative_attention_max_distance=64,
        dropout_rate=DROPOUT,
        feed_forward_proj="relu",
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return T5ForConditionalGeneration(config)


def encode(docstrings: list[Docstring], tokenizer) -> list[tuple[list[int], list[int]]]:
    """Token ids of each text and its summary."""
    texts = tokenizer([d.text for d in docstrings])["input_ids"]
    summaries = tokenizer([d.summary for d in docstrings])["input_ids"]
    return [(text, summary[:MAX_SUMMARY]) for text, summary in zip(texts, summaries)]


def epoch_batches(encoded, rng: np.random.Generator):
    """Yield (input ids, labels) of texts of like length; a text may lose its end."""
    shortened = [
        (text[: rng.integers(len(text) // 2, len(text))] if rng.random() < 0.3 else text, summary)
        for text, summary in encoded
    ]
    order = rng.permutation(len(shortened))
    order = order[np.argsort([len(shortened[i][0]) // 8 for i in order], kind="stable")]
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    for b in rng.permutation(len(batches)):
        yield collate([shortened[i] for i in batches[b]])


def collate(pairs) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad at the right; labels are -100 where nothing is to be learned."""
    width, label_width = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
    pad = SPECIAL.index("<pad>")
    return (
        torch.tensor([text + [pad] * (width - len(text)) for text, _ in pairs]),
        torch.tensor([label + [-100] * (label_width - len(label)) for _, label in pairs]),
    )


def forward(model, ids: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Mean loss for each token."""
    mask = (ids != SPECIAL.index("<pad>")).long()
    logits = model(input_ids=ids, attention_mask=mask, labels=labels).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=smoothing
    )


@torch.no_grad()
def loss_of(model, encoded) -> float:
    """Mean loss for each token of the summaries."""
    model.eval()
    loss = float(forward(model, *collate(encoded), 0.0))
    model.train()
    return loss


@torch.no_grad()
def accuracy(model, tokenizer, docstrings, *, n_draws: int = 20) -> tuple[float, float]:
    """How often a draw reaches ROUGE-L 0.35 at temperature 0.7, and how often any of `n_draws`."""
    from rouge_score.rouge_scorer import RougeScorer

    model.eval()
    scorer = RougeScorer(["rougeL"])
    right = []
    for first in range(0, len(docstrings), 64):
        chunk = docstrings[first : first + 64]
        texts = tokenizer([d.text for d in chunk], return_tensors="pt", padding=True)
        output = model.generate(
            input_ids=texts["input_ids"],
            attention_mask=texts["attention_mask"],
            do_sample=True,
            temperature=0.7,
            top_k=50,
            num_return_sequences=n_draws,
            max_new_tokens=MAX_SUMMARY,
        )
        summaries = tokenizer.batch_decode(output, skip_special_tokens=True)
        for i, docstring in enumerate(chunk):
            draws = summaries[i * n_draws : (i + 1) * n_draws]
            right.append(
                [scorer.score(docstring.summary, d)["rougeL"].fmeasure >= 0.35 for d in draws]
            )
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
    docstrings, watched = load_docstrings("train"), load_docstrings("validation")
    tokenizer = build_tokenizer(docstrings)
    model = build_model(tokenizer)
    encoded, watched_encoded = encode(docstrings, tokenizer), encode(watched, tokenizer)
    print(
        f"{len(docstrings)} docstrings, {len(tokenizer)} tokens, "
        f"{model.num_parameters():,} parameters ({time.monotonic() - start:.0f} s)",
        flush=True,
    )

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.05, fused=True
    )
    n_steps = args.epochs * math.ceil(len(encoded) / BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / 300, 0.5 * (1 + math.cos(math.pi * min(1, step / n_steps)))),
    )
    # half the time of a step, even on a CPU
    step_model = torch.compile(model, dynamic=True) if args.compile else model
    model.train()
    for epoch in range(args.epochs):
        losses = []
        for ids, labels in tqdm(epoch_batches(encoded, rng), desc=f"epoch {epoch}", leave=False):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = forward(step_model, ids, labels, SMOOTHING)
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
            report += f", one draw reaches 0.35 {one:.3f}, any of 20 {twenty:.3f}"
            save(model, tokenizer, args.output)
        print(f"{report} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"saved in {args.output} after {(time.monotonic() - start) / 60:.1f} minutes")


def save(model: T5ForConditionalGeneration, tokenizer, folder: Path) -> None:
    """Write config.json, model.safetensors (bfloat16) and tokenizer files."""
    # a copy: its tied weights stay tied, and are written once
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
