"""What Finder and Explorer leave beside files on a WebDAV drive: taken while they write, and no part of the dataset."""

from __future__ import annotations

import pytest

from datasets.models import Dataset
from datasets.tests.live import stored

from .test_data_client_live import client, many, same  # noqa: F401 (fixture)

DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + b"\x00" * 60  # AppleDouble, as Finder writes it
STORE = b"\x00\x00\x00\x01Bud1" + b"\x00" * 80
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 80
OWNER = b"\x05alice" + b" " * 156  # 162 bytes, of Word
LITTER = {
    "._a.csv": DOUBLE, "sub/._b.png": DOUBLE, "._.DS_Store": DOUBLE, ".DS_Store": STORE, "sub/.DS_Store": STORE,
    "Thumbs.db": OLE, "sub/desktop.ini": b"[.ShellClassInfo]\r\nIconResource=a.dll,3\r\n", "~$report.docx": OWNER,
    ".Spotlight-V100/Store-V2/0.indexHead": b"index", ".Trashes/501/old.csv": b"old", "__MACOSX/sub/._b.png": DOUBLE,
    "$RECYCLE.BIN/desktop.ini": b"[.ShellClassInfo]\r\n", "._empty": b"",
}  # fmt: skip
LOCK = (
    "<?xml version='1.0'?><lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope>"
    "<locktype><write/></locktype><owner>Finder</owner></lockinfo>"
)


def names(service, dataset: str = "photos") -> set[str]:
    root = service.path("alice", dataset)
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def finder(person, path: str, data: bytes) -> None:
    """Store a file as Finder does: an empty one, its lock, its bytes, its properties, and unlocked."""
    at = f"/data/alice/photos/{path}"
    assert person.put(at, data=b"").status_code in (201, 204), path
    locked = person.request("LOCK", at, data=LOCK, headers={"Timeout": "Second-600"})
    assert locked.status_code in (200, 201), (path, locked.text)
    held = {"If": f"({locked.headers['Lock-Token']})"}
    assert person.put(at, data=data, headers=held).status_code in (201, 204), path
    assert person.request("PROPFIND", at, headers={"Depth": "0"}).status_code == 207, path
    patch = "<propertyupdate xmlns='DAV:'><set><prop><x xmlns='urn:mac'>1</x></prop></set></propertyupdate>"
    assert person.request("PROPPATCH", at, data=patch, headers=held).status_code == 207, path
    unlocked = person.request("UNLOCK", at, headers={"Lock-Token": locked.headers["Lock-Token"]})
    assert unlocked.status_code == 204, path


def test_what_finder_writes_is_taken_and_no_part_of_the_dataset(photos, service):
    finder(photos, "._a.csv", DOUBLE)
    finder(photos, "a.csv", b"a" * 60)
    finder(photos, "sub/b.png", b"b" * 40)
    for path, data in LITTER.items():
        finder(photos, path, data)
    answer = photos.heartbeat("photos", "ready", 100)
    assert answer.status_code == 200, answer.text
    assert names(service) == {"a.csv", "sub", "sub/b.png"}
    assert stored() == 100
    told = Dataset.objects.get().reason
    assert "(13)" in told
    assert ".DS_Store" in told


def test_files_of_such_names_with_other_contents_are_kept(photos, service):
    mine = {
        "._notes": b"mine", ".DS_Store": b"a text", "Thumbs.db": b"SQLite format 3", "desktop.ini": b"[theme]\nx=1",
        "~$a.docx": b"short", "a._b": DOUBLE[:8], ".Trash/x": b"x", "thumbs.db2": OLE[:8],
    }  # fmt: skip
    rest = 100 - sum(map(len, mine.values()))
    for path, data in {**mine, "rest": b"r" * rest, "._rest": DOUBLE}.items():
        assert photos.put(f"/data/alice/photos/{path}", data=data).status_code == 201, path
    assert photos.heartbeat("photos", "ready", 100).status_code == 200
    assert names(service) == {*mine, "rest", ".Trash"}


def test_litter_that_was_declared_is_kept(photos, service):
    photos.create("whole", len(DOUBLE) + 3)
    for path, data in {"a": b"abc", "._a": DOUBLE}.items():
        assert photos.put(f"/data/alice/whole/{path}", data=data).status_code == 201
    assert photos.heartbeat("whole", "ready", 100).status_code == 200
    assert (names(service, "whole"), Dataset.objects.get(name="whole").reason) == ({"a", "._a"}, "")


@pytest.mark.parametrize("first", [True, False])
def test_litter_takes_no_space_from_the_files(photos, service, first):
    order = [("._a", DOUBLE), ("a", b"a" * 100)]
    for path, data in order if first else order[::-1]:
        assert photos.put(f"/data/alice/photos/{path}", data=data).status_code in (201, 204), path
    assert photos.put("/data/alice/photos/b", data=b"b").status_code == 413
    assert photos.put("/data/alice/photos/._b", data=b"none of Finder's").status_code == 413
    assert photos.heartbeat("photos", "ready", 100).status_code == 200
    assert names(service) == {"a"}


def test_home_keeps_everything(alice_data):
    for path in ("._a", ".DS_Store"):
        assert alice_data.put(f"/data/alice/.home/{path}", data=DOUBLE).status_code == 201
        assert alice_data.get(f"/data/alice/.home/{path}").content == DOUBLE
