"""A job that exchanges a folder of its output with a link while the platform reads or writes there: in a loop, and at
the worst moment, just before the platform opens what it has looked at.

`y` leads to the storage root and `x` is a folder, or the reverse; the file of the same name in the root must never be
read, written or removed. How runs are started meanwhile is in `runners/tests/test_exchange.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import os

import pytest

from aiops.intake.follow import Follower
from aiops.models import FollowedFile
from jobs.artifacts import files
from jobs.models import Job
from kernel import copying, storage
from kernel.errors import Refused
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import later
from operations.backup.tree import Tree
from runners.tests import exchanging

pytestmark = pytest.mark.django_db
NAME, SECRET, INSIDE = "bystander", b"the secret of the platform", ("x/bystander", "y/bystander")
ROUNDS = [3, later(100)]
ATTEMPTS = 1000


class Objects:
    """What a backup stores."""

    known: frozenset = frozenset()

    def __init__(self):
        self.stored: list[bytes] = []

    def put(self, data: bytes) -> str:
        self.stored.append(data)
        return "object"


@pytest.fixture
def job(alice):
    """The job, beside which the storage root has a file of the same name as one in its output."""
    (storage.root() / NAME).write_bytes(SECRET)
    job = put(Job, alice, "fit", "finished")
    exchanging.lay(storage.job_dir("alice", "fit"), NAME)
    yield job
    (storage.root() / NAME).unlink(missing_ok=True)


def download(job: Job, api) -> None:
    for path in INSIDE:
        answer = api.call("get", f"users/alice/jobs/fit/artifacts/{path}")
        assert SECRET not in (b"".join(answer.streaming_content) if answer.streaming else answer.content)


def enumerate_files(job: Job, api) -> None:
    folder = storage.job_dir("alice", "fit")
    assert {path for path, _info in storage.files(folder)} <= set(INSIDE)
    assert storage.tree_size(folder) <= 2 * len("harmless")
    for path in INSIDE:
        with contextlib.suppress(Refused):
            info = storage.status(folder, path)
            assert info is None or info.st_size == len("harmless")


def copy_to_a_model(job: Job, api) -> None:
    target = storage.model_dir("alice", "net")
    for source in ("jobs/fit", "jobs/fit/x", "jobs/fit/x/bystander"):
        place = None
        with contextlib.suppress(Refused):
            place = copying.origin("alice", source)
        if place is not None:
            with contextlib.suppress(OSError):  # what is behind the link would be too much: Refused
                copying.copy(place, target, 1 << 20)
            assert all(file.read_bytes() == b"harmless" for file in target.rglob("*") if file.is_file())


def back_up(job: Job, api) -> None:
    objects = Objects()
    Tree(objects, {}).sweep(storage.job_dir("alice", "fit"))
    assert set(objects.stored) <= {b"harmless", b"harmless" * 2}


def store_and_remove(job: Job, api) -> None:
    for path in ("x/new", "x/new/bystander", "x/bystander"):
        with contextlib.suppress(Refused, OSError):
            files.put_bytes(job, path, b"harmless")
        if path != "x/bystander":
            with contextlib.suppress(Refused, OSError):
                files.remove(job, path)
    assert not (storage.root() / "new").exists()


def purge(job: Job, api) -> None:
    """Remove the output, as its deletion and the end of its retention do; a round that the exchange disturbs fails."""
    folder = storage.job_dir("alice", "fit")
    for _ in range(ATTEMPTS):
        with contextlib.suppress(OSError):
            storage.clear(folder, only={"x"})  # while that is one or the other
            storage.remove_tree(folder)
            break
    else:
        pytest.fail("the output cannot be removed")
    exchanging.lay(folder, NAME)


PLACES = [download, enumerate_files, copy_to_a_model, back_up, store_and_remove, purge]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_nothing_behind_the_link_is_touched(job, as_alice, place, rounds):
    with exchanging.exchanged_all_the_time(storage.job_dir("alice", "fit")):
        for _ in itertools.repeat(None, rounds):
            place(job, as_alice)
            assert (storage.root() / NAME).read_bytes() == SECRET


@contextlib.contextmanager
def exchanged_at_opening(place, number: int, folder: str = "x", file: str = NAME):
    """Put links in the place of a folder of the output and of a file in it while the platform opens one of them for the
    `number`th time: `y`, and `way` in the folder. Yield the names that were opened so far.
    """
    real, opened = os.open, []
    if not os.path.lexists(place / folder / "way"):
        (place / folder / "way").symlink_to(f"../../../../{file}")

    def opening(path, *arguments, **options):
        name = os.path.basename(os.fsdecode(path))
        if name not in (folder, file):
            return real(path, *arguments, **options)
        opened.append(name)
        if len(opened) != number:
            return real(path, *arguments, **options)
        one, other = (place, (folder, "y")) if name == folder else (place / folder, (file, "way"))
        exchanging.exchange(one, *other)
        try:
            return real(path, *arguments, **options)
        finally:
            exchanging.exchange(one, *other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opening)
        yield opened


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_nothing_behind_a_link_is_touched_that_is_there_when_it_is_opened(job, as_alice, place):
    folder = storage.job_dir("alice", "fit")
    for number in itertools.count(1):
        with exchanged_at_opening(folder, number) as opened:
            place(job, as_alice)
        assert (storage.root() / NAME).read_bytes() == SECRET
        if len(opened) < number:
            break
    assert number > 1


@pytest.mark.parametrize("make", [None, os.mkfifo, os.mkdir, exchanging.bind])
def test_what_takes_the_place_of_a_log_is_not_read_and_keeps_no_other_log_from_being_read(job, make):
    """A run may write in the folder of its log, too, and put a link, or anything, where its file was looked at."""
    job_dir, others = (storage.job_dir("alice", name) for name in ("fit", "next"))
    for folder in (job_dir, others):
        (folder / "log").mkdir(parents=True)
        (folder / "log" / "job.log").write_text("harmless\n")
    if make is not None:
        make(job_dir / "log" / "way")
    behind = storage.root() / "job.log"
    behind.write_bytes(SECRET + b"\n")
    try:
        for number in itertools.count(1):
            taken: list[dict] = []
            with exchanged_at_opening(job_dir, number, "log", "job.log") as opened:
                Follower(storage.root(), taken.extend).poll()
            FollowedFile.objects.all().delete()
            assert ("next", "harmless") in {(line["deployment"], line["log"]) for line in taken}, taken
            assert SECRET.decode() not in {line["log"] for line in taken}
            if len(opened) < number:
                break
    finally:
        behind.unlink()
    assert number > 4
