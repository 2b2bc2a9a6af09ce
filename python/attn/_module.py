"""What the modules have in common: calls, steps, gradients and weights by PyTorch's names, and parts by theirs."""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, TORCH, flag, framework, named, stream_of, take, unmasked, without_gradient
from attn._random import default_generator
from attn.words import WORD_SIZE, embed_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, overload

    from attn._types import A, Array, Float32
else:

    def overload(signature):
        return signature


class Parameter:
    """One weight: name as in PyTorch's state_dict, value and grad as NumPy arrays.

    `value` is the module's own memory: change it in place (p.value -= 0.1 * p.grad). `grad` is None until backward().
    """

    __slots__ = ("_module", "name")  # another attribute, as PyTorch's `data`, would do nothing

    def __init__(self, module: Module, name: str) -> None:
        self._module, self.name = module, name

    @property
    def value(self) -> Float32:
        """The weight itself, in the module's memory."""
        return self._module._layer.parameters()[self.name][0]

    @value.setter
    def value(self, array: Float32) -> None:
        own, found = self.value, getattr(unmasked(array, "value", self.name), "shape", None)
        if found != own.shape:
            hint = "fill it by value[...] = number"
            raise ValueError(f"[{self.name}] expected a value of shape {own.shape}; found {found}; {hint}")
        own[...] = array
        self._module._since[:] = ["another value of " + self.name]

    @property
    def grad(self) -> Float32 | None:
        """What backward() has added up since zero_grad()."""
        return self._module._layer.parameters()[self.name][1]

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}, shape={self.value.shape})"


class Module:
    """What all modules have: called with an input, they return their output.

    An input is an array, or a text, whose words become vectors by attn.embed_words.
    """

    _layer: _attn.Layer
    training: bool
    _since: list[str]  # what has happened to the weights, or to the pass that backward() is of, since forward()

    def _make(self, kind: str, given: dict[str, Any]) -> None:
        """`given` has the arguments of the class, by name."""
        config = {name: value for name, value in given.items() if name not in ("self", "generator")}
        generator = given.get("generator")
        self._generator = default_generator if generator is None else generator
        self._made_by, self._since = (kind, config), []
        self._layer = _attn.Layer(kind, stream_of(self._generator, type(self).__name__), config)
        self.train()

    def __copy__(self) -> Module:
        """Another module of the same memory, as PyTorch's copies are."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy.deepcopy: without gradients, and without the default generator, which each process has."""
        own = {name: value for name, value in self.__dict__.items() if name not in ("_layer", "_since")}
        own["_generator"] = None if self._generator is default_generator else self._generator
        return {"own": own, "weights": {name: value.copy() for name, value in self.state_dict().items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self._generator = default_generator if self._generator is None else self._generator
        stream = stream_of(self._generator, type(self).__name__)
        drawn = stream.state()  # the weights that are drawn here are replaced
        self._layer, self._since = _attn.Layer(self._made_by[0], stream, self._made_by[1]), []
        stream.set_state(drawn)
        self._layer.load(state["weights"])
        self._layer.train(self.training)

    @overload
    def __call__(self, x: str) -> Float32: ...
    @overload
    def __call__(self, x: A) -> A: ...
    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    @overload
    def forward(self, x: str) -> Float32: ...
    @overload
    def forward(self, x: A) -> A: ...
    def forward(self, x: Any) -> Any:
        """x (tokens, d_in) or (batch, tokens, d_in), float32, of any framework; the result is of the same. Or a text."""
        return self._run(x, None, False)

    @overload
    def steps(self, x: str) -> dict[str, Float32]: ...
    @overload
    def steps(self, x: A) -> dict[str, A]: ...
    def steps(self, x: Any) -> Any:
        """Runs forward(x), and returns every step of it by name, in its order: queries, keys, values, scores, …"""
        return self._run(x, None, True)[1]

    def backward(self, d_output: A) -> A:
        """Returns the gradient of the last forward pass's input, and adds to every parameter's grad.

        Since that pass no weights may be loaded or given another value, and no picture or explanation be made. A
        CrossAttention returns two gradients: of x, and of the source.

        Args:
            d_output: the gradient of the output, of its shape.
        """
        without_gradient(d_output, "backward", "gradients of gradients are not there; pass .detach()")
        if self._since:
            raise ValueError(f"[backward] expected forward() right before backward(); found {self._since[-1]} in between")
        kind = framework(d_output)
        dx, d_source = self._layer.backward(d_output, kind)
        if kind == DLPACK:
            dx, d_source = take(dx, d_output), take(d_source, d_output)
        both: Any = dx if d_source is None else (dx, d_source)
        return both

    def parameters(self) -> list[Parameter]:
        """The weights, in the order of PyTorch's state_dict."""
        return [Parameter(self, name) for name in self._layer.parameters()]

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self._layer.zero_grad()

    def state_dict(self) -> dict[str, Float32]:
        """The weights by PyTorch's names, as NumPy arrays of the module's own memory."""
        return {name: value for name, (value, _) in self._layer.parameters().items()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Takes the weights in `state`, by PyTorch's names and of any framework.

        The book's "mask" buffers, which hide the keys after each query, are not kept. Every weight must be there, with
        its shape, and nothing else. Otherwise ValueError is raised, and nothing is changed.
        """
        self._layer.load({name: _detached(array) for name, array in named(state).items()})
        self._since[:] = ["load_state_dict()"]

    def train(self, mode: bool = True) -> Module:
        """Dropout acts in train mode only."""
        self.__dict__["training"] = flag(mode, "train", "mode")
        self._layer.train(mode)
        return self

    def eval(self) -> Module:
        """Dropout does nothing from here on."""
        return self.train(False)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            try:
                return _part(self, name)
            except KeyError:
                pass
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """What the layer has is not Python's to change: an attribute of that name would do nothing."""
        if "_layer" in self.__dict__ and (name == "training" or name in self._made_by[1] or name in _names(self)):
            hint = "call train() or eval()" if name == "training" else "change weights in place, or make another module"
            raise AttributeError(f"[{type(self).__name__}] expected {name} as it was made; found another; {hint}")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{p.name} {p.value.shape}" for p in self.parameters())
        return f"{type(self).__name__}({shapes})"

    def _embedded(self, text: Any) -> Any:
        """A text's words as vectors of as many numbers as the weights take; an array as it is."""
        if not isinstance(text, str):
            return text
        first = next(iter(self.state_dict().items()), None)  # the projection of queries: (d_in, d_out), or Linear's
        return embed_words(text, first[1].shape[first[0].endswith(".weight")] if first else WORD_SIZE)

    def _run(self, x: Any, source: Any, with_steps: bool) -> Any:
        result = self._computed(x, source, with_steps)
        self._since.clear()
        return result

    def _computed(self, x: Any, source: Any, with_steps: bool) -> Any:
        x, source = self._embedded(x), self._embedded(source)
        for array in (x, source):
            without_gradient(array, type(self).__name__, "call backward() here, or use attn.torch's modules")
        kind = framework(x)
        result: Any = self._layer.forward(x, source, with_steps, kind)
        if kind != DLPACK:
            return result
        if not with_steps:
            return take(result, x)
        return take(result[0], x), {name: take(step, x) for name, step in result[1].items()}


class Linear:
    """A projection inside a module: weight (d_out, d_in), bias (d_out) or None, and y = x · weightᵀ + bias."""

    __slots__ = ("_module", "_prefix")

    def __init__(self, module: Module, prefix: str) -> None:
        self._module, self._prefix = module, prefix

    @property
    def weight(self) -> Float32:
        """(d_out, d_in)"""
        return self._module.state_dict()[self._prefix + ".weight"]

    @property
    def bias(self) -> Float32 | None:
        """(d_out)"""
        return self._module.state_dict().get(self._prefix + ".bias")

    def __call__(self, x: Array) -> Float32:
        y: Any = _attn.matmul(x, self.weight.T)
        return y if self.bias is None else y + self.bias


class Head:
    """One head of the wrapper: its projections by name."""

    __slots__ = ("_module", "_prefix")

    def __init__(self, module: Module, prefix: str) -> None:
        self._module, self._prefix = module, prefix

    def __getattr__(self, name: str) -> Any:
        return _part(self._module, f"{self._prefix}.{name}")


def _names(module: Module) -> set[str]:
    """Those of its parts, as its state_dict begins with them."""
    return {key.partition(".")[0] for key in module.state_dict()}


def _part(module: Module, name: str) -> Any:
    """A parameter, a Linear or the heads, by its name in the state_dict."""
    state = module.state_dict()
    if name in state:
        return state[name]
    if name + ".weight" in state:
        return Linear(module, name)
    if name == "heads" and "heads.0.W_query.weight" in state:
        count = sum(key.endswith("W_query.weight") for key in state)
        return [Head(module, f"heads.{i}") for i in range(count)]
    raise KeyError(name)


def _detached(array: Any) -> Any:
    return array.detach() if framework(array) == TORCH else array
