"""attn.transformers.use_recurrences() in families whose layers keep a state: small, random, beside transformers' functions."""

import pathlib

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attn._recurrent_families  # noqa: E402
import attn.transformers  # noqa: E402

pytestmark = pytest.mark.no_sanitizer  # no binding that test_linear_attention.py does not use

SMALL = {"vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "hidden_size": 32,
         "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256}  # fmt: skip
DELTA = {**SMALL, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
LATENT = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6, "num_key_value_heads": 4}
FAMILIES = {
    "qwen3_next": {**DELTA, **EXPERTS, "head_dim": 8},
    "qwen3_5_text": {**DELTA, "head_dim": 8},
    "olmo_hybrid": DELTA,
    "lara_mini": {**DELTA, "head_dim": 8},
    "kimi_linear": {**SMALL, **LATENT, "num_hidden_layers": 5, "q_lora_rank": None, "linear_head_dim": 8, "linear_num_heads": 4,
                    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1,
                    "topk_group": 1},
    "bailing_hybrid": {**SMALL, **LATENT, "q_lora_rank": 8, "layer_group_size": 2},
}  # fmt: skip


@pytest.fixture
def both():
    """(on) → transformers' functions or ours; its own again afterwards."""
    yield attn.transformers.use_recurrences
    attn.transformers.use_recurrences(False)


def model_of(family):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **FAMILIES[family])).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:  # small embeddings would make gradients of rounding alone
                parameter.normal_(0, 1 if "embed" in name else 0.1)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients(both, family):
    model = model_of(family)
    ids = torch.randint(3, 97, (2, 70), generator=torch.Generator().manual_seed(1))
    seen = torch.ones_like(ids)
    seen[0, :5] = 0
    results = []
    for on in (False, True):
        both(on)
        model.zero_grad()
        logits = model(ids, attention_mask=seen).logits
        logits[seen.bool()].log_softmax(-1)[:, 5].sum().backward()
        results.append((logits[seen.bool()], {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}))
    (want, theirs), (got, ours) = results
    assert (got - want).abs().max() <= 2e-6 * want.abs().max()
    assert theirs.keys() == ours.keys()
    largest = max(g.abs().max() for g in theirs.values())
    for name, gradient in theirs.items():
        assert (ours[name] - gradient).abs().max() <= 1e-5 * largest, name


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_continued(both, family):
    """40 tokens, greedily, on transformers' own cache."""
    model = model_of(family)
    ids = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))
    results = []
    for on in (False, True):
        both(on)
        results.append(model.generate(ids, max_new_tokens=40, do_sample=False))
    assert torch.equal(*results) and results[0].shape == (2, 49)


def test_packed_texts_stay_apart(both):
    assert {"qwen3_next", "olmo_hybrid"} <= set(both())
    model = model_of("qwen3_5_text")
    layer = next(m for m in model.modules() if type(m).__name__ == "Qwen3_5GatedDeltaNet")
    x, starts = torch.randn(1, 12, 32), torch.tensor([0, 5, 12], dtype=torch.int32)
    apart = torch.cat([layer(x[:, :5]), layer(x[:, 5:])], 1)
    torch.testing.assert_close(layer(x, cu_seq_lens_q=starts), apart)
    torch.testing.assert_close(layer(x, cu_seq_lens_q=starts, seq_idx=torch.tensor([[0] * 5 + [1] * 7])), apart)
    torch.testing.assert_close(layer(x, seq_idx=torch.tensor([[0] * 5 + [1] * 7])), apart)
    with pytest.raises(ValueError, match=r"seq_idx and cu_seq_lens_q of the same texts; .*\[0, 4, 12\] and at \[0, 5, 12\]"):
        layer(x, cu_seq_lens_q=starts, seq_idx=torch.tensor([[0] * 4 + [1] * 8]))
    assert (layer(x) - apart).abs().max() > 1e-3
    both(False)
    with pytest.raises(ValueError, match="packed"):
        layer(x, cu_seq_lens_q=starts)


def test_packed_texts_and_a_cache_are_refused(both):
    """Masks of a model with a cache take a row for one text, so that layers of softmax attention would mix several."""
    both()
    model = model_of("qwen3_5_text")
    ids, starts = torch.randint(3, 97, (1, 12)), torch.tensor([0, 5, 12], dtype=torch.int32)
    packed = {"position_ids": torch.cat([torch.arange(5), torch.arange(7)])[None], "cu_seq_lens_q": starts}
    apart = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], 1)
    torch.testing.assert_close(model(ids, use_cache=False, **packed).logits, apart)
    with pytest.raises(ValueError, match="packed texts without a cache.*found 2 texts and a cache; pass use_cache=False"):
        model(ids, **packed)
    one = model(ids, cu_seq_lens_q=torch.tensor([0, 12], dtype=torch.int32)).logits
    torch.testing.assert_close(one, model(ids).logits)


def test_all_families_of_transformers_are_known(both):
    models = pathlib.Path(transformers.__file__).parent / "models"
    rules = "def torch_chunk_gated_delta_rule(", "def chunk_kimi_delta_attention("
    files = (file for file in models.glob("*/modeling_*.py") if any(rule in file.read_text() for rule in rules))
    assert sorted(both()) == sorted(file.parent.name for file in files)
    with pytest.raises(TypeError, match="on as True or False; found str"):
        both("off")


def test_families_that_this_transformers_lacks_are_passed_over(both, monkeypatch):
    monkeypatch.setattr(attn._recurrent_families, "_FAMILIES", ("not_there", "qwen3_next", "not_there_either"))
    assert both() == ["qwen3_next"]


def test_the_layer_of_glm(both):
    """Without its model, whose other layers are large."""
    glm = pytest.importorskip("transformers.models.glm5_next.modeling_glm5_next")
    torch.manual_seed(0)
    layer = glm.Glm5NextTextLinearAttention(
        glm.Glm5NextTextConfig(hidden_size=32, linear_head_dim=8, linear_num_heads=4, num_hidden_layers=4), 0
    )
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    x = torch.randn(2, 70, 32, requires_grad=True)
    results = []
    for on in (False, True):
        both(on)
        output = layer(x)
        results.append((output, *torch.autograd.grad(output.square().sum(), (x, layer.conv1d.weight))))
    for want, got in zip(*results):
        assert (got - want).abs().max() <= 1e-5 * want.abs().max()
    assert not torch.equal(results[0][0], results[1][0])


def test_calls_as_transformers_makes_none_but_takes(both):
    """Arguments that its functions pass over, several dtypes, and a state shorter than the convolution."""
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    def results():
        torch.manual_seed(0)
        q, k, v = (torch.randn(1, 5, 2, 4) for _ in range(3))
        g, beta, state = -torch.rand(1, 5, 2), torch.rand(1, 5, 2), torch.zeros(1, 3, 2)
        mixed = qwen.torch_chunk_gated_delta_rule(q.bfloat16(), k, v, g, beta)[0]
        step = qwen.torch_recurrent_gated_delta_rule(q, k, v, g, beta, None, False, chunk_size=32)[0]
        return mixed, step, qwen.causal_conv1d_update(torch.randn(1, 3, 2), state, torch.randn(3, 4), None, "silu")

    want = results()
    both()
    for got, expected in zip(results(), want):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected)


def test_what_is_not_ours_stays_theirs(both):
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    x, weight, wide = torch.randn(1, 3, 7), torch.randn(3, 4), torch.randn(3, 9)
    want = [qwen.causal_conv1d_fn(x, weight, None, "gelu"), qwen.causal_conv1d_fn(x, wide, None, "silu")]
    both()
    for got, expected in zip([qwen.causal_conv1d_fn(x, weight, None, "gelu"), qwen.causal_conv1d_fn(x, wide, None, "silu")], want):
        torch.testing.assert_close(got, expected)
