"""Log intake during a database outage: acknowledged lines are stored, and each service retries.

It is really away: no new connection is let in, and those that there were are ended. A service's pause between two
tries is where it comes back.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from accounts import lifecycle as accounts
from aiops import logstore
from aiops.conftest import payload
from aiops.intake import accept
from aiops.models import FollowedFile, LogLine, ModelVersion, Template
from aiops.services import raw_logs as intake_service
from aiops.services import writeback
from aiops.services.follower import FollowerService
from aiops.services.housekeeping import Housekeeping
from aiops.wire import kv, payloads
from datasets.tests.live import AT_THE_DATABASE
from kernel.errors import Fault

pytestmark = pytest.mark.django_db(transaction=True)


class Database:
    """The tests' own database, which can be made unavailable, controlled from the database beside it."""

    def __init__(self):
        known = connection.get_connection_params()
        self.name = known["dbname"]
        given = {key: known[key] for key in ("user", "password", "host", "port") if known.get(key)}
        self.link = psycopg.connect(**given, dbname="postgres", autocommit=True)

    def go(self) -> None:
        self._let_in(False)
        self.end_connections()

    def come(self) -> None:
        self._let_in(True)

    def end_connections(self) -> None:
        """End those of this process; the data service that other tests of this worker share keeps its own."""
        self.link.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
            " AND application_name <> %s",
            [self.name, AT_THE_DATABASE],
        )

    def _let_in(self, word: bool) -> None:
        self.link.execute(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS {word}')


@pytest.fixture
def database():
    database = Database()
    yield database
    database.come()
    database.link.close()
    connection.close()
    # The thread in which `sync_to_async` runs lives as long as the process, and so would its dead connection.
    asyncio.run(sync_to_async(connections.close_all)())


@pytest.fixture
def comes_back(database, monkeypatch):
    """Make the database available again while the services pause; return how long they would have paused."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            database.come()

    for module in (intake_service, writeback):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    return pauses


ENDPOINTS = {
    "/v1/logs": {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "paid"}}]}]}]},
    "/loki/api/v1/push": {"streams": [{"stream": {"app": "web"}, "values": [["1700000000000000000", "paid"]]}]},
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_shipper_gets_503_with_retry_after_and_succeeds_later(client, alice, database, endpoint):
    headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}

    def push():
        return client.post(endpoint, json.dumps(ENDPOINTS[endpoint]), content_type="application/json", headers=headers)

    database.go()
    answer = push()
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    database.come()
    assert push().status_code in {200, 204}
    assert LogLine.objects.get().log == "paid"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_outage_between_authentication_and_storing(client, alice, database, endpoint, monkeypatch):
    real = accept.store

    def take(lines):
        database.go()
        return real(lines)

    headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
    monkeypatch.setattr(accept, "store", take)
    answer = client.post(endpoint, json.dumps(ENDPOINTS[endpoint]), content_type="application/json", headers=headers)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")


def test_every_query_fails_during_the_outage_and_succeeds_after_it(database):
    store = logstore.get()
    store.append([accept.line("one", id="id1", namespace="shop", deployment="web")])
    asked = [
        lambda: store.append([accept.line("two", id="id2")]),
        lambda: store.update_many([("id1", {"anomaly_level": "Normal"})]),
        lambda: store.search({}, 1),
        lambda: list(store.scan({})),
        lambda: store.count({}),
        store.aggregate_workloads,
        lambda: store.silent_workloads(("", "", ""), 0, 1, 2),
        lambda: store.histogram({}, 0, 1, 1),
        lambda: store.by_workload({}, 1),
        lambda: store.templates({}, 1),
        lambda: store.rejudge({"one": "Normal"}),
        lambda: store.put_templates([{"_id": "1"}]),
        lambda: store.retain(days=3650, megabytes=1000),
    ]
    for ask in asked:
        database.end_connections()  # the connection that we have is a dead one
        with pytest.raises(Fault):
            ask()
        ask()


def test_raw_logs_are_stored_after_the_outage(database, comes_back):
    database.go()
    intake_service.Intake().raw([payload(1).SerializeToString(), payload(2).SerializeToString()])
    assert comes_back == [0.5, 1]
    assert LogLine.objects.count() == 2


def test_verdicts_templates_and_explanations_are_stored_after_the_outage(database, comes_back):
    logstore.get().append([accept.document(payload(1))])
    service = writeback.WriteBack()
    judged = payload(1, anomaly_level="Anomaly", masked_log="connected", inference_model="opnilog")
    template = payload(7, _id="7", template_matched="connected to <*>")
    names = {"cluster_id": "c1", "namespace_name": "shop"}
    for handle, data in (
        (service.verdicts, payloads.encode([judged])),
        (service.explanations, json.dumps([{"_id": "id1", **names, "unexpected": [[2, "<ip>"]]}]).encode()),
        (service.templates, payloads.encode([template])),
    ):
        comes_back.clear()
        database.go()
        handle([data])
        assert comes_back == [0.5, 1]
    line = LogLine.objects.get()
    assert (line.level, line.unexpected, Template.objects.get().text) == ("Anomaly", [[2, "<ip>"]], "connected to <*>")


def test_a_template_that_is_sent_once_is_kept_until_it_is_stored(database, monkeypatch):
    monkeypatch.setattr(writeback, "PAUSES_S", ())
    service = writeback.WriteBack()
    database.go()
    service.templates([payloads.encode([payload(7, _id="7", template_matched="one")])])
    ((_seconds, tick, *_),) = service.ticks
    tick()
    database.come()
    tick()
    assert Template.objects.get().text == "one"


class Always:
    """A singleton lock that is always held: its loss would be noticed only later."""

    def hold(self) -> bool:
        return True

    def release(self) -> None:
        pass


def test_the_follower_continues_after_the_last_stored_line(database, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel.storage.root", lambda: tmp_path)
    log = tmp_path / "log" / "web" / "web.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\n")
    service = FollowerService(Always())
    service.poll()
    real = FollowedFile.save

    def save(*args, **kwargs):  # it goes between the lines and the mark
        monkeypatch.setattr(FollowedFile, "save", real)
        database.end_connections()
        return real(*args, **kwargs)

    monkeypatch.setattr(FollowedFile, "save", save)
    with log.open("a") as file:
        file.write("two\n")
    service.poll()
    assert list(LogLine.objects.values_list("log", flat=True)) == ["one"]
    service.poll()
    assert list(LogLine.objects.order_by("pk").values_list("log", flat=True)) == ["one", "two"]


def test_housekeeping_resumes_after_the_outage(database):
    kv.ensure()
    kv.put_watched({"c1": {"shop": ["web"]}})
    ModelVersion.objects.create(version="v1", serving=True)
    logstore.get().append([accept.document(payload(1))])
    keeper = Housekeeping(Always())
    for work in (keeper.count, keeper.sweep, keeper.retain):
        database.end_connections()
        work()
    keeper.count()
    assert kv.aggregation() == {"c1": {"shop": {"web": 1}}}
