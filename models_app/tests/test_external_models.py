"""Models whose files stay in a bucket of a real S3 server, rclone's: listed, checked, downloaded, compared, copied."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import hashlib
from urllib.request import urlopen

import pytest

from accounts.sharing import grants
from datasets.buckets import caching, rows
from kernel import storage
from kernel.errors import Refused
from kernel.locking import WrongState
from mlp.trash import largest
from models_app import external, launching
from models_app.models import Model
from operations.accounting import SOURCES
from resources import books
from resources.models import Tenant

from .external_world import (  # noqa: F401
    FILES,
    MODELS,
    SIZE,
    bucket,
    created,
    fetch,
    held,
    in_cache,
    objects,
    prepared,
    ready,
    remote,
    s3,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_model_of_what_stays_in_a_bucket(as_alice, created):
    """It is listed, counts to nothing, and its check waits for the files, which count then and have checksums."""
    before = held()
    model = created()
    row = as_alice.call("get", f"{MODELS}/net").json()
    assert (row["state"], row["external"], row["src"], row["size"]) == ("creating", True, "s3/photos/train/net", SIZE)
    assert held() == before
    listed = as_alice.call("get", f"{MODELS}/net/files")
    assert listed["X-Total-Count"] == "2"
    assert [(each["path"], each["size"]) for each in listed.json()] == [(k, len(v)) for k, v in sorted(FILES.items())]
    assert not prepared(model)
    assert "its model net is being fetched: 0 %" in as_alice.call("get", f"{MODELS}/net").json()["reason"]
    fetch(model)
    assert prepared(model)
    assert in_cache(model) == FILES
    assert not storage.model_dir("alice", "net").exists()
    assert held() == before + SIZE
    sums = {path: {"size": len(v), "sha256": hashlib.sha256(v).hexdigest()} for path, v in FILES.items()}
    assert as_alice.call("get", f"{MODELS}/net").json()["checksums"] == sums
    assert largest.items() == []
    assert books.explain(Tenant.objects.get(name="default"), SOURCES) == []


def test_its_packages_are_those_beside_it(created):
    model = created(FILES | {"requirements.txt": b"no-such-package==1\n"})
    prepared(model)
    fetch(model)
    model.refresh_from_db()
    assert model.requirements == "no-such-package==1\n"
    model = created(FILES | {"requirements.txt": b"-r ../other\n"}, name="other")
    prepared(model)
    fetch(model)
    model.refresh_from_db()
    assert (model.state, "requirements.txt" in model.reason) == ("error", True)


@pytest.mark.parametrize(
    ("src", "problem"),
    [
        ("home/net", "external: only files of a bucket can stay where they are (s3/{bucket}[/{path}])"),
        ("models/net", "external: only files of a bucket can stay where they are (s3/{bucket}[/{path}])"),
        ("s3/other/net", "src: there is no bucket named other that you may read"),
    ],
)
def test_only_files_of_a_bucket_can_stay_where_they_are(as_alice, src, problem):
    assert as_alice.refused("post", MODELS, {"name": "net", "src": src, "external": True}) == problem


@pytest.mark.parametrize(
    ("src", "files"),
    [
        ("s3/photos/train/net", ["net/net.pkl", "net.pkl"]),  # the name of the folder again
        ("s3/photos/train/net/net.pkl", ["net.pkl"]),
        (
            "s3/photos",
            ["net/net.pkl", "net/net/net.pkl", "net.pkl.old", "network/net.pkl"],
        ),  # below the bucket's folder
    ],
)
def test_the_files_are_those_below_the_place_by_their_paths_from_there(created, objects, bucket, src, files):
    objects({"net.pkl.old": b"1", "network/net.pkl": b"2"})
    rows.change(bucket, by="root", everybody=True, prefix="train" if src == "s3/photos" else "")
    model = created({"net.pkl": b"3", "net/net.pkl": b"4"}, src=src)
    assert sorted(entry.path for entry in external.listed(model).entries) == sorted(files)
    prepared(model)
    fetch(model)
    assert sorted(in_cache(model)) == sorted(files)


@pytest.mark.parametrize("src", ["s3/photos/train/none", "s3/photos/train/empty"])
def test_a_source_without_files_is_the_reason(created, objects, client, alice, src):
    objects({"empty/none": b""})
    model = created(src=src)
    assert (model.state, model.reason) == ("error", f"src: {src} has no files, or only empty ones")
    client.force_login(alice)
    page = client.get("/models/net").content.decode()
    assert "No files." in page
    assert "is being listed" not in page


def test_a_check_whose_files_cannot_be_fetched_says_why(created, bucket, remote):
    """The check fails once, with the file or the bucket; nothing is left in the cache that counts."""
    before, model = held(), created()
    remote.put("train/net/deep/weights.bin", b"v" * 1000)
    prepared(model)
    fetch(model)
    assert not prepared(model)
    model.refresh_from_db()
    assert model.state == "error"
    assert model.reason == (
        "the files of the model net could not be fetched: "
        "the object train/net/deep/weights.bin has changed since the model was created"
    )
    Tenant.objects.filter(name="default").update(rom=before + SIZE - 1)
    poor = created(name="poor")
    prepared(poor)
    fetch(poor)
    prepared(poor)
    poor.refresh_from_db()
    assert "rom: requested" in poor.reason
    Tenant.objects.filter(name="default").update(rom=1 << 40)
    other = created(name="other")
    rows.change(bucket, by="root", everybody=False)
    prepared(other)
    fetch(other)
    prepared(other)
    other.refresh_from_db()
    assert other.reason.endswith("there is no bucket named photos that you may read")
    assert held() == before


@pytest.mark.long
def test_two_versions_share_the_files_that_they_have_in_common(ready, objects):
    first = ready()
    objects({"net/extra.txt": b"more"})
    second = ready({}, name="other")
    assert in_cache(second) == FILES | {"extra.txt": b"more"}
    assert (external.folder(first) / "predictor.py").samefile(external.folder(second) / "predictor.py")


def test_a_file_is_downloaded_by_an_address_for_it_alone(as_alice, alice, client, ready, remote):
    ready(FILES | {"none": b""})
    assert as_alice.refused("get", f"{MODELS}/net/download") == (
        "the files of the model net are in a bucket; get the address of each"
    )
    answer = as_alice.call("get", f"{MODELS}/net/address?file=deep/weights.bin").json()
    assert answer["expires"] == 300
    with urlopen(answer["address"]) as file:
        assert file.read() == FILES["deep/weights.bin"]
    client.force_login(alice)
    page = client.get("/models/net/files/deep/weights.bin")
    assert (page.status_code, page["Cache-Control"]) == (302, "no-store")
    with urlopen(page["Location"]) as file:
        assert file.read() == FILES["deep/weights.bin"]
    assert as_alice.call("get", f"{MODELS}/net/address?file=none").json()["address"] == ""
    assert client.get("/models/net/files/none").content == b""
    assert client.get("/models/net/files/other").status_code == 404
    assert as_alice.refused("get", f"{MODELS}/net/address") == "file: is required"
    assert as_alice.refused("get", f"{MODELS}/net/address?file=other") == "file: no such file"
    remote.delete("train/net/deep/weights.bin")
    said = "the object train/net/deep/weights.bin is not in the bucket any more"
    assert said in as_alice.refused("get", f"{MODELS}/net/address?file=deep/weights.bin")
    assert client.get("/models/net/files/deep/weights.bin")["Location"] == "/models/net"
    assert said.removeprefix("the ") in client.get("/models/net").content.decode()


def test_who_reads_a_shared_model_learns_nothing_of_what_else_is_in_the_bucket(as_bob, client, bob, ready, objects):
    grants.make(row=ready(), audience="user", user="bob", right="read", by="alice")
    objects({"net/salaries.csv": b"1"})
    shown = as_bob.call("get", f"{MODELS}/net/bucket").json()
    assert shown == {"same": False, "changed": [], "missing": [], "added": []}
    client.force_login(bob)
    page = client.get("/u/alice/models/net?compare=1").content.decode()
    assert "others that are not part of the model" in page
    assert "salaries" not in page


def test_the_bucket_is_compared_with_the_model(as_alice, alice, client, ready, remote):
    ready()
    place, same = f"{MODELS}/net/bucket", {"same": True, "changed": [], "missing": [], "added": []}
    assert as_alice.call("get", place).json() == same
    client.force_login(alice)
    page = client.get("/models/net").content.decode()
    assert all(text in page for text in ("Files stay in", "Compare with the model", "/models/net/files/"))
    assert "has exactly these files" in client.get("/models/net?compare=1").content.decode()
    remote.put("train/net/predictor.py", b"other")
    remote.put("train/net/new", b"1")
    remote.delete("train/net/deep/weights.bin")
    assert as_alice.call("get", place).json() == {
        "same": False, "changed": ["predictor.py"], "missing": ["deep/weights.bin"], "added": ["new"]
    }  # fmt: skip
    page = client.get("/models/net?compare=1").content.decode()
    assert "Changed or missing:" in page


def test_deleting_it_leaves_the_bucket_and_frees_the_cache(as_alice, ready, bucket, remote):
    before, model = held(), ready()
    assert held() == before + SIZE
    with pytest.raises(WrongState, match=r"the files of the model net of alice are in this bucket"):
        rows.delete(bucket, by="root")
    as_alice.call("delete", f"{MODELS}/net")
    for _first_the_run in range(2):
        launching.erase(model.pk)
    assert not Model.objects.exists()
    assert not external.folder(model).exists()
    assert held() == before
    assert remote.head("train/net/predictor.py")["size"] == len(FILES["predictor.py"])
    rows.delete(bucket, by="root")


@pytest.mark.long
def test_it_is_deleted_also_where_its_bucket_cannot_be_read_any_more(as_alice, ready, bucket):
    model = ready()
    rows.change(bucket, by="root", everybody=False, endpoint="http://127.0.0.1:9")
    as_alice.call("delete", f"{MODELS}/net")
    for _first_the_run in range(2):
        launching.erase(model.pk)
    assert not Model.objects.exists()
    assert not external.folder(model).exists()


def test_it_is_copied_into_the_platform_on_request(as_alice, ready, remote, bucket):
    """The copy is an ordinary model of the same files, also where the bucket has others by then."""
    ready()
    remote.delete("train/net/predictor.py")
    as_alice.call("post", MODELS, {"name": "kept", "src": "models/net"})
    copy = Model.objects.get(name="kept")
    launching.copy(copy.pk)
    copy.refresh_from_db()
    assert (copy.external, copy.copied, copy.size) == (False, True, SIZE)
    assert copy.checksums == Model.objects.get(name="net").checksums
    assert (storage.model_dir("alice", "kept") / "deep/weights.bin").read_bytes() == FILES["deep/weights.bin"]
    assert as_alice.refused("post", MODELS, {"name": "more", "src": "models/kept"}) == (
        "src: you have no model named kept that is ready"
    )
    rows.change(bucket, by="root", everybody=True, access="write")
    exported = as_alice.refused("post", "users/alice/exports", {"src": "models/net", "target": "s3/photos/x"})
    assert "the files of the model net are in a bucket already" in exported
    lab = as_alice.refused("post", "users/alice/workspaces", {"name": "lab", "model": "net"})
    assert "only applications and jobs read them" in lab


@pytest.mark.long
def test_a_copy_waits_for_files_that_are_not_in_the_cache(as_alice, ready):
    model = ready()
    assert caching.evict(external.key(model.pk))
    as_alice.call("post", MODELS, {"name": "kept", "src": "models/net"})
    copy = Model.objects.get(name="kept")
    launching.copy(copy.pk)
    assert external.is_in_use(model)
    assert "its model net is being fetched" in as_alice.call("get", f"{MODELS}/kept").json()["reason"]
    fetch(model)
    launching.copy(copy.pk)
    assert Model.objects.get(name="kept").copied
    assert not external.is_in_use(model)


def test_a_form_and_a_registered_version_take_one(alice, client, as_alice, bucket, objects):
    objects({f"net/{path}": content for path, content in FILES.items()})
    client.force_login(alice)
    assert 'name="external"' in client.get("/models?new=1").content.decode()
    posted = client.post("/models", {"src": "s3/photos/train/net", "name": "net", "external": "on"})
    assert posted.status_code == 302, posted.content
    assert Model.objects.get(name="net").external
    assert "listing the bucket" in client.get("/models/net").content.decode()
    refused = client.post("/models", {"src": "home/x", "name": "other", "external": "on"})
    assert "only files of a bucket can stay where they are" in refused.content.decode()
    as_alice.call("post", "users/alice/registry", {"name": "net"})
    version = as_alice.call("post", "users/alice/registry/net/versions", {"source": "models/net"})
    assert version.status_code == 201, version.content
    assert version.json()["model"] == "net"


@pytest.mark.long
def test_a_compare_that_the_server_refuses_says_so(as_alice, ready, bucket):
    ready()
    rows.change(bucket, by="root", everybody=True, access_key="other", secret="other")
    assert as_alice.refused("get", f"{MODELS}/net/bucket").startswith("src: the bucket photos: ")
    with pytest.raises(Refused):
        external.require_external(Model(name="net"))
