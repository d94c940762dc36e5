"""The Code tab, the comparison of two runs and the form that clones one; the same by REST."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile

import pytest
from django.utils import timezone

from accounts.models import Share
from jobs.models import Capture, Job
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from snapshots import store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


@pytest.fixture
def two(submit, home):
    """Two jobs of alice's whose code, arguments and environment differ; the code is saved when they are submitted."""
    (home / "lib").mkdir()
    (home / "lib" / "nets.py").write_text("SIZE = 1\n")
    (home / "binary.bin").write_bytes(b"\0\1")
    job = submit("import sys\nprint('one')\n", args=["--lr", "0.1"], env={"API_KEY": "very secret"})
    (home / "lib" / "nets.py").write_text("SIZE = 2\n")
    (home / "train.py").unlink()
    fields = {"args": ["--lr", "0.2"], "env": {"API_KEY": "another", "MODE": "fast"}}
    submit("print('two')\n", name="other", **fields)
    return job


def texts(answer: dict, path: str) -> list[tuple[str, str]]:
    file = next(each for each in answer["files"] if each["path"] == path)
    return [(line["kind"], line["text"]) for line in file["lines"]]


def test_rest_gives_what_was_kept(as_alice, as_bob, two, until):
    until(two, "finished")
    code = as_alice.call("get", "users/alice/jobs/fit/code").json()
    assert [file["path"] for file in code["files"]] == ["binary.bin", "lib/nets.py", "train.py"]
    assert len(code["digest"]) == 64
    assert code["environment"]["packages"]["numpy"]
    assert as_alice.call("get", "users/alice/jobs/fit/code/files/lib/nets.py").getvalue() == b"SIZE = 1\n"
    assert as_alice.refused("get", "users/alice/jobs/fit/code/files/none.py") == "artifact: no such artifact"
    packed = zipfile.ZipFile(
        io.BytesIO(as_alice.call("get", "users/alice/jobs/fit/code/archive?format=zip").getvalue())
    )
    assert packed.read("fit/lib/nets.py") == b"SIZE = 1\n"
    archive = io.BytesIO(as_alice.call("get", "users/alice/jobs/fit/code/archive").getvalue())
    with tarfile.open(fileobj=archive) as rolled:
        assert "fit/train.py" in rolled.getnames()
    assert as_alice.refused("get", "users/alice/jobs/fit/code/archive?format=rar").startswith("format:")
    for path in ("code", "code/archive", "code/files/train.py", "code/diff?with=other"):
        as_bob.refused("get", f"users/alice/jobs/fit/{path}")


def test_packages_are_compared_once_both_jobs_have_recorded_theirs(as_alice, two):
    recorded = {"fit": {"click": "8.1", "numpy": "2.1"}, "other": {"numpy": "2.3"}}
    found = []
    for name, packages in recorded.items():
        job = Job.objects.get(name=name)
        environment = {"attempt": job.attempt, "packages": packages}
        Capture.objects.update_or_create(job=job, defaults={"environment": environment})
        found.append(as_alice.call("get", "users/alice/jobs/fit/code/diff?with=other").json()["packages"])
    assert found == [[], [
        {"name": "click", "old": "8.1", "new": None}, {"name": "numpy", "old": "2.1", "new": "2.3"},
    ]]  # fmt: skip


def test_rest_gives_what_differs(as_alice, two):
    diff = as_alice.call("get", "users/alice/jobs/fit/code/diff?with=other").json()
    assert [(each["path"], each["change"]) for each in diff["files"]] == [
        ("lib/nets.py", "changed"),
        ("other.py", "added"),
        ("train.py", "removed"),
    ]
    assert diff["settings"] == [{"name": "script", "old": "train.py", "new": "other.py"}]
    assert texts(diff, "lib/nets.py") == [("old", "SIZE = 1"), ("new", "SIZE = 2")]
    assert [line["text"] for line in diff["args"] if line["kind"] == "new"] == ["0.2"]
    assert [(row["name"], row["old"], row["new"]) for row in diff["env"]] == [
        ("API_KEY", "••••••", "••••••"),
        ("MODE", None, "fast"),
    ]
    assert diff["packages"] == []
    assert as_alice.refused("get", "users/alice/jobs/fit/code/diff").startswith("with:")
    assert as_alice.refused("get", "users/alice/jobs/fit/code/diff?with=none").startswith("job:")


def test_the_pages(alice_client, bob, two):
    page = alice_client.get("/jobs/fit/code")
    words = visible_text(page)
    assert "import sys" in words.replace("  ", " ")
    assert "--lr 0.1" in words
    assert "very secret" not in page.content.decode()
    assert markup(page).inline == []
    assert 'id="train.py:L2"' in page.content.decode()
    assert '<span class="hk">import</span>' in page.content.decode()
    assert "SIZE" in visible_text(alice_client.get("/jobs/fit/code?file=lib/nets.py"))
    assert "not text" in visible_text(alice_client.get("/jobs/fit/code?file=binary.bin"))
    assert alice_client.get("/jobs/fit/code?file=../../etc/passwd").status_code == 404
    assert alice_client.get("/jobs/fit/code?file=%00").status_code == 404
    assert alice_client.get("/jobs/fit/code/archive?format=zip").status_code == 200
    assert alice_client.get("/jobs/fit/code/archive?format=x").status_code == 404
    difference = alice_client.get("/jobs/fit/code/diff?with=other")
    assert "SIZE = 2" in visible_text(difference)
    assert "another" not in visible_text(difference)
    split = alice_client.get("/jobs/fit/code/diff?with=other&view=split").text
    pairs = re.findall(r"SIZE = \d", split[: split.index("other.py</h2>")])
    assert (pairs, split.count('class="pair changed"')) == (["SIZE = 1", "SIZE = 2"], 5)
    assert "?with=other" in split.partition("Unified")[0].rpartition("href=")[2]
    assert 'name="view" value="split"' in split
    for path in ("/jobs/fit/code/diff?with=other", "/jobs/other/code/diff?with=fit"):
        seen = " ".join(visible_text(alice_client.get(path)).split())
        assert "From fit to other" in seen
        assert seen.index("-SIZE = 1") < seen.index("+SIZE = 2"), "from the older to the newer one"
    assert "No differences" in visible_text(alice_client.get("/jobs/fit/code/diff?with=fit"))
    assert alice_client.get("/jobs/fit/code/diff?with=none").status_code == 404
    for path in ("code", "code/diff?with=other", "code/archive"):
        assert visitor(bob).get(f"/jobs/fit/{path}").status_code == 404


def test_clone_and_edit_runs_the_edited_text(alice_client, two, until, as_alice, home):
    form = alice_client.get("/jobs?from=fit&edit=1")
    values = markup(form).values
    assert "print('one')" in visible_text(form)
    assert not (home / "train.py").exists()
    fields = {
        "name": "clone",
        "entry": "train.py",
        "code_from": "fit",
        "script": "print('edited')\r\nprint('twice')\r\n",
    }
    assert alice_client.post("/jobs", fields)["Location"] == "/jobs/clone"
    until(Job.objects.get(name="clone"), "finished")
    assert as_alice.call("get", "users/alice/jobs/clone/log").content == b"edited\ntwice\n"
    assert not (home / "train.py").exists()
    same = {"name": "same", "entry": "train.py", "code_from": "fit", "script": "import sys\r\nprint('one')\r\n"}
    alice_client.post("/jobs", same)
    assert Job.objects.get(name="same").snapshot_id == Job.objects.get(name="fit").snapshot_id
    assert values["name"] == "fitb"


CLONE = {"name": "mine", "entry": "train.py", "code_from": "alice/fit"}


@pytest.mark.long
def test_a_shared_run_is_cloned_with_its_code(two, bob, as_bob, until):
    shared = Share.objects.create(
        owner=two.user, kind="job", object_id=two.pk, name="fit", audience="user", user=bob, right="clone"
    )
    hers = visitor(bob)
    form = hers.get("/jobs?from=alice/fit&edit=1")
    words = visible_text(form)
    assert "The code of alice/fit" in words
    assert "print('one')" in words
    assert "Not copied, since the values are hidden from you: API_KEY." in words
    assert "very secret" not in form.content.decode()
    assert "?from=alice/fit&amp;edit=1" in hers.get("/u/alice/jobs/fit/code").content.decode()
    edited = {**CLONE, "script": "import sys\r\nprint('edited')\r\n", "args": "", "env": ""}
    assert hers.post("/jobs", edited)["Location"] == "/jobs/mine"
    until(Job.objects.get(name="mine"), "finished")
    assert as_bob.call("get", "users/bob/jobs/mine/log").content == b"edited\n"
    code = as_bob.call("get", "users/bob/jobs/mine/code").json()
    assert [file["path"] for file in code["files"]] == ["binary.bin", "lib/nets.py", "train.py"]
    same = as_bob.call("post", "users/bob/jobs", CLONE | {"name": "same"})
    assert (same.status_code, same.json()["env"]) == (201, {})
    mine = Job.objects.get(name="same")
    assert (mine.user, mine.snapshot.user, mine.snapshot.digest) == (bob, bob, two.snapshot.digest)
    Share.objects.filter(pk=shared.pk).update(revoked=timezone.now())
    forget("alice")  # as when the run is deleted
    assert as_bob.call("get", "users/bob/jobs/same/code/files/lib/nets.py").getvalue() == b"SIZE = 1\n"
    Share.objects.filter(pk=shared.pk).update(revoked=None)
    forget("bob")
    assert "no longer kept" in as_bob.refused("post", "users/bob/jobs", CLONE | {"name": "more"})


def forget(user: str) -> None:
    """Remove the kept files of a user."""
    for blob in store.blob_path(user, "").iterdir():
        blob.unlink()


def test_a_clone_without_the_right_is_refused(two, bob, as_bob, as_alice, settings):
    given = {"owner": two.user, "kind": "job", "object_id": two.pk, "name": "fit", "audience": "user", "user": bob}
    hers, refusal = visitor(bob), "no job alice/fit is shared with you with the right to clone"
    assert "No job alice/fit is shared with you with the right" in visible_text(hers.get("/jobs?from=alice/fit"))
    shared = Share.objects.create(**given, right="clone")
    assert "The code of alice/fit" in visible_text(hers.get("/jobs?from=alice/fit"))
    for change in ({"right": "read"}, {"right": "clone", "revoked": timezone.now()}):
        Share.objects.filter(pk=shared.pk).update(**change)
        answer = hers.post("/jobs", {**CLONE, "script": "print(1)"})
        assert (answer.status_code, refusal in visible_text(answer)) == (403, True)
        assert refusal in as_bob.refused("post", "users/bob/jobs", CLONE)
    other = {**CLONE, "code_from": "alice/none"}
    assert as_bob.refused("post", "users/bob/jobs", other) == "code_from: " + refusal.replace("fit", "none")
    assert "must be the name of a job" in as_bob.refused("post", "users/bob/jobs", {**CLONE, "code_from": "a/b/c"})
    assert as_alice.call("post", "users/alice/jobs", CLONE).status_code == 201
    Share.objects.filter(pk=shared.pk).update(revoked=None)
    settings.CODE_LIMIT = 3
    assert "storage for code is full" in as_bob.refused("post", "users/bob/jobs", CLONE | {"name": "full"})
    settings.CODE_LIMIT = 1 << 30
    Job.objects.filter(pk=two.pk).update(snapshot=None)
    assert "was not kept" in as_bob.refused("post", "users/bob/jobs", CLONE | {"name": "old"})
    assert not Job.objects.filter(user=bob).exists()


def test_hostile_code_is_shown_as_text(alice_client, submit):
    submit(f"# {EVIL}\nx = '''{EVIL}\n")
    page = alice_client.get("/jobs/fit/code")
    assert markup(page).inline == []
    assert EVIL in visible_text(page)
    assert "<script>alert" not in page.content.decode()


def test_long_files_are_compared_within_bounds(as_alice, submit, home):
    (home / "data.txt").write_text("".join(f"{number}\n" for number in range(5000)))
    submit("print(1)\n")
    (home / "data.txt").write_text("".join(f"{-number}\n" for number in range(5000)))
    as_alice.call("post", "users/alice/jobs", {"name": "other", "entry": "train.py"})
    files = as_alice.call("get", "users/alice/jobs/fit/code/diff?with=other").json()["files"]
    assert [(each["path"], each["note"], each["lines"]) for each in files] == [("data.txt", "long", [])]


def test_a_job_without_kept_code_and_one_whose_bytes_are_gone(alice_client, as_alice, submit):
    job = submit("print(1)\n")
    for path in (store.folder("alice") / "blobs").iterdir():
        path.unlink()
    assert alice_client.get("/jobs/fit/code").status_code == 200
    assert as_alice.refused("get", "users/alice/jobs/fit/code/files/train.py").startswith("artifact:")
    Job.objects.filter(pk=job.pk).update(snapshot=None)
    assert "No code saved" in visible_text(alice_client.get("/jobs/fit/code"))
    assert as_alice.call("get", "users/alice/jobs/fit/code").json()["digest"] == ""
