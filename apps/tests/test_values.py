"""Values of requests at all endpoints of an application: what does not fit is refused by name, nothing changes."""

from __future__ import annotations

import gzip
import json
import math
import zlib

import numpy as np
import pytest
import requests
import tritonclient.http as triton

from mlp.tests.patience import LIMIT_S

from . import pictures
from .test_bodies import npy
from .test_serving import serving

EVERY = """
KINDS = {"b": "BOOL", "i8": "INT8", "u8": "UINT8", "i64": "INT64", "u64": "UINT64", "f16": "FP16", "f32": "FP32",
         "f64": "FP64", "s": "BYTES"}

class Predictor:
    inputs = [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in KINDS.items()]
    inputs += [{"name": "rgb", "datatype": "UINT8", "shape": [-1, -1, 3]},
               {"name": "rgba", "datatype": "UINT8", "shape": [-1, -1, 4]},
               {"name": "grey", "datatype": "FP32", "shape": [-1, -1]}]
    arrays = True

    def predict(self, inputs):
        if any(one["name"] == "s" and b"fail" in one["data"].ravel().tolist() for one in inputs):
            return [{"name": "y", "datatype": "INT64", "data": [1.7]}]
        return inputs
"""
KINDS = {
    "b": "BOOL", "i8": "INT8", "u8": "UINT8", "i64": "INT64", "u64": "UINT64", "f16": "FP16", "f32": "FP32",
    "f64": "FP64", "s": "BYTES",
}  # fmt: skip
BIG = 2**53 + 1
TAKEN = [  # input, JSON, what the model gets
    ("b", [True, False], [True, False]),
    ("i8", [-128, 127, 1.0], [-128, 127, 1]),
    ("i64", [BIG, 1.0, -(2**63)], [BIG, 1, -(2**63)]),
    ("u64", [2**64 - 1], [2**64 - 1]),
    ("f16", [65504, -1], [65504, -1]),
    ("f64", [None, "NaN", "-Infinity", 5], [math.nan, math.nan, -math.inf, 5]),
    ("f32", [math.nan, math.inf, -math.inf, 0.5], [math.nan, math.inf, -math.inf, 0.5]),
    ("s", ["a", "NaN", ""], ["a", "NaN", ""]),
    ("i8", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ("i8", [], []),
]
WRONG = [  # input, JSON, where
    ("i64", [1, 1.7], "i64[1]: 1.7"), ("i64", [True], "i64[0]: true"), ("i64", ["7"], "i64[0]: '7'"),
    ("i64", [None], "i64[0]: null"), ("i64", [2**64], "i64[0]:"), ("i64", [9007199254740993.0 * 4], "i64[0]:"),
    ("i8", [[1, 2], [3, 128]], "i8[1][1]: 128"), ("u8", [0, -1], "u8[1]: -1"), ("u64", [-1.0], "u64[0]: -1"),
    ("b", ["false"], "b[0]: 'false'"), ("b", [True, 0], "b[1]: 0"), ("b", [None], "b[0]: null"),
    ("f16", [70_000], "f16[0]: 70000"), ("f32", [1e39], "f32[0]: 1e+39"), ("f32", [1, True], "f32[1]: true"),
    ("f64", ["1.5"], "f64[0]: '1.5'"), ("f64", [10**400], "infinity"), ("f64", [{}], "f64[0]: {}"),
    ("s", [5], "s[0]: 5"), ("s", ["x", None], "s[1]: null"), ("s", [{"a": 1}], "s[0]: {'a': 1}"),
    ("f64", [[1, 2], [3]], "different lengths"), ("i8", [1, [2]], "i8[1]"), ("i64", [math.nan], "i64[0]: nan"),
]  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("every")
    (folder / "predictor.py").write_text(EVERY)
    with serving(folder) as (address, _process):
        yield address


def predict(url: str, **sent) -> tuple[int, dict]:
    answer = requests.post(f"{url}/predict", timeout=LIMIT_S, **sent)
    return answer.status_code, answer.json()


def infer(url: str, name: str, data, shape: list) -> tuple[int, dict]:
    body = {"inputs": [{"name": name, "datatype": KINDS[name], "shape": shape, "data": data}]}
    answer = requests.post(f"{url}/v2/models/double/infer", json.dumps(body), timeout=LIMIT_S)
    return answer.status_code, answer.json()


def equal(had, wanted) -> bool:
    """Compare exactly, NaN as equal to itself."""
    return json.dumps(had) == json.dumps(wanted) or (had == wanted and all(map(math.isfinite, had)))


@pytest.mark.parametrize(("name", "data", "wanted"), TAKEN, ids=str)
def test_values_that_fit_arrive_as_they_are(url, name, data, wanted):
    status, answer = predict(url, data=json.dumps({name: data}))
    assert status == 200, answer
    assert equal([float(v) if v == v and name[0] == "f" else v for v in answer[name]],
                 [float(v) if v == v and name[0] == "f" else v for v in wanted])  # fmt: skip
    status, answer = infer(url, name, data, list(np.shape(wanted)))
    assert status == 200, answer
    flat = np.array(wanted, object).ravel().tolist()
    assert equal([float(v) if name[0] == "f" else v for v in answer["outputs"][0]["data"]],
                 [float(v) if name[0] == "f" else v for v in flat])  # fmt: skip


@pytest.mark.parametrize(("name", "data", "where"), WRONG, ids=str)
def test_values_that_do_not_fit_are_refused_by_name(url, name, data, where):
    for status, answer in (
        predict(url, data=json.dumps({name: data})),
        infer(url, name, data, list(np.shape(data)) if "lengths" not in where and where != "i8[1]" else [3]),
    ):
        assert status == 400, answer
        assert where in answer["error"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("b,i8\ntrue,7\nFalse,-1.0\n0,+3\n1, 4 \n", {"b": [True, False, False, True], "i8": [7, -1, 3, 4]}),
        (f"i64,f64\n{BIG},1e3\n1,\n2,-inf\n", {"i64": [BIG, 1, 2], "f64": [1000.0, math.nan, -math.inf]}),
        ("s,i8\r\n\"two\r\nlines, \"\"x\"\"\",1\r\n", {"s": ['two\r\nlines, "x"'], "i8": [1]}),
        ("s,i8\ra,1\rb,2\r", {"s": ["a", "b"], "i8": [1, 2]}),
        (f"\ufeffs\n{'x' * 140_000}\n", {"s": ["x" * 140_000]}),
    ],
    ids=["bool", "numbers", "quoted", "bare CR", "long, BOM"],
)  # fmt: skip
def test_cells_of_a_csv_are_read_by_the_inputs_types(url, text, wanted):
    status, answer = predict(url, data=text.encode(), headers={"Content-Type": "text/csv"})
    assert status == 200, answer
    assert json.dumps(answer, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def test_a_csv_is_read_as_a_spreadsheet_of_any_language_writes_it(url):
    wanted = {"i8": [1, 2], "s": ["Köln, Rhein", "x"]}
    for mark, coding in ((";", "utf-8-sig"), ("\t", "utf-16"), (";", "utf-8")):
        text = mark.join(["i8", "s\r\n1", "Köln, Rhein\r\n2", "x\r\n"])
        assert predict(url, data=text.encode(coding), headers={"Content-Type": "text/csv"}) == (200, wanted), (
            mark,
            coding,
        )
    status, answer = predict(url, data="f64;i8\n1,5;1\n", headers={"Content-Type": "text/csv"})
    assert (status, "f64[0]: '1,5'" in answer["error"]) == (400, True), "a comma is no decimal point"
    assert predict(url, data="s\nyes;no\n", headers={"Content-Type": "text/csv"}) == (200, {"s": ["yes;no"]})


def test_an_input_that_is_there_twice_is_refused(url):
    body = {"inputs": [{"name": "i8", "datatype": "INT8", "shape": [1], "data": [value]} for value in (1, 2)]}
    answer = requests.post(f"{url}/v2/models/double/infer", json=body, timeout=LIMIT_S)
    assert (answer.status_code, answer.json()) == (400, {"error": "i8: is there twice"})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("b\nno\n", "b[0]: 'no'"), ("i8\n1\n1.5\n", "i8[1]: '1.5'"), ("i64\n\n1_000\n", "i64[0]: '1_000'"),
        ("i8,s\n,x\n", "i8[0]: ''"), ("f32\n1e39\n", "f32[0]: '1e39'"), ("f64\n1e999\n", "f64[0]: '1e999'"),
        ("i8,i8\n1,2\n", "i8 is there 2 times"), ('s\n"open\n', "text/csv"), ("i8,b\n1\n", "different lengths"),
    ],
)  # fmt: skip
def test_cells_that_do_not_fit_are_refused_by_name(url, text, where):
    status, answer = predict(url, data=text.encode(), headers={"Content-Type": "text/csv"})
    assert (status, where in answer["error"]) == (400, True), answer


def test_strings_of_content_type_base64_are_bytes(url):
    """Send what JSON has no other way to send, as MLServer's codec for BYTES does."""
    for text, status in (("/+8=", 200), ("/+8", 400)):
        tensor = {
            "name": "s",
            "datatype": "BYTES",
            "shape": [1],
            "parameters": {"content_type": "base64"},
            "data": [text],
        }
        body = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        answer = requests.post(f"{url}/v2/models/double/infer", json=body, timeout=LIMIT_S)
        assert (answer.status_code, answer.content.endswith(b"\2\0\0\0\xff\xef")) == (status, status == 200)
    tensor |= {"data": ["/+8=", "YQ=="], "shape": [2]}
    answer = requests.post(f"{url}/v2/models/double/infer", json={"inputs": [tensor]}, timeout=LIMIT_S).json()
    assert answer["outputs"] == [tensor], "what is no UTF-8 comes back in base64, and says so"
    assert predict(url, files={"s": ("a.bin", b"\xff\xef")}) == (200, {"s": [{"b64": "/+8="}]})
    for length in ("\xb2", "9" * 5000, "-1", ""):
        headers = {"Inference-Header-Content-Length": length.encode("latin-1")}
        answer = requests.post(f"{url}/v2/models/double/infer", b"{}", headers=headers, timeout=LIMIT_S)
        assert (answer.status_code, "a length within the body" in answer.json()["error"]) == (400, True)


def header(shape: str, kind: str = "<f8") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


ARRAYS = [  # input, file, what the model gets, or the words of the refusal
    ("i8", npy(np.array([1.0, -3.0])), [1, -3]),
    ("i64", npy(np.array([BIG], ">i8")), [BIG]),
    ("f32", npy(np.asfortranarray([[1, 2, 3], [4, 5, 6]])), [[1, 2, 3], [4, 5, 6]]),
    ("s", npy(np.array(["a", "ü"])), ["a", "ü"]),
    ("b", npy(np.array([True])), [True]),
    ("i8", npy(np.array([1.5])), "i8[0]: 1.5"),
    ("u64", npy(np.array([5, -1])), "u64[1]: -1"),
    ("f16", npy(np.array([1.0, 70_000.0])), "f16[1]: 70000"),
    ("b", npy(np.array([1, 0])), "int64"),
    ("f32", npy(np.array([True])), "bool"),
    ("f64", npy(np.array([1j])), "complex128"),
    ("i64", npy(np.array(["2020-01-01"], "M8[D]")), "datetime64"),
    ("f64", npy(np.array([(1, 2)], [("a", "i4"), ("b", "i4")])), "does not fit"),
    ("f64", npy(np.array(["1"])), "<U1"),
    ("f64", npy(np.array([{}], object)), "pickle"),
    ("f64", b"", "not an .npy file"),
    ("f64", b"PK\3\4rest", "zip"),
    ("f64", header("(1000000000000,)"), "says 8000000000000 B"),
    ("f64", b"\x93NUMPY\x01\x00\x04\x00{([\n", "not an .npy file"),
    ("f64", npy(np.arange(9.0))[:-1], "has 71"),
]


@pytest.mark.parametrize(("name", "file", "wanted"), ARRAYS, ids=lambda value: "" if isinstance(value, bytes) else None)
def test_arrays_fit_or_are_refused(url, name, file, wanted):
    status, answer = predict(url, files={name: ("a.npy", file)})
    if isinstance(wanted, str):
        assert (status, wanted in answer["error"]) == (400, True), answer
    else:
        assert (status, answer) == (200, {name: wanted})


def test_a_model_that_gives_what_does_not_fit_its_datatype_fails(url):
    """See that only the model is at fault then: 500, with its reason."""
    fitting = {"rgb": [[[0, 0, 0]]], "rgba": [[[0, 0, 0, 0]]], "grey": [[0]], "b": [True], "s": ["fail"]}
    status, answer = predict(url, json={**{name: [1] for name in KINDS}, **fitting})
    assert (status, "y: 1.7 does not fit INT64" in answer["error"]) == (500, True)


UNNAMED = """
import numpy as np
GIVEN = [np.array(["setosa", "ü"]), np.array([2**63], np.uint64), np.array([0.1]), np.array([True]), [2**53 + 1], ["a"],
         [1, 2], [0.5], np.array([3, 4], object), np.array([1 + 2j]), np.array(["2026-01-02"], "datetime64[D]")]

class Predictor:
    inputs = [{"name": "k", "datatype": "INT64", "shape": [-1]}]
    outputs = [{"name": "z", "datatype": "INT64"}]
    arrays = True

    def predict(self, inputs):
        place = inputs[0]["data"].ravel()[0]
        return [{"name": "y", "data": GIVEN[place]}] if place >= 0 else [{"name": "z", "data": GIVEN[place + 11]}]
"""
OWN = [
    ("BYTES", ["setosa", "ü"]), ("UINT64", [2**63]), ("FP64", [0.1]), ("BOOL", [True]), ("INT64", [BIG]),
    ("BYTES", ["a"]), ("FP32", [1, 2]), ("FP32", [0.5]), ("INT64", [3, 4]),
]  # fmt: skip


def test_an_output_without_a_datatype_has_that_of_its_values(tmp_path):
    (tmp_path / "predictor.py").write_text(UNNAMED)

    def ask(place: int) -> requests.Response:
        body = {"inputs": [{"name": "k", "datatype": "INT64", "shape": [1], "data": [place]}]}
        return requests.post(f"{address}/v2/models/double/infer", json=body, timeout=LIMIT_S)

    with serving(tmp_path) as (address, _process):
        had = [ask(place).json()["outputs"][0] for place in range(len(OWN))]
        assert [(tensor["datatype"], tensor["data"]) for tensor in had] == OWN
        assert [ask(-5).json()["outputs"][0][key] for key in ("name", "datatype", "data")] == ["z", "INT64", [1, 2]]
        for place, why in (
            (9, "complex128 has no datatype"),
            (-2, "complex128 does not fit INT64"),
            (-4, "0.5 does not"),
        ):
            assert (ask(place).status_code, why in ask(place).json()["error"]) == (500, True)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_tritons_client_reads_back_what_it_sent(url, binary, packed):
    sent = np.array([[1, math.inf, -math.inf, math.nan]], np.float32)
    value = triton.InferInput("f32", list(sent.shape), "FP32")
    value.set_data_from_numpy(sent, binary_data=binary)
    wanted = [triton.InferRequestedOutput("f32", binary_data=binary)]
    with triton.InferenceServerClient(url.removeprefix("http://")) as client:
        answer = client.infer("double", [value], outputs=wanted, request_compression_algorithm=packed)
    assert np.array_equal(answer.as_numpy("f32"), sent, equal_nan=True)


def test_tritons_client_reads_configuration_index_and_statistics(url):
    with triton.InferenceServerClient(url.removeprefix("http://")) as client:
        config, listed = client.get_model_config("double"), client.get_model_repository_index()
        before = client.get_inference_statistics("double")["model_stats"][0]
        assert infer(url, "f32", [1.0], [1])[0] == 200
        assert infer(url, "i8", [1.5], [1])[0] == 400  # never reaches the model
        after = client.get_inference_statistics()["model_stats"][0]
        assert client.get_model_config("double", "1") == config
    assert listed == [{"name": "double", "version": "1", "state": "READY", "reason": ""}]
    wanted = {"name": "f32", "data_type": "TYPE_FP32"}
    assert (config["name"], config["max_batch_size"]) == ("double", 0)
    assert [{key: tensor[key] for key in wanted} for tensor in config["input"] if tensor["name"] == "f32"] == [wanted]
    assert {tensor["data_type"] for tensor in config["input"] if tensor["name"] == "s"} == {"TYPE_STRING"}
    assert after["inference_count"] == before["inference_count"] + 1
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["last_inference"] > 0
    for stage in ("success", "queue", "compute_infer"):
        had, has = before["inference_stats"][stage], after["inference_stats"][stage]
        assert (has["count"], has["ns"] >= had["ns"]) == (had["count"] + 1, True), stage
    for path, method in (("v2/repository/index", "GET"), ("v2/models/double/config", "POST")):
        assert requests.request(method, f"{url}/{path}", timeout=LIMIT_S).status_code in (404, 405)


def test_packed_bodies_at_predict(url):
    body = json.dumps({"i8": [1, 2]}).encode()
    raw = zlib.compressobj(wbits=-15)
    for coding, packed in (
        ("gzip", gzip.compress(body[:5]) + gzip.compress(body[5:])),
        ("deflate", zlib.compress(body)),
        ("deflate", raw.compress(body) + raw.flush()),
        ("identity", body),
    ):
        assert predict(url, data=packed, headers={"Content-Encoding": coding}) == (200, {"i8": [1, 2]})
    for coding, packed, status in (
        ("br", body, 415),
        ("gzip, gzip", gzip.compress(gzip.compress(body)), 415),
        ("gzip", body, 400),
        ("gzip", gzip.compress(body)[:-9], 400),
        ("deflate", zlib.compress(body) + b"more", 400),
        ("gzip", gzip.compress(bytes(65 << 20), 1), 413),
    ):
        answer = requests.post(f"{url}/predict", packed, headers={"Content-Encoding": coding}, timeout=LIMIT_S)
        assert (answer.status_code, set(answer.json())) == (status, {"error"})
        assert (answer.headers.get("Accept-Encoding") == "gzip, deflate") == (status == 415)
    media = requests.post(f"{url}/invocations", body, headers={"Content-Type": "application/pdf"}, timeout=LIMIT_S)
    assert (media.status_code, "Accept-Encoding" in media.headers) == (415, False)


def test_a_form_is_whole_and_names_each_input_once(url):
    end = b'--x\r\nContent-Disposition: form-data; name="i8"\r\n\r\n[1]\r\n--x'
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert predict(url, data=end + b"--\r\n", headers=kind) == (200, {"i8": [1]})
    for body in (end, end + b"\r\n", end[:-5], b"", end[:-3] + end + b"--\r\n"):
        status, answer = predict(url, data=body, headers=kind)
        assert (status, set(answer)) == (400, {"error"})
    assert predict(url, data=end, headers={"Content-Type": "multipart/form-data"})[0] == 400
    assert predict(url, data="i8\n1\n", headers={"Content-Type": "text/csv; charset=latin-1"})[0] == 415


def test_methods_and_addresses(url):
    for path in ("/v2", "/schema", "/v2/health/ready", "/ping", "/v2/models/double"):
        answer = requests.head(url + path, timeout=LIMIT_S)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Content-Length"] == str(len(requests.get(url + path, timeout=LIMIT_S).content))
    for method, path, status, allowed in (
        ("GET", "/predict", 405, "POST"), ("PUT", "/v2/models/double/infer", 405, "POST"),
        ("POST", "/schema", 405, "GET, HEAD"), ("POST", "/v2/models/other/infer", 404, None),
        ("HEAD", "/nothing", 404, None),
    ):  # fmt: skip
        answer = requests.request(method, url + path, timeout=LIMIT_S)
        assert (answer.status_code, answer.headers.get("Allow")) == (status, allowed)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_are_turned_as_they_say(url, kind):
    for orientation, first, last in ((1, pictures.RED, pictures.BLUE), (3, pictures.BLUE, pictures.RED),
                                     (6, pictures.RED, pictures.BLUE), (8, pictures.BLUE, pictures.RED)):  # fmt: skip
        _status, answer = predict(url, files={"rgb": (f"a.{kind.lower()}", pictures.turned(kind, orientation))})
        pixels = np.array(answer["rgb"])
        assert pixels.shape == ((16, 32, 3) if orientation in (1, 3) else (32, 16, 3))
        assert np.abs(pixels[0, 0] - first).max() <= 3
        assert np.abs(pixels[-1, -1] - last).max() <= 3


@pytest.mark.parametrize("what", pictures.RIGHT)
def test_pixels_are_what_the_file_says(url, what):
    body, first = pictures.RIGHT[what]
    status, answer = predict(url, files={"rgb": ("a.png", body)})
    assert (status, answer.get("rgb", answer)[0][0]) == (200, first)


@pytest.mark.parametrize("what", pictures.REFUSED)
def test_a_picture_that_has_no_pixels_to_be_sure_of_is_refused(url, what):
    body, words = pictures.REFUSED[what]
    status, answer = predict(url, files={"rgb": ("a.png", body)})
    assert (status, words in answer["error"]) == (400, True), answer


def test_alpha_and_depth_stay_where_the_input_has_room(url):
    form = {
        "rgba": ("a.png", pictures.of("RGBA", (1, 2, 3, 4))),
        "grey": ("b.png", pictures.written(pictures.sixteen())),
    }
    _status, answer = predict(url, files=form)
    assert answer["rgba"][0][0] == [1, 2, 3, 4]
    assert answer["grey"][0][0] == pytest.approx(40_000 / 65_535, abs=1e-6)
