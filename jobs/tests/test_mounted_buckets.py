"""Jobs that read a bucket where it is mounted. A folder with the same files stands in for the mount."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import shutil

import pytest

from datasets.buckets import rows
from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401
from datasets.tests.test_external import external  # noqa: F401
from jobs.tests.test_external_datasets import READ
from kernel import storage
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
FILES = {"a.csv": b"1", "deep/b c.txt": b"2"}
SEEN = "[('a.csv', '1'), ('deep/b c.txt', '2')]\nread-only\n[]"


@pytest.fixture
def mounted(tmp_path, settings):
    """Mount a folder with these files below `train`, as those of the bucket."""
    folder = tmp_path / "mounted"
    settings.BUCKET_MOUNTS = {"photos": str(folder)}

    def mount(files: dict[str, bytes] = FILES) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        for path, content in files.items():
            place = folder / "train" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    mount()
    return mount


def log() -> str:
    return (storage.job_dir("alice", "fit") / "log" / "job.log").read_text()


def is_cached() -> bool:
    return storage.dataset_cache_dir().is_dir() and any(storage.dataset_cache_dir().iterdir())


def test_a_job_reads_a_dataset_in_place_that_the_cache_has_no_room_for(external, mounted, submit, until, settings):
    settings.BUCKET_CACHE_MIB = 0
    external(FILES)
    job = submit(READ, datasets=["cats"])
    until(job, "finished")
    assert SEEN in log()
    assert not is_cached()


def test_the_folder_of_the_bucket_is_part_of_the_place(external, mounted, submit, until, bucket):
    rows.change(bucket, by="root", everybody=True, prefix="train")
    external(FILES, src="s3/photos")
    job = submit(READ, datasets=["cats"])
    until(job, "finished")
    assert SEEN in log()


@pytest.mark.parametrize("change", ["other", "more", "away", "partial"])
def test_a_bucket_that_has_something_else_now_is_not_read_in_place(
    external, mounted, submit, until, remote, change, as_alice, tasks
):
    """The version's files are fetched instead; what has changed of them is named."""
    external(FILES)
    if change == "other":
        remote.put("train/a.csv", b"3")
    elif change == "more":
        remote.put("train/more.csv", b"4")
    elif change == "away":
        mounted({})
    else:
        mounted({"a.csv": b"1"})
    job = submit(READ, datasets=["cats"])
    if change == "other":
        until(job, "error")
        assert "the object train/a.csv has changed since the dataset was refreshed" in job.reason
        return
    until(job, "finished")
    assert SEEN in log()
    assert is_cached()


def test_each_job_is_preceded_by_a_comparison(external, mounted, submit, until, remote):
    external(FILES)
    until(submit(READ, datasets=["cats"]), "finished")
    assert not is_cached()
    remote.put("train/more.csv", b"4")
    until(submit(READ, name="again", datasets=["cats"]), "finished")
    assert is_cached()


def test_files_in_the_cache_are_read_there(external, mounted, submit, until, settings):
    """They are the version's, whatever the bucket has."""
    places = settings.BUCKET_MOUNTS
    settings.BUCKET_MOUNTS = {}
    external(FILES)
    job = submit(READ, datasets=["cats"])
    until(job, "finished")
    settings.BUCKET_MOUNTS = places
    mounted({"a.csv": b"9", "deep/b c.txt": b"9"})
    job = submit(READ, name="again", datasets=["cats"])
    until(job, "finished")
    assert SEEN in (storage.job_dir("alice", "again") / "log" / "job.log").read_text()
