"""ONNX's own test cases of Attention, LinearAttention and CausalConvWithState: expected values come from its reference.

An adapter says each case in this library's words: past keys are concatenated, heads unfolded from three dimensions, and
the scores that a case asks for are log weights + lse.
"""

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")
import onnx  # noqa: E402
import onnx_cases  # noqa: E402
from onnx import helper  # noqa: E402

import attn  # noqa: E402

AFTER_SCALE, AFTER_SOFTCAP, AFTER_MASK, AFTER_SOFTMAX = range(4)  # qk_matmul_output_mode

# The adapter reads these of a node. It may pass over softmax_precision: the softmax is computed in float32 at least.
INPUTS = {"Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"}
ATTRIBUTES = {"scale", "softcap", "is_causal", "left_window_size", "right_window_size", "q_num_heads", "kv_num_heads",
              "qk_matmul_output_mode", "softmax_precision"}

NAMES = ("Attention", "LinearAttention", "CausalConvWithState")
CASES = {case.name: case for name in NAMES for case in onnx_cases.of(name)}


def four(x, heads):
    """(b, t, h · d) as (b, h, t, d)."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def like(x, of):
    return x if of.ndim == 4 else x.swapaxes(1, 2).reshape(*of.shape[:2], -1)


def padded(mask, tk):
    """A mask may be shorter than the keys, which are padding from there on."""
    fill = False if mask.dtype == bool else -np.inf
    width = [(0, 0)] * (mask.ndim - 1) + [(0, tk - mask.shape[-1])]
    return np.pad(mask, width, constant_values=fill)


def scores(q, k, v, mask, options, mode):
    """What qk_matmul_output holds, from weights and lse."""
    if mode < AFTER_MASK:
        mask, options = None, {name: options[name] for name in ("scale", "softcap") if name in options}
    if mode == AFTER_SCALE:
        options.pop("softcap", None)
    _, lse, weights = attn.scaled_dot_product_attention(
        q, k, v, mask, enable_gqa=True, return_lse=True, return_weights=True, **options
    )
    if mode != AFTER_SOFTMAX:
        with np.errstate(divide="ignore"):
            weights = np.log(weights) + lse[..., None]
    return weights.astype(q.dtype)


def linear_attention(node, inputs):
    """LinearAttention's outputs by name. chunk_size is a hint, and passed over."""
    names = ("query", "key", "value", "past_state", "decay", "beta")
    given = dict(zip([name for name, used in zip(names, node.input) if used], inputs))
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert attributes.keys() <= onnx.defs.get_schema("LinearAttention").attributes.keys()
    q_heads, heads = attributes["q_num_heads"], attributes["kv_num_heads"]
    q, k, v = four(given["query"], q_heads), four(given["key"], heads), four(given["value"], heads)
    options = {"rule": "delta" if "delta" in attributes.get("update_rule", b"gated_delta").decode() else "plain"}
    if attributes.get("scale"):
        options["scale"] = attributes["scale"]
    if "decay" in given:
        decay = four(given["decay"], heads)
        options["decay"] = decay[..., 0] if decay.shape[-1] == 1 else decay
    if "beta" in given:
        options["beta"] = np.broadcast_to(given["beta"].swapaxes(1, 2), (*v.shape[:3],))
    if "past_state" in given:
        options["initial_state"] = given["past_state"]
    output, state = attn.linear_attention(q, k, v, return_state=True, **options)
    return dict(zip(node.output, (like(output, given["query"]), state.astype(q.dtype))))


def causal_convolution(node, inputs):
    """CausalConvWithState's outputs by name."""
    names = ("input", "weight", "bias", "past_state")
    given = dict(zip([name for name, used in zip(names, node.input) if used], inputs))
    silu = any(helper.get_attribute_value(a) != b"none" for a in node.attribute if a.name == "activation")
    output, state = attn.causal_convolution(
        given["input"].swapaxes(1, 2), given["weight"][:, 0], given.get("bias"), silu=silu,
        initial_state=given.get("past_state"), return_state=True,
    )  # fmt: skip
    return dict(zip(node.output, (output.swapaxes(1, 2), state)))


def attention(node, inputs):
    """Attention's outputs by name."""
    given = dict(zip([name for name in node.input if name], inputs))
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert given.keys() <= INPUTS and attributes.keys() <= ATTRIBUTES
    q = four(given["Q"], attributes.get("q_num_heads"))
    k, v = (four(given[name], attributes.get("kv_num_heads")) for name in "KV")
    options = {name: attributes[name] for name in ("scale", "softcap") if name in attributes}
    options["is_causal"] = bool(attributes.get("is_causal"))
    options["window"] = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    if "past_key" in given:
        options["query_offset"] = given["past_key"].shape[2]
        k, v = (np.concatenate([given[past], x], axis=2) for past, x in (("past_key", k), ("past_value", v)))
    if "nonpad_kv_seqlen" in given:
        options.update(causal_alignment="bottom_right", key_lengths=given["nonpad_kv_seqlen"])
    mask = padded(given["attn_mask"], k.shape[2]) if "attn_mask" in given else None
    output = attn.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, **options)
    results = {"Y": like(output, given["Q"]), "present_key": k, "present_value": v}
    if "qk_matmul_output" in node.output:
        results["qk_matmul_output"] = scores(q, k, v, mask, options, attributes.get("qk_matmul_output_mode", AFTER_SCALE))
    return results


RUN = dict(zip(NAMES, (attention, linear_attention, causal_convolution)))


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_case_of_onnx(name):
    case = CASES[name]
    node, = case.model.graph.node
    for inputs, outputs in case.data_sets:
        results = RUN[node.op_type](node, inputs)
        for output, want in zip([name for name in node.output if name], outputs):
            got = results[output]
            assert got.dtype == want.dtype and got.shape == want.shape, output
            limit = 8 * float(ml_dtypes.finfo(want.dtype).eps)
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=limit, atol=limit)


def test_nothing_of_the_operator_is_left_out():
    schema = onnx.defs.get_schema("Attention")
    assert ATTRIBUTES == schema.attributes.keys() and INPUTS == {each.name for each in schema.inputs}
    assert [len(onnx_cases.of(name)) for name in NAMES] >= [93, 14, 13]
