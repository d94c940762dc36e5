"""Models in MLflow's format: each flavour is loaded and served; /invocations takes what MLflow's server takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from django.conf import settings

from apps.tests.test_serving import serving
from mlp.tests.patience import LIMIT_S
from models_app.launching import PROGRAM

# What MLflow 3.17 writes, but for its environments and identities.
MLMODEL = """
artifact_path: model
flavors:
  python_function:
    loader_module: mlflow.%(flavour)s
    model_path: %(file)s
    predict_fn: predict
    python_version: 3.11.7
  %(flavour)s:
%(fields)s
mlflow_version: 3.17.2
signature:
  inputs: '%(inputs)s'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "int64", "shape": [-1]}}]'
  params: null
"""
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
COLUMNS = [{"type": "double", "name": "height", "required": True}, {"type": "long", "name": "age", "required": True}]
ROWS = [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}]
PEOPLE = [
    {"type": "double", "name": "age", "required": False},
    {"type": "string", "name": "town", "required": False},
    {"type": "datetime", "name": "joined", "required": True},
]
FLAVOURS = {  # flavour, the fields of its entry, its file, the signature's inputs
    "cloudpickle": ("sklearn", "    pickled_model: model.pkl\n    serialization_format: cloudpickle", COLUMNS),
    "skops": ("sklearn", "    pickled_model: model.skops\n    serialization_format: skops", ROWS),
    "booster": ("xgboost", "    data: model.ubj\n    model_class: xgboost.core.Booster", ROWS),
    "classifier": ("xgboost", "    data: model.ubj\n    model_class: xgboost.sklearn.XGBClassifier", COLUMNS),
    "onnx": ("onnx", "    data: model.onnx", ROWS),
    "pickled": ("pytorch", "    model_data: data", ROWS),
    "exported": ("pytorch", "    model_data: data", ROWS),
    "tutorial": ("sklearn", "    pickled_model: model.pkl\n    serialization_format: cloudpickle", PEOPLE),
}
SKLEARN = """
import sys
from pathlib import Path
import cloudpickle, numpy as np, pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

base = Path(sys.argv[1])
X = np.array([[0, 0], [1, 0], [5, 9], [6, 9]], np.float64)
y = np.array([0, 0, 1, 1])
tree = DecisionTreeClassifier(random_state=0).fit(X, y)
(base / "cloudpickle/model.pkl").write_bytes(cloudpickle.dumps(tree))
people = pd.DataFrame({
    "age": [20, None, 60, 61], "town": ["Bern", "Bern", None, "Wien"],
    "joined": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"]),
})
numbers = Pipeline([("missing", SimpleImputer(strategy="median")), ("scale", StandardScaler())])
missing = SimpleImputer(strategy="most_frequent")
words = Pipeline([("missing", missing), ("code", OneHotEncoder(handle_unknown="ignore"))])
year = FunctionTransformer(lambda frame: frame.apply(lambda column: column.dt.year.fillna(2020) - 2020))
parts = [("numbers", numbers, ["age"]), ("words", words, ["town"]), ("year", year, ["joined"])]
tutorial = Pipeline([("prepare", ColumnTransformer(parts)), ("classify", LogisticRegression())]).fit(people, y)
(base / "tutorial/model.pkl").write_bytes(cloudpickle.dumps(tutorial))
"""
OTHERS = """
import onnx, skops.io, torch, xgboost
from onnx import TensorProto, helper
skops.io.dump(tree, base / "skops/model.skops")
few = {"n_estimators": 3, "min_child_weight": 0, "n_jobs": 1}
classifier = xgboost.XGBClassifier(**few).fit(X, y)
classifier.save_model(base / "classifier/model.ubj")
classifier.get_booster().save_model(base / "booster/model.ubj")
double = helper.make_node("Add", ["x", "x"], ["twice"])
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in ("x", "twice")]
graph = helper.make_graph([double], "g", values[:1], values[1:])
made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
onnx.save(made, base / "onnx/model.onnx")
net = torch.nn.Linear(2, 1)
for folder in ("pickled", "exported"):
    (base / folder / "data").mkdir()
torch.save(net, base / "pickled/data/model.pth")
batch = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
torch.export.save(torch.export.export(net, (torch.zeros(2, 2),), **batch), base / "exported/data/model.pt2")
"""
QUICK = ("cloudpickle", "tutorial")
TABLE = ["height", "age"]
LOADED = {  # name -> the format, the inputs' names, the outputs' shapes
    "booster": ("mlflow/xgboost", ["input"], [[1]]),
    "classifier": ("mlflow/xgboost", TABLE, [[1], [1, 2]]),
    "cloudpickle": ("mlflow/sklearn", TABLE, [[1], [1, 2]]),
    "exported": ("mlflow/pytorch", ["input"], [[1, 1]]),
    "onnx": ("mlflow/onnx", ["x"], [[1, 2]]),
    "pickled": ("mlflow/pytorch", ["input"], [[1, 1]]),
    "skops": ("mlflow/sklearn", ["input"], [[1], [1, 2]]),
    "tutorial": ("mlflow/sklearn", ["age", "town", "joined"], [[1], [1, 2]]),
}
LOADER = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import loading

for folder in sorted(Path(sys.argv[1]).iterdir()):
    model = loading.load(folder)
    answer = model.predict(model.example())
    shapes = [one["shape"] for one in answer]
    print(json.dumps([folder.name, model.format, [one["name"] for one in model.inputs], shapes]))
"""


def write(base: Path, flavours: dict[str, tuple], maker: str) -> Path:
    """Write a folder of each of these flavours, all by one process, since its imports take seconds."""
    for name, (flavour, fields, inputs) in flavours.items():
        (base / name).mkdir()
        values = {"flavour": flavour, "fields": fields, "file": "model", "inputs": json.dumps(inputs)}
        (base / name / "MLmodel").write_text(MLMODEL % values)
    subprocess.run([sys.executable, "-c", maker, str(base)], check=True, env=ONE_THREAD)
    return base


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Two of scikit-learn: skops and the other frameworks take most of the time."""
    return write(tmp_path_factory.mktemp("flavours"), {name: FLAVOURS[name] for name in QUICK}, SKLEARN)


def loaded(folders: Path) -> dict[str, tuple]:
    command = [settings.RUN_PYTHON, "-c", LOADER, str(folders), str(PROGRAM.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: (kind, inputs, shapes) for name, kind, inputs, shapes in map(json.loads, done.stdout.splitlines())}


@pytest.mark.long
def test_each_flavour_loads_without_mlflow(tmp_path):
    assert loaded(write(tmp_path, FLAVOURS, SKLEARN + OTHERS)) == LOADED


def test_models_of_scikit_learn_load_without_mlflow(folders):
    assert loaded(folders) == {name: LOADED[name] for name in QUICK}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("flavors: {langchain: {}}", "this model has langchain"),
        ("flavors: {sklearn: {pickled_model: ../../../etc/passwd}}", "is not a file of the model"),
        ("flavors: 1", "has no flavors"),
        ("{", "not YAML"),
        ('flavors: {sklearn: {}}\nsignature: {inputs: \'[{"type": "map"}]\'}', "a column of type map"),
    ],
)
def test_what_does_not_load_is_said(tmp_path, text, problem):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MLmodel").write_text(text)
    command = [settings.RUN_PYTHON, str(PROGRAM), str(tmp_path / "model"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert problem in done.stdout


def test_invocations(folders):
    with serving(folders / "cloudpickle") as (url, _process):

        def post(body, kind="application/json") -> tuple[int, object]:
            data = body if isinstance(body, str) else json.dumps(body)
            answer = requests.post(f"{url}/invocations", data=data, headers={"Content-Type": kind}, timeout=LIMIT_S)
            return answer.status_code, answer.json().get("predictions") or answer.json().get("error")

        rows = [{"age": 0, "height": 1.0}, {"age": 9, "height": 6.0}]
        split = {"columns": ["age", "height"], "data": [[0, 1.0], [9, 6.0]]}
        for body in (
            {"dataframe_split": split},
            {"dataframe_records": rows},
            {"instances": rows},
            {"instances": [[1.0, 0], [6.0, 9]]},
            {"inputs": {"age": [0, 9], "height": [1.0, 6.0]}, "params": None},
        ):
            assert post(body) == (200, [0, 1])
        assert post("height,age\n1.0,0\n6.0,9\n", "text/csv; charset=utf-8") == (200, [0, 1])
        for body, problem in (
            ({"dataframe_split": split, "inputs": []}, "exactly one of"),
            ({"dataframe_records": [{"age": 1}]}, "the column height is missing"),
            ({"dataframe_records": [{"age": "old", "height": 1}]}, "does not fit"),
            ({"inputs": {"age": [0]}}, "the column height is missing"),
            ({"inputs": {"age": [0], "height": [1]}, "params": {"deep": 1}}, "params"),
            ({"dataframe_records": [*rows, {"age": None, "height": 1}]}, "age[2]: null does not fit INT64"),
            ({"dataframe_records": [*rows, {"age": 1}]}, "the column height is missing in row 2"),
            ({"dataframe_split": {"columns": ["age", "age", "height"], "data": [[1, 2, 3]]}}, "age is there 2 times"),
            ("{", "not JSON"),
        ):
            status, said = post(body)
            assert status == 400
            assert problem in said
        assert [
            requests.get(f"{url}/{path}", timeout=LIMIT_S).status_code for path in ("ping", "health", "version")
        ] == [200] * 3
        for age, kind, said in (
            ([0, 9], "INT32", [0, 1]), ([0, 9.0], "FP64", [0, 1]), ([0, 1.7], "FP64", "1.7 does not fit INT64"),
            ([False, True], "BOOL", "does not fit INT64"), (["a", "b"], "BYTES", "does not fit INT64"),
        ):  # fmt: skip
            inputs = [{"name": "height", "datatype": "FP32", "shape": [2], "data": [1.0, 6.0]},
                      {"name": "age", "datatype": kind, "shape": [2], "data": age}]  # fmt: skip
            answer = requests.post(f"{url}/v2/models/double/infer", json={"inputs": inputs}, timeout=LIMIT_S)
            if isinstance(said, list):
                assert answer.json()["outputs"][0]["data"] == said
            else:
                assert (answer.status_code, answer.json()["error"][-500:].count(said)) == (400, 1), answer.text
        metadata = requests.get(f"{url}/v2/models/double", timeout=LIMIT_S).json()
        assert [(tensor["name"], tensor["datatype"]) for tensor in metadata["inputs"]] == [
            ("height", "FP64"),
            ("age", "INT64"),
        ]


@pytest.mark.long
def test_a_pipeline_that_chooses_columns_by_name(folders):
    """It is fitted on a data frame, as in most tutorials: missing numbers and words are filled, dates are dates."""
    first, last = (
        {"age": 20, "town": "Bern", "joined": "2020-05-01"},
        {"age": 61, "town": "Wien", "joined": "2023-05-01"},
    )
    rows = [first, {**first, "age": None, "town": None}, last]
    columns = list(first)
    split = {"columns": columns, "index": [7, 8, 9], "data": [[row[name] for name in columns] for row in rows]}
    lines = [columns, *([str(row[name] or "") for name in columns] for row in rows)]
    with serving(folders / "tutorial") as (url, _process):
        less = [{name: value for name, value in row.items() if value is not None} for row in rows]
        for body in ({"dataframe_split": split}, {"dataframe_records": rows}, {"inputs": less}):
            answer = requests.post(f"{url}/invocations", json=body, timeout=LIMIT_S)
            assert (answer.status_code, answer.json()) == (200, {"predictions": [0, 0, 1]})
        text, kind = "\n".join(map(",".join, lines)), {"Content-Type": "text/csv"}
        assert requests.post(f"{url}/invocations", text, headers=kind, timeout=LIMIT_S).json() == {
            "predictions": [0, 0, 1]
        }
        for body, status in (
            ([{"joined": "2020-05-01"}], 200),
            ([{**first, "joined": "soon"}], 400),
            ([{"joined": 1577836800000}], 400),
            ([{"age": 1}], 400),
        ):
            answer = requests.post(f"{url}/invocations", json={"dataframe_records": body}, timeout=LIMIT_S)
            assert (answer.status_code, "joined" in answer.text) == (status, status == 400)
        wrong = {"inputs": [{"name": "town", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}]}
        wrong["inputs"].append({"name": "joined", "datatype": "BYTES", "shape": [1], "data": ["2020-05-01"]})
        head = json.dumps(wrong).encode()
        length = {"Inference-Header-Content-Length": str(len(head))}
        answer = requests.post(f"{url}/v2/models/double/infer", head + b"\1\0\0\0\xff", headers=length, timeout=LIMIT_S)
        assert (answer.status_code, "town: the model takes text in UTF-8" in answer.json()["error"]) == (400, True)
