"""Tensors of the small models' files under other names, in other dtypes and files: as in transformers, or refused."""

import json
import shutil

import packages
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402
from test_bert_keys import TOKENIZER, near  # noqa: E402
from test_bert_keys import loaded as loaded_encoder  # noqa: E402
from test_bert_keys import ours as vectors  # noqa: E402
from test_keys import FAMILIES, REFUSED, loaded, ours, theirs  # noqa: E402

DATA = packages.ROOT / "tests" / "lm" / "data"
ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


def written(tensors, path):
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def in_shards(tensors, folder, left_out=None, more=({}, {})):
    """Two files and their index, which may lack a tensor; either may hold more than the index says."""
    names = sorted(tensors)
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in (0, 1)}
    for (file, held), others in zip(files.items(), more):
        written({**{name: tensors[name] for name in held}, **others}, folder / file)
    where = {name: file for file, held in files.items() for name in held if name != left_out}
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))


def renamed(tensors, rename):
    return {rename(name): tensor for name, tensor in tensors.items()}


def changes(tensors):
    """(what is changed, the tensors with it); what begins with + has to be taken."""
    bare = renamed(tensors, lambda name: name.removeprefix("model."))
    yield "+ nothing", tensors
    yield "+ the base model's names", bare
    yield "+ half of them", {(name if i % 2 else name.removeprefix("model.")): t for i, (name, t) in enumerate(tensors.items())}
    for before in ("model.", "module.", "language_model.", "base_model.model.", "transformer."):
        yield before, renamed(tensors, lambda name, before=before: before + name)
    yield "one of them under both names", {**tensors, "norm.weight": tensors[NORM] * 3}
    yield "older names of norms", renamed(tensors, lambda n: n.replace("norm.weight", "norm.gamma"))
    yield "no norm", {name: t for name, t in tensors.items() if name != NORM}
    yield "no embedding", {name: t for name, t in tensors.items() if name != EMBEDDING}
    yield "no head", {name: t for name, t in tensors.items() if name != HEAD}
    yield "another head", {**tensors, HEAD: tensors[EMBEDDING] * 2}
    yield "the same head", {**tensors, HEAD: tensors[EMBEDDING]}
    yield "a tensor more", {**tensors, "model.extra.weight": tensors[NORM]}
    yield "a layer more", {**tensors, **{n.replace(".1.", ".9."): t for n, t in tensors.items() if ".layers.1." in n}}
    yield "a bias more", {**tensors, NORM.replace("weight", "bias"): tensors[NORM]}
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        yield f"+ {dtype}", {name: t.to(dtype) for name, t in tensors.items()}
        yield f"+ one of {dtype}", {**tensors, NORM: tensors[NORM].to(dtype)}
    for dtype in (torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn):
        yield f"one of {dtype}", {**tensors, NORM: tensors[NORM].to(dtype)}
    for how, other in (("longer", torch.cat([tensors[EMBEDDING]] * 2)), ("shorter", tensors[EMBEDDING][:-1]),
                       ("turned", tensors[EMBEDDING].T), ("flat", tensors[EMBEDDING].flatten())):  # fmt: skip
        yield f"a {how} embedding", {**tensors, EMBEDDING: other.contiguous()}


def tensors_of(folder):
    return {name: t for file in sorted(folder.glob("model*.safetensors")) for name, t in load_file(file).items()}


def cleared(folder):
    for file in folder.glob("model*"):
        file.unlink()


@pytest.mark.parametrize("family", FAMILIES)
def test_each_change_of_tensors(attn, family, tmp_path):
    folder = tmp_path / family
    shutil.copytree(DATA / family, folder)
    tensors, wrong, followed = tensors_of(folder), [], 0

    def tried(what):
        nonlocal followed
        found = ours(attn, folder)
        followed += found != REFUSED
        if found == REFUSED:
            right = not what.startswith("+")
        else:
            model = loaded(folder)
            right = model is not None and theirs(model, found)
        if not right:
            wrong.append(what)

    for what, changed in changes(tensors):
        cleared(folder)
        written(changed, folder / ONE)
        tried(what)
    cleared(folder)
    in_shards(tensors, folder)
    tried("+ shards")
    in_shards(tensors, folder, NORM)
    tried("+ shards whose index lacks one")
    for i, name in enumerate(sorted(tensors)[:2]):  # of the first file, and of the second
        for old in (tensors[name] * 3, torch.ones(3)):
            in_shards(tensors, folder, more=({}, {name: old}) if i == 0 else ({name: old}, {}))
            tried(f"another {name} in the file that the index does not name for it")
    in_shards(tensors, folder, more=({"other.weight": torch.ones(3)}, {}))
    tried("a tensor that the index does not name")
    in_shards({name: t * 2 for name, t in tensors.items()}, folder)
    written(tensors, folder / ONE)
    tried("+ one file beside an index of others")
    assert not wrong
    print(f"{family}: {followed} followed, the others refused")


def test_an_encoder(attn, tmp_path):
    """The names that files of BERT have: a head's prefix, and TensorFlow's for norms, as bert-base-uncased has them."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    shutil.copy(DATA / "bert" / "config.json", tmp_path)
    tensors, model = load_file(DATA / "bert" / ONE), loaded_encoder()

    def older(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    for change in (older, lambda name: "bert." + older(name), lambda name: "bert." + name):
        written(renamed(tensors, change), tmp_path / ONE)
        found = vectors(attn, tmp_path, tmp_path)
        assert found != REFUSED and near(model, found)
    for change in ({**tensors, "embeddings.LayerNorm.gamma": tensors["embeddings.LayerNorm.weight"]},
                   renamed(tensors, lambda name: name.replace("dense.weight", "dense.gamma")),
                   renamed(tensors, lambda name: "model." + name)):  # fmt: skip
        written(change, tmp_path / ONE)
        assert vectors(attn, tmp_path, tmp_path) == REFUSED


def test_pickled_weights_are_refused_with_what_to_do(attn, tmp_path):
    shutil.copy(DATA / "llama" / "config.json", tmp_path)
    torch.save(tensors_of(DATA / "llama"), tmp_path / "pytorch_model.bin")
    ran = attn("generate", "--model", tmp_path, "--ids", "1", "--tokens", 1)
    assert ran.returncode == 3 and "pytorch_model.bin" in ran.stderr and "save_pretrained()" in ran.stderr, ran.stderr
