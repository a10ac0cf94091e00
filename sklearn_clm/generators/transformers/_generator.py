"""Draws from Hugging Face checkpoints."""

from __future__ import annotations

import copy
import os
import pickle  # for its exception alone  # nosec B403
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

from sklearn.utils._param_validation import HasMethods, Interval, Options

from sklearn_clm.generators._base import BaseGenerator, Prompts, Stream, Template
from sklearn_clm.generators._draws import prompt_bytes
from sklearn_clm.generators._fingerprint import digest_of
from sklearn_clm.generators._queue import DrawQueue
from sklearn_clm.generators.transformers._encoding import EncodedPrompt
from sklearn_clm.generators.transformers._machine import import_transformers, torch_threads

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from sklearn_clm.generators.transformers._checkpoint import Checkpoint

_DTYPES = ("auto", "bfloat16", "float16", "float32", "float64")
# Threads of torch mostly wait for each other in a model of fewer weights.
_FEW_WEIGHTS = 20_000_000


class TransformersGenerator(BaseGenerator):
    """Draws from a causal, encoder-decoder or vision-encoder-decoder language model.

    Each draw is keyed: token t of draw j for prompt x under seed s inverts the model's truncated
    distribution at a uniform number that depends on (x, s, j, t) alone. The shape of a batch moves
    logits by rounding: in float32 and float64, where that could change a token, the token is
    decided by a forward pass of its own. So tokens do not depend on the batch as long as rounding
    stays within the margin that is allowed for (64 units in the last place of the largest logit,
    measured moves are below 16); log-probabilities agree to rounding. On another machine, or with
    another version of torch, weights and kernels round differently, and a token in several
    thousand may differ. In half precision rounding is too coarse for the check, and a draw may
    change with the batch it is made in; a cache of draws gives it a fixed value.

    Each prompt runs through the model once for all its draws in one call, a prefix that prompts
    share runs once for all calls, and the row of a finished response takes the next draw at once.

    Parameters
    ----------
    model : str, path or transformers.PreTrainedModel
        Name or path of a checkpoint with safetensors weights, loaded when first used, or a
        loaded model (``AutoModelForCausalLM``, ``AutoModelForSeq2SeqLM`` or
        ``VisionEncoderDecoderModel``), which is put into evaluation mode. A model is never copied:
        clones share it, and generators with the same name share one model in a process.
    tokenizer : str, path or tokenizer, default=None
        The tokenizer. None loads the one that comes with the name; a loaded model needs one.
    processor : str, path or processor, default=None
        Image processor of a vision model, or a processor that holds it (and the tokenizer).
        None loads the one that comes with the name, if there is one.
    max_new_tokens : int, default=256
        Budget of generated tokens for one draw.
    temperature : float, default=1.0
        The logits are divided by it, > 0.
    top_k : int or None, default=50
        The k most likely tokens are kept; None or 0 keeps all.
    top_p : float, default=1.0
        Of those, the smallest set of most likely tokens with at least this probability is kept,
        in (0, 1].
    stop : str or sequence of str, default=None
        A draw ends at the first of these strings, which is cut from the response with all that
        follows, as ``["\\n", ",", "."]`` cuts short answers. The tokens up to the one that
        completed the string were generated: they count for ``n_tokens`` and ``logprob``.
    batch_size : int, default=64
        Number of draws decoded at once.
    device : str or torch.device, default=None
        Where to load a named model. None is a GPU if there is one.
    dtype : {"auto", "float64", "float32", "bfloat16", "float16"} or None, default=None
        What to load a named model in. None is float32 on the CPU, and the checkpoint's own type
        (``"auto"``) elsewhere.
    prompt_template : str or callable, default=None
        Text with ``{prompt}`` where the prompt goes, or a callable from a prompt to text or to
        chat messages.
    preprocess : callable, default=None
        For vision models: from a prompt to an image as `processor` takes it, or, where there is
        none, to pixel values of shape (channels, height, width).
    trust_remote_code : bool, default=False
        Whether to run code that comes with the named checkpoint.
    model_kwargs : dict, default=None
        Further arguments of ``from_pretrained`` for a named model, such as ``revision``.
    pickle_model : bool, default=False
        Whether a pickle contains a model passed as a loaded object. Otherwise it refers to the
        model by its ``name_or_path`` and a digest of its weights, from which it is loaded again.
    n_threads : "auto", int or None, default="auto"
        Threads of torch while it draws. "auto" is one for a model of fewer than 20 million
        weights on a CPU; otherwise, and with None, the setting of torch is left alone.
    max_state_bytes : int, default=None
        Memory for what the model made of prompts that are open. Where it is used up, the least
        recently used prompt is let go, and prefilled again for its next draw. None is a quarter
        of the memory that is free.

    Attributes
    ----------
    n_prefilled_tokens_ : int
        Positions of prompts run through the model so far, padding included.
    n_decoded_tokens_ : int
        Generated tokens run through the model so far (the last token of a draw never is).
    n_rechecked_tokens_ : int
        Tokens decided by a forward pass of their own so far.

    See Also
    --------
    CachedGenerator : Keeps every draw of any generator.

    Notes
    -----
    Prompts are strings, lists of chat messages (``{"role": ..., "content": ...}``, written with
    the tokenizer's chat template), images for vision models, or whatever `prompt_template` or
    `preprocess` takes. Log-probabilities come from the model's own logits, before temperature,
    top-k and top-p; they are rounded to multiples of 2 ** -16. Of a model's generation config, the
    tokens that end and begin a response count; other settings, such as a `repetition_penalty`, do
    not.

    Weights that change after the first draw change the fingerprint. Of those that are written
    through ``.data`` only a few of each tensor are looked at, so that such a change may stay
    unnoticed: make a new generator of the changed model.

    Models with LongRoPE (Phi-3, MiniCPM) turn all tokens of a row by other angles once it is longer
    than `original_max_position_embeddings`. Short and long rows are decoded apart, and a row that
    grows beyond the limit is run anew, as `generate` does: each token is drawn after a pass over
    all tokens before it. Use such a model in one thread at a time.

    Examples
    --------
    A GPT-2 with random weights, over the letters:

    >>> import torch
    >>> from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    >>> from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    >>> from sklearn_clm.generators import TransformersGenerator
    >>> letters = {letter: i for i, letter in enumerate("<abcdefghijklmnopqrstuvwxyz")}
    >>> tokenizer = Tokenizer(models.BPE(letters, []))
    >>> tokenizer.decoder = decoders.Fuse()
    >>> config = GPT2Config(vocab_size=27, n_embd=8, n_layer=1, n_head=2, n_positions=32,
    ...                     bos_token_id=0, eos_token_id=0)
    >>> generator = TransformersGenerator(
    ...     GPT2LMHeadModel(config).eval(),
    ...     tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<"),
    ...     max_new_tokens=5)
    >>> draws = generator.sample(["abc", "xyz"], n_samples=3)
    >>> len(draws), len(draws[0]), draws[0][0].n_tokens <= 5
    (2, 3, True)
    >>> generator.sample(["xyz"], n_samples=1, start=2)[0][0].response == draws[1][2].response
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [str, os.PathLike, HasMethods(["generate", "forward"])],
        "tokenizer": [str, os.PathLike, HasMethods(["decode"]), None],
        "processor": [str, os.PathLike, callable, None],
        "max_new_tokens": [Interval(Integral, 1, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "top_k": [Interval(Integral, 0, None, closed="left"), None],
        "top_p": [Interval(Real, 0, 1, closed="right")],
        "stop": [str, list, tuple, None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "dtype": [Options(str, set(_DTYPES)), None],
        "prompt_template": [str, callable, None],
        "preprocess": [callable, None],
        "trust_remote_code": ["boolean"],
        "model_kwargs": [dict, None],
        "pickle_model": ["boolean"],
        "n_threads": [Options(str, {"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "max_state_bytes": [Interval(Integral, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        model: str | os.PathLike[str] | PreTrainedModel,
        *,
        tokenizer: str | os.PathLike[str] | PreTrainedTokenizerBase | None = None,
        processor: str | os.PathLike[str] | ProcessorMixin | None = None,
        max_new_tokens: int = 256,
        temperature: float = 1.0,
        top_k: int | None = 50,
        top_p: float = 1.0,
        stop: str | Sequence[str] | None = None,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: str | None = None,
        prompt_template: Template = None,
        preprocess: Callable[[Any], object] | None = None,
        trust_remote_code: bool = False,
        model_kwargs: dict[str, object] | None = None,
        pickle_model: bool = False,
        n_threads: int | str | None = "auto",
        max_state_bytes: int | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.stop = stop
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        self.prompt_template = prompt_template
        self.preprocess = preprocess
        self.trust_remote_code = trust_remote_code
        self.model_kwargs = model_kwargs
        self.pickle_model = pickle_model
        self.n_threads = n_threads
        self.max_state_bytes = max_state_bytes

    def stream(self, prompts: Prompts, n_samples: int, *, start: int = 0, seed: int = 0) -> Stream:
        """Yield draws as they are finished, as in :meth:`BaseGenerator.stream`.

        Raises
        ------
        ValueError
            If a parameter is out of range, or the checkpoint cannot be loaded.
        TypeError
            If a prompt is not of a kind that the model takes.
        """
        prompts = list(prompts)  # a pandas Series looks positions up among its labels
        checkpoint = self._load()
        if len(prompts) == 0 or n_samples == 0:
            return
        places: dict[bytes, list[int]] = {}
        for i, prompt in enumerate(prompts):
            places.setdefault(prompt_bytes(prompt), []).append(i)
        firsts = {positions[0]: prompts[positions[0]] for positions in places.values()}
        encoded = checkpoint.encode(firsts, self.prompt_template, self.preprocess)
        encoded.sort(key=lambda prompt: len(prompt.ids))  # similar lengths are decoded together
        first = [start] * len(encoded)
        queue = DrawQueue(encoded, start + n_samples, seed=seed, first=first)
        draws = self._draws(checkpoint, queue, lambda positions: [encoded[i] for i in positions])
        for index, draw, generation in draws:
            for i in places[encoded[index].key]:
                yield i, draw, generation

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, as in :meth:`QueueGenerator.serve`.

        A prompt runs through the model once and its state is kept while it is open; a row whose
        draw is finished goes on with another draw at once; rows for which nothing is wanted draw
        ahead for prompts that are open.
        """
        checkpoint = self._load()
        if not len(queue.prompts):
            return
        # a pandas Series looks positions up among its labels
        prompts = getattr(queue.prompts, "iloc", queue.prompts)

        def encode(positions: Sequence[int]) -> list[EncodedPrompt]:
            chosen = {i: prompts[i] for i in positions}
            return checkpoint.encode(chosen, self.prompt_template, self.preprocess)

        for _ in self._draws(checkpoint, queue, encode):
            pass

    def _draws(
        self,
        checkpoint: Checkpoint,
        queue: DrawQueue,
        encode: Callable[[Sequence[int]], Sequence[EncodedPrompt]],
    ) -> Stream:
        """Put the draws that a queue asks for, and yield them."""
        from sklearn_clm.generators.transformers._engine import Engine

        checkpoint.model.eval()
        checkpoint.forget_outdated_prefix()
        engine = Engine(
            checkpoint,
            encode,
            temperature=float(self.temperature),
            top_k=int(self.top_k or 0),
            top_p=float(self.top_p),
            stop=self._checked_stop(),
            max_new_tokens=int(self.max_new_tokens),
            batch_size=int(self.batch_size),
            max_bytes=self.max_state_bytes,
        )
        n_threads = self.n_threads
        if n_threads == "auto":
            small = checkpoint.model.num_parameters() < _FEW_WEIGHTS
            n_threads = 1 if small and checkpoint.model.device.type == "cpu" else None
        try:
            with torch_threads(None if n_threads is None else int(n_threads)):
                for one in engine.run(queue):
                    queue.put(*one)
                    yield one
        finally:
            for name in ("n_prefilled", "n_decoded", "n_rechecked"):
                total = getattr(self, f"{name}_tokens_", 0) + getattr(engine, name)
                setattr(self, f"{name}_tokens_", total)

    def _checked_stop(self) -> tuple[str, ...]:
        self._validate_params()
        if isinstance(self.prompt_template, str) and "{prompt}" not in self.prompt_template:
            raise ValueError(
                f"prompt_template={self.prompt_template!r} has no place for the prompt; wanted "
                "'{prompt}' in it."
            )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        for string in stop:
            if not isinstance(string, str) or not string:
                raise ValueError(f"stop holds {string!r}; wanted strings that are not empty.")
        return stop

    def _load(self) -> Checkpoint:
        self._checked_stop()
        import_transformers("TransformersGenerator")
        from sklearn_clm.generators.transformers._checkpoint import checkpoint_of

        checkpoint = checkpoint_of(
            self.model,
            self.tokenizer,
            self.processor,
            device=self.device,
            dtype=self.dtype,
            trust_remote_code=self.trust_remote_code,
            model_kwargs=self.model_kwargs or {},
        )
        expected = getattr(self, "_weights_digest", None)
        if expected not in (None, checkpoint.weights_digest()):
            raise ValueError(
                f"model={self.model!r} holds other weights than the model that this generator was "
                "pickled with; wanted the same. Save that model and pass its path, or pickle the "
                "generator with pickle_model=True."
            )
        self._checkpoint = checkpoint  # keeps it loaded as long as this generator lives
        return checkpoint

    def fingerprint(self) -> str:
        """Hexadecimal digest of everything that the distribution of a draw depends on.

        Returns
        -------
        str
            Digest of the model's weights and config, the tokenizer, the image processor and the
            parameters that shape a response; `batch_size`, `device` and the name of the model
            do not enter.
        """
        stop = self._checked_stop()
        described = {
            **self._load().description(),
            "max_new_tokens": int(self.max_new_tokens),
            "temperature": float(self.temperature),
            "top_k": int(self.top_k or 0),
            "top_p": float(self.top_p),
            "stop": list(stop),
            "prompt_template": self.prompt_template,
            "preprocess": self.preprocess,
        }
        return digest_of(type(self), described)

    def __sklearn_clone__(self) -> TransformersGenerator:
        """Return an unused generator with the same parameters, which shares the model."""
        params = self.get_params(deep=False)
        for name in ("stop", "model_kwargs"):
            params[name] = copy.copy(params[name])
        new = type(self)(**params)
        for name in ("_checkpoint", "_weights_digest"):
            if hasattr(self, name):
                setattr(new, name, getattr(self, name))
        return new

    def __deepcopy__(self, memo: dict[int, object]) -> TransformersGenerator:
        return self.__sklearn_clone__()

    def __getstate__(self) -> dict[str, object]:
        state = dict(super().__getstate__())
        state.pop("_checkpoint", None)
        model = self.model
        if isinstance(model, (str, os.PathLike)) or self.pickle_model:
            return state
        name = getattr(model, "name_or_path", "")
        if not name:
            raise pickle.PicklingError(
                f"model is a loaded {type(model).__name__} that came from no file, so a pickle "
                "cannot refer to it; pass the path where it is saved (save_pretrained), or set "
                "pickle_model=True."
            )
        state["model"] = name
        state["dtype"] = str(model.dtype).removeprefix("torch.")
        state["_weights_digest"] = self._load().weights_digest()
        return state
