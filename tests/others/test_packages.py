"""The files are those that the tests were written for."""


def test_files_are_there(llama_cpp_models, gemma3_270m, minilm):
    assert len(list(llama_cpp_models.glob("*.gguf"))) == 19
    assert len(list(llama_cpp_models.glob("*.gguf.out"))) == 15
    assert len(list(llama_cpp_models.glob("templates/*.jinja"))) == 70
    assert gemma3_270m.stat().st_size > 250_000_000
    assert (minilm / "model.safetensors").exists()
