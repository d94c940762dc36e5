"""A backup of a running platform restores, and comes back on an empty root.

test_whole tries the same in a storm and under kills.
"""

from __future__ import annotations

import pytest

from supervision.tests.visitor import ADMIN_PASSWORD, USER, Visitor

from .test_whole import Kept

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]


def test_a_backup_of_a_running_platform_restores_completely(shared, tmp_path):
    """Also the check of a backup restores it: everything, to a folder and a database beside."""
    platform, place = shared.running(), str(tmp_path / "backups")
    said = platform.must("backup", place) + platform.must("backup", "verify", place)
    assert "restores completely" in said
    assert "the books add up" in said
    (platform.root / "run" / "backup.json").unlink()


@pytest.mark.long
def test_a_backup_of_a_running_platform_comes_back_on_an_empty_root(tmp_path):
    platform, place = Kept(tmp_path / "root", MLP_ADMIN_PASSWORD=ADMIN_PASSWORD), str(tmp_path / "backups")
    platform.start()
    visitor = Visitor(platform)
    file = f"{visitor.gateway}/data/{USER}/.home/kept.txt"
    assert visitor.call("put", file, data=b"before the backup").status_code == 201
    platform.must("backup", place)
    assert visitor.call("put", file, data=b"after it").status_code == 204
    said = platform.must("backup", "verify", place)
    assert "restores completely" in said
    assert "the books add up" in said
    platform.stop()
    back = platform.elsewhere(tmp_path / "back")
    assert "restored" in back.must("restore", place)
    assert "is not empty" in back.refuses("restore", place)
    assert (back.root / "datasets" / USER / ".home" / "kept.txt").read_bytes() == b"before the backup"
    back.start()
    try:
        assert visitor.logged_in("/regist_login", USER, "correct horse battery").cookies["sessionid"]
        assert "is consistent" in back.must("books")
    finally:
        back.stop()
