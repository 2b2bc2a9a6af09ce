"""attn_implementation="attn": small random models of Hugging Face's, beside their own attention."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attn.transformers  # noqa: E402, F401

SMALL = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
CONFIGS = {
    "gpt2": lambda t: t.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1,
                                   eos_token_id=2, pad_token_id=0),
    "llama, grouped heads": lambda t: t.LlamaConfig(**SMALL, num_key_value_heads=2),
    "mistral, window": lambda t: t.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=4),
    "gemma2, softcap": lambda t: t.Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=8, sliding_window=4,
                                                attn_logit_softcapping=5.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_generation_and_gradients(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](transformers)).eval()
    ids = torch.randint(3, 100, (2, 11))
    padded = torch.ones_like(ids)
    padded[0, :4] = 0
    results = []
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        assert model.config._attn_implementation == implementation
        with torch.no_grad():
            logits, with_padding = model(ids).logits, model(ids, attention_mask=padded).logits[padded.bool()]
            text = model.generate(ids, attention_mask=padded, max_new_tokens=8, do_sample=False)
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        gradient = next(p.grad.clone() for n, p in model.named_parameters() if "attn" in n)
        results.append((logits, with_padding, gradient, text))
    for eager, ours in zip(*[r[:3] for r in results]):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert torch.equal(results[0][3], results[1][3])


def test_from_config_by_name():
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS["gpt2"](transformers), attn_implementation="attn")
    assert model.config._attn_implementation == "attn"


def test_an_encoder_without_a_causal_mask():
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(transformers.BertConfig(**SMALL)).eval()
    ids, padded = torch.randint(3, 100, (2, 11)), torch.ones(2, 11, dtype=torch.long)
    padded[0, 7:] = 0
    results = []
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            results.append(model(ids, attention_mask=padded).last_hidden_state[padded.bool()])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_position_bias_and_masks():
    q, bias = torch.randn(2, 3, 5, 4), torch.randn(1, 3, 5, 5)
    module = type("M", (), {"is_causal": True})()
    seen = torch.ones(5, 5, dtype=torch.bool).tril()
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q, torch.where(seen, bias, -torch.inf))
    for mask in (None, seen[None, None], torch.where(seen, 0.0, -torch.inf)[None, None]):
        output, _ = attn.transformers.attention_forward(module, q, q, q, mask, position_bias=bias)
        torch.testing.assert_close(output, want.transpose(1, 2))
    with pytest.raises(ValueError, match="paged"):
        attn.transformers.attention_forward(module, q, q, q, None, cache=object())
