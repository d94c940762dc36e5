"""The registry's half of the MLflow protocol: the requests that MLflow's clients send, as they were recorded."""

from __future__ import annotations

import pytest

from accounts import lifecycle as accounts
from conftest import Api
from mlp.tests.tiers import few
from models_app.models import Model, RegisteredModel

pytestmark = pytest.mark.django_db

BASE = "/mlflow/api/2.0/mlflow/"
HIDE_PROMPTS = "tags.`mlflow.prompt.is_prompt` != 'true'"


def caller(as_alice):
    """Return a function that sends a request as alice: its answer, which must have the given status."""

    def call(method: str, route: str, code: int = 200, /, client=as_alice, **fields):
        headers = {"HTTP_AUTHORIZATION": f"Bearer {client.token}"}
        options = {"data": fields} if method == "get" else {"data": fields, "content_type": "application/json"}
        response = getattr(super(type(client), client), method)(BASE + route, **options, **headers)
        assert response.status_code == code, response.content
        return response.json()

    return call


@pytest.fixture
def mlflow(as_alice, default_tenant):
    return caller(as_alice)


@pytest.fixture(scope="module")
def churn(keep):
    return keep(lambda alice: make_churn(caller(Api(accounts.token_of(alice)))))


def make_churn(mlflow) -> dict:
    """Make a registered model with four versions of files elsewhere."""
    tags = [{"key": "team", "value": "crm"}]
    answer = mlflow("post", "registered-models/create", name="churn", tags=tags, description="who leaves")
    for number in range(1, 5):
        source, tags = f"s3://bucket/{number}", [{"key": "n", "value": f"run {number}"}]
        version = mlflow(
            "post", "model-versions/create", name="churn", source=source, run_id=f"{number:032x}", tags=tags
        )
        assert version["model_version"]["version"] == str(number)
    return answer["registered_model"]


def test_a_registered_model_as_the_client_reads_it(mlflow, churn):
    assert churn["description"] == "who leaves"
    assert churn["tags"] == [{"key": "team", "value": "crm"}]
    assert type(churn["creation_timestamp"]) is int
    mlflow("post", "registered-models/alias", name="churn", alias="champion", version="2")
    model = mlflow("get", "registered-models/get", name="churn")["registered_model"]
    assert model["aliases"] == [{"alias": "champion", "version": "2"}]
    assert [version["version"] for version in model["latest_versions"]] == ["4"]
    version = mlflow("get", "registered-models/alias", name="churn", alias="champion")["model_version"]
    assert (version["version"], version["status"], version["current_stage"], version["aliases"]) == (
        "2",
        "READY",
        "None",
        ["champion"],
    )
    assert (version["run_id"], version["source"]) == (f"{2:032x}", "s3://bucket/2")
    assert mlflow("get", "registered-models/alias", name="churn", alias="latest")["model_version"]["version"] == "4"
    mlflow("delete", "registered-models/alias", name="churn", alias="champion")
    gone = mlflow("get", "registered-models/alias", 400, name="churn", alias="champion")
    assert gone == {"error_code": "INVALID_PARAMETER_VALUE", "message": "Registered model alias champion not found."}


def test_stages(mlflow, churn):
    for number in ("1", "2"):
        body = {"name": "churn", "version": number, "stage": "production", "archive_existing_versions": False}
        mlflow("post", "model-versions/transition-stage", **body)
    body = {"name": "churn", "version": "3", "stage": "Production", "archive_existing_versions": True}
    moved = mlflow("post", "model-versions/transition-stage", **body)
    assert moved["model_version"]["current_stage"] == "Production"
    versions = mlflow("post", "registered-models/get-latest-versions", name="churn")["model_versions"]
    assert {version["current_stage"]: version["version"] for version in versions} == {
        "None": "4",
        "Production": "3",
        "Archived": "2",
    }
    versions = mlflow("post", "registered-models/get-latest-versions", name="churn", stages=["Archived"])[
        "model_versions"
    ]
    assert [version["version"] for version in versions] == ["2"]


def test_changes(mlflow, churn):
    body = {"name": "churn", "version": "1"}
    mlflow("patch", "model-versions/update", **body, description="first")
    mlflow("post", "model-versions/set-tag", **body, key="checked", value="yes")
    mlflow("delete", "model-versions/delete-tag", **body, key="n")
    version = mlflow("get", "model-versions/get", **body)["model_version"]
    assert (version["description"], version["tags"]) == ("first", [{"key": "checked", "value": "yes"}])
    mlflow("post", "registered-models/set-tag", name="churn", key="tier", value="1")
    mlflow("delete", "registered-models/delete-tag", name="churn", key="team")
    mlflow("patch", "registered-models/update", name="churn", description="now")
    renamed = mlflow("post", "registered-models/rename", name="churn", new_name="Churn 2")["registered_model"]
    assert (renamed["name"], renamed["description"], renamed["tags"]) == (
        "Churn 2",
        "now",
        [{"key": "tier", "value": "1"}],
    )
    mlflow("delete", "model-versions/delete", name="Churn 2", version="4")
    assert (
        mlflow("get", "model-versions/get", 404, name="Churn 2", version="4")["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    )
    new_version = mlflow("post", "model-versions/create", name="Churn 2", source="dummy-source")
    assert new_version["model_version"]["version"] == "5"
    mlflow("delete", "registered-models/delete", name="Churn 2")
    assert not RegisteredModel.objects.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    few(
        [
            ("", "1234"),
            ("name = 'churn'", "1234"),
            ("name='churn' AND " + HIDE_PROMPTS, "1234"),
            ("version_number > 2", "34"),
            ("version_number != '2' and version_number <= 3", "13"),
            (f"run_id = '{1:032x}'", "1"),
            (f"run_id IN ('{1:032x}', '{3:032x}')", "13"),
            (f"run_id NOT IN ('{1:032x}', '{3:032x}')", "24"),
            ("source_path LIKE 's3://bucket/_'", "1234"),
            ("source_path LIKE 'S3://%'", ""),
            ("source_path ILIKE 'S3://%4'", "4"),
            ("tags.n = 'run 2'", "2"),
            ("tag.`n` != 'run 2'", "134"),
            ('tags."n" LIKE "%3"', "3"),
            ("tags.none = 'x'", ""),
            ("attributes.name ILIKE 'CH%'", "1234"),
            ("tags.`mlflow.prompt.is_prompt` = 'true'", ""),
        ],
        6,
    ),
)
def test_searching_versions(mlflow, churn, text, expected):
    answer = mlflow("get", "model-versions/search", filter=text, order_by=["version_number ASC"], max_results=10)
    assert "".join(version["version"] for version in answer["model_versions"]) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("name", "name = churn", "colour = 'red'", "tags.a > '1'", "params.x = '1'", "'; drop"),
        *("version_number LIKE '1'", "name = 'x' OR name = 'y'", "tags.a IN ('b')", "version_number > 'many'"),
        "version_number > 99999999999",
    ],
)
def test_filters_that_are_refused(mlflow, churn, text):
    answer = mlflow("get", "model-versions/search", 400, filter=text)
    assert answer["error_code"] == "INVALID_PARAMETER_VALUE"
    assert "nvalid" in answer["message"]


def test_pages_and_prompts(mlflow, churn):
    for name in ("b", "a", "c"):
        mlflow("post", "registered-models/create", name=name)
    prompt = [{"key": "mlflow.prompt.is_prompt", "value": "true"}]
    mlflow("post", "registered-models/create", name="prompt", tags=prompt)
    names, token = [], ""
    while True:
        given = {"filter": HIDE_PROMPTS, "order_by": ["name DESC"], "max_results": 2, "page_token": token}
        page = mlflow("get", "registered-models/search", **given)
        names += [model["name"] for model in page["registered_models"]]
        token = page.get("next_page_token", "")
        if not token:
            break
    assert names == ["churn", "c", "b", "a"]
    assert "prompt" not in str(mlflow("get", "registered-models/search"))
    models = mlflow("get", "registered-models/search", filter="tags.`mlflow.prompt.is_prompt` = 'true'")
    assert [model["name"] for model in models["registered_models"]] == ["prompt"]
    assert mlflow("get", "registered-models/search", 400, page_token="x")["error_code"] == "INVALID_PARAMETER_VALUE"
    assert mlflow("get", "registered-models/search", 400, order_by=["size"])["error_code"] == "INVALID_PARAMETER_VALUE"


def test_errors_as_the_client_expects_them(mlflow, churn, as_bob):
    taken = mlflow("post", "registered-models/create", 400, name="churn")
    assert taken["error_code"] == "RESOURCE_ALREADY_EXISTS"
    for route, more in {"registered-models/get": {}, "model-versions/get": {"version": "1"}}.items():
        assert mlflow("get", route, 404, name="none", **more)["error_code"] == "RESOURCE_DOES_NOT_EXIST"
        foreign = mlflow("get", route, 404, client=as_bob, name="churn", **more)
        assert foreign["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow("get", "registered-models/search", client=as_bob) == {"registered_models": []}
    assert mlflow("get", "model-versions/search", client=as_bob) == {"model_versions": []}
    wrong = {
        "registered-models/create": {"name": "a/b"},
        "registered-models/alias": {"name": "churn", "alias": "v1", "version": "1"},
        "model-versions/transition-stage": {"name": "churn", "version": "1", "stage": "Live"},
        "model-versions/create": {"name": "churn"},
    }
    for route, fields in wrong.items():
        assert mlflow("post", route, 400, **fields)["error_code"] == "INVALID_PARAMETER_VALUE"


@pytest.mark.parametrize(
    "source",
    [
        "mlflow-artifacts://host/models/../../",
        "https://host/a/..%252f..%252fb",
        "s3://bucket/a%00",
        "file:///etc/passwd",
        " file:///etc/passwd",
        "/etc",
        "%2Fetc",
        "//host/share",
        "\\\\host\\share",
        "./model",
        "~/model",
        "C:\\model",
        "local:/model",
    ],
)
def test_a_source_that_leads_out_of_its_folder_is_refused(mlflow, churn, source):
    refused = mlflow("post", "model-versions/create", 400, name="churn", source=source)
    assert refused["message"].startswith("Invalid model version source")
    wrong = mlflow("get", "model-versions/get", 400, name="churn", version="latest")
    assert wrong["message"] == "Parameter 'version' must be an integer, got 'latest'."


def test_where_a_version_is_downloaded(mlflow, churn, alice):
    Model.objects.create(user=alice, tenant=alice.tenant, name="net", src="home/net", size=1, state="ready")
    uri = mlflow("get", "model-versions/get-download-uri", name="churn", version="1")["artifact_uri"]
    assert uri == "s3://bucket/1"
