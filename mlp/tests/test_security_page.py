"""docs/security.md answers every requirement of ASVS 4.0.3 at levels 1 and 2, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
PAGE = (ROOT / "docs" / "security.md").read_text()
# The requirements of levels 1 and 2 by section; those that ASVS has deleted and those of level 3 are left out.
REQUIREMENTS = """
    1.1: 1-7   1.2: 1-4   1.4: 1 4 5   1.5: 1-4   1.6: 1-4   1.7: 1 2   1.8: 1 2   1.9: 1 2   1.10: 1   1.11: 1 2
    1.12: 2   1.14: 1-6
    2.1: 1-12   2.2: 1-3   2.3: 1-3   2.4: 1-5   2.5: 1-7   2.6: 1-3   2.7: 1-6   2.8: 1-7   2.9: 1-3   2.10: 1-4
    3.1: 1   3.2: 1-4   3.3: 1-4   3.4: 1-5   3.5: 1-3   3.7: 1
    4.1: 1-3 5   4.2: 1 2   4.3: 1-3
    5.1: 1-5   5.2: 1-8   5.3: 1-10   5.4: 1-3   5.5: 1-4
    6.1: 1-3   6.2: 1-6   6.3: 1 2   6.4: 1 2
    7.1: 1-4   7.2: 1 2   7.3: 1 3 4   7.4: 1-3
    8.1: 1-4   8.2: 1-3   8.3: 1-8
    9.1: 1-3   9.2: 1-4
    10.2: 1 2   10.3: 1-3
    11.1: 1-8
    12.1: 1-3   12.2: 1   12.3: 1-6   12.4: 1 2   12.5: 1 2   12.6: 1
    13.1: 1 3-5   13.2: 1-3 5 6   13.3: 1 2   13.4: 1 2
    14.1: 1-4   14.2: 1-6   14.3: 2 3   14.4: 1-7   14.5: 1-4
"""
FOUR, FIVE = PAGE.split("## What ASVS 5.0 adds")
LIST = r"\d+\.\d+\.\d+(?:, \d+\.\d+\.\d+)*"


def required() -> set[str]:
    wanted = set()
    for section, numbers in re.findall(r"(\d+\.\d+):((?: \d+(?:-\d+)?)+)", REQUIREMENTS):
        for part in numbers.split():
            first, _, last = part.partition("-")
            wanted |= {f"{section}.{number}" for number in range(int(first), int(last or first) + 1)}
    return wanted


def answered(text: str) -> list[str]:
    """Return the numbers of the rows and of the lists of what is not applicable."""
    lists = re.findall(rf"^(?:\| |- )({LIST})(?: \||:)", text, re.MULTILINE)
    return [number for numbers in lists for number in numbers.split(", ")]


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| \d.*$", text, re.MULTILINE)
    ]


def test_every_chapter_and_every_requirement_is_answered_once():
    assert re.findall(r"^## V(\d+) ", FOUR, re.MULTILINE) == [str(number) for number in range(1, 15)]
    numbers = answered(FOUR)
    assert len(required()) > 250
    assert set(numbers) == required()
    assert sorted({number for number in numbers if numbers.count(number) > 1}) == []
    chapters = re.split(r"^## V(\d+) .*$", FOUR, flags=re.MULTILINE)[1:]
    for chapter, text in zip(chapters[::2], chapters[1::2], strict=True):
        assert {number.split(".")[0] for number in answered(text)} == {chapter}


@pytest.mark.parametrize("text", [FOUR, FIVE], ids=["4.0.3", "5.0"])
def test_every_row_has_an_answer_and_tests_that_exist(text):
    tests = 0
    for cells in rows(text):
        assert len(cells) == 4, cells
        number, asks, how, shown = cells
        assert asks, number
        assert len(how) > 3 or how == "Git", number
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", shown)
        assert re.sub(r"`[\w/.]+::\w+`|, ", "", shown) == "" or re.match("none: .{4,}", shown), f"{number}: only tests"
        assert shown, f"{number}: a test, or why there is none"
        for file, test in named:
            assert (ROOT / file).is_file(), f"{number}: {file}"
            assert re.search(rf"\bdef {test}\(", (ROOT / file).read_text()), f"{number}: {file} has no {test}"
        tests += len(named)
    assert tests >= len(rows(text)) * 0.8, "most answers are shown by a test"


def test_the_threat_model_leads_here():
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text()
