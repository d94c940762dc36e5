"""Datasets whose files stay in a bucket of a real S3 server, rclone's: manifests, addresses and versions."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from django.test import Client
from django.utils import timezone

from accounts.tenancy import members
from datasets.buckets import rows, waiting
from datasets.models import Bucket, Dataset
from datasets.tests.test_buckets import DATASETS, ODD, bucket, objects, remote  # noqa: F401
from datasets.webdav.gate import internal_key
from datasets.webdav.paths import href
from kernel import storage
from kernel.admin_display import url_of
from kernel.locking import WrongState
from mlp.operators.tests.test_admin_verbs import do
from mlp.tests.patience import LIMIT_S
from operations.accounting import SOURCES
from operations.backup.tests.conftest import s3  # noqa: F401
from resources import books, tenants
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)
FILES = {"a.csv": b"x\n1\n", "deep/er/b.bin": bytes(range(256)) * 50, "empty.txt": b""}


@pytest.fixture
def external(as_alice, bucket, objects, tasks):
    """Create an external dataset of the objects and return it as REST does."""

    def create(contents: dict[str, bytes] = FILES, src: str = "s3://photos/train/", name: str = "cats") -> dict:
        objects(contents)
        created = as_alice.call("post", DATASETS, {"name": name, "src": src, "external": True})
        assert created.status_code == 201, created.content
        tasks.run()
        return as_alice.call("get", f"{DATASETS}/{name}").json()

    return create


@pytest.fixture
def data(as_alice):
    """Ask the data service as alice, as nginx does."""

    def ask(method: str, path: str, **headers):
        headers = {"HTTP_X_INTERNAL_KEY": internal_key(), "HTTP_AUTHORIZATION": f"Bearer {as_alice.token}", **headers}
        target = href("alice", "cats", *path.split("/")) if path else href("alice", "cats")
        return Client().generic(method, "/internal/data/verb", HTTP_X_DATA_URI=target, **headers)

    return ask


def test_a_dataset_of_what_stays_in_a_bucket(as_alice, external, remote):
    row = external()
    assert (row["state"], row["reason"], row["external"], row["version"]) == ("ready", "", True, 1)
    assert (row["size"], row["stored"], row["src"]) == (sum(map(len, FILES.values())), 0, "s3/photos/train/")
    assert not storage.dataset_dir("alice", "cats").exists()
    listed = as_alice.call("get", f"{DATASETS}/cats/files")
    assert listed["X-Total-Count"] == "3"
    assert [(file["path"], file["size"]) for file in listed.json()] == [(k, len(v)) for k, v in sorted(FILES.items())]
    assert all(file["tag"] for file in listed.json())
    assert [file["path"] for file in as_alice.call("get", f"{DATASETS}/cats/files?offset=1&limit=1").json()] == [
        "deep/er/b.bin"
    ]
    version = as_alice.call("get", f"{DATASETS}/cats/versions").json()[0]
    assert (version["files"], version["size"], len(version["sha256"])) == (3, row["size"], 64)
    as_alice.call("delete", f"{DATASETS}/cats")
    assert remote.head("train/a.csv")["size"] == 4


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"src": "jobs/fit", "external": True}, "external: only files of a bucket"),
        ({"size": 5, "external": True}, "external: needs a source"),
        ({"src": "s3/other/a", "external": True}, "src: there is no bucket named other that you may read"),
    ],
)
def test_only_files_of_a_bucket_can_stay_where_they_are(as_alice, body, problem):
    assert as_alice.refused("post", DATASETS, {"name": "cats", **body}).startswith(problem)


def test_a_refresh_makes_a_version_of_what_has_changed(as_alice, external, remote, tasks):
    external()
    assert as_alice.call("put", f"{DATASETS}/cats:refresh", {}).json()["refreshing"] is True
    tasks.run()
    same = as_alice.call("get", f"{DATASETS}/cats").json()
    assert (same["version"], same["refreshing"]) == (1, False)
    remote.put("train/a.csv", b"another")
    remote.delete("train/empty.txt")
    as_alice.call("put", f"{DATASETS}/cats:refresh", {})
    tasks.run()
    assert books.explain(Tenant.objects.get(name="default"), SOURCES) == []
    row = as_alice.call("get", f"{DATASETS}/cats").json()
    assert (row["version"], row["size"]) == (2, 7 + len(FILES["deep/er/b.bin"]))
    sizes = {
        number: {file["path"]: file["size"] for file in as_alice.call("get", place).json()}
        for number, place in ((1, f"{DATASETS}/cats/files?version=1"), (2, f"{DATASETS}/cats/files"))
    }
    assert sizes == {1: {k: len(v) for k, v in FILES.items()}, 2: {"a.csv": 7, "deep/er/b.bin": 12800}}
    assert as_alice.call("delete", f"{DATASETS}/cats/versions/1").status_code == 200


def test_a_user_creates_and_refreshes_one_on_the_pages(alice, client, bucket, objects, tasks):
    objects(FILES)
    client.force_login(alice)
    assert 'name="external"' in client.get("/datasets?src=s3/photos/#new").content.decode()
    assert 'name="external"' not in client.get("/datasets?src=jobs/#new").content.decode()
    posted = client.post("/datasets", {"src": "s3/photos/train", "name": "cats", "external": "on"})
    assert posted.status_code == 302, posted.content
    assert "The bucket is being listed." in client.get("/datasets/cats").content.decode()
    tasks.run()
    objects({"new.csv": b"1"})
    client.post("/datasets/cats/refresh")
    assert "Refreshing" in client.get("/datasets/cats").content.decode()
    tasks.run()
    assert "new.csv" in client.get("/datasets/cats").content.decode()
    assert "new.csv" not in client.get("/datasets/cats?version=1").content.decode()
    client.post("/datasets", {"src": "s3/photos/train", "name": "dogs"})
    assert not Dataset.objects.get(name="dogs").external


def test_a_refresh_that_fails_says_why_and_leaves_the_dataset(as_alice, external, bucket, tasks):
    external()
    rows.change(bucket, by="root", everybody=False)
    as_alice.call("put", f"{DATASETS}/cats:refresh", {})
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/cats").json()
    assert (row["state"], row["version"], row["refreshing"]) == ("ready", 1, False)
    assert "there is no bucket named photos that you may read" in row["reason"]


def test_a_bucket_with_files_of_datasets_is_not_deleted(as_alice, external, bucket, staff_client):
    """Not while they are in the trash either, from which they can be restored."""
    external()
    external(name="dogs", src="s3/photos")
    words = r"in this bucket; delete the datasets first, also from the trash: alice/cats, alice/dogs$"
    do(staff_client, bucket, "delete")
    assert "also from the trash: alice/cats, alice/dogs" in staff_client.get(url_of(bucket)).content.decode()
    Dataset.objects.update(trashed=timezone.now())
    with pytest.raises(WrongState, match=words):
        rows.delete(bucket, by="root")
    Dataset.objects.update(trashed=None)
    for name in ("cats", "dogs"):
        assert as_alice.call("delete", f"{DATASETS}/{name}").status_code == 200
    rows.delete(bucket, by="root")
    assert not Bucket.objects.exists()


def test_a_file_is_downloaded_from_the_bucket_by_an_address_for_it_alone(alice, client, external, data):
    """On its page and at the data service, whatever its name is. The address is for that file, and for reading."""
    external({f"odd/{name}": name.encode() for name in ODD} | {"deep/ü b.txt": b"2", "none": b""})
    client.force_login(alice)
    for path, content in [("deep/ü b.txt", b"2"), *((f"odd/{name}", name.encode()) for name in ODD)]:
        answer = data("GET", path)
        assert (answer.status_code, answer["Cache-Control"]) == (302, "no-store"), answer.content
        assert urlopen(answer["Location"]).read() == content
    page = client.get(f"/datasets/cats/files/{'deep/ü b.txt'}")
    assert urlopen(page["Location"]).read() == b"2"
    assert "the-secret" not in page["Location"]
    with pytest.raises(HTTPError, match="403"):
        urlopen(Request(page["Location"], method="PUT", data=b"mine"))
    with pytest.raises(HTTPError, match="403"):
        urlopen(page["Location"].replace("deep/", "odd/"))
    assert data("HEAD", "deep/ü b.txt")["Content-Length"] == "1"
    assert (data("GET", "none").status_code, data("GET", "none").content) == (200, b"")
    assert data("GET", "deep/none").status_code == 404
    assert client.get("/datasets/cats/files/deep/../odd/a+b").status_code == 404
    assert client.get("/datasets/cats/archive").status_code == 404


def test_the_data_service_and_the_page_list_what_is_in_the_bucket(alice, client, external, data):
    external()
    listing = b"".join(data("PROPFIND", "", HTTP_DEPTH="infinity").streaming_content).decode()
    for path in ("a.csv", "deep/", "deep/er/", "deep/er/b.bin", "empty.txt"):
        assert f"<d:href>/data/alice/cats/{path}</d:href>" in listing
    assert "<d:getcontentlength>12800</d:getcontentlength>" in listing
    assert b"".join(data("PROPFIND", "", HTTP_DEPTH="1").streaming_content).count(b"<d:response>") == 4
    assert data("PUT", "mine").status_code >= 400
    client.force_login(alice)
    page = client.get("/datasets/cats").content.decode()
    assert "deep/" in page
    assert "a.csv" in page
    assert "Refresh" in page
    assert "b.bin" in client.get("/datasets/cats?in=deep/er").content.decode()
    assert client.get("/datasets/cats?in=none").status_code == 404


def test_an_address_is_only_for_who_may_read_the_dataset_and_only_while_its_owner_reads_the_bucket(
    alice,
    bob,
    client,
    external,
    bucket,
):
    external()
    client.force_login(bob)
    for place in ("/datasets/cats/files/a.csv", "/u/alice/datasets/cats/files/a.csv"):
        assert client.get(place).status_code == 404
    client.force_login(alice)
    team = tenants.create(name="team", cpu=0, gpu=0, ram=0, rom=0, by="root")
    members.put(tenant="team", user="alice", role="member", by="root")
    rows.change(bucket, by="root", everybody=False, tenants=[team])
    assert "X-Amz-Signature" in client.get("/datasets/cats/files/a.csv")["Location"]
    members.remove(tenant="team", user="alice", by="root")
    answer = client.get("/datasets/cats/files/a.csv", follow=True)
    assert "There is no bucket named photos that you may read" in answer.content.decode()


@pytest.mark.parametrize(
    ("change", "said"), [("put", "has changed since"), ("delete", "is not in the bucket any more")]
)
def test_an_object_that_is_not_the_listed_one_is_named_and_never_sent(external, data, remote, change, said):
    external()
    remote.put("train/a.csv", b"y\n1\n") if change == "put" else remote.delete("train/a.csv")
    answer = data("GET", "a.csv")
    assert answer.status_code == 409
    assert f"the object train/a.csv {said}" in answer.json()["msg"]


def test_a_server_that_is_slow_keeps_only_a_few_requests(alice, client, external, data, monkeypatch):
    """The others are answered at once, with another try."""
    external()
    monkeypatch.setattr(waiting, "SLOW_S", 0)
    row = Bucket.objects.get()
    client.force_login(alice)
    with waiting.for_server(row), waiting.for_server(row):
        answer = data("GET", "a.csv")
        assert (answer.status_code, answer["Retry-After"]) == (503, "2")
        shown = client.get("/datasets/cats/files/a.csv", follow=True)
        assert "the server of the bucket photos is slow" in shown.content.decode().lower()
    assert data("GET", "a.csv").status_code == 302


def test_where_a_server_is_fast_one_request_too_many_waits_for_its_turn(bucket, monkeypatch):
    monkeypatch.setattr(waiting, "MOST", 1)
    with ThreadPoolExecutor(1) as pool:
        with waiting.for_server(bucket):
            other = pool.submit(waiting.for_server(bucket).__enter__)
            assert not other.done()
        assert other.exception(LIMIT_S) is None
