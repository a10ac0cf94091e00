"""Models with their tokenizers: loading, sharing in a process, identity.

Imported where a model is wanted, since it needs `torch` and `transformers`.
"""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from sklearn_clm.generators._base import Template
from sklearn_clm.generators._draws import prompt_bytes
from sklearn_clm.generators.transformers._encoding import (
    EncodedPrompt,
    check_images,
    encode_texts,
    tokenizer_state,
)
from sklearn_clm.generators.transformers._forward import (
    CausalForward,
    EncoderDecoderForward,
    Forward,
    Prefix,
)
from sklearn_clm.generators.transformers._machine import checked_device, load_pretrained
from sklearn_clm.generators.transformers._text import Detokenizer, common_length

# A shorter prefix is not worth a forward pass of its own.
MIN_PREFIX = 16

_lock = threading.RLock()
_alive: weakref.WeakValueDictionary[object, Checkpoint] = weakref.WeakValueDictionary()
_latest: list[Checkpoint] = []  # holds the last one loaded, between one user and the next


def checkpoint_of(
    model: object,
    tokenizer: object,
    processor: object,
    *,
    device: str | torch.device | None,
    dtype: str | None,
    trust_remote_code: bool,
    model_kwargs: dict[str, object],
) -> Checkpoint:
    """The checkpoint, loaded once for all its users in this process."""
    model, tokenizer, processor = map(_expanded, (model, tokenizer, processor))
    name = model if isinstance(model, str) else None
    if name is None and (device is not None or dtype is not None or model_kwargs):
        raise ValueError(
            "device, dtype and model_kwargs are for a model given by its name; got a loaded "
            f"{type(model).__name__}: leave them at None and move or convert the model itself."
        )
    settings = (str(device), dtype, trust_remote_code, repr(sorted(model_kwargs.items())))
    key = _identity(model), _identity(tokenizer), _identity(processor), settings
    options: dict[str, object] = {"trust_remote_code": trust_remote_code}
    if "revision" in model_kwargs:
        options["revision"] = model_kwargs["revision"]
    with _lock:
        found = _alive.get(key)
        if found is None:
            if name is not None:
                model = _load_model(name, device, dtype, options, model_kwargs)
            tokenizer, processor = _companions(name, tokenizer, processor, model, options)
            found = _alive[key] = Checkpoint(model, tokenizer, processor)
            _latest[:] = [found]
        return found


def _expanded(value: object) -> object:
    """A name or path with the home directory in place of ``~``; anything else as it is."""
    return os.path.expanduser(value) if isinstance(value, (str, os.PathLike)) else value


def _identity(value: object) -> object:
    """A key that changes when a checkpoint directory is written anew."""
    if not isinstance(value, str):
        return None if value is None else id(value)
    path = Path(value)
    stats = []
    if path.is_dir():
        files = [*path.glob("*.json"), *path.glob("*.safetensors")]
        stats = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    return value, tuple(sorted(stats))


def _load_model(
    name: str,
    device: str | torch.device | None,
    dtype: str | None,
    options: dict[str, object],
    kwargs: dict[str, object],
) -> Any:
    # formats other than safetensors can run code when they are read
    for setting in ("use_safetensors", "trust_remote_code"):
        if setting in kwargs:
            raise ValueError(f"model_kwargs must not hold {setting!r}, got {kwargs!r} instead.")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = checked_device(device)
    if dtype is None:
        dtype = "float32" if device.type == "cpu" else "auto"
    config = load_pretrained(transformers.AutoConfig, name, "model", **options)
    kind: Any = transformers.AutoModelForCausalLM
    if config.model_type == "vision-encoder-decoder":
        kind = transformers.VisionEncoderDecoderModel
    elif config.is_encoder_decoder:
        kind = transformers.AutoModelForSeq2SeqLM
    options = {**options, "dtype": dtype, **kwargs, "use_safetensors": True}
    model = load_pretrained(kind, name, "model", **options)
    return model if "device_map" in kwargs else model.to(device)


def _companions(
    name: str | None, tokenizer: Any, processor: Any, model: Any, options: dict[str, object]
) -> tuple[Any, Any]:
    """Tokenizer and image processor of a model; the latter is None for text."""
    if isinstance(processor, str):
        kind = transformers.AutoImageProcessor
        processor = load_pretrained(kind, processor, "processor", **options)
    if tokenizer is None:
        tokenizer = getattr(processor, "tokenizer", name)
    if isinstance(tokenizer, str):
        source = tokenizer
        tokenizer = load_pretrained(transformers.AutoTokenizer, source, "tokenizer", **options)
        if not len(tokenizer):
            raise ValueError(
                f"tokenizer must have tokens, got {source!r}, which has none, instead."
            )
    if tokenizer is None:
        raise ValueError(
            f"tokenizer must be given beside a loaded {type(model).__name__}, got None instead."
        )
    if not _takes_images(model):
        return tokenizer, None
    if processor is None and name is not None:
        with suppress(ValueError):  # pixel values may come from preprocess
            kind = transformers.AutoImageProcessor
            processor = load_pretrained(kind, name, "processor", **options)
    return tokenizer, getattr(processor, "image_processor", processor)


def _takes_images(model: object) -> bool:
    return getattr(model, "main_input_name", "input_ids") == "pixel_values"


class Checkpoint:
    """A loaded model with its tokenizer, image processor, and what decoding asks of them."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any):
        if not (hasattr(model, "can_generate") and model.can_generate()):
            raise ValueError(
                f"model is a {type(model).__name__}, which cannot generate text; wanted a causal, "
                "encoder-decoder or vision-encoder-decoder language model with its head, or its "
                "name."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor
        self.takes_images = _takes_images(model)
        self.detokenizer = Detokenizer(tokenizer)
        self.max_positions = _max_positions(model.config.get_text_config(decoder=True))
        self.prefix: Prefix | None = None
        self._prefix_version: object = None
        self._forward: Forward | None = None
        self._digest: tuple[object, str] | None = None

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a response."""
        sources = (self.model.generation_config, self.model.config, self.tokenizer)
        return frozenset(_as_list(_first_of("eos_token_id", *sources)))

    def encode(
        self,
        prompts: dict[int, object],
        template: Template,
        preprocess: Callable[..., object] | None,
    ) -> list[EncodedPrompt]:
        """Prompts, given by their positions, as the model takes them."""
        keys = [prompt_bytes(prompt) for prompt in prompts.values()]
        if self.takes_images:
            images = [p if preprocess is None else preprocess(p) for p in prompts.values()]
            check_images(dict(zip(prompts, images)), type(self.model).__name__)
            return [EncodedPrompt(key, image=image) for key, image in zip(keys, images)]
        n_tokens = self.model.get_input_embeddings().num_embeddings
        texts = encode_texts(prompts, self.tokenizer, template, n_tokens, self.max_positions)
        return [EncodedPrompt(key, ids) for key, ids in zip(keys, texts)]

    def forward(self, prompt: EncodedPrompt) -> Forward:
        """The forward passes, which are chosen by a look at the model with a first prompt."""
        known = self._forward
        if known is not None and list(known.start_ids) == self.start_ids:
            return known
        forward: Forward
        if self.has_encoder:
            pixel_values = self.pixel_values if self.takes_images else None
            forward = EncoderDecoderForward(self.model, self.start_ids, pixel_values)
        else:
            forward = CausalForward(self.model)
        with torch.inference_mode():
            forward.check(prompt)
        if not (self.has_encoder or forward.ragged):
            warnings.warn(
                f"{type(self.model).__name__} gives a response other probabilities where prompts "
                "of different length share a batch, or keeps no keys and values that can be "
                "copied: only prompts of equal length are decoded together, which is slower.",
                UserWarning,
                stacklevel=3,
            )
        self._forward = forward
        return forward

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder reads the prompt, and a decoder writes the response."""
        return bool(self.model.config.is_encoder_decoder or self.takes_images)

    @property
    def start_ids(self) -> list[int]:
        """What a response begins with where an encoder reads the prompt; it is not generated."""
        if not self.has_encoder:
            return []
        config = self.model.config
        sources = (self.model.generation_config, config, getattr(config, "decoder", None))
        start = _first_of("decoder_start_token_id", *sources)
        if start is None:
            start = _first_of("bos_token_id", *sources)
        if start is None:
            raise ValueError(
                f"model: the config of {type(self.model).__name__} names no "
                "decoder_start_token_id; set it in the model's generation_config."
            )
        # a language code, for instance, which generation is made to begin with
        return [*_as_list(start), *_as_list(self.model.generation_config.forced_bos_token_id)]

    def forget_outdated_prefix(self) -> None:
        """Drop the prefix that is kept from earlier calls if the model is no longer the same."""
        version = self._version()
        if version != self._prefix_version:
            self.prefix = None
            self._prefix_version = version

    def shared_prefix(self, prompts: Sequence[EncodedPrompt]) -> tuple[Prefix | None, int]:
        """What prompts begin with, as far as it is worth it, and the tokens computed for it."""
        forward = self._forward
        if not isinstance(forward, CausalForward) or forward.layout is None:
            return None, 0
        if max(len(prompt.ids) for prompt in prompts) > forward.long_after:
            return None, 0  # a prefix by itself is a short row
        first = min(prompts, key=lambda prompt: prompt.ids).ids
        last = max(prompts, key=lambda prompt: prompt.ids).ids
        # the last token of a prompt is always run, for the logits of the next
        shared = min(common_length(first, last), min(len(prompt.ids) for prompt in prompts) - 1)
        known = self.prefix
        have = 0 if known is None else min(common_length(known.ids, first), shared)
        if len(prompts) * (shared - have) > shared >= MIN_PREFIX and len(prompts) > 1:
            self.prefix = new = forward.new_prefix(first[:shared])
            return new, shared
        if known is None or have < MIN_PREFIX:
            return None, 0
        return known.first(have), 0

    def pixel_values(self, images: Sequence[object]) -> Tensor:
        """Pixel values of images, as the model takes them."""
        if self.processor is not None:
            pixels = self.processor(images=list(images), return_tensors="pt")["pixel_values"]
        else:
            try:
                pixels = torch.stack([torch.as_tensor(image) for image in images])
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(
                    "processor=None: without an image processor, preprocess must turn each prompt "
                    f"into pixel values of shape (channels, height, width) ({error})."
                ) from error
        parameter = next(self.model.parameters())
        return pixels.to(parameter.device, parameter.dtype)

    @property
    def is_exact(self) -> bool:
        """Whether rounding is small enough to tell which tokens it could change."""
        return self.model.dtype in (torch.float32, torch.float64)

    def weights_digest(self) -> str:
        """Digest of the weights as loaded."""
        version = self._version()
        if self._digest is None or self._digest[0] != version:
            digest = hashlib.blake2b(digest_size=16)
            for name, tensor in sorted(self.model.state_dict().items()):
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
                flat = tensor.detach().cpu().contiguous().reshape(-1)
                digest.update(flat.view(torch.uint8).numpy().data)
            self._digest = version, digest.hexdigest()
        return self._digest[1]

    def _version(self) -> object:
        """What changes when the weights do, or which adapters are switched on."""
        # weights written in place, by training for instance, carry a new version; through
        # `.data`, as adapters are merged, they do not: so look at a few of each
        weights = [
            (name, tensor.data_ptr(), tensor._version, _a_few(tensor))
            for name, tensor in sorted(self.model.state_dict().items())
        ]
        return weights, self._adapters()

    def _adapters(self) -> list[tuple[str, str]]:
        """Switches of adapters, which are no weights; by the names that PEFT gives them."""
        names = ("_active_adapter", "_disable_adapters", "scaling")
        return [
            (name, repr([vars(module)[key] for key in names if key in vars(module)]))
            for name, module in self.model.named_modules()
            if "_active_adapter" in vars(module)
        ]

    def description(self) -> dict[str, object]:
        """Everything but the sampling parameters that draws depend on, serialisable."""
        described: dict[str, object] = {
            "weights": self.weights_digest(),
            "config": _plain_config(self.model.config.to_dict()),
            "eos": sorted(self.eos_ids),
            # the language to translate into, for instance
            "start": self.start_ids,
            "tokenizer": tokenizer_state(self.tokenizer),
            "processor": repr(sorted(self.processor.to_dict().items())) if self.processor else None,
        }
        adapters = self._adapters()
        return {**described, "adapters": adapters} if adapters else described


def _a_few(tensor: Tensor) -> bytes:
    """Some numbers of a tensor."""
    flat = tensor.detach().reshape(-1)
    return bytes(flat[:: max(1, len(flat) // 8)][:8].cpu().double().numpy().tobytes())


def _plain_config(config: dict[str, object]) -> str:
    """The parts of a config that shape the model's output."""
    incidental = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}

    def plain(value: object) -> object:
        if isinstance(value, dict):
            kept = {key: plain(item) for key, item in value.items() if key not in incidental}
            return sorted(kept.items(), key=str)
        return value

    return repr(plain(config))


def _max_positions(config: object) -> int | None:
    limit = getattr(config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def _first_of(name: str, *sources: object) -> Any:
    values = (getattr(source, name, None) for source in sources)
    return next((value for value in values if value is not None), None)


def _as_list(ids: Any) -> list[int]:
    if ids is None:
        return []
    return [int(i) for i in ids] if isinstance(ids, (list, tuple)) else [int(ids)]
