"""What a job leaves in its workspace, when the platform lists it, sends it, makes a model of it or removes it."""

from __future__ import annotations

import contextlib
import html
import os
import re
import socket
import stat
import threading
from urllib.parse import quote

import pytest

from conftest import Api
from jobs.models import Job
from kernel import copying, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few, later
from models_app import launching
from models_app.models import Model
from runners.tests import exchanging

pytestmark = pytest.mark.django_db

SECRET = b"the secret of another user"
KINDS = ["link", "relative link", "fifo", "socket", "device", "folder"]
READERS = ["jobs/fit/artifacts/{}", "jobs/fit/log", "jobs/fit/usage"]


@pytest.fixture
def workspace(alice, bob):
    """The output of alice's finished job, beside which bob has a secret."""
    put(Job, alice, "fit", "finished")
    theirs = storage.job_dir("bob", "kept")
    theirs.mkdir(parents=True)
    (theirs / "secret.txt").write_bytes(SECRET)
    mine = storage.job_dir("alice", "fit")
    (mine / "log").mkdir(parents=True)
    (mine / "good.txt").write_text("good")
    return mine


def lay(kind: str, path, theirs) -> None:
    """Put something at the path that is no ordinary file of the job."""
    path.parent.mkdir(exist_ok=True)
    if kind == "link":
        path.symlink_to(theirs)
    elif kind == "relative link":
        path.symlink_to(os.path.relpath(theirs, path.parent))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as link, contextlib.chdir(path.parent):
            link.bind(path.name)
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero, which never ends
    elif kind == "folder":
        path.mkdir()
    elif kind == "closed":
        path.write_bytes(b"closed")
        path.chmod(0)


@pytest.mark.parametrize(
    ("place", "kind"),
    few(
        [("trap", kind) for kind in KINDS]
        + [
            pytest.param(place, kind, marks=() if kind in ("link", "fifo") else pytest.mark.long)
            for place in ("log/job.log", "log/usage.jsonl")
            for kind in KINDS
        ],
        4,
    ),
)
def test_only_regular_files_of_the_workspace_are_read(as_alice, alice, workspace, kind, place):
    """In no way that the platform reads them; and none waits for a FIFO or reads a device without end."""
    lay(kind, workspace / place, storage.job_dir("bob", "kept") / "secret.txt")
    listed = {row["path"] for row in as_alice.call("get", "users/alice/jobs/fit/artifacts").json()}
    assert listed == {"good.txt"}
    for address in READERS:
        answer = as_alice.call("get", f"users/alice/{address.format(place)}")
        assert answer.status_code in {200, 403}, address
        assert SECRET not in b"".join(answer)
    pages = visitor(alice)
    for address in (
        "jobs/fit",
        f"jobs/fit/files/{place}",
        f"jobs/fit/pictures/{place}",
        "jobs/fit/log",
        "models?new=1",
    ):
        assert SECRET not in b"".join(pages.get(f"/{address}")), address
    as_alice.refused("post", "users/alice/models", {"name": "net", "src": f"jobs/fit/{place}"})


@pytest.mark.parametrize(
    "where", few(["..", "links", "links/fit", "/etc", "%2e%2e", "..%2f", "log/..", "a\\..\\..", "links%00"], 4)
)
def test_no_path_leaves_the_workspace(as_alice, workspace, where):
    (workspace / "links").symlink_to(storage.job_dir("bob", "kept"))
    for address in (f"jobs/fit/artifacts/{where}/secret.txt", f"jobs/fit/artifacts/{where}/../../bob/kept/secret.txt"):
        answer = as_alice.call("get", f"users/alice/{address}")
        assert answer.status_code == 403
        assert SECRET not in answer.content
    body = {"name": "net", "src": f"jobs/fit/{where}/secret.txt"}
    as_alice.refused("post", "users/alice/models", body)


@pytest.mark.parametrize("most", [20, later(300)])
def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(as_alice, workspace, most):
    """A job swaps it as often as it can while its files are listed."""
    theirs, folder, aside = storage.job_dir("bob", "kept"), workspace / "swapped", workspace / "aside"
    folder.mkdir()
    (folder / "mine.txt").write_text("x")
    link, over = workspace / "link", threading.Event()
    link.symlink_to(theirs)

    def swap() -> None:
        while not over.is_set():
            folder.rename(aside)
            link.rename(folder)
            folder.rename(link)
            aside.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        names = {row["path"] for _ in range(most) for row in storage_listing(as_alice)}
    finally:
        over.set()
        swapping.join()
    assert "good.txt" in names
    assert not [name for name in names if "secret" in name]


def storage_listing(client: Api) -> list[dict]:
    return client.call("get", "users/alice/jobs/fit/artifacts").json()


@pytest.mark.parametrize("depth", [300, 3000])
def test_folders_nested_without_end_are_listed_refused_and_removed(as_alice, alice, workspace, depth):
    """More deeply than a path can name, than a program may call itself, or than it may open files."""
    here = os.open(workspace, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("deep.txt", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.fchmod(here, 0)
    os.close(here)
    assert [row["path"] for row in storage_listing(as_alice)] == ["good.txt"]
    assert visitor(alice).get("/jobs/fit").status_code == 200
    assert "nest" in as_alice.refused("post", "users/alice/models", {"name": "net", "src": "jobs/fit"})
    storage.remove_tree(workspace)
    assert not workspace.exists()


def test_files_without_number_are_counted_and_make_no_model(as_alice, workspace, monkeypatch):
    for number in range(20):
        (workspace / f"file{number:02}").write_text("x")
    page = as_alice.call("get", "users/alice/jobs/fit/artifacts?limit=2&offset=19")
    assert [row["path"] for row in page.json()] == ["file19", "good.txt"]
    assert page["X-Total-Count"] == "21"
    monkeypatch.setattr("kernel.copying.MAX_FILES", 20)
    assert "at most 20 files" in as_alice.refused("post", "users/alice/models", {"name": "net", "src": "jobs/fit"})


def test_no_link_below_a_source_becomes_a_part_of_the_model(as_alice, workspace):
    theirs = storage.job_dir("bob", "kept")
    (workspace / "net").mkdir()
    (workspace / "net" / "weights.bin").write_text("mine")
    (workspace / "net" / "link").symlink_to(theirs / "secret.txt")
    (workspace / "net" / "links").symlink_to(theirs)
    assert as_alice.call("post", "users/alice/models", {"name": "net", "src": "jobs/fit/net"}).status_code == 201
    launching.copy(Model.objects.get().pk)
    assert [path for path, _info in storage.files(storage.model_dir("alice", "net"), every=True)] == ["weights.bin"]


def test_a_folder_that_becomes_a_link_before_it_is_copied_is_not_followed(workspace):
    source = exchanging.lay(workspace, "secret.txt")
    (storage.root() / "secret.txt").write_bytes(SECRET)
    checked = copying.origin("alice", f"jobs/fit/x/{source.name}")
    exchanging.exchange(workspace)
    try:
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            copying.copy(checked, storage.model_dir("alice", "net"), 1 << 20)
    finally:
        (storage.root() / "secret.txt").unlink()


def test_removing_does_not_follow_links(workspace):
    theirs = storage.job_dir("bob", "kept")
    (workspace / "way").symlink_to(theirs)
    os.link(theirs / "secret.txt", workspace / "hard")
    storage.remove_tree(workspace)
    assert (theirs / "secret.txt").read_bytes() == SECRET
    (workspace.parent / "fit").symlink_to(theirs)
    storage.remove_tree(workspace)
    assert not workspace.is_symlink()
    assert (theirs / "secret.txt").read_bytes() == SECRET


NAMES = [
    '"; filename="evil.sh', "a'b", "<img src=x onerror=alert(1)>.html", "x.svg", "=cmd|calc.csv", "ü\u202egnp.exe", " ",
    "-rf", "~", "CON", "a\tb", "a\nSet-Cookie: sessionid=evil", "a\r\n\r\nevil", "\x1b[2J",
]  # fmt: skip


def test_names_are_data(as_alice, alice, workspace):
    """A name of a file is neither a header, nor markup, nor a command of a terminal."""
    shown = {}
    for name in NAMES:
        (workspace / name).write_text("<script>alert(1)</script>")
        shown[name] = re.sub(r"[\x00-\x1f]", lambda match: f"\\x{ord(match[0]):02x}", name)  # in lists and addresses
    assert {row["path"] for row in storage_listing(as_alice)} == {"good.txt", *shown.values()}
    page = visitor(alice).get("/jobs/fit").content.decode()
    assert html.escape(NAMES[2]) in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    wrong = {}
    for name in NAMES:
        answer = as_alice.call("get", f"users/alice/jobs/fit/artifacts/{quote(shown[name])}")
        disposition = answer.get("Content-Disposition", "")
        safe = disposition.startswith("attachment") and not {"\r", "\n", "\x1b"} & set(disposition)
        if answer.status_code != 200 or not safe or answer["X-Content-Type-Options"] != "nosniff":
            wrong[name] = (answer.status_code, disposition)
        if "Set-Cookie" in answer:
            wrong[name] = answer["Set-Cookie"]
    assert wrong == {}
