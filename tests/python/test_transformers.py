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


PADDED = {"left": [[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * 9], "right": [[1] * 9, [1, 1, 1, 1, 1, 0, 0, 0, 0]],
          "one token": [[0] * 8 + [1], [1] * 9], "nothing": [[0] * 9, [1] * 9],
          "a hole": [[0, 1, 1, 0, 0, 1, 1, 1, 1], [1] * 9]}  # fmt: skip


@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize("window", [None, 3])
def test_padding_takes_no_booleans(monkeypatch, window, padding):
    """A batch of padded texts is packed, unless a window would count a hole; gradients are eager's, too."""
    asked = []
    call = attn.transformers.scaled_dot_product_attention
    monkeypatch.setattr(attn.transformers, "scaled_dot_product_attention",
                        lambda *args, **options: asked.append((args[3:], options)) or call(*args, **options))  # fmt: skip
    torch.manual_seed(0)
    config = transformers.MistralConfig(**SMALL, sliding_window=window)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids, seen, results = torch.randint(3, 97, (2, 9)), torch.tensor(PADDED[padding]), []
    for implementation in ("sdpa", "attn"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        logits = model(ids, attention_mask=seen).logits[seen.bool()]
        logits.square().sum().backward()
        results.append([logits, *(p.grad.clone() for p in model.parameters())])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    packs = window is None or padding != "a hole"
    assert len(asked) == 2
    for args, options in asked:
        assert ("cu_seqlens_q" in options) == packs and (not args) == packs
        assert options.get("window") == (None if window is None or not packs else (2, -1))


def test_padded_texts_are_continued_as_by_sdpa():
    torch.manual_seed(1)
    for window in (None, 4):
        config = transformers.MistralConfig(**SMALL, sliding_window=window)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        ids, results = torch.randint(3, 97, (2, 9)), []
        for implementation in ("sdpa", "attn"):
            model.set_attn_implementation(implementation)
            results.append(model.generate(ids, attention_mask=torch.tensor(PADDED["left"]), max_new_tokens=12,
                                          do_sample=False))  # fmt: skip
        assert torch.equal(*results)


def test_a_mask_is_not_changed_in_place():
    mask = attn.transformers.CausalMask.of((1, 1, 4, 4), 3)
    with pytest.raises(ValueError, match="not changed in place"):
        mask[:, :, 0] = True


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("tq, tk", [(7, 7), (1, 9), (3, 9)])
def test_what_reads_a_window_finds_its_values(tq, tk, padded):
    seen = torch.rand(2, tk, generator=torch.Generator().manual_seed(5)) > 0.4 if padded else None
    window = attn.transformers.CausalMask.of((2, 1, tq, tk), 3, seen)
    function = transformers.masking_utils.sliding_window_causal_mask_function(3)
    want = transformers.masking_utils.sdpa_mask(2, tq, tk, tk - tq, mask_function=function, attention_mask=seen,
                                                allow_is_causal_skip=False)  # fmt: skip
    assert window.shape == want.shape and window.dtype == torch.bool
    for read in (torch.Tensor.clone, lambda m: m[:, :, -1:], lambda m: torch.where(m, 0.0, -1.0), lambda m: ~m,
                 lambda m: m.float(), lambda m: m[..., 1:].any(-1)):  # fmt: skip
        assert torch.equal(read(window), read(want)) and type(read(window)) is torch.Tensor
