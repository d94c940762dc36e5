"""A notebook of a workspace as a job, by the form of its page."""

from __future__ import annotations

import pytest

from jobs.code import reading
from jobs.models import Job
from jobs.notebooks.tests.books import book
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visitor
from workspaces import notebooks
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab(alice):
    """Return a workspace with notebooks and what lies beside them."""
    row = put(Workspace, alice, "lab", "ready")
    Workspace.objects.filter(pk=row.pk).update(cpu=0.5, ram=700)
    home = notebooks.home_of(row)
    for path, text in {
        "train.ipynb": book("print(1)"), "helper.py": "WORD = 1", "sub/deep.ipynb": book("1"), "not this.ipynb": "",
        ".ipynb_checkpoints/train.ipynb": "", ".netrc": "password", ".config/token": "secret", "broken.ipynb": "x",
    }.items():  # fmt: skip
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    (home / "link.ipynb").symlink_to("/etc/passwd")
    return row


def test_a_notebook_of_a_workspace_is_run_as_a_job_with_the_files_beside_it(alice, lab):
    client = visitor(alice)
    page = markup(client.get("/workspaces/lab"))
    text = client.get("/workspaces/lab").content.decode()
    assert [attributes["name"] for tag, attributes in page.tags if tag == "select"] == ["entry"]
    assert [path for path in ("train.ipynb", "sub/deep.ipynb", "link.ipynb") if f"<option>{path}<" in text] == [
        "train.ipynb", "sub/deep.ipynb",
    ]  # fmt: skip
    sent = client.post("/workspaces/lab/notebook", {"entry": "train.ipynb", "args": "--lr 0.1 --name 'a b'"})
    job = Job.objects.get()
    assert sent["Location"] == f"/jobs/{job.name}"
    assert (job.entry, job.args, job.cpu, job.ram) == ("train.ipynb", ["--lr", "0.1", "--name", "a b"], 0.5, 700)
    assert job.title == "train.ipynb --lr 0.1 --name a b"
    paths = {file.path for file in reading.manifest_of(job).files}
    assert {"train.ipynb", "helper.py", "sub/deep.ipynb"} <= paths
    assert not [path for path in paths if path.startswith(".")], "passwords are not code"


@pytest.mark.parametrize(("entry", "says"), [
    ("none.ipynb", "the workspace has no notebook none.ipynb"), ("link.ipynb", "the workspace has no notebook"),
    ("helper.py", "the workspace has no notebook"), ("../../x.ipynb", "entry: "), ("", "entry: "),
    ("broken.ipynb", "broken.ipynb is not a notebook: it is not JSON"),
])  # fmt: skip
def test_what_is_no_notebook_of_it_is_refused(alice, bob, lab, entry, says):
    page = visitor(alice).post("/workspaces/lab/notebook", {"entry": entry}, follow=True)
    assert says in page.content.decode()
    assert visitor(bob).post("/workspaces/lab/notebook", {"entry": "train.ipynb"}).status_code == 404
    assert not Job.objects.exists()
