"""The data service through real nginx and gunicorn: what clients of `/data/…` rely on."""

from __future__ import annotations

import http.client
from xml.etree import ElementTree

import pytest
import requests

from accounts import lifecycle as accounts
from datasets.tests.live import stored, wait_until
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

DAV = "{DAV:}"


@pytest.mark.parametrize(
    "name", few(["中文 名.txt", "with space", "100%", "a?b#c", "0", "é", "e\u0301", "a&b;c='\"", "...", "[x]{y}"], 4)
)
def test_names_of_every_kind_round_trip(alice_data, service, name):
    path = "/data/alice/.home/" + requests.utils.quote(name, safe="")
    assert alice_data.put(path, data=name.encode()).status_code == 201
    assert service.path("alice", ".home", name).read_bytes() == name.encode()
    assert alice_data.get(path).content == name.encode()
    assert alice_data.delete(path).status_code == 204
    assert alice_data.get(path).status_code == 404


def test_permissions(photos, bob_data, staff_data, service):
    url = service.url + "/data/alice/photos/x"
    nobody = requests.put(url, data=b"x")
    assert (nobody.status_code, nobody.headers["WWW-Authenticate"].startswith("Basic")) == (401, True)
    assert requests.get(service.url + "/data/alice/.home/x").status_code == 401
    assert requests.put(url, data=b"x", headers={"Authorization": "Bearer nonsense"}).status_code == 401
    assert requests.put(url, data=b"x", auth=("alice", photos.token)).status_code == 201
    assert requests.put(url, data=b"x", auth=("bob", photos.token)).status_code == 401
    assert requests.put(url, data=b"x", auth=("alice", "correct horse battery")).status_code == 401
    assert bob_data.put("/data/alice/photos/x", data=b"x").status_code == 404
    assert bob_data.put("/data/alice/photos/x", data=b"x").text == bob_data.put("/data/alice/none/x", data=b"").text
    assert bob_data.request("PROPFIND", "/data/alice").status_code == 404
    assert bob_data.delete("/data/alice/photos").status_code == 404
    assert staff_data.put("/data/alice/photos/x", data=b"xy").status_code == 204
    assert staff_data.put("/data/nobody/.home/x", data=b"xy").status_code == 404


def test_a_revoked_token_is_refused(alice_data, alice):
    assert alice_data.put("/data/alice/.home/x", data=b"x").status_code == 201
    accounts.rotate_token(user=alice, by="alice")
    assert alice_data.put("/data/alice/.home/x", data=b"x").status_code == 401
    assert alice_data.get("/data/alice/.home/x").status_code == 401


def test_internal_addresses_are_not_reachable(service, photos):
    for path in (
        "/internal/data/verb",
        "/internal/data/store",
        "/-data/files/alice/.home/x",
        "/-data/put",
        "/-data/may",
    ):
        assert photos.get(path).status_code == 404, path
        assert photos.put(path, data=b"x", headers={"X-Internal-Key": "guess"}).status_code == 404, path
    direct = f"http://127.0.0.1:{service.web_port}/internal/data/store"
    headers = {"X-Data-Uri": "/data/alice/photos/x", "X-Data-File": "/etc/passwd", **photos.headers}
    assert requests.post(direct, headers=headers).status_code == 404
    assert requests.post(direct, headers={**headers, "X-Internal-Key": "0" * 64}).status_code == 404


def test_a_forged_header_does_not_reach_the_application(photos, service):
    headers = {"X-Data-File": "/etc/passwd", "X-Data-Uri": "/data/alice/.home/y", "X-Data-Length": "1"}
    assert photos.put("/data/alice/photos/x", data=b"mine", headers=headers).status_code == 201
    assert service.path("alice", "photos", "x").read_bytes() == b"mine"


def test_a_ready_dataset_can_be_read_but_not_changed(photos):
    photos.put("/data/alice/photos/a", data=bytes(range(100)))
    assert photos.get("/data/alice/photos/a").status_code == 409
    assert photos.heartbeat("photos", "ready", 100).status_code == 200
    whole = photos.get("/data/alice/photos/a")
    assert (whole.status_code, whole.content) == (200, bytes(range(100)))
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    part = photos.get("/data/alice/photos/a", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, bytes(range(10, 20)))
    assert photos.get("/data/alice/photos/a", headers={"Range": "bytes=200-"}).status_code == 416
    assert photos.get("/data/alice/photos/a", headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
    head = photos.head("/data/alice/photos/a")
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, "100", b"")
    assert photos.put("/data/alice/photos/a", data=b"x").status_code == 409
    assert photos.delete("/data/alice/photos/a").status_code == 409
    assert photos.get("/data/alice/photos/none").status_code == 404
    assert photos.get("/data/alice/photos").status_code == 405


def test_delete_of_files_folders_and_whole_datasets(photos, service):
    for name in ("a/x", "a/y", "b"):
        assert photos.put(f"/data/alice/photos/{name}", data=b"12345").status_code == 201
    assert photos.delete("/data/alice/photos/a/x").status_code == 204
    assert (stored(), photos.delete("/data/alice/photos/a/x").status_code) == (10, 404)
    assert photos.delete("/data/alice/photos/a/").status_code == 204
    assert stored() == 5
    assert photos.delete("/data/alice/photos").status_code == 204
    assert (stored(), service.path("alice", "photos").exists()) == (0, False)
    assert photos.dataset("photos")["state"] == "creating"
    photos.heartbeat("photos", "error", 0)
    gone = photos.delete("/data/alice/photos")
    assert (gone.status_code, gone.json()["state"]) == (200, "deleting")
    assert photos.delete("/data/alice/photos").status_code == 409
    assert photos.delete("/data/alice/.home").status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/data/alice/photos/../../../x", "/data/alice/photos/%2e%2e/%2e%2e/x", "/data/alice/photos/a%2fb",
     "/data/alice/photos//x", "/data/alice/photos/a%00", "/data/alice/photos/%ff",
     "/data/alice/photos/./x", "/data/../data/alice/photos/x",
     "/data/alice/photos/" + "a" * 256, "/data/alice/photos/%0d%0ax", "/data/alice/photos/%252e%252e%2f"],
)  # fmt: skip
@pytest.mark.parametrize("method", few(["PUT", "GET", "DELETE", "MKCOL"], 2))
def test_path_traversal_is_refused(photos, service, path, method):
    before = _stored(service)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=LIMIT_S)
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.putheader("Authorization", f"Bearer {photos.token}")
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    assert status in {400, 403, 404}
    wait_until(lambda: _stored(service) == before)


def _stored(service) -> list[str]:
    """Return all files but those in which the servers' processes count their answers, from the first one on."""
    paths = map(str, service.folder.parent.rglob("*"))
    return sorted(path for path in paths if not path.startswith(str(service.root / "run" / "metrics")))


@pytest.mark.parametrize("method", ["PUT", "GET", "PROPFIND"])
@pytest.mark.parametrize("length", [100, 200_000])
@pytest.mark.parametrize(
    "long", few(["path", "Authorization", "Cookie", "X-Other", "Repr-Digest", "If-None-Match", "Depth"], 3)
)
def test_too_long_names_are_client_errors(photos, service, long, method, length):
    headers, path = {"Content-Length": str(length)}, "/data/alice/photos/x"
    if long == "path":
        path += "x/" * 10_000 + "x"
    else:
        headers[long] = "x" * 20_000
    body = b"x" * length if method == "PUT" else None
    status = photos.request(
        method, path, data=body, headers=headers if body else {long: headers.get(long, "")}
    ).status_code
    assert status < 500


def test_links_are_never_followed(alice_data, service, tmp_path):
    (tmp_path / "secret").write_text("secret")
    home = service.path("alice", ".home")
    home.mkdir(parents=True)
    (home / "folder").symlink_to(tmp_path)
    (home / "file").symlink_to(tmp_path / "secret")
    assert alice_data.get("/data/alice/.home/folder/secret").status_code == 404
    assert alice_data.get("/data/alice/.home/file").status_code == 404
    assert alice_data.put("/data/alice/.home/folder/new", data=b"x").status_code == 409
    assert alice_data.delete("/data/alice/.home/folder/secret").status_code == 404
    assert alice_data.put("/data/alice/.home/file", data=b"mine").status_code == 204
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret"]
    assert (tmp_path / "secret").read_text() == "secret"
    assert (home / "file").read_text() == "mine"
    assert "secret" not in alice_data.request("PROPFIND", "/data/alice/.home", headers={"Depth": "infinity"}).text


def test_files_and_folders_do_not_replace_each_other(photos):
    photos.put("/data/alice/photos/a/b", data=b"x")
    assert photos.put("/data/alice/photos/a", data=b"x").status_code == 405
    assert photos.put("/data/alice/photos/a/b/c", data=b"x").status_code == 409
    assert photos.put("/data/alice/photos/a/", data=b"x").status_code == 405
    assert photos.put("/data/alice/photos", data=b"x").status_code == 405
    assert photos.put("/data/alice", data=b"x").status_code == 405
    assert stored() == 1


def test_unknown_methods_are_answered_with_the_allowed_ones(photos):
    answer = photos.request("PATCH", "/data/alice/photos/x", data=b"x")
    assert (answer.status_code, "PUT" in answer.headers["Allow"]) == (405, True)


def test_a_webdav_client_can_browse(photos):
    options = photos.options("/data/")
    assert options.headers["DAV"] == "1, 2"
    assert {"PUT", "PROPFIND", "MKCOL", "MOVE", "COPY"} <= set(options.headers["Allow"].split(", "))
    photos.put("/data/alice/photos/ü/x y.txt", data=b"123")

    def listing(path, depth):
        answer = photos.request("PROPFIND", path, headers={"Depth": depth})
        assert answer.status_code == 207, answer.text
        return [response.findtext(f"{DAV}href") for response in ElementTree.fromstring(answer.content)]

    assert listing("/data/", "1") == ["/data/", "/data/alice/"]
    assert listing("/data/alice/", "1") == ["/data/alice/", "/data/alice/.home/", "/data/alice/photos/"]
    assert listing("/data/alice/photos", "0") == ["/data/alice/photos/"]
    wanted = ["/data/alice/photos/", "/data/alice/photos/%C3%BC/", "/data/alice/photos/%C3%BC/x%20y.txt"]
    assert listing("/data/alice/photos", "infinity") == wanted
    assert photos.request("PROPFIND", "/data/alice", headers={"Depth": "infinity"}).status_code == 403
    assert photos.request("PROPFIND", "/data/alice/photos/none").status_code == 404
    typed = '<!DOCTYPE d:propfind [<!ENTITY b "c">]><d:propfind xmlns:d="DAV:"><d:prop><b>&b;</b></d:prop></d:propfind>'
    for body in (b"<x", b"<x/>", typed.encode(), typed.encode("utf-16"), b"\xef\xbb\xbf" + typed.encode()):
        assert photos.request("PROPFIND", "/data/alice/photos", data=body).status_code == 400


def test_mkcol_move_and_copy(photos, service):
    def do(method, source, to="", **headers):
        if to:
            headers["Destination"] = service.url + to
        return photos.request(method, source, headers=headers).status_code

    base = "/data/alice/photos"
    assert do("MKCOL", f"{base}/d") == 201
    assert (do("MKCOL", f"{base}/d"), do("MKCOL", f"{base}/no/d"), do("MKCOL", base)) == (405, 409, 405)
    assert do("MKCOL", "/data/alice/fresh") == 403
    photos.put(f"{base}/x", data=b"x" * 30)
    assert do("MOVE", f"{base}/x", f"{base}/d/y") == 201
    assert (do("MOVE", f"{base}/x", f"{base}/z"), do("MOVE", f"{base}/d/y", f"{base}/no/z")) == (404, 409)
    assert do("COPY", f"{base}/d/y", f"{base}/y") == 201
    assert do("COPY", f"{base}/d/y", f"{base}/y", Overwrite="F") == 412
    assert do("COPY", f"{base}/d/y", f"{base}/y") == 204
    assert stored() == 60
    assert do("COPY", f"{base}/d", f"{base}/e") == 201
    assert (stored(), do("COPY", f"{base}/d", f"{base}/f")) == (90, 413)
    assert do("MOVE", f"{base}/d", f"{base}/d/in") == 409
    assert (do("COPY", f"{base}/d/y", base), do("MOVE", f"{base}/d", f"{base}/d")) == (403, 403)
    assert do("MOVE", f"{base}/d", "/data/alice/.home/d") == 201
    assert (stored(), service.path("alice", ".home", "d", "y").stat().st_size) == (60, 30)
    assert do("MOVE", f"{base}/e", "/data/bob/.home/e") == 404
    assert (do("MOVE", f"{base}/e"), do("MOVE", f"{base}/e", "/elsewhere")) == (400, 400)
    wait_until(lambda: service.spooled() == [])


def test_a_dataset_in_the_trash_is_not_served(photos, staff_data):
    photos.put("/data/alice/photos/a", data=b"x" * 100)
    photos.heartbeat("photos", "ready", 100)
    assert photos.delete("/api/v1/users/alice/datasets/photos?trash=1").status_code == 200
    for person in (photos, staff_data):
        for method in ("GET", "PROPFIND", "DELETE", "PUT"):
            assert person.request(method, "/data/alice/photos/a").status_code == 404, method
        assert person.request("DELETE", "/data/alice/photos").status_code == 404
        assert "photos" not in person.request("PROPFIND", "/data/alice", headers={"Depth": "1"}).text
    given = {"kind": "dataset", "name": "photos"}
    assert photos.put("/api/v1/users/alice/trash:restore", json=given).status_code == 200
    assert photos.get("/data/alice/photos/a").content == b"x" * 100
