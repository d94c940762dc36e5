"""The program that scores: rows of all kinds of files, bad rows apart, nothing twice after a kill."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import runpy
import subprocess
import sys

import numpy as np
import pytest

from apps import launching
from apps.tests.language_models import SCRIPTED
from models_app.launching import PROGRAM

ADDER = """
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}, {"name": "w", "datatype": "FP32", "shape": [-1]}]
    batches = True

    def predict(self, inputs):
        x, w = ({each["name"]: each for each in inputs}[name] for name in "xw")
        if any(value == 13 for value in x["data"]):
            raise RuntimeError("thirteen")
        sums = [a + b for a, b in zip(x["data"], w["data"])]
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": sums}]
"""
ROWS = """
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    arrays = True

    def predict(self, inputs):
        return [{"name": "y", "datatype": "FP32", "shape": [len(inputs[0]["data"])], "data": inputs[0]["data"].sum(1)}]
"""


@pytest.fixture
def batch(monkeypatch):
    """The program's module, as a job imports it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(launching.SERVING))
    monkeypatch.setenv("MLP_LOADING", str(PROGRAM))
    yield importlib.import_module("batch")
    for name in set(sys.modules) - before:
        if str(launching.SERVING) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def score(batch, tmp_path):
    """Return a function that scores files with a predictor, and returns the results and the refused rows."""

    def run(files: dict[str, str | bytes | np.ndarray], program: str = ADDER) -> tuple[list[dict], list[dict]]:
        model, data, out = tmp_path / "model", tmp_path / "data", tmp_path / "out"
        model.mkdir(exist_ok=True)
        (model / "predictor.py").write_text(program)
        for name, content in files.items():
            path = data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, np.ndarray):
                np.save(path, content)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        application, inputs = batch.prepared(model, "adder", False)
        asyncio.run(batch.run(batch.Scorer(application, False), data, out, inputs))
        return lines(out / "scores"), lines(out / "rejected")

    return run


def lines(folder) -> list[dict]:
    assert not list(folder.glob(".*"))
    return [json.loads(line) for path in sorted(folder.glob("*.ndjson")) for line in path.read_text().splitlines()]


def test_rows_of_a_table_are_scored_and_bad_ones_named(score):
    good, bad = score({"a/b.csv": 'w,x\n1,2\n3,"4"\n5,x\n6,13\n7\n8,9\n'})
    assert good == [
        {"file": "a/b.csv", "row": number, "output": {"y": value}} for number, value in ((0, 3), (1, 7), (5, 17))
    ]
    assert [(each["file"], each["row"]) for each in bad] == [("a/b.csv", 2), ("a/b.csv", 3), ("a/b.csv", 4)]
    assert "x" in bad[0]["error"]
    assert "thirteen" in bad[1]["error"]
    assert "different lengths" in bad[2]["error"]


def test_a_damaged_table_keeps_the_rows_before(score):
    good, bad = score({"a.csv": b"x,w\n1,2\n\xff\xfe,1\n3,4\n"})
    assert [each["row"] for each in good] == [0, 2]
    assert [each["row"] for each in bad] == [1]
    assert "text/csv" in bad[0]["error"]


def test_lines_are_bodies_of_requests(score):
    record = {"id": "r", "time": "", "status": 200, "input": {"x": [1], "w": [1]}, "output": {"y": [2]}}
    empty = {**record, "input": None}
    text = '{"x": [1, 2], "w": [3, 4]}\n\nnonsense\n{"x": [1]}\n'
    good, bad = score({"a.ndjson": text, "b.jsonl": f"{json.dumps(record)}\n{json.dumps(empty)}"})
    assert good == [
        {"file": "a.ndjson", "row": 0, "output": {"y": [4, 6]}},
        {"file": "b.jsonl", "row": 0, "output": {"y": [2]}},
    ]
    assert [(each["file"], each["row"]) for each in bad] == [("a.ndjson", 1), ("a.ndjson", 2), ("b.jsonl", 1)]
    assert bad[2]["error"] == "the record has no input"


def test_recorded_inputs_are_sent_as_they_were(score):
    record = {"id": "r", "time": "", "status": 200, "output": None, "input_kept": "all", "input_type": ""}
    tensors = [{"name": name, "datatype": "FP32", "shape": [1], "data": [2]} for name in "xw"]
    table = {"columns": ["x", "w"], "data": [[1, 2]]}
    recorded = [
        {"path": "/v2/models/other/versions/1/infer", "input": {"inputs": tensors}},
        {"path": "/invocations", "input": {"dataframe_split": table}, "input_type": "application/json"},
        {"path": "/predict", "input": "x,w\n5,6\n", "input_type": "text/csv"},
        {"path": "/predict", "input": "x,w\n5,6\n7,", "input_type": "text/csv", "input_kept": "cut"},
        {"path": "/predict", "input": {"x": [1], "w": [1], "stream": True}, "input_type": "é\n\ud800"},
    ]
    good, bad = score({"a.ndjson": "\n".join(json.dumps({**record, **each}) for each in recorded)})
    outputs = [each["output"] for each in good]
    assert outputs[0]["outputs"][0]["data"] == [4]
    assert outputs[1:] == [{"predictions": [3]}, {"y": [11]}]
    assert [(each["row"], each["error"][:30]) for each in bad] == [
        (3, "the record has only the beginn"), (4, "body: the model has several in"),
    ]  # fmt: skip


def test_rows_of_words_in_a_table_without_a_heading_are_refused(score):
    good, bad = score({"a.csv": "1,2\n" * 64 + "one,two\n3,4\nnan,nan\n"}, ROWS)
    assert [each["row"] for each in good] == [*range(64), 65, 66]
    assert [each["row"] for each in bad] == [64]
    assert "only words" in bad[0]["error"]


def test_a_line_of_a_table_may_have_a_limited_length(score, batch, monkeypatch):
    monkeypatch.setattr(importlib.import_module("batch_sources"), "MAX_LINE", 1000)
    good, bad = score({"a.csv": f"x,w\n1,2\n{'1' * 2000},2\n3,4\n"})
    assert [each["row"] for each in good] == [0]
    assert [(each["row"], "longer than" in each["error"]) for each in bad] == [(1, True)]


@pytest.mark.parametrize("content", ["zip", b"\x93NUMPY\x01\x00\x0e\x00{'shape': ((((", b"PK\x03\x04", b""])
def test_a_file_that_is_no_array_stops_no_other(score, content, tmp_path):
    if content == "zip":
        np.savez(tmp_path / "two.npz", x=np.ones(2))
        content = (tmp_path / "two.npz").read_bytes()
    good, bad = score({"a.npy": content, "b.csv": "1,2\n"}, ROWS)
    assert [each["file"] for each in good] == ["b.csv"]
    assert [(each["file"], each["error"][:11]) for each in bad] == [("a.npy", "not an .npy")]


@pytest.mark.parametrize(("end", "words"), [("sys.exit(0)", "has ended the process (0)"), ("os._exit(0)", "")])
def test_a_model_that_ends_the_process_leaves_no_whole_results(tmp_path, end, words):
    def run(values: range) -> subprocess.CompletedProcess:
        (tmp_path / "model").mkdir(exist_ok=True)
        program = ADDER.replace("raise RuntimeError", f"import os, sys; {end}; str")
        (tmp_path / "model" / "predictor.py").write_text(program)
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / "a.csv").write_text("x,w\n" + "".join(f"{value},0\n" for value in values))
        folders = [word for name in ("model", "data", "out") for word in (f"--{name}", str(tmp_path / name))]
        command = [sys.executable, str(launching.SERVING / "batch.py"), "--name", "adder", *folders]
        environment = {**os.environ, "MLP_LOADING": str(PROGRAM)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = run(range(20))
    assert words in done.stderr
    assert not (tmp_path / "out").exists()
    assert (done.returncode == 0) == (not words)
    assert "5 rows scored, 0 rejected" in run(range(5)).stdout
    assert len(lines(tmp_path / "out" / "scores")) == 5
    assert run(range(5)).returncode == 0  # killed after its end
    assert not (tmp_path / "out" / "rejected").exists()


def test_arrays_and_other_files(score):
    good, bad = score(
        {"a.npy": np.arange(300, dtype=np.float32).reshape(150, 2), "b.npy": b"nonsense", "c.npy": np.array(1.0),
         "d.json": '{"x": [[1, 2], [3, 4]]}', "e.txt": "text", ".hidden": "x"},
        ROWS,
    )  # fmt: skip
    assert [each["output"]["y"] for each in good[:150]] == [4 * row + 1 for row in range(150)]
    assert good[150:] == [{"file": "d.json", "row": 0, "output": {"y": [3, 7]}}]
    assert [each["file"] for each in bad] == ["b.npy", "c.npy", "e.txt"]


def test_a_language_model_scores_messages_and_keeps_bad_ones_apart(batch, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVING", str(launching.SERVING))
    scripted = runpy.run_path(str(SCRIPTED))
    application = scripted["chat"].Chat(scripted["ScriptedEngine"](tmp_path), "lm")
    asked = [{"messages": [{"role": "user", "content": words}]} for words in ("hello", "x" * 500, "fail", "again")]
    texts = [json.dumps(each) for each in [*asked, {"prompt": "plain", "stream": True}, {"prompt": "plain"}]]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.ndjson").write_text("\n".join(texts))
    asyncio.run(batch.run(batch.Scorer(application, True), tmp_path / "data", tmp_path / "out", []))
    good, bad = lines(tmp_path / "out" / "scores"), lines(tmp_path / "out" / "rejected")
    said = [each["output"]["choices"][0] for each in good]
    assert [one.get("message", {}).get("content", one.get("text")) for one in said] == ["hello", "again", "plain"]
    assert [each["row"] for each in bad] == [1, 2, 4]
    assert "the context of this model has 200 tokens" in bad[0]["error"]
    assert "out of memory" in bad[1]["error"]
    assert "stream" in bad[2]["error"]


def test_a_killed_job_goes_on_without_doubling_or_missing_rows(score, batch, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "PART_ROWS", 10)
    table = "x,w\n" + "".join(f"{13 if row == 15 else 100 + row},0\n" for row in range(35))
    finish, ends = batch.Part.finish, iter([False, False, True])

    def killed(part) -> None:
        if next(ends, False):
            raise KeyboardInterrupt
        finish(part)

    monkeypatch.setattr(batch.Part, "finish", killed)
    with pytest.raises(KeyboardInterrupt):
        score({"a.csv": table, "b.csv": "x,w\n1,1\n"})
    good, bad = score({})
    again = score({})
    assert [each["row"] for each in good if each["file"] == "a.csv"] == [row for row in range(35) if row != 15]
    assert [each["row"] for each in bad] == [15]
    assert len(good) == 35
    assert again == (good, bad)
    assert len(list((tmp_path / "out" / "scores").iterdir())) == 5


def test_a_dataset_that_does_not_fit_ends_the_job(score):
    with pytest.raises(SystemExit, match=r"no row could be scored; a\.csv, row 0: .*the CSV needs a heading"):
        score({"a.csv": "p,q\n1,2\n"})
    with pytest.raises(SystemExit, match=r"no row could be scored; a\.csv, row 0: "):  # the next attempt
        score({})


def test_a_dataset_without_rows_ends_the_job(score):
    with pytest.raises(SystemExit, match="the dataset has no rows"):
        score({"a.csv": "x,w\n", "b.ndjson": "\n"})


def test_hopeless_rows_are_not_all_tried(score, batch, monkeypatch):
    monkeypatch.setattr(batch, "HOPELESS", 70)
    asked = []
    ask = batch.Scorer.ask
    monkeypatch.setattr(batch.Scorer, "ask", lambda self, *body: asked.append(body) or ask(self, *body))
    with pytest.raises(SystemExit, match="no row could be scored"):
        score({"a.ndjson": "nonsense\n" * 10_000})
    assert len(asked) < 200
