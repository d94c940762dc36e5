"""A platform in use is backed up during a storm of writes, with kills, and comes back on an empty root.

Also: S3, encryption and the refusals, with a second platform that is stopped.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from copy import copy
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings

from kernel.tests.nats_tools import until
from mlp.tests.moments import Moment, kill_at
from operations.backup.places import Folder
from operations.backup.repository import Repository
from supervision.tests.running import START_S, Platform
from supervision.tests.visitor import ADMIN_PASSWORD, USER, Hammer, Visitor

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

WRITES = ("create job", "create dataset", "upload small", "upload large", "metrics", "log lines by loki")
STORES, DUMPS = ("os.rename", "/objects/"), ("subprocess.Popen", "pg_dump")
KILLS = {  # of backups: they leave none, but for the last one
    "it writes to the destination": [("open", "/drafts/")],
    "it has stored a file": [STORES, STORES],
    "it has chosen the moment": [DUMPS],
    "it stores what has changed": [DUMPS, STORES],
    "all but its record is stored": [("os.rename", "/backups/backups/")],
    "it is recorded": [("open", "/.backup.json.")],
}
DATABASE = "restored_elsewhere"
LARGE = 3 << 20  # bytes of a file that does not change
RESTORE_KILLS = {
    "it has written some files": [("os.rename", "/.restore/drafts/")] * 5,
    "it creates the database": [("subprocess.Popen", "/initdb'")],
    "it loads the dump": [("subprocess.Popen", "pg_restore")],
    "the database is filled": [("open", "/.restore/.report.json.")],
    "all but its mark is done": [("os.remove", "/restore.json'")],
}


class Timed(set):
    """A set that knows when each member was added: what was acknowledged, and when."""

    def __init__(self, *values):
        super().__init__(*values)
        self.times = {}

    def add(self, value) -> None:
        super().add(value)
        self.times.setdefault(value, time.time())

    def until(self, moment: float) -> set:
        """Return what was added before, and what was there from the beginning."""
        return {value for value in self if self.times.get(value, 0) < moment}


class Kept(Platform):
    """A platform that is backed up, and comes back elsewhere."""

    def refuses(self, *words: str, **environment: str) -> str:
        done = self.manage(*words, **environment)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def killed(self, moment: Moment, *words: str) -> None:
        """Run a command, which is killed at that moment."""
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *words]
        kill_at(moment, command, self.root.with_name("killed.out"), self.environment)

    def elsewhere(self, root: Path) -> Kept:
        """Return a platform with the same settings on another root."""
        other = copy(self)
        other.root, other.output, other.process = root, root.with_name(root.name + ".out"), None
        other.environment = self.environment | {"MLP_ROOT": str(root)}
        return other


def list_of(platform: Kept, place: Path) -> list[dict]:
    return json.loads(platform.must("backup", "list", str(place), "--json"))


@pytest.fixture(scope="module")
def stormed(tmp_path_factory):
    """Return a platform that was backed up in a storm, its user, the backups, and what was acknowledged before."""
    folder = tmp_path_factory.mktemp("kept")
    platform, place = Kept(folder / "root", MLP_ADMIN_PASSWORD=ADMIN_PASSWORD), folder / "backups"
    platform.start()
    visitor = Visitor(platform)
    visitor.uploaded, visitor.datasets, visitor.epochs = Timed(), Timed(), Timed()
    kinds = visitor.kinds()
    visitor.must("put", f"{visitor.gateway}/data/{USER}/.home/large.bin", data=random.Random(1).randbytes(LARGE))
    with Hammer({name: kinds[name] for name in WRITES}) as hammer:
        platform.must("backup", str(place))
        for moment in KILLS.values():
            platform.killed(moment, "backup", str(place))
        platform.must("backup", str(place))
    assert 200 in hammer.statuses["metrics"]
    moment = datetime.fromisoformat(list_of(platform, place)[-1]["moment"]).timestamp()
    expected = copy(visitor)
    expected.uploaded, expected.datasets = visitor.uploaded.until(moment), visitor.datasets.until(moment)
    expected.epochs = visitor.epochs.until(moment)
    assert len(expected.epochs) < len(visitor.epochs)  # the moment was in the middle of the storm
    yield platform, expected, place
    if platform.process.poll() is None:
        platform.stop()


def test_the_backup_of_the_storm_restores_to_books_that_add_up(stormed):
    platform, _, place = stormed
    said = platform.must("backup", "verify", str(place))
    assert "restores completely" in said
    assert "the books add up" in said


def test_kills_leave_no_half_backup_and_the_next_one_adds_little(stormed):
    platform, _, place = stormed
    backups = list_of(platform, place)
    assert len(backups) == 3  # and the last of those that were killed
    assert [backup["moment"] for backup in backups] == sorted(backup["moment"] for backup in backups)
    platform.must("backup", str(place))
    last = list_of(platform, place)[-1]
    assert last["added"] < LARGE / 5 < LARGE < backups[0]["added"]
    note = json.loads((platform.root / "run" / "backup.json").read_text())
    assert note == {"completed": last["completed"], "bytes": last["size"]}
    assert datetime.fromisoformat(note["completed"]).tzinfo is not None
    assert not (platform.root / "run" / "backup").exists()


def test_an_encrypted_backup_in_a_bucket_restores(stormed, s3):
    platform, _, _ = stormed
    place, environment = "s3://kept/platform", {**s3, "MLP_BACKUP_PASSPHRASE": "a passphrase"}
    assert "encrypted" in platform.must("backup", place, **environment)
    second = platform.must("backup", place, "--keep", "1", **environment)
    assert "removed 1 old backup," in second
    assert "restores completely" in platform.must("backup", "verify", place, **environment)
    assert "give its passphrase" in platform.refuses("backup", "list", place, **s3)
    wrong = {**environment, "MLP_BACKUP_PASSPHRASE": "another"}
    assert "is not that of these backups" in platform.refuses("backup", place, **wrong)


def test_a_restore_needs_an_empty_root_and_no_running_platform(stormed):
    platform, _, place = stormed
    assert "is not empty" in platform.refuses("restore", str(place))


def test_it_comes_back_on_an_empty_root_with_everything_that_was_acknowledged(stormed, tmp_path):
    """Killed several times on the way; meanwhile the root is not taken for a whole one."""
    platform, expected, place = stormed
    platform.stop()
    back = platform.elsewhere(tmp_path / "back")
    for name, moment in RESTORE_KILLS.items():
        back.killed(moment, "restore", str(place))
        refusal = back.call()
        assert refusal.returncode == 1, name
        assert "has not been restored completely" in refusal.stdout, name
    said = back.must("restore", str(place))
    assert f"was running and is lost; it gets that reason at the next start: job {USER}/wait" in said
    assert not (back.root / "restore.json").exists()
    assert "is not empty" in back.refuses("restore", str(place))
    back.start()
    try:
        expected.session = expected.logged_in("/regist_login", USER, "correct horse battery")
        assert expected.missing() == set()
        job = f"{expected.api}/jobs/wait"
        until(lambda: expected.call("get", job).json()["state"] == "error", START_S, lambda: "the lost job")
        assert "restored from its backup of" in expected.call("get", job).json()["reason"]
        expected.reaches("apps/calc", "ready")
        until(lambda: expected.infer() == 200, START_S)
        assert "is consistent" in back.must("books")
        report = json.loads(back.manage("doctor", "--json", "--thorough").stdout)
        assert [finding for finding in report["findings"] if finding["level"] == "problem"] == []
        assert {finding["about"] for finding in report["findings"] if finding["level"] == "ok"} >= {
            "platform",
            "books",
            "files",
        }
        assert expected.create_job() == 201
    finally:
        back.stop()


def test_it_comes_back_on_a_database_of_ones_own(stormed, tmp_path):
    """One that is not empty is left alone; a killed restore continues there, too."""
    platform, _, place = stormed
    if platform.process.poll() is None:
        platform.stop()
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{DATABASE}").geturl()
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as link:
        link.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        link.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
    back = platform.elsewhere(tmp_path / "back")
    back.environment |= {"DATABASE_URL": url}
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("CREATE TABLE mine (number int)")
        assert "has tables already (mine" in back.refuses("restore", str(place))
        link.execute("DROP TABLE mine")
    for name, moment in RESTORE_KILLS.items():
        if name != "it creates the database":
            back.killed(moment, "restore", str(place))
            assert (back.root / "restore.json").exists(), name
    assert "begun with other servers" in back.refuses("restore", str(place), DATABASE_URL="")
    assert "restored" in back.must("restore", str(place))
    assert "is consistent" in back.must("books")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as link:
        link.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def test_old_backups_are_removed_and_the_others_still_restore(stormed):
    """The platform is stopped by now: the backup starts the servers that it needs."""
    platform, _, place = stormed
    if platform.process.poll() is None:
        platform.stop()
    said = platform.must("backup", str(place), "--keep", "1")
    assert "removed" in said
    assert len(list_of(platform, place)) == 1
    assert "restores completely" in platform.must("backup", "verify", str(place))
    assert platform.everything() == []
    assert "at least 1" in platform.refuses("backup", "prune", str(place), "--keep", "0")


def test_a_damaged_backup_does_not_verify_and_does_not_restore(stormed, tmp_path):
    platform, _, place = stormed
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-a", str(place), str(copied)], check=True)
    for path in sorted((copied / "objects").rglob("*")):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert "damaged" in platform.refuses("backup", "verify", str(copied))
    back = platform.elsewhere(tmp_path / "back")
    assert "damaged" in back.refuses("restore", str(copied))
    assert "has not been restored completely" in back.call().stdout


def test_a_backup_of_a_newer_release_is_refused(stormed, tmp_path):
    platform, _, place = stormed
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-a", str(place), str(copied)], check=True)
    repository = Repository.open(Folder(copied))
    head = repository.head()
    head.facts["migrations"].append("jobs.9999_of_the_future")
    repository.save(head)
    back = platform.elsewhere(tmp_path / "back")
    assert "made by a newer release" in back.refuses("restore", str(copied))
    assert "jobs.9999_of_the_future" in platform.refuses("backup", "verify", str(copied))
    assert not (back.root / "restore.json").exists()
