"""What mlp_report logs beside numbers: files of pictures, tables, sounds and texts, and lines about them."""

from __future__ import annotations

import io
import json
import sys
import wave

import numpy
import pytest
import torch
from PIL import Image

from .test_mlp_report import HEARTBEAT, PACKAGE, environment, platform, run  # noqa: F401 (fixture)


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlp_report"]:
        monkeypatch.delitem(sys.modules, name)
    import mlp_report

    return mlp_report


@pytest.fixture
def media(report, tmp_path):
    return report.Media(report.Reporter({"MLP_WORKSPACE": str(tmp_path), "MLP_ATTEMPT": "2"}))


@pytest.fixture
def logged(tmp_path):
    def read() -> list[dict]:
        index = tmp_path / "media" / "index.jsonl"
        return [json.loads(line) for line in index.read_text().splitlines()] if index.exists() else []

    return read


@pytest.fixture
def content(tmp_path, logged):
    """Return the content of the file that was logged last."""
    return lambda: (tmp_path / "media" / logged()[-1]["file"]).read_bytes()


def pixels(data: bytes):
    return numpy.asarray(Image.open(io.BytesIO(data)))


RGB = numpy.arange(4 * 5 * 3, dtype="uint8").reshape(4, 5, 3)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (RGB, RGB),
        (RGB[..., 0], RGB[..., 0]),
        (RGB.astype("float32") / 255, RGB),
        (numpy.dstack([RGB, RGB[..., 0]]), numpy.dstack([RGB, RGB[..., 0]])),
        (RGB.astype("int64") * 100, numpy.clip(RGB.astype("int64") * 100, 0, 255)),
        (numpy.array([[numpy.nan, 2.0, -1.0, 1.0]]), numpy.array([[0, 255, 0, 255]])),
        (torch.from_numpy(RGB).permute(2, 0, 1), RGB),
        (torch.ones(1, 2, 3, dtype=torch.bfloat16, requires_grad=True), numpy.full((2, 3), 255)),
        (torch.ones(2, 3) > 0, numpy.full((2, 3), 255)),
        (Image.fromarray(RGB), RGB),
        ([[0.0, 1.0], [0.5, 2.0]], numpy.array([[0, 255], [128, 255]])),
        ([[[1, 2, 3], [4, 5, 6]]], numpy.array([[[1, 2, 3], [4, 5, 6]]])),
    ],
)
def test_pictures_of_every_kind_are_drawn_alike(media, content, value, shown):
    media.log_image("samples", value)
    assert numpy.array_equal(pixels(content()), shown)


def test_a_list_is_several_pictures_and_a_line_has_all_that_the_page_needs(media, logged, tmp_path, report):
    media.reporter.report(epoch=3)
    media.log_image("val/samples", [RGB, RGB[::-1]], caption="two")
    media.log_image("val/samples", RGB, step=7)
    first, second, third = logged()
    assert (first["file"], second["file"] == first["file"]) == (third["file"], False)  # named by its content
    assert {key: first[key] for key in ("kind", "name", "step", "attempt", "caption")} == {
        "kind": "image", "name": "val/samples", "step": 3, "attempt": 2, "caption": "two",
    }  # fmt: skip
    path = tmp_path / "own.jpg"
    Image.fromarray(RGB).save(path)
    media.log_image("file", path)
    media.log_image("bytes", path.read_bytes())
    assert logged()[-1]["file"].endswith(".jpg")
    assert not list((tmp_path / "media").rglob(".*"))


def test_pictures_need_neither_numpy_nor_pil(tmp_path, content):
    run("import sys, mlp_report as m; m.log_image('a', [[[0, 1], [1, 0]]]); assert 'numpy' not in sys.modules\n"
        "m.log_histogram('h', [1, 2, 2]); m.log_audio('s', [0.0, 1.0], 8000)\n"
        "m.log_image('grey', [[9, 9], [7, 7]])",
        {"MLP_WORKSPACE": str(tmp_path)})  # fmt: skip
    assert pixels(content()).tolist() == [[9, 9], [7, 7]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda media: media.log_image("a\nb", RGB), "its name must"),
        (lambda media: media.log_image("a", RGB, step=-1), "not an integer"),
        (lambda media: media.log_image("a", RGB, step=float("nan")), "not an integer"),
        (lambda media: media.log_image("a", numpy.zeros((2, 2, 5))), "shape (2, 2, 5)"),
        (lambda media: media.log_image("a", numpy.zeros((0, 2))), "2 x 0 pixels"),
        (lambda media: media.log_image("a", numpy.broadcast_to(numpy.uint8(1), (9000, 9000))), "9000 x 9000"),
        (lambda media: media.log_image("a", b"<svg onload=alert(1)>"), "not a PNG"),
        (lambda media: media.log_image("a", "/nonexistent.png"), "No such file"),
        (lambda media: media.log_image("a", numpy.array([["x"]])), "not numbers"),
        (lambda media: media.log_audio("a", [0.1]), "rate"),
        (lambda media: media.log_audio("a", b"RIFF"), "not a WAV"),
        (lambda media: media.log_table("a", [[1, 2], [3]], ["x", "y"]), "columns, 2, but one has 1"),
        (lambda media: media.log_table("a", []), "1 to 200 columns"),
        (lambda media: media.log_table("a", {"x": [1], "y": []}), "different lengths"),
        (lambda media: media.log_histogram("a", [float("nan")]), "no finite"),
        (lambda media: media.log_histogram("a", counts=[1, 2], edges=[0, 1]), "one more edges"),
        (lambda media: media.log_histogram("a", counts=[1, 2], edges=[0, 2, 1]), "edges must increase"),
        (lambda media: media.log_confusion_matrix("a", [1, 2], [1]), "as many true"),
        (lambda media: media.log_confusion_matrix("a", matrix=[[1, 2], [3]]), "not a square"),
        (lambda media: media.log_confusion_matrix("a", range(999), range(999)), "999 classes"),
        (lambda media: media.log_confusion_matrix("a", matrix=[[-1]]), "must not be negative"),
    ],
)
def test_what_does_not_fit_is_said_on_stderr_and_stops_nothing(media, logged, capsys, call, words):
    assert call(media) is None
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("mlp_report: ")
    assert logged() == []


def test_tables_histograms_matrices_sounds_and_texts(media, logged, content):
    media.log_table("t", [[1, "x", None], [numpy.float32(0.5), float("nan"), torch.tensor(2)]], list("abc"), 1)
    assert json.loads(content()) == {"columns": ["a", "b", "c"], "rows": [[1, "x", None], [0.5, "nan", 2]]}
    media.log_table("t", [{"a": 1}, {"b": 2}])
    assert json.loads(content()) == {"columns": ["a", "b"], "rows": [[1, None], [None, 2]]}
    media.log_table("t", {"n": list(range(20000))})
    assert (len(json.loads(content())["rows"]), logged()[-1]["rows"]) == (10000, 20000)

    media.log_histogram("h", numpy.array([0.0, 1.0, 1.0, float("inf")]), bins=2)
    assert json.loads(content()) == {"counts": [1, 2], "edges": [0, 0.5, 1], "left_out": 1}

    media.log_confusion_matrix("m", ["cat", "dog", "cat"], ["cat", "cat", "dog"])
    assert json.loads(content()) == {"labels": ["cat", "dog"], "matrix": [[1, 1], [1, 0]]}
    media.log_confusion_matrix("m", torch.tensor([0, 2]), numpy.array([0, 0]), labels=["a", "b", "c"])
    assert json.loads(content()) == {"labels": ["a", "b", "c"], "matrix": [[1, 0, 0], [0, 0, 0], [1, 0, 0]]}
    media.log_confusion_matrix("m", matrix=numpy.eye(2))
    assert json.loads(content()) == {"labels": ["0", "1"], "matrix": [[1, 0], [0, 1]]}

    media.log_audio("s", numpy.stack([numpy.linspace(-1, 1, 100)] * 2), 8000)
    with wave.open(io.BytesIO(content())) as sound:
        assert (sound.getnchannels(), sound.getframerate(), sound.getnframes()) == (2, 8000, 100)
    media.log_text("x", "**hello**")
    assert content() == b"**hello**"


def test_media_are_bounded(media, logged, report, monkeypatch, capsys):
    from mlp_report import media as module

    monkeypatch.setattr(module, "MAX_ITEMS", 2)
    for step in range(4):
        media.log_text("x", "y", step)
    assert [line["step"] for line in logged()] == [0, 1]
    assert capsys.readouterr().err.count("a job may log at most") == 1
    again = report.Media(media.reporter)  # of the next attempt
    again.log_text("x", "z")
    assert len(logged()) == 2


def test_the_platform_is_notified_that_there_is_something_new(platform, tmp_path):  # noqa: F811
    script = "import mlp_report as m\nm.progress(9, remaining=5)\nm.flush()\nm.log_text('x', 'y')\nm.log_text('x', 'z')"
    done = run(script, environment(platform.port, MLP_WORKSPACE=str(tmp_path)))
    assert done.stderr == ""
    assert platform.taken(HEARTBEAT)[0] == {"state": "running", "progress": 9, "remaining": 5.0}
    assert platform.taken(HEARTBEAT)[-1] == {"state": "running", "progress": 9, "media": 2}
