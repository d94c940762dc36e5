"""Locks and properties of the data service, and an ordinary WebDAV client: rclone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from accounts import lifecycle as accounts
from datasets import lifecycle as datasets
from datasets.models import Dataset, Lock
from datasets.tests.live import stored

LOCK = (
    '<?xml version="1.0"?><lockinfo xmlns="DAV:"><lockscope><{}/></lockscope><locktype><write/></locktype>'
    "<owner>a &lt;b&gt; c</owner></lockinfo>"
)
HOME = "/data/alice/.home"
RCLONE = shutil.which("rclone", path=str(Path(sys.executable).parent))


def lock(person, path: str, scope: str = "exclusive", **headers):
    return person.request("LOCK", path, data=LOCK.format(scope), headers=headers)


def test_only_the_lock_token_permits_writing(photos, service):
    photos.put("/data/alice/photos/a/x", data=b"1")
    answer = lock(photos, "/data/alice/photos/a/x", Timeout="Second-100")
    token = answer.headers["Lock-Token"]
    assert (answer.status_code, "a &lt;b&gt; c" in answer.text, "infinity" in answer.text) == (200, True, True)
    shown = {"If": f"({token})"}
    for method, path in (("PUT", "a/x"), ("DELETE", "a/x"), ("DELETE", "a"), ("MOVE", "a/x"), ("PROPPATCH", "a/x")):
        body = "<propertyupdate xmlns='DAV:'/>" if method == "PROPPATCH" else b"2" if method == "PUT" else None
        headers = {"Destination": "/data/alice/photos/y"}
        refused = photos.request(method, f"/data/alice/photos/{path}", data=body, headers=headers)
        assert (refused.status_code, "locked by alice" in refused.json()["msg"]) == (423, True), method
    assert photos.put("/data/alice/photos/a/big", data=b"2" * 50).status_code == 201
    assert photos.put("/data/alice/photos/a/x", data=b"2", headers=shown).status_code == 204
    assert photos.request("UNLOCK", "/data/alice/photos/a/x", headers={"Lock-Token": token}).status_code == 204
    assert photos.put("/data/alice/photos/a/x", data=b"3").status_code == 204
    assert (service.path("alice", "photos", "a", "x").read_bytes(), stored()) == (b"3", 51)


def test_a_folder_lock_covers_its_contents_and_expires(alice_data):
    alice_data.request("MKCOL", HOME + "/f")
    token = lock(alice_data, HOME + "/f").headers["Lock-Token"]
    assert alice_data.put(HOME + "/f/x", data=b"x").status_code == 423
    assert alice_data.put(HOME + "/f/x", data=b"x" * 200_000).status_code == 423
    assert lock(alice_data, HOME + "/f/x").status_code == 423
    renewed = alice_data.request("LOCK", HOME + "/f", headers={"If": f"({token})", "Timeout": "Second-9999999"})
    assert (renewed.status_code, "Second-3" in renewed.text) == (200, True)
    Lock.objects.update(expires="2020-01-01T00:00Z")
    assert alice_data.put(HOME + "/f/x", data=b"x").status_code == 201
    assert lock(alice_data, HOME + "/f/x", "shared").status_code == 200
    assert lock(alice_data, HOME + "/f/x", "shared").status_code == 200
    assert lock(alice_data, HOME + "/f/x").status_code == 423


def test_a_depth_0_lock_does_not_cover_file_contents(alice_data, staff_data):
    """RFC 4918, 7.5: with depth 0 the folder's members are locked, not the contents of its files."""
    assert alice_data.request("MKCOL", HOME + "/f").status_code == 201
    assert alice_data.put(HOME + "/f/x", data=b"1").status_code == 201
    token = lock(alice_data, HOME + "/f", Depth="0").headers["Lock-Token"]
    assert lock(staff_data, HOME + "/f/x").status_code == 200
    assert lock(staff_data, HOME + "/f").status_code == 423
    assert lock(alice_data, HOME + "/f", Depth="0").status_code == 423
    refused = alice_data.put(HOME + "/f/x", data=b"2", headers={"If": f"</data/alice/.home/f> ({token})"})
    assert (refused.status_code, "locked by oscar" in refused.text) == (423, True)


def test_a_lock_ends_with_its_dataset_and_its_owner(photos, alice, bob):
    old = Dataset.objects.get(name="photos")
    assert lock(photos, "/data/alice/photos").status_code == 200
    ends = Lock.objects.get().expires
    bobs = {"user": bob, "holder": "bob", "dataset": "photos"}
    Lock.objects.create(token="urn:uuid:1", expires=ends, exclusive=True, deep=True, **bobs)
    photos.heartbeat("photos", "error", 0)
    assert photos.delete("/api/v1/users/alice/datasets/photos").status_code == 200
    datasets.erase(old.pk)
    photos.create("photos", 100)
    assert photos.put("/data/alice/photos/x", data=b"x").status_code == 201
    assert Lock.objects.get().user == bob
    assert lock(photos, HOME + "/x").status_code == 201
    accounts.deregister(username="alice", by="alice")
    assert Lock.objects.get().user == bob


def test_another_users_lock_token_is_refused(alice_data, staff_data):
    token = lock(alice_data, HOME + "/new").headers["Lock-Token"]
    assert staff_data.put(HOME + "/new", data=b"x", headers={"If": f"({token})"}).status_code == 423
    assert lock(staff_data, "/data/alice").status_code == 403
    assert alice_data.request("UNLOCK", HOME + "/new", headers={"Lock-Token": "<urn:uuid:0>"}).status_code == 409


@pytest.mark.parametrize(
    ("header", "code"),
    [("(<urn:uuid:0>)", 412), ("(Not <urn:uuid:0>)", 204), ("nonsense", 400), ("(", 400), ('(["0-0"])', 412)],
)
def test_the_conditions_of_the_if_header_must_hold(alice_data, header, code):
    alice_data.put(HOME + "/x", data=b"x")
    assert alice_data.put(HOME + "/x", data=b"y", headers={"If": header}).status_code == code


def test_if_match_prevents_lost_updates(alice_data):
    alice_data.put(HOME + "/x", data=b"x")
    tag = alice_data.get(HOME + "/x").headers["ETag"]
    assert alice_data.put(HOME + "/x", data=b"yy", headers={"If-Match": tag}).status_code == 204
    assert alice_data.put(HOME + "/x", data=b"z", headers={"If-Match": tag}).status_code == 412
    assert alice_data.put(HOME + "/none", data=b"z", headers={"If-Match": "*"}).status_code == 412


def test_properties_follow_the_file(alice_data):
    alice_data.put(HOME + "/x", data=b"x")
    patch = "<propertyupdate xmlns='DAV:' xmlns:z='urn:z'><set><prop><z:a>1 &amp; 2</z:a></prop></set></propertyupdate>"
    assert "200 OK" in alice_data.request("PROPPATCH", HOME + "/x", data=patch).text
    alice_data.put(HOME + "/x", data=b"other bytes")
    alice_data.request("COPY", HOME + "/x", headers={"Destination": HOME + "/y"})
    alice_data.request("MOVE", HOME + "/x", headers={"Destination": HOME + "/z"})
    for name in ("y", "z"):
        properties = ElementTree.fromstring(
            alice_data.request("PROPFIND", f"{HOME}/{name}", headers={"Depth": "0"}).text
        )
        assert properties.findtext(".//{urn:z}a") == "1 & 2"
    patch = patch.replace("<z:a>1 &amp; 2</z:a>", "<getetag>1</getetag><z:b/>")
    answer = alice_data.request("PROPPATCH", HOME + "/y", data=patch)
    assert (answer.status_code, "403 Forbidden" in answer.text, "424 Failed" in answer.text) == (207, True, True)
    huge = patch.replace("<getetag>1</getetag><z:b/>", f"<z:b>{'x' * 4000}</z:b>")
    assert alice_data.request("PROPPATCH", HOME + "/y", data=huge).status_code == 507


DEEP = "<a>" * 3000 + "</a>" * 3000


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("PROPPATCH", f"<propertyupdate xmlns='DAV:'><set><prop>{DEEP}</prop></set></propertyupdate>"),
        ("LOCK", LOCK.format("exclusive").replace("<owner>", f"<owner>{DEEP}")),
        ("PROPFIND", f"<propfind xmlns='DAV:'><prop>{DEEP}</prop></propfind>"),
    ],
)
def test_a_document_that_is_too_deep_is_refused(alice_data, method, body):
    alice_data.put(HOME + "/x", data=b"x")
    answer = alice_data.request(method, HOME + "/x", data=body)
    assert (answer.status_code, "more than 100 deep" in answer.text) == (400, True)
    assert alice_data.request(method, HOME + "/x", data=body.replace(DEEP, "<a><b/></a>")).status_code in (200, 207)


def rclone(person, *arguments: str) -> str:
    """Run rclone with `dav:` as the user's files, without the machine's configuration."""
    command = [RCLONE, "--config", "/dev/null", "--retries", "1", "--webdav-url", f"{person.service.url}/data/alice/"]
    done = subprocess.run(
        [*command, "--webdav-bearer-token", person.token, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(RCLONE is None, reason="rclone has no wheel for this kind of machine")
def test_rclone_copies_there_and_back(alice_data, tmp_path, service):
    names = ["plain.txt", "with space/ü 文件.bin", "100% #1?.csv", "empty"]
    total = 0
    for number, name in enumerate(names):
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * number * 20_000)
        total += path.stat().st_size
    alice_data.create("photos", total)
    rclone(alice_data, "copy", str(tmp_path / "from"), ":webdav:photos")
    assert stored() == total
    assert set(rclone(alice_data, "lsf", "-R", "--files-only", ":webdav:photos").splitlines()) == set(names)
    rclone(alice_data, "moveto", ":webdav:photos/plain.txt", ":webdav:photos/sub/moved.txt")
    assert alice_data.heartbeat("photos", "ready", 100).status_code == 200
    rclone(alice_data, "copy", ":webdav:photos", str(tmp_path / "to"))
    (tmp_path / "to" / "sub" / "moved.txt").rename(tmp_path / "to" / "plain.txt")
    for name in names:
        assert (tmp_path / "to" / name).read_bytes() == (tmp_path / "from" / name).read_bytes()
    assert rclone(alice_data, "cat", "--offset", "3", "--count", "5", f":webdav:photos/{names[1]}") == names[1][3:8]
