"""The media of a job: what `mlp_report` has written is shown, and whatever else a script may have written is not."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib

import numpy
import pytest
from PIL import Image

from jobs.models import Job
from jobs.tests.test_mlp_report_media import RGB, report  # noqa: F401 (fixture)
from kernel import picture, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from mlp.tests.tiers import few
from tracking.media import index

pytestmark = pytest.mark.django_db

PAGE, REST = "/jobs/fit/media", "users/alice/jobs/fit/media"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'
HTML = b"<!doctype html><script>alert(1)</script>"


@pytest.fixture
def job(alice):
    return put(Job, alice, "fit", "running")


@pytest.fixture
def folder(job):
    folder = storage.job_dir("alice", "fit")
    (folder / "media" / "image").mkdir(parents=True)
    return folder / "media"


@pytest.fixture
def media(report, folder):  # noqa: F811
    return report.Media(report.Reporter({"MLP_WORKSPACE": str(folder.parent)}))


@pytest.fixture
def client(alice, home):
    return visitor(alice)


def line(folder, **fields) -> None:
    row = {"kind": "image", "name": "samples", "step": 0, "file": "image/a.png", "time": 1, "attempt": 1, **fields}
    with (folder / "index.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def sources(response, tag: str) -> list[str]:
    return [attrs["src"] for name, attrs in markup(response).tags if name == tag and "/media/" in attrs.get("src", "")]


def png(width: int, height: int) -> bytes:
    data = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + data + struct.pack(">I", zlib.crc32(b"IHDR" + data))


class TestShown:
    def test_a_picture_is_shown_at_the_last_step_and_at_the_chosen_one(self, client, media):
        for step in (0, 5, 9):
            media.log_image("val/samples", RGB + numpy.uint8(step), step, caption=f"at {step}")
        page = client.get(PAGE)
        assert "at 9" in visible_text(page)
        [last] = sources(page, "img")
        image = client.get(last)
        assert (image["Content-Type"], image["X-Content-Type-Options"]) == ("image/png", "nosniff")
        assert "sandbox" in image["Content-Security-Policy"]
        assert numpy.array_equal(numpy.asarray(Image.open(io.BytesIO(b"".join(image)))), RGB + 9)
        assert ("img", "5", "4") in [
            (tag, attributes.get("width"), attributes.get("height")) for tag, attributes in markup(page).tags
        ]
        chosen = client.get(PAGE, {"at": "image:val/samples:5"})
        assert sources(chosen, "img") != [last]
        part = client.get(PAGE + "/part", {"at": "image:val/samples:7"})  # the nearest before it
        assert sources(part, "img") == sources(chosen, "img")
        assert b"<html" not in part.content

    def test_tables_are_sorted_and_paged(self, client, media):
        media.log_table(
            "preds", [[f"n{at}", (at * 7) % 250, None if at % 2 else at / 3] for at in range(250)], list("abc")
        )

        def first(query: str = "") -> list[str]:
            text = visible_text(client.get(PAGE, {"sort": f"table:preds:{query}"} if query else {}))
            return text.partition(" c ")[2].split()[1 if query.startswith(("2", "-2")) else 0 :][:2]

        assert first() == ["n0", "0"]
        assert first("-1:1") == ["n107", "249"]
        assert first("0:1") == ["n0", "0"]
        assert "rows 201 to 250 of 250" in visible_text(client.get(PAGE, {"sort": "table:preds::3"}))
        for odd in ("table:preds:99:1", "table:preds:--:x", "table:preds:1:999999", "x"):
            assert client.get(PAGE, {"sort": odd}).status_code == 200

    def test_histograms_matrices_sounds_and_texts(self, client, media):
        for step in range(30):
            media.log_histogram("weights", numpy.random.default_rng(step).normal(step, 1, 500), step=step)
        media.log_confusion_matrix("digits", [0, 0, 0, 1], [0, 0, 1, 1], labels=["zero", "one"])
        media.log_audio("voice", numpy.zeros(800), 8000)
        media.log_text("notes", "# Title\n\n**bold** <script>alert(1)</script>")
        page = client.get(PAGE)
        text = visible_text(page)
        assert len([tag for tag, _ in markup(page).tags if tag == "rect"]) == 64
        assert "By step" in text
        assert "zero 2 67 % 1 33 % 3 one 0 0 % 1 100 % 1" in text
        assert "Accuracy: 75.0 %" in text
        sound = client.get(sources(page, "audio")[0])
        assert sound["Content-Type"] == "audio/wav"
        assert b"<strong>bold</strong>" in page.content
        assert markup(page).inline == []

    def test_a_later_attempt_replaces_a_step(self, client, folder, media):
        media.log_text("notes", "first", 3)
        media.reporter.attempt = "2"
        media.log_text("notes", "second", 3)
        media.log_image("two", [RGB, RGB[::-1]], 1)
        page = client.get(PAGE)
        assert "second" in visible_text(page)
        assert "first" not in visible_text(page)
        assert len(sources(page, "img")) == 2

    def test_rest_lists_what_the_page_shows(self, as_alice, as_bob, media):
        media.log_image("samples", RGB, 1, caption="x")
        media.log_text("notes", "y", 2)
        answer = as_alice.call("get", REST)
        assert (answer["X-Total-Count"], [item["kind"] for item in answer.json()]) == ("2", ["image", "text"])
        [picture_] = as_alice.call("get", REST + "?kind=image&name=samples&step=1").json()
        assert picture_["caption"] == "x"
        data = as_alice.call("get", f"users/alice/jobs/fit/artifacts/{picture_['path']}")
        assert b"".join(data).startswith(b"\x89PNG")
        assert as_alice.call("get", REST + "?step=9").json() == []
        assert as_alice.refused("get", REST + "?kind=x").startswith("kind:")
        as_bob.refused("get", REST)

    def test_only_the_owner_sees_them(self, client, bob, media):
        media.log_image("samples", RGB, 1)
        [address] = sources(client.get(PAGE), "img")
        other = visitor(bob)
        for path in (PAGE, address, PAGE + "/part?at=image:samples:1"):
            assert other.get(path).status_code == 404
            assert visitor().get(path).status_code == 302

    def test_an_administrator_reads_them_at_the_owners_address(self, staff, media):
        media.log_image("samples", RGB, 1)
        page = visitor(staff).get("/u/alice" + PAGE)
        [address] = sources(page, "img")
        assert address.startswith("/u/alice" + PAGE)
        assert visitor(staff).get(address)["Content-Type"] == "image/png"

    def test_names_are_filtered_and_paged(self, client, media):
        for number in range(30):
            media.log_text(f"note {number:02}", "x")
        assert "page 1 of 3" in visible_text(client.get(PAGE))
        text = visible_text(client.get(PAGE, {"q": "NOTE 07"}))
        assert ("note 07" in text, "note 08" in text) == (True, False)
        assert "No media match" in visible_text(client.get(PAGE, {"kind": "image"}))


class TestHostile:
    """The folder is the script's own: nothing in it is believed."""

    @pytest.mark.parametrize("content", few([SVG, HTML, b"%PDF-1.7", b"GIF8" + HTML, b"", b"\0" * 100], 2))
    def test_what_is_no_picture_is_never_shown(self, client, folder, content):
        (folder / "image" / "a.png").write_bytes(content)
        line(folder)
        assert sources(client.get(PAGE), "img") == []
        answer = client.get(PAGE + "/file/image/a.png")
        assert answer["Content-Type"] == "application/octet-stream"
        assert answer["Content-Disposition"].startswith("attachment")
        assert "sandbox" in answer["Content-Security-Policy"]

    def test_a_polyglot_is_a_picture_only(self, client, folder):
        (folder / "image" / "a.png").write_bytes(png(1, 1) + HTML)
        line(folder)
        answer = client.get(PAGE + "/file/image/a.png")
        assert (answer["Content-Type"], answer["X-Content-Type-Options"]) == ("image/png", "nosniff")
        assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"

    def test_a_picture_of_too_many_pixels_is_not_sent_to_be_decoded(self, client, folder):
        (folder / "image" / "a.png").write_bytes(png(100_000, 100_000))
        line(folder)
        page = client.get(PAGE)
        assert sources(page, "img") == []
        assert "100000 × 100000 pixels) is too large" in visible_text(page).replace(",", "")
        assert client.get(PAGE + "/file/image/a.png")["Content-Type"] == "application/octet-stream"
        assert client.get("/jobs/fit/pictures/media/image/a.png").status_code == 404

    def test_links_and_special_files_are_not_followed(self, client, folder, tmp_path):
        secret = tmp_path / "secret.png"
        secret.write_bytes(png(1, 1))
        (folder / "image" / "a.png").symlink_to(secret)
        os.mkfifo(folder / "image" / "b.png")
        (folder / "text").symlink_to(tmp_path)
        line(folder)
        line(folder, file="image/b.png", step=1)
        line(folder, kind="text", file="text/secret.png", name="link")
        assert "The file is missing" in visible_text(client.get(PAGE))
        for path in ("image/a.png", "image/b.png", "text/secret.png", "../log/job.log", "image/..%2f..%2fx.png", "x"):
            assert client.get(f"{PAGE}/file/{path}").status_code == 404
        (folder / "index.jsonl").unlink()
        (folder / "index.jsonl").symlink_to(secret)
        assert client.get(PAGE).status_code == 200

    def test_garbage_in_the_index_is_counted_and_left_out(self, client, folder, as_alice):
        good = {"kind": "text", "name": "good", "step": 1, "file": "text/a.md", "time": 1, "attempt": 1}
        wrong = [
            {"name": EVIL}, {"name": "a\x1b[31mb"}, {"name": "\u202eb"}, {"name": 7}, {"kind": "html"}, {"step": -1},
            {"step": 1.5}, {"step": True}, {"step": 2**60}, {"file": "../../x.md"}, {"file": "text/.x"}, {"time": "x"},
            {"file": "/etc/passwd"}, {"file": "text/a.md\n"}, {"caption": [1]}, {"rows": "9"}, {"attempt": None},
        ]  # fmt: skip
        lines = [json.dumps({**good, **fields}) for fields in wrong]
        lines += ["[" * 100_000, "{}", "null", "\x00", '{"kind": NaN}', "x" * 9000, json.dumps(good)]
        (folder / "index.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n" + b'{"unfinished')
        page = client.get(PAGE)
        assert f"{len(wrong) + 7} lines of media/index.jsonl are not valid" in visible_text(page)
        assert markup(page).inline == []
        assert [item["name"] for item in as_alice.call("get", REST).json()] == ["good"]
        line(folder, kind="text", file="text/a.md", caption="\ud800" + EVIL)
        assert markup(client.get(PAGE)).inline == []

    @pytest.mark.parametrize(
        "content",
        [
            b"", b"[]", b"null", b"{", b"[" * 10_000, b'{"columns": [], "rows": []}', b"\xff\xfe",
            b'{"columns": ["a"], "rows": [[{"x": [1]}], [1, 2], 3, [null]]}',
            b'{"counts": [1e400], "edges": [0, 1]}', b'{"counts": [1, 2], "edges": [0, 0, 0]}',
            b'{"counts": [1], "edges": [-1e299, 1e299], "left_out": "x"}', b'{"counts": [9], "edges": [0, 5e-324]}',
            b'{"labels": [1], "matrix": [[1e14]]}', b'{"labels": ["a", "b"], "matrix": [[1, 2]]}',
            b'{"labels": ["a"], "matrix": [["x"]]}', b'{"counts": [' + b"9" * 5000 + b'], "edges": [0, 1]}',
        ],
    )  # fmt: skip
    def test_a_file_of_another_content_breaks_no_page(self, client, folder, content):
        for kind in ("table", "histogram", "matrix", "text"):
            (folder / kind).mkdir()
            for step in (0, 1):
                (folder / kind / f"a{step}.json").write_bytes(content)
                line(folder, kind=kind, name=f"odd-{kind}", file=f"{kind}/a{step}.json", step=step)
        page = client.get(PAGE)
        assert page.status_code == 200
        assert markup(page).inline == []
        assert "inf" not in visible_text(page).split()

    def test_a_flood_is_bounded(self, client, folder, monkeypatch):
        monkeypatch.setattr(index, "MAX_ITEMS", 50)
        for step in range(80):
            line(folder, step=step % 2)
        page = client.get(PAGE)
        assert "30 lines of media/index.jsonl" in visible_text(page)
        assert "One more of this step is in the output" in visible_text(page)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_the_size_of_an_image_is_read_from_its_header(tmp_path, form):
    path = tmp_path / "x"
    options = {"exif": b"Exif\0\0" + b"x" * 60_000} if form == "JPEG" else {}
    Image.new("RGB", (301, 17)).save(path, form, **options)
    with path.open("rb") as file:
        assert picture.image_size(file) == (301, 17)
        assert picture.is_showable(file)
    for kept in (3, 12, 20, 25):
        path.write_bytes(path.read_bytes()[:kept])
        with path.open("rb") as file:
            assert picture.image_size(file) is None or kept > 12
