"""Language models in files: logits, losses, text, every step."""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, NUMPY, OfThisProcess, Unchanging, dtype_name, framework, int64, integer, take
from attn._module_input import path_name, refuse

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Any

    from attn._types import Array, DType, Float32, Integers

    Prompt = str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | Integers

__all__ = ["LanguageModel", "Tokenizer", "Writing", "kept_models", "load"]


class Tokenizer(Unchanging):
    """A model's tokenizer, as its files have it. Its ids are those of Hugging Face's."""

    _instead = "which belongs to a model in this one's memory; take attn.load(path).tokenizer there"

    def __init__(self, model: _attn.TextModel) -> None:
        self._model = model
        model.read_tokenizer()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text.

        Args:
            add_special_tokens: with those that the files put around a text, such as a beginning of text.
        """
        return self._model.encode(text, add_special_tokens)

    def decode(self, ids: int | Integers, *, skip_special_tokens: bool = False) -> str:
        """The text of ids, or of one. What is no whole character becomes U+FFFD.

        Raises:
            ValueError: an id outside of [0, vocab_size).
        """
        return self._model.decode(_listed(ids, "decode", one=True), skip_special_tokens)

    def chat(self, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
        """A conversation as the model's chat template writes it, up to the beginning of the answer.

        Args:
            messages: [{"role": "user", "content": "…"}, …], or a dict with these as "messages" and variables of the
                template beside them: "tools", "enable_thinking", "add_generation_prompt", …

        A key that the template does not name is a UserWarning.

        Raises:
            ValueError: a model without a template, and what its template refuses.
        """
        return _conversation(self._model, messages, "chat")

    @property
    def vocab_size(self) -> int:
        """The largest id, and one."""
        return self._model.token_count()

    @property
    def special_tokens(self) -> dict[str, str]:
        """By the names that templates have for them: {"bos_token": "<s>", …}."""
        return self._model.special_tokens()

    def __repr__(self) -> str:
        return f"<attn.Tokenizer of {self.vocab_size} tokens>"


class Writing(OfThisProcess):
    """A text that a model writes. Iterating over it writes on, and gives the text in pieces of whole characters.

    After a prompt of ids the pieces are ids, and there is no text.

    Attributes:
        prompt_ids: what the model has read.
        ids: what it has written so far.
        text: the same as text, without a stop.
        finish: why it ended: "length" (as many tokens as were asked for), "stop" (an id that ends a text), "stop-text"
            (a text that does); None until then.
    """

    _instead = "whose cache lies in this one's memory; keep its prompt_ids and ids, or its text"

    def __init__(self, writing: _attn.Writing, prompt_ids: list[int], of_text: bool) -> None:
        self._writing: _attn.Writing | None = writing
        self._of_text, self._pieces = of_text, []  # type: tuple[bool, list[Any]]
        self.prompt_ids, self.ids = prompt_ids, []  # type: tuple[list[int], list[int]]
        self.text, self.finish = "", None  # type: tuple[str, str | None]

    def __iter__(self) -> Writing:
        return self

    def __next__(self) -> Any:
        while not self._pieces and self._writing is not None:
            self._write_on(self._writing)
        if not self._pieces:
            raise StopIteration
        return self._pieces.pop(0)

    def _write_on(self, writing: _attn.Writing) -> None:
        more = writing.step()
        text, ids, finish = writing.taken()
        self.text, self.ids = self.text + text, self.ids + ids
        self._pieces += ([text] if text else []) if self._of_text else ids
        if not more:  # the cache of keys and values goes
            self.finish, self._writing = finish, None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<attn.Writing: {len(self.ids)} ids, finish {self.finish!r}>"


class LanguageModel(Unchanging):
    """A language model read from its files. attn.load() makes one.

        >>> model = attn.load("SmolLM2.gguf")
        >>> model.loss("The capital of France is Paris.")
        >>> str(model.generate([{"role": "user", "content": "What is attention?"}], new_tokens=40))

    Threads may share it, and take turns. While it computes the interpreter is free for other threads, and Ctrl-C acts
    between two tokens. A text is encoded with the special tokens that the tokenizer puts around it.
    """

    _instead = "whose weights lie in this one's memory; hand over its path, and call attn.load(path) there"

    def __init__(self, model: _attn.TextModel, path: str) -> None:
        self._model, self.path = model, path
        self._tokenizer: Tokenizer | None = None

    @property
    def config(self) -> _attn.LanguageModelConfig:
        """family, vocab_size, context_length, width, layers, heads, kv_heads, head_dim, end_ids and others."""
        return self._model.config()

    @property
    def weights(self) -> str:
        """In which dtype its matrices are kept: "float32", "bfloat16", "int8", or "file", as the file has them."""
        return self._model.weights()

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer, or bytes for a model of 256 tokens without one.

        Raises:
            ValueError: there is none; attn.load(path, tokenizer=folder) names one.
        """
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._model)
        return self._tokenizer

    def __call__(self, ids: str | Integers | Sequence[Sequence[int]]) -> Any:
        """Logits (…, t, vocab_size), float32, of ids (t) or (b, t), or of a text.

        They are NumPy's, or for an array the framework's that it comes from. Texts of a batch that are shorter are
        padded at their end, with any id: no token sees what follows it.

        Raises:
            TypeError: what is no text and no array of integers.
            ValueError: ids outside of the vocabulary, or more tokens than the context takes.
        """
        if isinstance(ids, str):
            ids = self._ids(ids, "LanguageModel")
        kind = framework(ids)
        if kind == NUMPY:
            given, ids = type(ids).__name__, int64(ids, "ids", "LanguageModel")
            if not hasattr(ids, "shape"):
                raise TypeError(f"[LanguageModel] expected a text, or ids (t) or (b, t); found {given}")
        logits: Any = self._model.forward(ids, kind)
        return take(logits, ids) if kind == DLPACK else logits

    def loss(self, text: str | Integers) -> float:
        """The mean of -log of the probability of each token after the first, in nats.

        Args:
            text: a text of at least two tokens, or its ids.
        """
        return self._model.loss(self._ids(text, "loss"))

    def steps(self, text: str | Integers) -> dict[str, Float32]:
        """Every step of one pass, by name: "model.layers.0.self_attn.weights" (heads, t, t), and the others."""
        return self._model.trace(self._ids(text, "steps"))  # type: ignore[return-value]

    def generate(
        self, prompt: Prompt, *, new_tokens: int = 100, temperature: float = 1.0, top_k: int | None = None,
        top_p: float | None = None, min_p: float | None = None, repetition_penalty: float = 1.0,
        seed: int | None = None, stop: Sequence[int] = (), stop_text: str | Sequence[str] = (), cache: DType = "float32",
    ) -> Writing:  # fmt: skip
        """What the model writes behind a prompt: for the same seed the words of `attn generate`.

            >>> written = model.generate("Once upon a time", new_tokens=40, temperature=0)
            >>> written.text, written.finish

        Args:
            prompt: a text; a conversation, as Tokenizer.chat() takes it; or ids, for which no tokenizer is needed. An empty
                text goes on from the end of a text before, where the tokenizer has a token for it, or from a new line.
            new_tokens: at most so many.
            temperature: logits are divided by it; 0 takes the likeliest token.
            top_k: draws only from the k likeliest tokens; 0 and the default are all.
            top_p: only from the likeliest tokens whose probabilities together reach p; default 1.
            min_p: only from tokens at least p times as likely as the likeliest; default 0.
            repetition_penalty: divides logits above 0 of tokens that the text already has, and multiplies others.
            seed: of what is drawn; default 123.
            stop: further ids that end the text, beside those of the model's files.
            stop_text: texts that end it; they are found across tokens, and are no part of it.
            cache: the dtype of the keys and values of the text so far: float32, bfloat16, float16 or int8.

        Raises:
            TypeError: an argument of another kind.
            ValueError: one out of range, or without effect beside temperature 0; a prompt that leaves no room for the
                tokens in the context, but for GPT-2, which goes on with its latest half.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "prompt")}
        writing = self.stream(prompt, **options)
        for _ in writing:
            pass
        return writing

    def stream(
        self, prompt: Prompt, *, new_tokens: int = 100, temperature: float = 1.0, top_k: int | None = None,
        top_p: float | None = None, min_p: float | None = None, repetition_penalty: float = 1.0,
        seed: int | None = None, stop: Sequence[int] = (), stop_text: str | Sequence[str] = (), cache: DType = "float32",
    ) -> Writing:  # fmt: skip
        """generate(), piece by piece as it is written.

            >>> for piece in model.stream("Once upon a time", new_tokens=40):
            ...     print(piece, end="", flush=True)

        The model may be used, and other texts be written, in between.
        """
        drawn = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
        given: dict[str, Any] = {name: value for name, value in drawn.items() if value is not None}
        if temperature == 0 and (given or seed is not None):
            refuse("generate", "a temperature above 0, at which tokens are drawn", f"0 beside {next(iter(given), 'seed')}",
                   "leave it out, or raise the temperature")  # fmt: skip
        given |= {"new_tokens": new_tokens, "temperature": temperature, "repetition_penalty": repetition_penalty}
        given |= {"stop": _listed(stop, "generate"), "cache": dtype_name(cache)}
        is_one = isinstance(stop_text, str) or not hasattr(stop_text, "__iter__")
        texts = [stop_text] if is_one else list(stop_text)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"[generate] expected stop_text as a text or a list of texts; found {type(stop_text).__name__}")
        if "" in texts:
            refuse("generate", "stop_text of some characters", "an empty text")
        kind, ids = self._prompt(prompt)
        if kind == "ids" and texts:
            refuse("generate", "stop_text beside a prompt that is text", "ids")
        seed = 123 if seed is None else integer(seed, "generate", "seed")
        if not 0 <= seed < 2**64:
            refuse("generate", "seed from 0 to 2**64 - 1", str(seed))
        return Writing(_attn.write(self._model, ids, kind, given, seed, texts), ids, kind != "ids")

    def _prompt(self, prompt: Any) -> tuple[str, list[int]]:
        if isinstance(prompt, str):
            return "text", _attn.prompt_ids(self._model, prompt)
        if hasattr(prompt, "keys") or (isinstance(prompt, list | tuple) and prompt and hasattr(prompt[0], "keys")):
            text = _conversation(self._model, prompt, "generate")
            return "messages", self._model.encode(text, False)
        return "ids", _listed(prompt, "generate")

    def _ids(self, text: Any, op: str) -> list[int]:
        """A text's ids, at least one."""
        ids = self._model.encode(text, True) if isinstance(text, str) else _listed(text, op)
        if not ids:
            refuse(op, "a text of at least one token", "an empty one")
        return ids

    def __repr__(self) -> str:
        return f"<attn.LanguageModel {self.path!r}: {self._model.described()}>"


def _listed(ids: Any, op: str, one: bool = False) -> list[int]:
    """Ids as a list of integers."""
    if isinstance(ids, str) or (isinstance(ids, list | tuple) and any(isinstance(i, str) for i in ids)):
        raise TypeError(f"[{op}] expected ids, or one text; found {type(ids).__name__} of texts")
    array = int64(ids, "ids", op)
    if one and type(array) is int:
        return [array]
    if array is None or type(array) is int:
        raise TypeError(f"[{op}] expected a text, or a list of ids; found {type(ids).__name__}")
    if not hasattr(array, "shape") or len(array.shape) > 1:
        refuse(op, "ids of one text", f"shape {tuple(array.shape)}" if hasattr(array, "shape") else type(ids).__name__)
    return [int(i) for i in (array if array.shape else [array])]


def _conversation(model: Any, messages: Any, op: str) -> str:
    json = _json(messages, op)
    text: str = model.chat(json)
    if unnamed := ", ".join(model.unnamed(json)):
        import warnings

        hint = "is it spelt as the template has it?"
        warnings.warn(f"[{op}] the model's chat template does not name {unnamed}: {hint}", stacklevel=3)
    return text


def _json(messages: Any, op: str) -> str:
    import json

    try:
        return json.dumps(messages, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"[{op}] expected messages that JSON can hold; {error}") from None


def load(
    path: str | os.PathLike[str], *, weights: DType | None = None, precision: str = "highest",
    tokenizer: str | os.PathLike[str] | None = None,
) -> LanguageModel:  # fmt: skip
    """Reads a language model.

        >>> model = attn.load("model.gguf")

    Args:
        path: a Hugging Face folder with a config.json and safetensors, a GGUF file, or what `attn train` wrote. The
            families are those of `attn generate`.
        weights: in which dtype matrices are kept: float32, bfloat16, int8, or "file", as the file has them, quantised ones
            in its blocks, exactly. Default: "file" for GGUF, float32 else. Experiments want float32.
        precision: of products: "highest", "high" or "medium".
        tokenizer: the folder of a tokenizer; default the model's own.

    Raises:
        OSError: a file that cannot be read.
        ValueError: a family or a part that is not supported, or tensors that are not the config's. Of BERT and models of
            its kind, attn.Encoder reads the files.
    """
    import os

    place, words = path_name("load", path), "" if tokenizer is None else path_name("load", tokenizer)
    for what, name in (("a model", place), ("the folder of a tokenizer", words)):
        if not os.path.exists(name) and (name or what == "a model"):
            raise FileNotFoundError(f"[load] expected {what} at {name!r}; found nothing there")
    return LanguageModel(_attn.load(place, dtype_name(weights), precision, words), place)


def kept_models(path: str | os.PathLike[str]) -> list[tuple[int, str]]:
    """The steps whose models `attn train --keep-every` has kept beside a run's model, each with its path, in their order.

        >>> [(step, attn.experiment(path, "You may").loss()) for step, path in attn.kept_models("model.safetensors")]

    Args:
        path: what --out named: a .safetensors file, or a folder.
    """
    return _attn.kept_models(path_name("kept_models", path))
