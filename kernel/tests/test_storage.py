"""Removal of folders below the storage root."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel import storage

USER = 1_899_999_999


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


def test_a_folder_without_any_permission_is_removed(folder):
    """By a user who is not root, to whom permissions mean nothing."""
    shut = folder / "mine" / "shut"
    (shut / "inner").mkdir(parents=True)
    (shut / "inner" / "file").write_text("x")
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
    (shut / "inner").chmod(0)
    shut.chmod(0)
    child = os.fork()
    if not child:
        try:
            os.chdir(folder)  # the folders above are closed to others
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(USER)
                os.setuid(USER)
            storage.remove(Path("mine"))
        finally:
            os._exit(os.path.exists("mine"))
    assert os.waitpid(child, 0)[1] == 0
    assert not (folder / "mine").exists()
