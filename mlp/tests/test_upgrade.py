"""A storage root and database of an older release under this one: nothing is lost, and new work runs.

Each folder below `upgrade` is a release: `database.sql.xz` (pg_dump of its database), `root.tar.xz` (its storage root,
without the embedded servers' own files), `release.json` (what is in them) and the token of a user.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from django.conf import settings

from kernel.tests.nats_tools import until
from supervision.tests.running import Platform

pytestmark = pytest.mark.e2e

RELEASES = sorted(path.parent for path in Path(__file__).with_name("upgrade").glob("*/release.json"))
ROWS = re.compile(r"^(COPY [^\n]* FROM stdin;)\n(.*?)^\\\.\n", re.DOTALL | re.MULTILINE)
TOKENS = """
from accounts import lifecycle, models
print({user.username: lifecycle.token_of(user) for user in models.User.objects.all()})
"""
SCRIPT = "import pathlib; print('a new job reads', pathlib.Path('/datasets/old.data/a.txt').read_text())"


class Upgraded(Platform):
    """This release on the data of the older one."""

    def __init__(self, release: Path, folder: Path):
        self.what = json.loads((release / "release.json").read_text())
        self.token = (release / f"{self.what['user']}.token").read_text().strip()
        self.database = f"upgrade_{release.name}"
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{self.database}").geturl()
        super().__init__(folder / "root", DATABASE_URL=url, MLP_SECRET_KEY=self.what["signed_with"])
        self.statement(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")
        self.statement(f"CREATE DATABASE {self.database} TEMPLATE template0")
        load(lzma.decompress((release / "database.sql.xz").read_bytes()).decode(), url)
        with tarfile.open(release / "root.tar.xz") as archive:
            archive.extractall(self.root, filter="tar")

    def statement(self, text: str) -> None:
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as link:
            link.execute(text)

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def ask(self, path: str, token: str = "", method: str = "get", **options) -> requests.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        answer = requests.request(method, f"http://127.0.0.1:{self.base + 1}{path}", headers=headers, **options)
        assert answer.ok, (path, answer.status_code, answer.text)
        return answer

    def own(self, path: str, **options) -> requests.Response:
        """Call REST for one of the user's objects."""
        return self.ask(f"/api/v1/users/{self.what['user']}/{path}", **options)


def load(dump: str, url: str) -> None:
    """Restore a dump, as psql does."""
    with psycopg.connect(url) as link:
        end = 0
        for rows in ROWS.finditer(dump):
            link.execute(dump[end : rows.start()])
            with link.cursor().copy(rows[1]) as copy:
                copy.write(rows[2])
            end = rows.end()
        link.execute(dump[end:])


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.name)
def upgraded(request, tmp_path_factory):
    platform = Upgraded(request.param, tmp_path_factory.mktemp("upgraded"))
    platform.start()
    yield platform
    platform.stop()
    platform.statement(f"DROP DATABASE {platform.database} WITH (FORCE)")


def test_it_is_healthy_and_no_migration_is_missing(upgraded):
    assert upgraded.wait_healthy()["status"] == "ok"
    upgraded.manage("migrate", "--check")


def test_the_old_password_is_still_valid(upgraded):
    browser = requests.Session()
    address = f"http://127.0.0.1:{upgraded.base + 1}/regist_login"
    browser.get(address)
    form = {"action": "login", "username": upgraded.what["user"], "password": upgraded.what["password"]}
    form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
    assert browser.post(address, form, allow_redirects=False).status_code == 302
    assert browser.cookies["sessionid"]


def test_datasets_and_their_files_are_kept(upgraded):
    """An unfinished upload ends in an error with a reason."""
    for name, state in upgraded.what["datasets"].items():
        dataset = partial(upgraded.own, f"datasets/{name}")
        until(lambda ask=dataset, state=state: ask().json()["state"] == state, 60, lambda ask=dataset: ask().text)
        assert bool(dataset().json()["reason"]) == (state == "error")
    for path, text in upgraded.what["files"].items():
        assert upgraded.ask(f"/data/{upgraded.what['user']}/{path}").text == text


def test_jobs_with_logs_and_output_are_kept(upgraded):
    for name, state in upgraded.what["jobs"].items():
        assert upgraded.own(f"jobs/{name}").json()["state"] == state
    for name, text in upgraded.what["logs"].items():
        assert upgraded.own(f"jobs/{name}/log").text == text
    for path, text in upgraded.what["artifacts"].items():
        job, _, file = path.partition("/")
        assert upgraded.own(f"jobs/{job}/artifacts/{file}").text == text


def test_runs_that_the_crash_ended_have_a_reason(upgraded):
    for name, last_words in upgraded.what["died"].items():
        job = partial(upgraded.own, f"jobs/{name}")
        until(lambda job=job: job().json()["state"] == "error", 60, lambda job=job: job().text)
        assert job().json()["reason"]
        assert last_words in upgraded.own(f"jobs/{name}/log").text


def test_metrics_and_the_log_model_are_kept(upgraded):
    tokens = json.loads(upgraded.manage("shell", "-v", "0", "-c", TOKENS).replace("'", '"'))
    assert tokens[upgraded.what["user"]] == upgraded.token
    for path, (count, accuracy) in upgraded.what["metrics"].items():
        user, _, job = path.partition("/")
        rows = upgraded.ask(f"/api/v1/users/{user}/jobs/{job}/metrics", tokens[user]).json()
        assert (len(rows), {row["epoch"]: row["accuracy"] for row in rows}[count]) == (count, accuracy)
    versions = upgraded.ask("/api/v1/aiops/versions", tokens["admin"]).json()
    assert [version["version"] for version in versions if version["serving"]] == [upgraded.what["serving"]]


def test_a_new_job_runs_on_the_old_data_and_the_accounting_is_consistent(upgraded):
    upgraded.ask(f"/data/{upgraded.what['user']}/.home/new.py", method="put", data=SCRIPT)
    upgraded.own("jobs", method="post", json={"name": "newjob", "entry": "new.py", "datasets": ["old.data"]})
    job = partial(upgraded.own, "jobs/newjob")
    until(lambda: job().json()["state"] == "finished", 120, lambda: job().text)
    assert upgraded.own("jobs/newjob/log").text == "a new job reads hello bytes\n"
    assert "is consistent" in upgraded.manage("books")
