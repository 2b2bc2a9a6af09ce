"""attn.LatentAttention beside transformers' DeepSeek-V3, which shares no code with it: outputs, and gradients by PyTorch."""

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5}
HEADS, WIDTH, TOKENS = 3, 16, 9


def theirs(**more):
    config = transformers.DeepseekV3Config(
        **{**SIZES, "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, **more},
        vocab_size=8, num_hidden_layers=1, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    )  # fmt: skip
    torch.manual_seed(11)
    model = transformers.models.deepseek_v3.modeling_deepseek_v3
    layer = model.DeepseekV3Attention(config, 0)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.rand_like(p) - 0.5)
    turns = model.DeepseekV3RotaryEmbedding(config)

    def run(x):
        hidden = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)[None, None]
        return layer(x, position_embeddings=turns(x, torch.arange(TOKENS)[None]), attention_mask=hidden)[0]

    return layer, run


def ours(layer, bias, low, interleaved):
    module = attn.LatentAttention(
        WIDTH, WIDTH, HEADS, bias, latent=10, query_latent=12 if low else 0, plain=6, value=5,
        rope=attn.rotary_frequencies({"head_dim": 4, "rope_theta": 100.0}), interleaved=interleaved,
    )  # fmt: skip
    module.load_state_dict(layer.state_dict())
    return module.eval()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_deepseeks_numbers_and_gradients(bias, low, interleaved):
    layer, run = theirs(attention_bias=bias, rope_interleave=interleaved, q_lora_rank=12 if low else None)
    module = ours(layer, bias, low, interleaved)
    x = torch.rand(2, TOKENS, WIDTH, requires_grad=True)
    wanted = run(x)
    found = module(x.detach())
    assert (found - wanted).abs().max() < 2e-6 * max(1, wanted.abs().max())
    dz = torch.rand_like(wanted) - 0.5
    wanted.backward(dz)
    dx = module.backward(dz)
    assert (dx - x.grad).abs().max() < 1e-5 * max(1, x.grad.abs().max())
    grads = {p.name: p.grad for p in module.parameters()}
    for name, p in layer.named_parameters():
        assert np.abs(grads[name] - p.grad.numpy()).max() < 1e-5 * max(1, p.grad.abs().max()), name


def test_the_steps_and_the_words():
    layer, _ = theirs()
    module = ours(layer, False, True, False)
    x = (np.random.default_rng(2).random((TOKENS, WIDTH)) - 0.5).astype(np.float32)
    steps = module.steps(x)
    weight = layer.kv_a_proj_with_mqa.weight.detach().numpy()
    np.testing.assert_allclose(steps["compressed"], x @ weight[:10].T, atol=1e-6)
    root = np.sqrt((steps["compressed"] ** 2).mean(-1, keepdims=True) + 1e-6)
    norm = layer.kv_a_layernorm.weight.detach().numpy()
    np.testing.assert_allclose(steps["latents"], steps["compressed"] / root * norm, atol=1e-6)
    up = layer.kv_b_proj.weight.detach().numpy().reshape(HEADS, 11, 10)
    np.testing.assert_allclose(steps["values"], steps["latents"] @ up[:, 6:].transpose(0, 2, 1), atol=1e-6)
    assert steps["query latents"].shape == (TOKENS, 12)
    text = str(attn.explain(module, x, query=3, head=1))
    assert "a cache has 14 numbers of a token; the keys and values of its 3 heads are 45" in text
    assert text.count(" = [" + ", ".join(f"{v:.4f}" for v in steps["context"][1, 3][:3])) == 2  # both forms
    page = str(attn.report(module, x))
    assert "So a cache keeps" in page
    assert len(str(attn.report(module, x, live=True))) > len(page) + 100_000  # the library


def test_what_does_not_fit_is_named():
    for arguments, named in [
        ({"num_heads": 3}, "d_out divisible by num_heads"),
        ({"latent": -1}, "latent of at least 1"),
        ({"dropout": 2.0}, r"dropout in \[0, 1\]"),
    ]:
        with pytest.raises(ValueError, match=named):
            attn.LatentAttention(4, 8, **arguments)
