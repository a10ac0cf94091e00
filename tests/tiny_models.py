"""Tiny checkpoints with random weights, one for each kind of model, written to a directory.

Weights are drawn wide enough for the next-token distributions to be far from uniform.
"""

from pathlib import Path

import pytest

CORPUS = [
    "Q: What is Germany called in French? A: Allemagne",
    "Q: What is Japan called in German? A: Japan",
    "Q: What is the Czech Republic called in Spanish? A: República Checa",
    "The heart is enlarged. There is no effusion, and no edema.",
    "Das Herz ist groß. Es gibt keinen Erguss – und kein Ödem.",
    "日本語のテキスト。 한국어 텍스트. 中文文本。",
    "one two three four five six seven eight nine ten",
]
GPT2 = {"vocab_size": 320, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 1}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_level_tokenizer(vocab_size: int = 320):
    """Byte-level BPE, as GPT-2 and Llama 3 have it: characters may be split over tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def sentencepiece_tokenizer():
    """Unigram over words that begin with a space mark, as T5 has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [f"\N{LOWER ONE EIGHTH BLOCK}{word}" for text in CORPUS for word in text.split()]
    pieces = sorted({*words, *"".join(words), *(word[-2:] for word in words)})
    scores = [0.0, 0.0, -20.0, *(-9.0 / len(piece) for piece in pieces)]
    vocabulary = list(zip(["<pad>", "</s>", "<unk>", *pieces], scores))
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def llama(directory: Path, *, seed: int = 0, **config) -> str:
    """A Llama with a byte-level tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    tokenizer = byte_level_tokenizer()
    defaults = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.4,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": None,
    }
    model = LlamaForCausalLM(LlamaConfig(**{**defaults, **config}))
    return _save(directory, model, tokenizer)


def gpt2(directory: Path) -> str:
    """A GPT-2 with a byte-level tokenizer; its positions are learned and end at 128."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    model = GPT2LMHeadModel(GPT2Config(**GPT2, n_positions=128))
    return _save(directory, model, tokenizer)


def t5(directory: Path) -> str:
    """A T5 with a sentence-piece-like tokenizer."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = sentencepiece_tokenizer()
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    sizes |= {"vocab_size": len(tokenizer), "initializer_factor": 2.0}
    config = T5Config(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **sizes)
    return _save(directory, T5ForConditionalGeneration(config), tokenizer)


def vit_gpt2(directory: Path) -> str:
    """A ViT encoder for 16 x 16 images with a GPT-2 decoder."""
    import torch
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        VisionEncoderDecoderModel,
        ViTConfig,
        ViTImageProcessor,
        ViTModel,
    )

    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    sizes = {"hidden_size": 24, "intermediate_size": 48, "image_size": 16, "patch_size": 4}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4}
    encoder = ViTModel(ViTConfig(initializer_range=0.3, **sizes), add_pooling_layer=False)
    config = GPT2Config(**GPT2, n_positions=64, add_cross_attention=True, is_decoder=True)
    decoder = GPT2LMHeadModel(config)
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(directory)
    return _save(directory, model, tokenizer)


def _save(directory: Path, model, tokenizer) -> str:
    model.save_pretrained(directory, safe_serialization=True)
    tokenizer.save_pretrained(directory)
    return str(directory)


def _path(make):
    @pytest.fixture(scope="session", name=f"{make.__name__}_path")
    def path(tmp_path_factory) -> str:
        pytest.importorskip("transformers")
        return make(tmp_path_factory.mktemp(make.__name__))

    return path


llama_path, gpt2_path, t5_path, vit_gpt2_path = map(_path, (llama, gpt2, t5, vit_gpt2))
