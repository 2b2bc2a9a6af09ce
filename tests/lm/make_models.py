#!/usr/bin/env python3
"""Makes data: a small random model of each family as Hugging Face's transformers writes it, with what it computes.

    pip install torch transformers accelerate safetensors gguf llama-cpp-python
    tests/lm/make_models.py [FAMILY …] [bert] [gguf] [gguf/NAME …] [sampling]
    tests/lm/make_models.py --check FOLDER    # a model that we wrote, in transformers, beside its logits

Each folder holds the model and golden.safetensors: "ids" and their "logits"; "grad.NAME", of the sum of the logits times
"d_logits"; "prompt.N", "greedy.N", the 40 tokens that follow it, and "next.N", the logits after it. Greedy tokens are the
same with and without a cache and, but where rotary frequencies depend on the padded length, in a left-padded batch: the
script fails where they are not, or where a tie would leave them to rounding. gguf/ holds the same kinds of models in GGUF,
written by the gguf package, with the logits that transformers computes of the same weights. Where transformers reads such
a file, or llama.cpp does, the script says how far their logits are from these.

--check reads FOLDER by from_pretrained(), and FOLDER/logits.safetensors, with "ids" and "logits": the test
Pretrained.SavesWhatTransformersReads leaves such a folder where ATTN_KEEP says.

The committed files were made by transformers 5.23.0 (minicpm3, olmo_hybrid and qwen3_5_text: 5.24.0), PyTorch 2.15.0, gguf 0.19.0 and llama-cpp-python 0.3.36.
"""

import os
import shutil
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GenerationConfig

from gguf_files import HALVES, write_bert_gguf, write_gguf

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from kept import kept  # noqa: E402

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
SIZES = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
         "pad_token_id": None}  # fmt: skip
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "short_factor": [1.0],
        "long_factor": [2.5]}  # fmt: skip
HYBRID = {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
          "linear_num_key_heads": 2}  # fmt: skip

FAMILIES = {
    "llama": ("Llama", {"head_dim": 6, "attention_bias": True, "mlp_bias": True, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}}),
    "mistral": ("Mistral", {"sliding_window": 5, "head_dim": 8}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1,
                        "tie_word_embeddings": True, "rope_parameters": {
                            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                            "original_max_position_embeddings": 16}}),
    "qwen3": ("Qwen3", {"head_dim": 6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "gemma2": ("Gemma2", {"head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 5, "attn_logit_softcapping": 2.0,
                          "final_logit_softcapping": 4.0}),
    "gemma3_text": ("Gemma3Text", {"head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 5,
                                   "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
                                       "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "smollm3": ("SmolLM3", {"no_rope_layer_interval": 2}),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5, "original_max_position_embeddings": 16},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}}),
    "phi3": ("Phi3", {"sliding_window": 9, "original_max_position_embeddings": 24, "rope_parameters": LONG}),
    "granite": ("Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
                            "logits_scaling": 0.25, "tie_word_embeddings": True}),
    "minicpm3": ("MiniCPM3", {"num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 6,
                              "qk_rope_head_dim": 4, "v_head_dim": 5, "attention_bias": True, "scale_emb": 3.0,
                              "scale_depth": 0.9, "dim_model_base": 12, "rope_parameters": {
                                  "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.0,
                                  "mscale_all_dim": 0.8, "original_max_position_embeddings": 16}}),
    "olmo_hybrid": ("OlmoHybrid", {**HYBRID, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
                                   "linear_value_head_dim": 5, "attention_bias": True}),
    "qwen3_5_text": ("Qwen3_5Text", {**HYBRID, "head_dim": 8, "linear_num_value_heads": 6, "linear_key_head_dim": 5,
                                     "linear_value_head_dim": 4, "linear_conv_kernel_dim": 3, "rope_parameters": {
                                         "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5,
                                         "mrope_section": [1, 1, 0], "mrope_interleaved": True}}),
}  # fmt: skip


def random_model(kind, seed, **more):
    torch.manual_seed(seed)
    config = getattr(transformers, kind + "Config")(**{**SIZES, **more})
    model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # biases and norms are not to be zeros and ones
            spread = 0.3 if "norm" in name or parameter.dim() == 1 else 0.5 / parameter.shape[1] ** 0.5
            parameter.add_(torch.randn_like(parameter) * spread)
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model


def greedy(model, prompts, use_cache):
    """The 40 tokens after left-padded prompts, and the least distance of the best two logits."""
    longest = max(len(p) for p in prompts)
    ids = torch.stack([torch.cat([torch.zeros(longest - len(p), dtype=torch.int64), p]) for p in prompts])
    mask = torch.stack([(torch.arange(longest) >= longest - len(p)).long() for p in prompts])
    out = model.generate(ids, attention_mask=mask, do_sample=False, min_new_tokens=40, max_new_tokens=40,
                         use_cache=use_cache, output_logits=True, return_dict_in_generate=True)  # fmt: skip
    best = torch.stack(out.logits).topk(2).values
    return out.sequences[:, longest:], (best[..., 0] - best[..., 1]).min().item(), out.logits[0]


def texts(model, padded_alike):
    prompts = [torch.randint(0, SIZES["vocab_size"], (n,)) for n in (3, 9, 1)]
    tensors = {}
    for i, prompt in enumerate(prompts):
        tokens, margin, after = greedy(model, [prompt], True)
        assert margin > 2e-3, f"a tie: {margin}"
        assert torch.equal(tokens, greedy(model, [prompt], False)[0]), "the cache changes tokens"
        tensors |= {f"prompt.{i}": prompt, f"greedy.{i}": tokens[0], f"next.{i}": after[0]}
    batch, _, after = greedy(model, prompts, True)
    for i in range(len(prompts)):
        if padded_alike:
            assert torch.equal(batch[i], tensors[f"greedy.{i}"]), "padding changes tokens"
            tensors[f"next.{i}"] = after[i].clone()
    return tensors


def gradients(model):
    """Whole where the tests take parts."""
    return {"grad." + name: p.grad if "qkv" in name or "gate_up_proj" in name else kept(p.grad)
            for name, p in model.named_parameters()}  # fmt: skip


def make(family, seed=1):
    kind, more = FAMILIES[family]
    model = random_model(kind, seed, **more)
    ids = torch.randint(0, SIZES["vocab_size"], (3, 12))
    logits = model(ids).logits
    d_logits = torch.randn_like(logits)
    (logits * d_logits).sum().backward()
    tensors = {"ids": ids, "logits": logits.detach(), "d_logits": d_logits}
    tensors |= gradients(model)
    try:
        with torch.no_grad():
            tensors |= texts(model, family != "phi3")
    except AssertionError as error:
        print(family, seed, error)
        return make(family, seed + 1)
    folder = os.path.join(DATA, family)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="8KB" if family == "qwen3" else "1GB")
    os.remove(os.path.join(folder, "generation_config.json"))
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(folder, "golden.safetensors"))
    print(family, seed, model.num_parameters(), "parameters, largest logit", logits.abs().max().item())


def make_bert(seed=1):
    """An encoder: "ids" and their "hidden" states, "grad.NAME" of their sum times "d_hidden"."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(vocab_size=61, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
                                     num_attention_heads=4, max_position_embeddings=24, attn_implementation="eager")
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "LayerNorm" in name or parameter.dim() == 1 else 0.5 / parameter.shape[1] ** 0.5
            parameter.add_(torch.randn_like(parameter) * spread)
    ids = torch.randint(0, 61, (3, 12))
    hidden = model(ids).last_hidden_state
    d_hidden = torch.randn_like(hidden)
    (hidden * d_hidden).sum().backward()
    tensors = {"ids": ids, "hidden": kept(hidden.detach()), "d_hidden": d_hidden}
    tensors |= gradients(model)
    folder = os.path.join(DATA, "bert")
    model.save_pretrained(folder)
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(folder, "golden.safetensors"))
    write_bert_gguf(os.path.join(folder, "model.gguf"), model)


# ---- GGUF -----------------------------------------------------------------------------------------------------------

MINICPM3 = {"num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
            "v_head_dim": 4, "scale_emb": 12.0, "scale_depth": 1.4, "dim_model_base": 256}  # fmt: skip
GGUF = {
    "llama": ("llama", "Llama", {}),
    "llama3": ("llama", "Llama", {"head_dim": 8, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}}),
    "qwen2": ("qwen2", "Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", "Qwen3", {"head_dim": 6}),
    "gemma2": ("gemma2", "Gemma2", {"head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 4,
                                    "attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0}),
    "gemma3": ("gemma3", "Gemma3Text", {"head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 4}),
    "smollm3": ("smollm3", "SmolLM3", {"num_hidden_layers": 4}),
    "olmo2": ("olmo2", "Olmo2", {}),
    "olmo3": ("olmo2", "Olmo3", FAMILIES["olmo3"][1]),
    "yarn": ("qwen3", "Qwen3", {"head_dim": 6, "rope_parameters": FAMILIES["qwen2"][1]["rope_parameters"]}),
    "largest": ("gemma2", "Gemma2", {"head_dim": 6, "query_pre_attn_scalar": 4, "sliding_window": 4, "num_hidden_layers": 46,
                                     "hidden_size": 8, "intermediate_size": 6, "num_attention_heads": 2,
                                     "num_key_value_heads": 1}),
    "phi3": ("phi3", "Phi3", {"hidden_size": 32, "original_max_position_embeddings": 1024, "sliding_window": None,
                              "max_position_embeddings": 4096,
                              "rope_parameters": {**LONG, "short_factor": [1.0, 1.5], "long_factor": [2.5, 3.0]}}),
    "phi3_window": ("phi3", "Phi3", {"sliding_window": 3, "original_max_position_embeddings": 6, "rope_parameters": LONG}),
    "granite": ("granite", "Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                                       "attention_multiplier": 0.3, "logits_scaling": 0.25,
                                       "tie_word_embeddings": True}),
    "minicpm3": ("minicpm3", "MiniCPM3", {**MINICPM3, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "minicpm3_factors": ("minicpm3", "MiniCPM3", {**MINICPM3, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5], "long_factor": [2.5, 3.0],
        "original_max_position_embeddings": 512}, "max_position_embeddings": 512}),
    "qwen35": ("qwen35", "Qwen3_5Text", {
        "num_hidden_layers": 4, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "rope_parameters": {
            "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0],
            "mrope_interleaved": True}}),
}  # fmt: skip


def of_llama_cpp(path, ids):
    """llama.cpp's logits of each text, or None for a file that it does not take."""
    import llama_cpp
    try:
        model = llama_cpp.Llama(path, n_ctx=ids.shape[1], logits_all=True, verbose=False)
    except ValueError:
        return None
    rows = []
    for text in ids.tolist():
        model.reset()
        model.eval(text)
        rows.append(torch.tensor(np.array(model.scores[: len(text)])))
    return torch.stack(rows)


def make_gguf(called, seed=5):
    arch, kind, more = GGUF[called]
    model = random_model(kind, seed, **more)
    folder = os.path.join(DATA, "gguf")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, called + ".gguf")
    write_gguf(path, arch, model)
    ids = torch.randint(0, SIZES["vocab_size"], (2, 10))
    with torch.no_grad():
        for name, value in model.named_parameters():  # as the file has them
            if name.endswith(HALVES):
                value.copy_(value.half().float())
        logits = model(ids).logits
        found = {"llama.cpp": of_llama_cpp(path, ids)}
        if arch not in ("smollm3", "olmo2", "phi3", "granite", "minicpm3", "qwen35") and called not in ("yarn", "largest"):  # which transformers does not read, or not whole
            own = {} if called in ("llama", "qwen2") else {"config": model.config}  # of others it misreads head_dim
            theirs = AutoModelForCausalLM.from_pretrained(folder, gguf_file=called + ".gguf", dtype=torch.float32, **own)
            found["transformers"] = theirs.eval()(ids).logits
        for who, theirs in found.items():
            far = "not read" if theirs is None else f"{((theirs - logits).abs().max() / logits.abs().max()).item():.2g}"
            print(f"{called}.gguf, largest difference of {who}'s logits, of the largest: {far}")
    save_file({"ids": ids, "logits": logits}, os.path.join(folder, called + ".safetensors"))


def make_sampling():
    """Probabilities that transformers' processors leave, in the order in which generate() applies them."""
    torch.manual_seed(7)
    logits, text = torch.randn(4, 53) * 3, torch.randint(0, 53, (1, 9))
    settings, left = [], []
    for penalty in (1.0, 1.3, 0.7):
        for temperature, top_k, top_p, min_p in ((1.0, 0, 1.0, 0.1), (0.7, 20, 0.95, 0.05), (1.5, 0, 0.9, 0.3),
                                                 (1.0, 5, 1.0, 0.0), (0.5, 1, 1.0, 0.0), (1.7, 200, 1e-6, 0.0)):  # fmt: skip
            scores = transformers.RepetitionPenaltyLogitsProcessor(penalty)(text.expand(4, 9), logits.clone())
            scores = transformers.TemperatureLogitsWarper(temperature)(None, scores)
            scores = transformers.TopKLogitsWarper(top_k)(None, scores) if top_k else scores
            scores = transformers.TopPLogitsWarper(top_p)(None, scores) if top_p < 1 else scores
            scores = transformers.MinPLogitsWarper(min_p)(None, scores) if min_p else scores
            settings.append([penalty, temperature, top_k, top_p, min_p])
            left.append(scores.double().softmax(-1))
    save_file({"logits": logits, "text": text[0], "settings": torch.tensor(settings, dtype=torch.float64),
               "probabilities": torch.stack(left).float()}, os.path.join(DATA, "sampling.safetensors"))  # fmt: skip


def check(folder):
    wanted = load_file(os.path.join(folder, "logits.safetensors"))
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype="auto")
    print({key: value for key, value in info.items() if value})
    with torch.no_grad():
        found = model.float().eval()(wanted["ids"]).logits
    error = ((found - wanted["logits"]).abs().max() / wanted["logits"].abs().max()).item()
    print(f"largest difference of the logits, of the largest: {error:.3g}")
    sys.exit(1 if error > 2e-5 or info["missing_keys"] or info["unexpected_keys"] else 0)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(sys.argv[2])
    for chosen in sys.argv[1:] or [*FAMILIES, "bert", "gguf", "sampling"]:
        if chosen == "bert":
            make_bert()
            continue
        if chosen == "sampling":
            make_sampling()
            continue
        if chosen.startswith("gguf"):
            for called in GGUF if chosen == "gguf" else [chosen.removeprefix("gguf/")]:
                make_gguf(called)
            continue
        make(chosen)
