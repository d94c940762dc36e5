"""The calls in a Python source: their names and texts."""

from __future__ import annotations

import ast


def name_of(node: ast.AST) -> str:
    """Return the name of what is called, "" of anything else."""
    return getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""


def text_of(source: str, calls: list[ast.AST]) -> str:
    """Return the text of those of the calls that are in no other one, a line for each: the extraction, which takes
    long, finds the same there as in the whole source.
    """
    inside = {id(node) for call in calls for node in ast.walk(call) if node is not call}
    lines = source.encode().splitlines()
    texts = []
    for call in calls:
        if id(call) not in inside:
            text = lines[call.lineno - 1 : call.end_lineno]
            text[-1] = text[-1][: call.end_col_offset]
            text[0] = text[0][call.col_offset :]
            texts += text
    return b"\n".join(texts).decode()
