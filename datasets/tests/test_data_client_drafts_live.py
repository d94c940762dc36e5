"""The folder of a download's partial files is never mixed up with the user's files."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import pytest

from datasets import copies, lifecycle
from datasets.models import Dataset
from mlp.tests.tiers import later
from operations.backup.tests.conftest import s3  # noqa: F401 (fixture)

from .test_buckets import bucket, objects, remote  # noqa: F401 (fixtures)
from .test_data_client_live import client, many, same  # noqa: F401 (fixture)

FILES = {".mlp-download/a": b"one", ".mlp-download-": b"two", "b": b"three", ".mlp-download/" + "0" * 64: b"four"}


@pytest.mark.parametrize("draft_like", [FILES, later({".MLP-Download": b"one", "b": b"two"})])
def test_a_dataset_with_such_a_folder_is_downloaded_completely(client, alice_data, service, tmp_path, draft_like):
    alice_data.create("odd", sum(map(len, draft_like.values())))
    for path, data in draft_like.items():
        assert alice_data.put(f"/data/alice/odd/{path}", data=data).status_code == 201
    assert alice_data.heartbeat("odd", "ready", 100).status_code == 200
    for _ in range(2):
        client.run("download", tmp_path / "got", "--name", "odd")
        assert same(service.path("alice", "odd"), tmp_path / "got")


def test_foreign_files_in_the_folder_are_kept(client, tmp_path):
    folder, got = many(tmp_path / "many", 2, 10), tmp_path / "got"
    client.run("upload", folder, "--name", "photos")
    (got / ".mlp-download").mkdir(parents=True)
    (got / ".mlp-download" / "notes").write_text("mine")
    (got / ".mlp-download" / ("a" * 64)).write_text("of a download that was cut off")
    client.run("download", got, "--name", "photos")
    assert [path.name for path in (got / ".mlp-download").iterdir()] == ["notes"]


def test_remains_of_a_download_are_not_uploaded(client, tmp_path, service):
    folder = many(tmp_path / "many", 2, 10)
    for place in (folder, folder / "sub"):
        (place / ".mlp-download").mkdir(parents=True)
        (place / ".mlp-download" / "x").write_text("x")
    assert "skipped .mlp-download:" in client.run("upload", folder, "--name", "photos").stderr
    paths = {
        str(path.relative_to(service.path("alice", "photos"))) for path in service.path("alice", "photos").rglob("*")
    }
    assert paths == {"000", "001", "sub", "sub/.mlp-download", "sub/.mlp-download/x"}


def test_what_desktops_leave_in_folders_is_not_uploaded_unless_it_is_asked_for(client, tmp_path, service):
    folder = tmp_path / "litter"
    for name in ("a.csv", ".DS_Store", "sub/._a.csv", "sub/Thumbs.db", "__MACOSX/x", ".git/config", ".hidden", "_.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    told = client.run("upload", folder, "--name", "clean").stderr
    assert all(f"skipped {name}: left by" in told for name in (".DS_Store", "sub/._a.csv", "__MACOSX", ".git"))
    assert {path.name for path in service.path("alice", "clean").rglob("*")} == {"a.csv", ".hidden", "_.csv"}
    client.run("upload", folder, "--name", "whole", "--all")
    assert same(folder, service.path("alice", "whole"))


def test_an_upload_gives_a_dataset_its_title(client, tmp_path):
    folder = many(tmp_path / "many", 2, 10)
    titles = []
    for options in (["--title", "Photos #1 训练"], [], ["--title", "second"]):
        client.run("upload", folder, "--name", "photos", *options)
        titles.append(Dataset.objects.get(name="photos").title)
    assert titles == ["Photos #1 训练", "Photos #1 训练", "second"]
    told = client.run("upload", folder, "--name", "more", "--title", "x" * 201, code=4).stderr
    assert "at most 200 characters" in told


@pytest.mark.long
def test_a_dataset_that_stays_in_a_bucket_is_downloaded_from_there(
    client, alice, alice_data, objects, bucket, tmp_path
):
    """The bucket gets no token of the platform. Without checksums a file from before is fetched again, and a part of
    one is never continued.
    """
    files = {"a b+c.csv": b"1", "deep/ü=&;.bin": bytes(range(256)) * 9000, "empty": b""}
    objects(files)
    lifecycle.create_dataset(user=alice, name="cats", size=0, src="s3/photos/train", external=True, by="alice")
    copies.copy(Dataset.objects.get().pk)
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "a b+c.csv").write_bytes(b"2")
    for _ in range(2):
        client.run("download", tmp_path / "got", "--name", "cats")
        got = {str(path.relative_to(tmp_path / "got")): path.read_bytes() for path in (tmp_path / "got").rglob("*.*")}
        assert got == {name: content for name, content in files.items() if "." in name}
    objects({"a b+c.csv": b"3"})
    told = client.run("download", tmp_path / "got", "--name", "cats", code=4).stderr
    assert "the object train/a b+c.csv has changed since the dataset was refreshed" in told
    answer = alice_data.get("/data/alice/cats/deep/%C3%BC%3D%26%3B.bin", allow_redirects=False)
    assert (answer.status_code, "X-Amz-Signature" in answer.headers["Location"]) == (302, True)
    assert alice_data.head("/data/alice/cats/deep/%C3%BC%3D%26%3B.bin").headers["Content-Length"] == str(256 * 9000)
    empty = alice_data.get("/data/alice/cats/empty")
    assert (empty.status_code, empty.content) == (200, b"")
