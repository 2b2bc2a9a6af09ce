"""The page's checks on models that others made: rounding fails none, and a planted fault fails one.

Scores in the thousands come from biases of the keys as Qwen2.5 has them, up to 354.
"""

import json
import re

import pytest

TEXT = "The capital of France is Paris, and the capital of Italy is Rome. 'Twas 12:30, wasn't it? Grüße!"


def checks(page):
    """name -> check, as the page holds them."""
    found = re.search(r'"health":(\[.*?\]),"', str(page)).group(1)
    return {check["name"]: check for check in json.loads(found)}


def failed(page):
    return [f"{check['name']}: {check['told']}" for check in checks(page).values() if not check["holds"]]


@pytest.mark.parametrize("name", ["smollm2", "gemma3_270m"])
def test_pages_of_models(name, attn, tmp_path, request):
    model, page = request.getfixturevalue(name), tmp_path / "page.html"
    ran = attn("report", "--model", model, "--text", TEXT, "--output", page)
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    assert failed(text) == []
    assert len(checks(text)) == 7
    assert all(0 < check["bound"] < 1e-2 for name, check in checks(text).items() if name.startswith("float64"))


def model_of(kind, dtype, **more):
    import torch
    import transformers

    torch.manual_seed(5)
    config = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0,
    } | more  # fmt: skip
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("k_proj.bias"):
                parameter.uniform_(-354, 354)
            elif name.endswith("q_proj.weight"):
                parameter.mul_(40)
            elif name.endswith("sinks"):
                parameter.normal_()
    return model.to(dtype)


OTHERS = {"num_local_experts": 2, "num_experts_per_tok": 1}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["Qwen2", "Llama", "Gemma2", "Qwen3", "GptOss"])
@pytest.mark.parametrize("implementation", ["eager", "attn"])
def test_attentions_of_transformers(kind, dtype, implementation):
    torch, attn = pytest.importorskip("torch"), pytest.importorskip("attn")
    import attn.transformers

    model = model_of(kind, getattr(torch, dtype), **(OTHERS if kind == "GptOss" else {}))
    model.set_attn_implementation(implementation)
    page = attn.report(model, torch.arange(1, 30)[None])
    assert failed(page) == []
    if implementation == "eager":
        assert f"rounding to {dtype} allows" in next(iter(checks(page).values()))["told"]


def test_a_model_in_training_is_shown_without_dropout():
    torch, attn = pytest.importorskip("torch"), pytest.importorskip("attn")
    model = model_of("Llama", torch.float32, attention_dropout=0.5).train()
    model.model.norm.eval()
    model.set_attn_implementation("eager")
    assert failed(attn.report(model, torch.arange(1, 30)[None])) == []
    assert model.training and not model.model.norm.training


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_weights_alone(dtype):
    torch, attn = pytest.importorskip("torch"), pytest.importorskip("attn")
    torch.manual_seed(3)
    weights = torch.softmax(torch.randn(2, 3, 40, 40, dtype=torch.float64) * 6, -1).to(getattr(torch, dtype))
    page = attn.report(weights)
    assert failed(page) == []
    bound = checks(page)["each row of weights sums to 1"]["bound"]
    assert bound < {"float32": 3e-6, "float64": 1e-14, "bfloat16": 8e-3, "float16": 1.1e-3}[dtype]
    for fault in (lambda w: w.mul_(1 + 4 * bound), lambda w: w[0, 0, 7].mul_(1 + 4 * bound), lambda w: w[1, 2, 5, 3].add_(4 * bound)):
        wrong = weights.clone()
        fault(wrong)
        assert [name.split(":")[0] for name in failed(attn.report(wrong))] == ["each row of weights sums to 1"]
