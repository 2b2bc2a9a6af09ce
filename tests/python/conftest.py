import os
import pathlib

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
hypothesis.settings.register_profile(
    # Time says nothing here: other work may share the machine.
    "attn", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("attn")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failure")


def pytest_sessionfinish(session):
    skipped = session.config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", [])
    if skipped and session.config.getoption("--no-skips"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
