"""Removal of folders below the storage root."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import storage


@pytest.fixture
def folder():
    path = storage.root() / "removal"
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_several_may_remove_one_folder_at_the_same_time(folder):
    """As the loop that repairs and the task that cleans up after a run do."""
    for _ in range(10):
        for number in range(30):
            (folder / str(number) / "inner").mkdir(parents=True)
        with ThreadPoolExecutor(4) as pool:
            for removal in [pool.submit(storage.remove_tree, folder) for _ in range(4)]:
                removal.result()
        assert not folder.exists()


def test_a_folder_without_any_permission_is_removed(folder, monkeypatch):
    (folder / "shut" / "inner").mkdir(parents=True)
    (folder / "shut").chmod(0)
    opened, real = [], os.open

    def refusing(path, *args, **options):  # as for a user other than root
        if os.fspath(path) == "shut" and not opened:
            opened.append(path)
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    storage.remove_tree(folder)
    assert opened
    assert not folder.exists()
