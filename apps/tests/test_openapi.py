"""The OpenAPI description of an application: valid, kept by its answers, and what its page says to copy works."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys

import jsonschema
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.definitions import OPENAPI_31

from apps import keys
from apps.models import Application
from mlp.tests.page_world import visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later

from .conftest import NAMES, bearer_of
from .test_serving import serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
KINDS = ("BOOL", "UINT8", "UINT64", "INT8", "INT64", "FP16", "FP32", "FP64", "BYTES")
EVERY_KIND = f"""
class Predictor:
    inputs = [{{"name": kind, "datatype": kind, "shape": [-1, 2]}} for kind in {KINDS}]

    def predict(self, inputs):
        return [{{"name": one["name"].lower(), "datatype": one["datatype"], "shape": one["shape"], "data": one["data"]}}
                for one in inputs]
"""
ONE = """
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]

    def predict(self, inputs):
        return [{**inputs[0], "name": "y"}]
"""
NOTHING = """
class Predictor:
    def predict(self, inputs):
        return [{**one, "name": "y"} for one in inputs[:1]]
"""


def require_valid(document: dict) -> None:
    jsonschema.Draft202012Validator(OPENAPI_31).validate(document)
    for path in document["paths"].values():
        for call in path.values():
            for content in call.get("requestBody", {}).get("content", {}).values():
                jsonschema.Draft202012Validator.check_schema(content["schema"])


def body_of(document: dict, path: str) -> dict:
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]


def try_out(document: dict, url: str, headers: dict, most: int) -> set[str]:
    """Send generated requests to every call and judge the answers by the description; return the calls."""
    schema = schemathesis.openapi.from_dict(document)
    tried = set()
    for operation in (result.ok() for result in schema.get_all_operations()):

        @settings(max_examples=most, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def probe(case):
            case.call_and_validate(base_url=url, headers=headers, checks=CHECKS)

        probe()
        tried.add(operation.label)
    return tried


@pytest.fixture(scope="module", params=[later(ONE), EVERY_KIND, NOTHING], ids=["one", "every-kind", "nothing-declared"])
def served(request, tmp_path_factory):
    """The address and the description of a model that is served without a gateway."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "predictor.py").write_text(request.param)
    with serving(folder, "net") as (url, _process):
        yield url, requests.get(f"{url}/openapi.json", timeout=LIMIT_S).json()


def test_the_answers_are_those_that_it_describes(served):
    url, document = served
    require_valid(document)
    tried = try_out(document, url, {}, 15)
    assert {"POST /predict", "POST /v2/models/net/infer", "GET /openapi.json"} <= tried


def test_its_example_is_one_and_is_answered(served):
    url, document = served
    body = body_of(document, "/predict")
    if "example" not in body:
        assert body["schema"] == {"type": "object"}, "nothing is known of the inputs"
        return
    jsonschema.Draft202012Validator(body["schema"]).validate(body["example"])
    assert requests.post(f"{url}/predict", json=body["example"], timeout=LIMIT_S).status_code == 200


WRONG = {
    "BOOL": 1, "UINT8": 256, "UINT64": -1, "INT8": 128, "INT64": 1.5, "FP16": 1e6, "FP32": 1e39, "FP64": "x",
    "BYTES": 7,
}  # fmt: skip


@pytest.mark.parametrize("served", [EVERY_KIND], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_application_refuses_is_not_described(served, kind):
    url, document = served
    body = body_of(document, "/predict")
    wrong = {**body["example"], kind: [[WRONG[kind]] * 2]}
    assert requests.post(f"{url}/predict", json=wrong, timeout=LIMIT_S).status_code == 400
    assert not jsonschema.Draft202012Validator(body["schema"]).is_valid(wrong)


# --- through the gateway -----------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("public", [later(False), True])
def test_a_running_application_answers_as_it_describes(front, deploy, ready, alice, public):
    app = ready(deploy(next(NAMES), public=public))
    address = f"{front}/alice/{app.name}"
    headers = {"X-Api-Key": keys.create(app=app, name="shop", by="alice")[1]}
    assert requests.get(f"{address}/openapi.json").status_code == (200 if public else 401)
    document = requests.get(f"{address}/openapi.json", headers=headers).json()
    require_valid(document)
    assert document["servers"] == [{"url": f"/alice/{app.name}"}]
    assert ({} in document["security"]) is public
    assert set(document["components"]["securitySchemes"]) == {"bearer", "key"}
    assert requests.head(f"{address}/openapi.json", headers=headers).status_code == 200
    try_out(document, address, headers, 5)
    if not public:
        try_out(document, address, {"X-Api-Key": "mlp_a1_wrong"}, 1)


def snippets_of(user, app: Application) -> dict[str, str]:
    page = visitor(user).get(f"/apps/{app.name}").content.decode()
    matches = re.findall(r'<pre id="snippet-(\w+)"[^>]*>(.*?)</pre>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in matches}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("public", [False, True])
def test_the_pages_snippets_work_as_they_are(service, front, deploy, ready, alice, public, settings):
    settings.APP_GATEWAY_URL = front
    app = ready(deploy(next(NAMES), public=public))
    snippets = snippets_of(alice, app)
    key = {} if public else {"MLP_KEY": keys.create(app=app, name="shop", by="alice")[1]}
    for command in (["bash", "-c", snippets["curl"]], [sys.executable, "-c", snippets["python"]]):
        done = subprocess.run(command, env={"PATH": os.environ["PATH"], **key}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.replace("'", '"')) == {"y": [1.5]}
    if not public:
        assert all("MLP_KEY" in snippets[name] for name in ("curl", "python"))
    for address in snippets["client"].split():
        answer = requests.get(address, headers=bearer_of(alice))
        assert answer.status_code == (405 if address.endswith("/infer") else 200)


LARGE = """
class Predictor:
    inputs = outputs = [{"name": "n", "datatype": "UINT64", "shape": [-1]}]

    def predict(self, inputs):
        return [{"name": "n", "data": [*inputs[0]["data"], 0.5 if inputs[0]["data"] == [7] else 1]}]
"""


def test_large_and_small_whole_numbers_of_a_predictor_stay_what_they_are(tmp_path):
    (tmp_path / "predictor.py").write_text(LARGE)
    with serving(tmp_path) as (address, _process):
        assert requests.post(f"{address}/predict", json={"n": [2**64 - 1, 3]}).json() == {"n": [2**64 - 1, 3, 1]}
        answer = requests.post(f"{address}/predict", json={"n": [7]})
        assert (answer.status_code, "n: 0.5 does not fit UINT64" in answer.text) == (500, True)
