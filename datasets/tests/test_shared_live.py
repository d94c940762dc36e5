"""Datasets of others by the data service and the data client: those to whom they are shared read, nobody writes."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Share
from accounts.sharing import grants
from conftest import move
from datasets.models import Dataset
from resources.models import Tenant

from .test_data_client_live import Client

WRITES = {
    "PUT": {"data": b"x"}, "DELETE": {}, "MKCOL": {}, "PROPPATCH": {"data": b"<x/>"}, "UNLOCK": {},
    "LOCK": {"data": b'<d:lockinfo xmlns:d="DAV:"><d:lockscope><d:exclusive/></d:lockscope></d:lockinfo>'},
    "MOVE": {"headers": {"Destination": "/data/bob/.home/x"}},
}  # fmt: skip
ROWS = b"1,2\n" * 25
ONLY_READ = '{"msg": "path: is shared with you for reading; only its owner can change it"}'


@pytest.fixture
def ready(photos):
    """Alice's dataset `photos`, ready, beside a private one and one that is uploaded."""
    photos.put("/data/alice/photos/a/one.csv", data=ROWS)
    assert photos.heartbeat("photos", "ready", 100).status_code == 200
    photos.create("private", 10)
    photos.put("/data/alice/private/x", data=b"hush")
    photos.put("/data/alice/.home/x", data=b"hush")
    return Dataset.objects.select_related("user").get(name="photos")


def listed(person, path: str) -> list[str]:
    answer = person.request("PROPFIND", path, headers={"Depth": "1"})
    assert answer.status_code == 207, answer.text
    return [part.partition("<")[0] for part in answer.text.split("<d:href>")[1:]]


def test_a_shared_dataset_is_read_and_never_changed(ready, bob, bob_data, alice_data):
    file, whole = "/data/alice/photos/a/one.csv", "/data/alice/photos"
    assert [bob_data.request(method, file).status_code for method in ("GET", "PROPFIND", "PUT")] == [404] * 3
    assert listed(bob_data, "/data") == ["/data/", "/data/bob/"]
    share, _token = grants.make(row=ready, audience="user", user="bob", by="alice")
    answer = bob_data.get(file)
    assert (answer.status_code, answer.content) == (200, ROWS)
    assert bob_data.get(file, headers={"Range": "bytes=98-"}).content == b"2\n"
    assert listed(bob_data, "/data") == ["/data/", "/data/bob/", "/data/alice/"]
    assert listed(bob_data, "/data/alice") == ["/data/alice/", "/data/alice/photos/"]
    assert listed(bob_data, whole + "/a") == ["/data/alice/photos/a/", "/data/alice/photos/a/one.csv"]
    for method, given in WRITES.items():
        for path in (file, whole, whole + "/new"):
            answer = bob_data.request(method, path, **given)
            assert (answer.status_code, answer.text) == (403, ONLY_READ), (method, path)
    big = bob_data.put(whole + "/big", data=bytes(200_000))
    assert (big.status_code, big.text) == (403, ONLY_READ)
    for path in ("/data/alice/private/x", "/data/alice/.home/x", "/data/alice/.home", "/data/alice/none/x"):
        assert [bob_data.request(method, path).status_code for method in ("GET", "PROPFIND", "PUT")] == [404] * 3, path
    away = {"Destination": "/data/alice/photos/b"}
    assert bob_data.request("COPY", file, headers=away).status_code == 403
    assert bob_data.request("COPY", file, headers={"Destination": "/data/bob/.home/mine"}).status_code == 201
    assert bob_data.get("/data/bob/.home/mine").content == ROWS
    assert alice_data.get(file).content == ROWS
    grants.revoke(share, by="alice")
    assert [bob_data.request(method, file).status_code for method in ("GET", "PROPFIND", "PUT", "COPY")] == [404] * 4
    assert listed(bob_data, "/data") == ["/data/", "/data/bob/"]


@pytest.mark.parametrize("end", ["date", "tenant", "owner"])
def test_the_right_ends_with_its_date_the_tenant_and_the_owners_account(ready, bob, bob_data, end):
    share, _token = grants.make(row=ready, audience="tenant", by="alice")
    assert bob_data.get("/data/alice/photos/a/one.csv").status_code == 200
    if end == "date":
        Share.objects.filter(pk=share.pk).update(expires=timezone.now() - timedelta(seconds=1))
    elif end == "tenant":
        move(bob, Tenant.objects.create(name="other"))
    else:
        accounts.deregister(username="alice", by="test")
    for method, path in (("GET", "/a/one.csv"), ("PROPFIND", ""), ("PUT", "/x")):
        assert bob_data.request(method, "/data/alice/photos" + path).status_code == 404
    assert bob_data.request("PROPFIND", "/data/alice", headers={"Depth": "1"}).status_code == 404


def test_the_data_client_downloads_and_lists_what_is_shared(ready, bob, bob_data, service, tmp_path):
    client = Client(service, bob_data.token, tmp_path)
    assert "not found" in client.run("download", tmp_path / "x", "--name", "alice/photos", code=4).stderr
    grants.make(row=ready, audience="user", user="bob", right="clone", by="alice")
    client.run("download", tmp_path / "mine", "--name", "alice/photos", "--quiet")
    assert (tmp_path / "mine" / "a" / "one.csv").read_bytes() == ROWS
    assert client.run("list", "--shared").stdout.split() == ["alice/photos", "clone"]
    shared = json.loads(client.run("list", "--shared", "--json").stdout)
    assert shared == [{"dataset": "alice/photos", "right": "clone", "expires": None}]
    assert client.run("list").stdout == ""
    for command in (("upload", tmp_path / "mine"), ("delete",)):
        refused = client.run(*command, "--name", "alice/photos", code=2)
        assert "alice/photos is another user's" in refused.stderr
    refused = client.run("delete", "--name", "photos", "--user", "alice", code=4)
    assert Dataset.objects.get(name="photos").state == "ready", refused.stderr
