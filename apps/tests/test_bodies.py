"""Inputs of /predict other than JSON: CSV, arrays, images and forms, and their conversion to tensors."""

from __future__ import annotations

import io

import numpy as np
import pytest
import requests
from PIL import Image

from .test_serving import serving

ECHO = """
class Predictor:
    inputs = [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 2, 4]},
              {"name": "count", "datatype": "INT8", "shape": [-1]},
              {"name": "file", "datatype": "BYTES", "shape": [-1]}]

    def predict(self, inputs):
        return [{**one, "data": [v.decode("latin-1") if isinstance(v, bytes) else v for v in one["data"]]}
                for one in inputs]
"""
ONE = """
class Predictor:
    inputs = [{"name": "x", "datatype": "%s", "shape": %s}]
    arrays = True

    def predict(self, inputs):
        return inputs
"""
RED = (255, 0, 51)


def png(size=(4, 2)) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", size, RED).save(written, "PNG")
    return written.getvalue()


def npy(array) -> bytes:
    written = io.BytesIO()
    np.save(written, array, allow_pickle=True)
    return written.getvalue()


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    (folder / "predictor.py").write_text(ECHO)
    with serving(folder) as (url, _process):
        yield f"{url}/predict"


@pytest.fixture(scope="module")
def url_of(tmp_path_factory):
    """Return the address of a model with one input of this type and shape; each is started once."""
    started, stack = {}, []

    def get(datatype: str, shape: list) -> str:
        key = (datatype, tuple(shape))
        if key not in started:
            folder = tmp_path_factory.mktemp("one")
            (folder / "predictor.py").write_text(ONE % (datatype, shape))
            stack.append(serving(folder))
            started[key] = stack[-1].__enter__()[0]
        return f"{started[key]}/predict"

    yield get
    for context in stack:
        context.__exit__(None, None, None)


def sent(url: str, body, kind: str = "") -> requests.Response:
    return requests.post(url, data=body, headers={"Content-Type": kind} if kind else {}, timeout=60)


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        (b"1,2\n3,4\n", "text/csv", [[1, 2], [3, 4]]),
        (b"a,b\r\n1,2.5\r\n", "text/csv; charset=utf-8", [[1, 2.5]]),
        (b"[[1, 2]]", "application/json", [[1, 2]]),
        (b'{"x": [[1, 2]]}', "application/x-www-form-urlencoded", [[1, 2]]),  # what curl -d says
        (npy(np.array([[1, 2]], np.int64)), "application/x-npy", [[1, 2]]),
    ],
)
def test_numbers(url_of, body, kind, value):
    answer = sent(url_of("FP32", [-1, 2]), body, kind)
    assert (answer.status_code, answer.json()) == (200, {"x": value})


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b"1,2\n3\n", "text/csv", "different lengths"),
        (b"1,2\nx,3\n", "text/csv", "x[1][0]: 'x' does not fit FP32"),
        (b"1,O\n2,3\n", "text/csv", "x[0][1]: 'O'"),
        (b"", "text/csv", "no rows"),
        (b"\xff", "text/csv", "text/csv"),
        (b"{", "application/json", "not JSON"),
        (npy(np.array([{}], object)), "application/x-npy", "pickle"),
        (png(), "image/png", "does not fit the shape"),
        (b"--x", "multipart/form-data", "form"),
        (b"[[1, 2], [3]]", "application/json", "x: the lists are of different lengths"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_do_not_fit_are_refused_with_the_reason(url_of, body, kind, words):
    answer = sent(url_of("FP32", [-1, 2]), body, kind)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    other = sent(url_of("FP32", [-1, 2]), b"%PDF", "application/pdf")
    assert (other.status_code, "cannot become" in other.json()["error"]) == (415, True)


def test_whole_numbers_stay_whole_and_in_range(several):
    for wrong in (1.5, 300, "many"):
        answer = requests.post(several, json={"count": [wrong]})
        assert answer.status_code == 400
    assert requests.post(several, json={"count": [-7]}).json() == {"count": [-7]}


def test_an_image_becomes_the_models_pixels(url_of):
    red = [channel / 255 for channel in RED]
    first = sent(url_of("FP32", [-1, 3, 2, 4]), png((8, 8)), "image/png").json()["x"]
    assert np.array(first).shape == (1, 3, 2, 4)
    assert np.allclose(np.array(first)[0, :, 0, 0], red)
    broken = sent(url_of("FP32", [-1, 3, 2, 4]), b"no picture", "image/png")
    assert (broken.status_code, "not an image" in broken.json()["error"]) == (400, True)
    last = sent(url_of("UINT8", [-1, -1, 3]), png(), "image/png").json()["x"]
    assert np.array(last).shape == (2, 4, 3)
    assert last[0][0] == list(RED)


def test_a_file_reaches_an_input_of_bytes_unchanged(url_of):
    for kind in ("application/octet-stream", "image/png", "application/pdf"):
        assert sent(url_of("BYTES", [-1]), b"as it is", kind).json() == {"x": ["as it is"]}
    assert sent(url_of("BYTES", [-1]), b"one\ntwo\n", "text/csv").json() == {"x": ["one", "two"]}
    form = requests.post(url_of("BYTES", [-1]), files={"upload": ("a.bin", b"\r\n--\n")})
    assert form.json() == {"x": ["\r\n--\n"]}


def test_a_form_has_a_part_for_each_input(several):
    parts = {"image": ("a.png", png()), "file": ("b.txt", b"words\r\n", "text/plain"), "count": (None, "[3]")}
    inputs = requests.post(several, files=parts).json()
    assert inputs["file"] == ["words\r\n"]
    assert inputs["count"] == [3]
    assert np.array(inputs["image"]).shape == (1, 3, 2, 4)
    wrong = requests.post(several, files={"picture": ("a.png", png())})
    assert wrong.status_code == 400
    assert "image, count, file" in wrong.json()["error"]


def test_columns_are_assigned_to_inputs_by_name(several):
    inputs = sent(several, b"file,count\nx,1\ny,2\n", "text/csv").json()
    assert inputs == {"file": ["x", "y"], "count": [1, 2]}
    assert "several inputs" in sent(several, png(), "image/png").json()["error"]
