"""Numbers of tests/experiment beside TransformerLens 4."""

import pathlib

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bridge(theirs, folder):
    """TransformerLens's view of a model of transformers, with a tokenizer that nothing asks."""
    from tokenizers import Tokenizer, models
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedTokenizerFast

    words = {"<e>": 0, **{chr(65 + i): i + 1 for i in range(50)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<e>")), bos_token="<e>", eos_token="<e>",
        pad_token="<e>")  # fmt: skip
    tokenizer.save_pretrained(folder)  # from where the bridge reads it again
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return TransformerBridge.boot_transformers("gpt2", hf_model=theirs, tokenizer=tokenizer, device="cpu")


def test_scores_lens_and_attribution_of_a_gpt2(tmp_path):
    pytest.importorskip("transformer_lens")
    torch = pytest.importorskip("torch")
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM

    golden = {name[5:]: value for name, value in load_file(ROOT / "tests/experiment/data/golden.safetensors").items()
              if name.startswith("gpt2.")}  # fmt: skip
    theirs = AutoModelForCausalLM.from_pretrained(
        ROOT / "tests/lm/data/gpt2/tied-tanh-f32", dtype=torch.float32, attn_implementation="eager").eval()  # fmt: skip
    c, model = theirs.config, bridge(theirs, tmp_path)
    loss = torch.nn.functional.cross_entropy
    with torch.no_grad():
        _, twice = model.run_with_cache(torch.tensor(golden["twice"])[None])
        n = len(golden["twice"]) // 2
        for name, offset in (("previous", 1), ("duplicate", n), ("induction", n - 1)):
            found = [twice["pattern", layer][0].diagonal(-offset, -2, -1).mean(-1) for layer in range(c.n_layer)]
            np.testing.assert_allclose(np.stack(found), golden[name], atol=1e-5, err_msg=name)

        ids = torch.tensor(golden["ids"])
        logits, cache = model.run_with_cache(ids[None])
        assert loss(logits[0, :-1], ids[1:]).item() == pytest.approx(golden["before"].item(), abs=1e-5)
        for layer, stream in enumerate(cache.accumulated_resid(incl_mid=False)):
            read = model.unembed(model.ln_final(stream))[0]
            losses = loss(read[:-1], ids[1:], reduction="none")
            np.testing.assert_allclose(losses, golden["lens"][layer], atol=1e-5, err_msg=f"layer {layer}")

        # A head's result, by the scale of the last norm that the cache holds, its weight, and the unembedding.
        width = c.n_embd // c.n_head
        u = theirs.lm_head.weight[golden["pair"][0]] - theirs.lm_head.weight[golden["pair"][1]]
        scale = cache["ln_final.hook_scale"][0, -1]
        for layer in range(c.n_layer):
            z = cache["z", layer][0, -1].reshape(c.n_head, width)
            for head in range(c.n_head):
                result = z[head] @ theirs.transformer.h[layer].attn.c_proj.weight[head * width : (head + 1) * width]
                share = ((result - result.mean()) / scale * theirs.transformer.ln_f.weight) @ u
                assert share.item() == pytest.approx(golden["parts"][layer, head], abs=1e-5)

        def off(z, hook):
            z = z.clone()
            z.view(*z.shape[:2], c.n_head, width)[:, :, 1] = 0
            return z

        changed = model.run_with_hooks(ids[None], fwd_hooks=[("blocks.1.attn.hook_z", off)])[0]
        assert loss(changed[:-1], ids[1:]).item() == pytest.approx(golden["zero"][1, 1], abs=1e-5)
