"""Every key of the small models' GGUF files, one at a time: what llama.cpp takes it for it is here, or it is refused.

transformers 5.24 reads few of these architectures, and not all of their keys. So what a key means stands here, as a
change of the config of transformers' model with the same weights, which is the oracle.
"""

import sys

import packages
import pytest

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
from test_keys import REFUSED, ours, theirs  # noqa: E402

sys.path.insert(0, str(packages.ROOT / "tests" / "lm"))
FILES = ["llama", "llama3", "qwen2", "qwen3", "yarn", "gemma2", "gemma3", "smollm3", "olmo2", "olmo3", "phi3", "granite"]
DATA = packages.ROOT / "tests" / "lm" / "data" / "gguf"
END = ("tokenizer.ggml.eos_token_id",)  # without which each text has all its tokens

# Keys that only some architectures have, and older names.
MORE = {
    "expert_count": 8, "expert_used_count": 2, "attention.causal": False, "pooling_type": 1, "rope.scale_linear": 3.0,
    "rope.scaling.factor": 3.0, "rope.scaling.type": "linear", "rope.scaling.original_context_length": 8,
    "attention.sliding_window": 3, "attention.sliding_window_pattern": 2, "attn_logit_softcapping": 0.5,
    "final_logit_softcapping": 0.5, "embedding_scale": 2.0, "residual_scale": 2.0, "logit_scale": 2.0,
    "attention.scale": 0.9, "rope.dimension_count": 2, "rope.freq_base_swa": 50.0, "rope.dimension_count_swa": 2,
    "attention.key_length": 3, "attention.value_length": 3, "attention.key_length_swa": 3, "use_parallel_residual": True,
    "rope.scaling.attn_factor": 0.5, "rope.scaling.yarn_ext_factor": 0.5, "rope.scaling.yarn_beta_fast": 16.0,
    "rope.scaling.yarn_beta_slow": 2.0, "rope.scaling.yarn_log_multiplier": 0.1, "rope.scaling.finetuned": False,
    "rope.scaling.alpha": 4.0, "nextn_predict_layers": 1, "attention.layer_norm_epsilon": 0.1, "attention.clamp_kqv": 0.1,
    "tensor_data_layout": "x", "attention.temperature_scale": 0.5, "attention.max_alibi_bias": 8.0, "swiglu_clamp": 0.1,
    "attention.shared_kv_layers": 1, "leading_dense_block_count": 1, "interleave_moe_layer_step": 1, "logits_cap": 0.1,
    "general.quantization_version": 3, "general.type": "adapter", "general.sampling.temp": 0.1,
}  # fmt: skip
NOTHING = {"general.name": "x", "general.file_type": 7, "general.quantization_version": 2, "general.type": "model",
           "general.license": "x", "expert_count": 0, "attention.causal": True, "rope.scaling.attn_factor": 1.0,
           "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.finetuned": True}  # fmt: skip


def full(config):
    return config["rope_parameters"].get("full_attention", config["rope_parameters"])


def scaled(config, factor):
    rope = full(config)
    if rope["rope_type"] in ("longrope", "llama3"):  # factors for each frequency are there, and stay
        return
    rope["factor"] = factor
    if rope["rope_type"] == "default":
        rope["rope_type"] = "linear"


def original(config, length):
    if full(config)["rope_type"] not in ("yarn", "longrope"):
        return
    length = length or config["max_position_embeddings"]
    full(config)["original_max_position_embeddings"] = length
    if config["model_type"] == "phi3":
        config["original_max_position_embeddings"] = length


def scaling_type(config, name):
    if full(config)["rope_type"] == "yarn":
        full(config)["rope_type"] = name if name != "none" else "default"


# The field of transformers' config that a key changes, or how it changes the config. A key that is not here changes nothing.
MEANING = {
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "vocab_size": "vocab_size", "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier", "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling",
    "context_length": "max_position_embeddings",
    "rope.freq_base": lambda config, theta: full(config).update(rope_theta=theta),
    "rope.freq_base_swa": lambda config, theta: config["rope_parameters"]["sliding_attention"].update(rope_theta=theta),
    "rope.scaling.factor": scaled,
    "rope.scale_linear": lambda config, factor: None if "factor" in full(config) else scaled(config, factor),
    "rope.scaling.original_context_length": original,
    "rope.scaling.type": scaling_type,
    "rope.scaling.attn_factor": lambda config, factor: config["model_type"] == "phi3" and full(config).update(
        attention_factor=factor),
    "rope.dimension_count": lambda config, turned: full(config).update(
        partial_rotary_factor=turned * config["num_attention_heads"] / config["hidden_size"]),
    "attention.sliding_window_pattern": lambda config, flags: config.update(layer_types=[
        "sliding_attention" if (flags[i] if isinstance(flags, list) else (i + 1) % flags) else "full_attention"
        for i in range(config["num_hidden_layers"])]),
}  # fmt: skip


def rewritten(file, changes, path, without=()):
    """The file with other values; those that it does not have come last."""
    reader = gguf.GGUFReader(file)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, arch)
    whole = ("general.", "tokenizer.", arch + ".")
    left = {key if key.startswith(whole) else f"{arch}.{key}": x for key, x in changes.items()}
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", *without):
            continue
        if isinstance(left.get(key), int) and isinstance(field.contents(), list):
            continue
        writer.add_key_value(key, left.pop(key, field.contents()), field.types[0], field.types[-1])
    for key, value in left.items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def others(key, value):
    """What a key could say in place of this."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(value // 2, 1), 0]
    if isinstance(value, float):
        return [value * 1.5 + 0.1]
    if isinstance(value, list):
        return [[not flag for flag in value], value + value, 1]
    return ["none", "linear", "x"] if key == "rope.scaling.type" else [value + "x"]


def changes_of(name):
    fields = gguf.GGUFReader(DATA / f"{name}.gguf").fields
    arch = fields["general.architecture"].contents() + "."
    own = {key.removeprefix(arch): field.contents() for key, field in fields.items() if key.startswith(arch)}
    return [*((key, new) for key, value in own.items() for new in others(key, value)),
            *((key, value) for more in (MORE, NOTHING) for key, value in more.items() if key not in own)]  # fmt: skip


class Oracle:
    """transformers' model of a file of tests/lm/data/gguf, with changes of its config."""

    def __init__(self, name):
        import gguf_files
        import make_models

        self.arch, self.kind, more = make_models.GGUF[name]
        model = make_models.random_model(self.kind, 5, **more)
        self.weights = {key: value.half().float() if key.endswith(gguf_files.HALVES) else value
                        for key, value in model.state_dict().items()}  # fmt: skip
        self.config = model.config.to_dict()
        if self.arch == "phi3":  # the file has the number, and not how it is made
            field = gguf.GGUFReader(DATA / f"{name}.gguf").fields["phi3.rope.scaling.attn_factor"]
            full(self.config)["attention_factor"] = field.contents()

    def model(self, key, value):
        """None where the config is wrong, or does not fit the weights."""
        import copy

        import transformers

        config, meaning, kind = copy.deepcopy(self.config), MEANING.get(key), self.kind
        if kind == "Olmo2" and key == "attention.sliding_window" and value > 0:  # OLMo 3 calls itself so
            kind, config["layer_types"] = "Olmo3", ["sliding_attention"] * 2
        if isinstance(meaning, str):
            zero = value == 0 and meaning in ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
            config[meaning] = None if zero else value
        elif meaning:
            meaning(config, value)
        if key == "attention.sliding_window" and value == 0 and "layer_types" in config:
            config.update(sliding_window=64, layer_types=["full_attention"] * len(config["layer_types"]))
        try:
            built = getattr(transformers, kind + "Config")(**config)
            model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(built)
            model.load_state_dict(self.weights)
        except Exception:  # noqa: BLE001: it raises errors of all kinds
            return None
        return model.eval()


@pytest.mark.parametrize("name", FILES)
def test_each_key_of_a_gguf_file(attn, name, tmp_path):
    path, oracle = tmp_path / "x.gguf", Oracle(name)
    wrong, followed = [], 0
    for key, value in [("general.name", name), *changes_of(name)]:
        rewritten(DATA / f"{name}.gguf", {key: value}, path, END)
        found = ours(attn, path)
        assert (key, value) != ("general.name", name) or found != REFUSED
        if found == REFUSED:
            if NOTHING.get(key) == value and key.startswith("general."):
                wrong.append(f"{key} = {value} is refused")
            continue
        followed += 1
        model = oracle.model(key, value)
        with torch.no_grad():
            if model is None or not theirs(model, found):
                wrong.append(f"{key} = {value}" + (" does not fit the weights" if model is None else ""))
    print(f"{name}: {followed} followed, the others refused")
    assert not wrong
    assert followed > 10


def test_the_end_of_a_text_is_the_files(attn, tmp_path):
    first = ours(attn, DATA / "llama.gguf")
    rewritten(DATA / "llama.gguf", {"tokenizer.ggml.eos_token_id": first[0][2]}, tmp_path / "x.gguf", END)
    assert ours(attn, tmp_path / "x.gguf")[0] == first[0][: first[0].index(first[0][2])]
