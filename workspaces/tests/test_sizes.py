"""What the files of a workspace take on the disk: counted by reconcile, shown on its page, in REST and in the trash,
and limited together with those of jobs.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest
from django.utils import timezone

import runners
from accounts.models import Notice
from jobs.artifacts import outputs
from kernel import storage
from mlp.tests.page_world import visible_text
from mlp.tests.page_world import visitor as page_visitor
from mlp.trash import largest
from resources import limits
from workspaces import place, sizes
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)

BLOCKS = 8 * 4096  # of folders, and of ends of files


@pytest.fixture
def home(alice, home):
    """The home of a stopped workspace of alice's."""
    row = Workspace.objects.create(user=alice, tenant=alice.tenant, name="desk", cpu=0.1, ram=400, state="stopped")
    folder = place.folder(row) / place.HOME
    folder.mkdir(parents=True)
    return folder


def size() -> int | None:
    return Workspace.objects.get().size


def test_its_own_files_count_and_nothing_that_it_has_links_to(home, tmp_path, as_alice):
    assert as_alice.call("get", "users/alice/workspaces/desk").json()["size"] is None
    sizes.measure(timezone.now())
    empty = size()
    (home / "data").write_bytes(os.urandom(100_000))
    (home / ".cache").mkdir()
    (home / ".cache" / "wheel").write_bytes(os.urandom(100_000))
    os.link(home / "data", home / "again")  # one file
    with (home / "sparse").open("wb") as file:
        file.truncate(1 << 40)  # takes no room
    (tmp_path / "large").write_bytes(os.urandom(5_000_000))
    (home / "datasets").symlink_to(tmp_path)
    Workspace.objects.update(measured=None)
    sizes.measure(timezone.now())
    assert 200_000 <= size() - empty < 200_000 + BLOCKS
    assert as_alice.call("get", "users/alice/workspaces/desk").json()["size"] == size()


def test_it_is_counted_when_it_comes_to_rest_and_now_and_then_while_it_runs(service, create, settle, as_alice, until):
    row = settle(create())
    file = place.folder(row) / place.HOME / "data"
    until(lambda: size() is not None)
    before = size()
    file.write_bytes(os.urandom(300_000))
    now = timezone.now()
    sizes.measure(now + sizes.AGAIN_AFTER / 2)
    assert size() == before
    sizes.measure(now + sizes.AGAIN_AFTER + timedelta(seconds=1))
    assert size() >= before + 300_000
    file.unlink()
    as_alice.call("put", f"users/alice/workspaces/{row.name}:stop")
    settle(row, "stopped")
    until(lambda: Workspace.objects.get().measured is not None)
    assert size() < before + 300_000
    (place.folder(row) / place.HOME / "more").write_bytes(os.urandom(300_000))
    sizes.measure(now + timedelta(days=1))  # nothing runs there: it is not counted again
    assert size() < before + 300_000


def test_a_count_that_a_start_overtakes_does_not_count(home):
    row = Workspace.objects.get()
    Workspace.objects.update(state="ready", attempt=1)
    sizes.count(row, timezone.now())
    assert size() is None


def test_it_is_shown_where_room_is_made(home, alice, staff, as_alice, monkeypatch):
    (home / "data").write_bytes(os.urandom(3 << 20))
    sizes.measure(timezone.now())

    def walked(*_, **__):
        raise AssertionError("a page walks the disk")

    monkeypatch.setattr(storage, "tree_size", walked)
    page = page_visitor(alice)
    assert "3 MiB" in visible_text(page.get("/workspaces"))
    assert "3 MiB" in visible_text(page.get("/workspaces/desk"))
    assert "3 MiB" in visible_text(page.get("/largest?kind=workspace"))
    assert "desk" in visible_text(page_visitor(staff).get("/admin/largest/?kind=workspace"))
    details = f"/admin/workspaces/workspace/{Workspace.objects.get().pk}/change/"
    assert "3 MiB" in visible_text(page_visitor(staff).get(details))
    (item,) = largest.items(alice)
    assert (item.kind, item.size, item.is_movable) == ("workspace", size(), True)
    Workspace.objects.update(state="ready")
    (item,) = largest.items(alice)
    assert not item.is_movable  # it has to be stopped first
    Workspace.objects.update(state="stopped")
    given = {"kind": "workspace", "name": "desk", "next": "/largest"}
    assert "desk moved to the trash" in visible_text(page.post("/trash/move", given, follow=True))
    assert "3 MiB" in visible_text(page.get("/trash"))
    (entry,) = as_alice.call("get", "users/alice/trash").json()
    assert (entry["kind"], entry["size"]) == ("workspace", size())


@pytest.fixture
def limited(monkeypatch, settings):
    """The files of a user's jobs and workspaces may take 20 MiB."""
    monkeypatch.setattr(outputs, "FRESH_S", -1.0)
    settings.OUTPUTS_LIMIT_MIB = 20


def running(alice, name: str) -> Workspace:
    """Return a workspace of alice's as it is while it runs."""
    row = Workspace.objects.create(user=alice, tenant=alice.tenant, name=name, cpu=0.1, ram=400, state="ready",
                                   run_name=f"workspace-{name}-1")  # fmt: skip
    (place.folder(row) / place.HOME).mkdir(parents=True)
    return row


def written(row: Workspace, mib: int) -> None:
    """Write that many MiB more, and what the run's samples say then."""
    (place.folder(row) / place.HOME / f"data{mib}").write_bytes(os.urandom(mib << 20))
    path = runners.get().usage_of(row.run_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"after": 1.0, "disk": mib}) + "\n")


def states() -> dict[str, str]:
    sizes.apply_limits(timezone.now(), often=True)
    return dict(Workspace.objects.values_list("name", "state"))


def test_they_count_to_the_limit_of_their_user(home, alice, as_alice, as_bob, limited, tasks):
    (home / "data").write_bytes(os.urandom(21 << 20))
    sizes.measure(timezone.now())
    (storage.home_dir("alice") / "train.py").parent.mkdir(parents=True, exist_ok=True)
    (storage.home_dir("alice") / "train.py").write_text("pass")
    over = "the files of your jobs and workspaces take 21 MiB of the disk, and the limit is 20 MiB"
    body = {"name": "more", "cpu": 0.1, "ram": 400}
    assert as_alice.refused("post", "users/alice/workspaces", body).startswith(over)
    assert as_alice.refused("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"}).startswith(over)
    page = page_visitor(alice).post("/workspaces", body)
    assert over[1:] in visible_text(page)
    assert as_bob.call("post", "users/bob/workspaces", body).status_code == 201
    assert as_alice.call("put", "users/alice/workspaces/desk:start").status_code == 200  # to remove files
    limits.set_limit(tenant="default", user="bob", by="test", outputs=0)
    refused = as_bob.refused("post", "users/bob/workspaces", body | {"name": "other"})
    assert "and the limit is 0 MiB" in refused


def test_of_the_running_ones_that_which_writes_on_is_stopped(alice, limited, tasks):
    quiet, writing = running(alice, "quiet"), running(alice, "writing")
    written(quiet, 9)
    assert states() == {"quiet": "ready", "writing": "ready"}
    written(writing, 12)
    assert states() == {"quiet": "ready", "writing": "stopping"}
    writing.refresh_from_db()
    assert "stopped since it wrote more" in writing.reason
    assert "take 21 MiB of the disk, and the limit is 20 MiB" in writing.reason
    (notice,) = Notice.objects.filter(user=alice, kind="workspace", name="writing")
    assert notice.event == "stopped"
    # What is over the limit when it is started may remove files, and is stopped once it writes more.
    Workspace.objects.filter(name="quiet").delete()
    row = running(alice, "cleaner")
    written(row, 9)
    assert states()["cleaner"] == "ready"
    written(row, 8)
    assert states()["cleaner"] == "stopping"
