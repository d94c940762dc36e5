"""Named tokens at the data service: what each scope may do with files (accounts.scopes), through nginx."""

from __future__ import annotations

import pytest

from accounts import named_tokens
from datasets.tests.live import Person

HOME = "/data/alice/.home"


@pytest.fixture
def with_scope(photos, service, alice):
    """Return a function that gives alice's client with a token of that scope."""

    def make(scope: str, target: str = "") -> Person:
        person = Person(service, alice)
        name = f"{scope}-{target}x"
        person.token = named_tokens.create(user=alice, name=name, scope=scope, target=target, by="test")[1]
        person.headers["Authorization"] = f"Bearer {person.token}"
        return person

    return make


def codes(person: Person, folder: str) -> list[int]:
    """Return what a write, a large one, a listing and a deletion are answered with."""
    return [
        person.put(f"{folder}/x", data=b"x").status_code,
        person.put(f"{folder}/big", data=b"x" * 200_000).status_code,
        person.request("PROPFIND", folder, headers={"Depth": "0"}).status_code,
        person.delete(f"{folder}/x").status_code,
    ]


def test_reading_writes_nothing(with_scope, photos):
    reader = with_scope("read")
    assert photos.put(HOME + "/kept", data=b"kept").status_code == 201
    assert reader.get(HOME + "/kept").content == b"kept"
    assert codes(reader, HOME) == [403, 403, 207, 403]
    for method in ("MKCOL", "MOVE", "COPY", "LOCK", "PROPPATCH"):
        headers = {"Destination": f"{reader.service.url}{HOME}/other"}
        assert reader.request(method, HOME + "/kept", headers=headers).status_code == 403, method
    assert "this token is only for" in reader.put(HOME + "/x", data=b"x").json()["msg"]
    assert photos.get(HOME + "/kept").content == b"kept"


def test_submitting_writes_ones_own_files_and_deletes_none(with_scope, photos):
    client = with_scope("submit")
    assert codes(client, HOME) == [201, 201, 207, 403]
    assert client.put(f"{HOME}/x", data=b"another").status_code == 204  # to upload again is no deletion
    assert photos.get(f"{HOME}/x").content == b"another"


def test_a_datasets_token_is_for_that_dataset(with_scope, photos):
    client = with_scope("dataset", "photos")
    assert codes(client, "/data/alice/photos") == [201, 413, 207, 204]  # the large one does not fit into it
    assert client.put("/data/alice/photos/y", data=b"y" * 100).status_code == 201
    assert codes(client, HOME) == [403, 403, 403, 403]
    assert client.request("PROPFIND", "/data/alice", headers={"Depth": "1"}).status_code == 403
    headers = {"Destination": f"{client.service.url}{HOME}/taken"}
    assert client.request("MOVE", "/data/alice/photos/y", headers=headers).status_code == 403
    assert client.request("COPY", "/data/alice/photos/y", headers=headers).status_code == 403
    assert client.delete("/data/alice/photos").status_code == 403
    assert photos.dataset("photos")["state"] == "creating"
    ready = client.heartbeat("photos", "ready", 100)
    assert ready.status_code == 200, ready.text


def test_an_applications_token_reads_no_file(with_scope):
    assert codes(with_scope("application", "digits"), HOME) == [403, 403, 403, 403]


def test_a_revoked_one_is_refused_at_once(with_scope, alice):
    client = with_scope("submit")
    assert client.put(HOME + "/x", data=b"x").status_code == 201
    named_tokens.revoke(user=alice, name="submit-x", by="alice")
    assert client.put(HOME + "/x", data=b"x").status_code == 401
