"""One of something is counted in the singular: in messages, on pages and in the output of commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import translation

from datasets.data_client import progress
from kernel import units
from kernel.messages import ONE, Message, translate

ROOT = Path(settings.BASE_DIR)


@pytest.mark.parametrize("count", [1, "1"])
def test_what_is_counted_is_singular_where_there_is_one(count):
    said = {
        "%(count)s templates with unusual rates": "1 template with unusual rates",
        "%(count)s new templates, %(other)s lines": "1 new template, 21 lines",
        "at most %(count)s saved searches of a user": "at most 1 saved search of a user",
        "%(count)s runs of your pipelines have not ended": "1 run of your pipelines has not ended",
        "%(count)s in lines": "1 in lines",
    }
    assert [Message(template, count=count, other=21) for template in said] == list(said.values())
    assert Message("%(count)s anomalies", count=21) == "21 anomalies"
    with translation.override("zh-hans"):
        assert "1" in translate(Message("at most %(most)s lines", most=count))


def test_pages_count_by_the_plural_of_the_language():
    plain = re.compile(r"{%\s*blocktranslate(?! count)[^%]*%}((?:(?!{%).)*)", re.DOTALL)
    counted = re.compile(rf"{{{{ (\w+) }}}}(?: [a-z]+)? (?:{'|'.join(ONE)})\b")
    limits = {"shortest", "most", "limit", "shown", "drawn", "all"}  # never one
    counts = {
        (path.name, name)
        for path in (ROOT / "templates").rglob("*.html")
        for text in plain.findall(path.read_text())
        for name in counted.findall(text)
    }
    assert {(file, name) for file, name in counts if name not in limits} == set()


def test_commands_count_so_too():
    sent = "{files} files with {bytes} bytes, {files} files"
    assert progress.filled(sent, {"files": 1, "bytes": 1}) == "1 file with 1 byte, 1 file"
    assert progress.filled(sent, {"files": 0, "bytes": 21}) == "0 files with 21 bytes, 0 files"
    assert [units.count(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
