"""Draws from Hugging Face checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sklearn.utils._param_validation import HasMethods, Interval, Options

from sklearn_clm._exceptions import optional_module
from sklearn_clm.generators.base import BaseGenerator
from sklearn_clm.generators.identity import digest_of
from sklearn_clm.generators.prompts import Template
from sklearn_clm.generators.queue import DrawQueue

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from sklearn_clm.generators.transformers._checkpoint import Checkpoint
    from sklearn_clm.generators.transformers._text import EncodedPrompt

_DTYPES = ("auto", "bfloat16", "float16", "float32", "float64")


class _Counts(NamedTuple):
    """What a generator did so far."""

    prefilled: int = 0
    decoded: int = 0
    begun: int = 0
    given_up: int = 0


class TransformersGenerator(BaseGenerator):
    """Draws from a causal, encoder-decoder or vision-encoder-decoder language model.

    Each draw is keyed: token t of draw j for prompt x under seed s inverts the model's truncated
    distribution at a uniform number that depends on (x, s, j, t) alone. The shape of a batch moves
    logits by rounding: in float32 and float64, where that could change a token (where a logit moves
    by 64 units in the last place of the largest; below 16 were measured), a forward pass of its own
    decides it. Log-probabilities agree to rounding. On another machine, or with another version of
    torch, a token in several thousand may differ. In half precision rounding is too coarse for the
    check, and a draw may change with the batch it is made in; a cache of draws gives it a fixed
    value.

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
        Where to load a named model (a loaded one stays where it is). None is a GPU if there is one.
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
        ``{"gguf_file": "model.Q4_1.gguf"}`` loads weights, config and tokenizer from that file of
        the checkpoint (which needs the packages gguf and accelerate).

    Attributes
    ----------
    n_prefilled_tokens_ : int
        Positions of prompts run through the model so far, padding included.
    n_decoded_tokens_ : int
        Generated tokens run through the model so far (the last token of a draw never is).
    n_begun_draws_ : int
        Draws begun so far. Those beyond the `n_samples` of predictions were made ahead, in vain.
    n_given_up_draws_ : int
        Of these, draws that were given up before their end, as nobody wanted them any more.

    See Also
    --------
    CachedGenerator : Keeps every draw of any generator.

    Notes
    -----
    Prompts are strings, lists of chat messages (``{"role": ..., "content": ...}``, written with
    the tokenizer's chat template), images for vision models, or whatever `prompt_template` or
    `preprocess` takes. Log-probabilities come from the model's own logits, before temperature,
    top-k and top-p. Of a model's generation config, the tokens that end and begin a response count;
    other settings, such as a `repetition_penalty`, do not.

    Weights that change in place after the first draw change the fingerprint, but for those written
    through ``.data``: load the changed model anew. So do adapters of PEFT that are switched, but
    not hooks, nor attributes that are set on the model's layers. Of models with LongRoPE (Phi-3,
    MiniCPM) the first `original_max_position_embeddings` positions are used.

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

    # no fitted attributes, which are part of what was calibrated
    _counts: _Counts = _Counts()
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
        model_kwargs: dict[str, Any] | None = None,
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

    def serve(self, queue: DrawQueue) -> None:
        """Answer a queue, as in :meth:`QueueGenerator.serve`.

        Rows for which nothing is wanted draw ahead for prompts that are open, where that is worth
        it: where the chance that a draw will be wanted outweighs what a row costs, as measured on
        the batches so far. Once a prompt is closed, its rows leave.
        """
        # nothing to draw, and nothing to load a model for
        if not len(queue.prompts):
            return
        checkpoint = self._load()
        from sklearn_clm.generators.transformers._engine import Engine

        def encode(i: int) -> EncodedPrompt:
            prompt = queue.prompts[i]
            name = f"prompts[{i}]"
            return checkpoint.encode(prompt, name, self.prompt_template, self.preprocess)

        # dropout would make other draws of the same number, and of each batch
        checkpoint.model.eval()
        engine = Engine(checkpoint, queue, encode, **self._shaping(), batch_size=self.batch_size)
        try:
            engine.run()
        finally:
            self._counts = _Counts(
                self._counts.prefilled + engine.n_prefilled,
                self._counts.decoded + engine.n_decoded,
                self._counts.begun + engine.n_begun,
                self._counts.given_up + engine.n_given_up,
            )

    @property
    def n_prefilled_tokens_(self) -> int:
        """Positions of prompts run through the model so far."""
        return self._counts.prefilled

    @property
    def n_decoded_tokens_(self) -> int:
        """Generated tokens run through the model so far."""
        return self._counts.decoded

    @property
    def n_begun_draws_(self) -> int:
        """Draws begun so far."""
        return self._counts.begun

    @property
    def n_given_up_draws_(self) -> int:
        """Draws that were given up before their end."""
        return self._counts.given_up

    def import_modules(self) -> None:
        """Load the model and what runs it, as in :class:`Importing`."""
        self._load()
        import_module("sklearn_clm.generators.transformers._engine")

    def _shaping(self) -> dict[str, Any]:
        """What makes responses of the model's logits."""
        return {
            "max_new_tokens": int(self.max_new_tokens),
            "temperature": float(self.temperature),
            "top_k": int(self.top_k or 0),
            "top_p": float(self.top_p),
            "stop": [self.stop] if isinstance(self.stop, str) else list(self.stop or ()),
        }

    def _load(self) -> Checkpoint:
        self._validate_params()
        if not all(isinstance(string, str) and string for string in self._shaping()["stop"]):
            raise ValueError(f"stop must hold strings that are not empty, got {self.stop!r}.")
        for package in ("torch", "transformers"):
            optional_module(package, "transformers", "TransformersGenerator")
        from sklearn_clm.generators.transformers._checkpoint import checkpoint_of

        # kept, so that it stays loaded as long as this generator lives
        self._checkpoint = checkpoint_of(self)
        return self._checkpoint

    @property
    def model_version(self) -> object:  # type: ignore[override]
        """Version of weights, adapters, settings and tokenizer."""
        return self._load().version

    def fingerprint(self) -> str:
        """Hexadecimal digest of all that the draws' distribution depends on.

        The model's weights and config, the tokenizer, the image processor and the parameters that
        shape a response; not `batch_size`, `device` and the name of the model.
        """
        described = {
            **self._load().description(),
            **self._shaping(),
            "prompt_template": self.prompt_template,
            "preprocess": self.preprocess,
        }
        return digest_of(type(self), described)

    def __getstate__(self) -> dict[str, object]:
        # a worker loads a model that has a name: the pickle need not carry its weights
        state = dict(super().__getstate__())
        state.pop("_checkpoint", None)
        return state
