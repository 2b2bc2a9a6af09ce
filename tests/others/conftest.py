import os
import pathlib
import subprocess
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import packages  # noqa: E402

COMMAND = packages.ROOT / "build" / "default" / "attn"


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failure")


def pytest_sessionfinish(session):
    skipped = session.config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", [])
    if skipped and session.config.getoption("--no-skips"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def attn():
    """Runs the command: attn("tokens", "--model", file, input="…") gives what subprocess.run() gives, as text."""

    def run(*arguments, **options):
        return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True, **options)

    return run


for _name in ("llama_cpp_models", "gemma3_270m", "minilm", "minilm_gguf", "cute_tokenizer", "smollm2"):
    globals()[_name] = pytest.fixture(scope="session", name=_name)(getattr(packages, _name))
