"""Models with their tokenizers: loading, sharing in a process, identity."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor

from sklearn_clm.generators.draws import prompt_bytes
from sklearn_clm.generators.identity import tokenizer_options, tokenizer_state
from sklearn_clm.generators.prompts import Template
from sklearn_clm.generators.transformers._ahead import StepTimes
from sklearn_clm.generators.transformers._forward import (
    CausalForward,
    EncoderDecoderForward,
    Forward,
)
from sklearn_clm.generators.transformers._text import Detokenizer, EncodedPrompt, encode_text

_lock = threading.RLock()
_alive: weakref.WeakValueDictionary[object, Checkpoint] = weakref.WeakValueDictionary()
_latest: list[Checkpoint] = []  # holds the last one loaded, between one user and the next


class Loading(Protocol):
    """The parameters of a generator that say what is loaded."""

    model: Any
    tokenizer: Any
    processor: Any
    device: str | torch.device | None
    dtype: str | None
    trust_remote_code: bool
    model_kwargs: dict[str, Any] | None


def checkpoint_of(generator: Loading) -> Checkpoint:
    """The checkpoint, loaded once in this process."""
    settings = (generator.device, generator.dtype, generator.trust_remote_code)
    parts = (generator.model, generator.tokenizer, generator.processor)
    key = (*map(_identity, parts), repr(settings), repr(generator.model_kwargs))
    with _lock:
        checkpoint = _alive.get(key)
        if checkpoint is None:
            checkpoint = _alive[key] = Checkpoint(*_loaded(generator), made_from=parts)
            # clones of an estimator come and go between two fits: the model must not be loaded for
            # each
            _latest[:] = [checkpoint]
        return checkpoint


def _identity(value: object) -> object:
    """A key that changes with the files of a checkpoint."""
    if not isinstance(value, (str, os.PathLike)):
        return id(value)
    patterns = ("*.json", "*.safetensors", "*.gguf")
    files = [file for pattern in patterns for file in Path(value).glob(pattern)]
    times = sorted((str(file), file.stat().st_mtime_ns) for file in files)
    return str(value), tuple(times)


def _loaded(generator: Loading) -> tuple[Any, Any, Any]:
    """A model, its tokenizer, and its image processor if any."""
    model = generator.model
    tokenizer = generator.tokenizer
    processor = generator.processor
    images: Any = transformers.AutoImageProcessor
    kwargs = generator.model_kwargs or {}
    options: dict[str, Any] = {"trust_remote_code": generator.trust_remote_code}
    # a revision is pinned by model_kwargs, where the user wants it
    if "revision" in kwargs:
        options["revision"] = kwargs["revision"]

    name = model if isinstance(model, (str, os.PathLike)) else None
    # a GGUF file holds config and tokenizer beside the weights
    in_one_file = {key: value for key, value in kwargs.items() if key == "gguf_file"}
    if name is not None:
        model = _named_model(name, generator, {**options, **in_one_file})
    if isinstance(processor, (str, os.PathLike)):
        processor = images.from_pretrained(processor, **options)

    if tokenizer is None:
        tokenizer = getattr(processor, "tokenizer", name)
        options |= in_one_file
    if tokenizer is None:
        raise ValueError("tokenizer must be given beside a loaded model, got None instead.")
    if isinstance(tokenizer, (str, os.PathLike)):
        tokens = transformers.AutoTokenizer
        tokenizer = tokens.from_pretrained(tokenizer, **options)  # nosec B615

    if model.main_input_name != "pixel_values":
        return model, tokenizer, None
    if processor is None and name is not None:
        with suppress(OSError, ValueError):  # pixel values may come from preprocess
            processor = images.from_pretrained(name, **options)
    return model, tokenizer, getattr(processor, "image_processor", processor)


def _named_model(name: str | os.PathLike[str], generator: Loading, options: dict[str, Any]) -> Any:
    """The model of a name or path, on its device."""
    kwargs = generator.model_kwargs or {}
    has_gpu = torch.cuda.is_available()
    device = torch.device(generator.device or ("cuda" if has_gpu else "cpu"))
    # in single precision on a CPU, since few kernels there know lower ones
    dtype = generator.dtype or ("float32" if device.type == "cpu" else "auto")
    config = transformers.AutoConfig.from_pretrained(name, **options)  # nosec B615
    kind: Any = transformers.AutoModelForCausalLM
    if config.model_type == "vision-encoder-decoder":
        kind = transformers.VisionEncoderDecoderModel
    elif config.is_encoder_decoder:
        kind = transformers.AutoModelForSeq2SeqLM
    # formats other than safetensors (and GGUF) can run code when they are read
    settings = {**options, "dtype": dtype, **kwargs, "use_safetensors": True}
    model = kind.from_pretrained(name, **settings)
    return model if "device_map" in kwargs else model.to(device)


class Checkpoint:
    """A loaded model with its tokenizer and image processor."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any, *, made_from: object = None):
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor
        self._made_from = made_from  # kept: the address of one that is gone may be another's
        self.detokenizer = Detokenizer(tokenizer)
        config = model.config.get_text_config(decoder=True)
        limit = getattr(config, "max_position_embeddings", None) or -1
        self.max_positions = limit if limit > 0 else math.inf
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            # longer rows would turn all tokens of the rows beside them by other angles
            self.max_positions = rope["original_max_position_embeddings"]
        self.step_times = StepTimes()
        self._version: tuple[object, object] = (None, None)  # what was seen, and its mark
        self._forward: tuple[object, Forward] | None = None
        self._digest: tuple[object, str] | None = None

    @property
    def takes_images(self) -> bool:
        """Whether prompts are images."""
        return bool(self.model.main_input_name == "pixel_values")

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder reads the prompt."""
        return bool(self.model.config.is_encoder_decoder or self.takes_images)

    @property
    def eos_ids(self) -> list[int]:
        """Tokens that end a response."""
        ids = self.model.generation_config.eos_token_id
        return _token_ids(self.tokenizer.eos_token_id if ids is None else ids)

    @property
    def start_ids(self) -> list[int]:
        """Tokens that a decoder is given before the response."""
        if not self.has_encoder:
            return []
        config = self.model.generation_config
        start = config.decoder_start_token_id
        start = _token_ids(config.bos_token_id if start is None else start)
        if not start:
            raise ValueError(
                f"model must have a decoder_start_token_id in its generation_config, got a "
                f"{type(self.model).__name__} without one instead."
            )
        # a language code, for instance, which generation is made to begin with
        return start + _token_ids(config.forced_bos_token_id)

    @property
    def version(self) -> object:
        """Another object once the model was changed in place.

        That is weights, adapters, settings, the chat template, special tokens, the size of the
        vocabulary, and what stands before and behind it in a tokenizer.
        """
        weights = [
            (name, tensor.data_ptr(), tensor._version)
            for name, tensor in sorted(self.model.state_dict().items())
        ]
        tokenizer = self.tokenizer
        seen = [weights, self._settings(), tokenizer_options(tokenizer), len(tokenizer)]
        if self._version[0] != seen:
            self._version = seen, object()
        return self._version[1]

    def encode(
        self,
        prompt: object,
        name: str,
        template: Template,
        preprocess: Callable[..., object] | None,
    ) -> EncodedPrompt:
        """A prompt as the model takes it; errors say `name`."""
        key = prompt_bytes(prompt)
        if self.takes_images:
            return EncodedPrompt(key, image=prompt if preprocess is None else preprocess(prompt))
        ids = encode_text(prompt, name, self.tokenizer, template, self.max_positions)
        return EncodedPrompt(key, ids)

    def pixel_values(self, images: Sequence[Any]) -> Tensor:
        """Pixel values of images, as the model takes them."""
        if self.processor is not None:
            pixels = self.processor(images=list(images), return_tensors="pt")["pixel_values"]
        else:
            pixels = torch.stack([torch.as_tensor(image) for image in images])
        return pixels.to(self.model.device, self.model.dtype)

    def forward(self, prompt: EncodedPrompt) -> Forward:
        """The forward passes that fit the model."""
        version = self.version
        if self._forward is not None and self._forward[0] is version:
            return self._forward[1]

        forward: Forward
        if self.has_encoder:
            pixel_values = self.pixel_values if self.takes_images else None
            forward = EncoderDecoderForward(self.model, self.start_ids, pixel_values)
        else:
            forward = CausalForward(self.model)

        with torch.inference_mode():
            # what a model does with padding and caches is tried: architectures are too many for a
            # list
            forward.check(prompt)
        if not (self.has_encoder or forward.ragged):
            warnings.warn(
                f"{type(self.model).__name__} gives a response other probabilities where prompts "
                "of different length share a batch, or keeps no keys and values that can be "
                "copied: only prompts of equal length are decoded together, which is slower.",
                UserWarning,
                stacklevel=3,
            )
        self._forward = version, forward
        return forward

    def weights_digest(self) -> str:
        """Digest of the weights as loaded."""
        version = self.version
        if self._digest is None or self._digest[0] is not version:
            digest = hashlib.blake2b(digest_size=16)
            # as loaded: a checkpoint of the same name may have changed, or be quantised
            for name, tensor in sorted(self.model.state_dict().items()):
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
                flat = tensor.detach().cpu().contiguous().reshape(-1)
                digest.update(flat.view(torch.uint8).numpy().data)
            self._digest = version, digest.hexdigest()
        return self._digest[1]

    def description(self) -> dict[str, object]:
        """Everything but the sampling parameters that draws depend on, serialisable."""
        return {
            "weights": self.weights_digest(),
            **self._settings(),
            "tokenizer": tokenizer_state(self.tokenizer),
        }

    def _settings(self) -> dict[str, object]:
        """What is decided beside weights and tokenizer."""
        adapters = self._adapters()
        return {
            "config": repr(_decisive(self.model.config.to_dict())),
            "eos": sorted(set(self.eos_ids)),
            # the language to translate into, for instance
            "start": self.start_ids,
            "processor": repr(sorted(self.processor.to_dict().items())) if self.processor else None,
            **({"adapters": adapters} if adapters else {}),
        }

    def _adapters(self) -> list[object]:
        """The adapters of PEFT in use, and their scales.

        Adapters are switched without any change of the weights, which hold all of them.
        """
        tuners = sys.modules.get("peft.tuners.tuners_utils")
        if tuners is None:
            return []
        adapters: list[object] = []
        for name, layer in self.model.named_modules():
            if isinstance(layer, tuners.BaseTunerLayer):
                scales = str(getattr(layer, "scaling", None))
                adapters.append([name, [*layer.active_adapters], layer.disable_adapters, scales])
        return adapters


def _decisive(config: object) -> object:
    """The parts of a config that shape the model's output."""
    # the same weights under another name, or of another version of the library, draw alike
    incidental = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
    if not isinstance(config, dict):
        return config
    kept = {key: _decisive(item) for key, item in config.items() if key not in incidental}
    return sorted(kept.items(), key=str)


def _token_ids(ids: Any) -> list[int]:
    if ids is None:
        return []
    return [int(i) for i in ids] if isinstance(ids, (list, tuple)) else [int(ids)]
