"""A dataset's files in the browser, through real nginx: direct delivery, and safe delivery of dangerous types."""

from __future__ import annotations

import io
import os
import tarfile

import pytest
import requests
from django.test import Client

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
FILES = {
    "table.csv": b"name;size\n<script>alert(1)</script>;2\n",
    "deep/er/\xc3\xbc \xe6\x96\x87 #1.txt".encode("latin-1").decode(): "<b>grüße</b>".encode(),
    "picture.png": PNG,
    "page.html": b"<script>alert(1)</script>",
    "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "lies.png": b"<script>alert(1)</script>",
    "raw.bin": os.urandom(300_000),
    "empty": b"",
}


@pytest.fixture
def look(photos, service, alice, settings):
    """Request a page below the dataset as Alice's browser does; her dataset has FILES."""
    photos.delete("/data/alice/photos")
    photos.heartbeat("photos", "error", 0)
    photos.create("many", sum(map(len, FILES.values())))
    for path, data in FILES.items():
        answer = photos.put("/data/alice/many/" + requests.utils.quote(path), data=data)
        assert answer.status_code == 201, answer.text
    assert photos.heartbeat("many", "ready", 100).status_code == 200
    client = Client()
    client.force_login(alice)
    cookies = {"sessionid": client.cookies["sessionid"].value}

    def get(path: str, **options):
        return requests.get(f"{service.url}/datasets/many{path}", cookies=cookies, allow_redirects=False, **options)

    return get


def test_nginx_sends_files(look):
    for path, data in FILES.items():
        answer = look("/files/" + requests.utils.quote(path))
        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["Content-Disposition"].startswith("attachment")
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    answer = look("/files/raw.bin", headers={"Range": "bytes=10-19"})
    assert (answer.status_code, answer.content) == (206, FILES["raw.bin"][10:20])
    assert look("/files/none").status_code == look("/files/..%2f..%2fx").status_code == 404


def test_only_images_are_displayed(look):
    answer = look("/files/picture.png?show=1")
    assert (answer.headers["Content-Type"], answer.headers["X-Content-Type-Options"]) == ("image/png", "nosniff")
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    for path in ("page.html", "drawing.svg", "lies.png", "table.csv"):
        assert look(f"/files/{path}?show=1").status_code == 404
    assert 'src="/datasets/many/files/picture.png?show=1"' in look("/view/picture.png").text


def test_displaying_a_file_runs_no_script(look):
    table = look("/view/table.csv").text
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in table
    assert '<th scope="col">size</th>' in table
    for path in ("page.html", "drawing.svg", "lies.png"):
        text = look(f"/view/{path}").text
        assert "&lt;script&gt;alert(1)" in text
        assert "<script>alert" not in text
    assert "&lt;b&gt;grüße&lt;/b&gt;" in look("/view/" + requests.utils.quote(list(FILES)[1])).text
    assert "No preview for this type" in look("/view/raw.bin").text
    assert "is empty" in look("/view/empty").text


def test_folders_can_be_browsed(look):
    top = look("").text
    assert "?in=deep#files" in top
    assert "#1.txt" not in top
    below = look("?in=deep/er").text
    assert "/datasets/many/view/deep/er/%C3%BC%20%E6%96%87%20%231.txt" in below
    for wrong in ("..", "deep/../..", "none", "a%00b", "table.csv"):
        assert look(f"?in={wrong}").status_code == 404


def test_all_files_can_be_downloaded_as_an_archive(look, bob, service):
    answer = look("/archive")
    assert 'filename="many.tar"' in answer.headers["Content-Disposition"]
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert files == {f"many/{path}": data for path, data in FILES.items()}
    client = Client()
    client.force_login(bob)
    cookies = {"sessionid": client.cookies["sessionid"].value}
    for path in ("/datasets/many/archive", "/-data/archive/alice/many", "/internal/data/archive/alice/many"):
        assert requests.get(service.url + path, cookies=cookies).status_code == 404
    direct = f"http://127.0.0.1:{service.data_port}/internal/data/archive/alice/many"
    assert requests.get(direct).status_code == 404


def test_symlinks_are_not_followed(look, service, tmp_path):
    (tmp_path / "secret").write_text("secret")
    service.path("alice", "many", "link").symlink_to(tmp_path / "secret")
    service.path("alice", "many", "folder").symlink_to(tmp_path)
    assert look("/files/link").status_code == look("/view/folder/secret").status_code == 404
    assert look("?in=folder").status_code == 404
    assert ("view/link" in look("").text, b"secret" in look("/archive").content) == (False, False)
