"""Score functions of one's own, and the report."""

import ctypes

import numpy as np
import pytest

import attn

rng = np.random.default_rng(0)
Q = rng.standard_normal((2, 3, 40, 16)).astype(np.float32)


class Tile(ctypes.Structure):
    """attn/score_tile.hpp's ScoreTile."""

    _fields_ = [("scores", ctypes.POINTER(ctypes.c_float)), ("key_step", ctypes.c_int64),
                ("query_step", ctypes.c_int64), ("keys", ctypes.c_int64), ("queries", ctypes.c_int64),
                ("batch", ctypes.c_int64), ("first_key", ctypes.c_int64), ("heads", ctypes.POINTER(ctypes.c_int32)),
                ("tokens", ctypes.POINTER(ctypes.c_int32))]  # fmt: skip


@ctypes.CFUNCTYPE(None, ctypes.POINTER(Tile), ctypes.c_void_p)
def by_distance(tile, user):
    t = tile.contents
    for r in range(t.keys):
        for c in range(t.queries):
            t.scores[r * t.key_step + c * t.query_step] -= 0.1 * abs(t.tokens[c] - t.first_key - r)


WANT = attn.scaled_dot_product_attention(Q, Q, Q, alibi_slopes=np.full(3, 0.1, np.float32))


def capsule(address):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, b"attn.score_function", None)


def test_functions_by_ctypes_capsule_and_address():
    address = ctypes.cast(by_distance, ctypes.c_void_p).value
    for function in (by_distance, address, capsule(address)):
        got = attn.scaled_dot_product_attention(Q, Q, Q, score_function=attn.ScoreFunction(function))
        np.testing.assert_allclose(got, WANT, atol=2e-6)


def test_functions_by_numba():
    pytest.importorskip("numba")
    function = attn.score_function(lambda s, b, h, i, j: s - 0.1 * abs(i - j), lambda s, b, h, i, j: 1.0)
    np.testing.assert_allclose(attn.scaled_dot_product_attention(Q, Q, Q, score_function=function), WANT, atol=2e-6)
    wide = Q.astype(np.float64)
    got = attn.scaled_dot_product_attention(wide, wide, wide, score_function=function)
    np.testing.assert_allclose(got, WANT, atol=2e-6)


def test_what_is_no_score_function():
    with pytest.raises(TypeError, match="ScoreFunction"):
        attn.scaled_dot_product_attention(Q, Q, Q, score_function=lambda s: s)
    for bad in (None, "f", 1.5, lambda s: s):
        with pytest.raises(TypeError):
            attn.ScoreFunction(bad)
    with pytest.raises(TypeError, match="expected forward, of float32's scores, beside forward64; found None"):
        attn.ScoreFunction(None, forward64=by_distance)
    for address in (-1, 2**64):
        with pytest.raises(ValueError, match="address of 64 bits"):
            attn.ScoreFunction(address)


def raises_at_3(s, b, h, i, j):
    if i == 3:
        raise ValueError("no")
    return s


def test_a_function_that_raises_is_an_error_of_the_call(capfd):
    pytest.importorskip("numba")
    few = np.ones(3)
    cache = attn.KVCache(2, 3, 16)
    cache.append(Q, Q)
    for f, i in ((raises_at_3, "3"), (lambda s, b, h, i, j: s / (i - 3), "3"), (lambda s, b, h, i, j: s + few[i], "[0-9]+")):
        function = attn.score_function(f)
        where = rf"an exception for \(score, b, h, i, j\) = \(.+, {i}, [0-9]+\)"
        for x in (Q, Q, Q.astype(np.float64)):  # it tells of each call anew
            with pytest.raises(ValueError, match=where):
                attn.scaled_dot_product_attention(x, x, x, score_function=function)
        with pytest.raises(ValueError, match=where):
            cache.attention(Q, score_function=function)
        attn.scaled_dot_product_attention(Q[:, :, :3], Q, Q, score_function=function)
    assert "raise" not in capfd.readouterr().err, "numba prints what it cannot raise"


def test_a_derivative_that_raises_is_an_error_of_the_backward_pass():
    pytest.importorskip("numba")
    torch = pytest.importorskip("torch")
    function = attn.score_function(lambda s, b, h, i, j: s, raises_at_3)
    x = torch.tensor(Q, requires_grad=True)
    out = attn.scaled_dot_product_attention(x, x, x, score_function=function)
    with pytest.raises(ValueError, match="functions that raise nothing"):
        out.sum().backward()


def test_cfuncs_that_may_raise_are_refused():
    numba = pytest.importorskip("numba")
    signature = numba.types.void(numba.types.CPointer(numba.types.int64), numba.types.voidptr)

    def divides(tile, user):
        tile[3] = tile[1] // tile[2]

    raising, silent = numba.cfunc(signature)(divides), numba.cfunc(signature, error_model="numpy")(divides)
    with pytest.raises(ValueError, match="expected a cfunc that raises nothing.*error_model"):
        attn.ScoreFunction(raising)
    assert attn.ScoreFunction(silent).addresses[0] == silent.address
    assert attn.ScoreFunction(raising.address).addresses[0] == raising.address


def test_functions_that_numba_cannot_compile_or_that_give_no_number():
    pytest.importorskip("numba")
    for f, found in ((lambda s, b, h, i, j: s + "a", "says why above"), (lambda s, b, h, i, j: None, "gives none"),
                     (lambda s, b, h, i, j: 1j * s, "gives complex")):  # fmt: skip
        for functions, what in (((f,), "f"), ((lambda s, b, h, i, j: s, f), "derivative")):
            with pytest.raises(TypeError, match=rf"\[score_function\] expected {what} as a function of numbers.*{found}"):
                attn.score_function(*functions)


def test_report_shows_itself_and_saves(tmp_path):
    x = Q[0, 0, :6]
    attn.manual_seed(1)
    module = attn.MultiHeadAttention(16, 8, 6, 0.0, 2)
    report = attn.report(module, x, tokens=["Your", "journey", "</script>", "with", "one", '"step"'], title="six words")
    page = str(report)
    assert page.startswith("<!doctype html>") and "six words" in page and "</script>\"" not in page
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<html" not in shown
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    with pytest.raises(OSError):
        report.save(tmp_path / "no folder" / "report.html")
    assert "<!doctype html>" in str(attn.report(np.full((2, 5, 5), 0.2, np.float32)))
    with pytest.raises(ValueError):
        attn.report(module, x, tokens=["one"])
    with pytest.raises(TypeError):
        attn.report(module)


def test_a_page_that_computes():
    module = attn.MultiHeadAttention(8, 4, 6, 0.5, 2)
    with pytest.raises(ValueError, match="eval mode"):
        attn.report(module, "The cat sat down", live=True)
    module.eval()
    page, recorded = (str(attn.report(module, "The cat sat down", live=live)) for live in (True, False))
    assert 'id="engine"' in page and 'id="engine"' not in recorded
    assert len(page) > len(recorded) + 300_000, "the library in base 64"
    with pytest.raises(ValueError, match="title"):
        attn.report(module, "The cat sat down", live=True, title="cats")
    with pytest.raises(ValueError, match="live=True of a module, an attn.LanguageModel or an attn.Encoder"):
        attn.report(np.eye(3, dtype=np.float32)[None], live=True)
