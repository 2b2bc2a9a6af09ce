"""Reads what a report's page holds: its data, and the numbers of its steps."""

import base64
import json
import re

import numpy as np


def data_of(report):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', str(report), re.DOTALL).group(1)
    return json.loads(text)


def steps_of(report, layer=0):
    """Name → array of one layer."""
    found = {}
    for step in data_of(report)["blocks"][layer]["steps"]:
        values = np.frombuffer(base64.b64decode(step["data"]["f32"]), "<f4")
        found[step["name"]] = values.reshape(step["data"]["shape"])
    return found


def weights_of(report):
    """(layers, heads, queries, keys)"""
    return np.stack([steps_of(report, i)["weights"] for i in range(len(data_of(report)["blocks"]))])
