"""attn.experiment beside the same by hooks in PyTorch, of a model in memory."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

import attn

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None)  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


LLAMA = pathlib.Path(__file__).resolve().parents[1] / "lm" / "data" / "llama"
IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def loss(model, change=None, layer=0):
    """The mean loss; `change` is given the input of a layer's o_proj, (1, t, heads · d)."""
    hook = None
    if change is not None:
        projection = model.model.layers[layer].self_attn.o_proj
        hook = projection.register_forward_pre_hook(lambda _, inputs: (change(inputs[0].clone()),))
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
    if hook is not None:
        hook.remove()
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(IDS[1:])).item()


def zeroed(head):
    def change(z):
        z[..., 4 * head : 4 * head + 4] = 0
        return z

    return change


def test_effects_and_edits(model):
    e = attn.experiment(model, IDS)
    effects = e.effects()
    assert effects["before"] == pytest.approx(loss(model), abs=1e-5)
    expected = [[loss(model, zeroed(head), layer) for head in range(4)] for layer in range(2)]
    np.testing.assert_allclose(effects["after"], expected, atol=1e-5)
    assert e.without((1, 2)).loss() == pytest.approx(expected[1][2], abs=1e-5)
    assert e.loss() == pytest.approx(loss(model), abs=1e-5)  # e itself is unchanged

    def mean(z):
        z[..., 4:8] = z[..., 4:8].mean(1, keepdim=True)
        return z

    assert e.without((0, 1), by="mean").loss() == pytest.approx(loss(model, mean), abs=1e-5)
    assert e.step("model.layers.0.self_attn.context", 0.0, 3).loss() == pytest.approx(expected[0][3], abs=1e-5)
    context = e.steps()["model.layers.0.self_attn.context"]
    assert e.step("model.layers.0.self_attn.context", 0 * context).loss() == pytest.approx(e.without(0).loss(), abs=1e-6)


def test_states_of_another_number_than_heads():
    """Qwen 3.5's layers: six states behind two key heads, and four heads with a gate behind them."""
    folder = pathlib.Path(__file__).parents[1] / "lm" / "data" / "qwen3_5_text"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    e = attn.experiment(str(folder), IDS)
    after = e.effects()["after"]
    assert after.shape == (3, 6) and np.isnan(after[1, 4:]).all()
    for layer, (heads, size) in enumerate([(6, 4), (4, 8), (6, 4)]):
        part = model.model.layers[layer]
        place = part.linear_attn.norm if layer != 1 else part.self_attn.o_proj
        for head in range(heads):

            def without(_, inputs, head=head, heads=heads, size=size):
                z = inputs[0].clone()
                z.view(-1, heads, size)[:, head] = 0
                return (z, *inputs[1:])

            hook = place.register_forward_pre_hook(without)
            assert after[layer, head] == pytest.approx(loss(model), abs=1e-5), (layer, head)
            hook.remove()
            assert e.without((layer, head)).loss() == pytest.approx(after[layer, head], abs=1e-6)
    with pytest.raises(ValueError, match="a head of"):
        e.without((1, 4)).loss()


def test_an_encoder():
    """An encoder in memory gives what PyTorch gives with hooks, where a head is switched off or gives its mean."""
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=61, hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=64)  # fmt: skip
    model = transformers.BertModel(config).eval()
    e = attn.experiment(model, IDS)
    assert repr(e) == "<attn.Experiment: 8 tokens, 0 changes>"
    for by, other in (("zero", lambda z: 0 * z), ("mean", lambda z: z.mean(1, keepdim=True).expand_as(z))):

        def change(_, inputs, other=other):
            z = inputs[0].clone()
            z[..., 8:12] = other(z[..., 8:12])
            return (z, *inputs[1:])

        hook = model.encoder.layer[1].attention.output.register_forward_pre_hook(change)
        with torch.no_grad():
            expected = model(torch.tensor([IDS])).last_hidden_state[0].numpy()
        hook.remove()
        for off in (e.without((1, 2), by=by), *([e.without((1, 2), by=by, over=[IDS])] if by == "mean" else [])):
            np.testing.assert_allclose(off.steps()["encoder.layer.2.output"], expected, atol=1e-5)
            changes = off.changes()
            assert (changes[0] == 0).all() and changes[1, 2] > 0 and (changes[2] > 0).all()
    np.testing.assert_allclose(e.rollout().sum(-1), 1, atol=1e-6)
    for wrong in (e.loss, e.lens, e.effects, e.scores, lambda: e.next(3), lambda: e.attribution("a"), lambda: e.compare(model)):
        with pytest.raises(ValueError, match="a language model; found an encoder"):
            wrong()


OTHERS = [[3, 1, 4], [2, 7, 1, 8, 2]]


def mean_over(model, layer):
    """What a layer's heads give on average over all tokens of OTHERS, (heads · d)."""
    kept = []
    hook = model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0][0]))
    with torch.no_grad():
        for ids in OTHERS:
            model(torch.tensor([ids]))
    hook.remove()
    return torch.cat(kept).mean(0)


def test_the_mean_over_other_texts(model):
    e = attn.experiment(model, IDS)

    means = [mean_over(model, layer) for layer in range(2)]

    def by_mean(layer, head):
        def change(z):
            z[..., 4 * head : 4 * head + 4] = means[layer][4 * head : 4 * head + 4]
            return z

        return loss(model, change, layer)

    expected = [[by_mean(layer, head) for head in range(4)] for layer in range(2)]
    np.testing.assert_allclose(e.effects(by="mean", over=OTHERS)["after"], expected, atol=1e-5)
    assert e.without((1, 2), by="mean", over=OTHERS).loss() == pytest.approx(expected[1][2], abs=1e-5)
    all_heads = loss(model, lambda z: means[1].expand_as(z), 1)
    assert e.without(1, by="mean", over=OTHERS).loss() == pytest.approx(all_heads, abs=1e-5)
    kept = [(layer, head) for layer in range(2) for head in range(4) if (layer, head) != (1, 2)]
    assert e.keep_only(*kept, by="mean", over=OTHERS).loss() == pytest.approx(expected[1][2], abs=1e-5)
    kept = []
    hook = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    other = IDS[::-1]
    with torch.no_grad():
        model(torch.tensor([other]))
    hook.remove()

    def as_there(z):
        z[..., 8:12] = kept[0][..., 8:12]
        return z

    assert e.without((1, 2), by="text", over=[other]).loss() == pytest.approx(loss(model, as_there, 1), abs=1e-5)
    np.testing.assert_array_equal(e.without(1, by="text", over=[IDS]).logits(), e.logits())
    for wrong, says in (
        (lambda: e.without((1, 2), over=OTHERS), 'by="mean"'),
        (lambda: e.without((1, 2), by="text"), "a list of texts; found none"),
        (lambda: e.without((1, 2), by="text", over=[[1]]), "one text of 8 tokens; found 1"),
        (lambda: e.effects(by="mean", over="a text"), "a list of texts"),
        (lambda: e.effects(by="mean", over=[]), "a text or more"),
        (lambda: e.without((2, 0), by="mean", over=OTHERS).loss(), "a layer from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=says):
            wrong()


def test_two_models(model):
    e = attn.experiment(model, IDS)
    same = e.compare(model)
    np.testing.assert_array_equal(same["losses"], same["other_losses"])
    assert (np.asarray(same["heads"]) == 0).all()
    torch.manual_seed(4)
    other = transformers.LlamaForCausalLM(model.config).eval()
    both = e.without((0, 1)).compare(other)
    np.testing.assert_array_equal(both["losses"], e.without((0, 1)).losses())
    np.testing.assert_array_equal(both["other_losses"], attn.experiment(other, IDS).without((0, 1)).losses())
    with torch.no_grad():
        expected = torch.log_softmax(other(torch.tensor([IDS])).logits[0, -1], -1)
    np.testing.assert_allclose(e.compare(other)["other_next"], expected, atol=1e-5)

    def contexts(of):
        steps = attn.experiment(of, IDS).steps()
        return np.stack([steps[f"model.layers.{layer}.self_attn.context"] for layer in range(2)])

    a, b = contexts(model), contexts(other)
    changes = np.linalg.norm((b - a).reshape(2, 4, -1), axis=-1) / np.linalg.norm(a.reshape(2, 4, -1), axis=-1)
    np.testing.assert_allclose(e.compare(other)["heads"], changes, atol=1e-5)
    larger = transformers.LlamaConfig(**{**model.config.to_dict(), "num_hidden_layers": 3, "vocab_size": 62})
    with pytest.raises(ValueError, match="2 layers of 4 heads.* 61 tokens.*3 layers of 4 heads"):
        e.compare(transformers.LlamaForCausalLM(larger))


def test_models_of_other_tokens_are_not_compared(tmp_path):
    """Both cut the text into the same ids; token 0, which the text lacks, tells that the vocabularies differ."""
    for name, first in (("one", "z"), ("other", "y")):
        shutil.copytree(LLAMA, tmp_path / name)
        model = {"vocab": {first: 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": model, "decoder": {"type": "Fuse"}}))
    e = attn.experiment(tmp_path / "one", "aab")
    np.testing.assert_array_equal(e.losses(), e.compare(tmp_path / "one")["other_losses"])
    assert attn.experiment(tmp_path / "other", "aab").ids == e.ids == [1, 3]
    for given in ("aab", [1, 3]):
        with pytest.raises(ValueError, match="same tokens, whose 0 is 'z'; found 'y'"):
            attn.experiment(tmp_path / "one", given).compare(tmp_path / "other")
    with pytest.raises(ValueError, match="a tokenizer.json"):
        e.compare(LLAMA)
    attn.experiment(LLAMA, [1, 3]).compare(LLAMA)  # of ids alone


@pytest.mark.parametrize("wrong", ["3.1", 3.1, "x", None, (1, 0, 0), (1, "0"), (), ("1",)])
def test_what_is_no_head_is_refused(model, wrong):
    e = attn.experiment(model, IDS)
    says = re.escape(f"expected a head as (layer, head), or a layer; found {wrong!r}")
    says += re.escape("; here heads count from 0, and 3.1 of pages and the command is (2, 0)") if str(wrong) == "3.1" else "$"
    with pytest.raises(ValueError, match=says):
        e.without(wrong)
    for call in (lambda: e.keep_only(wrong), lambda: e.scale(wrong, 2.0), lambda: e.weights(wrong, "none"), lambda: e.scale(1, 2.0)):
        with pytest.raises(ValueError, match=re.escape("expected a head as (layer, head); found")):
            call()
    for same in ([1, 0], np.array([1, 0]), (np.int64(1), 0)):
        assert e.without(same).loss() == e.without((1, 0)).loss()
    assert e.without((1,)).loss() == e.without(1).loss()


@pytest.mark.parametrize("ids", [[1.5, 2.0], np.array([[1, 2]]), None, [["a", "b"]]])
def test_what_are_no_ids_is_refused(model, ids):
    with pytest.raises((TypeError, ValueError), match=r"\[experiment\] expected"):
        attn.experiment(model, ids)


def test_kept_models_are_in_the_order_of_their_steps(tmp_path):
    for name in ("m", "m.step-10", "m.step-9", "m.step-09", "m.step-x", "m.step-", "m.step--5", "n.step-1", "m.step-3.training"):
        (tmp_path / f"{name}.safetensors").touch()
    found = attn.kept_models(tmp_path / "m.safetensors")
    assert found == [(step, str(tmp_path / f"m.step-{step}.safetensors")) for step in (9, 10)]
    assert attn.kept_models(tmp_path / "none.safetensors") == []


def autograd_estimates(model):
    """The loss that its gradient by the input of each o_proj promises when a head gives nothing, (layers, heads)."""
    kept, hooks = [], []

    def keep(_, inputs):
        inputs[0].retain_grad()
        kept.append(inputs[0])

    for layer in model.model.layers:
        hooks.append(layer.self_attn.o_proj.register_forward_pre_hook(keep))
    logits = model(torch.tensor([IDS])).logits[0]
    for hook in hooks:
        hook.remove()
    value = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(IDS[1:]))
    value.backward()
    return [[value.item() - (z.grad * z)[..., 4 * h : 4 * h + 4].sum().item() for h in range(4)] for z in kept]


def test_estimated_effects(model):
    e = attn.experiment(model, IDS)
    found, exact = e.effects(exact=2), e.effects()
    np.testing.assert_allclose(found["estimates"], autograd_estimates(model), atol=1e-5)
    known = ~np.isnan(found["after"])
    assert known.sum() == 2
    np.testing.assert_array_equal(np.asarray(found["after"])[known], np.asarray(exact["after"])[known])
    sizes = np.abs(found["estimates"] - found["before"])
    assert sizes[known].min() >= sizes[~known].max()
    off = np.abs(found["estimates"] - found["after"])[known].mean()
    assert found["error"] == pytest.approx(off)
    assert "estimates" not in exact


def test_what_follows(model):
    e = attn.experiment(model, IDS)
    np.testing.assert_allclose(np.asarray(e.rollout()).sum(-1), 1)
    parts = e.attribution(7, 9)
    assert parts["sum"] == pytest.approx(parts["logit"], abs=1e-5)
    np.testing.assert_allclose(np.asarray(e.lens()["losses"])[-1], e.losses(), atol=1e-6)
    assert np.asarray(e.scores()["induction"]).shape == (2, 4)
    patched = e.patch_from(IDS[:-1] + [8], (7, 9))
    assert patched["stream"][0, -1] == 1 and (patched["stream"][0, :-1] == 0).all()
    beside = e.without((1, 0)).patch_from(IDS[:-1] + [8], (7, 9))
    assert beside["clean"] != patched["clean"] and beside["heads"][1, 0] == 0  # off in both texts
    changed = np.asarray(e.skip(1, "attention").changes())
    assert (changed == 0).all()


def test_a_token_is_hidden_from_a_head_or_a_layer(model):
    e = attn.experiment(model, IDS)
    layers, heads = e.changes().shape
    by_layer, by_head = e, e
    for layer in range(layers):
        by_layer = by_layer.hide(1, layer)
        for head in range(heads):
            by_head = by_head.hide(1, (layer, head))
    np.testing.assert_array_equal(by_layer.losses(), e.hide(1).losses())
    np.testing.assert_array_equal(by_head.losses(), e.hide(1).losses())
    last = e.hide(1, (layers - 1, 0)).changes()
    assert last[layers - 1, 0] > 1e-5 and np.count_nonzero(last > 1e-5) == 1  # others round otherwise
    with pytest.raises(ValueError, match="a layer from 0 to"):
        e.hide(1, (layers, 0)).loss()


def test_another_text_is_read_with_the_same_changes(model):
    e = attn.experiment(model, IDS).without((0, 1))
    other = e.reading(IDS[:4])
    assert other.ids == IDS[:4]
    np.testing.assert_array_equal(other.losses(), attn.experiment(model, IDS[:4]).without((0, 1)).losses())
    with pytest.raises(ValueError, match="at least one token"):
        e.reading([])
    as_there = attn.experiment(model, IDS).without((0, 1), by="text", over=[IDS[::-1]])
    with pytest.raises(ValueError, match=r"\[experiment\] expected for head 1 of layer 0.* sizes of 1 or those of .*found"):
        as_there.reading(IDS[:4]).loss()  # what the head gives is of as many tokens as the text had


def test_what_is_refused(model):
    e = attn.experiment(model, IDS)
    for wrong, says in (
        (lambda: e.without((2, 0)).loss(), "a layer from 0 to 1"),
        (lambda: e.without((0, 0), by="nothing").loss(), "zero"),
        (lambda: e.step("model.layers.0.self_atn.context", 0.5).loss(), "did you mean model.layers.0.self_attn.context"),
        (lambda: e.skip(0, "norm"), "attention"),
        (lambda: e.effects(exact=-1), "0 or more"),
        (lambda: e.step("h.1.attn.context", 0.5).loss(), "did you mean model.layers.1.self_attn.context"),
        (lambda: e.step("model.layers.0.self_attn.context", True), "a factor"),
        (lambda: e.without((0, 0)).scale((0, 0), 3).loss(), "edits that all change something"),
        (lambda: e.skip(1).without((1, 0)).loss(), "context .* in whose place is output"),
        (lambda: attn.experiment(model, []), "at least one token"),
        (lambda: attn.experiment(model, "a text"), r"a tokenizer beside .* found none; attn.experiment\(model, text, tokenizer\)"),
        (lambda: e.without((0, 0)).scale((1, 1), 2).effects(exact=1), "head 0 of layer 0.* switched off and 1 more"),
    ):
        with pytest.raises(ValueError, match=says):
            wrong()
    for exact in ("some", True):
        with pytest.raises(TypeError, match="exact, a number of heads"):
            e.effects(exact=exact)
    for wrong in (lambda: e.without((True, 0)), lambda: e.skip(True), lambda: e.hide(True), lambda: e.next(True)):
        with pytest.raises((TypeError, ValueError), match="found .*(bool|True)"):
            wrong()
    with pytest.raises(TypeError, match="Hugging Face model"):
        attn.experiment(3, IDS)


@pytest.mark.parametrize("two", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), torch.tensor(2.0)], ids=repr)
def test_any_number_multiplies_a_step(model, two):
    e, step = attn.experiment(model, [3, 1, 4]), "model.layers.0.self_attn.context"
    twice = e.step(step, e.steps()[step] * 2).losses()
    np.testing.assert_allclose(e.step(step, two).losses(), twice, rtol=1e-6)
    np.testing.assert_allclose(e.scale((0, 1), two).losses(), e.scale((0, 1), 2.0).losses(), rtol=0)


def test_numbers_that_no_pass_can_mean_are_refused(model):
    e = attn.experiment(model, [3, 1, 4])
    for factor in (float("nan"), float("inf"), 1e40):
        for change in (lambda: e.scale((0, 0), factor), lambda: e.step("model.layers.0.self_attn.context", factor)):
            with pytest.raises(ValueError, match="finite factor"):
                change()
    for count in (0, -1):
        with pytest.raises(ValueError, match="count of at least 1"):
            e.next(count)
    with pytest.raises(TypeError, match="count as an integer"):
        e.next(2.5)
    for tokens in ((), (1,), (1, 2, 3), "ab"):
        for measured in (lambda: e.effects(tokens=tokens), lambda: e.patch_from([3, 1, 5], tokens)):
            with pytest.raises(ValueError, match="tokens as two"):
                measured()


def test_a_model_with_hooks_is_refused(model):
    handle = model.model.layers[0].mlp.register_forward_hook(lambda module, inputs, output: output * 0)
    try:
        with pytest.raises(ValueError, match="hooks.*model.layers.0.mlp"):
            attn.experiment(model, [3, 1, 4])
    finally:
        handle.remove()


def test_what_weights_do_not_say_is_refused():
    model = transformers.AutoModelForCausalLM.from_pretrained(LLAMA)
    mlp = model.model.layers[0].mlp
    before, mlp.forward = mlp.forward, lambda x: 0 * x
    with pytest.raises(ValueError, match=r"another forward\(\) of model.layers.0.mlp"):
        attn.experiment(model, IDS)
    del mlp.forward
    assert before.__func__ is mlp.forward.__func__ and attn.experiment(model, IDS).loss() == pytest.approx(loss(model), abs=1e-5)
    with pytest.raises(ValueError, match="found LlamaModel; pass the ForCausalLM"):
        attn.experiment(model.model, IDS)
    with pytest.raises(ValueError, match="on the device meta"):
        attn.experiment(model.to("meta"), IDS)


def test_what_an_overwritten_change_does_inside_is_told(model):
    e = attn.experiment(model, IDS).weights((0, 0), "previous").without((0, 0))
    with pytest.raises(ValueError, match="edits that all change something"):
        e.logits()
    weights = e.steps()["model.layers.0.self_attn.weights"][0]
    assert (weights[1:, :-1].diagonal() == 1).all()
    assert not np.array_equal(e.rollout(), attn.experiment(model, IDS).without((0, 0)).rollout())
    assert e.scores()["previous"][0, 0] == 1 and e.changes()[0, 0] == 1  # |0 - z| / |z|


def test_what_says_nothing_of_the_weights_is_no_matter(tmp_path):
    transformers.set_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small)).eval()
    loss = attn.experiment(model, IDS).loss()
    model.config.unk_token_id, model.config._model_name_or_path = 0, "somewhere"
    assert attn.experiment(model, IDS).loss() == loss
    model.config.nobody_knows = 3
    with pytest.raises(ValueError, match="nobody_knows: 3 in model.config"):
        attn.experiment(model, IDS)


def test_the_lens_of_one_token_has_no_losses():
    lens = attn.experiment(str(LLAMA), [3]).lens()
    layers = lens["tokens"].shape[0]
    assert lens["tokens"].shape == (layers, 1) and lens["losses"].shape == (layers, 0)


def test_what_a_head_gives_is_one_of_four():
    with pytest.raises(ValueError, match='"zero", "mean", "uniform" or "text"'):
        attn.experiment(str(LLAMA), IDS).without((0, 0), by="foo").loss()
