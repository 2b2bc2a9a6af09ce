"""Every key of the small models' files, one at a time: what it changes in transformers it changes here, or it is refused."""

import contextlib
import copy
import json
import os
import shutil
import struct

import packages
import pytest

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
DATA = packages.ROOT / "tests" / "lm" / "data"
FAMILIES = sorted({folder.parent.name for folder in DATA.glob("*/config.json")} - {"bert"})  # test_embed.py has that
TOKENS = 14
REFUSED = "refused"

# Other names of keys, and keys that only other families read.
MORE = {
    "rope_theta": 300.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}, "partial_rotary_factor": 0.5,
    "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 300.0}, "rope_local_base_freq": 50.0,
    "original_max_position_embeddings": 8, "sliding_window": 2, "use_sliding_window": True, "max_window_layers": 0,
    "sliding_window_pattern": 2, "_sliding_window_pattern": 2, "no_rope_layer_interval": 1, "no_rope_layers": [0, 1],
    "query_pre_attn_scalar": 3, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 0.5, "hidden_act": "gelu",
    "hidden_activation": "gelu", "embedding_multiplier": 2.0, "residual_multiplier": 2.0, "attention_multiplier": 2.0,
    "logits_scaling": 2.0, "attention_bias": True, "mlp_bias": True, "rms_norm_eps": 0.1, "layer_norm_eps": 0.1,
    "tie_word_embeddings": True, "head_dim": 2, "num_key_value_heads": 1, "n_head": 2, "layer_types": ["full_attention"] * 2,
    "num_local_experts": 4, "clip_qkv": 0.1, "use_bidirectional_attention": True, "is_causal": False, "alibi": True,
    "attention_dropout": 0.5, "pretraining_tp": 2, "torch_dtype": "float32", "initializer_range": 0.5, "temperature": 0.1,
    "quantization_config": {"bits": 4}, "per_layer_config": {"0": {"hidden_act": "gelu"}},
}  # fmt: skip


def other(key, value):
    """What a key could say in place of this."""
    if key == "original_max_position_embeddings":
        return [value + 1, 2 * value]  # texts stay below it: one that grows past it changes its frequencies on the way
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(value // 2, 1)]
    if isinstance(value, float):
        return [value * 1.5 + 0.1]
    if isinstance(value, str):
        return [value + "x", "gelu"]
    return [7, "x", None]


def without(config, path):
    """The same without a key."""
    changed = copy.deepcopy(config)
    at = changed
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return changed


def changes(config):
    """(what is changed, the config with it)"""
    for key, value in config.items():
        if key in ("model_type", "transformers_version", "architectures"):
            continue
        places = [((key,), value)]
        if isinstance(value, dict):
            for inner, there in value.items():
                nested = there.items() if isinstance(there, dict) else ()
                places += [((key, inner), there), *(((key, inner, last), x) for last, x in nested)]
        for path, there in places:
            if isinstance(there, dict):
                continue
            for new in other(path[-1], there):
                changed = copy.deepcopy(config)
                at = changed
                for step in path[:-1]:
                    at = at[step]
                at[path[-1]] = new
                yield f"{'.'.join(path)} = {new}", changed
            yield f"{'.'.join(path)} absent", without(config, path)
    for key, value in MORE.items():
        if key not in config:
            yield f"{key} = {value}, new", {**config, key: value}


@contextlib.contextmanager
def quiet():
    with open(os.devnull, "w") as null, contextlib.redirect_stderr(null), contextlib.redirect_stdout(null):
        yield


PROMPTS = [[5, 11, 23, 7, 40, 2, 19, 33], [1], [60, 3, 3, 9, 12, 50, 8, 44]]  # no text reaches Phi-3's long frequencies


def ours(attn, path):
    """The greedy tokens after each prompt, or the message of what is refused."""
    ids = [",".join(map(str, prompt)) for prompt in PROMPTS]
    ran = attn("generate", "--model", path, "--ids", *ids, "--tokens", TOKENS, "--temperature", 0, "--json")
    if ran.returncode != 0:
        assert ran.returncode == 3, ran.stderr  # bad data, and never wrong usage or a crash
        assert str(path)[:40] in ran.stderr, ran.stderr
        return REFUSED
    return [text["ids"] for text in json.loads(ran.stdout)["texts"]]


def theirs(model, found):
    """Whether transformers' model would write these tokens, where its best two are not a tie."""
    for prompt, tokens in zip(PROMPTS, found):
        if not tokens:
            continue  # the family's own end of texts came first
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        best = logits.max(-1).values
        given = logits.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        if not (best - given <= 1e-4 * logits.abs().max()).all():
            return False
    return True


def loaded(folder):
    """transformers' model, or None for files that it does not take."""
    try:
        with quiet():
            model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True,
                                                                            dtype=torch.float32)  # fmt: skip
    except Exception:  # noqa: BLE001: it raises errors of all kinds
        return None
    return None if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")) else model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_each_key_of_a_folder(attn, family, tmp_path):
    folder = tmp_path / family
    shutil.copytree(DATA / family, folder)
    config = json.loads((folder / "config.json").read_text())
    wrong, followed = [], 0
    for what, changed in [("nothing", config), *changes(config)]:
        (folder / "config.json").write_text(json.dumps(changed))
        found = ours(attn, folder)
        assert what != "nothing" or found != REFUSED
        if found == REFUSED:
            continue
        model = loaded(folder)
        followed += 1
        with torch.no_grad():
            if model is None and what.endswith((" = 7", "token_id = x", "pad_token_id absent")):
                continue  # its classes check types: 7 is no float, and of ids that nobody reads one may be outside
            if model is None or not theirs(model, found):
                wrong.append(what + (", which transformers refuses" if model is None else ""))
    print(f"{family}: {followed} of {1 + len(list(changes(config)))} followed, the others refused")
    assert not wrong
    assert followed > 20


def with_value(name, key, value, path):
    """A GGUF file with one value more."""
    data = (DATA / "gguf" / f"{name}.gguf").read_bytes()
    reader = gguf.GGUFReader(DATA / "gguf" / f"{name}.gguf")
    last = reader.tensors[-1].field
    end = last.offset + sum(part.nbytes for part in last.parts)
    kind = {bool: 7, int: 4, float: 6, str: 8}[type(value)]
    form = {bool: "<?", int: "<I", float: "<f"}.get(type(value))
    raw = struct.pack(form, value) if form else struct.pack("<Q", len(value)) + value.encode()
    count = struct.unpack("<Q", data[16:24])[0] + 1
    more = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + raw
    head = data[:16] + struct.pack("<Q", count) + more + data[24:end]
    path.write_bytes(head + bytes(-len(head) % 32) + data[reader.data_offset :])


def test_values_of_a_gguf_file(attn, tmp_path):
    """llama.cpp's meaning of keys that the converter does not write for these files: the same, scaled, or refused."""
    path = tmp_path / "x.gguf"
    plain = ours(attn, DATA / "gguf" / "llama.gguf")

    def of(key, value, name="llama"):
        with_value(name, f"{name}.{key}" if not key.startswith("general.") else key, value, path)
        return ours(attn, path)

    scaled = of("rope.scaling.factor", 4.0)  # without a type it is linear
    assert scaled not in (plain, REFUSED) and of("rope.scale_linear", 4.0) == scaled
    assert of("rope.scaling.factor", 1.0) == of("rope.scaling.factor", 0.0) == plain
    for key, same in (("expert_count", 0), ("attention.causal", True), ("rope.scaling.type", "none"),
                      ("attention.sliding_window", 0), ("rope.scaling.attn_factor", 1.0), ("general.type", "model"),
                      ("tensor_data_layout", "Meta AI original pth"), ("general.note", "x")):  # fmt: skip
        assert of(key, same) == plain, key
    for key, other in (("expert_count", 8), ("attention.causal", False), ("rope.scaling.type", "longrope"),
                       ("attention.sliding_window", 3), ("rope.scaling.attn_factor", 0.5), ("general.type", "mmproj"),
                       ("tensor_data_layout", "x"), ("attention.scale", 0.5), ("rope.freq_base_swa", 1e4),
                       ("attention.value_length", 9), ("rope.dimension_count", 2), ("logit_scale", 2.0),
                       ("pooling_type", 1), ("nextn_predict_layers", 1), ("key.of.tomorrow", 1)):  # fmt: skip
        assert of(key, other) == REFUSED, key
    base = ours(attn, DATA / "gguf" / "olmo2.gguf")
    assert of("attention.sliding_window", 3, "olmo2") not in (base, REFUSED)
