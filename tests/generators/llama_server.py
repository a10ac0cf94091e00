"""A llama.cpp server on this machine, for a Llama checkpoint that is written as GGUF first."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np


def write_gguf(checkpoint, path):
    """Write a Llama checkpoint with a byte-level tokenizer, in 32-bit floats."""
    import gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, tokenizer)
    for name, array in named_tensors(model):
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, tokenizer):
    import json

    import gguf

    description = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    special = {tokenizer.bos_token, tokenizer.eos_token}
    kinds = [
        gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL
        for token in vocabulary
    ]
    merges = [m if isinstance(m, str) else " ".join(m) for m in description["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def named_tensors(model):
    """Weights under their GGUF names; rotary dimensions in llama.cpp's order."""
    config = model.config
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    yield "output_norm.weight", weights["model.norm.weight"]
    yield "output.weight", weights["lm_head.weight"]
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    n_heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for name, theirs in parts.items():
            array = weights[f"model.layers.{layer}.{theirs}.weight"]
            if name in n_heads:
                array = interleaved(array, n_heads[name])
            yield f"blk.{layer}.{name}.weight", np.ascontiguousarray(array)


def interleaved(array, n_heads):
    """Rows of each head from (first halves, second halves) to pairs."""
    rows, columns = array.shape
    halves = array.reshape(n_heads, 2, rows // n_heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


@contextlib.contextmanager
def llama_server(gguf_path, log):
    """Address of a server that has loaded the file."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "model": gguf_path,
        "model_alias": "tiny",
        "host": "127.0.0.1",
        "port": port,
        "logits_all": "true",
        "n_ctx": 256,
        "n_threads": 1,
        "n_threads_batch": 1,
        "type_k": 0,
        "type_v": 0,
        "interrupt_requests": "false",
        "verbose": "false",
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "llama_cpp.server", *arguments], stdout=output, stderr=output
        )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        wait_for(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_for(url, process, log, seconds=60):
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{url}/models", timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"the server does not answer:\n{log.read_text()}")
