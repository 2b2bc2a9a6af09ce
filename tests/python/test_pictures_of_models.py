"""report() and plot() of PyTorch's modules and of Hugging Face's models."""

import pytest
from pages import data_of, steps_of, weights_of

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

pytestmark = pytest.mark.no_sanitizer


def causal(q, k):
    scores = q.double() @ k.double().transpose(-2, -1) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)


MODULES = {
    "SelfAttention_v1": (6, 4),
    "SelfAttention_v2": (6, 4, True),
    "CausalAttention": (6, 4, 8, 0.5, True),
    "MultiHeadAttentionWrapper": (6, 4, 8, 0.0, 2),
    "MultiHeadAttention": (6, 4, 8, 0.5, 2, True),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_attn_torch(name):
    torch.manual_seed(3)
    module, x = getattr(attn.torch, name)(*MODULES[name]), torch.randn(2, 5, 6, requires_grad=True)
    steps = steps_of(attn.report(module, x, item=1))
    assert module.training
    output = module.eval()(x)[1].detach().numpy()
    last = steps.get("output", steps.get("merged"))
    np.testing.assert_allclose(last if last is not None else steps["context"][0], output, atol=1e-6)
    if name == "MultiHeadAttention":
        q, k = (layer(x[1]).unflatten(-1, (2, 2)).transpose(0, 1) for layer in (module.W_query, module.W_key))
        np.testing.assert_allclose(steps["weights"], causal(q, k).detach(), atol=1e-6)
    assert "<svg" in str(attn.plot(module, x))


@pytest.mark.parametrize("name", MODULES)
def test_fresh_modules_are_called_random(name):
    module, x = getattr(attn.torch, name)(*MODULES[name]), torch.randn(5, 6)
    random = lambda: data_of(attn.report(module, x))["randomWeights"]  # noqa: E731
    assert random()
    other = getattr(attn.torch, name)(*MODULES[name])
    other.load_state_dict(module.state_dict())
    assert not data_of(attn.report(other, x))["randomWeights"]
    module(x).sum().backward()
    torch.optim.SGD(module.parameters(), 0.1).step()
    assert not random()


@pytest.mark.parametrize("draw", [attn.report, attn.plot], ids=["report", "plot"])
def test_the_input_of_a_module_of_attn_torch_is_asked_for(draw):
    with pytest.raises(TypeError, match="an input x beside MultiHeadAttention; found none"):
        draw(attn.torch.MultiHeadAttention(6, 4, 8, 0.0, 2))


def test_another_module_is_refused():
    for draw in (attn.report, attn.plot):
        with pytest.raises(ValueError, match="found Linear of torch.nn.modules.linear; of another model pass the attention weights"):
            draw(torch.nn.Linear(3, 3), torch.ones(2, 3))


class Letters:
    """A tokenizer as transformers' are called: a number for each letter."""

    def __call__(self, text, return_tensors):
        assert return_tensors == "pt"
        return {"input_ids": torch.tensor([[ord(c) - 90 for c in text]])}

    def decode(self, ids):
        return "".join(chr(90 + i) for i in ids)


@pytest.fixture(scope="module")
def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1,
                                     eos_token_id=2)  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def eager(model, ids):
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    weights = torch.stack(model(ids, output_attentions=True).attentions).detach()
    model.set_attn_implementation(before)
    return weights.numpy()  # (layers, batch, heads, queries, keys)


def test_a_model_with_its_tokenizer(gpt2):
    before = gpt2.config._attn_implementation
    page = attn.report(gpt2, "hello", Letters())
    want = eager(gpt2, Letters()("hello", return_tensors="pt")["input_ids"])
    np.testing.assert_allclose(weights_of(page), want[:, 0], atol=1e-5)
    assert weights_of(page).shape == (3, 4, 5, 5)
    assert data_of(page)["tokens"] == list("hello")
    assert gpt2.config._attn_implementation == before == "sdpa"
    assert "layer 3, head 4" in str(attn.plot(gpt2, "hello", tokenizer=Letters()))


def test_a_model_with_token_numbers_and_a_batch(gpt2):
    ids = torch.randint(3, 60, (2, 6))
    want = eager(gpt2, ids)
    for given in (ids, ids.numpy(), ids.tolist(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}):
        np.testing.assert_allclose(weights_of(attn.report(gpt2, given, item=1)), want[:, 1], atol=1e-5)
    page = attn.report(gpt2, ids[0].tolist())
    assert data_of(page)["tokens"] == ["1", "2", "3", "4", "5", "6"]
    np.testing.assert_allclose(weights_of(page), want[:, 0], atol=1e-5)


def test_what_a_model_returns(gpt2):
    output = gpt2(torch.randint(3, 60, (1, 6)))
    with pytest.raises(TypeError, match="found NoneType"):
        attn.report(output.attentions)
    gpt2.set_attn_implementation("eager")
    attentions = gpt2(torch.randint(3, 60, (2, 6)), output_attentions=True).attentions
    gpt2.set_attn_implementation("sdpa")
    np.testing.assert_array_equal(weights_of(attn.report(attentions, item=1))[2], attentions[2][1].detach())


def test_what_a_model_cannot_be_asked(gpt2):
    for draw in (attn.report, attn.plot):
        with pytest.raises(ValueError, match="tokenizer beside a text"):
            draw(gpt2, "hello")
        with pytest.raises(ValueError, match="beside the model; found none"):
            draw(gpt2)
        with pytest.raises(ValueError, match=r"token numbers.*\(model\(.*\)\.attentions\)"):
            draw(gpt2, torch.rand(2, 5))
        with pytest.raises(ValueError, match="one text.*found a list of 2 texts; pass one"):
            draw(gpt2, ["hello", "you"], tokenizer=Letters())
        with pytest.raises(ValueError, match="a text of at least one token; found ''"):
            draw(gpt2, "", tokenizer=Letters())
        with pytest.raises(ValueError, match="at most 64 tokens, as GPT2LMHeadModel reads; found 65"):
            draw(gpt2, [5] * 65)
        with pytest.raises(ValueError, match="item from 0 to 0; found 1"):
            draw(gpt2, [5, 6], item=1)


def test_two_stacks_are_named():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2,
                                   decoder_start_token_id=0)  # fmt: skip
    model = transformers.T5Model(config).eval()
    ids = torch.randint(3, 60, (1, 4))
    inputs = {"input_ids": ids, "decoder_input_ids": ids}
    with pytest.raises(ValueError, match=r"encoder_attentions.*attn.report\(model\(\*\*inputs"):
        attn.report(model, inputs)
    with pytest.raises(ValueError, match=r"one stack.*decoder_input_ids=ids.*encoder_attentions"):
        attn.report(transformers.T5ForConditionalGeneration(config).eval(), ids)


def test_a_path_is_to_be_read_first():
    for call in (attn.report, attn.plot):
        with pytest.raises(ValueError, match=r"found a path; pass attn.load\(path\), or attn.Encoder\(path\)"):
            call("model.gguf", "some words")
