"""The documentation covers every command, dependency, make target and page, in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
READMES = ["README.md", "README.zh.md"]
PAPERS = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]
DOCS = sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/*.md"))


def dependencies() -> set[str]:
    return {re.split(r"[=\[<>~]", line)[0] for line in requirement_lines()}


def requirement_lines() -> list[str]:
    included = re.findall(r"^-r (\S+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    texts = [(ROOT / name).read_text() for name in ("requirements-dev.txt", "requirements-runs.txt", *included)]
    return [line for text in texts for line in text.splitlines() if line and not line.startswith(("#", "-r "))]


def rows(page: str) -> list[list[str]]:
    """Return the cells of every line of the page's tables."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def test_every_command_is_documented():
    names = {path.stem for path in ROOT.glob("*/management/commands/*.py")} - {"__init__"}
    assert {f"`manage.py {name}`" for name in names} <= {row[0] for row in rows("docs/commands.md")}


def test_every_make_target_is_documented():
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    assert {f"`make {target}`" for target in targets} <= {row[0] for row in rows("docs/commands.md")}


def test_every_dependency_is_pinned_and_has_a_reason():
    named = {name.strip() for row in rows("docs/dependencies.md") for name in row[0].split(",")}
    vendored = {path.name.partition(".")[0] for path in (ROOT / "mlp/static/vendor").glob("*.js")}
    assert dependencies() | vendored <= named
    assert named - dependencies() - vendored == {"package"}
    assert all("==" in line for line in requirement_lines())


@pytest.mark.parametrize("page", ["docs/commands.md", "docs/dependencies.md"])
def test_table_entries_exist_in_both_languages(page):
    assert len(rows(page)) > 10
    assert [row for row in rows(page) if len(row) != 3 or not all(row)] == []


@pytest.mark.parametrize("readme", READMES)
def test_the_front_page_names_the_commands_to_start_with_and_every_document(readme):
    text = (ROOT / readme).read_text()
    assert "make up" in text
    assert "make test" in text
    pages = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")}
    assert {page for page in pages if f"({page})" not in text} == set()


@pytest.mark.parametrize("page", [*READMES, *PAPERS, *map(str, DOCS)])
def test_every_link_has_a_target(page):
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text()):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


CODE = re.compile(r"`[^`]+`")
WIDTH = 120


def too_long(text: str) -> list[str]:
    """Return the lines of prose that are longer than WIDTH and could be wrapped: outside of tables and code."""
    lines, fenced = [], False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        words = CODE.sub(lambda code: code[0].replace(" ", "_"), line).split()
        if len(line) > WIDTH and not fenced and not line.lstrip().startswith("|") and len(words) > 2:
            lines.append(line)
    return lines


@pytest.mark.parametrize("page", [*PAPERS, "README.md", *map(str, DOCS)])
def test_prose_is_wrapped(page):
    assert too_long((ROOT / page).read_text()) == []


def test_what_can_be_wrapped_is_prose():
    long = "word " * 30
    fences = f"```\n{long}\n```\n"
    assert too_long(f"| {long} |\n{fences}- `{long}`\n{'x' * 200}\n") == []
    assert too_long(f"{fences}{long}\n- {long}\n") == [long, f"- {long}"]
