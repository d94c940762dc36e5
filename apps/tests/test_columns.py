"""A model that was fitted on a data frame gets its columns by their names, at every endpoint: never those of others."""

from __future__ import annotations

import pytest
import requests

from mlp.tests.patience import LIMIT_S

from .test_serving import serving

SWAPPED, OTHERS = "size,age\n1,2\n", "size,weight\n1,2\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    import joblib  # here: they take seconds, and every worker loads this file
    import pandas as pd
    from sklearn.linear_model import LinearRegression

    folder = tmp_path_factory.mktemp("named")
    table = pd.DataFrame([[0, 0], [1, 0], [0, 1], [1, 1]], columns=["age", "size"])
    joblib.dump(LinearRegression().fit(table, table["age"] + 10 * table["size"]), folder / "model.joblib")
    with serving(folder) as (address, _process):
        yield address


def post(url: str, body, kind: str = "application/json") -> tuple[int, dict]:
    sent = {"json": body} if isinstance(body, dict) else {"data": body, "headers": {"Content-Type": kind}}
    answer = requests.post(url, timeout=LIMIT_S, **sent)
    return answer.status_code, answer.json()


def infer(url: str, columns: dict[str, list], **more) -> tuple[int, dict]:
    """Send a data frame as MLServer's PandasCodec does: a tensor for each column."""
    inputs = [{"name": name, "datatype": "INT64", "shape": [len(data)], "data": data} for name, data in columns.items()]
    body = {"parameters": {"content_type": "pd"}, "inputs": inputs, **more}
    return post(f"{url}/v2/models/double/infer", body)


def test_columns_of_a_table_go_to_the_features_of_their_names(url):
    split = {"dataframe_split": {"columns": ["size", "age"], "data": [[1, 2]]}}
    records = {"dataframe_records": [{"size": 1, "age": 2}]}
    for path, body, kind in (
        ("predict", SWAPPED, "text/csv"),
        ("invocations", SWAPPED, "text/csv"),
        ("invocations", split, ""),
        ("invocations", records, ""),
    ):
        status, answer = post(f"{url}/{path}", body, kind)
        assert (status, next(iter(answer.values()))) == (200, pytest.approx([12])), answer
    for path in ("predict", "invocations"):
        status, answer = post(f"{url}/{path}", OTHERS, "text/csv")
        assert (status, "must be age, size; given were size, weight" in answer["error"]) == (400, True), answer
    status, answer = post(f"{url}/invocations", {"dataframe_split": {"data": [[2, 1]]}})
    assert (status, answer["predictions"]) == (200, pytest.approx([12])), "without names they are in the model's order"


def test_a_data_frame_of_mlservers_clients(url):
    status, answer = infer(url, {"size": [1, 0], "age": [2, 5]})
    assert (status, answer["outputs"][0]["data"]) == (200, pytest.approx([12, 5])), answer
    for columns, words in (
        ({"size": [1], "weight": [2]}, "must be age, size"),
        ({"size": [1, 2], "age": [1]}, "same number of rows"),
        ({"size": [1]}, "must be age, size"),
    ):
        status, answer = infer(url, columns)
        assert (status, words in answer["error"]) == (400, True), answer


def test_what_the_model_refuses_of_a_value_is_the_requests_mistake(url):
    for body, words in (('{"input": [[NaN, 1]]}', "has NaN or infinite numbers"), ('{"input": []}', "[0]")):
        status, answer = post(f"{url}/predict", body)
        assert (status, words in answer["error"]) == (400, True), answer
    empty = {"name": "input", "datatype": "FP64", "shape": [0, 2], "data": []}
    status, answer = post(f"{url}/v2/models/double/infer", {"inputs": [empty]})
    assert (status, "has no values" in answer["error"]) == (400, True), answer


def test_ids_and_shapes_as_mlserver_takes_them(url):
    tensor = {"name": "input", "datatype": "FP64", "shape": [1.0, 2.0], "data": [2, 1]}
    for given, wanted in ((None, None), ("a", "a"), (7, "7")):
        status, answer = post(f"{url}/v2/models/double/infer", {"id": given, "inputs": [tensor]})
        assert (status, answer.get("id")) == (200, wanted), answer
    for given in (True, [1], 1.5):
        status, answer = post(f"{url}/v2/models/double/infer", {"id": given, "inputs": [tensor]})
        assert (status, answer["error"]) == (400, "id: must be a string")
