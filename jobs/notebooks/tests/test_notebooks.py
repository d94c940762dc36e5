"""Notebooks as jobs: what is refused when they are submitted, and how pages show them."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from jobs.models import Job
from jobs.notebooks import parameters, reading
from kernel import storage
from kernel.errors import Refused
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visitor

from .books import book, cell

pytestmark = pytest.mark.django_db


def answer(as_alice, home, text: str, **fields) -> tuple[int, str]:
    (home / "train.ipynb").write_text(text)
    body = {"name": "fit", "entry": "train.ipynb", "cpu": 0.1, "ram": 200, **fields}
    found = as_alice.call("post", "users/alice/jobs", body)
    return found.status_code, found.json().get("msg", "")


@pytest.mark.parametrize(("text", "says"), [
    ("print(1)", "train.ipynb is not a notebook: it is not JSON"),
    ("[]", "train.ipynb is not a notebook: it does not say its nbformat"),
    ('{"nbformat": 3, "worksheets": []}', "train.ipynb has nbformat 3, not 4; open it in JupyterLab and save it again"),
    ('{"nbformat": 4, "cells": {}}', "train.ipynb is not a notebook: it has no list of cells"),
    (book("1", cell(7)), "train.ipynb: cell 2 is damaged"),
    (book(kernelspec={"name": "ir", "language": "R"}),
     "train.ipynb is written in R; only notebooks in Python run as jobs"),
])  # fmt: skip
def test_a_broken_notebook_is_refused_with_what_is_wrong(as_alice, home, text, says):
    assert answer(as_alice, home, text) == (403, f"entry: {says}")
    assert not Job.objects.exists()


def test_one_that_is_too_large_to_be_looked_at_is_refused(as_alice, home, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 20)
    status, says = answer(as_alice, home, book("#" * (1 << 20)))
    assert (status, says) == (403, "entry: train.ipynb is larger than 1 MiB: save it without its outputs")
    assert not Job.objects.exists()


@pytest.mark.parametrize(("fields", "says"), [
    ({"args": ["0.1"]}, "args: a notebook takes parameters such as --lr 0.1; 0.1 is none"),
    ({"args": ["--lr"]}, "args: the parameter lr has no value"),
    ({"args": ["--lr", "--n", "1"]}, "args: the parameter lr has no value"),
    ({"args": ["--class", "1"]}, "args: class is not the name of a variable"),
    ({"workers": 2}, "workers: must be 1: a notebook is executed by one worker"),
])  # fmt: skip
def test_what_is_no_parameter_is_refused(as_alice, home, fields, says):
    assert answer(as_alice, home, book("1"), **fields) == (403, says)


def test_one_that_says_little_of_itself_is_accepted(as_alice, home):
    assert answer(as_alice, home, "\ufeff" + json.dumps({"nbformat": 4, "cells": [cell("1")]}))[0] == 201
    assert Job.objects.get().needs_packages


def test_arguments_are_read_as_papermill_reads_them():
    args = ["--lr", "0.1", "--n=3", "-e", "1e-3", "--on", "True", "--none", "None", "--text", "a=b", "--learning-rate",
            "-1", "--flag=--x", "--n", "4", "--word", "true"]  # fmt: skip
    assert parameters.of_arguments(args) == {
        "lr": 0.1, "n": 4, "e": 0.001, "on": True, "none": None, "text": "a=b", "learning_rate": -1, "flag": "--x",
        "word": "true",
    }  # fmt: skip
    with pytest.raises(Refused):
        parameters.of_arguments(["--2x", "1"])


def png(width: int, height: int) -> str:
    """Return a picture with that size in its header."""
    head = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 0, 0, 0, 0))
    chunk = len(head[4:]).to_bytes(4, "big") + head + zlib.crc32(head).to_bytes(4, "big")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()


@pytest.fixture
def outputs(alice, home):
    """Return a function that leaves a notebook with these outputs of a cell, and returns the page of the job."""
    row = put(Job, alice, "fit", "finished")
    Job.objects.filter(pk=row.pk).update(entry="train.ipynb")
    folder = storage.job_dir("alice", "fit")
    folder.mkdir(parents=True, exist_ok=True)

    def show(*outputs: dict, cells: tuple = ()):
        text = book(cell("print('<b>')", outputs=list(outputs), execution_count=1), *cells)
        (folder / "train.ipynb").write_text(text)
        client = visitor(alice)
        pages = [markup(client.get(path)) for path in ("/jobs/fit", "/jobs/fit/files/train.ipynb")]
        assert [tag for tag in pages[0].tags if tag[0] == "iframe"] == []
        return client, pages

    return show


EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)"><iframe srcdoc="x"></iframe>'


def test_nothing_of_a_notebook_is_markup(outputs):
    hostile = [
        {"output_type": "display_data", "data": {"text/html": [EVIL], "image/svg+xml": f"<svg>{EVIL}</svg>"}},
        {"output_type": "execute_result", "data": {"text/plain": EVIL, "application/javascript": EVIL}},
        {"output_type": "stream", "name": f'"{EVIL}', "text": EVIL},
        {"output_type": "error", "ename": EVIL, "evalue": EVIL, "traceback": [f"\x1b[31m{EVIL}\x1b[0m"]},
        {"output_type": "display_data", "data": {"image/png": f'"{EVIL}', EVIL: EVIL}},
        {"output_type": "display_data", "data": {"image/png": base64.b64encode(EVIL.encode()).decode()}},
        {"output_type": "display_data", "data": []}, {"output_type": "error", "traceback": 7}, 7,
    ]  # fmt: skip
    more = (cell(EVIL + "\n\n[x](javascript:alert(3)) ![y](attachment:a.png)", "markdown"), cell(EVIL, "raw"))
    client, pages = outputs(*hostile, cells=more)
    for page in pages:
        names = [name for _tag, attributes in page.tags for name in attributes]
        assert not [name for name in names if name.startswith("on") or name == "srcdoc"]
        values = [str(value) for _tag, attributes in page.tags for value in attributes.values()]
        assert not [value for value in values if value.startswith("javascript:") or "alert(" in value]
    text = client.get("/jobs/fit").content.decode()
    assert "alert(1)" in text
    assert "HTML, shown as text" in text
    assert "<script>alert" not in text
    assert "<svg>&lt;" not in text


def test_pictures_are_shown_by_their_bytes_and_within_a_size(outputs):
    good, wide = png(8, 8), png(100_000, 100_000)
    shown = [{"output_type": "display_data", "data": {"image/png": [good, "\n"], "text/plain": "<Figure>"}}]
    shown += [{"output_type": "display_data", "data": {"image/png": wide, "text/plain": "too many pixels"}}]
    client, pages = outputs(*shown)
    for page in pages:
        sources = [attributes.get("src") for tag, attributes in page.tags if tag == "img"]
        assert sources.count(f"data:image/png;base64,{good}") == 1
        assert not [source for source in sources if source and wide in source]
    assert "too many pixels" in client.get("/jobs/fit").content.decode()


def test_while_a_job_runs_its_page_reads_no_large_notebook_with_each_refresh(outputs, alice):
    text = "x" * 10_000
    client, _pages = outputs(*[{"output_type": "stream", "text": [text]}] * 110)
    assert text in client.get("/jobs/fit").content.decode()
    Job.objects.filter(user=alice, name="fit").update(state="running")
    page = client.get("/jobs/fit").content.decode()
    assert "it is shown here after the job has ended" in page
    assert text not in page
    assert text in client.get("/jobs/fit/files/train.ipynb").content.decode()


def test_a_large_or_broken_one_leaves_the_page_as_it_is(outputs, alice):
    text = "x" * 3_000_000 + "the end"
    client, _pages = outputs(*[{"output_type": "stream", "text": [text]}] * 6, cells=(cell("1"),) * 600)
    shown = client.get("/jobs/fit").content.decode()
    assert "too large to be shown" in shown
    client, _pages = outputs({"output_type": "stream", "text": [text]}, cells=(cell("1"),) * 600)
    shown = client.get("/jobs/fit").content.decode()
    assert "Not all of the notebook is shown" in shown
    assert "the end" not in shown
    (storage.job_dir("alice", "fit") / "train.ipynb").write_text('{"nbformat": 4, "cells": [{"\\ud800": NaN}]}')
    assert "cell 1 is damaged" in client.get("/jobs/fit").content.decode()
    assert client.get("/jobs/fit/files/train.ipynb").status_code == 200
