"""The README says what is there: every command, dependency and make target, in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
READMES = ["README.md", "README.zh.md"]


def dependencies() -> set[str]:
    return {re.split(r"[=\[<>~]", line)[0] for line in requirement_lines()}


def requirement_lines() -> list[str]:
    texts = [(ROOT / name).read_text() for name in ("requirements.txt", "requirements-dev.txt")]
    return [line for text in texts for line in text.splitlines() if line and not line.startswith(("#", "-r "))]


@pytest.mark.parametrize("readme", READMES)
def test_every_command_is_documented(readme):
    text = (ROOT / readme).read_text()
    names = {path.stem for path in ROOT.glob("*/management/commands/*.py")} - {"__init__"}
    assert not {name for name in names if f"`manage.py {name}`" not in text}


@pytest.mark.parametrize("readme", READMES)
def test_every_dependency_has_its_why_and_is_pinned(readme):
    table = [line for line in (ROOT / readme).read_text().splitlines() if line.startswith("| ")]
    named = {name.strip() for line in table for name in line.split("|")[1].split(",")}
    assert not dependencies() - named
    assert all("==" in line for line in requirement_lines())


@pytest.mark.parametrize("readme", READMES)
def test_every_make_target_is_documented(readme):
    text = (ROOT / readme).read_text()
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    assert not {target for target in targets if f"make {target}" not in text}


@pytest.mark.parametrize("page", [*READMES, *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))])
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text()):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target
