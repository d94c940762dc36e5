"""The data service through a real nginx and a real gunicorn: what clients of `/data/…` rely on (contract 3, 11)."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from xml.etree import ElementTree

import pytest
import requests

from accounts import lifecycle as accounts
from datasets import webdav
from datasets.models import Dataset
from datasets.tests.live import alice_there, bob_there, servers, service, staff_there  # noqa: F401 (fixtures)

DAV = "{DAV:}"


@pytest.fixture
def photos(alice_there):  # noqa: F811
    """Alice's dataset `photos` of 100 declared bytes."""
    alice_there.create("photos", 100)
    return alice_there


def stored(name: str = "photos") -> int:
    return Dataset.objects.get(name=name).stored


def raw(service, request: bytes, wait_s: float = 3.0) -> bytes:  # noqa: F811
    """Sends the bytes as they are; what comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", service.port), wait_s) as sock:
        sock.sendall(request)
        sock.settimeout(wait_s)
        came = b""
        try:
            while block := sock.recv(65536):
                came += block
                if b"\r\n\r\n" in came and came.endswith(b"}"):
                    break
        except TimeoutError:
            pass
        return came


def test_an_upload_is_created_then_replaced_and_accounted_exactly(photos, service):  # noqa: F811
    assert photos.put("/data/alice/photos/a/b.txt", data=b"x" * 60).status_code == 201
    assert (stored(), service.path("alice", "photos", "a", "b.txt").read_bytes()) == (60, b"x" * 60)
    assert photos.put("/data/alice/photos/a/b.txt", data=b"y" * 100).status_code == 204
    assert (stored(), service.path("alice", "photos", "a", "b.txt").read_bytes()) == (100, b"y" * 100)
    assert photos.put("/data/alice/photos/a/b.txt", data=b"z").status_code == 204
    assert stored() == 1
    assert service.spooled() == []


@pytest.mark.parametrize("body", [b"", iter([]), iter([b"chunk", b"", b"ed" * 20])])
def test_empty_and_chunked_bodies_arrive(photos, service, body):  # noqa: F811
    wanted = 0 if not isinstance(body, bytes) and body.__length_hint__() == 0 else (0 if body == b"" else 45)
    assert photos.put("/data/alice/photos/x", data=body).status_code == 201
    assert service.path("alice", "photos", "x").stat().st_size == wanted


@pytest.mark.parametrize("name", ["中文 名.txt", "with space", "100%", "a?b#c", "0", "é", "e\u0301", "a&b;c='\"", "...", "[x]{y}"])
def test_names_of_every_kind_come_back_as_they_went(alice_there, service, name):  # noqa: F811
    path = "/data/alice/.home/" + requests.utils.quote(name, safe="")
    assert alice_there.put(path, data=name.encode()).status_code == 201
    assert service.path("alice", ".home", name).read_bytes() == name.encode()
    assert alice_there.get(path).content == name.encode()
    assert alice_there.delete(path).status_code == 204
    assert alice_there.get(path).status_code == 404


def test_more_than_the_declared_size_is_refused(photos):
    assert photos.put("/data/alice/photos/a", data=b"x" * 60).status_code == 201
    refusal = photos.put("/data/alice/photos/b", data=b"x" * 41)
    assert (refusal.status_code, "100 bytes" in refusal.json()["msg"]) == (413, True)
    assert photos.put("/data/alice/photos/b", data=iter([b"x" * 41])).status_code == 413
    assert photos.put("/data/alice/photos/b", data=b"x" * 40).status_code == 201
    assert stored() == 100


@pytest.mark.parametrize(
    ("headers", "code"), [("Content-Length: 999999999", 413), ("Content-Length: 101\r\nExpect: 100-continue", 413)]
)
def test_a_refused_upload_is_refused_before_its_body_is_sent(photos, service, headers, code):  # noqa: F811
    head = f"PUT /data/alice/photos/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {photos.token}\r\n{headers}\r\n\r\n"
    answer = raw(service, head.encode())
    assert answer.startswith(f"HTTP/1.1 {code} ".encode()), answer
    assert b'{"msg"' in answer
    assert service.spooled() == []


def test_a_welcome_upload_is_told_to_go_on(photos, service):  # noqa: F811
    head = f"PUT /data/alice/photos/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {photos.token}\r\n"
    assert raw(service, (head + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n").encode(), 1).startswith(
        b"HTTP/1.1 100 Continue"
    )


def test_who_may(photos, bob_there, staff_there, service):  # noqa: F811
    url = service.url + "/data/alice/photos/x"
    nobody = requests.put(url, data=b"x")
    assert (nobody.status_code, nobody.headers["WWW-Authenticate"].startswith("Basic")) == (401, True)
    assert requests.get(service.url + "/data/alice/.home/x").status_code == 401
    assert requests.put(url, data=b"x", headers={"Authorization": "Bearer nonsense"}).status_code == 401
    assert requests.put(url, data=b"x", auth=("alice", photos.token)).status_code == 201
    assert requests.put(url, data=b"x", auth=("bob", photos.token)).status_code == 401
    assert requests.put(url, data=b"x", auth=("alice", "correct horse battery")).status_code == 401
    assert bob_there.put("/data/alice/photos/x", data=b"x").status_code == 404
    assert bob_there.put("/data/alice/photos/x", data=b"x").text == bob_there.put("/data/alice/none/x", data=b"").text
    assert bob_there.request("PROPFIND", "/data/alice").status_code == 404
    assert bob_there.delete("/data/alice/photos").status_code == 404
    assert staff_there.put("/data/alice/photos/x", data=b"xy").status_code == 204
    assert staff_there.put("/data/nobody/.home/x", data=b"xy").status_code == 404


def test_a_dead_token_opens_nothing(alice_there, alice):  # noqa: F811
    assert alice_there.put("/data/alice/.home/x", data=b"x").status_code == 201
    accounts.rotate_token(user=alice, by="alice")
    assert alice_there.put("/data/alice/.home/x", data=b"x").status_code == 401
    assert alice_there.get("/data/alice/.home/x").status_code == 401


def test_the_inner_addresses_are_closed(service, photos):  # noqa: F811
    for path in ("/internal/data/verb", "/internal/data/store", "/-data/files/alice/.home/x", "/-data/put", "/-data/may"):
        assert photos.get(path).status_code == 404, path
        assert photos.put(path, data=b"x", headers={"X-Internal-Key": "guess"}).status_code == 404, path
    direct = f"http://127.0.0.1:{service.web_port}/internal/data/store"
    headers = {"X-Data-Uri": "/data/alice/photos/x", "X-Data-File": "/etc/passwd", **photos.headers}
    assert requests.post(direct, headers=headers).status_code == 404
    assert requests.post(direct, headers={**headers, "X-Internal-Key": "0" * 64}).status_code == 404


def test_a_forged_header_does_not_reach_the_application(photos, service):  # noqa: F811
    headers = {"X-Data-File": "/etc/passwd", "X-Data-Uri": "/data/alice/.home/y", "X-Data-Length": "1"}
    assert photos.put("/data/alice/photos/x", data=b"mine", headers=headers).status_code == 201
    assert service.path("alice", "photos", "x").read_bytes() == b"mine"


def test_what_is_ready_is_given_out_and_changes_no_more(photos):
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


def test_a_wrong_checksum_is_refused_and_a_right_one_kept(alice_there):  # noqa: F811
    wrong = {"Repr-Digest": "sha-256=:" + "A" * 43 + "=:"}
    assert alice_there.put("/data/alice/.home/x", data=b"abc", headers=wrong).status_code == 400
    right = {"Repr-Digest": "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:"}
    assert alice_there.put("/data/alice/.home/x", data=b"abc", headers=right).status_code == 201
    assert alice_there.get("/data/alice/.home/x").headers["Repr-Digest"] == right["Repr-Digest"]
    alice_there.put("/data/alice/.home/x", data=b"abd")
    assert "Repr-Digest" not in alice_there.get("/data/alice/.home/x").headers


def test_delete_of_files_folders_and_whole_datasets(photos, service):  # noqa: F811
    for name in ("a/x", "a/y", "b"):
        assert photos.put(f"/data/alice/photos/{name}", data=b"12345").status_code == 201
    assert photos.delete("/data/alice/photos/a/x").status_code == 204
    assert (stored(), photos.delete("/data/alice/photos/a/x").status_code) == (10, 404)
    assert photos.delete("/data/alice/photos/a/").status_code == 204
    assert stored() == 5
    assert photos.delete("/data/alice/photos").status_code == 204
    assert (stored(), service.path("alice", "photos").exists(), service.spooled()) == (0, False, [])
    assert photos.dataset("photos")["state"] == "creating"
    photos.heartbeat("photos", "error", 0)
    gone = photos.delete("/data/alice/photos")
    assert (gone.status_code, gone.json()["state"]) == (200, "deleting")
    assert photos.delete("/data/alice/photos").status_code == 409
    assert photos.delete("/data/alice/.home").status_code == 403


def test_the_home_has_its_limit(alice_there):  # noqa: F811
    assert alice_there.put("/data/alice/.home/big", data=b"x" * (8 << 20)).status_code == 201
    refusal = alice_there.put("/data/alice/.home/more", data=b"x")
    assert (refusal.status_code, "full" in refusal.json()["msg"]) == (507, True)
    assert alice_there.put("/data/alice/.home/big", data=b"x" * (4 << 20)).status_code == 204
    assert alice_there.put("/data/alice/.home/more", data=b"x").status_code == 201


@pytest.mark.parametrize(
    "path",
    ["/data/alice/photos/../../../x", "/data/alice/photos/%2e%2e/%2e%2e/x", "/data/alice/photos/a%2fb", "/data/alice/photos//x",
     "/data/alice/photos/a%00", "/data/alice/photos/%ff", "/data/alice/photos/./x", "/data/../data/alice/photos/x",
     "/data/alice/photos/" + "a" * 256, "/data/alice/photos/%0d%0ax", "/data/alice/photos/%252e%252e%2f"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE", "MKCOL"])
def test_tricks_in_paths_touch_nothing(photos, service, path, method):  # noqa: F811
    before = sorted(map(str, service.folder.parent.rglob("*")))
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.putheader("Authorization", f"Bearer {photos.token}")
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    assert status in {400, 404}
    assert sorted(map(str, service.folder.parent.rglob("*"))) == before


def test_links_are_never_followed(alice_there, service, tmp_path):  # noqa: F811
    (tmp_path / "secret").write_text("secret")
    home = service.path("alice", ".home")
    home.mkdir(parents=True)
    (home / "folder").symlink_to(tmp_path)
    (home / "file").symlink_to(tmp_path / "secret")
    assert alice_there.get("/data/alice/.home/folder/secret").status_code == 404
    assert alice_there.get("/data/alice/.home/file").status_code == 404
    assert alice_there.put("/data/alice/.home/folder/new", data=b"x").status_code == 409
    assert alice_there.delete("/data/alice/.home/folder/secret").status_code == 404
    assert alice_there.put("/data/alice/.home/file", data=b"mine").status_code == 204
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret"]
    assert (tmp_path / "secret").read_text() == "secret"
    assert (home / "file").read_text() == "mine"
    assert "secret" not in alice_there.request("PROPFIND", "/data/alice/.home", headers={"Depth": "infinity"}).text


def test_files_and_folders_do_not_take_each_others_place(photos):
    photos.put("/data/alice/photos/a/b", data=b"x")
    assert photos.put("/data/alice/photos/a", data=b"x").status_code == 405
    assert photos.put("/data/alice/photos/a/b/c", data=b"x").status_code == 409
    assert photos.put("/data/alice/photos/a/", data=b"x").status_code == 405
    assert photos.put("/data/alice/photos", data=b"x").status_code == 405
    assert photos.put("/data/alice", data=b"x").status_code == 405
    assert stored() == 1


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"Content-Range": "bytes 0-0/1"}, 400), ({"Content-Encoding": "gzip"}, 415), ({"If-None-Match": "*"}, 412)],
)
def test_uploads_that_would_not_mean_what_they_say(photos, headers, code):
    photos.put("/data/alice/photos/x", data=b"x")
    assert photos.put("/data/alice/photos/x", data=b"y", headers=headers).status_code == code


def test_unknown_methods_are_told_what_is_known(photos):
    answer = photos.request("PATCH", "/data/alice/photos/x", data=b"x")
    assert (answer.status_code, "PUT" in answer.headers["Allow"]) == (405, True)


def test_parallel_uploads_never_pass_the_declared_size(photos, alice, service):  # noqa: F811
    codes = []

    def put(number):
        url = f"{service.url}/data/alice/photos/{number}"
        codes.append(requests.put(url, data=b"x" * 30, headers=dict(photos.headers)).status_code)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(12)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(set(codes)) == [201, 413]
    assert codes.count(201) == 3
    assert stored() == 90 == sum(path.stat().st_size for path in service.path("alice", "photos").iterdir())


def test_a_reader_never_sees_half_a_file(alice_there, service):  # noqa: F811
    bodies = [letter * 3_000_000 for letter in (b"a", b"b")]
    alice_there.put("/data/alice/.home/x", data=bodies[0])
    done, seen = threading.Event(), set()

    def read():
        while not done.is_set():
            answer = requests.get(service.url + "/data/alice/.home/x", headers=dict(alice_there.headers))
            seen.add((answer.status_code, len(answer.content), answer.content[:1], answer.content[-1:]))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(20):
        assert alice_there.put("/data/alice/.home/x", data=bodies[number % 2]).status_code == 204
    done.set()
    thread.join()
    assert seen <= {(200, 3_000_000, b"a", b"a"), (200, 3_000_000, b"b", b"b")}


def test_a_broken_off_upload_leaves_nothing(photos, service):  # noqa: F811
    head = f"PUT /data/alice/photos/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {photos.token}\r\nContent-Length: 90\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sock:
        sock.sendall(head.encode() + b"\r\n" + b"x" * 50)
        time.sleep(0.3)
    time.sleep(0.3)
    assert (service.spooled(), stored(), service.path("alice", "photos", "x").exists()) == ([], 0, False)


def test_a_killed_nginx_leaves_a_spool_file_that_is_swept(alice_there, service, settings):  # noqa: F811
    head = f"PUT /data/alice/.home/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice_there.token}\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sock:
        sock.sendall(head.encode() + b"Content-Length: 4000000\r\n\r\n" + b"x" * 3_000_000)
        time.sleep(0.5)
        assert len(service.spooled()) == 1
        service.stop(service.nginx)
    service.start_nginx()
    assert len(service.spooled()) == 1
    settings.MLP_ROOT = service.root
    assert webdav.sweep_spool(0) == 0
    os.utime(service.spooled()[0], (1, 1))
    assert webdav.sweep_spool(0) == 1
    assert service.spooled() == []
    assert alice_there.put("/data/alice/.home/x", data=b"x").status_code == 201


def test_a_dead_application_is_a_fault_told_as_503(photos, service):  # noqa: F811
    service.stop(service.web)
    try:
        assert photos.put("/data/alice/photos/x", data=b"x").status_code == 503
        assert photos.get("/data/alice/.home/x").status_code == 503
        assert service.spooled() == []
    finally:
        service.start_web()
    assert photos.put("/data/alice/photos/x", data=b"x").status_code == 201


def test_a_vanished_spool_comes_back(photos, service):  # noqa: F811
    service.path(".spool").rmdir()
    assert photos.put("/data/alice/photos/x", data=b"x").status_code == 201


def test_an_upload_is_a_sign_of_life(photos):
    Dataset.objects.update(touched="2020-01-01T00:00Z")
    photos.put("/data/alice/photos/x", data=b"x")
    assert Dataset.objects.get().touched.year > 2020


def test_a_webdav_client_finds_its_way(photos):
    options = photos.options("/data/")
    assert options.headers["DAV"] == "1"
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
    for body in (b"<x", b"<x/>", b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'):
        assert photos.request("PROPFIND", "/data/alice/photos", data=body).status_code == 400


def test_mkcol_move_and_copy(photos, service):  # noqa: F811
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
    assert (do("MOVE", f"{base}/d", f"{base}/d/in"), do("COPY", f"{base}/d/y", base), do("MOVE", f"{base}/d", f"{base}/d")) == (
        409, 403, 403,
    )  # fmt: skip
    assert do("MOVE", f"{base}/d", "/data/alice/.home/d") == 201
    assert (stored(), service.path("alice", ".home", "d", "y").stat().st_size) == (60, 30)
    assert do("MOVE", f"{base}/e", "/data/bob/.home/e") == 404
    assert (do("MOVE", f"{base}/e"), do("MOVE", f"{base}/e", "/elsewhere")) == (400, 400)
    assert service.spooled() == []


def test_a_large_upload_costs_no_memory(alice_there, service):  # noqa: F811
    alice_there.create("big", 300 << 20)
    block = b"\0" * (1 << 20)

    class Body:
        def __len__(self):
            return 300 << 20

        def __iter__(self):
            return (block for _ in range(300))

    assert alice_there.put("/data/alice/big/x", data=Body()).status_code == 201
    assert _peak(service.nginx.pid) < 60 << 20
    assert service.path("alice", "big", "x").stat().st_size == 300 << 20
    service.path("alice", "big", "x").unlink()


def _peak(pid: int) -> int:
    """The largest peak of resident memory among the process and its children."""
    peak = 0
    for task in [pid, *map(int, open(f"/proc/{pid}/task/{pid}/children").read().split())]:
        for line in open(f"/proc/{task}/status"):
            if line.startswith("VmHWM"):
                peak = max(peak, int(line.split()[1]) << 10)
    return peak


