"""Writes data/recurrence.safetensors: linear attention as ONNX's own cases and transformers' functions compute it.

    python3 tests/golden/recurrence.py

"onnx" are the cases of the operator LinearAttention that onnx.backend.test.case makes, heads unfolded. "transformers" are
qwen3_next's torch_recurrent_gated_delta_rule on float32, and outputs and gradients of the rule in float64 by autograd,
of inputs that both sides make by the same formula; of long texts the last tokens are kept. Deterministic. The committed
file was made by onnx 1.23.0, transformers 5.24.0 and PyTorch 2.15.0. The format is generate.py's.
"""
import numpy as np
import torch
from onnx import helper
from onnx.backend.test.case.node import collect_testcases
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from generate import DATA, Golden, line

NAMES = ["query", "key", "value", "past_state", "decay", "beta"]
GIVEN = ["q", "k", "v", "initial_state", "decay", "beta"]
KEPT = 3  # tokens at the end


def unfolded(x, heads):
    x = torch.tensor(np.asarray(x))
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2).contiguous()


def cases_of_onnx(operator, names):
    """(name, attributes, inputs by name, outputs) of each of its cases that is this one node."""
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type != operator:
            continue
        (arrays, outputs), = case.data_sets
        attributes = {a.name: helper.get_attribute_value(a) for a in nodes[0].attribute}
        yield case.name, attributes, dict(zip([n for n, used in zip(names, nodes[0].input) if used], arrays)), outputs


def onnx_cases(golden):
    for case, attributes, given, (output, state) in cases_of_onnx("LinearAttention", NAMES):
        q_heads, heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        rule = attributes.get("update_rule", b"gated_delta").decode()
        tensors = {"q": unfolded(given["query"], q_heads)}
        tensors |= {to: unfolded(given[name], heads) for to, name in [("k", "key"), ("v", "value")]}
        if "decay" in given:
            decay = unfolded(given["decay"], heads)
            tensors["decay"] = decay[..., 0].contiguous() if decay.shape[-1] == 1 else decay
        if "beta" in given:
            beta = unfolded(given["beta"], np.asarray(given["beta"]).shape[-1])[..., 0]
            tensors["beta"] = beta.expand(-1, heads, -1).contiguous()
        if "past_state" in given:
            tensors["initial_state"] = torch.tensor(np.asarray(given["past_state"]))
        tensors |= {"output": unfolded(output, q_heads), "state": torch.tensor(np.asarray(state))}
        golden.add("recurrence", "onnx", line({"name": case, "delta": int("delta" in rule),
                   "scale": float(attributes.get("scale", 0))}), tensors, given=GIVEN)  # fmt: skip


def draw(shape, salt):
    """Numbers in [-1, 1) that C++ makes, too: a hash of their place."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(salt << 32)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    x = (x >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    return torch.tensor(x.reshape(shape))


def normalised(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def recurrence(q, k, v, decay, beta, state, delta, scale):
    """The equations, one token after the other: (heads, tokens, …)."""
    outputs = []
    for t in range(q.shape[1]):
        kept = decay[:, t].exp()
        state = state * (kept[..., None] if kept.ndim == 2 else kept[:, None, None])
        error = v[:, t]
        if delta:
            error = beta[:, t, None] * (error - torch.einsum("hkv,hk->hv", state, k[:, t]))
        state = state + k[:, t, :, None] * error[:, None]
        outputs.append(scale * torch.einsum("hkv,hk->hv", state, q[:, t]))
    return torch.stack(outputs, 1), state


def of_transformers(golden):
    salt = 0
    for tokens in [1, 2, 31, 32, 33, 65, 200, 1024, 4096]:
        for least, by_channel, delta in [(-1e-6, 0, 1), (-0.05, 1, 1), (-2.0, 0, 1), (-20.0, 1, 1), (-0.5, 0, 0), (-20.0, 1, 0)]:
            salt += 1
            if tokens > 1000 and (salt % 2 == 0 or not delta):
                continue
            heads, d_k, d_v = 2, 24, 20
            q, k = (normalised(draw((heads, tokens, d_k), 16 * salt + i)) for i in (0, 1))
            v, d_output = (draw((heads, tokens, d_v), 16 * salt + i) for i in (2, 3))
            decay = least * (draw((heads, tokens, d_k) if by_channel else (heads, tokens), 16 * salt + 4) + 1) / 2
            beta = (draw((heads, tokens), 16 * salt + 5) + 1) / 2
            initial, d_state = (draw((heads, d_k, d_v), 16 * salt + i) for i in (6, 7))
            inputs = [x.float().double().requires_grad_() for x in (q, k, v, decay, beta, initial)]
            output, state = recurrence(*inputs, delta, d_k**-0.5)
            loss = (output * d_output.float().double()).sum() + (state * d_state.float().double()).sum()
            gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
            end = max(tokens - KEPT, 0)
            tensors = {"output": output[:, end:], "state": state}
            for name, of in zip(["q", "k", "v", "decay", "beta"], gradients):
                if of is not None:
                    tensors["d_" + name] = of[:, end:]
                    tensors["first_d_" + name] = of[:, :KEPT]
                    tensors["largest_d_" + name] = of.abs().max()
            tensors["d_initial_state"] = gradients[5]
            if delta and not by_channel:
                given = [x.detach().float().transpose(0, 1)[None] for x in inputs[:5]]
                state = inputs[5].detach().float()[None]
                out, last = torch_recurrent_gated_delta_rule(*given, initial_state=state, output_final_state=True)
                tensors["recurrent_output"], tensors["recurrent_state"] = out[0].transpose(0, 1)[:, end:], last[0]
            golden.add("recurrence", "transformers", line({"salt": salt, "tokens": tokens, "heads": heads, "d_k": d_k,
                       "d_v": d_v, "least": least, "by_channel": by_channel, "delta": delta}),
                       {name: x.detach().float().contiguous() for name, x in tensors.items()})  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    golden = Golden()
    onnx_cases(golden)
    of_transformers(golden)
    golden.save(DATA / "recurrence.safetensors")
