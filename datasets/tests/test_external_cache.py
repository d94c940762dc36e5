"""The cache of the files of external datasets: fetched once for all runs, whole, bounded, and never taken from one."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import os
import sys
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from datasets.buckets import caching, fetching, places, rows
from datasets.buckets.store import Store
from datasets.models import Dataset, Manifest
from datasets.tests.test_buckets import DATASETS, bucket, objects, remote  # noqa: F401
from datasets.tests.test_external import FILES, external  # noqa: F401
from kernel import storage
from kernel.errors import Refused
from kernel.messages import Message
from kernel.tests.nats_tools import until as wait_for
from operations.accounting import SOURCES
from operations.backup.tests.conftest import s3  # noqa: F401
from resources import books, tcc, tenants
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)
PLACE = ("alice", "cats", 1)


@pytest.fixture
def wanted(monkeypatch) -> set:
    """Return the versions that runs use, to which a test adds."""
    found: set = set()
    monkeypatch.setattr(places, "_finders", [lambda: found])
    return found


def fetched(since=None) -> Message | None:
    """Fetch what is wanted, as a job that starts does, and return what is waited for then."""
    return caching.waits_for(PLACE, since or timezone.now())


def held() -> int:
    """Return the bytes of the disk that the tenant's objects have."""
    return tcc.allocated(Tenant.objects.get(name="default"))["rom"]


def folder_of(number: int = 1):
    return caching.folder(Manifest.objects.get(version__dataset__name="cats", version__number=number).pk)


def in_folder(number: int = 1) -> dict[str, bytes]:
    top = folder_of(number)
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_files_are_fetched_once_for_all_runs_and_counted_while_they_are_here(external, wanted, tasks):
    external()
    before = held()
    wanted.add(PLACE)
    assert "is being fetched: 0 %" in str(fetched())
    tasks.run()
    assert fetched() is None
    assert in_folder() == FILES
    assert held() == before + sum(map(len, FILES.values()))
    assert books.explain(Tenant.objects.get(name="default"), SOURCES) == []
    assert not caching.evict(int(folder_of().name))
    wanted.clear()
    assert caching.evict(int(folder_of().name))
    assert held() == before
    assert not folder_of().exists()
    assert list(storage.dataset_cache_dir().iterdir()) == []


def test_files_that_come_while_another_run_asks_for_them_stay(external, wanted, tasks, monkeypatch):
    """A run may read them by then: they are not fetched once more in their place."""
    external()
    wanted.add(PLACE)
    assert fetched() is not None
    first, places = QuerySet.first, []

    def after_the_fetch(found):
        if not places:
            places.append(folder_of())
            tasks.run()
        return first(found)

    with monkeypatch.context() as patched:
        patched.setattr(QuerySet, "first", after_the_fetch)
        assert fetched() is not None
    there = places[0].stat().st_ino
    tasks.run()
    assert fetched() is None
    assert places[0].stat().st_ino == there


def test_what_an_earlier_version_has_is_linked_and_not_fetched_again(external, wanted, tasks, as_alice, remote):
    external()
    wanted |= {PLACE, ("alice", "cats", 2)}
    fetched()
    tasks.run()
    remote.put("train/a.csv", b"another")
    as_alice.call("put", f"{DATASETS}/cats:refresh", {})
    tasks.run()
    caching.waits_for(("alice", "cats", 2), timezone.now())
    tasks.run()
    assert in_folder(2) == FILES | {"a.csv": b"another"}
    assert in_folder(1) == FILES
    assert (folder_of(1) / "deep/er/b.bin").samefile(folder_of(2) / "deep/er/b.bin")


def test_a_fetch_that_was_killed_goes_on_with_the_other_files(external, wanted, tasks, monkeypatch):
    """The process ends between two batches; of what was being fetched nothing is taken for whole."""
    external({f"{number}.txt": b"%d" % number for number in range(4)})
    wanted.add(PLACE)
    monkeypatch.setattr(caching, "BATCH_FILES", 1)
    real, calls = fetching.fetch, []

    class Killed(BaseException):
        pass

    def fetch(store, entries, *rest):
        calls.extend(entry.path for entry in entries)
        if len(calls) == 3:
            raise Killed
        real(store, entries, *rest)

    monkeypatch.setattr(fetching, "fetch", fetch)
    fetched()
    with pytest.raises(Killed):
        caching.fetch(Manifest.objects.get().pk)
    caching.fetch(Manifest.objects.get().pk)
    assert calls == ["train/0.txt", "train/1.txt", "train/2.txt", "train/2.txt", "train/3.txt"]
    assert sorted(in_folder()) == ["0.txt", "1.txt", "2.txt", "3.txt"]


FETCHING = """
import sys
import django
django.setup()
from datasets.buckets import caching, fetching, places
caching.BATCH_FILES, real, count = 1, fetching.fetch, 0
places.register(lambda: {("alice", "cats", 1)})
def fetch(store, entries, folder, *rest):
    global count
    real(store, entries, folder, *rest)
    count += 1
    if count == 3:
        print("here", flush=True)
        sys.stdin.read()
fetching.fetch = fetch
caching.fetch(int(sys.argv[1]))
"""


@pytest.mark.long
def test_a_process_that_is_killed_while_it_fetches_leaves_whole_files(external, wanted, tasks, settings):
    """The third file is fetched, but not in its place when SIGKILL comes; the lock of the process ends with it."""
    external({f"{number}.txt": b"%d" % number * 5000 for number in range(5)})
    wanted.add(PLACE)
    fetched()
    pk = Manifest.objects.get().pk
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
    environment = os.environ | {
        "DATABASE_URL": database, "MLP_ROOT": str(settings.MLP_ROOT), "MLP_SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "mlp.settings",
    }  # fmt: skip
    command = [sys.executable, "-c", FETCHING, str(pk)]
    child = Popen(command, cwd=settings.BASE_DIR, env=environment, stdin=PIPE, stdout=PIPE, text=True)
    try:
        assert child.stdout.readline() == "here\n"
        caching.fetch(pk)  # the other has its lock
        assert Manifest.objects.get().cached is None
    finally:
        child.kill()
        child.communicate()
    part = caching.folder(pk).with_name(f"{pk}.part")
    assert sorted(path.name for path in part.iterdir()) == ["0.txt", "1.txt"]
    wait_for(lambda: (caching.fetch(pk), Manifest.objects.get().cached)[1])
    assert in_folder() == {f"{number}.txt": b"%d" % number * 5000 for number in range(5)}
    assert [path.name for path in storage.dataset_cache_dir().iterdir()] == [str(pk)]


def test_a_fetch_ends_when_no_run_waits_for_it(external, wanted, tasks, monkeypatch):
    external()
    wanted.add(PLACE)
    fetched()
    monkeypatch.setattr(caching, "SAID_AFTER", caching.SAID_AFTER * 0)
    pieces = Store.pieces

    def then_cancel(self, entries):
        yield from pieces(self, entries)
        wanted.clear()

    monkeypatch.setattr(Store, "pieces", then_cancel)
    tasks.run()
    manifest = Manifest.objects.get()
    assert (manifest.asked, manifest.cached, manifest.failed) == (None, None, None)
    monkeypatch.setattr(caching, "FORGOTTEN_AFTER", -caching.FORGOTTEN_AFTER)
    caching.sweep()
    assert list(storage.dataset_cache_dir().iterdir()) == []


def test_what_ended_fetches_have_left_makes_room_for_others(external, wanted, tasks, settings, monkeypatch):
    """Else users could fill the disk beyond the cache's limit, by jobs that they cancel."""
    settings.BUCKET_CACHE_MIB = 1
    external({"a/1": b"1" * (600 << 10), "b/1": b"1" * (600 << 10)}, "s3/photos/train/a")
    external({}, "s3/photos/train/b", "dogs")
    wanted.add(PLACE)
    fetched()

    def cancelled(*_given):
        wanted.clear()
        raise caching._Unwanted

    with monkeypatch.context() as patched:
        patched.setattr(caching, "_complete", cancelled)
        tasks.run()
    part = caching._part(Manifest.objects.get(version__dataset__name="cats").pk)
    assert (part / "1").stat().st_size == 600 << 10
    assert Manifest.objects.get(version__dataset__name="cats").asked is None
    wanted.add(("alice", "dogs", 1))
    caching.waits_for(("alice", "dogs", 1), timezone.now())
    tasks.run()
    assert caching.waits_for(("alice", "dogs", 1), timezone.now()) is None
    assert not part.exists()


@pytest.mark.parametrize("what", ["changed", "gone", "away", "room", "cache"])
def test_why_files_could_not_be_fetched(external, wanted, tasks, remote, bucket, settings, monkeypatch, what):
    external({"a.csv": b"1" * (2 << 20), "b.csv": b"2"})
    wanted.add(PLACE)
    since = timezone.now()
    fetched(since)
    if what == "changed":
        remote.put("train/b.csv", b"3")
    elif what == "gone":
        remote.delete("train/b.csv")
    elif what == "away":
        rows.change(bucket, by="root", everybody=False)
    elif what == "room":
        tenants.change(name="default", rom=1 << 20, by="root")
    else:
        settings.BUCKET_CACHE_MIB = 1
    tasks.run()
    said = {
        "changed": "the object train/b.csv has changed since the dataset was refreshed",
        "gone": "the object train/b.csv is not in the bucket any more",
        "away": "there is no bucket named photos that you may read",
        "room": "rom",
        "cache": "the cache has room for 1048576",
    }[what]
    with pytest.raises(Refused, match=said):
        fetched(since)
    assert Manifest.objects.get().asked is None


def test_the_cache_removes_what_was_used_least_recently_and_nothing_that_a_run_uses(
    external,
    wanted,
    tasks,
    settings,
    remote,
):
    settings.BUCKET_CACHE_MIB = 1
    content = b"1" * (600 << 10)
    external({"a/1": content, "b/1": content}, "s3/photos/train/a")
    external({}, "s3/photos/train/b", "dogs")
    other = ("alice", "dogs", 1)
    wanted |= {PLACE, other}
    fetched()
    tasks.run()
    assert fetched() is None
    caching.waits_for(other, timezone.now())
    tasks.run()
    assert "where runs use 614400" in str(caching.waits_for(other, timezone.now()))
    wanted.remove(PLACE)
    caching.fetch(Manifest.objects.get(version__dataset__name="dogs").pk)
    assert caching.waits_for(other, timezone.now()) is None
    assert not folder_of().exists()
    assert Dataset.objects.count() == 2
