"""Writes data/recurrent_parts.safetensors: the parts around linear attention as ONNX and transformers compute them.

    python3 tests/golden/recurrent_parts.py

"convolution" are the cases of the operator CausalConvWithState that onnx.backend.test.case makes, and calls of
qwen3_next's functions on a prompt and on a step after it. "norm" are l2norm and the gated norms of qwen3_next,
kimi_linear and mamba2 (in one group). Gradients are autograd's. Deterministic. The committed file was made by onnx
1.23.0, transformers 5.24.0 and PyTorch 2.15.0. The format is generate.py's.
"""
import numpy as np
import torch
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.mamba2 import modeling_mamba2 as mamba2
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from generate import DATA, Golden, line
from recurrence import cases_of_onnx

NAMES = ["x", "weight", "bias", "initial_state"]


def tokens_first(x):
    return x.transpose(1, 2).contiguous()


def onnx_cases(golden):
    for case, attributes, given, (output, state) in cases_of_onnx("CausalConvWithState", NAMES):
        tensors = {name: torch.tensor(np.asarray(x)) for name, x in given.items()}
        tensors["x"], tensors["weight"] = tokens_first(tensors["x"]), tensors["weight"][:, 0].contiguous()
        tensors |= {"output": tokens_first(torch.tensor(np.asarray(output))), "state": torch.tensor(np.asarray(state))}
        silu = attributes.get("activation", b"none") != b"none"
        golden.add("convolution", "onnx", line({"name": case, "silu": int(silu)}), tensors, given=NAMES)


def of_transformers(golden):
    torch.manual_seed(0)
    for channels, k, tokens, more in [(6, 4, 9, 1), (70, 4, 33, 3), (3, 2, 1, 2)]:
        x, after, weight = torch.randn(2, channels, tokens), torch.randn(2, channels, more), torch.randn(channels, k)
        x.requires_grad_(), weight.requires_grad_()
        output = qwen.causal_conv1d_fn(x, weight, None, "silu")
        d_output = torch.randn_like(output)
        dx, d_weight = torch.autograd.grad(output, (x, weight), d_output)
        state = torch.nn.functional.pad(x.detach(), (k - 1, 0))[..., -(k - 1) :].clone()
        tensors = {"x": tokens_first(x), "weight": weight, "output": tokens_first(output), "state": state.clone(),
                   "d_output": tokens_first(d_output), "d_x": tokens_first(dx), "d_weight": d_weight,
                   "after": tokens_first(after)}  # fmt: skip
        with torch.no_grad():
            tensors["output_after"] = tokens_first(qwen.causal_conv1d_update(after, state, weight, None, "silu"))
        golden.add("convolution", "transformers", line({"silu": 1}), tensors, given=["x", "weight", "d_output", "after"])


def norms(golden):
    torch.manual_seed(1)

    def add(name, d, f, *given):
        x, gate, weight = (torch.randn(*shape, requires_grad=True) for shape in ((5, d), (5, d), (d,)))
        dy = torch.randn(5, d)
        y = f(x, gate, weight)
        gradients = torch.autograd.grad(y, (x, gate, weight), dy, allow_unused=True)
        tensors = {"x": x, "gate": gate, "weight": weight, "dy": dy, "y": y}
        tensors |= {n: g for n, g in zip(("d_x", "d_gate", "d_weight"), gradients) if g is not None}
        golden.add("norm", name, line({"d": d}), tensors, given=["x", "gate", "weight", "dy"])

    def module(made, x, gate, weight):
        return torch.func.functional_call(made, {"weight": weight}, (x, gate))

    for d in (3, 24, 128):
        add("l2", d, lambda x, gate, weight: qwen.l2norm(x))
        add("silu", d, lambda x, gate, weight: module(qwen.Qwen3NextRMSNormGated(d), x, gate, weight))
        add("sigmoid", d, lambda x, gate, weight: module(kimi.KimiLinearRMSNormGated(d), x, gate, weight))
        add("mamba", d, lambda x, gate, weight: module(mamba2.MambaRMSNormGated(d, d), x, gate, weight))


if __name__ == "__main__":
    torch.set_num_threads(1)
    golden = Golden()
    onnx_cases(golden)
    of_transformers(golden)
    norms(golden)
    golden.save(DATA / "recurrent_parts.safetensors")
