"""The cache of keys and values that a decoder keeps between its steps.

    cache = attn.KVCache(batch=1, kv_heads=8, head_dim=128, dtype="bfloat16")
    cache.append(k, v)                           # the prompt: k (1, 8, t, 128), v (1, 8, t, 128)
    out = cache.attention(q, is_causal=True)     # q (1, 32, t, 128): the cache's last t tokens
"""

from __future__ import annotations

from attn import _attn
from attn._arguments import OfThisProcess, asked_for, dtype_name, framework, integer, rows_of, without_gradient
from attn._options import NOT_OF_A_CACHE, given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Unpack, overload

    import numpy.typing as npt

    from attn._typed_options import CacheOptions
    from attn._types import A, Array, Int64, Integers, Rows


class KVCache(OfThisProcess):
    """Keys and values of the tokens so far (Kwon et al. 2023, PagedAttention, section 4.1, with pages).

    Batch items grow independently. Threads may share a cache: calls that change it wait for those that read it.

    Args:
        batch: items.
        kv_heads: heads of keys and values; the queries' heads may be a multiple.
        head_dim: of keys.
        value_dim: of values; default head_dim.
        dtype: how elements are kept: "float32", "bfloat16", "float16", "int8" (with a scale for each row: an element
            errs by 1/254 of its row's largest at most), or NumPy's or PyTorch's name for these.
        page_size: 0: an item's rows lie together, and move to twice the room when it is full. Else tokens a page:
            nothing is ever moved, and what truncate() frees serves any item.
        capacity: room for so many tokens an item at once; more fit all the same.

    Raises:
        TypeError: a dtype that is none of these.
        ValueError: sizes that do not fit.
    """

    _instead = "whose rows lie in this one's memory; append() its keys(item) and values(item) to another cache there"

    def __init__(self, batch: int = 1, kv_heads: int = 1, head_dim: int = 1, value_dim: int | None = None,
                 dtype: str | npt.DTypeLike = "float32", page_size: int = 0, capacity: int = 0) -> None:  # fmt: skip
        if value_dim is not None and integer(value_dim, "KVCache", "value_dim") < 1:
            raise ValueError(f"[KVCache] expected value_dim of at least 1; found {value_dim}")
        name = dtype_name(dtype) or "None"
        self._cache: Any = _attn.Cache(batch, kv_heads, head_dim, value_dim or 0, name, page_size, capacity)
        self._config = f"{kv_heads=}, {head_dim=}, dtype={name}"

    def append(self, key: Array, value: Array, item: int | None = None) -> None:
        """Tokens more: key (b, hkv, t, d), value (b, hkv, t, dv), of any floating dtype; for one item without b.

        A finite value past the stored dtype's range becomes its largest. ValueError for shapes that do not fit; the
        cache is then as it was.
        """
        key, value = _without_gradient(key), _without_gradient(value)
        self._cache.append(key, value, item, framework(key))

    if TYPE_CHECKING:

        @overload
        def attention(
            self, query: A, attn_mask: Array | None = None, is_causal: bool = False, scale: float | None = None,
            *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
            **options: Unpack[CacheOptions],
        ) -> A: ...  # fmt: skip

        @overload
        def attention(
            self, query: A, attn_mask: Array | None = None, is_causal: bool = False, scale: float | None = None,
            *, return_lse: Literal[True], return_weights: Rows = False, **options: Unpack[CacheOptions],
        ) -> tuple[A, ...]: ...  # fmt: skip

        @overload
        def attention(
            self, query: A, attn_mask: Array | None = None, is_causal: bool = False, scale: float | None = None,
            *, return_lse: bool = False, return_weights: Literal[True] | Integers, **options: Unpack[CacheOptions],
        ) -> tuple[A, ...]: ...  # fmt: skip

    def attention(
        self, query: A, attn_mask: Array | None = None, is_causal: bool = False, scale: float | None = None, *,
        sinks: Array | None = None, relative_bias: Array | None = None, causal_alignment: str = "bottom_right",
        return_lse: bool = False, return_weights: Rows = False, **options: Any,
    ) -> A | tuple[A, ...]:  # fmt: skip
        """query (b, hq, tq, d) to all that is kept; arguments and results of attn.scaled_dot_product_attention.

        The diagonal ends bottom right by default: query i of an item of n tokens is its token n - tq + i, as in a
        decoder that has appended its new tokens first. Any number of queries reads the cache as it is. No gradient
        flows.

        Args:
            query: (b, hq, tq, d), of float32, bfloat16 or float16.
            attn_mask: broadcastable to (b, hq, tq, longest item): boolean, True takes part; or floating, added to the
                scores.
            is_causal: a query sees its own token and those before it alone.
            scale: default 1/√d, with the limits of attn.scaled_dot_product_attention.
            window, softcap, alibi_slopes, sinks, relative_bias, relative_bidirectional, relative_max_distance, precision,
                score_function: as in attn.scaled_dot_product_attention.
            causal_alignment: "bottom_right", or "top_left": query i stands at key i.
            return_lse: also return log Σ exp of the scores, (b, hq, tq).
            return_weights: True, or the numbers of some rows: also return the weights, (b, hq, rows, longest item).

        Raises:
            TypeError: what is no array, or has a dtype that does not fit.
            ValueError: a shape or an option that does not fit.
        """
        for array in (query, attn_mask, sinks, relative_bias, options.get("alibi_slopes")):
            _without_gradient(array)
        kind = framework(query)
        options |= {"is_causal": is_causal, "scale": scale, "causal_alignment": causal_alignment}
        made = _attn.Options(kind, given("KVCache", options, kind, without=NOT_OF_A_CACHE))
        weights = rows_of(return_weights)
        result = self._cache.attend(query, attn_mask, sinks, relative_bias, made, return_lse, weights, kind)
        return asked_for(result, query, kind, return_lse, weights)

    def truncate(self, length: int, item: int | None = None) -> None:
        """Forgets the tokens from `length` on, of one item or of every item that has as many."""
        self._cache.truncate(length, item)

    def clear(self) -> None:
        """Forgets all tokens."""
        self._cache.truncate(0, None)

    def copy(self) -> KVCache:
        """A cache of its own with the same tokens: for beams, or to go on twice from one prompt."""
        other = KVCache.__new__(KVCache)
        other._cache, other._config = self._cache.clone(), self._config
        return other

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> KVCache:
        return self.copy()

    @property
    def lengths(self) -> Int64:
        """Tokens of each item: int64 (b), a NumPy array."""
        return self._cache.lengths()

    @property
    def nbytes(self) -> int:
        """Of the memory held for keys, values and scales, in use or not."""
        return self._cache.nbytes()

    def keys(self, item: int) -> npt.NDArray[Any]:
        """A NumPy copy of one item's keys (hkv, length, d), in the stored dtype; int8 as float32."""
        return self._cache.rows(item)[0]

    def values(self, item: int) -> npt.NDArray[Any]:
        """A NumPy copy of one item's values (hkv, length, dv), in the stored dtype; int8 as float32."""
        return self._cache.rows(item)[1]

    def __repr__(self) -> str:
        return f"KVCache({self._config}, lengths={self.lengths.tolist()}, {self.nbytes} bytes)"


def _without_gradient(array: Any) -> Any:
    return without_gradient(array, "KVCache", "decode under torch.no_grad(), or pass .detach()")
