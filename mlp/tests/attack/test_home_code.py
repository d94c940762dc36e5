"""A token for submission that writes a script which a schedule or a pipeline runs with more rights than the token has.

By the data service, with real nginx. The schedule sets aliases in the model registry, the token does not.
"""

from __future__ import annotations

import pytest

from accounts import named_tokens
from datasets.tests.live import Person, alice_data, servers, service
from kernel import storage

__all__ = ["alice_data", "servers", "service"]

pytestmark = pytest.mark.django_db(transaction=True)
HOME = "/data/alice/.home"
JOB = {"entry": "train/fit.py", "registry": "aliases"}
AT_NIGHT = {"name": "nightly", "cron": "0 3 * * *"}
FLOW = {"name": "flow", "steps": {"fit": {"entry": "train/fit.py", "registry": "aliases"}}}


@pytest.fixture
def scripts(alice_data):
    """Write alice's scripts, for the data service and for the checks of REST."""
    for path in ("train/fit.py", "train/more/util.py", "other/fit.py", "top.py"):
        assert alice_data.put(f"{HOME}/{path}", data=b"pass").status_code in (201, 204)
        (storage.home_dir("alice") / path).parent.mkdir(parents=True, exist_ok=True)
        (storage.home_dir("alice") / path).write_text("pass")
    return alice_data


@pytest.fixture
def client(service, alice):
    """Return a function that gives a client with a token for submission, which has these rights."""

    def make(**rights) -> Person:
        person, name = Person(service, alice), "-".join(("ci", *rights))
        person.token = named_tokens.create(user=alice, name=name, scope="submit", by="test", **rights)[1]
        person.headers["Authorization"] = f"Bearer {person.token}"
        return person

    return make


def move(client: Person, path: str, to: str, method: str = "MOVE"):
    return client.request(method, f"{HOME}/{path}", headers={"Destination": f"{client.service.url}{HOME}/{to}"})


def into_the_code(client: Person) -> list[int]:
    """Return how each way to change the code of `train/fit.py` is answered."""
    return [
        client.put(f"{HOME}/train/fit.py", data=b"evil").status_code,
        client.put(f"{HOME}/train/big.py", data=b"#" * 200_000).status_code,
        client.put(f"{HOME}/train/more/util.py", data=b"evil").status_code,
        move(client, "other/fit.py", "train/fit.py").status_code,
        move(client, "other/fit.py", "train/numpy.py", "COPY").status_code,
        move(client, "train/more/util.py", "other/util.py").status_code,
        move(client, "train", "gone").status_code,
        client.request("MKCOL", f"{HOME}/train/numpy").status_code,
        client.request("LOCK", f"{HOME}/train/numpy.py").status_code,
    ]


@pytest.mark.parametrize(("kind", "body"), [("schedules", {**AT_NIGHT, "job": JOB}), ("pipelines", FLOW)])
def test_no_code_runs_with_more_rights_than_who_wrote_it(scripts, client, alice, as_alice, kind, body):
    response = as_alice.call("post", f"users/alice/{kind}", body)
    assert response.status_code == 201, response.content
    usual = client()
    assert into_the_code(usual) == [403] * 9
    said = usual.put(f"{HOME}/train/fit.py", data=b"evil").json()["msg"]
    assert said.startswith("token: ")
    assert body["name"] in said
    assert scripts.get(f"{HOME}/train/fit.py").content == b"pass"
    # What it runs not, and what a token with these rights, or the user, writes.
    assert usual.put(f"{HOME}/other/fit.py", data=b"new").status_code == 204
    assert client(registry="aliases").put(f"{HOME}/train/fit.py", data=b"new").status_code == 204
    assert scripts.put(f"{HOME}/train/fit.py", data=b"newer").status_code == 204
    assert as_alice.call("delete", f"users/alice/{kind}/{body['name']}").status_code == 200
    assert usual.put(f"{HOME}/train/fit.py", data=b"last").status_code == 204


def test_code_that_is_kept_and_jobs_with_the_same_rights_are_no_reason(scripts, client, as_alice):
    for name, code, registry in (("a", "kept", "aliases"), ("b", "latest", "versions"), ("c", "latest", "read")):
        job = {"entry": "train/fit.py", "registry": registry}
        body = {**AT_NIGHT, "name": name, "job": job, "code": code}
        assert as_alice.call("post", "users/alice/schedules", body).status_code == 201
    assert client().put(f"{HOME}/train/fit.py", data=b"new").status_code == 204
    for rights in ({"registry": "read"}, {"registry_models": ["churn"]}):  # less than `b` has
        assert client(**rights).put(f"{HOME}/train/fit.py", data=b"new").status_code == 403


def test_a_script_beside_everything_else_has_the_whole_folder_as_its_code(scripts, client, as_alice):
    job = {"entry": "top.py", "registry": "aliases"}
    assert as_alice.call("post", "users/alice/schedules", {**AT_NIGHT, "job": job}).status_code == 201
    assert client().put(f"{HOME}/other/fit.py", data=b"new").status_code == 403
