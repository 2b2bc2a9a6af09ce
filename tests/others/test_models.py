"""Real models beside transformers, which reads the same GGUF files: ids, logits and greedy tokens."""

import json
import subprocess

import numpy as np
import packages
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
HELPER = packages.ROOT / "build" / "default" / "tests" / "logits_of"
PROMPTS = ["The capital of France is", "def fibonacci(n):\n    if n < 2:", "  Größe, 你好 and 3.14159\n\n🙂"]


def test_experiments_take_a_model_that_transformers_has_read(smollm2):
    """Its weights are floats by then, though its config says that it is quantized and transformers refuses to write it."""
    package = pytest.importorskip("attn")
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32).eval()
    ids = [504, 3575, 282, 4649, 314]
    with torch.no_grad():
        loss = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
    assert package.experiment(model, ids).loss() == pytest.approx(loss, abs=1e-4)
    assert model.hf_quantizer is not None and model.config.quantization_config  # it is left as it was


def test_edits_are_those_of_hooks_in_a_model_of_real_size(smollm2):
    """A head is switched off, and others are changed, where they go into o_proj."""
    package = pytest.importorskip("attn")
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32).eval()
    ids, other = [504, 3575, 282, 4649, 314], [504, 3575, 282, 7269, 314]
    e, size = package.experiment(model, ids), model.config.head_dim

    def given(text, layer, head):
        kept = []
        taken = model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(lambda _, x: kept.append(x[0].clone()))
        with torch.no_grad():
            model(torch.tensor([text]))
        taken.remove()
        return kept[0][..., head * size : (head + 1) * size]

    def by_hooks(changes):
        hooks = []
        for layer, head, change in changes:
            def hook(_, x, head=head, change=change):
                z = x[0].clone()
                part = z[..., head * size : (head + 1) * size]
                part[:] = change(part)
                return (z,)

            hooks.append(model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(hook))
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].numpy()
        for one in hooks:
            one.remove()
        return logits

    theirs = given(other, 23, 4)
    cases = [
        (e, []),
        (e.without((23, 4)), [(23, 4, torch.zeros_like)]),
        (e.without((0, 0), by="mean"), [(0, 0, lambda z: z.mean(1, keepdim=True))]),
        (e.scale((29, 8), -2), [(29, 8, lambda z: -2 * z)]),
        (e.without((23, 4), by="text", over=[other]), [(23, 4, lambda z: theirs)]),
        (e.without((3, 7)).scale((18, 6), 0.5), [(3, 7, torch.zeros_like), (18, 6, lambda z: z / 2)]),
    ]
    for mine, changes in cases:
        wanted = by_hooks(changes)
        assert np.abs(mine.logits() - wanted).max() <= 1e-5 * np.abs(wanted).max(), mine
    assert np.abs(cases[1][0].logits() - e.logits()).max() > 1  # that head matters


@pytest.mark.parametrize("fixture", ["gemma3_270m", "smollm2"])
def test_a_model_is_transformers(fixture, request, attn, tmp_path):
    path = request.getfixturevalue(fixture)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    ran = attn("tokens", "--tokenizer", path, "--lines", lines)
    ids = [json.loads(line) for line in ran.stdout.split("\n")[:-1]]
    assert ids == [tokenizer(prompt).input_ids for prompt in PROMPTS]
    texts = [",".join(map(str, one)) for one in ids]
    ran = attn("generate", "--model", path, "--ids", *texts, "--tokens", 30, "--temperature", 0, "--json")
    assert ran.returncode == 0, ran.stderr
    for one, text, written in zip(ids, texts, json.loads(ran.stdout)["texts"]):
        with torch.no_grad():
            logits = model(torch.tensor([one + written["ids"]])).logits[0, len(one) - 1 :]
        subprocess.run([HELPER, path, tmp_path / "logits.npy", text], check=True)
        found = torch.from_numpy(np.load(tmp_path / "logits.npy"))
        assert (found - logits[0]).abs().max() <= 1e-4 * logits[0].abs().max()
        # Each token is transformers' best one after those before it; the text ends after 30 or before an end.
        assert written["ids"] == logits[: len(written["ids"])].argmax(-1).tolist()
        assert len(written["ids"]) == 30 or logits[-1].argmax() == model.config.eos_token_id
