"""ONNX's own test cases of an operator."""

import functools
import warnings

from onnx.backend.test.case.node import collect_testcases


@functools.cache
def _all():
    # Collects the cases of all operators: when collect_testcases() is asked for one, it has none of another afterwards.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def of(operator):
    """Cases of that one node; "expanded" ones are the same numbers from a graph of simpler nodes."""
    return [case for case in _all() if [node.op_type for node in case.model.graph.node] == [operator]]
