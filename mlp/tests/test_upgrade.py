"""A storage root and database of an older release under this one: nothing is lost, and new work runs.

Each folder below `upgrade` is a release: `database.sql.xz` (pg_dump of its database), `root.tar.xz` (its storage root,
without the embedded servers' own files), `release.json` (what is in them) and the token of a user.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import subprocess
import tarfile
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from django.conf import global_settings
from django.core.management import call_command

from accounts import lifecycle as accounts
from accounts.models import User
from conftest import Api
from kernel.tests.nats_tools import until
from mlp.tests import template
from mlp.tests.servers import begin
from mlp.tests.tiers import later
from supervision.tests.running import START_S, Platform

pytestmark = pytest.mark.e2e

MIGRATED = "migrations, administrator"  # in what `up` says of its progress
WAITING = "SELECT count(*) FROM pg_locks WHERE relation = 'django_migrations'::regclass AND NOT granted"
RELEASES = sorted(path.parent for path in Path(__file__).with_name("upgrade").glob("*/release.json"))
ROWS = re.compile(r"^(COPY [^\n]* FROM stdin;)\n(.*?)^\\\.\n", re.DOTALL | re.MULTILINE)
# Ends with 1 when a migration is missing, as `migrate --check` does.
TOKENS = """
from django.core.management import call_command
from accounts import lifecycle, models
call_command("migrate", check_unapplied=True, verbosity=0)
print({user.username: lifecycle.token_of(user) for user in models.User.objects.all()})
"""
HISTORY = "SELECT kind, name, array_agg(transition ORDER BY id) FROM state_change WHERE owner = %s GROUP BY kind, name"
SCRIPT = "import pathlib; print('a new job reads', pathlib.Path('/datasets/old.data/a.txt').read_text())"


class Upgraded(Platform):
    """This release on the data of the older one."""

    def __init__(self, release: Path, folder: Path):
        self.what = json.loads((release / "release.json").read_text())
        self.token = (release / f"{self.what['user']}.token").read_text().strip()
        self.database = f"upgrade_{release.name}"
        self.url = restored(release, self.database)
        super().__init__(folder / "root", DATABASE_URL=self.url, MLP_SECRET_KEY=self.what["signed_with"])
        with tarfile.open(release / "root.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python 3.11.2 has no filters yet
            archive.extractall(self.root)

    def killed_when_it_says(self, words: str) -> None:
        """Kill everything in the middle of the upgrade; the next start continues it."""
        process = self.begun()
        self.wait(process, lambda: words in self.output.read_text())
        self.kill_everything(process)

    def killed_in_a_migration(self, number: int) -> None:
        """Kill everything while a migration is applied, once that many are recorded as applied."""
        process = self.begun()
        with psycopg.connect(self.url, autocommit=True) as link:
            self.wait(process, lambda: link.execute("SELECT count(*) FROM django_migrations").fetchone()[0] >= number)
            with link.transaction():
                link.execute("LOCK TABLE django_migrations IN SHARE MODE")  # the next one cannot be recorded
                self.wait(process, lambda: link.execute(WAITING).fetchone()[0])
                self.kill_everything(process)

    def begun(self) -> subprocess.Popen:
        self.output.unlink(missing_ok=True)
        return begin(self.command(), self.output, env=self.environment)

    def wait(self, process: subprocess.Popen, moment: Callable[[], object]) -> None:
        until(lambda: moment() or process.poll() is not None, START_S, self.output.read_text)
        assert process.poll() is None, self.output.read_text()

    def kill_everything(self, process: subprocess.Popen) -> None:
        process.kill()
        process.wait()
        while pids := self.everything():
            self.kill(*pids)

    @cached_property
    def tokens(self) -> dict[str, str]:
        """The users' tokens, derived from the secret key; reading them checks that no migration is missing."""
        return json.loads(self.must("shell", "-v", "0", "-c", TOKENS).replace("'", '"'))

    def ask(self, path: str, token: str = "", method: str = "get", **options) -> requests.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        answer = requests.request(method, f"http://127.0.0.1:{self.base + 1}{path}", headers=headers, **options)
        assert answer.ok, (path, answer.status_code, answer.text)
        return answer

    def own(self, path: str, **options) -> requests.Response:
        """Call REST for one of the user's objects."""
        return self.ask(f"/api/v1/users/{self.what['user']}/{path}", **options)

    def log_in(self) -> requests.Session:
        """Return a browser in which the user has logged in with the old password."""
        browser = requests.Session()
        address = f"http://127.0.0.1:{self.base + 1}/regist_login"
        browser.get(address)
        form = {"action": "login", "username": self.what["user"], "password": self.what["password"]}
        form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
        assert browser.post(address, form, allow_redirects=False).status_code == 302
        return browser

    def histories(self) -> dict[tuple[str, str], list[str]]:
        return histories(self.url, self.what["user"])

    def infer(self, application: str, model: str, values: list[float]) -> requests.Response:
        """Send one row to an application through the application gateway."""
        address = f"http://127.0.0.1:{self.base + 2}/{self.what['user']}/{application}/v2/models/{model}/infer"
        tensor = {"name": "x", "shape": [1, len(values)], "datatype": "FP32", "data": values}
        return requests.post(address, json={"inputs": [tensor]}, headers={"Authorization": f"Bearer {self.token}"})


def statement(text: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as link:
        link.execute(text)


def restored(release: Path, database: str) -> str:
    """Make a database of the release's dump; return its address."""
    statement(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
    statement(f"CREATE DATABASE {database} TEMPLATE template0")
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}").geturl()
    load(lzma.decompress((release / "database.sql.xz").read_bytes()).decode(), url)
    return url


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


def histories(url: str, username: str) -> dict[tuple[str, str], list[str]]:
    """Return kind and name of the user's objects -> their transitions, oldest first."""
    with psycopg.connect(url) as link:
        return {(kind, name): steps for kind, name, steps in link.execute(HISTORY, [username])}


def killed_on_the_way(platform: Upgraded) -> None:
    """Kill the start at each of its steps, and within migrations; each start continues the one before."""
    with psycopg.connect(platform.url) as link:
        recorded = link.execute("SELECT count(*) FROM django_migrations").fetchone()[0]
    platform.killed_when_it_says("ML platform on")
    platform.killed_when_it_says(" ready")
    for number in (recorded, recorded + 1, recorded + 20):
        platform.killed_in_a_migration(number)
    platform.killed_when_it_says(MIGRATED)


CASES = [
    later((release, killed), id=release.name + killed * " killed") for release in RELEASES for killed in (False, True)
]


@pytest.fixture(scope="module", params=CASES)
def upgraded(request, tmp_path_factory):
    release, killed = request.param
    platform = Upgraded(release, tmp_path_factory.mktemp("upgraded"))
    if killed:
        killed_on_the_way(platform)
    platform.start()
    yield platform
    platform.stop()
    statement(f"DROP DATABASE {platform.database} WITH (FORCE)")


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_the_database_is_migrated_and_its_rows_are_kept(release, django_db_setup, django_db_blocker, settings):
    """The quick test: the database alone, without a platform on it."""
    what = json.loads((release / "release.json").read_text())
    settings.SECRET_KEY, settings.PASSWORD_HASHERS = what["signed_with"], global_settings.PASSWORD_HASHERS
    database = f"migrated_{release.name}_{os.getpid()}"
    try:
        url = restored(release, database)
        with django_db_blocker.unblock(), template.using(database):
            call_command("migrate", interactive=False, verbosity=0)
            call_command("migrate", check_unapplied=True, verbosity=0)
            assert_rows_are_kept(what, (release / f"{what['user']}.token").read_text().strip())
        transitions_of = histories(url, what["user"])
    finally:
        statement(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
    for name, row in what["models"].items():
        assert transitions_of["model", name] == row["history"]
    for name, transitions in what["deleted applications"].items():
        assert transitions_of["application", name] == transitions


def assert_rows_are_kept(what: dict, token: str) -> None:
    """Look at the migrated database by REST."""
    user = User.objects.get(username=what["user"])
    assert user.check_password(what["password"])
    assert accounts.token_of(user) == token

    def ask(path: str, who: str = what["user"]) -> object:
        answer = Api(accounts.token_of(User.objects.get(username=who))).call("get", path)
        assert answer.status_code == 200, (path, answer.content)
        return answer.json()

    def own(kind: str) -> dict[str, dict]:
        return {row["name"]: row for row in ask(f"users/{what['user']}/{kind}")}

    assert own("datasets").keys() == what["datasets"].keys()
    jobs, models, applications = own("jobs"), own("models"), own("apps")
    assert {name: jobs[name]["state"] for name in what["jobs"]} == what["jobs"]
    assert {name: row["state"] for name, row in models.items()} == {
        name: row["state"] for name, row in what["models"].items()
    }
    for name, row in what["models"].items():
        assert {field: models[name][field] for field in row["fields"]} == row["fields"]
        assert models[name]["reason"].partition("\n")[0] == row["reason"]
    assert {name: row["model_name"] for name, row in applications.items()} == {
        name: row["model"] for name, row in what["applications"].items()
    }
    for path, (count, accuracy) in what["metrics"].items():
        owner, _, job = path.partition("/")
        rows = ask(f"users/{owner}/jobs/{job}/metrics", owner)
        assert (len(rows), {row["epoch"]: row["accuracy"] for row in rows}[count]) == (count, accuracy)
    serving = [version["version"] for version in ask("aiops/versions", "admin") if version["serving"]]
    assert serving == [what["serving"]]


def test_it_is_healthy_and_no_migration_is_missing(upgraded):
    assert upgraded.wait_healthy()["status"] == "ok"
    assert upgraded.what["user"] in upgraded.tokens


def test_the_old_password_is_still_valid(upgraded):
    assert upgraded.log_in().cookies["sessionid"]


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
    tokens = upgraded.tokens
    assert tokens[upgraded.what["user"]] == upgraded.token
    for path, (count, accuracy) in upgraded.what["metrics"].items():
        user, _, job = path.partition("/")
        rows = upgraded.ask(f"/api/v1/users/{user}/jobs/{job}/metrics", tokens[user]).json()
        assert (len(rows), {row["epoch"]: row["accuracy"] for row in rows}[count]) == (count, accuracy)
    versions = upgraded.ask("/api/v1/aiops/versions", tokens["admin"]).json()
    assert [version["version"] for version in versions if version["serving"]] == [upgraded.what["serving"]]


def test_models_are_kept_with_their_files_lineage_and_history(upgraded):
    models, histories = {row["name"]: row for row in upgraded.own("models").json()}, upgraded.histories()
    expected = upgraded.what["models"]
    assert {name: row["state"] for name, row in models.items()} == {
        name: row["state"] for name, row in expected.items()
    }
    for name, row in expected.items():
        assert {field: models[name][field] for field in row["fields"]} == row["fields"]
        assert models[name]["reason"].partition("\n")[0] == row["reason"]
        assert histories["model", name] == row["history"]
        if row["state"] == "ready":
            file = upgraded.own(f"models/{name}/download").content
            assert hashlib.sha256(file).hexdigest() == row["sha256"]


def test_applications_are_ready_again_and_answer(upgraded):
    """They ended with the old release, as at any stop, which is no failure of theirs."""
    for name, row in upgraded.what["applications"].items():
        infer = partial(upgraded.infer, name, row["model"], row["input"])
        until(lambda infer=infer: infer().ok, 120, lambda name=name: upgraded.own(f"apps/{name}").text)
        assert infer().json()["outputs"][0]["data"] == row["output"]
        application = upgraded.own(f"apps/{name}").json()
        assert (application["state"], application["failures"]) == ("ready", 0)
        assert upgraded.histories()["application", name] == [*row["history"], "renew", "up"]


def test_deleted_applications_are_in_the_history_only(upgraded):
    assert {row["name"] for row in upgraded.own("apps").json()} == set(upgraded.what["applications"])
    histories = upgraded.histories()
    for name, transitions in upgraded.what["deleted applications"].items():
        assert histories["application", name] == transitions


def test_pages_of_old_models_and_applications_open(upgraded):
    browser = upgraded.log_in()
    names = [f"models/{name}" for name in upgraded.what["models"]] + [
        f"apps/{name}" for name in upgraded.what["applications"]
    ]
    for path in names:
        page = browser.get(f"http://127.0.0.1:{upgraded.base + 1}/{path}")
        assert page.ok, (path, page.status_code)
        assert path.partition("/")[2] in page.text


def test_a_new_job_runs_on_the_old_data_and_the_accounting_is_consistent(upgraded):
    upgraded.ask(f"/data/{upgraded.what['user']}/.home/new.py", method="put", data=SCRIPT)
    upgraded.own("jobs", method="post", json={"name": "newjob", "entry": "new.py", "datasets": ["old.data"]})
    job = partial(upgraded.own, "jobs/newjob")
    until(lambda: job().json()["state"] == "finished", 120, lambda: job().text)
    assert upgraded.own("jobs/newjob/log").text == "a new job reads hello bytes\n"
    assert "is consistent" in upgraded.must("books")
