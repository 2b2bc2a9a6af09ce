"""attn_implementation="attn": what transformers hands over besides queries, keys and values. Models: test_families.py."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attn.transformers  # noqa: E402, F401

pytestmark = pytest.mark.no_sanitizer  # no binding that test_torch.py does not use


def test_from_config_by_name():
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=64)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn")
    assert model.config._attn_implementation == "attn"


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


SMALL = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
WEIGHTS = {
    "a window": ("mistral", {**SMALL, "sliding_window": 3}),
    "sinks": ("gpt_oss", {**SMALL, "head_dim": 8, "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "not told by its model": ("gpt2", {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
                                       "bos_token_id": 1, "eos_token_id": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_where_they_are_asked_for(name):
    family, arguments = WEIGHTS[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **arguments)).eval()
    ids, results = torch.randint(3, 97, (2, 7)), []
    for implementation in ("eager", "attn"):
        model.set_attn_implementation(implementation)
        output = model(ids, output_attentions=True)
        output.logits.sum().backward()
        results.append([output.logits, *output.attentions])
    assert len(results[1]) == 3 and results[1][1].shape == (2, 4, 7, 7)
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not model(ids).get("attentions")


def test_a_window_stays_a_window(monkeypatch):
    """Its booleans would be tokens × tokens."""
    asked = []
    call = attn.transformers.scaled_dot_product_attention
    monkeypatch.setattr(attn.transformers, "scaled_dot_product_attention",
                        lambda *args, **options: asked.append((args[3], options.get("window"))) or call(*args, **options))  # fmt: skip
    config = transformers.MistralConfig(**SMALL, sliding_window=3)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attn").eval()
    ids = torch.randint(3, 97, (2, 7))
    model(ids)
    model.generate(ids, max_new_tokens=4, do_sample=False)
    assert len(asked) == 2 * 5 and set(asked) == {(None, (2, -1))}
    asked.clear()
    model(ids, attention_mask=torch.tensor([[0] + [1] * 6, [1] * 7]))
    assert all(mask is not None and window is None for mask, window in asked)


@pytest.mark.parametrize("tq, tk", [(7, 7), (1, 9), (3, 9)])
def test_what_reads_a_window_finds_its_values(tq, tk):
    window = attn.transformers.CausalWindow.of((2, 1, tq, tk), 3)
    function = transformers.masking_utils.sliding_window_causal_mask_function(3)
    want = transformers.masking_utils.sdpa_mask(2, tq, tk, tk - tq, mask_function=function, allow_is_causal_skip=False)
    assert window.shape == want.shape and window.dtype == torch.bool
    for read in (torch.Tensor.clone, lambda m: m[:, :, -1:], lambda m: torch.where(m, 0.0, -1.0), lambda m: ~m,
                 lambda m: m.float(), lambda m: m[..., 1:].any(-1)):  # fmt: skip
        assert torch.equal(read(window), read(want)) and type(read(window)) is torch.Tensor
