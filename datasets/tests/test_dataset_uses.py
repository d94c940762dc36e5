"""What uses or has used a dataset, and its notes, by REST and on its page."""

from __future__ import annotations

import pytest

from accounts.sharing import grants
from automation.sweeps.tests.conftest import body as sweep_body
from datasets.models import Dataset
from kernel import storage
from mlp.tests.page_world import visitor
from models_app.models import Model

pytestmark = pytest.mark.django_db

JOB = {"entry": "train.py", "cpu": 0.1, "ram": 100}
ADDRESS = "users/alice/datasets/photos"


@pytest.fixture
def photos(alice, home) -> Dataset:
    storage.dataset_dir("alice", "photos").mkdir(parents=True)
    return Dataset.objects.create(user=alice, tenant=alice.tenant, name="photos", size=0, state="ready")


@pytest.fixture
def alice_client(alice):
    return visitor(alice)


@pytest.fixture
def bob_client(bob):
    return visitor(bob)


@pytest.fixture
def used(as_alice, alice, photos, tasks):
    """Make one thing of each kind that reads the photos, and a job and a sweep that do not."""
    job = {**JOB, "datasets": ["photos"]}
    steps = {"train": {**job}}
    for address, given in [
        ("jobs", {"name": "fit", **job}),
        ("jobs", {"name": "other", **JOB}),
        ("sweeps", sweep_body(name="search", job=job)),
        ("sweeps", sweep_body(name="elsewhere", job=JOB)),
        ("pipelines", {"name": "flow", "steps": steps}),
        ("schedules", {"name": "nightly", "cron": "0 3 * * *", "job": job}),
    ]:
        answer = as_alice.call("post", f"users/alice/{address}", given)
        assert answer.status_code == 201, answer.content
    lineage = {"job": "fit", "datasets": [{"name": "photos", "size": 0}]}
    own = {"user": alice, "tenant": alice.tenant}
    Model.objects.create(**own, name="net", src="jobs/fit", size=0, state="ready", lineage=lineage)


def uses(caller, query: str = "") -> list[tuple[str, str, str]]:
    return [(use["kind"], use["user"], use["name"]) for use in caller.call("get", f"{ADDRESS}/uses{query}").json()]


def test_uses_are_listed_newest_first(used, as_alice):
    expected = [("schedule", "nightly"), ("pipeline", "flow"), ("sweep", "search"), ("job", "fit")]
    uses_of_alice = [(kind, name) for kind, user, name in uses(as_alice) if user == "alice"]
    assert uses_of_alice == [("model", "net"), *expected]
    assert uses(as_alice, "?limit=1") == [("model", "alice", "net")]
    assert as_alice.refused("get", f"{ADDRESS}/uses?limit=0").startswith("limit:")


def test_jobs_of_those_with_whom_it_is_shared_are_uses(photos, alice, bob, as_alice, as_bob, tasks):
    grants.make(row=photos, audience="user", user="bob", right="clone", by="alice")
    home = storage.home_dir("bob")
    (home / "train.py").write_text("print()")
    given = {"name": "theirs", **JOB, "datasets": ["alice/photos"]}
    assert as_bob.call("post", "users/bob/jobs", given).status_code == 201
    assert uses(as_alice) == [("job", "bob", "theirs")]
    assert as_bob.call("get", f"{ADDRESS}/uses").status_code == 403  # a reader of the dataset learns nothing of others


def test_what_used_an_earlier_dataset_of_that_name_is_no_use(used, as_alice, alice):
    Dataset.objects.all().delete()
    Dataset.objects.create(user=alice, tenant=alice.tenant, name="photos", size=0, state="ready")
    assert uses(as_alice) == []


def test_the_page_shows_uses_to_the_owner_only(used, alice, alice_client, bob, bob_client):
    grants.make(row=Dataset.objects.get(), audience="user", user="bob", right="read", by="alice")
    page = alice_client.get("/datasets/photos").content.decode()
    for link in ("/jobs/fit", "/sweeps/search", "/pipelines/flow", "/schedules/nightly", "/models/net"):
        assert f'href="{link}"' in page
    shared = bob_client.get("/u/alice/datasets/photos").content.decode()
    assert "/jobs/fit" not in shared
    assert "nightly" not in shared


def test_notes_are_saved_by_rest_and_on_the_page(photos, as_alice, as_bob, alice_client):
    answer = as_alice.call("put", f"{ADDRESS}/notes", {"notes": "# From *the field*"})
    assert (answer.status_code, answer.json()["notes"]) == (200, "# From *the field*")
    assert "<em>the field</em>" in alice_client.get("/datasets/photos").content.decode()
    assert alice_client.post("/datasets/photos", {"notes": "one\r\ntwo"}).status_code == 302
    assert as_alice.call("get", ADDRESS).json()["notes"] == "one\ntwo"
    assert as_alice.refused("put", f"{ADDRESS}/notes", {"notes": "x" * 20_001}).startswith("notes:")
    page = alice_client.post("/datasets/photos", {"notes": "x" * 20_001})
    assert page.status_code == 403
    assert "x" * 100 in page.content.decode()
    assert as_bob.call("put", f"{ADDRESS}/notes", {"notes": "mine"}).status_code == 403
    assert Dataset.objects.get().notes == "one\ntwo"


def test_a_reader_sees_the_notes_and_cannot_change_them(photos, alice, bob, bob_client):
    grants.make(row=Dataset.objects.get(), audience="user", user="bob", right="read", by="alice")
    Dataset.objects.update(notes="read me")
    page = bob_client.get("/u/alice/datasets/photos").content.decode()
    assert "read me" in page
    assert "<textarea" not in page
    assert bob_client.post("/u/alice/datasets/photos", {"notes": "mine"}).status_code in (403, 404, 405)
    assert Dataset.objects.get().notes == "read me"
