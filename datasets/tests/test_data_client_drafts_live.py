"""The folder of a download's partial files is never mixed up with the user's files."""

from __future__ import annotations

import pytest

from datasets.models import Dataset
from mlp.tests.tiers import later

from .test_data_client_live import client, many, same  # noqa: F401 (fixture)

FILES = {".mlp-download/a": b"one", ".mlp-download-": b"two", "b": b"three", ".mlp-download/" + "0" * 64: b"four"}


@pytest.mark.parametrize("draft_like", [FILES, later({".MLP-Download": b"one", "b": b"two"})])
def test_a_dataset_with_such_a_folder_is_downloaded_completely(client, alice_data, service, tmp_path, draft_like):  # noqa: F811
    alice_data.create("odd", sum(map(len, draft_like.values())))
    for path, data in draft_like.items():
        assert alice_data.put(f"/data/alice/odd/{path}", data=data).status_code == 201
    assert alice_data.heartbeat("odd", "ready", 100).status_code == 200
    for _ in range(2):
        client.run("download", tmp_path / "got", "--name", "odd")
        assert same(service.path("alice", "odd"), tmp_path / "got")


def test_foreign_files_in_the_folder_are_kept(client, tmp_path):  # noqa: F811
    folder, got = many(tmp_path / "many", 2, 10), tmp_path / "got"
    client.run("upload", folder, "--name", "photos")
    (got / ".mlp-download").mkdir(parents=True)
    (got / ".mlp-download" / "notes").write_text("mine")
    (got / ".mlp-download" / ("a" * 64)).write_text("of a download that was cut off")
    client.run("download", got, "--name", "photos")
    assert [path.name for path in (got / ".mlp-download").iterdir()] == ["notes"]


def test_remains_of_a_download_are_not_uploaded(client, tmp_path, service):  # noqa: F811
    folder = many(tmp_path / "many", 2, 10)
    for place in (folder, folder / "sub"):
        (place / ".mlp-download").mkdir(parents=True)
        (place / ".mlp-download" / "x").write_text("x")
    assert "skipped .mlp-download:" in client.run("upload", folder, "--name", "photos").stderr
    paths = {
        str(path.relative_to(service.path("alice", "photos"))) for path in service.path("alice", "photos").rglob("*")
    }
    assert paths == {"000", "001", "sub", "sub/.mlp-download", "sub/.mlp-download/x"}


def test_what_desktops_leave_in_folders_is_not_uploaded_unless_it_is_asked_for(client, tmp_path, service):  # noqa: F811
    folder = tmp_path / "litter"
    for name in ("a.csv", ".DS_Store", "sub/._a.csv", "sub/Thumbs.db", "__MACOSX/x", ".git/config", ".hidden", "_.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    told = client.run("upload", folder, "--name", "clean").stderr
    assert all(f"skipped {name}: left by" in told for name in (".DS_Store", "sub/._a.csv", "__MACOSX", ".git"))
    assert {path.name for path in service.path("alice", "clean").rglob("*")} == {"a.csv", ".hidden", "_.csv"}
    client.run("upload", folder, "--name", "whole", "--all")
    assert same(folder, service.path("alice", "whole"))


def test_an_upload_gives_a_dataset_its_title(client, tmp_path):  # noqa: F811
    folder = many(tmp_path / "many", 2, 10)
    titles = []
    for options in (["--title", "Photos #1 训练"], [], ["--title", "second"]):
        client.run("upload", folder, "--name", "photos", *options)
        titles.append(Dataset.objects.get(name="photos").title)
    assert titles == ["Photos #1 训练", "Photos #1 训练", "second"]
    told = client.run("upload", folder, "--name", "more", "--title", "x" * 201, code=4).stderr
    assert "at most 200 characters" in told
