import os
import pathlib

import hypothesis

os.environ.setdefault("HF_HUB_OFFLINE", "1")
hypothesis.settings.register_profile(
    # Time says nothing here: other work may share the machine.
    "attn", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("attn")

ROOT = pathlib.Path(__file__).resolve().parents[2]
