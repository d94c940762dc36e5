"""Artifacts by proxy through real nginx and gunicorn, called as MLflow's clients call them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from pathlib import Path

import pytest
import requests
from django.core.management import call_command

from accounts import lifecycle as accounts
from datasets.tests.live import Person, wait_until
from datasets.tests.test_disk_live import Slow
from datasets.webdav import inflight
from jobs import launching
from jobs.artifacts import files, multipart
from jobs.auth import job_token
from jobs.models import ArtifactSpace, Job
from kernel.broker import broker
from mlp.tests.patience import LIMIT_S
from resources import limits
from resources.models import ResourceRequest

pytestmark = pytest.mark.django_db(transaction=True)

API = "/mlflow/api/2.0/"


class Client(Person):
    """A client of MLflow with a token."""

    def __init__(self, service, user, token: str = ""):
        super().__init__(service, user)
        self.headers["Authorization"] = f"Bearer {token or self.token}"

    def call(self, route: str, **fields) -> dict:
        answer = self.post(f"{API}mlflow/{route}", json=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def start(self) -> dict:
        return self.call("runs/create", experiment_id="0")["run"]["info"]

    def listed(self, path: str) -> dict:
        answer = self.get(f"{API}mlflow-artifacts/artifacts", params={"path": path})
        assert answer.status_code == 200, answer.text
        return {entry["path"]: entry.get("file_size", "folder") for entry in answer.json().get("files", [])}


@pytest.fixture
def alices(site, alice):
    return Client(site, alice)


@pytest.fixture
def run(alices):
    return alices.start()


def base(info: dict) -> str:
    """Return the address of a run's artifacts."""
    return API + "mlflow-artifacts/artifacts/" + info["artifact_uri"].removeprefix("mlflow-artifacts:/")


def root(info: dict) -> str:
    return info["artifact_uri"].removeprefix("mlflow-artifacts:/")


def error(answer: requests.Response) -> tuple[int, str]:
    assert set(answer.json()) == {"error_code", "message"}, answer.text
    return answer.status_code, answer.json()["error_code"]


def folder(site, info: dict):
    job = Job.objects.get(run_id=info["run_id"])
    return site.root / "jobs" / "alice" / job.name


def test_artifacts_are_stored_listed_read_replaced_and_deleted(alices, run, site):
    big = os.urandom(300_000)
    for name, data in (("a.txt", b"one"), ("sub/deep/big.bin", big), ("sub/empty", b""), ("中 +%23 é.txt", b"odd")):
        put = alices.put(f"{base(run)}/{requests.utils.quote(name)}", data=data)
        assert (put.status_code, put.json()) == (200, {}), put.text
        assert (folder(site, run) / "artifacts" / name).read_bytes() == data
    chunked = alices.put(f"{base(run)}/sub/chunked", data=iter([b"x" * 200_000, b"y"]))
    assert chunked.status_code == 200
    assert alices.listed(root(run)) == {"a.txt": 3, "sub": "folder", "中 +%23 é.txt": 3}
    assert alices.listed(f"{root(run)}/sub/") == {"chunked": 200_001, "deep": "folder", "empty": 0}
    assert alices.listed(f"{root(run)}/a.txt") == alices.listed(f"{root(run)}/none") == alices.listed("") == {}
    shown = alices.get(API + "mlflow/artifacts/list", params={"run_id": run["run_id"], "path": "sub"}).json()
    assert shown["root_uri"] == run["artifact_uri"]
    assert [entry["path"] for entry in shown["files"]] == ["sub/chunked", "sub/deep", "sub/empty"]
    read = alices.get(f"{base(run)}/sub/deep/big.bin")
    assert (read.content == big, read.headers["X-Content-Type-Options"]) == (True, "nosniff")
    assert "X-Accel-Redirect" not in read.headers
    part = alices.get(f"{base(run)}/sub/deep/big.bin", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, big[10:20])
    query = {"run_uuid": run["run_id"], "path": "中 +%23 é.txt"}
    assert alices.get("/mlflow/get-artifact", params=query).content == b"odd"
    tags = []
    for data in (b"five", b"four"):
        assert alices.put(f"{base(run)}/a.txt", data=data).status_code == 200
        read = alices.get(f"{base(run)}/a.txt", headers={"If-None-Match": ", ".join(tags)} if tags else {})
        assert (read.status_code, read.content) == (200, data)
        tags.append(read.headers["ETag"])
    assert alices.get(f"{base(run)}/a.txt", headers={"If-None-Match": tags[1]}).status_code == 304
    assert alices.get(f"{base(run)}/a.txt", headers={"If-Match": tags[0]}).status_code == 412
    assert alices.get(f"{base(run)}/a.txt", headers={"If-Match": tags[1]}).content == b"four"
    space = ArtifactSpace.objects.get()
    assert space.stored == files.space.counted(space.job) == 4 + 300_000 + 3 + 200_001
    held = ResourceRequest.objects.get(pk=f"artifacts:{space.pk}")
    assert space.stored <= held.rom == space.reserved <= space.stored * 17 // 16
    call_command("books")
    assert alices.delete(f"{base(run)}/sub").status_code == 200
    assert error(alices.delete(f"{base(run)}/sub")) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert error(alices.get(f"{base(run)}/sub/empty")) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert ArtifactSpace.objects.get().stored == 7
    assert error(alices.put(f"{base(run)}/a.txt/b", data=b"x")) == (400, "INVALID_PARAMETER_VALUE")
    assert alices.put(f"{base(run)}/dir/x", data=b"x").status_code == 200
    assert error(alices.put(f"{base(run)}/dir", data=b"x")) == (400, "INVALID_PARAMETER_VALUE")
    wait_until(lambda: site.spooled() == [])


def test_a_run_that_is_deleted_gives_its_space_back(alices, run, alice):
    assert alices.put(f"{base(run)}/x", data=b"x" * 9000).status_code == 200
    job = Job.objects.get(run_id=run["run_id"])
    alice.tenant.refresh_from_db()
    assert alice.tenant.rom_inuse > 9000
    alices.call("runs/update", run_id=run["run_id"], status="FINISHED")
    launching.lifecycle.delete_job(user=alice, name=job.name, by="alice")
    assert error(alices.put(f"{base(run)}/y", data=b"x")) == (404, "RESOURCE_DOES_NOT_EXIST")
    launching.erase(job.pk)
    alice.tenant.refresh_from_db()
    assert (alice.tenant.rom_inuse, ArtifactSpace.objects.count(), Job.objects.count()) == (0, 0, 0)


def test_the_quota_is_enforced_before_and_while_bytes_arrive(alices, run, site):
    limits.set_limit(tenant="default", user="alice", rom=3 << 20, by="test")
    assert alices.put(f"{base(run)}/first", data=b"x" * (2 << 20)).status_code == 200
    assert error(alices.put(f"{base(run)}/second", data=b"x" * (2 << 20))) == (413, "QUOTA_EXCEEDED")
    most = 0

    def endless():
        nonlocal most
        for _ in range(200):
            most = max(most, sum(path.stat().st_size for path in site.spooled()))
            yield b"x" * (1 << 16)

    with contextlib.suppress(requests.ConnectionError):  # it may be closed while the client is still sending
        assert error(alices.put(f"{base(run)}/third", data=endless())) == (413, "QUOTA_EXCEEDED")
    assert most <= 2 << 20
    assert alices.listed(root(run)) == {"first": 2 << 20}
    # Replaced, it fits exactly, once the last bytes of the third are read and its connection has ended.
    wait_until(lambda: alices.put(f"{base(run)}/first", data=b"y" * (3 << 20)).status_code == 200)
    assert error(alices.put(f"{base(run)}/small", data=b"x")) == (413, "QUOTA_EXCEEDED")
    assert ArtifactSpace.objects.get().stored == 3 << 20
    wait_until(lambda: site.spooled() == [])


def test_the_quota_holds_for_uploads_that_arrive_at_the_same_time(alices, run):
    limits.set_limit(tenant="default", user="alice", rom=3 << 20, by="test")
    first = Slow(alices, f"{base(run)}/first", 2 << 20)
    wait_until(lambda: broker().client.hlen(inflight.KEY) == 1)
    assert error(alices.put(f"{base(run)}/second", data=b"x" * (2 << 20))) == (413, "QUOTA_EXCEEDED")
    assert first.end()[0] == 200
    assert alices.put(f"{base(run)}/second", data=b"x" * (1 << 20)).status_code == 200


def test_others_and_other_runs_are_refused_as_what_does_not_exist(alices, run, site, bob, alice):
    assert alices.put(f"{base(run)}/x", data=b"secret").status_code == 200
    bobs, nowhere = Client(site, bob), base(run).replace(run["run_id"], "0" * 32)
    for method, address in (("put", f"{base(run)}/x"), ("get", f"{base(run)}/x"), ("delete", f"{base(run)}/x")):
        mine = bobs.request(method, address, data=b"y" if method == "put" else None)
        none = bobs.request(method, address.replace(base(run), nowhere), data=b"y" if method == "put" else None)
        assert (mine.status_code, mine.text.replace(run["run_id"], "0" * 32)) == (404, none.text)
    big = bobs.put(f"{base(run)}/x", data=b"y" * 200_000)
    assert error(big) == (404, "RESOURCE_DOES_NOT_EXIST")
    for path in ("mlflow-artifacts/artifacts", "mlflow/artifacts/list"):
        fields = {"path": root(run)} if "mlflow-" in path else {"run_id": run["run_id"]}
        assert error(bobs.get(API + path, params=fields)) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert error(requests.put(f"{site.url}{base(run)}/x", data=b"y" * 200_000)) == (401, "UNAUTHENTICATED")
    job = Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="fit.py", cpu=1, ram=100, state="running", run_name="none",
        project_id=Job.objects.get(run_id=run["run_id"]).project_id,
    )  # fmt: skip
    inside = Client(site, alice, job_token(job))
    own = base(run).replace(run["run_id"], job.run_id.hex)
    assert inside.put(f"{own}/model/x", data=b"mine").status_code == 200
    assert inside.get(f"{own}/model/x").content == b"mine"
    assert (site.root / "jobs/alice/fit/artifacts/model/x").read_bytes() == b"mine"
    assert error(inside.put(f"{base(run)}/x", data=b"y")) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert inside.get(f"{base(run)}/x").content == b"secret"  # a run of its own project
    assert error(inside.delete(f"{own}/model/x")) == (403, "PERMISSION_DENIED")
    (site.root / "jobs/alice/fit/artifacts/out").symlink_to("/etc")
    assert error(inside.put(f"{own}/out/x", data=b"y")) == (400, "INVALID_PARAMETER_VALUE")
    assert error(inside.get(f"{own}/out/passwd")) == (404, "RESOURCE_DOES_NOT_EXIST")
    alices.call("runs/delete", run_id=run["run_id"])
    assert error(alices.put(f"{base(run)}/x", data=b"y")) == (400, "INVALID_PARAMETER_VALUE")
    accounts.rotate_token(user=alice, by="alice")
    assert error(alices.get(f"{base(run)}/x")) == (401, "UNAUTHENTICATED")


# What nginx itself refuses before it knows the address. It does not read the body then, so that a client that is still
# sending may see its connection reset before it reads the answer.
UNREADABLE = ("a%00", "%", "%zz")
HOSTILE = (
    "../x", "%2e%2e/%2e%2e/x", "a/../../../x", "a%2fb", "/x", "a//b", "./x", "%ff", "%0d%0ax", "a%1f",
    "a" * 256, "a/" * 200 + "x", "%252e%252e%2f", "../../../../mlflow/runs/create", "",
)  # fmt: skip


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
def test_hostile_paths_are_refused_in_mlflows_form(alices, run, site, method):
    counters = site.root / "run" / "metrics"  # of each process of the web server, made when it answers first

    def present() -> set[Path]:
        return {path for path in site.root.rglob("*") if counters not in path.parents}

    before = present()
    for path in (*HOSTILE, *UNREADABLE):
        if not path and method == "DELETE":
            continue  # the folder of all artifacts, which there may be none of
        for length in (0, 150_000) if method == "PUT" and path not in UNREADABLE else (0,):
            connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=LIMIT_S)
            connection.putrequest(method, f"{base(run)}/{path}", skip_accept_encoding=True)
            connection.putheader("Authorization", f"Bearer {alices.token}")
            connection.putheader("Content-Length", str(length))
            connection.endheaders(b"x" * length)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            assert answer.status in (400, 403, 404, 405), (path, answer.status, body)
            assert b'"error_code"' in body or path in UNREADABLE, (path, body)
    wait_until(lambda: present() <= before)
    assert requests.put(f"{site.url}/internal/mlflow/store", data=b"x").status_code == 404
    direct = f"http://127.0.0.1:{site.web_port}/internal/mlflow/store"
    forged = {"X-Data-Uri": f"{base(run)}/x", "X-Data-File": "/etc/passwd", **alices.headers}
    assert error(requests.post(direct, headers=forged)) == (404, "ENDPOINT_NOT_FOUND")
    assert error(requests.put(f"http://127.0.0.1:{site.web_port}{base(run)}/x", headers=alices.headers))[0] == 405


@pytest.mark.long
def test_nothing_half_written_is_seen_when_the_servers_are_killed(alices, run, site):
    assert alices.put(f"{base(run)}/x", data=b"old" * 50_000).status_code == 200

    def killed_midway():
        yield b"new" * 50_000
        site.stop(site.nginx)
        yield b"new"

    with pytest.raises(requests.ConnectionError):
        alices.put(f"{base(run)}/x", data=killed_midway())
    site.start_nginx()
    site.stop(site.web)
    assert error(alices.put(f"{base(run)}/x", data=b"new" * 50_000)) == (503, "TEMPORARILY_UNAVAILABLE")
    assert error(alices.put(f"{base(run)}/x", data=b"new")) == (503, "TEMPORARILY_UNAVAILABLE")
    site.start_requests()
    assert alices.listed(root(run)) == {"x": 150_000}
    assert alices.get(f"{base(run)}/x").content == b"old" * 50_000


def test_a_large_artifact_arrives_in_parts_in_any_order(alices, run, site, bob):
    data = [os.urandom(300_000), os.urandom(300_000), b"end"]
    target = base(run).removeprefix(API).removeprefix("mlflow-artifacts/artifacts/") + "/big"
    mpu, name = API + "mlflow-artifacts/mpu", {"path": "/home/me/model.bin"}
    answer = alices.post(f"{mpu}/create/{target}", json={**name, "num_parts": 3})
    assert answer.status_code == 200, answer.text
    upload, parts = answer.json()["upload_id"], []
    for number in (3, 1, 2):
        credential = answer.json()["credentials"][number - 1]
        assert credential["url"].startswith(site.url)
        sent = requests.put(credential["url"], data=data[number - 1], headers=credential["headers"])
        assert sent.status_code == 200, sent.text
        parts.append({"part_number": number, "etag": sent.headers["ETag"], "url": credential["url"]})
        if number == 1:
            site.stop(site.nginx)
            site.start_nginx()
    stolen = requests.put(credential["url"].replace("signature=", "signature=x"), data=b"x")
    assert error(stolen) == (403, "PERMISSION_DENIED")
    assert error(requests.put(credential["url"].replace("/2?", "/4?"), data=b"x"))[0] == 403
    done = {**name, "upload_id": upload, "parts": parts}
    assert error(Client(site, bob).post(f"{mpu}/complete/{target}", json=done)) == (404, "RESOURCE_DOES_NOT_EXIST")
    for wrong in (parts[:2], [*parts[:2], {**parts[2], "etag": '"x"'}], [*parts, parts[0]]):
        answer = alices.post(f"{mpu}/complete/{target}", json={**done, "parts": wrong})
        assert error(answer) == (400, "INVALID_PARAMETER_VALUE")
    assert alices.listed(f"{root(run)}/big") == {}
    assert alices.post(f"{mpu}/complete/{target}", json=done).status_code == 200
    assert alices.get(f"{base(run)}/big/model.bin").content == b"".join(data)
    assert ArtifactSpace.objects.get().stored == 600_003
    assert alices.put(f"{base(run)}/big/model.bin", data=b"later").status_code == 200
    assert alices.post(f"{mpu}/complete/{target}", json=done).status_code == 200, "asked again, its answer being lost"
    assert alices.get(f"{base(run)}/big/model.bin").content == b"later"
    others = {**done, "parts": [{**part, "etag": '"x"'} for part in parts]}
    assert error(alices.post(f"{mpu}/complete/{target}", json=others)) == (400, "INVALID_PARAMETER_VALUE")
    assert error(requests.put(credential["url"], data=b"x"))[0] == 404
    assert error(alices.post(f"{mpu}/abort/{target}", json=done)) == (404, "RESOURCE_DOES_NOT_EXIST")
    limits.set_limit(tenant="default", user="alice", rom=1 << 19, by="test")
    answer = alices.post(f"{mpu}/create/{target}", json={**name, "num_parts": 2}).json()
    assert requests.put(answer["credentials"][0]["url"], data=data[0]).status_code == 200
    assert error(requests.put(answer["credentials"][1]["url"], data=data[0])) == (413, "QUOTA_EXCEEDED")
    gone = {**name, "upload_id": answer["upload_id"]}
    assert alices.post(f"{mpu}/abort/{target}", json=gone).status_code == 200
    assert ArtifactSpace.objects.get().stored == len(b"later")
    left = site.root / "datasets/.spool/artifacts/alice"
    assert {path.name for path in left.rglob("*")} == {upload, "about.json", "lock", "receipt"}


def test_parts_count_as_they_arrive_however_small_and_end_with_their_token(alices, run, site, alice):
    """nginx asks nobody before it takes a body as small as these."""
    limits.set_limit(tenant="default", user="alice", rom=250_000, by="test")
    mpu = API + "mlflow-artifacts/mpu"
    target = base(run).removeprefix(API).removeprefix("mlflow-artifacts/artifacts/") + "/big"
    answer = alices.post(f"{mpu}/create/{target}", json={"path": "model.bin", "num_parts": 4}).json()
    first, second, third, fourth = (credential["url"] for credential in answer["credentials"])
    for address in (first, second, first):  # sent again, it replaces what was sent before
        assert requests.put(address, data=os.urandom(90_000)).status_code == 200
    assert ArtifactSpace.objects.get().stored == 180_000
    assert error(requests.put(third, data=b"x" * 90_000)) == (413, "QUOTA_EXCEEDED")
    assert error(alices.put(f"{base(run)}/other", data=b"x" * 90_000)) == (413, "QUOTA_EXCEEDED")
    accounts.rotate_token(user=alice, by="alice")
    assert error(requests.put(fourth, data=b"x")) == (403, "PERMISSION_DENIED")
    assert multipart.sweep(older_than_s=-1) == 1
    assert ArtifactSpace.objects.get().stored == 0


def test_an_upload_of_an_earlier_release_is_joined_where_it_has_room_only(alices, run, site):
    """Its parts were not counted when they came; too large for the quota, it takes no room twice."""
    mpu, target = API + "mlflow-artifacts/mpu", f"{root(run)}/big"
    answer = alices.post(f"{mpu}/create/{target}", json={"path": "model.bin", "num_parts": 2}).json()
    about = multipart.uploads_of("alice") / answer["upload_id"] / multipart.ABOUT
    about.write_text(json.dumps(json.loads(about.read_text()) | {"charged": False}))
    parts = []
    for credential in answer["credentials"]:
        sent = requests.put(credential["url"], data=os.urandom(90_000))
        parts.append({"part_number": credential["part_number"], "etag": sent.headers["ETag"], "url": credential["url"]})
    done = {"path": "model.bin", "upload_id": answer["upload_id"], "parts": parts}
    limits.set_limit(tenant="default", user="alice", rom=100_000, by="test")
    assert error(alices.post(f"{mpu}/complete/{target}", json=done)) == (413, "QUOTA_EXCEEDED")
    assert not (about.parent / multipart.WHOLE).exists()
    limits.set_limit(tenant="default", user="alice", rom=200_000, by="test")
    assert alices.post(f"{mpu}/complete/{target}", json=done).status_code == 200
    assert ArtifactSpace.objects.get().stored == 180_000


def test_uploads_in_parts_are_limited_in_number_and_in_parts(alices, run, alice):
    address = f"{API}mlflow-artifacts/mpu/create/{root(run)}"
    many = {"path": "model.bin", "num_parts": multipart.MAX_PARTS + 1}
    assert error(alices.post(address, json=many)) == (400, "INVALID_PARAMETER_VALUE")
    for number in range(multipart.MAX_UPLOADS):
        (multipart.uploads_of("alice") / f"{number:032x}").mkdir(parents=True)
    refusal = alices.post(address, json={"path": "model.bin", "num_parts": 2})
    assert (refusal.status_code, "unfinished uploads" in refusal.text) == (400, True), refusal.text
