import os
import pathlib

import hypothesis

os.environ.setdefault("HF_HUB_OFFLINE", "1")
hypothesis.settings.register_profile("attn", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("attn")

ROOT = pathlib.Path(__file__).resolve().parents[2]
