"""The data client's single file: reproducible, and limited to the standard library."""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from pathlib import Path

from datasets.client_build import SOURCE, build


def test_the_build_is_reproducible():
    first = build()
    build.cache_clear()
    assert build() == first


def test_it_is_a_zip_application():
    packed = build()
    assert packed.startswith(b"#!/usr/bin/env python3\n")
    names = zipfile.ZipFile(io.BytesIO(packed)).namelist()
    assert "__main__.py" in names
    assert {f"data_client/{path.name}" for path in SOURCE.glob("*.py")} < set(names)


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_it_needs_the_standard_library_alone():
    for path in SOURCE.glob("*.py"):
        for name in imports(path):
            assert name.partition(".")[0] in sys.stdlib_module_names, (path.name, name)
