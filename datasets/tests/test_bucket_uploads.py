"""Uploads to external datasets by presigned addresses, which are sent to a real S3 server: rclone's."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import hashlib
import http.client
import re
from base64 import b64encode
from datetime import datetime
from email.message import Message
from urllib.parse import urlsplit

import pytest

from accounts.tenancy import members
from datasets.buckets import manifests, rows, signing
from datasets.models import Dataset
from datasets.tests.test_buckets import DATASETS, ODD, bucket, objects, remote  # noqa: F401
from datasets.tests.test_exports import SIGNED
from datasets.tests.test_external import external  # noqa: F401
from operations.backup.tests.conftest import s3  # noqa: F401
from resources import tenants

pytestmark = pytest.mark.django_db(transaction=True)
UPLOADS = f"{DATASETS}/cats/uploads"
MIB = 1 << 20


@pytest.fixture
def writable(bucket):
    rows.change(bucket, by="root", access="write", everybody=True)
    return bucket


@pytest.fixture
def cats(external, writable) -> dict:
    return external({"a.csv": b"x\n1\n", "deep/er/b.bin": b"b"})


@pytest.fixture
def ask(as_alice):
    """Ask for the addresses of files, given as paths and sizes."""

    def asked(**sizes: int) -> list[dict]:
        answer = as_alice.call("post", UPLOADS, {"files": [{"path": k, "size": v} for k, v in sizes.items()]})
        assert answer.status_code == 200, answer.content
        assert answer.json()["expires"] == 300
        return answer.json()["files"]

    return asked


def send(method: str, address: str, body: bytes | None = None, **headers: str) -> tuple[int, str, Message]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request(
        method, f"{parts.path}?{parts.query}", body, {k.replace("_", "-"): v for k, v in headers.items()}
    )
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def typed(file: dict) -> dict[str, str]:
    return {"Content_Type": file["type"]} if file["type"] else {}


def test_files_are_put_to_the_bucket_and_a_refresh_lists_them(as_alice, cats, ask, remote, tasks):
    contents = {
        **{f"odd/{name}": name.encode() for name in (*ODD, SIGNED)},
        "empty": b"",
        "a.csv": b"y\n22\n",
        "ü/ein bild.png": b"2",
    }
    for file in ask(**{path: len(content) for path, content in contents.items()}):
        assert (file["reason"], file["part"], file["key"]) == ("", 0, f"train/{file['path']}")
        there = send("HEAD", file["head"])
        size = there[2].get("Content-Length") if there[0] == 200 else None
        assert (there[0], size) == ((200, "4") if file["path"] == "a.csv" else (404, None))
        assert send("PUT", file["put"], contents[file["path"]], **typed(file))[0] == 200
    as_alice.call("put", f"{DATASETS}/cats:refresh", {})
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/cats").json()
    assert (row["version"], row["size"]) == (2, sum(map(len, contents.values())) + 1)
    for path, content in contents.items():
        assert bytes(remote.get(f"train/{path}").bytes()) == content


def test_an_address_takes_one_file_of_one_length_for_a_few_minutes(cats, ask, remote, monkeypatch):
    [file] = ask(new=4)
    for body in (b"abc", b"abcde", b""):
        status, said, _headers = send("PUT", file["put"], body)
        assert (status, "SignatureDoesNotMatch" in said) == (403, True)
    assert send("PUT", file["put"].replace("new", "a.csv"), b"abcd")[0] == 403
    assert send("DELETE", file["put"])[0] == 403
    assert send("PUT", file["head"], b"abcd")[0] == 403
    wrong = b64encode(hashlib.md5(b"abce").digest()).decode()
    assert "BadDigest" in send("PUT", file["put"], b"abcd", Content_MD5=wrong)[1]
    assert "the-secret" not in str(file)

    class Before(datetime):
        @classmethod
        def now(cls, zone):
            return datetime(2026, 1, 1, tzinfo=zone)

    with monkeypatch.context() as patch:
        patch.setattr(signing, "datetime", Before)
        status, said, _headers = send("PUT", ask(new=4)[0]["put"], b"abcd")
    assert (status, "AccessDenied" in said) == (400, True)  # S3 has 403
    assert [entry["path"] for batch in remote.list("train") for entry in batch] == [
        "train/a.csv",
        "train/deep/er/b.bin",
    ]


@pytest.mark.parametrize("prefix", [pytest.param("", marks=pytest.mark.long), "ein ordner/x+y"])
def test_a_large_file_is_sent_in_parts_and_an_unfinished_upload_is_found(
    as_alice, bucket, writable, remote, tasks, prefix
):
    """The addresses also ask the bucket which parts it has."""
    rows.change(bucket, by="root", access="write", everybody=True, prefix=prefix)
    created = as_alice.call("post", DATASETS, {"name": "cats", "src": "s3/photos/train", "external": True})
    assert created.status_code == 201
    tasks.run()
    path, content = "grö ße.bin", bytes(range(256)) * 4 * 1024 * 8 + b"end"
    [file] = as_alice.call("post", UPLOADS, {"files": [{"path": path, "size": len(content)}]}).json()["files"]
    assert (file["part"], file["parts"], file["put"]) == (8 * MIB, 2, "")
    begun = send("POST", file["create"], **typed(file))[1]
    upload = re.search("<UploadId>(.*?)</UploadId>", begun)[1]
    assert upload in send("GET", file["find"])[1]
    asked = {"path": path, "size": len(content), "upload": upload, "numbers": [1, 2]}
    answer = as_alice.call("post", f"{UPLOADS}/parts", asked).json()
    assert [(part["number"], part["size"]) for part in answer["parts"]] == [(1, 8 * MIB), (2, 3)]
    tags = []
    for part in answer["parts"]:
        start = (part["number"] - 1) * file["part"]
        body = content[start : start + part["size"]]
        assert send("PUT", part["put"], b"x")[0] == 403
        tags.append(send("PUT", part["put"], body)[2]["ETag"])
    assert send("GET", answer["list"])[1].count("<Part>") == 2
    named = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in enumerate(tags, 1))
    body = f"<CompleteMultipartUpload>{named}</CompleteMultipartUpload>".encode()
    assert send("POST", answer["complete"], body)[0] == 200
    assert bytes(remote.get(file["key"]).bytes()) == content
    remote.delete(file["key"])


def test_the_good_part_of_a_batch_is_kept_and_each_refusal_says_why(as_alice, cats):
    wanted = {
        "../x": "must not have an empty part", "a//b": "must not have an empty part", "/a": "must be a relative path",
        "": "must be a relative path", "a\nb": "must not have control characters",
        "x" * 256: "each part must have at most 255 bytes", "d/" * 600 + "x": "more than 1024 bytes",
        "d/" * 100 + "x": "more than 100 deep", "deep/er": "is a folder of the dataset",
        "a.csv/x": "has a file a.csv, which cannot be a folder", "\x7f": "must not have control characters",
        "new": "", "new/x": "has a file new, which cannot be a folder",
    }  # fmt: skip
    files = [{"path": path, "size": 1} for path in wanted]
    files += [{"path": "new", "size": 1}, {"path": "negative", "size": -1}, {"path": "huge", "size": (5 << 40) + 1}]
    said = [*wanted.values(), "is named more than once", "0 to 5497558138880 bytes", "0 to 5497558138880 bytes"]
    answer = as_alice.call("post", UPLOADS, {"files": files})
    assert answer.status_code == 200, answer.content
    for file, reason in zip(answer.json()["files"], said, strict=True):
        assert reason in file["reason"], file
        assert (file["put"] != "") == (file["reason"] == "")
    assert answer.json()["files"][4]["path"] == "a\\x0ab"
    parts = {"path": "../x", "size": 1 << 30, "upload": "u", "numbers": [1]}
    assert as_alice.refused("post", f"{UPLOADS}/parts", parts).startswith("path: must not have an empty part")


REFUSED = [
    ("", {"files": []}, "files: must have 1 to 500 elements"),
    ("", {"files": [{"path": "a", "size": 1}] * 501}, "files: must have 1 to 500 elements"),
    ("", {"files": "a"}, "files: must be a list"),
    ("", {"files": [{"path": 1, "size": 1}]}, "path: must be a string"),
    ("", {"files": [{"path": "a", "size": "1"}]}, "size: must be a whole number"),
    ("", {"files": [{"path": "a", "size": 1, "url": ""}]}, "url: unknown field"),
    ("/parts", {"path": "a", "size": 5, "upload": "u", "numbers": [1]}, "size: a file of at most 8388608 bytes"),
    ("/parts", {"path": "a", "size": 9 * MIB, "upload": "u", "numbers": [3]}, "numbers: the file has 2 parts"),
    ("/parts", {"path": "a", "size": 9 * MIB, "upload": "a\n", "numbers": []}, "upload: must be the UploadId"),
    ("/parts", {"path": "a", "size": 9 * MIB, "upload": "u", "numbers": [0]}, "must be 1 to 10000"),
]


def test_a_request_that_cannot_be_is_refused(as_alice, cats):
    for call, body, problem in REFUSED:
        assert problem in as_alice.refused("post", f"{UPLOADS}{call}", body)


def test_only_who_may_write_the_bucket_and_owns_the_dataset_uploads(as_alice, as_bob, alice, cats, bucket, monkeypatch):
    body = {"files": [{"path": "new", "size": 1}]}
    assert "dataset" in as_bob.refused("post", UPLOADS, body)
    team = tenants.create(name="team", cpu=0, gpu=0, ram=0, rom=0, by="root")
    rows.change(bucket, by="root", everybody=False, tenants=[team])
    members.put(tenant="team", user="alice", role="viewer", by="root")
    assert "no bucket named photos that you may read" in as_alice.refused("post", UPLOADS, body)
    members.put(tenant="team", user="alice", role="member", by="root")
    assert as_alice.call("post", UPLOADS, body).status_code == 200
    rows.change(bucket, by="root", access="read", everybody=True)
    assert "the bucket photos is read-only" in as_alice.refused("post", UPLOADS, body)
    rows.change(bucket, by="root", access="write", everybody=True, signing="platform")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert "the bucket photos needs an access key of its own" in as_alice.refused("post", UPLOADS, body)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session/=")
    assert "X-Amz-Security-Token=session%2F%3D&" in as_alice.call("post", UPLOADS, body).json()["files"][0]["put"]
    as_alice.call("delete", f"{DATASETS}/cats?trash=1")
    assert "is not ready" in as_alice.refused("post", UPLOADS, body)
    Dataset.objects.update(external=False, trashed=None)
    assert "are not in a bucket" in as_alice.refused("post", UPLOADS, body)


def test_a_dataset_has_so_many_files_at_most_and_one_of_one_object_has_no_others(
    as_alice, cats, ask, tasks, monkeypatch
):
    monkeypatch.setattr(manifests, "MAX_OBJECTS", 3)
    assert [file["reason"] for file in ask(**{"a.csv": 1, "new": 1, "newer": 1})] == [
        "", "", "the dataset can have at most 3 files",
    ]  # fmt: skip
    as_alice.call("post", DATASETS, {"name": "one", "src": "s3/photos/train/a.csv", "external": True})
    tasks.run()
    files = [{"path": "a.csv", "size": 1}, {"path": "b.csv", "size": 1}]
    answer = as_alice.call("post", f"{DATASETS}/one/uploads", {"files": files}).json()["files"]
    assert [file["reason"] for file in answer] == ["", "the dataset is the one object a.csv"]
    assert answer[0]["key"] == "train/a.csv"


def test_a_folder_to_be_filled_may_be_empty_where_it_may_be_written(as_alice, writable, remote, tasks):
    as_alice.call("post", DATASETS, {"name": "cats", "src": "s3/photos/train", "external": True})
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/cats").json()
    assert (row["state"], row["size"], row["version"]) == ("ready", 0, 1), row
    assert row["reason"] == "s3/photos/train has no files"
    [file] = as_alice.call("post", UPLOADS, {"files": [{"path": "a", "size": 1}]}).json()["files"]
    assert send("PUT", file["put"], b"1")[0] == 200
    as_alice.call("put", f"{DATASETS}/cats:refresh", {})
    tasks.run()
    assert [file["path"] for file in as_alice.call("get", f"{DATASETS}/cats/files").json()] == ["a"]
    remote.delete("train/a")
    as_alice.call("put", f"{DATASETS}/cats:refresh", {})
    tasks.run()
    assert "has no files" in as_alice.call("get", f"{DATASETS}/cats").json()["reason"]  # a wrong key, perhaps


def test_the_page_says_how_to_send_files_to_a_bucket_that_may_be_written(alice, client, cats, bucket):
    client.force_login(alice)
    assert "mlp push DIR --name cats" in client.get("/datasets/cats").content.decode()
    rows.change(bucket, by="root", access="read", everybody=True)
    assert "mlp push" not in client.get("/datasets/cats").content.decode()


def test_the_address_names_the_host_as_clients_do(bucket):
    for endpoint, virtual_hosted, base in [
        ("", False, "https://s3.us-east-1.amazonaws.com/kept/a%20b?"),
        ("", True, "https://kept.s3.us-east-1.amazonaws.com/a%20b?"),
        ("https://s3.example.com:443/s3/", False, "https://s3.example.com/s3/kept/a%20b?"),
        ("http://[::1]:9000", False, "http://[::1]:9000/kept/a%20b?"),
    ]:
        rows.change(bucket, by="root", everybody=True, endpoint=endpoint, virtual_hosted=virtual_hosted)
        bucket.refresh_from_db()
        assert signing.Signer(bucket).address("GET", "a b").startswith(base)
