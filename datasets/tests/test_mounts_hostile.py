"""Mounted buckets whose objects lead elsewhere, and mounts that do not answer. A folder stands in for the mount."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from datasets import versions
from datasets.buckets import caching, in_place, rows
from datasets.models import Dataset, Manifest
from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401
from datasets.tests.test_external import FILES, external  # noqa: F401
from datasets.tests.test_external_cache import PLACE, fetched, wanted  # noqa: F401
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def mount(tmp_path, settings) -> Path:
    """Return a folder with the files of the dataset, as a mount of the bucket."""
    folder = tmp_path / "mounted"
    settings.BUCKET_MOUNTS = {"photos": str(folder)}
    for path, content in {**FILES, "../secret.csv": b"1"}.items():
        place = folder / "train" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


@pytest.fixture
def ready(external, wanted, tasks):
    """Have a run wait for the dataset, and return its folder then; None where its files were fetched instead."""

    def prepare(**given) -> Path | None:
        external(**given)
        wanted.add(PLACE)
        return again()

    def again() -> Path | None:
        began = timezone.now()
        assert fetched(began) is not None
        tasks.run()
        assert fetched(began) is None
        cached = Manifest.objects.get(version__dataset__name="cats").cached
        return versions.folder_for_runs(Dataset.objects.get(name="cats"), 1) if cached is None else None

    prepare.again = again
    return prepare


def elsewhere(place: Path) -> None:
    """Move a file or folder, and leave a link to it, as s3fs shows an object whose metadata say so."""
    aside = place.parent.parent / f"{place.name}.aside"
    os.rename(place, aside)
    place.symlink_to(aside)


def test_a_dataset_may_be_the_whole_bucket(ready, mount):
    (mount / "secret.csv").unlink()
    assert ready(src="s3://photos") == mount


def test_links_in_a_mount_are_not_followed(ready, mount):
    """Neither by the platform, which sees more than a run, nor as a file that a run would not find."""
    elsewhere(mount / "train")
    assert ready() is None


@pytest.mark.parametrize("path", [min(FILES), max(FILES)])
def test_a_file_that_is_a_link_is_fetched(ready, mount, path):
    elsewhere(mount / "train" / path)
    assert ready() is None


def test_a_folder_that_becomes_a_link_after_the_comparison_is_not_given_to_a_run(ready, mount):
    assert ready() == mount / "train"
    elsewhere(mount / "train")
    place = versions.folder_for_runs(Dataset.objects.get(name="cats"), 1)
    assert place == caching.folder(Manifest.objects.get().pk)
    assert not place.exists()


def test_a_dataset_of_one_object_shows_no_others_of_its_folder(ready, mount):
    path = min(FILES)
    assert ready(src=f"s3/photos/train/{path}") is None


def test_a_mount_that_does_not_answer_is_done_without(ready, mount, monkeypatch, tmp_path):
    """A program that never ends stands in for `stat` of a mount whose server is away."""
    silent = tmp_path / "silent.py"
    silent.write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(in_place, "LOOK", silent)
    monkeypatch.setattr(in_place, "LOOK_S", 0.05)
    assert ready() is None


def test_a_folder_of_a_bucket_that_has_changed_is_compared_again(ready, mount, bucket):
    assert ready() == mount / "train"
    rows.change(bucket, by="root", everybody=True, prefix="other")
    assert fetched(timezone.now() - timedelta(seconds=30)) is not None
    assert versions.folder_for_runs(Dataset.objects.get(name="cats"), 1) == caching.folder(Manifest.objects.get().pk)


def test_a_comparison_that_a_clock_has_left_in_the_future_does_not_count(ready, mount):
    assert ready() == mount / "train"
    Manifest.objects.update(compared=timezone.now() + timedelta(hours=1))
    assert fetched() is not None
