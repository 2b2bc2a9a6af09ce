"""report() of a Hugging Face model names its heads: the scores beside the model's own weights on a text read twice."""

import pytest
from pages import data_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attn  # noqa: E402

pytestmark = pytest.mark.no_sanitizer
KINDS = ("first", "previous", "same", "induction")


def kinds_of(weights, ids):
    """From the definition: weights (2n, 2n), the n ids."""
    n, twice, sums = len(ids), [*ids, *ids], dict.fromkeys(KINDS, 0.0)
    for i in range(n, 2 * n):
        for j in range(i):
            if j == 0:
                kind = "first"
            elif j == i - 1:
                kind = "previous"
            elif twice[j] == twice[i]:
                kind = "same"
            elif twice[j - 1] == twice[i]:
                kind = "induction"
            else:
                continue
            sums[kind] += weights[i, j].item() / n
    return sums


@pytest.mark.parametrize("padding", [0, 3])
def test_of_a_llama_with_shared_keys(padding):
    torch.manual_seed(2)
    config = transformers.LlamaConfig(vocab_size=9, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(0, 9, (1, 10))
    text = ids[0, padding:].tolist()
    seen = torch.arange(10)[None] >= padding
    page = data_of(attn.report(model, {"input_ids": ids, "attention_mask": seen.long()}))
    assert page["repeated"] == len(text)
    model.set_attn_implementation("eager")
    want = model(torch.tensor([text * 2]), output_attentions=True).attentions
    for layer, block in enumerate(page["blocks"]):
        assert len(block["kinds"]) == 4
        for head, found in enumerate(block["kinds"]):
            expected = kinds_of(want[layer][0, head], text)
            assert sum(expected.values()) > 0.1
            for kind in KINDS:
                assert found[kind] == pytest.approx(expected[kind], abs=1e-5), (layer, head, kind)


def test_a_long_text_is_read_as_far_as_it_fits():
    config = transformers.GPT2Config(vocab_size=9, n_embd=16, n_layer=1, n_head=2, n_positions=20, bos_token_id=1,
                                     eos_token_id=1)  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    assert data_of(attn.report(model, torch.randint(0, 9, (15,))))["repeated"] == 10
    page = data_of(attn.report(model, [3, 4], head=1))
    assert (page["repeated"], page["unit"], page["start"]) == (2, "token", {"layer": 0, "head": 1})
    assert data_of(attn.report(model, [3]))["repeated"] == 0
    assert data_of(attn.report(torch.ones(1, 3, 3) / 3))["repeated"] == 0
