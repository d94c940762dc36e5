"""`manage.py datasets check`: each inconsistency is listed, repaired on request, and nothing else is changed."""

from __future__ import annotations

import os
import shutil
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from datasets import lifecycle
from datasets.models import Dataset
from kernel import storage
from resources.models import Tenant


def check(*arguments: str) -> tuple[int, str]:
    out, code = StringIO(), 0
    try:
        call_command("datasets", "check", *arguments, stdout=out)
    except SystemExit as ending:
        code = ending.code
    return code, out.getvalue()


@pytest.fixture
def make(alice):
    def make(name: str, state: str = "ready", data: bytes = b"12345"):
        row = lifecycle.create_dataset(user=alice, name=name, size=len(data), by="test")
        folder = storage.dataset_dir("alice", name)
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(data)
        if state == "ready":
            lifecycle.heartbeat(user=alice, name=name, state="ready", progress=100, by="test")
        else:
            Dataset.objects.filter(pk=row.pk).update(stored=len(data))
        return folder

    return make


@pytest.mark.django_db
class TestCheck:
    def test_without_problems_there_is_no_finding(self, make, alice):
        make("photos")
        storage.home_dir("alice")
        assert check() == (0, "no problems found: the datasets' rows and files match\n")

    def test_files_without_a_row_are_moved_aside(self, make):
        make("photos")
        for path in ("alice/stray", "nobody/x"):
            (storage.root() / "datasets" / path).mkdir(parents=True)
            (storage.root() / "datasets" / path / "file").write_text("kept")
        code, words = check()
        assert (code, "alice/stray: no such dataset" in words, "nobody: no such user" in words) == (
            1,
            True,
            True,
        )
        assert check("--repair")[0] == 0
        kept = sorted(path.read_text() for path in (storage.root() / "lost").rglob("file"))
        assert (kept, storage.dataset_dir("alice", "photos").exists()) == (["kept", "kept"], True)
        assert check()[0] == 0

    def test_a_dataset_without_files_is_deleted_and_its_space_released(self, make, tasks):
        shutil.rmtree(make("photos"))
        make("other")
        code, words = check()
        assert (code, "alice/photos (ready): its files are missing" in words) == (1, True)
        assert check("--repair")[0] == 0
        tasks.run()
        assert list(Dataset.objects.values_list("name", flat=True)) == ["other"]
        assert Tenant.objects.get().rom_inuse == 5

    def test_a_partly_missing_dataset_is_left_to_the_operator(self, make):
        (make("photos") / "file").write_bytes(b"123")
        code, words = check("--repair")
        assert (code, "3 bytes are stored, but the row says 5; fix: none" in words) == (2, True)
        assert Dataset.objects.get().state == "ready"

    def test_an_uploads_size_is_recounted(self, make):
        (make("photos", "creating") / "file").write_bytes(b"123")
        assert check("--repair")[0] == 0
        assert Dataset.objects.get().stored == 3

    def test_links_are_removed_and_their_targets_kept(self, make, tmp_path):
        (tmp_path / "secret").write_text("secret")
        folder = make("photos")
        (folder / "link").symlink_to(tmp_path / "secret")
        (folder / "folder").symlink_to(tmp_path)
        assert check("--repair")[0] == 0
        assert (sorted(os.listdir(folder)), (tmp_path / "secret").read_text()) == (["file"], "secret")

    def test_leftovers_are_removed(self, make):
        make("photos")
        spool = storage.spool_dir()
        (spool / "trash-1").mkdir()
        for name in ("0000000001", "0000000002"):
            (spool / name).touch()
        os.utime(spool / "0000000001", (1, 1))
        (spool / "parts" / "alice" / "gone").mkdir(parents=True)
        code, words = check()
        assert (code, words.count("left over"), words.count("can no longer be finished")) == (1, 2, 1)
        assert check("--repair")[0] == 0
        assert sorted(path.name for path in spool.iterdir()) == ["0000000002", "parts"]

    def test_without_the_storage_nothing_is_changed(self, make):
        make("photos")
        shutil.rmtree(storage.root() / "datasets")
        with pytest.raises(CommandError, match="mounted"):
            check("--repair")
        assert Dataset.objects.get().state == "ready"
