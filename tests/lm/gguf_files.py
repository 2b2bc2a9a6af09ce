"""How llama.cpp's converter lays models of transformers out in GGUF, for make_models.py."""

import math

import gguf
import numpy as np

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
