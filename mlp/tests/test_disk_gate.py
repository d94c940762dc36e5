"""With a nearly full disk nothing is stored at any entry point, and users can still read, delete, cancel and log in.

What is free is faked at kernel.disk.free, the one function that asks the file system; test_full_disk.py fills one.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from types import SimpleNamespace

import pytest
from django.conf import settings
from nats.js.errors import APIError

from accounts import lifecycle as accounts
from accounts.models import User
from aiops.conftest import payload
from aiops.models import LogLine
from aiops.services import raw_logs
from conftest import Api
from datasets.models import Dataset
from datasets.webdav.gate import internal_key
from datasets.webdav.put.batch import Request, store_all
from jobs import lifecycle
from jobs.artifacts import files, multipart, space
from jobs.models import Job, RunParam
from kernel import bus, consuming, disk, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.attack.scope_protocols import MLFLOW
from mlp.tests.attack.scope_rest import REST
from mlp.tests.attack.test_scopes import dav, lines_of, rest
from mlp.tests.page_world import visitor
from mlp.tests.test_mlflow_routes import calls as mlflow_calls
from mlp.tests.test_mlflow_routes import short
from tracking.mlflow.tests.conftest import mlflow  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db

ROOMY = disk.Free(1 << 40, 1 << 20)
LOW = [disk.Free((256 << 20) - 1, 1 << 20), disk.Free(1 << 40, disk.INODES - 1)]  # of bytes, of inodes
# The calls of REST that change something and go on: they delete, end work, or are about the own account.
GOING_ON = """
PUT    /users/{user}                                # deactivates the account
POST   /users/{user}/service_accounts
POST   /users/{user}/service_accounts/{name}/tokens
PUT    /users/{user}/token:rotate
POST   /users/{user}/tokens
POST   /program_logins
POST   /program_logins/{code}
PUT    /resource_request:confirm
PUT    /resource_request:cancel
POST   /users/{user}/apps/{name}/keys
PUT    /users/{user}/apps/{name}/keys/{key}
PUT    /users/{user}/apps/{name}:stop
PUT    /users/{user}/workspaces/{name}:keep
PUT    /users/{user}/workspaces/{name}:stop
PUT    /users/{user}/datasets/{name}:heartbeat
PUT    /users/{user}/exports/{number}:cancel
PUT    /users/{user}/job_metrics/{name}:delete
PUT    /users/{user}/job_metrics/{name}:finish
PUT    /users/{user}/jobs/{name}:cancel
PUT    /users/{user}/jobs/{name}:heartbeat
PUT    /users/{user}/jobs/{name}:trash
PUT    /users/{user}/pipelines/{name}/runs/{number}:cancel
PUT    /users/{user}/pipelines/{name}/runs/{number}/steps/{step}:reject
PUT    /users/{user}/schedules/{name}:pause
PUT    /users/{user}/sweeps/{name}:cancel
PUT    /users/{user}/sweeps/{name}:pause
PUT    /users/{user}/runs:cancel
PUT    /users/{user}/runs:delete
PUT    /users/{user}/runs:trash
PUT    /users/{user}/trash:delete
"""


@pytest.fixture
def set_free(monkeypatch):
    """Return the function that decides what the disk has free."""

    def change(free: disk.Free) -> None:
        monkeypatch.setattr(disk, "free", lambda place=None: free)

    return change


@pytest.fixture
def low(set_free):
    set_free(LOW[0])


def going_on() -> set[tuple[str, str]]:
    lines = (line.partition("#")[0].split() for line in GOING_ON.splitlines())
    return {(line[0], line[1]) for line in lines if line}


@pytest.mark.parametrize("free", LOW, ids=["bytes", "inodes"])
def test_reports_are_refused_and_accepted_again_when_there_is_room(mlflow, alice, set_free, free):  # noqa: F811
    run = mlflow.call("post", "runs/create", experiment_id="0")["run"]["info"]["run_id"]
    log = {"run_id": run, "params": [{"key": "a", "value": "1"}]}
    set_free(free)
    answer = mlflow.send("post", "runs/log-batch", log)
    assert (answer.status_code, answer.json()["error_code"]) == (507, "TEMPORARILY_UNAVAILABLE")
    assert str(disk.LOW) == answer.json()["message"]
    assert not RunParam.objects.exists()
    assert mlflow.call("get", "runs/get", run_id=run)["run"]["info"]["run_id"] == run
    set_free(ROOMY)
    mlflow.call("post", "runs/log-batch", **log)
    assert RunParam.objects.get().text == "1"
    set_free(free)
    mlflow.call("post", "runs/delete", run_id=run)


def test_of_the_calls_of_rest_those_that_store_are_refused(as_staff, alice, low):
    changing = {call for call in lines_of(REST) if call[0] != "GET" and call[1] not in {"/users"}}
    refused = {call for call in changing if rest(as_staff.token, call, True).status_code == 503}
    assert changing - refused == {call for call in changing if call[0] == "DELETE"} | going_on()
    answer = as_staff.call("post", "users/alice/jobs", {})
    assert answer.json() == {"msg": str(disk.LOW)}


def test_what_submits_by_itself_submits_nothing(alice, home, low):
    """Schedules, pipelines and sweeps, which come through no entry point."""
    (home / "train.py").write_text("pass")
    with pytest.raises(disk.DiskFull):
        lifecycle.create_job(user=alice, name="fit", entry="train.py", by="schedule")
    assert not Job.objects.exists()


def test_nobody_registers_and_everybody_logs_in(alice, low, settings):
    body = {"username": "mallory", "password": "a-long-password-1"}
    assert Api().call("post", "users", body).status_code == 503
    page = visitor().post("/regist_login", {**body, "action": "register"})
    assert page.status_code == 503
    assert str(disk.LOW) in page.content.decode()
    assert not User.objects.filter(username="mallory").exists()
    alice.set_password("a-long-password-2")
    alice.save()
    logged_in = visitor().post(
        "/regist_login", {"username": "alice", "password": "a-long-password-2", "action": "login"}
    )
    assert logged_in.status_code == 302


def test_of_mlflows_calls_those_that_store_are_refused(mlflow, low):  # noqa: F811
    addresses = {(method, short(address)): f"/{address}" for method, address in mlflow_calls()}
    header = {"HTTP_AUTHORIZATION": f"Bearer {mlflow.token}"}
    for call, scopes in lines_of(MLFLOW).items():
        if call not in addresses or "artifacts" in call[1] or "workspaces" in call[1]:
            continue
        address = re.sub("<.*?>", "1", addresses[call])
        answer = visitor().generic(call[0], address, b"{}", content_type="application/json", **header)
        makes_room = "delete" in call[1] or call[0] == "DELETE" or call[1].startswith("mpu/abort")
        reads = "read" in scopes or call[0] == "GET"
        assert (answer.status_code == 507) is not (reads or makes_room), (call, answer.status_code, answer.content)


def test_pages_delete_and_cancel_and_store_nothing(alice, home, low, client):
    client.force_login(alice)
    refusal = client.post("/scripts/new", {"path": "b.py", "text": "1"})
    assert refusal.status_code == 503
    assert str(disk.LOW).capitalize() in refusal.content.decode()
    for address, form in (
        ("/datasets", {"name": "x", "size": "1"}), ("/jobs/fit/edit", {"notes": "n"}), ("/runs/act", {"do": "tag"}),
        ("/projects/x", {}), ("/start/dataset", {}), ("/trash/change", {"do": "restore"}),
    ):  # fmt: skip
        assert client.post(address, form).status_code in (503, 405), address
    put(Job, alice, "fit", "finished")
    assert client.post("/runs/act", {"do": "trash", "run": "fit"}).status_code != 503
    assert client.post("/scripts/delete/train.py").status_code == 302
    assert not (home / "train.py").exists()
    assert client.post("/logout").status_code == 302


def test_administrators_pages_go_on(staff_client, alice, low):
    answer = staff_client.post("/admin/jobs/job/", {"action": "delete_selected", "_selected_action": "1"})
    assert answer.status_code != 503


def test_files_are_refused_and_deleted(alice, low):
    """Large uploads before their body comes, small ones, which nginx does not ask about, with it."""
    row = put(Dataset, alice, "up", "creating")
    Dataset.objects.filter(pk=row.pk).update(size=1 << 20)
    folder = storage.dataset_dir("alice", "up")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text("x")
    token = accounts.token_of(alice)
    refusal = dav(token, "PUT", "/data/alice/up/new")
    assert (refusal.status_code, refusal["X-Data-Status"]) == (403, "507")
    assert json.loads(refusal["X-Data-Reason"]) == {"msg": str(disk.LOW)}
    for method, *addresses in (
        ("MKCOL", "/data/alice/up/folder"), ("COPY", "/data/alice/up/file", "/data/alice/up/copy"),
        ("LOCK", "/data/alice/up/file"), ("PROPPATCH", "/data/alice/up/file"),
    ):  # fmt: skip
        assert dav(token, method, *addresses).status_code == 507, method
    assert dav(token, "DELETE", "/data/alice/up/file").status_code == 204
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("low_one", ["platform", "datasets"])
def test_files_are_refused_while_either_of_two_disks_is_low(alice, home, monkeypatch, low_one):
    """The datasets may be on another disk than the database."""
    monkeypatch.setattr(
        disk, "free", lambda place=None: LOW[0] if (place is None) is (low_one == "platform") else ROOMY
    )
    refusal = dav(accounts.token_of(alice), "PUT", "/data/alice/.home/new")
    assert (refusal.status_code, refusal["X-Data-Status"]) == (403, "507")
    assert json.loads(refusal["X-Data-Reason"]) == {"msg": str(disk.LOW)}


@pytest.mark.parametrize(("left", "most"), [(900 << 10, "1m"), (3 << 20, "4m"), (60 << 20, "64m")])
def test_a_body_without_length_may_have_what_the_disk_has_left(alice, home, set_free, left, most):
    set_free(only(left))
    asked = {
        "HTTP_AUTHORIZATION": f"Bearer {accounts.token_of(alice)}", "HTTP_X_INTERNAL_KEY": internal_key(),
        "HTTP_X_DATA_URI": "/data/alice/.home/new", "HTTP_X_DATA_CHUNKED": "chunked",
    }  # fmt: skip
    refusal = visitor().get("/internal/data/may", **asked)
    assert (refusal["X-Data-Status"], refusal["X-Data-Class"]) == ("chunked", most)


def test_a_disk_that_counts_no_inodes_has_any_number(tmp_path):
    command = ["mount", "-t", "tmpfs", "-o", "nr_inodes=0,size=1g", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("such a disk takes the right to mount one")
    try:
        assert disk.room(tmp_path) > 0
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_small_files_are_refused_with_their_body(alice, low):
    asked = {
        "HTTP_AUTHORIZATION": f"Bearer {accounts.token_of(alice)}", "HTTP_X_INTERNAL_KEY": internal_key(),
        "HTTP_X_DATA_URI": "/data/alice/.home/new.py",
    }  # fmt: skip
    [answer] = store_all([Request(asked, b"x")])
    assert answer.status_code == 507
    assert not (storage.home_dir("alice") / "new.py").exists()


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/api/v1/aiops/logs", {"log": "x"}),
        ("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "x"}}]}]}]}),
        ("/loki/api/v1/push", {"streams": [{"stream": {"app": "a"}, "values": [["1700000000000000000", "x"]]}]}),
    ],
)
def test_senders_of_logs_are_asked_to_try_again(alice, low, address, body):
    header = {"HTTP_AUTHORIZATION": f"Bearer {accounts.token_of(alice)}"}
    answer = visitor().post(address, json.dumps(body), content_type="application/json", **header)
    assert answer.status_code == 503
    assert str(disk.LOW) in answer.content.decode()
    assert not LogLine.objects.exists()


def test_lines_that_come_over_nats_are_not_stored(set_free, monkeypatch):
    """Nobody waits for an answer there: after some attempts they are logged as lost."""
    monkeypatch.setattr(raw_logs, "PAUSES_S", (0,))
    for free, stored in ((LOW[0], 0), (ROOMY, 1)):
        set_free(free)
        raw_logs.Intake().raw([payload(1).SerializeToString()])
        assert LogLine.objects.count() == stored


def test_messages_stay_in_the_stream_until_there_is_room(set_free, monkeypatch):
    """The disk has no room at two looks, and room at the third; meanwhile nothing is handled, and no more is taken."""
    stream = bus.Stream(name="DISK_GATE", subjects=("disk_gate.>",), most_waiting=100)
    looks, refusals = [], []
    handled: list[tuple[int, bytes]] = []

    async def run() -> None:
        stop = asyncio.Event()

        async def idle() -> None:
            looks.append(1)
            if len(looks) == 2:
                with pytest.raises(APIError) as refusal:
                    await client.jetstream().publish("disk_gate.y", b"refused")
                refusals.append(refusal.value.err_code)
            if len(looks) == 3:
                set_free(ROOMY)

        async def handle(batch) -> None:
            handled.extend((len(looks), message.data) for message in batch)
            if len(handled) == 2:
                stop.set()
            else:
                await client.jetstream().publish("disk_gate.y", b"taken")

        client = await bus.connect()
        await bus.make_stream(client, stream)
        await client.jetstream().publish("disk_gate.x", b"kept")
        await consuming.consume(stream, "platform", handle, stop, idle)
        await client.close()

    monkeypatch.setattr(consuming, "LOW_S", 0.01)
    set_free(LOW[0])
    asyncio.run(run())
    assert refusals == [bus.FULL]
    assert handled[0] == (3, b"kept")
    assert handled[1][1] == b"taken"


def only(left: int) -> disk.Free:
    """Return a disk on which so many bytes may be stored, and no more."""
    return disk.Free((settings.DISK_MINIMUM_MIB << 20) + left, 1 << 20)


def test_an_artifact_is_stored_where_its_bytes_have_room(alice, set_free):
    """Those of other uploads that are on the way are not free any more."""
    job = put(Job, alice, "fit", "finished")
    for free, size in ((only(99), 100), *((low, 1) for low in LOW)):
        set_free(free)
        with pytest.raises(disk.DiskFull):
            space.require(job, size)
    set_free(only(100))
    assert space.require(job, 100) == 100
    with pytest.raises(disk.DiskFull):
        space.require(job, 60, SimpleNamespace(coming=lambda: 60, at=lambda place: 0))


def test_the_parts_of_an_artifact_are_joined_where_there_is_room_for_the_whole(alice, set_free):
    """It is there twice for a moment. Refused, it is as it was, and is joined later."""
    job = put(Job, alice, "fit", "finished")
    set_free(ROOMY)
    upload = multipart.begin(job, "model.bin", 2, "token")
    etags = {}
    for number in (1, 2):
        body = storage.spool_dir() / f"part{number}"
        body.write_bytes(b"x" * 50)
        etags[number] = multipart.add(upload, job, number, body)
    for free in (only(99), *LOW):
        set_free(free)
        with pytest.raises(disk.DiskFull):
            multipart.complete(upload, job, etags)
    set_free(only(100))
    multipart.complete(upload, job, etags)
    assert files.size(job, "model.bin") == 100
