"""Tiny random models of many architectures: teacher-forced log-probabilities, any batch."""

import copy

import pytest

from sklearn_clm.generators import TransformersGenerator

pytest.importorskip("transformers")
import torch
import transformers

from tests import tiny_models
from tests.generators.test_transformers import recorded_tokens, responses, teacher_forced

HEADER = "Q: What is Japan called in German? A: Japan\n"
PROMPTS = [HEADER + question for question in ("one two three four", "a", "what is it?")]
N_NEW = 9

TOKENS = {"vocab_size": 320, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": None}
SIZES = {"hidden_size": 32, "intermediate_size": 48}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**TOKENS, **SIZES, "num_key_value_heads": 2}
SLIDING = {**GROUPED, "head_dim": 8, "sliding_window": 6}
IN_DECODER = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4}
IN_DECODER |= {"decoder_ffn_dim": 48}
IN_ENCODER = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
ENCODER_DECODER = {**TOKENS, **IN_ENCODER, **IN_DECODER, "pad_token_id": 2}
ENCODER_DECODER |= {"decoder_start_token_id": 1, "forced_eos_token_id": None}
DECODER = {"vocab_size": 320, "eos_token_id": 1, "bos_token_id": 0, **IN_DECODER}
DECODER |= {"max_position_embeddings": 128}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"]}
LATENT = {
    **TOKENS,
    **SIZES,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}
LOCAL = {"attention_types": [[["global", "local"], 1]], "window_size": 6, "num_layers": 2}
EIGHT = {"n_layer": 2, "n_head": 4}

POSITIONS = {"max_position_embeddings": 128}
LED_POSITIONS = {"max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 128}
CHUNKED = {"intermediate_size_mlp": 48, "num_local_experts": 2, "attention_chunk_size": 8}
IN_BARTS_DECODER = {**DECODER, "is_decoder": True, "is_encoder_decoder": False}
MAMBA = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}

# model, arguments of its config, and whether rows of different length share a batch
ZOO = {
    "gpt_neo": ("GPTNeoForCausalLM", {**TOKENS, **LOCAL, "hidden_size": 32, "num_heads": 4}, True),
    "gemma3": ("Gemma3ForCausalLM", {**SLIDING, **WINDOWS}, True),
    "trocr": ("TrOCRForCausalLM", DECODER, False),
    "bart": ("BartForConditionalGeneration", {**ENCODER_DECODER, **POSITIONS}, False),
    "bart_decoder": ("BartForCausalLM", IN_BARTS_DECODER, False),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, True),
    "mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 6}, True),
    "phi3": ("Phi3ForCausalLM", GROUPED, True),
    "gemma2": ("Gemma2ForCausalLM", SLIDING, True),
    "llama4": ("Llama4ForCausalLM", {**GROUPED, "head_dim": 8, **CHUNKED}, True),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT, True),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 2}, True),
    "bloom": ("BloomForCausalLM", {**TOKENS, **EIGHT, "hidden_size": 32}, True),
    "mpt": (
        "MptForCausalLM",
        {**TOKENS, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 128},
        True,
    ),
    "falcon": ("FalconForCausalLM", {**TOKENS, **SIZES}, True),
    "falcon_alibi": ("FalconForCausalLM", {**TOKENS, **SIZES, "alibi": True}, True),
    "gpt_neox": ("GPTNeoXForCausalLM", {**TOKENS, **SIZES}, True),
    "gptj": (
        "GPTJForCausalLM",
        {**TOKENS, **EIGHT, "n_embd": 32, "rotary_dim": 4, "n_positions": 128},
        True,
    ),
    "mamba": ("MambaForCausalLM", {**TOKENS, **MAMBA}, False),
    "marian": ("MarianMTModel", {**ENCODER_DECODER, **POSITIONS}, False),
    "led": (
        "LEDForConditionalGeneration",
        {**ENCODER_DECODER, **LED_POSITIONS, "attention_window": 4},
        False,
    ),
}
EXPERTS = ("deepseek_v3", "mixtral")
QUICK = ("gpt_neo", "gemma3", "trocr", "bart", "mamba", "mistral")


@pytest.fixture
def doubles():
    """Double precision throughout: some models make their masks in the default one."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def random_model(name, arguments):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**arguments))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return model.double().eval()


@pytest.mark.usefixtures("doubles")
@pytest.mark.filterwarnings("ignore:.*only prompts of equal length")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ZOO]
)
def test_log_probabilities_are_teacher_forced_and_draws_the_same_in_any_batch(name):
    *parts, ragged = ZOO[name]
    model = random_model(*parts)
    if name in EXPERTS:
        # the default, a grouped product of matrices, takes no double precision
        model.set_experts_implementation("eager")
    tokenizer = tiny_models.byte_level_tokenizer()
    options = {"tokenizer": tokenizer, "max_new_tokens": N_NEW}
    generator = TransformersGenerator(model, batch_size=5, **options)
    rows = recorded_tokens(generator, PROMPTS, 3)
    assert generator._checkpoint._forward[1].ragged == ragged
    # a copy that has seen no other prompt
    alone = TransformersGenerator(copy.deepcopy(model), batch_size=1, **options)
    for prompt, row in zip(PROMPTS, rows):
        assert responses([[draw for draw, _ in row]]) == responses(alone.sample([prompt], 3))
        for draw, tokens in row:
            expected = teacher_forced(generator, prompt, tokens)
            assert draw.token_logprobs == pytest.approx(expected, abs=1e-5)


LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": 30,
    "short_factor": [1.0] * 4,
    "long_factor": [6.0] * 4,
}


def test_of_two_scales_of_positions_the_short_one_is_used():
    options = {"max_position_embeddings": 256, "original_max_position_embeddings": 30}
    model = random_model("Phi3ForCausalLM", {**GROUPED, **options, "rope_parameters": LONG_ROPE})
    tokenizer = tiny_models.byte_level_tokenizer()
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=20)
    header = "one two three four five "
    (drawn,) = generator.sample([header], 8)
    n_prompt = len(tokenizer(header)["input_ids"])
    assert max(draw.n_tokens for draw in drawn) == 30 - n_prompt
    with pytest.raises(ValueError, match=r"prompts\[0\] .* in the 30"):
        generator.sample([header + "one " * 9], 1)
