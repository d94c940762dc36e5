"""An upgrade keeps the jobs, and nobody goes back by accident: the stop without runs, `make upgrade`, the refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from kernel.tests.nats_tools import until
from mlp.tests.servers import begin
from supervision.tests.running import START_S, Platform
from supervision.tests.visitor import ADMIN_PASSWORD, Visitor

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

FUTURE = "jobs.9999_of_the_future"
COUNTING = b"""
import pathlib, time
for number in range(100_000):
    pathlib.Path("count.txt").write_text(str(number))
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A platform with a job that counts, and an application."""
    platform = Platform(tmp_path_factory.mktemp("kept") / "root", MLP_ADMIN_PASSWORD=ADMIN_PASSWORD)
    platform.start()
    visitor = Visitor(platform)
    visitor.must("put", f"{visitor.gateway}/data/alice/.home/count.py", data=COUNTING)
    visitor.must("post", f"{visitor.api}/jobs", json={"name": "count", "entry": "count.py", "cpu": 0.1, "ram": 100})
    visitor.reaches("jobs/count", "running")
    until(lambda: counted(platform) > 0, START_S)
    yield platform, visitor
    platform.call("--down")
    platform.kill(*platform.everything())


def counted(platform: Platform) -> int:
    try:
        return int((platform.root / "jobs" / "alice" / "count" / "count.txt").read_text() or 0)
    except FileNotFoundError:
        return 0


def link(platform: Platform) -> psycopg.Connection:
    password = (platform.root / "database-password").read_text().strip()
    folder = platform.root / "run" / "sockets"
    return psycopg.connect(
        host=str(folder), port=platform.base + 11, user="platform", password=password, dbname="mlp", autocommit=True
    )


def test_a_stop_that_keeps_runs_ends_all_servers_and_no_job(used):
    platform, visitor = used
    stopped = platform.call("--down", "--keep-runs")
    assert (stopped.returncode, "go on" in stopped.stdout) == (0, True), stopped.stdout
    platform.process.wait(START_S)
    assert platform.leaders() == {part: [] for part in platform.leaders()}
    before = counted(platform)
    until(lambda: counted(platform) > before + 5, START_S)
    platform.start()
    visitor.reaches("jobs/count", "running")
    until(lambda: visitor.infer() == 200, START_S)
    until(lambda: counted(platform) > before + 10, START_S)
    steps = visitor.call("get", f"{visitor.api}/jobs/count").json()
    assert steps["reason"] == ""


def test_keeping_runs_is_part_of_a_stop_only(used):
    platform, _ = used
    refused = platform.call("--keep-runs")
    assert refused.returncode == 1
    assert "goes with --down" in refused.stderr


def test_a_root_of_a_newer_release_is_refused_before_anything_starts(used):
    platform, visitor = used
    platform.call("--down", "--keep-runs")
    platform.process.wait(START_S)
    note = platform.root / "release.json"
    kept = note.read_text()
    assert all("." in name for name in json.loads(kept)["migrations"])
    note.write_text(json.dumps({"migrations": [*json.loads(kept)["migrations"], FUTURE]}))
    logs = {path: path.stat().st_mtime_ns for path in (platform.root / "log").rglob("*.log")}
    refused = platform.call()
    assert refused.returncode == 1
    assert f"was used by a newer release, whose migrations this one does not know ({FUTURE})" in refused.stdout
    assert logs == {path: path.stat().st_mtime_ns for path in (platform.root / "log").rglob("*.log")}
    note.write_text(kept)
    platform.start()
    visitor.reaches("jobs/count", "running")


def test_a_database_of_a_newer_release_is_refused_before_it_is_migrated(used):
    """A root from elsewhere has no release.json."""
    platform, visitor = used
    with link(platform) as database:
        database.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', %s, now())", [FUTURE[5:]])
        database.execute("DELETE FROM django_migrations WHERE app = 'automation'")
        count = database.execute("SELECT count(*) FROM django_migrations").fetchone()
    platform.call("--down", "--keep-runs")
    platform.process.wait(START_S)
    (platform.root / "release.json").unlink()
    refused = platform.call()
    assert refused.returncode == 1
    assert "was used by a newer release" in refused.stdout
    assert "Traceback" not in refused.stdout
    assert not (platform.root / "release.json").exists()
    mend(platform, count)
    platform.start()
    visitor.reaches("jobs/count", "running")


def mend(platform: Platform, count: tuple) -> None:
    """Take back what the test has written, while only the servers run."""
    program = f"""
from django.core.management import call_command
from django.db import connection
from supervision import servers_only
with servers_only.running():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations")
        assert cursor.fetchone() == {count!r}, "it was migrated"
        cursor.execute("DELETE FROM django_migrations WHERE name = '{FUTURE[5:]}'")
    call_command("migrate", "automation", fake=True, verbosity=0)
    connection.close()
"""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "shell", "-v", "0", "-c", program]
    done = subprocess.run(command, env=platform.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- make upgrade ----------------------------------------------------------------------------------------------------
def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Tests", "-c", "user.email=tests@localhost"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout of what is here, with these environments, whose upstream is one commit ahead."""
    if not shutil.which("git") or not (settings.BASE_DIR / ".git").exists():
        pytest.skip("this is no git checkout")
    folder = tmp_path_factory.mktemp("checkouts")
    upstream, here = folder / "upstream", folder / "here"
    left_out = shutil.ignore_patterns(".git", ".venv*", "test-artifacts", "var", "__pycache__")
    shutil.copytree(settings.BASE_DIR, upstream, ignore=left_out)
    git(folder, "init", "-q", "-b", "main", str(upstream))
    git(upstream, "add", "-A")
    git(upstream, "commit", "-q", "-m", "The old version")
    git(folder, "clone", "-q", str(upstream), str(here))
    (here / ".venv").symlink_to(Path(sys.prefix))
    (here / ".runs-venv").symlink_to(Path(settings.RUN_PYTHON).parents[1])
    (upstream / "NEW").write_text("the new version\n")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-q", "-m", "The new version")
    return here


def upgraded(platform: Platform, checkout: Path, *words: str) -> subprocess.Popen:
    """Run `make upgrade` like the foreground of a terminal, until the platform is ready or the command ends."""
    platform.output.unlink(missing_ok=True)
    command = ["make", "-C", str(checkout), "upgrade", *words]
    process = begin(command, platform.output, grace_s=60, env=platform.environment)
    until(
        lambda: process.poll() is not None or "Ready after" in platform.output.read_text(),
        START_S,
        platform.output.read_text,
    )
    return process


def test_make_upgrade_changes_the_code_and_keeps_the_jobs(used, checkout, tmp_path):
    platform, visitor = used
    before = counted(platform)
    platform.process = upgraded(platform, checkout, f"BACKUP={tmp_path / 'backups'}")
    assert platform.process.poll() is None, platform.output.read_text()
    assert (checkout / "NEW").exists()
    assert len(list((tmp_path / "backups" / "backups").iterdir())) == 1
    visitor.reaches("jobs/count", "running")
    until(lambda: counted(platform) > before, START_S)
    assert str(checkout / "manage.py") in (platform.root / "run" / "parts" / "reconcile" / "launch.json").read_text()
    assert platform.wait_healthy()["status"] == "ok"


@pytest.mark.parametrize("reason", ["no such version", "changes", "backup"])
def test_an_upgrade_that_cannot_begin_changes_nothing(used, checkout, tmp_path, reason):
    platform, _ = used
    leaders = platform.leaders()
    words = {"no such version": "TO=v99", "backup": "BACKUP=ftp://nowhere", "changes": "TO=main"}[reason]
    if reason == "changes":
        (checkout / "README.md").write_text("mine")
    try:
        output, platform.output = platform.output, tmp_path / "out"
        process = upgraded(platform, checkout, words)
        assert process.wait(START_S) != 0
        assert "nothing was changed" in platform.output.read_text()
        assert platform.leaders() == leaders
    finally:
        platform.output = output
        git(checkout, "checkout", "-q", "README.md")
