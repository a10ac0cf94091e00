"""Train the model that writes reports about strips of handwritten digits.

    python examples/checkpoints/digit_reports/train.py

A ViT encoder and a GPT-2 decoder (0.45 million parameters in all) learn from fresh strips of the
training half of scikit-learn's digits. On purpose the strips are damaged, so that even a good
reader cannot always tell the digits: the probabilities that the model gives to its sentences say
how legible each digit is. Writes the checkpoint beside this file (some minutes on two cores).
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from strips import (
    HEIGHT,
    N_DIGITS,
    WIDTH,
    WORDINGS,
    draw_strips,
    read_report,
    word_finding,
    write_report,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
)

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
HIDDEN = 80
MAX_TOKENS = 48


def build_tokenizer():
    """One token for each word with the space before it, so that text survives a round trip."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    sentences = [
        space + word_finding(position, digit, wording)
        for space in ("", " ")
        for position in range(N_DIGITS)
        for digit in range(10)
        for wording in range(len(WORDINGS))
    ]
    words = sorted({word for text in sentences for word, _ in split.pre_tokenize_str(text)})
    vocabulary = {word: i for i, word in enumerate([PAD, BOS, EOS, "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )


def build_model(tokenizer):
    """A small ViT encoder and a small GPT-2 decoder with cross-attention."""
    encoder = ViTModel(
        ViTConfig(
            image_size=(HEIGHT, N_DIGITS * WIDTH),
            patch_size=2,
            hidden_size=HIDDEN,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=4 * HIDDEN,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    decoder = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=MAX_TOKENS,
            n_embd=HIDDEN,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            is_decoder=True,
            add_cross_attention=True,
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    model.config.decoder_start_token_id = tokenizer.bos_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.eos_token_id = tokenizer.eos_token_id
    generation = model.generation_config
    generation.decoder_start_token_id = tokenizer.bos_token_id
    generation.bos_token_id = tokenizer.bos_token_id
    generation.pad_token_id = tokenizer.pad_token_id
    generation.eos_token_id = tokenizer.eos_token_id
    generation.max_length = MAX_TOKENS
    return model


def build_processor():
    """Pixels from [0, 255] to [-1, 1]; strips have the right size already."""
    return ViTImageProcessor(
        size={"height": HEIGHT, "width": N_DIGITS * WIDTH},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


def encode(texts, tokenizer):
    """Token ids that end with the end of sequence; padding is left out of the loss."""
    ids = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
    length = max(map(len, ids))
    return torch.tensor([row + [-100] * (length - len(row)) for row in ids])


def batch(size, part, seed, processor, tokenizer):
    """Pixels, token ids and true digits of fresh strips."""
    strips, labels = draw_strips(size, part=part, random_state=seed)
    rng = np.random.default_rng(seed + 1_000_000)
    reports = [write_report(digits, rng) for digits in labels]
    pixels = processor(strips, return_tensors="pt")["pixel_values"]
    return pixels, encode(reports, tokenizer), labels


@torch.no_grad()
def first_draw_accuracy(model, processor, tokenizer, n_strips=500):
    """Share of digits, and of whole reports, that one sample per unseen strip gets right."""
    pixels, _, labels = batch(n_strips, "unseen", 7, processor, tokenizer)
    model.eval()
    ids = model.generate(pixels, do_sample=True, top_k=0, max_length=MAX_TOKENS)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    model.train()
    right = np.array([read_report(text) for text in texts]) == labels
    return right.mean(), right.all(axis=1).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    tokenizer, processor = build_tokenizer(), build_processor()
    model = build_model(tokenizer).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(tokenizer)} tokens")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-3, total_steps=arguments.steps, pct_start=0.1
    )
    for step in range(1, arguments.steps + 1):
        pixels, ids, _ = batch(arguments.batch_size, "training", 1000 + step, processor, tokenizer)
        loss = model(pixel_values=pixels, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 1000 == 0 or step == arguments.steps:
            digits, reports = first_draw_accuracy(model, processor, tokenizer)
            print(
                f"step {step:5d}  loss {loss.item():.3f}  unseen strips: {digits:.3f} of digits, "
                f"{reports:.3f} of reports right at the first draw",
                flush=True,
            )
            model.save_pretrained(arguments.output, safe_serialization=True)
    tokenizer.save_pretrained(arguments.output)
    processor.save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
