"""Whatever is passed, an exception that says what was expected; never a crash."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attn
from attn._options import OPTIONS

sdpa = attn.scaled_dot_product_attention
X = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(np.float32)


@pytest.mark.parametrize("bad", [None, 1, "query", [[1.0, 2.0]], object(), X.astype(object), X.astype("U4")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_array_is_a_type_error(bad, place):
    arguments = [X, X, X]
    arguments[place] = bad
    with pytest.raises(TypeError, match=r"\[.*\] expected .*; found"):
        sdpa(*arguments)


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "complex64", "uint16", ">f4", "longdouble"])
def test_a_dtype_that_does_not_fit_is_a_type_error(dtype):
    with pytest.raises(TypeError, match="expected"):
        sdpa(X.astype(dtype), X.astype(dtype), X.astype(dtype))
    with pytest.raises(TypeError, match="expected"):
        sdpa(X, X.astype(dtype), X)


@pytest.mark.parametrize("q, k, v", [
    [(2, 3, 5, 4), (2, 3, 5, 6), (2, 3, 5, 4)],
    [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 5, 4)],
    [(2, 3, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)],
    [(2, 3, 5, 4), (3, 3, 5, 4), (3, 3, 5, 4)],
    [(2, 3, 5, 0), (2, 3, 5, 0), (2, 3, 5, 4)],
    [(4,), (4,), (4,)],
    [(), (), ()],
])  # fmt: skip
def test_shapes_that_do_not_fit_are_value_errors(q, k, v):
    with pytest.raises(ValueError, match="expected .*; found"):
        sdpa(*(np.ones(shape, np.float32) for shape in (q, k, v)))


@pytest.mark.parametrize("options, error", [
    ({"attn_mask": np.ones((5, 6), bool)}, ValueError),
    ({"attn_mask": np.ones((4, 2, 3, 5, 5), bool)}, ValueError),
    ({"attn_mask": np.ones((5, 5), np.int64)}, TypeError),
    ({"attn_mask": "causal"}, TypeError),
    ({"dropout_p": 1.5}, ValueError),
    ({"dropout_p": -0.5}, ValueError),
    ({"dropout_p": "half"}, TypeError),
    ({"scale": float("nan")}, ValueError),
    ({"softcap": -1.0}, ValueError),
    ({"window": (-2, 0)}, ValueError),
    ({"window": (1, 2, 3)}, TypeError),
    ({"window": 3}, TypeError),
    ({"key_lengths": [6, 5]}, ValueError),
    ({"key_lengths": [-1, 5]}, ValueError),
    ({"key_lengths": [5]}, ValueError),
    ({"key_lengths": [1.5, 2.5]}, TypeError),
    ({"cu_seqlens_q": [0, 5]}, ValueError),  # of a batch of two
    ({"cu_seqlens_q": [0.0, 5.0]}, TypeError),
    ({"block_mask": np.ones((3, 3), bool)}, ValueError),
    ({"block_mask": np.ones((1, 1), np.float32)}, TypeError),
    ({"block_mask": np.ones((1, 1), bool), "block_size": 0}, ValueError),
    ({"block_mask": np.ones((1, 1), bool), "block_size": "all"}, TypeError),
    ({"alibi_slopes": np.ones(4, np.float32)}, ValueError),
    ({"sinks": np.ones(3, np.int64)}, TypeError),
    ({"relative_bias": np.ones((8, 4), np.float32)}, ValueError),
    ({"relative_bias": np.ones(3, np.float32)}, ValueError),
    ({"relative_bias": np.ones((8, 3), np.int64)}, TypeError),
    ({"relative_bias": np.ones((3, 3), np.float32)}, ValueError),
    ({"relative_bias": np.ones((8, 3), np.float32), "relative_max_distance": 2}, ValueError),
    ({"relative_bias": np.ones((8, 3), np.float32), "relative_max_distance": 2**40}, ValueError),
    ({"relative_bias": np.ones((8, 3), np.float32), "relative_bidirectional": 1}, TypeError),
    ({"causal_alignment": "centre"}, ValueError),
    ({"precision": "low"}, ValueError),
    ({"return_weights": [5]}, ValueError),
    ({"return_weights": [-1]}, ValueError),
    ({"return_weights": "all"}, (TypeError, ValueError)),
    ({"unknown": 1}, TypeError),
])  # fmt: skip
def test_options_that_do_not_fit(options, error):
    with pytest.raises(error):
        sdpa(X, X, X, **options)


def test_empty_inputs_give_empty_or_zero_results():
    assert sdpa(X[:0], X[:0], X[:0]).shape == (0, 3, 5, 4)
    assert sdpa(X[:, :0], X[:, :0], X[:, :0]).shape == (2, 0, 5, 4)
    assert sdpa(X[:, :, :0], X, X).shape == (2, 3, 0, 4)
    assert sdpa(X, X, X[..., :0]).shape == (2, 3, 5, 0)
    np.testing.assert_array_equal(sdpa(X, X[:, :, :0], X[:, :, :0]), np.zeros_like(X))


def test_read_only_and_unaligned_inputs():
    fixed = X.copy()
    fixed.flags.writeable = False
    np.testing.assert_array_equal(sdpa(fixed, fixed, fixed), sdpa(X, X, X))
    raw = np.zeros(X.nbytes + 1, np.uint8)
    off = raw[1:].view(np.float32).reshape(X.shape)
    with pytest.raises(ValueError, match="aligned"):
        sdpa(off, X, X)
    fields = np.zeros(20, np.dtype([("a", "f4"), ("b", "i1")]))["a"].reshape(5, 4)
    with pytest.raises((TypeError, ValueError)):
        sdpa(fields, X, X)


def test_other_kinds_of_numpy_arrays():
    """A mask that an array holds itself is not lost; views and subclasses are read as what they show."""
    masked = np.ma.masked_array(X, X > 1)
    for arguments in ((masked, X, X), (X, X, masked), (X, X, X, np.ma.masked_array(np.ones((5, 5), bool)))):
        with pytest.raises(TypeError, match=r"without a mask of its own; found numpy.ma.MaskedArray; pass its .data or"):
            sdpa(*arguments)
    for dtype in (np.int32, np.int64):
        lengths = np.ma.masked_array(np.full(X.shape[0], 3, dtype), True)
        with pytest.raises(TypeError, match="key_lengths without a mask of its own; found numpy.ma.MaskedArray"):
            sdpa(X, X, X, key_lengths=lengths)
    for view in (X[..., ::-1], X[:, :, ::-1], X[::-1, ::-1], X.swapaxes(2, 3)[..., :4, :4]):
        np.testing.assert_array_equal(sdpa(view, view, view), sdpa(*[view.copy()] * 3))
    matrix = X[0, 0].view(np.matrix) if hasattr(np, "matrix") else X[0, 0]
    np.testing.assert_array_equal(sdpa(matrix, matrix, matrix), sdpa(*[X[0, 0]] * 3))
    for refused in (X.astype(X.dtype.newbyteorder()), np.zeros((5, 4), [("x", "f4")]), X.astype("M8[s]"), np.float32(1)):
        with pytest.raises((TypeError, ValueError)):
            sdpa(refused, refused, refused)


def test_sizes_that_no_memory_holds():
    huge = np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (1, 1, 1 << 31, 4), (0, 0, 0, 4))
    with pytest.raises(ValueError, match="2\\^30"):
        sdpa(huge, huge, huge)
    many = np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (1 << 40, 1, 4, 4), (0, 0, 0, 4))
    with pytest.raises((MemoryError, ValueError)):
        sdpa(many, many, many)


class _Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]  # fmt: skip


class _OtherDevice:
    """An array on a graphics card, as DLPack describes it."""

    def __init__(self, device=2, code=2, bits=32, lanes=1, ndim=4):
        self.shape = (ctypes.c_int64 * 4)(2, 3, 5, 4)
        self.tensor = _Tensor(X.ctypes.data, device, 0, ndim, code, bits, lanes, ctypes.addressof(self.shape), None, 0, None, None)

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return (self.tensor.device, 0)


def test_memory_of_another_device_is_refused():
    for device in (2, 10):
        with pytest.raises(ValueError, match="CPU"):
            sdpa(_OtherDevice(device), X, X)
    np.testing.assert_array_equal(sdpa(_OtherDevice(1), X, X), sdpa(X, X, X))


def test_strange_dlpack_is_refused():
    with pytest.raises(TypeError):
        sdpa(_OtherDevice(1, lanes=4), X, X)
    with pytest.raises(TypeError):
        sdpa(_OtherDevice(1, code=9), X, X)
    with pytest.raises(TypeError):
        sdpa(_OtherDevice(1, ndim=-1), X, X)


class _Liar:
    dtype = "bfloat16"

    def __dlpack__(self, **_):
        raise RuntimeError("not today")

    def view(self, _):
        raise RuntimeError("nor this")


def test_an_arrays_own_exception_does_not_kill():
    with pytest.raises((TypeError, RuntimeError)):
        sdpa(_Liar(), X, X)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(allow_nan=True), st.text(max_size=3),
    st.lists(st.integers(-2, 7), max_size=3), st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
    st.builds(lambda shape, dtype: np.ones(shape, dtype), st.lists(st.integers(0, 5), max_size=5),
              st.sampled_from(["f4", "f8", "?", "i8", "i1", "c8"])),
)  # fmt: skip


@given(st.dictionaries(
    st.sampled_from([*OPTIONS, "attn_mask", "enable_gqa", "sinks", "relative_bias", "return_lse", "return_weights", "generator"]),
    ANYTHING, max_size=4))  # fmt: skip
def test_any_options_give_a_result_or_a_python_error(options):
    try:
        sdpa(X, X, X, **options)
    except (TypeError, ValueError, OverflowError):
        pass


@pytest.mark.parametrize("options, words", [
    ({"dropout_p": "half"}, "dropout_p as a number; found str"),
    ({"is_causal": 1}, "is_causal as True or False; found int"),
    ({"enable_gqa": "yes"}, "enable_gqa as True or False; found str"),
    ({"return_lse": 1}, "return_lse as True or False; found int"),
    ({"return_weights": None}, "return_weights as True, False or the numbers of rows; found None"),
    ({"scale": "big"}, "scale as a number; found str"),
    ({"softcap": None}, "softcap as a number; found NoneType"),
    ({"window": (1.5, 2)}, "window's left as an integer; found float"),
    ({"precision": 3}, "precision as a string; found int"),
    ({"causal_alignment": None}, "causal_alignment as a string; found NoneType"),
])  # fmt: skip
def test_a_value_of_the_wrong_kind_is_named(options, words):
    with pytest.raises(TypeError, match=r"^\[scaled_dot_product_attention\] expected " + words + "$"):
        sdpa(X, X, X, **options)


@pytest.mark.parametrize("options, words", [
    ({"attn_mask": np.ones((5, 5), np.int64)}, r"expected attn_mask of dtype bool.*found int64; .*\.astype\(bool\)"),
    ({"attn_mask": np.ones((5, 6), bool)}, r"expected attn_mask that broadcasts .*found \(5, 6\)"),
    ({"attn_mask": np.ones((5, 6), np.float32)}, r"expected attn_mask that broadcasts .*found \(5, 6\)"),
    ({"block_mask": np.ones((1, 1), np.int64)}, r"expected block_mask of dtype bool.*\.astype\(bool\)"),
    ({"block_mask": np.ones((3, 3), bool)}, r"expected block_mask that broadcasts .*block_size.*found \(3, 3\)"),
])  # fmt: skip
def test_masks_have_pythons_names(options, words):
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        sdpa(X, X, X, **options)
    assert "mask." not in str(caught.value) and "Mask::" not in str(caught.value)


CACHE = attn.KVCache(2, 3, 4)
MODULE = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)


@pytest.mark.parametrize("call", [
    lambda: sdpa(*[X.astype(np.int64)] * 3),
    lambda: CACHE.append(X.astype(np.int64), X.astype(np.int64)),
    lambda: CACHE.attention(X.astype(np.int64)),
    lambda: attn.rotary(X.astype(np.int64)),
    lambda: MODULE(np.ones((4, 6), np.int64)),
])  # fmt: skip
def test_whole_numbers_are_told_how_to_become_floating(call):
    with pytest.raises(TypeError, match=r"found int64; .*\.astype\(np\.float32\)"):
        call()


@pytest.mark.parametrize("call, words", [
    (lambda: attn.rand("a"), r"\[rand\] expected sizes as a sequence of integers; found list with str"),
    (lambda: attn.randn(2, 1.5), r"\[randn\] expected sizes as a sequence of integers; found list with float"),
    (lambda: attn.randint(0, 1.5, (2, 2)), r"\[randint\] expected high as an integer; found float"),
    (lambda: attn.randint(0, 2, 3), r"\[randint\] expected sizes as a sequence of integers; found int"),
    (lambda: attn.manual_seed("a"), r"\[manual_seed\] expected seed as an integer; found str"),
    (lambda: attn.Generator(1, dropout=3), r"\[Generator\] expected dropout as a string; found int"),
    (lambda: attn.Generator(1).dropout_keep((2,), "a"), r"\[dropout_keep\] expected p as a number; found str"),
    (lambda: attn.merge(1, 2), r"\[merge\] expected outputs as a list of arrays; found int"),
    (lambda: attn.KVCache(1.5), r"\[KVCache\] expected batch as an integer; found float"),
    (lambda: CACHE.append(X[0], X[0], item="a"), r"\[KVCache\] expected item as an integer; found str"),
    (lambda: CACHE.truncate(1.5), r"\[KVCache\] expected length as an integer; found float"),
    (lambda: CACHE.keys(None), r"\[KVCache\] expected item as an integer; found NoneType"),
    (lambda: attn.rotary_frequencies({}, 3), r"\[rotary_frequencies\] expected layer_type as a string; found int"),
    (lambda: MODULE(None), r"\[module\] expected x as an array .*; found NoneType"),
    (lambda: MODULE.train("no"), r"\[train\] expected mode as True or False; found str"),
    (lambda: attn.report(MODULE, X, live="no"), r"\[report\] expected live as True or False; found str"),
    (lambda: MODULE.backward(None), r"\[module\] expected the output's gradient as an array .*; found NoneType"),
    (lambda: MODULE.load_state_dict(3), r"\[load_state_dict\] expected state as a dict of .*; found int"),
    (lambda: MODULE.load_state_dict({1: X}), r"\[load_state_dict\] expected .*; found dict with other keys"),
    (lambda: attn.CausalAttention(2, 2, 2, 0.0, generator=3), r"\[CausalAttention\] .* generator as .*; found int"),
    (lambda: sdpa(X, X, X, generator=3), r"\[scaled_.*\] expected generator as .*; found int"),
    (lambda: sdpa(X, X, X, dropout_p=0.5, generator=3), r"\[scaled_.*\] expected generator as .*; found int"),
    (lambda: attn.rotary(X, frequencies=3), r"\[rotary\] expected frequencies as RotaryFrequencies; found int"),
    (lambda: attn.rotary(X, theta="a"), r"\[rotary\] expected theta as a number; found str"),
    (lambda: attn.rotary(X, rotary_dim=2.0), r"\[rotary\] expected rotary_dim as an integer; found float"),
    (lambda: attn.rotary_frequencies(3), r"\[rotary_frequencies\] expected config as a dict, or .* object; found int"),
    (lambda: attn.score_function(3), r"\[score_function\] expected f as .* \(score, b, h, i, j\); found int"),
    (lambda: attn.score_function(lambda s: s), r"\[score_function\] expected f as .*; found one of \(s\)"),
    (lambda: attn.score_function(None, 3), r"\[score_function\] expected f as a function of .*; found NoneType"),
    (lambda: attn.KVCache(value_dim="a"), r"\[KVCache\] expected value_dim as an integer; found str"),
    (lambda: sdpa(X, X, X, key_lengths=["a"]), r"\[scaled_.*\] expected key_lengths as integers; found dtype <U1"),
    (lambda: sdpa(X, X, X, cu_seqlens_q=0.5), r"\[scaled_.*\] expected cu_seqlens_q as integers; found dtype float64"),
    (lambda: sdpa(X, X, X, return_weights=[[1], [2, 3]]), r"\[scaled_.*\] .* return_weights as integers; found list"),
    (lambda: sdpa(X, X, X, block_mask=X, block_size=(1, 2, 3)), r"\[scaled_.*\] .* block_size .*; found \(1, 2, 3\)"),
])  # fmt: skip
def test_no_signature_of_the_binding_is_shown(call, words):
    with pytest.raises(TypeError, match="^" + words + "$"):
        call()


@pytest.mark.parametrize("call, words", [
    (lambda: sdpa(X, X[..., :3], X), r"found query \(.*\), key \(.*\), value \(.*\)"),
    (lambda: sdpa(X, X.astype(np.float64), X), r"expected query, key and value of one dtype"),
    (lambda: sdpa(X.astype(complex), X, X), r"query of a dtype that attn reads: .*float32,.*; found complex128; convert with"),
    (lambda: sdpa(X, X, X, block_size=16), r"expected block_mask beside block_size; found none"),
    (lambda: sdpa(X, X, X, relative_max_distance=5), r"expected relative_bias beside relative_bidirectional and .*; found none"),
    (lambda: sdpa(X, X, X, relative_bidirectional=False), r"expected relative_bias beside relative_bidirectional and"),
    (lambda: sdpa(X, X, X, dropout_p=3.0), r"expected dropout_p in \[0, 1\]"),
    (lambda: sdpa(X[:1], X[:1], X[:1], cu_seqlens_q=[1, 2]), r"expected cu_seqlens_q that start at 0"),
    (lambda: sdpa(X, X, X, return_weights=[99]), r"expected return_weights from 0 to tq - 1"),
])  # fmt: skip
def test_arguments_have_pythons_names(call, words):
    with pytest.raises((TypeError, ValueError), match=r"^\[scaled_dot_product_attention\] .*" + words):
        call()


def test_a_cache_names_key_and_value():
    with pytest.raises(ValueError, match=r"expected key \(b, hkv, t, d\), value \(b, hkv, t, dv\) like"):
        CACHE.append(X[:1], X[:1])
