"""The page Connect and its snippets, as far as they need no client. test_snippets.py runs them with real ones."""

from __future__ import annotations

import ast
import html
import re
import subprocess

import pytest
from django.conf import settings

from accounts import lifecycle as accounts
from jobs.models import Job
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few
from tracking.mlflow.snippets import LIBRARIES, PLACES, program, text

from .test_tracking import start

pytestmark = pytest.mark.django_db

HOST = "http://testserver"


def shown(page, key: str) -> str:
    """Return the text of a snippet as the button copies it."""
    block = re.search(rf'<pre id="{key}"[^>]*>(.*?)</pre>', page.content.decode(), re.DOTALL).group(1)
    return plain(block)


def plain(text: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", text))


def pasted(page, library, place: str, token: str) -> str:
    snippet = shown(page, f"{library.key}-{place}")
    assert snippet == text(library, place, HOST).whole(token)
    return snippet


@pytest.mark.parametrize("library", few(LIBRARIES, 3, names=1), ids=lambda library: library.key)
def test_each_snippet_has_the_address_and_the_visitors_token_and_compiles(alice, bob, library):
    page, token = visitor(alice).get("/connect"), accounts.token_of(alice)
    assert accounts.token_of(bob) not in page.content.decode()
    script = pasted(page, library, "python", token)
    cell = pasted(page, library, "notebook", token)
    first, _, rest = cell.partition("\n")
    assert first == f"%pip install -q {library.packages}"
    for code in (script, rest):
        given = dict(_environment(code))
        assert given["MLFLOW_TRACKING_URI"] == f"{HOST}/mlflow"
        assert given["MLFLOW_TRACKING_TOKEN"] == token
        assert code.count("import os\n") == 1
    job = pasted(page, library, "job", token)
    assert token not in job
    assert job == program(library)
    shell = pasted(page, library, "bash", token)
    assert f"export MLFLOW_TRACKING_TOKEN={token}\n" in shell
    assert subprocess.run(["bash", "-n"], input=shell, text=True, check=False).returncode == 0
    inner = shell.partition("<<'PYTHON'\n")[2].removesuffix("PYTHON\n")
    assert inner == job


def _environment(code: str):
    """Yield what a program sets in its environment."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield node.targets[0].slice.value, node.value.value


def test_the_address_chooses_a_snippet_and_a_wrong_one_is_ignored(alice):
    def chosen(query: str) -> list[str]:
        page = visitor(alice).get(f"/connect{query}").content.decode()
        return re.findall(r'value="(\w+)"\s+checked', page)

    assert chosen("") == ["mlflow", "bash"]
    assert chosen("?for=keras&in=notebook") == ["keras", "notebook"]
    assert chosen("?for=%00<script>&in=moon") == ["mlflow", "bash"]
    style = (settings.BASE_DIR / "mlp/static/mlp/connect.css").read_text()
    for key in [section.key for section in (*LIBRARIES, *PLACES)]:  # each has the rule that shows it
        assert f'[value="{key}"]:checked) ' in style


def test_the_page_shows_runs_of_clients_as_they_arrive(mlflow, mlflow_of_bob, alice):
    def arrived() -> str:
        page = visitor(alice).get("/connect").content.decode()
        return plain(re.search(r'data-region="arrived".*?</ol>', page, re.DOTALL).group(0))

    put(Job, alice, "here", "running")
    start(mlflow_of_bob, run_name="of bob")
    assert "Waiting for your first run" in arrived()
    start(mlflow, run_name="far away")
    assert "Your first run has arrived" in arrived()
    assert "far away" in arrived()
    start(mlflow, run_name="second")
    assert "Connected" in arrived()
    assert "of bob" not in arrived()
    assert "here" not in arrived().split()


def test_the_documentation_has_the_first_snippet_and_names_all_programs():
    page = (settings.BASE_DIR / "docs" / "mlflow.md").read_text()
    assert program(LIBRARIES[0]) in page
    for library in LIBRARIES:
        assert f"(../examples/mlflow/{library.program})" in page
