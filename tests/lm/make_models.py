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

import math
import os
import shutil
import sys

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GenerationConfig

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


def write_bert_gguf(path, model):
    """The same encoder as llama.cpp's converter lays it out."""
    c, writer = model.config, gguf.GGUFWriter(path, "bert")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_layer_norm_eps(c.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.CLS)
    writer.add_token_type_count(c.type_vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, c.num_hidden_layers)
    for name, value in model.state_dict().items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- GGUF -----------------------------------------------------------------------------------------------------------

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}  # fmt: skip
GEMMA_NAMES = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
OWN_NAMES = {"gemma2": GEMMA_NAMES, "gemma3": GEMMA_NAMES, "olmo2": GEMMA_NAMES,
             "phi3": {**NAMES, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
             "minicpm3": {**NAMES, "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
                          "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
                          "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"},
             "qwen35": {**NAMES, "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
                        "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
                        "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.conv1d": "ssm_conv1d",
                        "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"}}  # fmt: skip
PERMUTED = ("llama", "smollm3", "granite")
HALVES = ("q_proj.weight", "k_proj.weight", "embed_tokens.weight")


def gguf_name(name, names):
    if name.endswith(("linear_attn.A_log", "linear_attn.dt_bias")):
        return f"blk.{name.split('.')[2]}." + ("ssm_a" if name.endswith("A_log") else "ssm_dt.bias")
    bare, suffix = name.rsplit(".", 1)
    if bare.startswith("model.layers."):
        _, _, layer, rest = bare.split(".", 3)
        return f"blk.{layer}.{names[rest]}.{suffix}"
    return f"{names[bare]}.{suffix}"


def rope_factors(c):
    """By how much llama3's scaling slows each frequency, as llama.cpp's converter writes it: rope_freqs.weight."""
    rope, half = c.rope_parameters, c.head_dim // 2
    wavelengths = [2 * math.pi * rope["rope_theta"] ** (i / half) for i in range(half)]
    longest, shortest = (rope["original_max_position_embeddings"] / rope[k] for k in ("low_freq_factor", "high_freq_factor"))
    smooth = [(longest / w - 1) / (longest / shortest - 1) for w in wavelengths]
    return np.array([1.0 if w < shortest else rope["factor"] if w > longest else 1 / ((1 - s) / rope["factor"] + s)
                     for w, s in zip(wavelengths, smooth)], np.float32)  # fmt: skip


def write_more(writer, arch, c):
    """What an architecture's files say beside the sizes."""
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if arch.startswith("gemma"):
        writer.add_sliding_window(c.sliding_window)
    if c.model_type == "olmo3":
        writer.add_sliding_window(c.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
        writer.add_final_logit_softcapping(c.final_logit_softcapping)
    if arch == "granite":
        writer.add_embedding_scale(c.embedding_multiplier)
        writer.add_residual_scale(c.residual_multiplier)
        writer.add_attention_scale(c.attention_multiplier)
        writer.add_logit_scale(c.logits_scaling)
    if arch == "minicpm3":
        writer.add_q_lora_rank(c.q_lora_rank)
        writer.add_kv_lora_rank(c.kv_lora_rank)
        writer.add_rope_dimension_count(c.qk_rope_head_dim)
        if "long_factor" in rope:
            for name in ("long", "short"):
                writer.add_tensor(f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32))
    if arch == "qwen35":
        writer.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
        writer.add_ssm_state_size(c.linear_key_head_dim)
        writer.add_ssm_group_count(c.linear_num_key_heads)
        writer.add_ssm_time_step_rank(c.linear_num_value_heads)
        writer.add_ssm_inner_size(c.linear_value_head_dim * c.linear_num_value_heads)
        writer.add_full_attention_interval(4)
        writer.add_rope_dimension_count(int(c.head_dim * rope["partial_rotary_factor"]))
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
        writer.add_value_length(c.head_dim)
    if arch == "phi3":
        rope, original = c.rope_parameters, c.original_max_position_embeddings
        head_dim = c.hidden_size // c.num_attention_heads
        scale = c.max_position_embeddings / original
        writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * head_dim))
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        writer.add_sliding_window(c.sliding_window or 0)
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32))


def of_states(name, array, c):
    """A recurrent layer's array: states of one key head stand apart, and decays are as they act."""
    if "linear_attn" not in name:
        return array
    keys, values, size = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_value_head_dim

    def tiled(part, size, axis=0):
        shape = part.shape
        part = part.reshape(*shape[:axis], keys, values // keys, size, *shape[axis + 1 :])
        return part.swapaxes(axis, axis + 1).reshape(shape)

    if name.endswith("A_log"):
        return tiled(-np.exp(array), 1)
    if name.endswith(("dt_bias", "in_proj_a.weight", "in_proj_b.weight")):
        return tiled(array, 1)
    if name.endswith("in_proj_z.weight"):
        return tiled(array, size)
    if name.endswith("out_proj.weight"):
        return tiled(array, size, 1)
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        first = 2 * keys * c.linear_key_head_dim
        array = array.reshape(array.shape[0], -1)
        return np.concatenate([array[:first], tiled(array[first:], size)])
    return array


def write_gguf(path, arch, model):
    """As llama.cpp's converter lays a model out."""
    c, writer = model.config, gguf.GGUFWriter(path, arch)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    if arch == "minicpm3":
        writer.add_key_length(c.qk_nope_head_dim + c.qk_rope_head_dim)
    elif arch != "phi3":
        writer.add_key_length(c.head_dim if getattr(c, "head_dim", None) else c.hidden_size // c.num_attention_heads)
    writer.add_vocab_size(c.vocab_size)
    writer.add_eos_token_id(7)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    write_more(writer, arch, c)
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(c))
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        array = value.float().numpy()
        heads = {"q": c.num_attention_heads, "k": c.num_key_value_heads}.get(name.split("self_attn.")[-1][0])
        if arch in PERMUTED and "self_attn" in name and heads and "_proj" in name:
            array = array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if (arch.startswith("gemma") or arch == "qwen35") and name.endswith("norm.weight") and "linear_attn" not in name:
            array = array + 1
        array = of_states(name, array, c)
        array = array.astype(np.float16) if array.ndim == 2 and name.endswith(HALVES) else array
        writer.add_tensor(gguf_name(name, OWN_NAMES.get(arch, NAMES)), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# The constants that llama.cpp has for this architecture, and the norm's, which it has in the latents, too.
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
