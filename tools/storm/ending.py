"""The end of a storm: what is in flight comes to rest, everything is deleted, and nothing may be left."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

import psycopg

from kernel import sockets

from .client import Caller
from .site import Site

UNSTEADY = """
SELECT 'dataset', u.username, o.name, o.state FROM dataset o JOIN "user" u ON u.id = o.user_id
 WHERE o.state NOT IN ('ready', 'error')
UNION ALL SELECT 'job', u.username, o.name, o.state || ' ' || o.run_name FROM job o JOIN "user" u ON u.id = o.user_id
 WHERE o.state NOT IN ('finished', 'error') OR o.run_name <> '' OR o.reserved
UNION ALL SELECT 'model', u.username, o.name, o.state FROM model o JOIN "user" u ON u.id = o.user_id
 WHERE o.state NOT IN ('ready', 'error')
UNION ALL SELECT 'application', u.username, o.name, o.state FROM app_group o JOIN "user" u ON u.id = o.user_id
 WHERE o.state NOT IN ('ready', 'error')
UNION ALL SELECT 'sweep', u.username, o.name, o.state FROM sweep o JOIN "user" u ON u.id = o.user_id
 WHERE o.state NOT IN ('finished', 'error')
"""
HISTORY = "SELECT kind, object_id, owner, name, source, target FROM state_change ORDER BY id"
RESERVED = """
SELECT id, applier, owner, state FROM resource_request
 WHERE request_type = 'request' AND state IN ('tried', 'confirmed')
"""
OBJECTS = (("apps", "app_group"), ("sweeps", "sweep"), ("models", "model"), ("jobs", "job"), ("datasets", "dataset"))


class Ending:
    """Brings a site to rest; `differences` has what did not."""

    def __init__(self, site: Site, caller_for: Callable[[str], Caller], patience_s: float):
        self.site, self.caller_for, self.patience_s = site, caller_for, patience_s
        self.differences: list[str] = []

    def rows(self, query: str) -> list[tuple]:
        password = quote((self.site.root / "database-password").read_text().strip())
        folder = quote(str(sockets.folder(self.site.root)), safe="")
        address = f"postgresql://platform:{password}@{folder}:{self.site.base + 11}/mlp"
        with psycopg.connect(address, connect_timeout=30) as link:
            return link.execute(query).fetchall()

    def settle(self) -> None:
        """Wait until every object is in a steady state; an upload that nobody goes on with is ended first."""
        for kind, user, name, state in self.rows(UNSTEADY):
            if kind == "dataset" and state == "creating":
                report = {"state": "error", "progress": 0}
                self.caller_for(user).call("PUT", f"users/{user}/datasets/{name}:heartbeat", report)
        self.wait(lambda: [f"stuck: {' '.join(row)}" for row in self.rows(UNSTEADY)])

    def wait(self, wrong: Callable[[], list[str]]) -> None:
        """Wait until nothing is wrong any more; what still is after the patience is a difference."""
        end = time.monotonic() + self.patience_s
        while (words := wrong()) and time.monotonic() < end:
            time.sleep(1)
        self.differences += words

    def check_books(self) -> None:
        """Compare the accounting and the datasets' files with the rows, by the platform's own commands."""
        for command in (("books",), ("datasets", "check")):
            done = self.site.manage(*command)
            if done.returncode:
                self.differences.append(f"manage.py {' '.join(command)}: {done.stdout}{done.stderr}")

    def delete_everything(self) -> None:
        """Delete all objects of all users and wait until they, their files and their reservations are gone."""
        for path, table in OBJECTS:
            for user, name in self.rows(f'SELECT u.username, o.name FROM {table} o JOIN "user" u ON u.id = o.user_id'):
                admin = self.caller_for("admin")
                url = f"users/{user}/{path}/{name}"
                answer = admin.until_known(lambda admin=admin, url=url: admin.call("DELETE", url))
                if not answer.ok and b"missing" not in answer.body:
                    self.differences.append(f"DELETE {url}: {answer}")
            self.wait(lambda table=table: [f"not gone: {row}" for row in self.rows(f"SELECT name, state FROM {table}")])
        self.wait(lambda: [f"still reserved: {row}" for row in self.rows(RESERVED)])
        tenant = self.caller_for("admin").call("GET", "tenants/default").json()
        in_use = {name: value for name, value in tenant.items() if name.endswith("_inuse") and value}
        if in_use:
            self.differences.append(f"in use although nothing is left: {in_use}")
        for folder in ("jobs", "models", "apps"):
            self.differences += [f"{path} is left" for path in (self.site.root / folder).glob("*/*")]
        for path in (self.site.root / "datasets").glob("*/*"):
            if path.name != ".home" and path.parent.name != ".spool":
                self.differences.append(f"{path} is left")

    def stop(self) -> None:
        """Stop the platform as `make down` does, and list what it leaves."""
        words = self.site.down()
        if words:
            self.differences.append(f"make down: {words}")
        self.differences += self.site.remains()
