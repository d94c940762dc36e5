"""The data client's single file: reproducible, and limited to the standard library."""

from __future__ import annotations

import ast
import io
import re
import sys
import zipfile
from pathlib import Path

from django.conf import settings

from datasets.client_build import SOURCE, build
from datasets.data_client.scan import LITTER


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


def test_a_browser_leaves_out_the_same_litter():
    script = (Path(settings.BASE_DIR) / "mlp/static/mlp/choosing.js").read_text()
    [listed] = re.findall(r"const LITTER = new Set\(\[(.+?)\]\)", script, re.DOTALL)
    assert set(re.findall(r'"([^"]+)"', listed)) == LITTER
