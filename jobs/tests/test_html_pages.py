"""HTML files of a job's output: their scripts run in an origin of their own, and nowhere else."""

from __future__ import annotations

import pytest

from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visitor

pytestmark = pytest.mark.django_db
HTML = "<html><script>document.title = 'ran'</script>"


@pytest.fixture
def folder(alice, home):
    put(Job, alice, "fit", "finished")
    folder = storage.job_dir("alice", "fit")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(HTML)
    return folder


def test_a_page_is_sandboxed_and_shown_in_a_frame_only(alice, bob, folder):
    client = visitor(alice)
    [frame] = [
        attributes for tag, attributes in markup(client.get("/jobs/fit/files/report.html")).tags if tag == "iframe"
    ]
    assert (frame["src"], frame["sandbox"]) == ("/jobs/fit/html/report.html", "allow-scripts")
    page = client.get(frame["src"], HTTP_SEC_FETCH_DEST="iframe")
    assert (page.status_code, page.content.decode()) == (200, HTML)
    policy = dict(part.strip().partition(" ")[::2] for part in page["Content-Security-Policy"].split(";"))
    assert policy["sandbox"] == "allow-scripts", "no origin of ours, no forms, no windows"
    assert (policy["default-src"], policy["form-action"], policy["frame-ancestors"]) == ("'none'", "'none'", "'self'")
    assert not {"'self'", "*", "https:", "http:"} & {
        word for name, words in policy.items() if name != "frame-ancestors" for word in words.split()
    }
    assert (page["X-Frame-Options"], page["X-Content-Type-Options"]) == ("SAMEORIGIN", "nosniff")
    for destination in ("document", "script", "embed", "empty"):
        assert client.get(frame["src"], HTTP_SEC_FETCH_DEST=destination).status_code == 404, destination
    assert visitor(bob).get(frame["src"]).status_code == 404


def test_other_files_are_no_pages(alice, folder):
    client = visitor(alice)
    (folder / "page.svg").write_text(HTML)
    (folder / "big.html").write_bytes(b"<html>" + b" " * (16 << 20))
    (folder / "link.html").symlink_to("/etc/passwd")
    for path in ("page.svg", "big.html", "link.html", "none.html", "../fit/report.html"):
        assert client.get(f"/jobs/fit/html/{path}").status_code in (301, 302, 404), path
    assert b"<iframe" not in client.get("/jobs/fit/files/big.html").content
